"""The strict, versioned codec of addresses: `slack:v1:<enterprise?>:<team>:<channel>:<thread>`.

What lives here: text to parts and back. What does not: what a part means on a platform.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from channels.errors import BadAddress

MAX_ADDRESS = 512


@dataclass(frozen=True, slots=True)
class AddressCodec:
    """Writes and reads the addresses of one channel in one version.

    Every part may hold any text: all but letters, digits and `._-~` is percent-escaped, so a separator in a part can't
    forge another address. One address has one spelling: what doesn't re-encode to itself is refused. A field whose
    name ends in "?" may be empty. An address has at most 512 characters.
    """

    channel: str
    version: int
    fields: tuple[str, ...]

    def encode(self, *parts: str) -> str:
        """Return the address made of these parts, one for each field. Raises: BadAddress."""
        head = f"{self.channel}:v{self.version}"
        if len(parts) != len(self.fields):
            raise BadAddress(head, f"{len(self.fields)} parts are needed, not {len(parts)}")
        for name, part in zip(self.fields, parts, strict=True):
            if not part and not name.endswith("?"):
                raise BadAddress(head, f"{name} is empty")
        try:
            address = ":".join([head, *(quote(part, safe="", errors="strict") for part in parts)])
        except UnicodeEncodeError:
            raise BadAddress(head, "a part is not text") from None
        if len(address) > MAX_ADDRESS:
            raise BadAddress(address, f"longer than {MAX_ADDRESS} characters")
        return address

    def decode(self, address: str) -> tuple[str, ...]:
        """Return the parts of an address. Raises: BadAddress for whatever `encode` would not have written."""
        if len(address) > MAX_ADDRESS:
            raise BadAddress(address, f"longer than {MAX_ADDRESS} characters")
        channel, _, rest = address.partition(":")
        version, _, tail = rest.partition(":")
        if channel != self.channel:
            raise BadAddress(address, f"not an address of {self.channel}")
        if version != f"v{self.version}":
            raise BadAddress(address, f"not version {self.version}")
        try:
            parts = tuple(unquote(part, errors="strict") for part in tail.split(":"))
        except UnicodeDecodeError:
            raise BadAddress(address, "an escape is not UTF-8") from None
        if self.encode(*parts) != address:
            raise BadAddress(address, "not in its one spelling")
        return parts
