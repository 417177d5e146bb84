"""The cost of getting from one vocabulary to another in one round, by length of context. Simulated commits, real code;
runs no model.
"""

from __future__ import annotations

import cProfile
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from ideal import N_DRAFT, Side

from uad.drafts.model.mirror import Mirror
from uad.text.vocab.encode import Encoder
from uad.text.vocab.translate import Translator

_AHEAD = 80
_N_TAIL = 48
_MOST_PER_ROUND = _AHEAD + 32  # bytes: guesses, and the target's own token
_NAIVE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians in microseconds per round.

    us: a text read for the first time, after a context of the same kind. warm_us: the same rounds again. cold_us: every
    cache emptied before every round. naive_us: everything re-encoded in every round.
    """

    n_ctx: int
    us: float
    warm_us: float
    cold_us: float
    naive_us: float


def measure(target: Encoder, draft: Encoder, seen: bytes, text: bytes, n_ctx: int, n_rounds: int) -> Cost:
    """Rounds that write text, after n_ctx draft tokens of `seen` (repeated)."""
    target.forget()
    draft.forget()
    context = context_of(draft, seen, n_ctx)
    target.encode(context)  # as the prompt was, by the encoder that translates
    translator = Translator(target, draft)
    text = _long_enough(text, n_rounds)
    first = Rounds(translator, target, draft, context, text)
    us = first.median_us(n_rounds)
    warm_us = Rounds(translator, target, draft, context, text).median_us(n_rounds)
    cold_us = Rounds(translator, target, draft, context, text, is_cold=True).median_us(n_rounds)
    return Cost(n_ctx, us, warm_us, cold_us, _naive(target, draft, context, text))


def calls(target: Encoder, draft: Encoder, seen: bytes, text: bytes, n_ctx: int, n_rounds: int) -> float:
    """Calls of functions per round, in rounds that write text for the first time."""
    for encoder in (target.prepare(), draft.prepare()):
        encoder.forget()
    text = _long_enough(text, n_rounds + 3)
    rounds = Rounds(Translator(target, draft), target, draft, context_of(draft, seen, n_ctx), text)
    rounds.median_us(3)
    profiler = cProfile.Profile()
    profiler.runcall(rounds.median_us, n_rounds)
    return sum(entry.callcount for entry in profiler.getstats()) / n_rounds


def context_of(draft: Encoder, seen: bytes, n_ctx: int) -> bytes:
    """The end of seen, seen, …, of which the draft makes about n_ctx tokens."""
    side = Side.of(draft, seen)
    times, rest = divmod(n_ctx, len(side.ids))
    return seen[side.ends[-rest - 1] if rest else len(seen) :] + seen * times


def _long_enough(text: bytes, n_rounds: int) -> bytes:
    """text, or text twice and so on: n_rounds rounds can go on in it, though each is right as far as it can be."""
    return text * -(-(n_rounds + 1) * _MOST_PER_ROUND // (2 * len(text)))


def _naive(target: Encoder, draft: Encoder, context: bytes, text: bytes) -> float:
    """Re-encode everything for the draft, and the draft's bytes alone for the target."""
    data = text[:_AHEAD]
    times: list[float] = []
    while len(times) < 3 or (sum(times) < _NAIVE_SECONDS and len(times) < 50):
        began = perf_counter()
        draft.vocab.tokenize(context)
        target.vocab.tokenize(data)
        times.append(perf_counter() - began)
    return 1e6 * median(times)


class Rounds:
    """A sequence that goes on after the context; half of the drafts go wrong somewhere."""

    def __init__(
        self,
        translator: Translator,
        target: Encoder,
        draft: Encoder,
        context: bytes,
        text: bytes,
        *,
        is_cold: bool = False,
    ) -> None:
        self._translator, self._target, self._draft, self._is_cold = translator, target, draft, is_cold
        self._rng = random.Random(0)
        self._start = target.boundaries.last(context, len(context) - 1)
        begun = context[self._start :]
        self._stream = begun + text * 2
        # with a memory of its own: what is measured must not know the text
        self._side = Side.of(Encoder(target.vocab), self._stream)
        self._n = max(bisect_right(self._side.ends, len(begun)), 1)
        self._teacher = Encoder(draft.vocab).prepare()
        self._mirror = Mirror(draft)
        self._mirror.extend([context[: self._start] + self._stream[: self._side.ends[self._n - 1]]])
        self._mirror.sync()

    def median_us(self, n_rounds: int) -> float:
        """Median time of the mirror and the translation in a round, without what a model would do."""
        return 1e6 * median(self._round() for _ in range(n_rounds))

    def _round(self) -> float:
        mirror, side = self._mirror, self._side
        mirror.n_kv = len(mirror.ids)
        self._guess()
        tail = side.ids[max(self._n - _N_TAIL, 0) : self._n]
        if self._is_cold:
            self._target.forget()
            self._draft.forget()
            self._translator.forget()
        began = perf_counter()
        translation = self._translator.translate(tail, mirror.ahead(mirror.edge))
        between = perf_counter()
        new = self._verify(translation.ids)
        data = self._target.vocab.join(new)
        resumed = perf_counter()
        mirror.extend([data])
        mirror.sync()
        return perf_counter() - resumed + between - began

    def _guess(self) -> None:
        mirror = self._mirror
        at = mirror.edge - self._start
        guesses = self._teacher.encode(self._stream[at : at + _AHEAD])[:N_DRAFT]
        if self._rng.random() < 0.5:
            guesses[self._rng.randrange(len(guesses))] = guesses[0]
        for id_ in guesses:
            mirror.guess(id_, 0.9)

    def _verify(self, ids: Sequence[int]) -> list[int]:
        """The ids that the target commits: those that agree, and its own next one."""
        n = 0
        while n < len(ids) and ids[n] == self._side.ids[self._n + n]:
            n += 1
        new = self._side.ids[self._n : self._n + n + 1]
        self._n += len(new)
        return new
