"""What followed earlier, mixed into a draft's logits: the longest occurrence, in mid-draft, and never of ids that were
taken back.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.toys import DRAFT_VOCAB, toy_vocab

from uad.base.types import SamplingParams
from uad.drafts.model.choosing import LIKELIEST, Recalled
from uad.drafts.model.coupling import likely
from uad.drafts.model.mirror import Mirror
from uad.drafts.model.recall import Recall
from uad.text.vocab.encode import Encoder

LETTERS = toy_vocab("letters", "", ("<end>",), ("<end>",))  # a byte an id


def reader(text: bytes) -> tuple[Mirror, Recall]:
    mirror = Mirror(Encoder(LETTERS))
    recall = Recall(mirror)
    read(mirror, recall, text)
    return mirror, recall


def read(mirror: Mirror, recall: Recall, text: bytes) -> None:
    mirror.extend([text])
    mirror.sync()
    recall.start()


def recalled(recall: Recall) -> bytes | None:
    found = recall.find()
    return None if found is None else bytes([found.id])


def test_two_witnesses_are_believed_more_than_one_against_the_other() -> None:
    _, recall = reader(b"the cat. the c")
    recall.find()
    a, b = LETTERS.pieces.index(b"a"), LETTERS.pieces.index(b"b")
    assert recall.believed(a, 0.25) == pytest.approx(0.5)  # odds of 1 to 3, times 3
    assert recall.believed(b, 0.5) == pytest.approx(1 / 3)
    assert [recall.believed(id_, p) for id_ in (a, b) for p in (0.0, 1.0)] == [0.0, 1.0, 0.0, 1.0]
    _, recall = reader(b"abcdef")
    recall.find()
    assert recall.believed(a, 0.25) == 0.25, "nothing was found"


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        (b"the cat. the c", b"a"),
        (b"abcX..bcY..abc", b"X"),  # three ids beat two, though those are newer
        (b"abX..abY..ab", b"Y"),  # of equals the newest
        (b"abcdef", None),
        (b"aXa", None),  # one id is no occurrence
        (b"aaaa", b"a"),
        (b"", None),
        (b"a", None),
    ],
)
def test_what_followed_the_longest_occurrence(text: bytes, follows: bytes | None) -> None:
    assert recalled(reader(text)[1]) == follows


def test_a_match_is_followed_and_left_in_mid_draft() -> None:
    mirror, recall = reader(b"say hello world. no, world peace. say he")
    for letter in b"llo ":
        assert recalled(recall) == bytes([letter])
        mirror.guess(letter, 0.9)
    assert recalled(recall) == b"w"
    for letter in b"X, wor":  # the model knows better
        mirror.guess(letter, 0.9)
        recalled(recall)
    assert recalled(recall) == b"l"


def test_odds_are_added_to_a_probability() -> None:
    recall = reader(b"abcdX..abcd")[1]
    row = np.random.default_rng(1).standard_normal(LETTERS.n_vocab).astype(np.float32)
    before, kept = np.exp(row) / np.exp(row).sum(), row.copy()
    found, odds = recall.find(), 0.01 * 4**1.5
    assert found == Recalled(ord("X"), pytest.approx(odds))
    mixed = before + odds * (np.arange(LETTERS.n_vocab) == ord("X"))
    mixed /= mixed.sum()
    assert LIKELIEST.choose(row, found) == (int(mixed.argmax()), pytest.approx(mixed.max(), rel=1e-4))
    sure = Recalled(ord("X"), 9.0)
    assert LIKELIEST.choose(row, sure) == (ord("X"), pytest.approx((before[ord("X")] + 9) / 10, rel=1e-4))
    ids, log_p, n = likely(row, SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0), found)
    assert np.exp(log_p) == pytest.approx(mixed[ids] / mixed[ids].sum(), rel=1e-4)
    assert sorted(mixed[ids], reverse=True) == list(mixed[ids])
    assert n == len(ids) == 40
    assert set(ids) == set(np.argsort(-mixed)[:40])
    assert (row == kept).all(), "the context's own row is not to be changed"


@given(st.lists(st.tuples(st.text("abc", max_size=6), st.text("abc", max_size=6)), max_size=12))
@example([("a", ""), *[("", "")] * 7, ("a", ""), ("", "")])  # the longest match is the ninth from the end
def test_only_what_was_committed_is_recalled(rounds: list[tuple[str, str]]) -> None:
    """Guesses come and go; what is found is the longest of the newest occurrences in the committed text."""
    mirror = Mirror(Encoder(DRAFT_VOCAB))
    recall = Recall(mirror)
    pieces = DRAFT_VOCAB.pieces
    for text, guess in rounds:
        read(mirror, recall, (" the quick" + text).encode())
        ids, n = list(mirror.ids), len(mirror.ids)
        kept = [e for e in range(1, mirror.n_within()) if ids[e - 1 : e + 1] == ids[n - 2 : n]][-8:]
        ends = [e for e in kept if e < n - 1]
        longest = max([common(ids, e, n - 1) for e in ends], default=0)
        found = recall.find()
        if not longest:
            assert found is None
        else:
            assert found is not None
            assert found.id in {ids[e + 1] for e in ends if common(ids, e, n - 1) == longest}
        for letter in guess.encode():
            mirror.guess(pieces.index(bytes([letter])), 0.5)
            recall.find()


def common(ids: list[int], a: int, b: int) -> int:
    n = 0
    while n < 24 and n <= a and ids[a - n] == ids[b - n]:
        n += 1
    return n


def test_what_lies_before_the_window_is_recalled() -> None:
    rng = random.Random(5)
    mirror, recall = reader(bytes(rng.choice(b"abcdefgh") for _ in range(200)) + b"needle-1 and some more, needle-")
    assert recalled(recall) == b"1"
    mirror.read_last(10)
    recall.start()
    assert recalled(recall) == b"1"
