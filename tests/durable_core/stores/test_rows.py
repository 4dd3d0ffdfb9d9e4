"""Columns that a newer version wrote are read as far as this code can act on them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from durable_core.model import AnswerPolicy, AnswerStatus
from durable_core.testing.acts import asked
from durable_core.testing.bench import WindableClock
from durable_core.testing.builders import START_MS, answer
from tests.durable_core.conformance.sqlite import file_store


async def test_who_may_answer_in_words_that_are_not_known_is_left_to_a_worker(tmp_path: Path) -> None:
    store = await file_store(WindableClock(START_MS), tmp_path)
    await store.open()
    try:
        run, prompt_id = await asked(store)
        with closing(sqlite3.connect(tmp_path / "moorings.db")) as database, database:
            database.execute("UPDATE moor_prompt SET policy = 'by_the_moon'")
        assert (await store.prompt(prompt_id)).policy is AnswerPolicy.FUNCTION
        assert [one.prompt_id for one in await store.open_prompts(run.run_id)] == [prompt_id]
        assert (await store.answer(answer(prompt_id))).status is AnswerStatus.PENDING
    finally:
        await store.close()
