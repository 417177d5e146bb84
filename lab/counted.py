"""Time that is counted, not measured: decodes take what stored cost curves say, texts and drafts are the real ones.

So a small target stands for a large one, or this machine for another, and every run gives the same numbers. Wraps
contexts and drafters; knows no policy and no text. What is not counted takes no time at all: sampling, the loop, the
server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment import Experiment

from uad.base.config import ModelConfig
from uad.base.errors import ConfigError
from uad.base.types import GREEDY, Ask, Commit, Draft, Origin, Rows, SamplingParams
from uad.drafts.model.head import Head
from uad.engine.decode.drafting import NO_MATCHERS, Drafting
from uad.engine.decode.layout import sizes_of_passes
from uad.engine.decode.target import Target
from uad.engine.drafter import Drafter, Pace
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.protocol import Policy
from uad.llama.head import HeadContext
from uad.llama.model import Model
from uad.runtime.costs import profile_store
from uad.text.grammar.protocol import Matcher

_CALL_MS = {Origin.MODEL: 0.7}
_LOOKUP_MS = 0.03
"""What a call of a drafter takes beside the draft model's decodes, as measured for many: book-keeping, translation,
reading logits.
"""


@dataclass(frozen=True, slots=True)
class Costs:
    """The curves to count with: one pass of n rows after so many positions, of the target and of the draft model."""

    target: tuple[CostSample, ...]
    draft: tuple[CostSample, ...] = ()

    @classmethod
    def read(cls, target: Path, draft: Path | None = None) -> Costs:
        """From files that `uad profile` wrote. Raises ConfigError."""
        return cls(profile_store.read(target), profile_store.read(draft) if draft is not None else ())


class CountedClock:
    """Seconds that were spent so far."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self) -> float:
        return self._seconds

    def spend(self, ms: float) -> None:
        self._seconds += ms / 1e3


class Counting(Experiment):
    """A runtime in which time is what these costs say."""

    def __init__(self, costs: Costs) -> None:
        self.counted = CountedClock()
        super().__init__(self.counted)
        self.costs = costs

    def twin(self) -> Counting:
        return Counting(self.costs)

    def target(self, context: Target) -> Target:
        return CountedContext(context, self.costs.target, self.counted)

    def draft(self, context: Target) -> Target:
        """Raises ConfigError where the draft model's costs are not known."""
        if not self.costs.draft:
            raise ConfigError(
                "--costs has no curve of the draft model: give its file behind a comma (`uad profile TARGET DRAFT` "
                "writes both)"
            )
        return CountedContext(context, self.costs.draft, self.counted)

    def head(self, context: HeadContext) -> Head:
        """Raises ConfigError: what a head costs is in no stored curve."""
        raise ConfigError("--costs counts no time of heads; leave draft-mtp out of --spec-type")

    def curve(
        self, context: Target, config: ModelConfig, role: str, sizes: Sequence[int], seconds: float
    ) -> tuple[tuple[CostSample, ...], bool]:
        return (self.costs.target if role == "target" else self.costs.draft), True

    def drafting(
        self,
        drafters: Sequence[Drafter],
        policies: Callable[[], Policy],
        model: Model,
        matchers: Mapping[int, Matcher] = NO_MATCHERS,
    ) -> Drafting:
        return super().drafting([self.drafter(one) for one in drafters], policies, model, matchers)

    def drafter(self, drafter: Drafter) -> Drafter:
        return CountedDrafter(drafter, self.counted)


class CountedContext:
    """A context whose decodes spend what a curve says, pass by pass."""

    def __init__(self, context: Target, costs: Sequence[CostSample], clock: CountedClock) -> None:
        self._decode = context.decode
        self._curve = CostCurve(costs)
        self._clock = clock
        self.n_seq, self.n_ctx, self.n_batch, self.n_ubatch = (
            context.n_seq,
            context.n_ctx,
            context.n_batch,
            context.n_ubatch,
        )
        self.n_alike, self.interrupt = context.n_alike, context.interrupt
        self.computes_later = False  # all time is spent in `decode`
        self.vocab, self.can_take_back, self.can_stop = context.vocab, context.can_take_back, context.can_stop
        self.n_free, self.keep_ms, self.tail = context.n_free, context.keep_ms, context.tail
        self.logits, self.clear, self.mark, self.prepare = context.logits, context.clear, context.mark, context.prepare
        self.rows, self.want_likeliest = context.rows, context.want_likeliest
        self.reach, self.take_back, self.see = context.reach, context.take_back, context.see

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        """Raises what the context does."""
        self._decode(rows, may_stop)
        n_ids = sum(len(row.ids) for row in rows)  # by ids: one that reads its prompt is not as deep as one that writes
        depth = sum(row.pos * len(row.ids) for row in rows) // max(n_ids, 1)
        for n_seq, n in sizes_of_passes({row.seq: len(row.ids) for row in rows}, self.n_ubatch):
            self._clock.spend(self._curve.ms(n_seq * n, depth))


class CountedDrafter:
    """A drafter whose every call spends a fixed time."""

    def __init__(self, drafter: Drafter, clock: CountedClock) -> None:
        self._drafter = drafter
        self._clock = clock
        self._ms = _CALL_MS.get(drafter.origin, _LOOKUP_MS)

    @property
    def origin(self) -> Origin:
        return self._drafter.origin

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        self._drafter.begin(seq, prompt, sampling)

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        self._clock.spend(self._ms)
        return self._drafter.propose(asks, pace)

    def observe(self, commit: Commit) -> None:
        self._drafter.observe(commit)

    def end(self, seq: int) -> None:
        self._drafter.end(seq)

    def reset(self) -> None:
        self._drafter.reset()
