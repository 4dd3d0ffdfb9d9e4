"""What the environment says, read once.

What lives here: every MOORINGS_ variable, and the secrets that demo and dev keep beside their data. What does not: provider
keys, which their own clients read, and an author's settings.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from bot.errors import BadSettings, NotReady

DEFAULT_FOLDER = Path(".moorings")
DATABASE_FILE = "moorings.db"
SCOPES = frozenset({"sessions"})
"""What a token may do that names no scopes."""
ALL_SCOPES = SCOPES | {"prompts:read", "prompts:override", "audit:read"}
_POSTGRES = ("postgresql", "postgres")
_DIALECTS = ("sqlite", *_POSTGRES)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 b64token
_PRINCIPAL = re.compile(r"[A-Za-z0-9._@-]{1,80}")
_DEPLOYMENT = re.compile(r"[A-Za-z0-9._+-]{1,80}")
_MODEL = re.compile(r"[a-z0-9-]+:[^\s:]\S*")
_NAMESPACE = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
OF_DATABASE = (
    "MOORINGS_DATABASE_URL",
    "MOORINGS_NAMESPACE",
    "MOORINGS_DATABASE_LISTEN_URL",
    "MOORINGS_DATABASE_POOL",
    "MOORINGS_DATABASE_POOLER",
)
"""Variables that say where everything is kept: demo and dev, which keep their own, don't read them."""


class Role(StrEnum):
    """What a process does: everything, only what listens, or only what works."""

    ALL = "all"
    WEB = "web"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class ApiToken:
    """One bearer token: whom it speaks for and what it may do. Only its SHA-256 is kept."""

    principal: str
    digest: bytes = field(repr=False)
    _: KW_ONLY
    scopes: frozenset[str] = SCOPES

    @classmethod
    def of(cls, principal: str, token: str, *, scopes: frozenset[str] = SCOPES) -> ApiToken:
        """Make the value for a token in clear."""
        return cls(principal, hashlib.sha256(token.encode()).digest(), scopes=scopes)


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment as values; `encryption_keys` is None where none were given."""

    data: Path
    database_url: str = field(repr=False)  # may hold a password
    _: KW_ONLY
    own_folder: Path | None = None
    """Where demo and dev keep their own database, and beside it what the demo's panel moved; None elsewhere."""
    namespace: str | None = None
    """The PostgreSQL schema of our tables; None leaves it to the server's search path."""
    listen_url: str | None = field(default=None, repr=False)
    """A way past a pooler, for the one connection that needs a session."""
    pool: int = 10
    """Connections that a process opens to PostgreSQL at most, beside the one that listens."""
    pooler: bool = False
    """A pooler in transaction mode stands in front of PostgreSQL."""
    public_url: str | None = None
    """Where people's browsers reach this app: the way back of every sign-in leads there."""
    trusted_origins: tuple[str, ...] = ()
    """Origins that may be called over plain http and on this machine: the demo's own, never from the environment."""
    encryption_keys: str | None = field(default=None, repr=False)
    model: str | None = None
    api_tokens: tuple[ApiToken, ...] = ()
    deployment: str = ""
    concurrency: int = 64
    """Sessions that a process works on at once at most."""
    blocked_seconds: float = 600.0
    """How long a process whose event loop is blocked keeps the sessions it works on; then they are left to others."""
    dormant_before: int = 0
    """Unfinished sessions to which nothing has happened since then are left alone: those of an earlier start; 0 for none."""
    drain_seconds: float = 25.0
    """How long what runs may go on once the process is told to stop; the platform's own limit has to be 5 s longer."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str], *, data: Path | None = None) -> Settings:
        """Read the environment; an empty variable counts as unset.

        Raises: BadSettings, with every problem there is.
        """
        folder = data if data is not None else DEFAULT_FOLDER
        problems: list[str] = []

        def read(name: str, check: Callable[[str], str | None]) -> str | None:
            value = environ.get(name, "").strip()
            problem = check(value) if value else None
            if problem:
                problems.append(f"{name}: {problem}")
            return value or None

        database_url = read("MOORINGS_DATABASE_URL", _check_database_url)
        on_postgres = (database_url or "").startswith(_POSTGRES)
        namespace = read("MOORINGS_NAMESPACE", _check_namespace if on_postgres else _no_namespace)
        listen_url = read("MOORINGS_DATABASE_LISTEN_URL", _check_listen_url if on_postgres else _for_postgres)
        pool = read("MOORINGS_DATABASE_POOL", _whole(1, 1_000) if on_postgres else _for_postgres)
        pooler = read("MOORINGS_DATABASE_POOLER", _check_pooler if on_postgres else _for_postgres)
        public_url = read("MOORINGS_PUBLIC_URL", _check_public_url)
        keys = environ.get("MOORINGS_ENCRYPTION_KEYS", "").strip() or None
        problems += _key_problems(keys)
        model = read("MOORINGS_MODEL", _check_model)
        deployment = read("MOORINGS_DEPLOYMENT", _check_deployment)
        concurrency = read("MOORINGS_CONCURRENCY", _whole(1, 10_000))
        blocked = read("MOORINGS_BLOCKED_SECONDS", _whole(1, 86_400, of="whole seconds"))
        drain = read("MOORINGS_DRAIN_SECONDS", _whole(0, 3600, of="whole seconds"))
        tokens, token_problems = _read_tokens(environ.get("MOORINGS_API_TOKENS", ""))
        problems += token_problems
        if problems:
            raise BadSettings(tuple(problems))
        return cls(
            folder,
            database_url or sqlite_url(folder),
            namespace=namespace,
            listen_url=listen_url,
            pool=int(pool or 10),
            pooler=pooler is not None,
            public_url=public_url.rstrip("/") if public_url else None,
            encryption_keys=keys,
            model=model,
            api_tokens=tokens,
            deployment=deployment or version(),
            concurrency=int(concurrency or 64),
            blocked_seconds=float(blocked or 600),
            drain_seconds=float(drain) if drain else 25.0,
        )


def sqlite_url(folder: Path) -> str:
    """Name the SQLite database of a data folder."""
    return f"sqlite:///{folder.resolve() / DATABASE_FILE}"


def sqlite_path(url: str) -> Path | None:
    """Return the file of a SQLite URL; None for another database."""
    scheme, _, rest = url.partition("://")
    return Path(rest.removeprefix("/").partition("?")[0]) if scheme.partition("+")[0] == "sqlite" else None


def version() -> str:
    """Return the version of the installed distribution; a bare checkout has none."""
    from importlib.metadata import PackageNotFoundError  # noqa: PLC0415 - only where it is needed, for a quick start
    from importlib.metadata import version as installed  # noqa: PLC0415

    try:
        return installed("moorings")
    except PackageNotFoundError:
        return "0+checkout"


def own_settings(environ: Mapping[str, str], data: Path) -> Settings:
    """Read the environment for a command with its own SQLite file in a folder, and keys beside it where none are set.

    Raises: BadSettings, NotReady.
    """
    settings = Settings.from_env({name: value for name, value in environ.items() if name not in OF_DATABASE}, data=data)
    return replace(settings, own_folder=data, encryption_keys=settings.encryption_keys or kept_keys(data))


def kept_secret(path: Path, make: Callable[[], str]) -> str:
    """Read a secret kept in a file, or make it, readable by its owner only.

    Whoever comes first wins: of two processes that start at once both get the same secret.

    Raises: NotReady.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(f"{make()}\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                path.hardlink_to(draft)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        path.chmod(0o600)
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotReady(f"{path} can't be read or made ({_why(error)}); pass another folder with --data.") from error
    if not secret:
        raise NotReady(f"{path} is empty; put its secret back, or delete it to have a new one made.")
    return secret


def kept_keys(folder: Path) -> str:
    """Return the encryption keys that demo and dev keep beside their data.

    Raises: NotReady.
    """
    from durable_core.crypto import new_key_entry  # noqa: PLC0415 - cryptography only where it is needed

    path = folder / "keys"
    keys = kept_secret(path, new_key_entry)
    if problems := _key_problems(keys):
        raise NotReady(f"{path} doesn't hold encryption keys ({problems[0]}); put back the file that was made with this data.")
    return keys


def _why(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__


def _key_problems(keys: str | None) -> list[str]:
    if keys is None:
        return []
    from durable_core.crypto import KeyRing  # noqa: PLC0415 - cryptography only where it is needed
    from durable_core.errors import BadKeyRing  # noqa: PLC0415

    try:
        KeyRing.parse(keys)
    except BadKeyRing as error:
        return [str(error)]
    return []


def _check_database_url(url: str) -> str | None:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in _DIALECTS:
        return "give sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME."
    if scheme.startswith("sqlite") and not rest.strip("/"):
        return "the path is missing; give sqlite:///PATH."
    return _unreadable(url)


def _unreadable(url: str) -> str | None:
    from durable_core.stores.postgres.hosts import each  # noqa: PLC0415 - only where there is a URL to check

    try:
        each(url)
    except ValueError:
        return "it can't be read; give postgresql://USER:PASSWORD@HOST/NAME, or HOST:PORT,HOST:PORT of a server and its standby."
    return None


def _check_public_url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "it can't be read; give an address such as https://bot.example.com."
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not plain:
        return "give an address such as https://bot.example.com, without user, query or fragment."
    return None


def _check_model(name: str) -> str | None:
    return None if _MODEL.fullmatch(name) else "give PROVIDER:NAME, such as anthropic:claude-sonnet-5."


def _check_deployment(name: str) -> str | None:
    return None if _DEPLOYMENT.fullmatch(name) else "give up to 80 letters, digits or . _ + -"


def _check_namespace(name: str) -> str | None:
    return None if _NAMESPACE.fullmatch(name) else "give up to 63 small letters, digits or _, not beginning with pg_ or a digit."


def _no_namespace(_name: str) -> str:
    return "a SQLite file holds one only; use another file, MOORINGS_DATABASE_URL=sqlite:///OTHER.db, or PostgreSQL."


def _check_listen_url(url: str) -> str | None:
    given = url.partition("://")[0].partition("+")[0] in _POSTGRES
    return _unreadable(url) if given else "give the address of the server itself, postgresql://USER:PASSWORD@HOST/NAME."


def _check_pooler(mode: str) -> str | None:
    return None if mode == "transaction" else "give transaction, or leave it out: a pooler by session needs nothing."


def _for_postgres(_text: str) -> str:
    return "it is for PostgreSQL only; set MOORINGS_DATABASE_URL=postgresql://… too, or leave it out."


def _whole(least: int, most: int, *, of: str = "a whole number") -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        whole = text.isascii() and text.isdigit() and len(text) <= 6
        return None if whole and least <= int(text) <= most else f"give {of} from {least} to {most}."

    return check


def _read_tokens(text: str) -> tuple[tuple[ApiToken, ...], list[str]]:
    """Read `principal:token[:scope+scope]`, comma-separated. A problem names the position, never the token."""
    tokens: list[ApiToken] = []
    problems: list[str] = []
    if not text.strip():
        return (), []
    for position, entry in enumerate(text.split(","), start=1):
        token = _read_token(entry.strip())
        if isinstance(token, str):
            problems.append(f"MOORINGS_API_TOKENS: entry {position}: {token}")
        elif any(token.digest == other.digest for other in tokens):
            problems.append(f"MOORINGS_API_TOKENS: entry {position}: the token is used twice; give each its own.")
        else:
            tokens.append(token)
    return tuple(tokens), problems


def _read_token(entry: str) -> ApiToken | str:
    """Read one entry, or say what is wrong with it."""
    parts = entry.split(":", 2)
    if len(parts) not in {2, 3}:
        return "give principal:token or principal:token:scope+scope."
    principal, token = parts[0], parts[1]
    if not _PRINCIPAL.fullmatch(principal):
        return "the principal has to be 1 to 80 letters, digits or . _ @ -"
    if not _TOKEN.fullmatch(token):
        return "the token has to be letters, digits or . _ ~ + / - with = only at the end."
    scopes = frozenset(parts[2].split("+")) if len(parts) == 3 else SCOPES
    if scopes - ALL_SCOPES:  # not named: a token with a colon in it would be told in part
        return f"the third part has to be scopes joined by +; there are: {', '.join(sorted(ALL_SCOPES))}."
    return ApiToken.of(principal, token, scopes=scopes)
