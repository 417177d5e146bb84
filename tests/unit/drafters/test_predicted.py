"""Where an answer is in its prediction: edits of all kinds, texts that have nothing to do with it, and bounds."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uad.lookup.predicted import PredictedAnswer, Trust, weight

FUNCTION = b"""def area_%d(width, height):
    # the area of rectangle %d
    scale = %d
    return width * height * scale

"""
CODE = b"".join(FUNCTION % (i, i, 3 * i) for i in range(40))
LINES = CODE.splitlines(keepends=True)


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


def n_rounds(prediction: bytes, answer: bytes, n_most: int = 40) -> int:
    """Rounds that an answer takes where each submits what is predicted, n_most pieces at most, and brings one more."""
    predicted, pieces, at, rounds = PredictedAnswer(prediction), ids_of(answer), 0, 0
    while at < len(pieces):
        rounds += 1
        place = predicted.place()
        ahead = prediction[place.at : place.at + 400] if place else b""
        n = 0
        while n < n_most and at < len(pieces) - 1 and ahead.startswith(pieces[at]):
            ahead = ahead[len(pieces[at]) :]
            predicted.write(pieces[at])
            at, n = at + 1, n + 1
        predicted.write(pieces[at])
        at += 1
    return rounds


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


def test_a_place_is_trusted_by_what_agrees() -> None:
    answer = PredictedAnswer(CODE)
    first = answer.place()
    assert first is not None
    assert (first.at, first.trust) == (0, Trust.GUESSED)
    for piece in ids_of(CODE)[:10]:
        answer.write(piece)
    followed = answer.place()
    assert followed is not None
    assert followed.trust is Trust.FOLLOWED
    assert followed.at == len(b"".join(ids_of(CODE)[:10]))
    answer.write(b"something else")
    answer.write(b" of this rectangle 1\n    scale =")
    resumed = answer.place()
    assert resumed is not None
    assert resumed.trust is Trust.RESUMED
    assert CODE[: resumed.at].endswith(b"scale =")
    assert resumed.length < followed.length


def test_nothing_is_found_for_another_text() -> None:
    answer = PredictedAnswer(CODE)
    places = []
    for piece in ids_of("Ein Fuchs lief über das Feld, und niemand sah, wohin er ging. ".encode() * 4):
        answer.write(piece)
        places.append(answer.place())
    late = places[16:]  # before, a word may be taken to be replaced
    assert sum(place is not None for place in late) < len(late) / 4


def test_the_end_of_a_prediction_is_no_place() -> None:
    answer = PredictedAnswer(b"one two")
    for piece in (b"one", b" two"):
        answer.write(piece)
    assert answer.place() is None


def test_ids_without_bytes_leave_the_place_and_cut_what_is_left() -> None:
    answer = PredictedAnswer(b"one two", before=b"user\n")
    assert answer.left == b"user\n"
    answer.write(b"one")
    answer.write(b"")
    assert answer.left == b""
    place = answer.place()
    assert place is not None
    assert place.at == 3


def test_a_run_of_white_space_is_little_evidence() -> None:
    assert weight(b"\n        ") == 0
    assert weight(b"    return  x") == len(b"return x")


@given(st.binary(max_size=200), st.lists(st.binary(max_size=6), max_size=60))
def test_any_bytes_are_followed(prediction: bytes, pieces: list[bytes]) -> None:
    """A place lies in the prediction; where it is followed, the bytes before it are the answer's last ones."""
    answer, written = PredictedAnswer(prediction), b""
    for piece in pieces:
        answer.write(piece)
        written += piece
        place = answer.place()
        if place is not None:
            assert 0 <= place.at < len(prediction)
            if place.trust is not Trust.GUESSED:
                n = min(place.at, 3)
                assert written.endswith(prediction[place.at - n : place.at])


@pytest.mark.parametrize("unit", [b"a", b"ab ", b"    ", b"\n", bytes(range(256)), b"x = 1\n"], ids=range(6))
def test_a_hostile_prediction_costs_little(unit: bytes) -> None:
    """A megabyte, and answers that nearly agree with it: far below a decode each."""
    text = (unit * (1 << 20))[: 1 << 20]
    answer = PredictedAnswer(text)
    began = time.process_time()
    for i in range(200):
        answer.write(unit * 3 if i % 3 else b"b!")
        answer.place()
    assert time.process_time() - began < 200 * 0.02
