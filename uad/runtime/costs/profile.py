"""Cost curves of a context, measured: quickly at start, or in full for `uad profile`. Knows neither files nor the
policy that uses them.

One decode is n ids of one sequence after `depth` positions, logits wanted for every row, as in verification; reading
the logits is part of it, since a GPU answers only then. Everything runs on the calling thread, which must be the one
that owns the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from statistics import median, quantiles
from time import perf_counter
from typing import Protocol

from uad.base.common.logits import Outputs
from uad.base.errors import ConfigError
from uad.base.types import Clock, Rows
from uad.engine.policy.cost import CostSample

ShareReport = Callable[[float], None]
"""Called with the share that is done."""

DEPTHS = (0, 512, 2048, 8192)
BUSY = 1.3  # a spread from which on a curve says more about the neighbours than about the model
_TELLING = (1, 8, 4, 16, 2, 3, 6, 12)
_LEAST_SINGLE = 3
_SLOW_SHARE = 1 / 8
_COLD_DECODES, _STILL_COLD = 4, 0.6
_LEAST_ROUNDS, _MOST_ROUNDS, _ROUNDS_SECONDS = 5, 25, 2.0
_BETWEEN = 4
_FILL_SHARE, _FILL_STEP = 0.3, 256
_STRIDE = 7919
_DROP, _DEAR = 1.5, 3.0  # times that a pass of fewer rows, or of single ones in one, never takes by itself
_SETTLING, _CHEAP = 2, 0.02  # single rows that are not counted after others, where they take this share of the time


class Decoder(Protocol):
    """The part of a context that measuring needs; `uad.llama.context.Context` is one."""

    n_ctx: int
    n_batch: int
    n_alike: int
    n_vocab: int

    def decode(self, rows: Sequence[Rows]) -> None: ...
    def rows(self) -> Outputs: ...
    def keep(self, seq: int) -> None:
        """Save the sequence's state, where its memory needs that to take ids back. Raises DecodeError."""

    def take_back(self, seq: int, n: int) -> int: ...
    def clear(self, seq: int) -> None: ...


def quick(
    context: Decoder,
    sizes: Iterable[int],
    seconds: float,
    clock: Clock = perf_counter,
    *,
    seq: int = 0,
    depth: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[CostSample, ...]:
    """Measurements of the given sizes in about `seconds`, the most informative ones first, then all of them again and
    again, at most 25 times each. A burst of other load must not make up half of a small model's
    measurements.

    The first decodes of a context are slow and do not count where there is time for others. One row is measured three
    times, and less often only where it takes half of the time or more; any other decode that is expected to pass the
    end is not begun, and none where it should stop. The sequence holds its first `depth` ids afterwards.
    Returns every measurement.
    """
    wanted = sorted({n for n in sizes if 1 <= n <= min(_most_rows(context), context.n_ctx - depth)} | {1})
    bench = _Bench(context, depth, clock, seq)
    bench.take_back()
    began = clock()
    if _was_cold(bench, 1e3 * seconds):
        began = clock()
    end = began + seconds
    times: dict[int, list[float]] = {1: _single_rows(bench, 1e3 * seconds)}
    several = max(n for n in wanted if n <= _TELLING[1])
    if several > 1 and clock() + 2 * _expected(times, several) / 1e3 < end:
        bench.once(several)
    for n in _order(wanted):
        if stop():
            break
        ms = _expected(times, n)
        settles = n == 1 and ms <= _CHEAP * 1e3 * seconds
        if len(times.get(n, ())) < _MOST_ROUNDS and clock() + (1 + settles * _SETTLING) * ms / 1e3 < end:
            if settles:
                bench.settle()
            times.setdefault(n, []).append(bench.once(n))
    return tuple(CostSample(n, depth, ms) for n in sorted(times) for ms in times[n])


def _was_cold(bench: _Bench, ms: float) -> bool:
    """Decode until the weights are in memory: while a row takes a large part of the time, and the next one much less.
    True if they were not; that time does not count, since the first request would wait for it otherwise.
    """
    last = bench.once(1)
    # weights in a mapped file come from the disk with the first decode: 900 ms, 850 for what it did not reach, then 60.
    # A model that takes 60 every time is not cold, only slow
    for i in range(_COLD_DECODES):
        if last <= ms * _SLOW_SHARE:
            return i > 0
        before, last = last, bench.once(1)
        if last > _STILL_COLD * before:
            return i > 0
    return True


def _single_rows(bench: _Bench, ms: float) -> list[float]:
    """Decodes of one row. Only a second one distinguishes a slow model from a cold or disturbed first decode."""
    ones = [bench.once(1)]
    if ones[0] <= ms:
        ones.append(bench.once(1))
    while min(ones) <= ms / 2 and len(ones) < (_LEAST_SINGLE if min(ones) > ms * _SLOW_SHARE else _LEAST_SINGLE + 1):
        ones.append(bench.once(1))
    return ones if len(ones) == 1 or len(ones) == _LEAST_SINGLE else ones[1:]


def most_singly(context: Decoder, clock: Clock = perf_counter) -> int:
    """How many rows of a sequence cost less one by one than in a pass of two; 1: none. The time that a change of
    the number of rows adds to the single ones after it counts. Sequence 0 is empty afterwards.
    """
    bench = _Bench(context, 0, clock)
    several, after, settled = [], [], []
    for _ in range(_LEAST_ROUNDS):
        several.append(bench.once(2))
        after.append(sum(bench.once(1) for _ in range(_SETTLING)))
        settled.append(bench.once(1))
    context.clear(0)
    ms = median(settled)
    # a pass of two takes its own time, and what the single rows after it take longer than usual. With 1.0 ms a row, 2.9
    # for two, and 2.4 + 2.0 for the next two rows it costs 2.9 + 4.4 - 2.0 = 5.3: as much as five rows one by one
    return max(int((median(several) + median(after) - _SETTLING * ms) / ms), 1)


def full(
    context: Decoder, sizes: Iterable[int], depths: Iterable[int], progress: ShareReport, clock: Clock = perf_counter
) -> tuple[CostSample, ...]:
    """Five samples or more for every size at every depth, taken round by round over all sizes, so that noise is shared;
    more of the smallest. Small models get up to 25 rounds, as many as two seconds hold.

    Raises ConfigError where no size is left or a depth leaves the context no room. Sequence 0 is empty afterwards.
    """
    ns, at = sorted(set(sizes)), sorted(set(depths))
    _check(context, ns, at)
    context.clear(0)
    samples: list[CostSample] = []
    filled = 0
    for i, depth in enumerate(at):
        _fill(context, filled, depth, _part(progress, i, i + _FILL_SHARE, len(at)))
        filled = depth
        bench = _Bench(context, depth, clock)
        # not counted: the first decode of the smallest and the largest shape makes graphs and buffers
        for n in (1, ns[-1]):
            bench.once(n)
        samples += _rounds(bench, ns, clock, _part(progress, i + _FILL_SHARE, i + 1, len(at)))
    context.clear(0)
    progress(1.0)
    return tuple(samples)


def _rounds(bench: _Bench, sizes: Sequence[int], clock: Clock, progress: ShareReport) -> list[CostSample]:
    """All sizes, as often as there is time for; each round begins elsewhere, so that bursts that come at the pace of
    rounds do not always hit the same. The smallest, which all others are compared with, comes between them, too.
    """
    times: dict[int, list[float]] = {n: [] for n in sizes}
    began, rounds, n_rounds = clock(), 0, _LEAST_ROUNDS
    while rounds < n_rounds:
        # five rounds over ten sizes begin with the sizes 0, 2, 4, 6 and 8
        start = rounds * len(sizes) // n_rounds
        for i, n in enumerate((*sizes[start:], *sizes[:start])):
            if n == 1:
                bench.settle()
            times[n].append(bench.once(n))
            if i % _BETWEEN == _BETWEEN - 1:
                if sizes[0] == 1:
                    bench.settle()
                times[sizes[0]].append(bench.once(sizes[0]))
        rounds += 1
        if rounds == 1:
            n_rounds = min(max(int(_ROUNDS_SECONDS / max(clock() - began, 1e-9)), _LEAST_ROUNDS), _MOST_ROUNDS)
        progress(rounds / n_rounds)
    return [CostSample(n, bench.depth, ms) for n in sizes for ms in times[n]]


def _part(progress: ShareReport, start: float, end: float, n: int) -> ShareReport:
    """Reports a share of the part from start to end, of n in all; the whole is never done by that."""
    return lambda share: progress(min((start + share * (end - start)) / n, 0.999))


def medians(samples: Iterable[CostSample]) -> tuple[CostSample, ...]:
    """One sample for every size and depth, ordered by depth and size."""
    return tuple(CostSample(n, depth, median(ms)) for (depth, n), ms in sorted(_grouped(samples).items()))


def spread(samples: Iterable[CostSample]) -> float:
    """How much decodes of one kind differ: the upper by the lower quartile, median over all sizes and depths with three
    samples or more.

    1.0 is a machine at rest; 1.0 also where nothing was measured three times.
    """
    quartiles = [quantiles(ms, n=4, method="inclusive") for ms in _grouped(samples).values() if len(ms) >= 3]
    return median(high / low for low, _, high in quartiles) if quartiles else 1.0


def disturbance(samples: Sequence[CostSample]) -> str:
    """Why these cannot be the times of a machine at rest, in words; "" where they can."""
    if (factor := spread(samples)) > BUSY:
        return f"passes of one size differ by a factor of {factor:.1f}"
    for depth in sorted({sample.depth for sample in samples}):
        ms = {sample.n: sample.ms for sample in medians(samples) if sample.depth == depth}
        for n, more in pairwise(ms):
            if ms[n] > _DROP * ms[more]:
                return f"a pass of {n} tokens took {ms[n] / ms[more]:.1f} times as long as one of {more}"
        for n in ms:
            if 1 in ms and ms[n] > _DEAR * n * ms[1]:
                return f"a pass of {n} tokens took {ms[n] / ms[1]:.0f} times as long as one of a single token"
    return ""


def as_at_rest(samples: Sequence[CostSample]) -> tuple[CostSample, ...]:
    """The likeliest times of the same machine at rest: others only slow it down. So the quickest pass of a size counts,
    and no pass takes longer than one of more rows, or than as many single rows.
    """
    # Passes of 1, 2, 4, 8 rows in 10, 25, 14, 30 ms: that of two was disturbed, as four take no longer than 14. In 10,
    # 31, 33, 34 ms it was, too: single rows take 10, so two take 20 at most
    quickest: dict[tuple[int, int], float] = {}
    least = dict[int, float]()  # of all larger sizes, by depth
    for (depth, n), ms in sorted(_grouped(samples).items(), reverse=True):
        least[depth] = quickest[depth, n] = min(min(ms), least.get(depth, inf))
    return tuple(
        CostSample(n, depth, min(ms, n * quickest.get((depth, 1), inf))) for (depth, n), ms in quickest.items()
    )


def alike(some: Sequence[CostSample], others: Sequence[CostSample]) -> bool:
    """Whether two measurements agree: what looks disturbed, and comes out the same again, is how this machine
    is.
    """
    medians_of, other = ({(s.n, s.depth): s.ms for s in medians(each)} for each in (some, others))
    return medians_of.keys() == other.keys() and all(
        1 / BUSY < medians_of[key] / other[key] < BUSY for key in medians_of
    )


def _grouped(samples: Iterable[CostSample]) -> dict[tuple[int, int], list[float]]:
    groups: dict[tuple[int, int], list[float]] = {}
    for sample in samples:
        groups.setdefault((sample.depth, sample.n), []).append(sample.ms)
    return groups


def fitting_depths(context: Decoder, n_max: int, depths: Sequence[int] = DEPTHS) -> tuple[int, ...]:
    """The depths after which n_max rows fit; always at least depth 0."""
    return tuple(depth for depth in depths if depth + n_max <= context.n_ctx) or (0,)


class _Bench:
    """Timed decodes after a fixed number of positions of a sequence, which are in the cache already."""

    def __init__(self, context: Decoder, depth: int, clock: Clock, seq: int = 0) -> None:
        self._context = context
        self._seq = seq
        self.depth = depth
        self._clock = clock
        self._size = 0  # rows of the last decode

    def settle(self) -> None:
        """Decode single rows until one more costs what it does after others: GPUs record a graph of a new shape."""
        if self._size > 1:
            for _ in range(_SETTLING):
                self.once(1)

    def once(self, n: int) -> float:
        """Milliseconds of one decode of n rows, which is taken back afterwards."""
        context, depth, self._size = self._context, self.depth, n
        rows = [Rows(self._seq, depth, plausible_ids(depth, n, context.n_vocab), n)]
        context.keep(self._seq)
        began = self._clock()
        context.decode(rows)
        context.rows()
        ms = 1e3 * (self._clock() - began)
        self.take_back()
        return ms

    def take_back(self) -> None:
        """Only the positions stay after which passes are timed."""
        if self.depth:
            self._context.take_back(self._seq, self.depth)
        else:
            self._context.clear(self._seq)


def plausible_ids(pos: int, n: int, n_vocab: int) -> tuple[int, ...]:
    """Ids for positions pos to pos + n, spread over the vocabulary: experts and embedding rows differ, as in text."""
    return tuple((_STRIDE * (i + 1) + 13) % n_vocab for i in range(pos, pos + n))


def _order(sizes: Sequence[int]) -> Iterator[int]:
    """The informative sizes, then all others, then all of them again and again."""
    telling = [n for n in _TELLING if n in sizes]
    for _ in range(_MOST_ROUNDS):
        yield from (*telling, *(n for n in sizes if n not in telling))


def _expected(times: dict[int, list[float]], n: int) -> float:
    """Milliseconds of n rows at most: as measured, else in proportion to the next smaller size that was measured."""
    if n in times:
        return median(times[n])
    # in proportion is the most that more rows can cost, so no decode passes the end by surprise
    below = max(size for size in times if size < n)
    return median(times[below]) * n / below


def _most_rows(context: Decoder) -> int:
    """Rows of one sequence that are still one pass over the weights."""
    return min(context.n_ctx, context.n_batch, context.n_alike)


def _check(context: Decoder, sizes: Sequence[int], depths: Sequence[int]) -> None:
    most = _most_rows(context)
    if not sizes or sizes[0] < 1 or sizes[-1] > most:
        raise ConfigError(f"a pass of this context has 1 to {most} rows; choose --n-max up to {most}")
    if not depths or depths[0] < 0 or depths[-1] + sizes[-1] > context.n_ctx:
        raise ConfigError(
            f"--depths: {depths[-1] if depths else 'none'} and {sizes[-1]} rows after it do not fit into a context "
            f"of {context.n_ctx} "
            "tokens; leave it out or raise --ctx-size"
        )


def _fill(context: Decoder, start: int, end: int, progress: ShareReport) -> None:
    """Put ids into positions start to end."""
    step = min(context.n_batch, _FILL_STEP)
    for at in range(start, end, step):
        n = min(step, end - at)
        context.decode([Rows(0, at, plausible_ids(at, n, context.n_vocab), 0)])
        progress((at + n - start) / (end - start))
