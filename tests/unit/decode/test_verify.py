"""Verification alone: how far rows are drawn from, and what is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from kit.toys import TARGET_VOCAB

from uad.base.types import TokenProb, Verdict
from uad.engine.decode.verify import verify
from uad.engine.sampling.noise import Position

THE, QUICK, FOX = (TARGET_VOCAB.tokenize(word)[0] for word in (b" the", b" quick", b" fox"))
END = TARGET_VOCAB.eos


class Picks:
    """A picker of certain ids, one for each row."""

    matcher = None
    n_needed = 1

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = ids
        self.accepted: list[int] = []
        self.places: list[Position] = []

    def pick(self, row: np.ndarray, position: Position) -> int:
        self.places.append(position)
        return self.ids[len(self.accepted)]

    def accept(self, id_: int) -> None:
        self.accepted.append(id_)


def verified(picks: Picks, draft: Sequence[int]) -> Verdict:
    rows = np.zeros((len(draft) + 1, TARGET_VOCAB.n_vocab), np.float32)
    describe = lambda row, id_: TokenProb(id_, b"", -1.0)  # noqa: E731
    return verify(picks, rows, draft, Position(7), TARGET_VOCAB, {END}, describe)


def test_ids_are_drawn_up_to_the_first_that_was_not_guessed() -> None:
    picks = Picks((THE, QUICK, FOX))
    found = verified(picks, (THE, FOX, QUICK))
    assert (found.ids, found.n_accepted, len(found.probs)) == ((THE, QUICK), 1, 2)
    assert picks.accepted == [THE, QUICK]


def test_after_a_draft_that_is_right_the_target_adds_one() -> None:
    found = verified(Picks((THE, QUICK, FOX)), (THE, QUICK))
    assert (found.ids, found.n_accepted) == ((THE, QUICK, FOX), 2)


def test_each_id_is_drawn_at_its_own_place() -> None:
    picks = Picks((THE, QUICK, FOX))
    verified(picks, (THE, QUICK))
    assert picks.places == [Position(7), Position(7 + len(b" the")), Position(7 + len(b" the quick"))]


def test_nothing_is_drawn_after_an_end_though_it_was_guessed() -> None:
    picks = Picks((THE, END, FOX, QUICK))
    found = verified(picks, (THE, END, FOX))
    assert (found.ids, found.n_accepted, len(found.probs)) == ((THE, END), 2, 2)
    assert picks.accepted == [THE, END]
