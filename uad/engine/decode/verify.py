"""Verification: the target's own draw at every row, and how far the draft had guessed it. Exact for any draft, at any
temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Protocol

from uad.base.common.logits import Likeliest, Logits, Outputs
from uad.base.types import TokenProb, Verdict
from uad.engine.sampling.noise import Position
from uad.engine.sampling.sampler import Lot
from uad.text.grammar.protocol import Matcher
from uad.text.vocab.table import VocabTable


class Picker(Protocol):
    """Chooses the ids of one sequence. `uad.engine.sampling.sampler.Sampler` is one."""

    @property
    def matcher(self) -> Matcher | None:
        """The matcher by which ids are chosen beside their logits, if the answer is constrained."""
        ...

    @property
    def n_needed(self) -> int:
        """How many of a row's likeliest ids the choice depends on; 0: on the whole row."""
        ...

    def pick(self, row: Logits | Likeliest, position: Position) -> int:
        """The id drawn from a row of logits, [n_vocab], or from its likeliest, at this place of the answer."""
        ...

    def lot(self, row: Logits | Likeliest, position: Position) -> Lot:
        """The lot that `pick` draws from."""
        ...

    def accept(self, id_: int) -> None:
        """The id is part of the text: penalties count it."""

    def drawn_prob(self, id_: int, n_top: int, pieces: Sequence[bytes]) -> TokenProb:
        """Log-probability of the id that was picked last, among those that it was drawn from, with the likeliest."""
        ...

    def close(self) -> None:
        """Free what the sampler holds."""


def verify(
    picker: Picker,
    rows: Outputs,
    draft: Sequence[int],
    position: Position,
    vocab: VocabTable,
    ends: Container[int],
    describe: Callable[[Any, int], TokenProb] | None = None,
) -> Verdict:
    """rows[i] are the logits after i accepted draft ids, or the likeliest of them; there is one more than the draft has
    ids. Stops at the first id that the draft had not guessed, after one of `ends`, which end the text, or where a
    constraint says that it is complete: what follows such an id was never asked for.
    """
    matcher = picker.matcher
    ids: list[int] = []
    probs: list[TokenProb] = []
    for i, row in enumerate(rows):
        id_ = picker.pick(row, position)
        picker.accept(id_)
        ids.append(id_)
        if describe is not None:
            probs.append(describe(row, id_))
        if i == len(draft) or id_ != draft[i]:
            return Verdict(tuple(ids), i, tuple(probs))
        if id_ in ends or (matcher is not None and matcher.is_over):
            return Verdict(tuple(ids), i + 1, tuple(probs))
        position = position.after(len(vocab.texts[id_]))
    raise AssertionError("verification needs one row more than the draft has ids")
