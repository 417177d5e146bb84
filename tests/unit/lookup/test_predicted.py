"""Where an answer is in its prediction: edits of all kinds, texts that have nothing to do with it, and bounds."""

from __future__ import annotations

import re
import time
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.drafter_kit import Slot
from kit.pace import here

from uad.base.common.sequences import common_prefix
from uad.drafts.lookup.predicted import find, weight
from uad.drafts.lookup.prediction import drafter
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

FUNCTION = b"""def area_%d(width, height):
    # the area of rectangle %d
    scale = %d
    return width * height * scale

"""
CODE = b"".join(FUNCTION % (i, i, 3 * i) for i in range(40))
LINES = CODE.splitlines(keepends=True)
LINES_AT = list(accumulate(map(len, LINES), initial=0))


def is_word(byte: bytes) -> bool:
    return byte.isalnum() or byte == b"_"


def ids_of(text: bytes) -> list[bytes]:
    """Pieces as a tokenizer would cut them, roughly: a word with the space before it, or a run of other bytes."""
    out: list[bytes] = []
    for i in range(len(text)):
        byte = text[i : i + 1]
        if out and (out[-1] == b" " or is_word(byte) == is_word(out[-1][-1:])):
            out[-1] += byte
        else:
            out.append(byte)
    return out


def vocab_of(*texts: bytes) -> VocabTable:
    """All bytes and the pieces of these texts; what a text is cut into is what `ids_of` says."""
    pieces = list(
        dict.fromkeys([*(bytes([byte]) for byte in range(256)), *(one for text in texts for one in ids_of(text))])
    )
    ids = {piece: id_ for id_, piece in enumerate(pieces)}

    def tokenize(data: bytes) -> list[int]:
        return [id_ for piece in ids_of(data) for id_ in ([ids[piece]] if piece in ids else piece)]

    return VocabTable("words", tuple(pieces), {}, tokenize)


def n_rounds(prediction: bytes, answer: bytes, n_most: int = 40) -> int:
    """Rounds that an answer takes where each submits what is predicted, n_most ids at most, and brings one more."""
    encoder = Encoder(vocab_of(prediction, answer))
    slot = Slot(drafter(encoder))
    slot.drafter.predict(0, prediction)
    target, at, rounds = encoder.encode(answer), 0, 0
    while at < len(target):
        draft = slot.draft(n_most)
        ids = target[at : at + common_prefix(draft.ids, target[at:]) + 1]
        slot.write(ids, draft)
        at, rounds = at + len(ids), rounds + 1
    return rounds


BYTES = Encoder(vocab_of())


def edited(*edits: tuple[int, int, bytes]) -> bytes:
    """CODE with lines from..to replaced."""
    lines = list(LINES)
    for start, stop, new in sorted(edits, reverse=True):
        lines[start:stop] = new.splitlines(keepends=True)
    return b"".join(lines)


def test_a_prediction_that_is_right_takes_few_rounds() -> None:
    assert n_rounds(CODE, CODE) <= len(ids_of(CODE)) / 40 + 1


@pytest.mark.parametrize(
    ("what", "answer", "most"),
    [
        ("a word replaced", edited((52, 53, LINES[52].replace(b"scale", b"factor"))), 4),
        ("a number replaced", edited((52, 53, LINES[52].replace(b"30", b"31"))), 3),
        ("a line put in", edited((52, 52, b"    print('checking', width)\n")), 12),
        ("two lines put in", edited((51, 51, b"    if width < 0:\n        raise ValueError('negative width')\n")), 22),
        ("a line left out", edited((52, 53, b"")), 5),
        ("a function left out", edited((50, 55, b"")), 5),
        ("half of it left out", edited((50, 150, b"")), 5),
        ("a line replaced", edited((53, 54, b"    yield from measure(everything)\n")), 15),
        ("a fence before it", b"Here is the code:\n```python\n" + CODE, 16),
        ("the second half only", b"".join(LINES[100:]), 6),
        ("two functions in another order", b"".join([*LINES[:50], *LINES[55:60], *LINES[50:55], *LINES[60:]]), 16),
    ],
)
def test_it_follows_edits(what: str, answer: bytes, most: int) -> None:
    """`most`: rounds more than without the edit."""
    assert n_rounds(CODE, answer) - n_rounds(answer, answer) <= most, what


def test_every_line_changed_is_still_faster_than_one_by_one() -> None:
    answer = CODE.replace(b"width", b"w")
    assert n_rounds(CODE, answer) < len(ids_of(answer)) / 3


def test_what_was_renamed_once_is_expected_again() -> None:
    renamed = CODE.replace(b"width", b"breadth_of_it")
    assert CODE.count(b"width") == 80
    assert n_rounds(CODE, renamed) < n_rounds(renamed, renamed) + 16


def test_a_place_is_behind_the_bytes_that_agree() -> None:
    middle = CODE.index(b"rectangle 20")
    for n, tail in enumerate((b"rectangle 20", b"# the area of rectangle 20", b"def area_20(width, height):\n")):
        at = CODE.index(tail) + len(tail)
        found = find(CODE, b"something else " + tail, middle - 100 * n, 0)
        assert found is not None
        assert (found.at, found.score > 0) == (at, True)


def test_few_bytes_count_nearby_only() -> None:
    at = CODE.index(b"30\n")
    near = find(CODE, b"?= 30", at - 20, 0)
    assert near is not None
    assert near.at == at + 2
    assert find(CODE, b"?= 30", at + 400, 0) is None


def test_of_places_alike_the_expected_one_is_taken() -> None:
    """About as many bytes further on as were written since the difference."""
    places = [match.end() for match in re.finditer(rb"return width \* height", CODE)]
    for n_since in (0, 10, 100, 1000):
        found = find(CODE, b"return width * height", places[3], n_since)
        assert found is not None
        assert found.at == min(places, key=lambda at: (abs(at - places[3] - n_since) // 8).bit_length())


@pytest.mark.parametrize(
    ("tail", "left", "line"),
    [
        (b"changed()\n    ", LINES_AT[7] + 9, 8),  # within line 7, which was replaced
        (b"put in()\n    ", LINES_AT[7] + 4, 7),  # before line 7
        (b"changed()\n  ", LINES_AT[7] + 9, 8),  # two more spaces may follow
        (b"```python\n", 0, 0),
    ],
)
def test_behind_a_line_that_differs_the_next_one_is_expected(tail: bytes, left: int, line: int) -> None:
    indent = len(tail) - tail.rindex(b"\n") - 1
    assert find(CODE, tail, left, 0) == (LINES_AT[line] + indent, 0)


@pytest.mark.parametrize("tail", [b"", b"xyzzy", b"xyzzy\n        ", b"\nxyzzy"])
def test_nothing_is_found_where_nothing_agrees(tail: bytes) -> None:
    assert find(CODE[:200], tail, 40, 0) is None


def test_the_end_of_a_prediction_is_no_place() -> None:
    assert find(b"one two", b"one two", 0, 0) is None
    assert find(b"one two\n", b"else\n", 5, 0) is None
    assert n_rounds(b"one two", b"one two three four") == 2


def test_nothing_is_drafted_for_another_text() -> None:
    answer = b"Ein Fuchs lief uber das Feld, und niemand sah, wohin er ging. " * 4
    encoder = Encoder(vocab_of(CODE, answer))
    slot = Slot(drafter(encoder))
    slot.drafter.predict(0, CODE)
    drafts = []
    for id_ in encoder.encode(answer):
        drafts.append(slot.draft())
        slot.write([id_])
    assert sum(bool(draft.ids) for draft in drafts[1:]) < len(drafts) / 4


def test_a_run_of_white_space_is_little_evidence() -> None:
    assert weight(b"\n        ") == 0
    assert weight(b"    return  x") == len(b"return x")


@given(st.binary(max_size=200), st.lists(st.binary(max_size=6), max_size=30), st.integers(0, 40))
def test_any_bytes_are_followed(prediction: bytes, pieces: list[bytes], n_known: int) -> None:
    """What is drafted is bytes of the prediction, or edits that the answer made; nothing breaks."""
    slot = Slot(drafter(BYTES))
    slot.drafter.predict(0, prediction)
    for piece in (prediction[:n_known], *pieces):
        draft = slot.draft(12)
        assert set(draft.ids) <= {*prediction, *slot.ids}
        slot.write(list(piece), draft)


@given(st.binary(min_size=4, max_size=80), st.binary(max_size=80), st.integers(0, 80), st.integers(0, 99))
def test_a_place_lies_in_the_prediction_behind_bytes_that_agree(
    text: bytes, tail: bytes, left: int, n_since: int
) -> None:
    found = find(text, tail + text[:3], min(left, len(text)), n_since)
    if found is not None:
        assert 0 <= found.at < len(text)
        assert found.score == 0 or text[: found.at].endswith(text[:3])


@pytest.mark.parametrize("unit", [b"a", b"ab ", b"    ", b"\n", bytes(range(256)), b"x = 1\n"], ids=range(6))
def test_a_hostile_prediction_costs_little(unit: bytes) -> None:
    """A megabyte, and answers that nearly agree with it: far below a decode each."""
    slot = Slot(drafter(BYTES))
    slot.drafter.predict(0, (unit * (1 << 20))[: 1 << 20])
    began = time.process_time()
    for i in range(200):
        slot.write(list(unit * 3 if i % 3 else b"b!"), slot.draft())
    assert time.process_time() - began < here(200 * 0.02)
