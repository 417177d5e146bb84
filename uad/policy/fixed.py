"""Fixed draft lengths, as in llama-server: n_max, n_min and p_min of the draft model, the sizes of the others, at any
cost.

The first drafter with a guess wins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from uad.policy.protocol import Chosen, PolicyView, Wish
from uad.types import WRITERS, Ask, Commit, Draft, Origin

_READ_AT_ONCE: Final = 256  # ids of a backlog in a round: the text goes on while they are read, and others may wait


class FixedRound:
    """Every sequence drafts as far as its request asks, with the first drafter that has a guess; with what a grammar
    forces where no guess is longer.
    """

    def __init__(self, wishes: Sequence[Wish], weighed: Collection[Origin] = ()) -> None:
        """weighed: drafters whose guesses are only compared, never taken as they come, unless a request asks for them
        by name.
        """
        self._weighed = weighed
        self._wishes = [wish for wish in wishes if wish.params.enabled]
        self._asked: Sequence[Ask] = ()
        self._chosen: dict[int, Chosen] = {}
        self._forced: dict[int, Chosen] = {}

    def asks(self, origin: Origin) -> Sequence[Ask]:
        self._asked = [
            self._ask_of(wish, origin)
            for wish in self._wishes
            if wish.seq not in self._chosen and self._may(wish, origin)
        ]
        return self._asked

    def _may(self, wish: Wish, origin: Origin) -> bool:
        return wish.may_ask(origin) and (bool(wish.params.types) or origin not in self._weighed)

    def _ask_of(self, wish: Wish, origin: Origin) -> Ask:
        params, room = wish.params, wish.room
        if params.longest <= 0:
            return Ask(wish.seq, 0, n_read=_READ_AT_ONCE)
        if origin not in WRITERS:  # these have sizes of their own
            return Ask(wish.seq, room)
        return Ask(wish.seq, min(params.longest, room), params.n_min, params.p_min, _READ_AT_ONCE)

    def proposed(self, origin: Origin, drafts: Sequence[Draft], seconds: float) -> None:
        found = self._forced if origin is Origin.GRAMMAR else self._chosen
        for ask, draft in zip(self._asked, drafts, strict=True):
            if draft.ids:
                found[ask.seq] = Chosen(draft)

    def choose(self) -> Mapping[int, Chosen]:
        for seq, forced in self._forced.items():
            guess = self._chosen.get(seq)
            if guess is None or len(guess.draft.ids) < len(forced.draft.ids):
                self._chosen[seq] = forced
        return self._chosen

    def wrote(self, seq: int, p: float) -> None:
        """Nothing depends on it."""

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        return [True] * len(seqs)

    def stepped(self, n_seq: int, seconds: float) -> None:
        """Nothing depends on it."""


class FixedPolicy:
    """The same decisions in every round."""

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None:
        """Nothing is remembered."""

    def plan(self, wishes: Sequence[Wish]) -> FixedRound:
        return FixedRound(wishes)

    def decoded(self, passes: Sequence[tuple[int, int]], depth: int, seconds: float) -> None:
        """Nothing depends on it."""

    def plain_round(self, seconds: float) -> None:
        """Nothing depends on it."""

    def committed(self, commit: Commit) -> None:
        """Nothing depends on it."""

    def end(self, seq: int) -> None:
        """Nothing is remembered."""

    def view(self, depth: int) -> PolicyView:
        return PolicyView()
