"""Two drafters that write, a head and a draft model, on one counted machine: rounds without models."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.simulator import Cost
from uad.base.types import Commit, Draft, Origin, SpeculativeParams
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import Decoded, Drafted, Ended, Wish

GPU_MS = 20.0
LONGEST = 16


def gpu(n: int) -> float:
    """Milliseconds of n rows: as much as one up to eight, then more."""
    return GPU_MS * (1.0 + max(n - 8, 0) / 16)


@dataclass(frozen=True)
class Writer:
    """What a drafter costs, in milliseconds: a call with its first id, each further id, each id of a backlog. fading: a
    factor on what it knows, for each id of a draft behind the first.
    """

    call_ms: float
    step_ms: float
    read_ms: float
    fading: float = 1.0


HEAD = Writer(call_ms=1.2, step_ms=1.0, read_ms=0.02, fading=0.8)
"""A block and the output layer of a target of some thirty blocks; it was trained to foretell one id."""
MODEL = Writer(call_ms=2.2, step_ms=1.8, read_ms=0.1)
"""A tenth of the target."""
WRITERS: Mapping[Origin, Writer] = {Origin.HEAD: HEAD, Origin.MODEL: MODEL}
Text = Sequence[Mapping[Origin, tuple[float, float]]]
"""By position: how likely each writer is right there, which it also says; and a share of all chances, below which it
is.
"""


def mixed(*parts: tuple[int, float, float], seed: int = 0) -> Text:
    """A text of parts: so many ids, and how likely head and model are right on average."""
    rng = random.Random(seed)
    out = []
    for n, head, model in parts:
        for _ in range(n):
            shift, luck = rng.gauss(0.0, 0.15), rng.random()
            means = {Origin.HEAD: head, Origin.MODEL: model}
            out.append({origin: (min(max(mean + shift, 0.01), 0.99), luck) for origin, mean in means.items()})
    return out


class Contest:
    """One text after the other under the automatic policy, with the writers that a server has."""

    def __init__(self, origins: Sequence[Origin], cost: Cost = gpu) -> None:
        curve = CostCurve([CostSample(n, 0, cost(n)) for n in range(1, LONGEST + 2)])
        steps = {origin: CostCurve([CostSample(1, 0, one.step_ms)]) for origin, one in WRITERS.items()}
        self.policy = AutoPolicy(Machine(curve, steps))
        self.origins, self._cost = origins, cost
        self._unread: dict[Origin, int] = {}
        self.ms = self.plain_ms = 0.0
        self.n_calls = dict.fromkeys(origins, 0)

    @property
    def speed(self) -> float:
        """Times the speed of plain decoding."""
        return self.plain_ms / self.ms

    def run(self, text: Text, n_prompt: int = 200, n_texts: int = 1, n_uncounted: int = 0) -> Contest:
        """The text as so many answers, one after the other; the first ones only show what the writers are worth."""
        size = len(text) // n_texts
        for i in range(n_texts):
            self._answer(text[i * size : (i + 1) * size], n_prompt)
            if i == n_uncounted - 1:
                self.ms = self.plain_ms = 0.0
        return self

    def _answer(self, text: Text, n_prompt: int) -> None:
        self.policy.begin(0, n_prompt)
        self._unread = dict.fromkeys(self.origins, n_prompt)
        at = 0
        while at < len(text):
            at += self._round(text, at)
        self.policy.observe(Ended(0))

    def _round(self, text: Text, at: int) -> int:
        draft = Draft()
        if not self.policy.plan([Wish(0, SpeculativeParams(n_max=LONGEST), len(text) - at - 1, 100 + at)]):
            for origin in self.origins:
                for ask in self.policy.asks(origin):
                    self._write(text, at, origin, ask.n_max, ask.n_read)
            chosen = self.policy.choose().get(0)
            draft = chosen.draft if chosen else draft
        k, n = len(draft.ids), 0
        while n < k and draft.ids[n] == at + n:
            n += 1
        self._spend(self._cost(1 + k))
        self.policy.observe(Decoded([(1, 1 + k)], 100 + at, self._cost(1 + k) / 1e3))
        n_ids = min(n + 1, len(text) - at)
        self.policy.observe(Commit(0, tuple(range(at, at + n_ids)), k, n))
        for origin in self.origins:
            self._unread[origin] += n_ids
        self.plain_ms += self._cost(1) * n_ids
        return n_ids

    def _spend(self, ms: float) -> float:
        self.ms += ms
        return ms / 1e3

    def _write(self, text: Text, at: int, origin: Origin, n_max: int, n_read: int) -> None:
        one = WRITERS[origin]
        n = min(self._unread[origin], n_read or self._unread[origin])
        self._unread[origin] -= n
        self.n_calls[origin] += bool(n_max)
        seconds = self._spend(one.call_ms + n * one.read_ms)
        ids, beliefs = list[int](), list[float]()
        wrote, steps = list[tuple[int, float]](), list[tuple[int, float]]()
        for i in range(min(n_max, len(text) - at) if not self._unread[origin] else 0):
            if i and not self.policy.more([0], wrote, steps)[0]:
                wrote, steps = [], []
                break
            steps = []
            if i:
                step = self._spend(one.step_ms)
                steps = [(1, step)]
                seconds += step
            p, luck = text[at + i][origin]
            p *= one.fading**i
            ids.append(at + i if luck < p else -1)
            beliefs.append(p)
            wrote = [(0, p)]
        self.policy.more([], wrote, steps)
        self.policy.observe(Drafted(origin, [Draft(tuple(ids), tuple(beliefs), origin, n_read=n)], seconds))
