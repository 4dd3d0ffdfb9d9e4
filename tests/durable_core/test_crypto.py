"""Sealed values open in their place with their key only; rotation loses nothing."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core.crypto import KeyRing, SessionKey, new_key_entry, new_session_key, wrapped_by
from durable_core.errors import BadKeyRing, CannotOpen, KeyMissing, NoKeys

RAW = bytes(range(32))
KEY = SessionKey(RAW)
OLD = "old:" + b64encode(b"o" * 32).decode()
NEW = "new:" + b64encode(b"n" * 32).decode()
NAMES = st.text(max_size=10)


class TestSealing:
    @given(st.binary(), NAMES, NAMES, NAMES)
    def test_a_sealed_value_opens_in_its_place(self, plain: bytes, table: str, row: str, column: str) -> None:
        assert KEY.open(KEY.seal(plain, table=table, row=row, column=column), table=table, row=row, column=column) == plain

    def test_the_same_value_is_sealed_differently_each_time_and_not_in_the_clear(self) -> None:
        one, other = (KEY.seal(b"the secret", table="t", row="r", column="c") for _ in range(2))
        assert one != other
        assert b"secret" not in one
        assert one[0] == other[0] == 1
        assert len(one) == 1 + 12 + len(b"the secret") + 16

    @pytest.mark.parametrize(
        ("table", "row", "column"),
        [
            ("other", "r", "cd"),
            ("t", "other", "cd"),
            ("t", "r", "other"),
            ("tr", "", "cd"),
            ("t", "rc", "d"),
            ("", "tr", "cd"),
            ("r", "t", "cd"),
        ],
    )
    def test_a_value_that_was_moved_does_not_open(self, table: str, row: str, column: str) -> None:
        sealed = KEY.seal(b"x", table="t", row="r", column="cd")
        with pytest.raises(CannotOpen) as caught:
            KEY.open(sealed, table=table, row=row, column=column)
        assert (caught.value.table, caught.value.row, caught.value.column) == (table, row, column)

    def test_another_sessions_key_does_not_open(self) -> None:
        sealed = KEY.seal(b"x", table="t", row="r", column="c")
        with pytest.raises(CannotOpen):
            SessionKey(new_session_key()).open(sealed, table="t", row="r", column="c")

    def test_cut_or_lengthened_bytes_do_not_open(self) -> None:
        sealed = KEY.seal(b"some content", table="t", row="r", column="c")
        for wrong in [*(sealed[:length] for length in range(len(sealed))), sealed + b"\x00", b"\x00" * 1000]:
            with pytest.raises(CannotOpen):
                KEY.open(wrong, table="t", row="r", column="c")

    def test_a_changed_byte_anywhere_does_not_open(self) -> None:
        sealed = KEY.seal(b"some content", table="t", row="r", column="c")
        for place in range(len(sealed)):
            wrong = bytearray(sealed)
            wrong[place] ^= 1
            with pytest.raises(CannotOpen):
                KEY.open(bytes(wrong), table="t", row="r", column="c")

    @pytest.mark.parametrize("length", [0, 16, 31, 33])
    def test_a_session_key_has_32_bytes(self, length: int) -> None:
        with pytest.raises(ValueError, match="32 bytes"):
            SessionKey(b"x" * length)

    def test_no_text_of_a_key_shows_it(self) -> None:
        assert repr(RAW)[2:12] not in repr(KEY)
        assert b64encode(b"o" * 32).decode() not in repr(KeyRing.parse(OLD))
        assert "ooo" not in repr(KeyRing.parse(OLD))


class TestRing:
    def test_a_printed_entry_is_a_good_ring(self) -> None:
        entries = [new_key_entry() for _ in range(3)]
        assert KeyRing.parse(entries[0]).current_id == entries[0].split(":")[0]
        assert len(KeyRing.parse(",".join(entries)).key_ids) == 3

    def test_what_was_wrapped_unwraps(self) -> None:
        ring = KeyRing.parse(OLD)
        assert ring.unwrap(ring.wrap(RAW, b"ses_1"), b"ses_1") == RAW
        assert RAW not in ring.wrap(RAW, b"ses_1")
        assert ring.wrap(RAW, b"ses_1") != ring.wrap(RAW, b"ses_1")

    def test_after_rotation_the_new_key_wraps_and_the_old_still_opens(self) -> None:
        before, after = KeyRing.parse(OLD), KeyRing.parse(f" {NEW} , {OLD} ")
        wrapped = before.wrap(RAW, b"ses_1")
        assert wrapped_by(wrapped) == "old"
        assert after.unwrap(wrapped, b"ses_1") == RAW
        again = after.wrap(RAW, b"ses_1")
        assert wrapped_by(again) == after.current_id == "new"
        assert KeyRing.parse(NEW).unwrap(again, b"ses_1") == RAW

    def test_a_key_that_was_taken_away_is_named(self) -> None:
        with pytest.raises(KeyMissing) as caught:
            KeyRing.parse(NEW).unwrap(KeyRing.parse(OLD).wrap(RAW, b"ses_1"), b"ses_1")
        assert caught.value.key_id == "old"

    def test_another_key_by_the_same_id_does_not_open(self) -> None:
        other = KeyRing.parse(NEW.replace("new:", "old:"))
        with pytest.raises(CannotOpen):
            other.unwrap(KeyRing.parse(OLD).wrap(RAW, b"ses_1"), b"ses_1")

    def test_a_key_wrapped_for_another_session_does_not_open(self) -> None:
        ring = KeyRing.parse(OLD)
        with pytest.raises(CannotOpen) as caught:
            ring.unwrap(ring.wrap(RAW, b"ses_1"), b"ses_2")
        assert caught.value.row == "ses_2"

    def test_cut_or_changed_bytes_do_not_unwrap(self) -> None:
        ring = KeyRing.parse(OLD)
        wrapped = ring.wrap(RAW, b"ses_1")
        for length in range(len(wrapped)):
            with pytest.raises(CannotOpen):
                ring.unwrap(wrapped[:length], b"ses_1")
        for place in range(len(wrapped)):
            wrong = bytearray(wrapped)
            wrong[place] ^= 1
            with pytest.raises((CannotOpen, KeyMissing)):
                ring.unwrap(bytes(wrong), b"ses_1")

    @given(st.binary(), st.binary())
    def test_any_bytes_fail_by_name(self, wrapped: bytes, aad: bytes) -> None:
        with pytest.raises((CannotOpen, KeyMissing)):
            KeyRing.parse(OLD).unwrap(wrapped, aad)

    def test_both_alphabets_of_base64_are_read(self) -> None:
        raw = b"\xfb\xff" * 16
        standard, for_urls = KeyRing.parse(f"a:{b64encode(raw).decode()}"), KeyRing.parse(f"a:{urlsafe_b64encode(raw).decode()}")
        assert for_urls.unwrap(standard.wrap(RAW, b""), b"") == RAW

    @pytest.mark.parametrize("text", ["", "  ", "\n"])
    def test_no_keys_is_an_error_of_its_own(self, text: str) -> None:
        with pytest.raises(NoKeys, match="moorings keys new"):
            KeyRing.parse(text)
        with pytest.raises(NoKeys):
            KeyRing({})

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("abc", "entry 1 is not id:base64"),
            (OLD + ",", "entry 2 is not id:base64"),
            (":" + OLD, "entry 1 is not id:base64"),
            ("ö" + OLD, "entry 1 is not id:base64"),
            ("x" * 65 + ":" + OLD[4:], "entry 1 is not id:base64"),
            (f"{OLD},{OLD}", "two entries have the id 'old'"),
            ("a:", "the key of 'a' has 0 bytes, not 32"),
            ("a:" + b64encode(b"x" * 16).decode(), "the key of 'a' has 16 bytes, not 32"),
            ("a:secret!", "the key of 'a' is not base64"),
            ("a:sécret", "the key of 'a' is not base64"),
            (OLD.rstrip("="), "the key of 'old' is not base64"),
            (OLD[:20] + " " + OLD[20:], "the key of 'old' is not base64"),
        ],
    )
    def test_a_bad_ring_is_refused_with_the_reason_but_not_the_key(self, text: str, reason: str) -> None:
        with pytest.raises(BadKeyRing) as caught:
            KeyRing.parse(text)
        assert caught.value.reason == reason
        assert "secret" not in str(caught.value)


class TestDigest:
    def test_a_digest_depends_on_data_and_key(self) -> None:
        old, new = KeyRing.parse(OLD), KeyRing.parse(NEW)
        assert old.digest(b"x") == KeyRing.parse(OLD).digest(b"x")
        assert len({old.digest(b"x"), old.digest(b"y"), new.digest(b"x")}) == 3
        assert len(old.digest(b"x")) == 32

    def test_rotation_does_not_make_equal_payloads_differ(self) -> None:
        stored = KeyRing.parse(OLD).digest(b"x")
        after = KeyRing.parse(f"{NEW},{OLD}")
        assert after.is_digest(stored, b"x")
        assert after.is_digest(after.digest(b"x"), b"x")
        assert not after.is_digest(stored, b"y")
        assert not KeyRing.parse(NEW).is_digest(stored, b"x")
        assert not after.is_digest(b"", b"x")
