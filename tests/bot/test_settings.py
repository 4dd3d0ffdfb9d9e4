"""The environment: defaults, every problem at once, secrets that are kept and never shown."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import BadSettings, NotReady
from bot.settings import ApiToken, Settings, kept_keys, kept_secret, sqlite_path, sqlite_url
from durable_core.crypto import KeyRing, new_key_entry


def test_an_empty_environment_is_enough(tmp_path: Path) -> None:
    settings = Settings.from_env({"MOORINGS_MODEL": "  ", "MOORINGS_API_TOKENS": ""}, data=tmp_path)
    assert settings.database_url == f"sqlite:///{tmp_path / 'moorings.db'}"
    assert (settings.public_url, settings.encryption_keys, settings.model, settings.api_tokens) == (None, None, None, ())
    assert settings.deployment
    assert Settings.from_env({}).data == Path(".moorings")


def test_everything_can_be_given(tmp_path: Path) -> None:
    keys = new_key_entry()
    settings = Settings.from_env(
        {
            "MOORINGS_DATABASE_URL": "postgresql://u:p@db/moorings",
            "MOORINGS_NAMESPACE": "support",
            "MOORINGS_DATABASE_LISTEN_URL": "postgresql://u:p@db:5433/moorings",
            "MOORINGS_DATABASE_POOL": "20",
            "MOORINGS_DATABASE_POOLER": "transaction",
            "MOORINGS_CONCURRENCY": "8",
            "MOORINGS_BLOCKED_SECONDS": "60",
            "MOORINGS_PUBLIC_URL": "https://bot.example.com/",
            "MOORINGS_ENCRYPTION_KEYS": keys,
            "MOORINGS_MODEL": "anthropic:claude-sonnet-5",
            "MOORINGS_DEPLOYMENT": "2026-01.a",
            "MOORINGS_API_TOKENS": "alice:s3cret, bob@example.com:dG9rZW4=:sessions,alice:another",
        },
        data=tmp_path,
    )
    assert settings == Settings(
        tmp_path,
        "postgresql://u:p@db/moorings",
        namespace="support",
        listen_url="postgresql://u:p@db:5433/moorings",
        pool=20,
        pooler=True,
        concurrency=8,
        blocked_seconds=60.0,
        public_url="https://bot.example.com",
        encryption_keys=keys,
        model="anthropic:claude-sonnet-5",
        deployment="2026-01.a",
        api_tokens=(
            ApiToken.of("alice", "s3cret"),
            ApiToken.of("bob@example.com", "dG9rZW4="),
            ApiToken.of("alice", "another"),
        ),
    )


def test_all_problems_are_told_together() -> None:
    environ = {
        "MOORINGS_DATABASE_URL": "mysql://x",
        "MOORINGS_PUBLIC_URL": "bot.example.com",
        "MOORINGS_ENCRYPTION_KEYS": "one:short",
        "MOORINGS_MODEL": "gpt",
        "MOORINGS_DEPLOYMENT": "a b",
        "MOORINGS_API_TOKENS": "alice,bob:tok:admin,carol:same,dave:same",
    }
    with pytest.raises(BadSettings) as caught:
        Settings.from_env(environ)
    problems = caught.value.problems
    assert len(problems) == 8
    for name in environ:
        assert any(problem.startswith(name) for problem in problems), name
    for entry in (1, 2, 4):
        assert any(f"entry {entry}:" in problem for problem in problems)


@pytest.mark.parametrize(
    "tokens",
    [
        "hunter2",
        "alice:",
        ":hunter2",
        "alice:hunter2:",
        "alice:hunter2:+",
        "alice:hunt er2",
        "alice:x:hunter2",
        "a:b:c:hunter2",
        "alice:hunter2,",
        "alice:hunter2:sessions+admin",
        "al ice:hunter2",
        "alice:hünter2",
    ],
)
def test_a_token_that_cant_be_read_is_refused_and_not_repeated(tokens: str) -> None:
    with pytest.raises(BadSettings) as caught:
        Settings.from_env({"MOORINGS_API_TOKENS": tokens})
    assert "hunter2" not in str(caught.value)
    assert "hünter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ftp://x", "https://", "https://u:p@x", "https://x?a=1", "https://x#a", "https://x:99999", "https://[::1", "x"]
)
def test_a_public_url_is_a_plain_address(url: str) -> None:
    with pytest.raises(BadSettings):
        Settings.from_env({"MOORINGS_PUBLIC_URL": url})


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    keys = new_key_entry()
    settings = Settings.from_env(
        {
            "MOORINGS_DATABASE_URL": "postgresql://u:hunter2@db/x",
            "MOORINGS_DATABASE_LISTEN_URL": "postgresql://u:hunter2@server/x",
            "MOORINGS_ENCRYPTION_KEYS": keys,
            "MOORINGS_API_TOKENS": "alice:hunter2",
        },
        data=tmp_path,
    )
    assert "hunter2" not in repr(settings)
    assert keys not in repr(settings)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "MOORINGS_DATABASE_URL",
                "MOORINGS_NAMESPACE",
                "MOORINGS_DATABASE_LISTEN_URL",
                "MOORINGS_DATABASE_POOL",
                "MOORINGS_DATABASE_POOLER",
                "MOORINGS_CONCURRENCY",
                "MOORINGS_BLOCKED_SECONDS",
                "MOORINGS_PUBLIC_URL",
                "MOORINGS_ENCRYPTION_KEYS",
                "MOORINGS_MODEL",
                "MOORINGS_API_TOKENS",
                "MOORINGS_DEPLOYMENT",
            ]
        ),
        st.text(),
    )
)
def test_no_environment_makes_another_error(environ: dict[str, str]) -> None:
    try:
        Settings.from_env(environ)
    except BadSettings as error:
        problems = error.problems
    else:
        problems = ("none",)
    assert all(problems)


def test_keys_are_made_once_and_kept_for_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    keys = kept_keys(folder)
    KeyRing.parse(keys)
    assert kept_keys(folder) == keys
    assert stat.S_IMODE((folder / "keys").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["keys"]


def test_of_many_that_start_at_once_all_get_the_same_secret(tmp_path: Path) -> None:
    found: list[str] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        found.append(kept_secret(tmp_path / "secret", new_key_entry))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_damaged_secret_is_never_replaced(tmp_path: Path) -> None:
    for content in (b"", b"nonsense", b"\xff\xfe"):
        (tmp_path / "keys").write_bytes(content)
        with pytest.raises(NotReady, match="keys"):
            kept_keys(tmp_path)
        assert (tmp_path / "keys").read_bytes() == content


def test_a_secret_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(new_key_entry())
    (tmp_path / "keys").chmod(0o644)
    kept_keys(tmp_path)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600


def test_the_file_of_a_sqlite_url(tmp_path: Path) -> None:
    assert sqlite_path(sqlite_url(tmp_path)) == tmp_path / "moorings.db"
    assert sqlite_path("sqlite:///here/a.db") == Path("here/a.db")
    assert sqlite_path("postgresql://x/y") is None


@pytest.mark.parametrize(("text", "seconds"), [("", 25.0), ("0", 0.0), ("3600", 3600.0)])
def test_how_long_a_drain_may_take(text: str, seconds: float) -> None:
    assert Settings.from_env({"MOORINGS_DRAIN_SECONDS": text}).drain_seconds == seconds


@pytest.mark.parametrize("text", ["-1", "1.5", "3601", "soon"])
def test_a_drain_that_can_not_be_read_is_named(text: str) -> None:
    with pytest.raises(BadSettings, match="MOORINGS_DRAIN_SECONDS"):
        Settings.from_env({"MOORINGS_DRAIN_SECONDS": text})


ON_POSTGRES = {"MOORINGS_DATABASE_URL": "postgresql://db/moorings"}


def test_a_server_and_its_standby_are_named_in_one_url() -> None:
    url = "postgresql://u:p@one:5432,two:5433/moorings?sslmode=require"
    assert Settings.from_env({"MOORINGS_DATABASE_URL": url}).database_url == url


def test_a_sqlite_file_holds_one_namespace_and_has_no_pool() -> None:
    of_postgres = {
        "MOORINGS_NAMESPACE": "support",
        "MOORINGS_DATABASE_LISTEN_URL": "postgresql://db/moorings",
        "MOORINGS_DATABASE_POOL": "5",
        "MOORINGS_DATABASE_POOLER": "transaction",
    }
    for environ in (of_postgres, of_postgres | {"MOORINGS_DATABASE_URL": "sqlite:///m.db"}):
        with pytest.raises(BadSettings) as caught:
            Settings.from_env(environ)
        problems = caught.value.problems
        assert [problem.partition(":")[0] for problem in problems] == list(of_postgres)
        assert "use another file" in problems[0]
    assert Settings.from_env(ON_POSTGRES | of_postgres).namespace == "support"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MOORINGS_DATABASE_URL", "postgresql://[::1/moorings"),
        ("MOORINGS_DATABASE_URL", "postgresql://u:hunter2@db:many/moorings"),
        ("MOORINGS_DATABASE_URL", "postgresql://u:hunter2@db:5432,/moorings"),
        ("MOORINGS_DATABASE_LISTEN_URL", "postgresql://u:hunter2@db:5432,db:many/moorings"),
        ("MOORINGS_NAMESPACE", "Support"),
        ("MOORINGS_NAMESPACE", "pg_mine"),
        ("MOORINGS_NAMESPACE", "a;b"),
        ("MOORINGS_NAMESPACE", "1st"),
        ("MOORINGS_NAMESPACE", "a" * 64),
        ("MOORINGS_DATABASE_LISTEN_URL", "sqlite:///m.db"),
        ("MOORINGS_DATABASE_LISTEN_URL", "db"),
        ("MOORINGS_DATABASE_POOL", "0"),
        ("MOORINGS_DATABASE_POOL", "many"),
        ("MOORINGS_DATABASE_POOLER", "session"),
        ("MOORINGS_CONCURRENCY", "0"),
        ("MOORINGS_BLOCKED_SECONDS", "0"),
        ("MOORINGS_CONCURRENCY", "-1"),
    ],
)
def test_what_can_not_be_read_about_the_database_is_named(name: str, text: str) -> None:
    with pytest.raises(BadSettings) as caught:
        Settings.from_env(ON_POSTGRES | {name: text})
    (problem,) = caught.value.problems
    assert problem.startswith(f"{name}: ")
    assert "hunter2" not in problem
