"""Which IP addresses may be connected to: those that are somebody's public host, and no others.

What lives here: the judgement over one address. What does not: names, ports, schemes (origins.py) and sockets (client.py).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

# What `ipaddress.is_global` of Python 3.11 takes for public and is not (measured on 3.11.7), or is public and leads elsewhere.
_NOT_PUBLIC_4: Final = (
    IPv4Network("192.0.0.0/24"),  # IETF protocol assignments, the two anycast addresses too
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
)
_NOT_PUBLIC_6: Final = (
    IPv6Network("2001::/23"),  # Teredo, ORCHID, benchmarks
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("2002::/16"),  # 6to4: any IPv4 address, through a relay
    IPv6Network("3fff::/20"),  # documentation
)
_UNICAST_6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Judge an address as a socket gets it; what is no address is not public."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return _is_public_4(found) if isinstance(found, IPv4Address) else _is_public_6(found)


def _is_public_4(address: IPv4Address) -> bool:
    refused = address.is_multicast or address.is_reserved or any(address in network for network in _NOT_PUBLIC_4)
    return address.is_global and not refused


def _is_public_6(address: IPv6Address) -> bool:
    if address.ipv4_mapped is not None:
        return _is_public_4(address.ipv4_mapped)
    if address in _NAT64:  # how a host without IPv4 reaches the rest of the world
        return _is_public_4(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _UNICAST_6 and address.is_global and not any(address in network for network in _NOT_PUBLIC_6)
