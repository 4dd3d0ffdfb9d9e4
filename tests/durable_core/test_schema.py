"""The schema's version and the migrations that make it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, pool

from durable_core import schema, tables
from durable_core.clock import DatabaseClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.errors import Broken, SchemaOutdated
from durable_core.stores.open import open_store


def differences(engine: Engine) -> list[object]:
    def own(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or (name or "").startswith(tables.PREFIX)

    with engine.connect() as connection:
        options = {"version_table": tables.VERSION_TABLE, "include_name": own, "compare_type": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata))


def test_head_is_the_newest_revision() -> None:
    assert ScriptDirectory.from_config(schema.config()).get_heads() == [schema.HEAD]
    assert schema.VERSION_TABLE == tables.VERSION_TABLE


def test_a_new_file_gets_what_the_migrations_make() -> None:
    """Written again by `python -m durable_core.schema`."""
    assert schema.memory_script() == schema.migrated_script()
    statements = schema.memory_script().split(";\n")
    assert statements.pop() == ""
    assert all(sqlite3.complete_statement(f"{statement};") for statement in statements)


def test_a_new_file_is_made_without_the_migrations(tmp_path: Path) -> None:
    program = (
        "import sys; from durable_core import schema; schema.upgrade(sys.argv[1]);"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'sqlalchemy', 'sqlmodel', 'alembic', 'pydantic'}))"
    )
    url = f"sqlite:///{tmp_path / 'moorings.db'}"
    printed = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
    assert schema.found_version(tmp_path / "moorings.db") == schema.HEAD


# what SQLAlchemy can't read of a SQLite file, the test of statements compares
@pytest.mark.filterwarnings("ignore:.*expression-based index .?moor_prompt_time")
def test_migrations_make_the_tables_on_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "moorings.db"
    assert schema.found_version(path) is None
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE somebody_elses (id INTEGER)")
    connection.close()
    schema.upgrade(f"sqlite:///{path}")
    assert schema.found_version(path) == schema.HEAD
    schema.upgrade(f"sqlite:///{path}")
    engine = create_engine(f"sqlite:///{path}", poolclass=pool.NullPool)
    assert differences(engine) == []


def test_migrations_make_the_tables_on_postgres(postgres_url: str) -> None:
    schema.upgrade(postgres_url)
    engine = create_engine(postgres_url, poolclass=pool.NullPool)
    assert differences(engine) == []
    engine.dispose()


def test_indexes_are_the_same_down_to_their_conditions(tmp_path: Path) -> None:
    """compare_metadata doesn't look at partial indexes' conditions."""

    def statements(path: Path) -> set[tuple[str, str]]:
        connection = sqlite3.connect(path)
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall()
        connection.close()
        return {(name, " ".join(sql.split())) for name, sql in rows}

    schema.upgrade(f"sqlite:///{tmp_path / 'migrated.db'}")
    engine = create_engine(f"sqlite:///{tmp_path / 'made.db'}", poolclass=pool.NullPool)
    tables.metadata.create_all(engine)
    assert statements(tmp_path / "migrated.db") == statements(tmp_path / "made.db")


@pytest.mark.parametrize("name", ["what?x=1.db", "off%41.db"])
def test_an_older_file_is_brought_up_whatever_its_name(tmp_path: Path, name: str) -> None:
    plain, odd = tmp_path / "plain", tmp_path / "odd" / name
    engine = schema._engine(f"sqlite:///{plain}")
    settings = schema.config()
    with engine.begin() as connection:
        settings.attributes["connection"] = connection
        command.upgrade(settings, schema.known()[0])
    engine.dispose()
    odd.parent.mkdir()
    plain.rename(odd)
    assert schema.upgrade(f"sqlite:///{odd}").changed
    assert schema.found_version(odd) == schema.HEAD
    assert {one.name for one in odd.parent.iterdir()} == {name}


def test_two_upgrades_at_once_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "moorings.db"
    program = f"from durable_core import schema; schema.upgrade('sqlite:///{path}')"
    started = [subprocess.Popen([sys.executable, "-c", program], cwd=schema.migrations_folder().parent) for _ in range(3)]
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0]
    assert schema.found_version(path) == schema.HEAD


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear all, this is no database. " * 100)
    with pytest.raises(Broken, match=r"letter\.txt"):
        schema.found_version(path)


def test_a_folder_that_is_missing_has_no_version(tmp_path: Path) -> None:
    assert schema.found_version(tmp_path / "nowhere" / "moorings.db") is None


async def test_an_outdated_schema_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "moorings.db"
    keys = KeyRing.parse(new_key_entry())
    with pytest.raises(SchemaOutdated, match="has no Moorings tables"):
        await open_store(f"sqlite:///{path}", keys=keys, clock=DatabaseClock()).open()
    assert not path.exists()
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {schema.VERSION_TABLE} (version_num TEXT)")
    connection.execute(f"INSERT INTO {schema.VERSION_TABLE} VALUES ('0000_ancient')")
    connection.commit()
    connection.close()
    with pytest.raises(SchemaOutdated) as caught:
        await open_store(f"sqlite:///{path}", keys=keys, clock=DatabaseClock()).open()
    assert (caught.value.found, caught.value.wanted) == ("0000_ancient", schema.HEAD)


def test_a_missing_driver_is_named_with_its_extra() -> None:
    program = (
        "import sys; sys.modules['asyncpg'] = None;"
        "from durable_core.clock import DatabaseClock; from durable_core.crypto import KeyRing, new_key_entry;"
        "from durable_core.stores.open import open_store;"
        "open_store('postgresql://localhost/x', keys=KeyRing.parse(new_key_entry()), clock=DatabaseClock())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Broken: the package asyncpg is not installed; install it with: pip install 'moorings[postgres]'" in done.stderr


def test_other_databases_are_refused_clearly() -> None:
    keys = KeyRing.parse(new_key_entry())
    for url in ("mysql://localhost/moorings", "sqlite:///", "moorings.db"):
        with pytest.raises(Broken, match="no store serves"):
            open_store(url, keys=keys, clock=DatabaseClock())


def test_the_hot_path_loads_no_orm() -> None:
    program = (
        "import sys; import durable_core, durable_core.model, durable_core.store, durable_core.schema, durable_core.stores.open;"
        "import durable_core.stores.sqlite.store;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'sqlalchemy', 'sqlmodel', 'alembic', 'pydantic'}))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


async def test_many_stores_in_memory_share_one_script() -> None:
    keys = KeyRing.parse(new_key_entry())
    threads = threading.active_count()
    for _ in range(5):
        store = open_store("sqlite:///:memory:", keys=keys, clock=DatabaseClock())
        await store.open()
        assert await store.run_at("console", "nobody") is None
        await store.close()
    assert schema.memory_script.cache_info().currsize == 1
    assert threading.active_count() <= threads
