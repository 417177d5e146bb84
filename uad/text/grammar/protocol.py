"""A constraint as sampling, the loop and drafters need it. `uad.text.grammar.matcher.GrammarMatcher` satisfies it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

IdIndexes = npt.NDArray[np.intp]


class Mask(NamedTuple):
    """The ids that may follow, ascending, at least one; or those that may not, where they are fewer."""

    ids: IdIndexes
    are_banned: bool = False

    def allowed(self, n_vocab: int) -> IdIndexes:
        """The ids that may follow."""
        if not self.are_banned:
            return self.ids
        is_allowed = np.ones(n_vocab, bool)
        is_allowed[self.ids] = False
        return np.flatnonzero(is_allowed)


class Matcher(Protocol):
    """The continuations still open to one answer. A matcher is passed every id of the answer, in order, and nothing
    else changes it.
    """

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete: no id may follow, or an id that ends answers was accepted."""

    @property
    def forced(self) -> Sequence[int]:
        """The ids that must follow; none where there is a choice.

        Forced bytes are cut as the vocabulary's tokenizer cuts them. Their last id is left open where it could be a
        longer one.
        """

    @property
    def expected(self) -> Sequence[tuple[int, float]]:
        """The ids that follow probably, each with the probability that it does if all before it do: those that are
        forced, then what is forced after a choice of white space.
        """

    def mask(self) -> Mask | None:
        """The ids that may follow; None: any id. Raises UadError where a limit is exceeded."""

    def accept(self, id_: int) -> None:
        """The answer goes on with this id. Raises UadError where it may not."""

    def n_valid(self, ids: Sequence[int]) -> int:
        """How many leading ids may follow in a row."""
