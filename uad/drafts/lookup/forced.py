"""grammar: what a request's constraint forces (keys, punctuation, what closes), proposed as ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uad.base.types import GREEDY, Ask, Commit, Draft, Origin, SamplingParams
from uad.engine.drafter import Pace
from uad.text.grammar.protocol import Matcher

_NOTHING = Draft(origin=Origin.GRAMMAR, kind=Origin.GRAMMAR)


class GrammarDrafter:
    """Proposes ids that are forced, which are believed wholly, and what is forced after a choice of white space.

    matchers: those of running answers, by sequence; they belong to the loop, which passes them every id.
    """

    origin = Origin.GRAMMAR

    def __init__(self, matchers: Mapping[int, Matcher]) -> None:
        self._matchers = matchers

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        """All that is known of a sequence is in its matcher."""

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        matcher = self._matchers.get(ask.seq)
        expected = matcher.expected[: ask.n_max] if matcher is not None else ()
        ids, beliefs = tuple(id_ for id_, _ in expected), tuple(p for _, p in expected)
        return Draft(ids, beliefs, Origin.GRAMMAR, kind=Origin.GRAMMAR) if ids else _NOTHING

    def observe(self, commit: Commit) -> None:
        """The matcher has them."""

    def end(self, seq: int) -> None:
        """The matcher is the loop's."""

    def reset(self) -> None:
        """Nothing is kept."""
