"""The kit for authors of stores: `StoreContract`, builders of small values and the checks behind them.

What lives here: the way in. What does not: fixtures of an application's tests (`bot.testing`).
Only `StoreContract` needs pytest, so it is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from durable_core.testing.contract import StoreContract

__all__ = ["StoreContract"]


def __getattr__(name: str) -> object:
    """Load the contract suite on first use."""
    if name == "StoreContract":
        from durable_core.testing.contract import StoreContract  # noqa: PLC0415 - pytest stays out of plain imports

        return StoreContract
    raise AttributeError(name)
