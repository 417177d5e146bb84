"""Rounds of the automatic policy on a machine and a draft that are scripted, so that it decides the same in every run.

The target decodes 16 rows for little more than one, the draft is often right, and each round drafts as far as it may.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from uad.base.types import Ask, Commit, Draft, Origin, SpeculativeParams
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import Chosen, Decoded, Drafted, Wish

_DECODE_MS, _ROW_MS, _STEP_MS = 30.0, 0.1, 0.3
_SURE, _ALWAYS_WRONG = (0.9, 0.999), (0.0, 0.02)
_N_TOLD = 16  # ids per draft where the draft is always wrong
_NOTHING = Draft()


class Script:
    """A policy, and rounds for it. Where the draft is right it says the id's place in the round, -1 where it is
    wrong.
    """

    def __init__(self, n_seq: int, n_ids: int) -> None:
        target = CostCurve([CostSample(n, 0, _DECODE_MS + _ROW_MS * n) for n in range(1, n_seq * (_N_TOLD + 1) + 1)])
        self.policy = AutoPolicy(Machine(target, {Origin.MODEL: CostCurve([CostSample(1, 0, _STEP_MS)])}))
        self._rng = random.Random(n_ids)
        self._range = _SURE if n_ids else _ALWAYS_WRONG
        self._n_ids = n_ids or _N_TOLD
        self._wishes = [Wish(seq, SpeculativeParams(n_max=self._n_ids), self._n_ids) for seq in range(n_seq)]

    def run(self, n_rounds: int) -> list[int]:
        """The ids that are drafted in each round."""
        for wish in self._wishes:
            self.policy.begin(wish.seq, 1)
        return [self._round() for _ in range(n_rounds)]

    def _round(self) -> int:
        beliefs = [[self._rng.uniform(*self._range) for _ in range(self._n_ids)] for _ in self._wishes]
        right = [next((k for k, p in enumerate(row) if self._rng.random() > p), len(row)) for row in beliefs]
        is_asked = not self.policy.plan(self._wishes)
        asks = self.policy.asks(Origin.MODEL) if is_asked else ()
        written = self._write(self.policy, asks, beliefs) if asks else {}
        drafts = [_draft(written[ask.seq], beliefs[ask.seq], right[ask.seq]) for ask in asks]
        chosen = _submit(self.policy, drafts) if is_asked else {}
        n_rows = max([1, *(max(one.n_rows, 1 + len(one.draft.ids)) for one in chosen.values())])
        commits = [
            _commit(wish.seq, chosen[wish.seq].draft if wish.seq in chosen else _NOTHING, right[wish.seq])
            for wish in self._wishes
        ]
        seconds = 1e-3 * (_DECODE_MS + _ROW_MS * n_rows * len(commits))
        self.policy.observe(Decoded([(len(commits), n_rows)], 0, seconds))
        for commit in commits:
            self.policy.observe(commit)
        return sum(written.values())

    def _write(self, policy: AutoPolicy, asks: Sequence[Ask], beliefs: Sequence[Sequence[float]]) -> dict[int, int]:
        """Draft in lockstep as far as the policy lets it; how many ids of each sequence."""
        live, n = [ask.seq for ask in asks], self._n_ids
        written, steps = dict.fromkeys(live, n), list[tuple[int, float]]()
        for k in range(1, n + 1):
            wrote = [(seq, beliefs[seq][k - 1]) for seq in live]
            if k == n:
                policy.more((), wrote, steps)
                break
            more = policy.more(live, wrote, steps)
            if False in more:
                written |= {seq: k for seq, goes_on in zip(live, more, strict=True) if not goes_on}
                live = [seq for seq, goes_on in zip(live, more, strict=True) if goes_on]
                if not live:
                    break
            steps = [(len(live), 1e-3 * _STEP_MS)]
        return written


def _submit(policy: AutoPolicy, drafts: Sequence[Draft]) -> dict[int, Chosen]:
    if drafts:
        policy.observe(Drafted(Origin.MODEL, drafts, 1e-3 * _STEP_MS * max(len(draft.ids) for draft in drafts)))
    return dict(policy.choose())


def _draft(n: int, beliefs: Sequence[float], n_right: int) -> Draft:
    return Draft(tuple(k if k < n_right else -1 for k in range(n)), tuple(beliefs[:n]), n_read=1)


def _commit(seq: int, draft: Draft, n_right: int) -> Commit:
    n = min(len(draft.ids), n_right)
    return Commit(seq, tuple(range(n + 1)), len(draft.ids), n)
