"""Scripted machines and drafts for the policy: rounds without models, in simulated milliseconds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from uad.base.types import Commit, Draft, Origin, SpeculativeParams
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import Decoded, Drafted, Ended, Wish

Cost = Callable[[int], float]
"""Milliseconds of a decode of n rows."""

FLAT: Cost = lambda n: 30.0 + 0.5 * n  # noqa: E731
MEMORY_BOUND: Cost = lambda n: 28.0 + 4.3 * n  # noqa: E731
LINEAR: Cost = lambda n: 2.0 + 10.0 * n  # noqa: E731


def jagged(n: int) -> float:
    """Steps as measured with Q8_0 weights on two cores: some lengths cost more than longer ones."""
    steps = (24, 48, 70, 88, 100, 96, 92, 82, 110, 115, 112, 108, 130, 135, 140, 138)
    return float(steps[n - 1]) if n <= len(steps) else 138.0 + 8.0 * (n - 16)


@dataclass(frozen=True)
class Position:
    """What the draft says of the id at this place of the text, how likely it is right, and whether it is.

    copy: what a drafter without a model says of it (0: nothing), and is_copy whether that is right.
    """

    belief: float
    p: float
    right: bool
    copy: float = 0.0
    is_copy: bool = False


Script = Callable[[random.Random], list[Position]]
"""Makes a text."""


def text(
    n: int,
    states: Sequence[tuple[float, float]],
    stay: float = 0.9,
    belief: Callable[[float], float] = lambda p: p,
    seed: int = 0,
) -> list[Position]:
    """n positions; the probability of the draft wanders between ranges (low, high), `belief` is what it says
    instead.
    """
    rng = random.Random(seed)
    out, state = [], 0
    for _ in range(n):
        if rng.random() > stay:
            state = rng.randrange(len(states))
        p = rng.uniform(*states[state])
        out.append(Position(min(max(belief(p), 0.0), 1.0), p, rng.random() < p))
    return out


MIXED = ((0.9, 0.999), (0.1, 0.6))
GOOD = ((0.85, 0.999),)
BAD = ((0.0, 0.05),)


@dataclass
class Simulation:
    """One text on one machine under a policy. noise: a factor on every measured time, drawn per decode. read_ms: what
    the draft model takes for each id of a prompt, or that was written while it was left alone; pause_ms: what a call
    takes more that is not in the round behind another. deep: what decodes cost beyond `cost`, behind `depth` positions;
    single: a factor on those of one row, by the share of the text that is written; changes: of single rows after a pass
    of several, the times of one that they take longer; nobody told the policy of these. fails: the places at which
    calls of the draft model fail.
    """

    cost: Cost
    positions: Sequence[Position]
    step_ms: float = 0.3
    call_ms: float = 0.2
    pause_ms: float = 0.0
    read_ms: float = 0.0
    n_max: int = 16
    noise: Callable[[random.Random, float], float] = lambda rng, at: 1.0
    depth: int = 100
    deep: Cost = lambda n: 0.0
    single: Callable[[float], float] = lambda at: 1.0
    changes: Sequence[float] = ()
    fails: Collection[int] = ()
    temperature: float = 0.0
    seed: int = 0
    policy: AutoPolicy = field(init=False)
    ms: float = 0.0
    plain_ms: float = 0.0
    draft_ms: float = 0.0
    at: int = 0
    n_unread: int = 0
    lengths: list[tuple[int, int]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    left: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        curve = CostCurve([CostSample(n, 0, self.cost(n)) for n in range(1, self.n_max + 2)])
        self.policy = AutoPolicy(Machine(curve, {Origin.MODEL: CostCurve([CostSample(1, 0, self.step_ms)])}))
        self.rng = random.Random(self.seed)

    def run(self, n_prompt: int = 100, n_texts: int = 1) -> Simulation:
        """The whole text, as n_texts requests one after the other."""
        part = len(self.positions) // n_texts
        for i in range(n_texts):
            self.run_text((i + 1) * part, n_prompt)
        return self

    def run_text(self, end: int, n_prompt: int = 100) -> None:
        """One request, up to this place."""
        self.policy.begin(0, n_prompt, self.temperature)
        self.n_unread = n_prompt
        while self.at < end:
            self._round(end)
        self.policy.observe(Ended(0))

    def _spend(self, ms: float) -> float:
        """Simulated milliseconds, with the machine's noise."""
        measured = ms * self.noise(self.rng, self.at / len(self.positions))
        self.ms += measured
        return measured

    def _catch_up(self, n_read: int = 0) -> float:
        """Seconds of a call in which the draft model reads what it has not seen, or so many ids of that."""
        n = min(n_read or self.n_unread, self.n_unread)
        paused = bool(self.lengths) and (len(self.asked) < 2 or self.asked[-2] != self.lengths[-1][0])
        ms = self._spend(self.call_ms + self.pause_ms * paused + n * self.read_ms)
        self.n_unread -= n
        self.draft_ms += ms
        return ms / 1e3

    def _round(self, end: int) -> None:
        room = end - self.at - 1
        draft, n_rows = Draft(), 1
        if not self.policy.plan([Wish(0, SpeculativeParams(n_max=self.n_max), room, self.depth)]):
            if self.positions[self.at].copy and self.policy.asks(Origin.SUFFIX):
                self.policy.observe(Drafted(Origin.SUFFIX, [self._copy()], 2e-5))
            for ask in self.policy.asks(Origin.MODEL):
                self._draft(ask.n_max, ask.n_read)
            chosen = self.policy.choose().get(0)
            draft = chosen.draft if chosen else Draft()
            n_rows = chosen.n_rows if chosen else 0
        k = len(draft.ids)
        n_rows = max(n_rows, 1 + k)
        n_accepted = 0
        while n_accepted < k and draft.ids[n_accepted] == self.at + n_accepted:
            n_accepted += 1
        single = self.single(self.at / len(self.positions))
        if n_rows > 1:
            self.left, longer = list(self.changes), 0.0
        else:
            longer = self.cost(1) * self.left.pop(0) if self.left else 0.0
        seconds = self._spend((self.cost(n_rows) + self.deep(n_rows)) * (single if n_rows == 1 else 1.0) + longer) / 1e3
        self.policy.observe(Decoded([(1, n_rows)], self.depth, seconds))
        n = min(n_accepted + 1, end - self.at)
        self.lengths.append((self.at, k))
        self.rows.append(n_rows)
        ids = tuple(range(self.at, self.at + n))
        self.policy.observe(Commit(0, ids, k, n_accepted))
        self.at += n
        self.n_unread += n
        self.plain_ms += (self.cost(1) + self.deep(1)) * single * n

    def _copy(self) -> Draft:
        ahead = itertools.takewhile(lambda position: position.copy, self.positions[self.at : self.at + self.n_max])
        guesses = [(self.at + i if position.is_copy else -1, position.copy) for i, position in enumerate(ahead)]
        return Draft(tuple(id_ for id_, _ in guesses), tuple(p for _, p in guesses), Origin.SUFFIX, kind="suffix")

    def _draft(self, n_max: int, n_read: int = 0) -> None:
        if self.at in self.fails:
            self._spend(self.call_ms)
            return
        if n_max:
            self.asked.append(self.at)
        n_unread = self.n_unread
        seconds = self._catch_up(n_read)
        n_read = n_unread - self.n_unread
        wrote, steps = list[tuple[int, float]](), list[tuple[int, float]]()
        ids, p = [], []
        for i in range(min(n_max, len(self.positions) - self.at)):
            if i and not self.policy.more([0], wrote, steps)[0]:
                wrote, steps = [], []
                break
            steps = []
            if i:
                step = self._spend(self.step_ms) / 1e3
                steps = [(1, step)]
                seconds += step
                self.draft_ms += 1e3 * step
            position = self.positions[self.at + i]
            wrote = [(0, position.belief)]
            ids.append(self.at + i if position.right else -1)
            p.append(position.belief)
        self.policy.more([], wrote, steps)
        self.policy.observe(Drafted(Origin.MODEL, [Draft(tuple(ids), tuple(p), n_read=n_read)], seconds))


def oracle_ms(cost: Cost, positions: Sequence[Position], step_ms: float, call_ms: float, n_max: int) -> float:
    """Time of one who knows every probability beforehand, and drafts exactly the length of the best expected rate in
    each round.
    """
    at, ms = 0, 0.0
    while at < len(positions):
        best = (1 / cost(1), 0)
        gain, product = 1.0, 1.0
        for k in range(1, min(n_max, len(positions) - at - 1) + 1):
            product *= positions[at + k - 1].p
            gain += product
            best = max(best, (gain / (cost(1 + k) + call_ms + (k - 1) * step_ms), k))
        k = best[1]
        n = 0
        while n < k and positions[at + n].right:
            n += 1
        ms += cost(1 + k) + (call_ms + (k - 1) * step_ms if k else 0.0)
        at += n + 1
    return ms
