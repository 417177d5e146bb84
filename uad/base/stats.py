"""Counts of requests: ids, drafts by drafter, times. Values that are added up; no clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import zip_longest

from uad.base.common.sums import Sums
from uad.base.types import Crossing, Draft, Origin


@dataclass(frozen=True, slots=True)
class Usage(Sums):
    """Token counts of one finished request; n_thought of the predicted ids are thoughts."""

    n_prompt: int
    n_cached: int
    n_predicted: int
    n_thought: int = 0


def _by_length(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip_longest(a, b, fillvalue=0))


@dataclass(frozen=True, slots=True)
class DrafterStats(Sums):
    """Counts of one drafter, as llama-server counts them: calls per sequence, drafts submitted, their ids, time.

    Of a single request calls and time are not known (drafters draft for all sequences together): 0. n_failures:
    exceptions, each of which turned it off for a while; is_off: whether it is off now.
    """

    origin: Origin
    n_calls: int = 0
    n_drafts: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    ms: float = 0.0
    n_failures: int = 0
    is_off: bool = False
    accepted: tuple[int, ...] = field(default=(), metadata={"add": _by_length})

    def called(self, n_calls: int, seconds: float) -> DrafterStats:
        """The same with n_calls more calls, which took `seconds` together."""
        return replace(self, n_calls=self.n_calls + n_calls, ms=self.ms + 1e3 * seconds)

    def judged(self, n_drafted: int, n_accepted: int) -> DrafterStats:
        """The same with one more draft that was submitted, and how many of its ids were accepted."""
        return replace(
            self,
            n_drafts=self.n_drafts + 1,
            n_drafted=self.n_drafted + n_drafted,
            n_accepted=self.n_accepted + n_accepted,
        )


@dataclass(slots=True)
class DraftStats(Sums):
    """Counts of drafting in one request so far, in target ids; `draft_ms` is the time in the drafters, `crossing` that
    of translation.

    `by` has one entry for each drafter that submitted something, and for the prediction of a request that has one.
    n_aided ids were written in rounds whose drafts are not the draft model's alone, which took aided_ms. Only the owner
    of the request changes it.
    """

    n_rounds: int = 0
    n_drafts: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_healed: int = 0
    n_salvaged: int = 0
    draft_ms: float = 0.0
    crossing: Crossing = field(default_factory=Crossing)
    by: dict[Origin, DrafterStats] = field(default_factory=dict)
    n_aided: int = 0
    aided_ms: float = 0.0

    def count(self, draft: Draft, n_accepted: int, n_rounds: int = 1, n_written: int = 0, ms: float = 0.0) -> None:
        """One more round with this draft, or some without any (no ids), that wrote n_written ids in so much time."""
        self.n_rounds += n_rounds
        if draft.ids and (draft.origin is not Origin.MODEL or draft.n_tail):
            self.n_aided += n_written
            self.aided_ms += ms
        if draft.ids:
            self.n_drafts += 1
            self.n_drafted += len(draft.ids)
            self.n_accepted += n_accepted
            self.n_healed += draft.healed
            self.n_salvaged += draft.n_salvaged
            own = self.by.get(draft.origin) or DrafterStats(draft.origin)
            self.by[draft.origin] = own.judged(len(draft.ids), n_accepted)

    @property
    def translate_us(self) -> float:
        """Microseconds of mirror and translation per round."""
        return self.crossing.us / self.n_rounds if self.n_rounds else 0.0

    @property
    def n_rejected(self) -> int:
        """Drafted ids that were not accepted."""
        return self.n_drafted - self.n_accepted

    @property
    def accept_rate(self) -> float:
        """Accepted ids as a share of drafted ones, 0 to 1; 0 where there were none."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0

    @property
    def mean_accepted_run(self) -> float:
        """Accepted ids per draft; 0 where there were none."""
        return self.n_accepted / self.n_drafts if self.n_drafts else 0.0


@dataclass(frozen=True, slots=True)
class Timings(Sums):
    """Wall-clock times of one request. The first id comes out of the prompt's decode, so rates count n - 1."""

    prompt_ms: float
    predicted_ms: float
    n_prompt: int
    n_cached: int
    n_predicted: int
    draft: DraftStats = field(default_factory=DraftStats)

    @property
    def prompt_per_second(self) -> float:
        """Ids of the prompt read per second; 0 where no time was taken."""
        return 1e3 * self.n_prompt / self.prompt_ms if self.prompt_ms > 0 else 0.0

    @property
    def predicted_per_second(self) -> float:
        """Ids written per second after the first; 0 where no time was taken."""
        n = max(self.n_predicted - 1, 0)
        return 1e3 * n / self.predicted_ms if self.predicted_ms > 0 else 0.0
