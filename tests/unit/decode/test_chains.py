"""Chains: a guess that was written is continued by what the text offers behind it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from uad.base.types import GREEDY, Ask, Commit, Draft, Origin, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.lookup import suffix
from uad.engine.decode.drafting import DraftedText, Drafting
from uad.engine.drafter import Pace
from uad.engine.policy.protocol import Chosen, Drafted, Seen, Wish

N_VOCAB, END = 100, 99
TEXT = (10, 11, 12, 13, 14, 15, 16, 17, 18, 19)


class TwoIds:
    """Writes the same two ids, whatever the text is."""

    origin = Origin.HEAD

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._ids = ids

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None: ...

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [Draft(self._ids, (0.5,) * len(self._ids), self.origin) for _ in asks]

    def observe(self, commit: Commit) -> None: ...

    def end(self, seq: int) -> None: ...

    def reset(self) -> None: ...


class Takes:
    """A policy that asks who writes for up to n ids, and takes the guess as it is."""

    def __init__(self, n: int) -> None:
        self._n = n
        self.draft = Draft()

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None: ...

    def plan(self, wishes: Sequence[Wish]) -> int:
        return 0

    def asks(self, origin: Origin) -> Sequence[Ask]:
        return [Ask(0, self._n)] if origin is Origin.HEAD else []

    def observe(self, seen: Seen) -> None:
        assert isinstance(seen, Drafted)
        (self.draft,) = seen.drafts

    def choose(self) -> dict[int, Chosen]:
        return {}


def drafted(ids: tuple[int, ...], n: int = 8, params: SpeculativeParams | None = None) -> Draft:
    """What comes of a guess of these ids behind a text whose end occurred before."""
    policy = Takes(n)
    drafters = (suffix.drafter(share="off"), TwoIds(ids))
    drafting = Drafting(drafters, lambda: policy, N_VOCAB, frozenset({END}))  # type: ignore[arg-type, return-value]
    drafting.begin(DraftedText(0, (*TEXT, 50, 10, 11), GREEDY))
    drafting.propose([Wish(0, params or SpeculativeParams(), 32)])
    return policy.draft


def test_what_followed_the_guess_before_is_added_to_it() -> None:
    draft = drafted((12, 13))
    assert draft.ids == (12, 13, 14, 15, 16, 17, 18, 19)
    assert (draft.n_tail, draft.kind, draft.origin) == (6, "suffix", Origin.HEAD)
    assert len(draft.p) == 8
    assert draft.first(4).n_tail == 2
    assert draft.first(1).n_tail == 0


@pytest.mark.parametrize(
    ("ids", "n", "params"),
    [
        ((60, 61), 8, None),
        ((12, END), 8, None),
        ((12, 13), 2, None),
        ((12, 13), 8, SpeculativeParams(policy=SpecPolicy.FIXED)),
        ((12, 13), 8, SpeculativeParams(types=(Origin.HEAD,))),
    ],
)
def test_a_guess_stays_as_it_is_where_nothing_may_follow(
    ids: tuple[int, ...], n: int, params: SpeculativeParams | None
) -> None:
    draft = drafted(ids, n, params)
    assert draft.n_tail == 0
    assert draft.ids == tuple(id_ for id_ in ids if id_ != END)


def test_looking_behind_a_guess_changes_nothing() -> None:
    one, other = suffix.drafter(share="off"), suffix.drafter(share="off")
    for drafter in (one, other):
        drafter.begin(0, (*TEXT, 50, 10, 11, 12))
    assert isinstance(one, suffix.SuffixDrafter)
    assert one.after(0, (13, 14), 3).ids == (15, 16, 17)
    assert one.after(0, (70,), 3).ids == ()
    assert one.after(1, (13,), 3).ids == (), "a slot that never ran"
    assert one.propose([Ask(0, 8)]) == other.propose([Ask(0, 8)])
