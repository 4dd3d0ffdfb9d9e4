"""Hosts: what a database's URL names, one server or several of which one takes writes.

What lives here: reading URLs. What does not: connecting (`connect.py`), and choosing among servers (`servers.py`). Nothing of
the driver is loaded: settings are checked by this.
"""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

_MARK = "target_session_attrs"


def dsn(url: str) -> str:
    """Return a URL as the drivers take it: without SQLAlchemy's name of one."""
    scheme, colon, rest = url.partition(":")
    return f"{scheme.partition('+')[0]}{colon}{rest}"


def wanted(url: str) -> str | None:
    """Return which kind of server the URL itself says will do; None where it says nothing."""
    found = dict(piece.partition("=")[::2] for piece in urlsplit(url).query.split("&"))
    return found.get(_MARK)


def wants_other(url: str) -> bool:
    """Tell whether the URL says that a server that takes no writes will do."""
    return wanted(url) not in {None, "read-write", "primary"}


def each(url: str) -> dict[str, str]:
    """Return the URL of each host by its name: `HOST:PORT,HOST:PORT` in its place, or `?host=…,…&port=…,…`.

    Raises:
        ValueError: it can't be read.
    """
    parts = urlsplit(url)
    auth, at, spec = parts.netloc.rpartition("@")
    pieces = [piece for piece in parts.query.split("&") if piece]
    given = {name: unquote(value) for name, _, value in (piece.partition("=") for piece in pieces)}
    names = (spec or given.get("host", "")).split(",")
    ports = given.get("port", "").split(",")
    ports = ports * len(names) if len(ports) == 1 else ports
    if len(ports) != len(names):
        raise ValueError(f"{len(names)} hosts, {len(ports)} ports")
    if len(names) > 1 and not all(names):
        raise ValueError("a host is missing between two commas")
    urls = {}
    for name, port in zip(names, ports, strict=True):
        own = [piece for piece in pieces if piece.partition("=")[0] not in {"host", "port"}]
        own += [f"host={quote(name)}"] if name and not spec else []
        own += [f"port={port}"] if port else []
        query = f"?{'&'.join(own)}" if own else ""
        single = f"{parts.scheme}://{auth}{at}{name if spec else ''}{parts.path}{query}"
        urlsplit(single).port  # noqa: B018 - what can't be read raises
        urls[f"{name}:{port}" if port else name] = single
    return urls
