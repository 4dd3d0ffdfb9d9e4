"""What the measured steps return: JSON of about 2 kB that reads like a chat and packs like one (zstd -1: about 1.8 times).

What lives here: texts, the same for every side, from a seed. What does not: encoding; standard library only, since peers run it.
"""

from __future__ import annotations

import json
import random
from typing import Final

SIZE: Final = 2_000
"""Bytes of JSON that a payload comes near to."""

_OFTEN = (
    "the a to of and in is for on with that it was from by this are be at as or an your you we our not have has can will if when "
    "after before then please order parcel account team ticket refund deploy service request answer today tomorrow yesterday "
    "morning review release customer message channel thread button invoice payment status error"
)
_PIECES = (
    "ra ne ti lo ma ver sel con ta pri del mo ter fin cal sub tra per nat cor bel gru hin jas kol wend yor zim qua plex ond ulm "
    "est ard isk oph eld arn ump ish"
)
_COMMON: Final = _OFTEN.split()
_SYLLABLES: Final = _PIECES.split()
_RARE: Final = 0.27
"""Share of words that are names, numbers or seldom used; sets how well the text packs."""


def _word(chance: random.Random) -> str:
    if chance.random() > _RARE:
        return _COMMON[min(int(chance.expovariate(1 / 16)), len(_COMMON) - 1)]
    if chance.random() < 0.12:
        return f"{chance.randrange(10, 99_999)}"
    return "".join(chance.choices(_SYLLABLES, k=chance.choice((2, 2, 3))))


def _sentence(chance: random.Random) -> str:
    words = [_word(chance) for _ in range(chance.randrange(6, 18))]
    return " ".join(words).capitalize() + chance.choice(".....?!")


def _payload(chance: random.Random) -> dict[str, object]:
    call = f"call_{chance.getrandbits(64):016x}"
    usage = {"input_tokens": chance.randrange(500, 9_000), "output_tokens": chance.randrange(50, 900)}
    found: dict[str, object] = {"role": "assistant", "id": call, "finish": "stop", "usage": usage, "text": ""}
    size, sentences = len(json.dumps(found)), list[str]()
    while size < SIZE:
        sentences.append(_sentence(chance))
        size += len(sentences[-1]) + 1
    return found | {"text": " ".join(sentences)}


def payloads(count: int = 200, *, seed: int = 7) -> list[dict[str, object]]:
    """Make some, the same ones every time."""
    chance = random.Random(seed)
    return [_payload(chance) for _ in range(count)]
