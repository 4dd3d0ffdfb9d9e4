"""The audit's chain: what breaks it, and that nothing can be changed, left out or put in unseen."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from durable_core.audit import around, canonical, hash_of, linked, verify
from durable_core.model import AuditEntry

ENTRY = AuditEntry(
    n=0,
    at=1_800_000_000_000,
    act="settled",
    run_id="ses_1",
    prompt_id="prm_1",
    kind="approval",
    requester="slack:T1:U1",
    asked="the finance team",
    asked_at=1_799_999_000_000,
    shown="ab" * 32,
    principal="slack:T1:U2",
    via="button",
    where="slack T1:C1",
    option_id="approve",
    outcome="approved",
    reason=None,
    prev="",
    hash="",
)


def chain(length: int) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    for n in range(1, length + 1):
        entry = replace(ENTRY, prompt_id=f"prm_{n}")
        entries.append(linked(entry, n=n, prev=entries[-1].hash if entries else ""))
    return entries


def test_a_whole_chain_holds() -> None:
    assert verify([]) is None
    assert verify(chain(5)) is None


def test_a_chain_is_checked_in_portions() -> None:
    entries = chain(5)
    assert verify(entries[2:], entries[1]) is None
    assert verify(entries[2:]) == 1
    assert verify(entries[3:], entries[1]) == 3


@pytest.mark.parametrize("name", [field.name for field in fields(AuditEntry)])
def test_no_field_can_be_changed(name: str) -> None:
    entries = chain(3)
    value = getattr(entries[1], name)
    changed: dict[str, Any] = {name: value + 1 if isinstance(value, int) else f"{value}x"}
    entries[1] = replace(entries[1], **changed)
    assert verify(entries) == 2


def test_no_field_can_be_changed_with_its_hash() -> None:
    entries = chain(3)
    forged = replace(entries[1], principal="slack:T1:U3")
    entries[1] = replace(forged, hash=hash_of(forged))
    assert verify(entries) == 3


@pytest.mark.parametrize(("order", "broken"), [((0, 2), 2), ((0, 2, 1), 2), ((0, 0, 1), 2), ((1, 2), 1)])
def test_none_can_be_left_out_or_put_elsewhere(order: tuple[int, ...], broken: int) -> None:
    entries = chain(3)
    assert verify([entries[n] for n in order]) == broken


def test_what_a_database_puts_together_is_what_is_hashed() -> None:
    entry = replace(linked(ENTRY, n=7, prev="ab" * 32), reason='so "it" is\n', asked="Zoë\\")
    before, between, behind = around(entry)
    assert f"{before}{entry.n}{between}{entry.prev}{behind}".encode() == canonical(entry)


def test_what_stands_in_one_field_is_not_mistaken_for_another() -> None:
    assert canonical(replace(ENTRY, via="a", where="b")) != canonical(replace(ENTRY, via="ab", where=""))
    assert canonical(replace(ENTRY, reason=None)) != canonical(replace(ENTRY, reason=""))


def test_the_format_stays_what_it_is() -> None:
    """Chains that are stored have to verify in years: change `FORMAT` when this changes."""
    assert linked(ENTRY, n=1, prev="").hash == "93518d530baba0c66d99713a8e293074a3d14a277c1d8687ba07b72a76aaf798"
