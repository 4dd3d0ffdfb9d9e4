"""What an engine needs before it runs: keys and a store at the right schema.

What lives here: finding or making them. What does not: the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from durable_core import schema
from durable_core.clock import Clock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.errors import Broken, NoKeys
from durable_core.keys import Keys
from durable_core.store import Store
from durable_core.stores.open import StoreOptions, open_store

KEYS_VARIABLE: Final = "MOORINGS_ENCRYPTION_KEYS"
_SQLITE: Final = "sqlite:///"
_MEMORY: Final = ":memory:"


async def opened(url: str, *, keys: Keys | None, clock: Clock, migrate: bool | None, options: StoreOptions) -> Store:
    """Return an open store. A SQLite file is made and brought to the right schema by itself, unless `migrate` is False.

    Raises:
        NoKeys, BadKeyRing, KeysNotGiven, KeyMissing, KeyWrong: there are no keys, or not those of the data.
        SchemaOutdated: the database has to be migrated first.
        Unavailable, Broken: the database's own.
    """
    path = sqlite_path(url)
    given = keys or (KeyRing.parse(new_key_entry()) if url == _SQLITE + _MEMORY else find_keys(path, os.environ))
    if migrate or (migrate is None and path is not None):
        await asyncio.to_thread(_migrate, url, path, options.namespace)
    store = open_store(url, keys=given, clock=clock, options=options)
    await store.open()
    return store


def sqlite_path(url: str) -> Path | None:
    """Return the file of a SQLite URL; None for one in memory and for another database."""
    name = url.removeprefix(_SQLITE)
    return None if name in {url, "", _MEMORY} else Path(name)


def find_keys(path: Path | None, environ: Mapping[str, str]) -> KeyRing:
    """Read the keys from the environment, else from a file beside the SQLite file, which is made if there is none.

    Raises:
        NoKeys: the database is not a SQLite file, and the environment holds no keys.
        BadKeyRing: they can't be read.
    """
    text = environ.get(KEYS_VARIABLE, "").strip()
    if text:
        return KeyRing.parse(text)
    if path is None:
        raise NoKeys
    beside = path.with_name(f"{path.name}.key")
    try:
        return KeyRing.parse(_kept(beside))
    except OSError as error:
        if not path.parent.is_dir():
            raise Broken(f"the folder of {path} does not exist") from error
        raise Broken(f"{beside}, the file of the encryption keys, can't be read or made: {error.strerror}") from error


def _kept(path: Path) -> str:
    """Read a secret from its file, or make it: whole or not at all, its owner's alone, one for all who come at once."""
    if not path.exists():
        beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(new_key_entry())
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(beside)
        finally:
            beside.unlink()
    return path.read_text(encoding="utf-8")


def _migrate(url: str, path: Path | None, namespace: str | None) -> None:
    if path is None or schema.found_version(path) != schema.HEAD:
        schema.upgrade(url, namespace=namespace)
