"""Formats of stored values: the window, upcasters, stamps and fingerprints."""

from __future__ import annotations

import subprocess
import sys

import pytest

from durable_core import codec, versions
from durable_core.crypto import payload_digest
from durable_core.errors import Broken, Stranded
from durable_core.model import Abilities
from durable_core.versions import Stored, Upcasters


def renamed(value: Stored) -> Stored:
    return {"said": value["text"], **{name: one for name, one in value.items() if name != "text"}}


def marked(value: Stored) -> Stored:
    return {**value, "marked": True}


PRESENT, NEXT, AFTER = (versions.CURRENT_SPEC + more for more in range(3))


@pytest.fixture
def two_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "CURRENT_SPEC", AFTER)


def test_what_this_code_wrote_is_read_as_it_is() -> None:
    value: Stored = {"text": "hi"}
    assert Upcasters({("note", PRESENT): renamed}).read("note", value, written=PRESENT, run_id="r") is value


@pytest.mark.usefixtures("two_later")
def test_an_older_value_is_brought_up_format_by_format() -> None:
    upcasters = Upcasters({("note", PRESENT): renamed, ("note", NEXT): marked, ("other", PRESENT): marked})
    whole = {"said": "hi", "by": "a", "marked": True}
    for written in (versions.MIN_READABLE_SPEC, PRESENT):
        assert upcasters.read("note", {"text": "hi", "by": "a"}, written=written, run_id="r") == whole
    assert upcasters.read("note", {"said": "hi"}, written=NEXT, run_id="r") == {"said": "hi", "marked": True}
    assert upcasters.read("unchanged", {"text": "hi"}, written=PRESENT, run_id="r") == {"text": "hi"}


@pytest.mark.parametrize("written", [versions.MIN_READABLE_SPEC - 1, NEXT, 255])
def test_what_is_outside_of_the_window_is_stranded(written: int) -> None:
    with pytest.raises(Stranded) as refused:
        Upcasters().read("note", {}, written=written, run_id="ses_1")
    assert (refused.value.run_id, refused.value.spec_version) == ("ses_1", written)
    assert Upcasters().show("note", {"a": 1}, written=written) == {"a": 1}


def test_values_of_the_first_format_have_no_stamp() -> None:
    first = versions.FIRST_SPEC
    assert codec.encode({"a": 1}, written=first) == b'\x01{"a":1}'
    assert codec.written_by(codec.encode({"a": 1}, written=first)) == first
    assert codec.written_by(codec.encode("x" * 4000, written=first)) == first


def test_a_stamp_is_two_bytes() -> None:
    body = codec.encode({"a": 1})
    assert body == bytes((3, PRESENT)) + b'\x01{"a":1}'
    assert (codec.written_by(body), codec.unstamped(body)) == (PRESENT, codec.encode({"a": 1}, written=versions.FIRST_SPEC))


@pytest.mark.usefixtures("two_later")
@pytest.mark.parametrize("value", [{"a": 1}, "x" * 4000, None])
def test_values_of_later_formats_say_so(value: codec.Storable) -> None:
    body = codec.encode(value)
    assert codec.written_by(body) == AFTER
    assert codec.decode(body) == value
    assert codec.unstamped(codec.unstamped(body)) == codec.unstamped(body)
    for broken in (b"\x03", b"\x03\x02", b"\x03\x02\x09"):
        with pytest.raises(Broken):
            codec.decode(broken)


def test_a_repeat_over_a_newer_version_is_the_same_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    before = payload_digest(codec.encode({"message": "hi"}))
    monkeypatch.setattr(versions, "CURRENT_SPEC", NEXT)
    assert payload_digest(codec.encode({"message": "hi"})) == before
    assert payload_digest(codec.encode({"message": "ho"})) != before


def test_a_worker_enrols_the_window_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "CURRENT_SPEC", AFTER)
    monkeypatch.setattr(versions, "MIN_READABLE_SPEC", PRESENT)
    assert (Abilities().min_readable, Abilities().current) == (PRESENT, AFTER)


def test_fingerprints_are_equal_over_processes_and_told_apart() -> None:
    program = "from durable_core.versions import fingerprint; print(fingerprint('1.0', 'blue'))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert versions.fingerprint("1.0", "blue") == printed
    assert versions.fingerprint("1.0", "blue") != versions.fingerprint("1.0b", "lue")


def test_a_fingerprint_changes_with_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    before = versions.fingerprint("same")
    monkeypatch.setattr(versions, "CURRENT_SPEC", NEXT)
    assert versions.fingerprint("same") != before
