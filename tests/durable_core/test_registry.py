"""Workflows and steps as declared: names, checks, the table of an app, the fingerprint of its code."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.failures import Fatal
from durable_core.registry import (
    Registry,
    Step,
    StepOptions,
    UnknownWorkflow,
    Workflow,
    WorkflowNameTaken,
    fingerprint,
    step,
    step_of,
    takes_loop,
    workflow,
)
from durable_core.retry import RetryPolicy

ROOT = Path(__file__).resolve().parents[2]


async def pay(amount: int) -> int:
    return amount


class TestWorkflow:
    def test_its_name_is_the_functions_or_the_one_given(self) -> None:
        @workflow
        async def first(ctx: WorkflowContext) -> None: ...

        @workflow(name="second")
        async def other(ctx: WorkflowContext, amount: int) -> int:
            return amount

        assert isinstance(first, Workflow)
        assert (first.name, other.name) == ("first", "second")

    async def test_it_can_be_called_with_a_context_of_a_tests(self) -> None:
        @workflow
        async def body(ctx: Any, amount: int) -> int:
            return int(ctx) + amount

        assert await body(1, 2) == 3

    def test_a_context_by_another_name_needs_its_type(self) -> None:
        @workflow
        async def body(context: WorkflowContext) -> None: ...

        assert body.name == "body"

    def test_what_is_no_workflow_is_refused_when_it_is_declared(self) -> None:
        async def no_context() -> None: ...
        async def keyword_only(*, ctx: WorkflowContext) -> None: ...
        async def another(amount: int) -> None: ...
        async def generator(ctx: WorkflowContext) -> Any:
            yield 1

        def plain(ctx: WorkflowContext) -> None: ...

        refused: list[Any] = [no_context, keyword_only, another]
        for fn in refused:
            with pytest.raises(TypeError, match="must be `ctx: WorkflowContext`"):
                workflow(fn)
        refused = [generator, plain]
        for fn in refused:
            with pytest.raises(TypeError, match="async function: write `async def"):
                workflow(fn)
        with pytest.raises(TypeError, match="is a workflow already"):
            workflow(workflow(name="x")(pay_in))


async def pay_in(ctx: WorkflowContext) -> None: ...


class TestStep:
    async def test_a_decorated_function_is_still_called_as_before(self) -> None:
        @step(attempts=2)
        async def charge(amount: int) -> int:
            """Charge."""
            return amount + 1

        @step
        def half(amount: int) -> float:
            return amount / 2

        assert await charge(1) == 2
        assert half(3) == 1.5
        assert (getattr(charge, "__name__", ""), charge.__doc__) == ("charge", "Charge.")
        assert repr(half) == "<step half>"

    def test_options_have_defaults_and_seconds_are_a_duration(self) -> None:
        @step(timeout=1.5, backoff=RetryPolicy(first=timedelta(seconds=1)))
        def charge() -> None: ...

        assert (charge.options.name, charge.options.attempts) == ("charge", 4)
        assert charge.options.timeout == timedelta(seconds=1.5)
        assert charge.options.backoff.first == timedelta(seconds=1)

    def test_bad_options_are_refused_when_it_is_declared(self) -> None:
        with pytest.raises(ValueError, match="attempts"):
            step(pay, attempts=0)
        with pytest.raises(ValueError, match="timeout"):
            step(pay, timeout=0)
        with pytest.raises(TypeError, match="is a step already"):
            step(step(pay))

    def test_plain_functions_and_methods_have_the_usual_options(self) -> None:
        class Shop:
            def sell(self) -> str:
                return "sold"

            @step(name="buying")
            def buy(self) -> str:
                return f"bought by {type(self).__name__}"

        class Branch(Shop): ...

        assert step_of(pay) == (pay, StepOptions(name="pay"))
        fn, options = step_of(Branch().buy)
        assert (fn(), options.name) == ("bought by Branch", "buying")
        assert isinstance(Shop.buy, Step)

    def test_what_has_no_lasting_name_needs_one(self) -> None:
        def local() -> None: ...

        for fn in (lambda: 1, local, functools.partial(pay, 1)):
            with pytest.raises(TypeError, match=r"give it one: step\(fn, name=...\)"):
                step_of(fn)
            assert step_of(step(fn, name="named"))[1].name == "named"

    def test_what_is_no_function_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"write ctx.step\(fn, x\), not ctx.step\(fn\(x\)\)"):
            step_of(3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"ctx\.child"):
            step_of(workflow(pay_in))

    def test_async_functions_run_on_the_loop_and_others_in_a_thread(self) -> None:
        class Caller:
            async def __call__(self) -> None: ...

        assert takes_loop(pay)
        assert takes_loop(functools.partial(pay, 1))
        assert takes_loop(Caller())
        assert not takes_loop(len)

    def test_fatal_carries_a_code(self) -> None:
        assert Fatal("no", code="declined").code == "declined"


class TestRegistry:
    def test_it_finds_by_name_and_says_what_there_is(self) -> None:
        first = Workflow("first", pay_in)
        table = Registry([first, Workflow("second", pay_in), first])
        assert table["first"] is first
        assert "second" in table
        assert table.names == ("first", "second")
        assert len(list(table)) == 2
        with pytest.raises(UnknownWorkflow, match="no workflow 'third' here; there are: first, second"):
            table["third"]

    def test_two_of_one_name_are_refused(self) -> None:
        with pytest.raises(WorkflowNameTaken, match="two workflows are named 'one'"):
            Registry([Workflow("one", pay_in), Workflow("one", pay)])


class TestFingerprint:
    APP = """
        from durable_core.registry import workflow, fingerprint
        import shop.parts
        from shop.more import helper
        @workflow
        async def one(ctx):
            return {constant!r} in frozenset(["a", "b", "c", "d"])
        if __name__ != "__main__":
            print(fingerprint([one]))
    """

    def printed(
        self, folder: Path, *, constant: int = 1, part: str = "x = 1", more: str = "def helper(): ...", seed: int = 0
    ) -> str:
        (folder / "shop").mkdir(exist_ok=True, parents=True)
        (folder / "shop" / "__init__.py").write_text("")
        (folder / "shop" / "app.py").write_text(textwrap.dedent(self.APP.format(constant=constant)))
        (folder / "shop" / "parts.py").write_text(part)
        (folder / "shop" / "more.py").write_text(more)
        environment = {
            **os.environ,
            "PYTHONHASHSEED": str(seed),
            "PYTHONPATH": f"{folder}:{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", "import shop.app"], check=True, capture_output=True, text=True, env=environment
        )
        return done.stdout.strip()

    def test_it_is_the_same_in_every_process_and_place_and_changes_with_the_code(self, tmp_path: Path) -> None:
        same = {self.printed(tmp_path / "a", seed=1), self.printed(tmp_path / "b", seed=2)}
        assert len(same) == 1
        others = {
            self.printed(tmp_path / "a", constant=2),
            self.printed(tmp_path / "a", part="x = 2"),
            self.printed(tmp_path / "a", more="def helper(): return 1"),
        }
        assert len(others | same) == 4

    def test_names_and_the_version_of_python_are_in_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one = fingerprint([Workflow("one", pay_in)])
        assert one == fingerprint(iter([Workflow("one", pay_in)]))
        assert one != fingerprint([Workflow("two", pay_in)])
        monkeypatch.setattr(sys, "version_info", (3, 99))
        assert one != fingerprint([Workflow("one", pay_in)])

    def test_code_without_a_file_is_read_as_compiled(self) -> None:
        def made(text: str) -> Workflow:
            space: dict[str, Any] = {"__name__": "made_up"}
            exec(text, space)  # noqa: S102 - our own text
            return Workflow("one", space["one"])

        first = made("async def one(ctx):\n    return 1 in {1, 2}")
        assert fingerprint([first]) == fingerprint([made("async def one(ctx):\n    return 1 in {1, 2}")])
        assert fingerprint([first]) != fingerprint([made("async def one(ctx):\n    return 1 in {1, 3}")])
        assert Registry([first]).fingerprint == fingerprint([first])
