"""Scripted parts for loop tests: two small vocabularies that cut text differently, and models that know a text by
heart.

A scripted model's logits are a pure function of its KV's ids, and it checks on every decode that the loop kept the KV
right.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from kit.chain import NumpyChain
from kit.greedy import greedy
from uad.base.errors import AbortedError
from uad.base.events import Delta, Done, Event, Failed, Progress
from uad.base.types import (
    GREEDY,
    READ_AGAIN,
    Ask,
    Clock,
    Commit,
    Draft,
    Origin,
    PlacedImage,
    Request,
    Rows,
    SamplingParams,
)
from uad.drafts.lookup.lookup_drafter import GrammarDrafter
from uad.engine.decode.drafting import Drafting
from uad.engine.decode.engine import Engine
from uad.engine.decode.layout import Least, sizes_of_passes
from uad.engine.decode.prompt_cache import PromptCache
from uad.engine.decode.sequence import ends_of
from uad.engine.drafter import Drafter, Pace
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.protocol import Policy
from uad.engine.sampling.dry import breakers_of
from uad.engine.sampling.noise import token_keys
from uad.engine.sampling.sampler import Sampler
from uad.engine.sampling.stages import Stage
from uad.text.grammar.grammars import Grammars
from uad.text.grammar.protocol import Matcher
from uad.text.vocab.table import VocabTable

SCRIPT = (
    "The quick brown fox jumps over the lazy dog; then it rests.\n    def speak(self):\n        return 'naïve café — "
    "東京'\n\n\n"
    "count = 1234567 + 89  # 😀 done\tnow. And the quick cat was quicker than the thing that thought.\n"
).encode()

COARSE = (
    "The quick| quick| brown| fox| jump| jumps| over| the| lazy| dog|; then| it| rest|s.|\n    |\n        |def| "
    "speak|self|return"
)
FINE = (
    "Th|e q|qu|ick| bro|wn| f|ox|ju|mps| ov|er| th|e |la|zy| do|g;|th|en|res|ts|\n  |  |    |de|f "
    "|spe|ak|sel|f)|ret|urn|naï|caf|é|count"
)
ALL = (
    "coun|t =| =| 12|345|67|89| +|  #| done|\t|now|. A|nd| cat| was| quick|er| than| thing| that| though|t.|東|京|😀| —"
)


def toy_vocab(name: str, words: str, specials: tuple[str, ...], eog: tuple[str, ...]) -> VocabTable:
    """All bytes, the words (separated by |) and specials; tokenized by the longest match from the left."""
    pieces = [bytes([i]) for i in range(256)] + [
        w.encode() for w in dict.fromkeys(words.split("|")) if len(w.encode()) > 1
    ]
    named = {text: len(pieces) + i for i, text in enumerate(specials)}
    return VocabTable(
        name=name,
        pieces=(*pieces, *(b"" for _ in specials)),
        specials=named,
        tokenize=greedy(pieces),
        eos=named[eog[0]],
        eot=named[eog[0]],
        eog=frozenset(named[e] for e in eog),
    )


TARGET_VOCAB = toy_vocab("coarse", COARSE + "|" + ALL, ("<|im_start|>", "<|im_end|>"), ("<|im_end|>",))
DRAFT_VOCAB = toy_vocab("fine", FINE + "|" + ALL[:60], ("<turn>", "<end>"), ("<end>",))

TARGET_END, DRAFT_END = TARGET_VOCAB.specials["<|im_end|>"], DRAFT_VOCAB.specials["<end>"]


NOISE = np.random.default_rng(0).standard_normal((2048, 400)).astype(np.float32)


class ScriptedModel:
    """A context that writes SCRIPT from the offset that its KV has reached, with noise; both vocabularies share the
    text, not the cuts.

    `sharpness` is the advantage of the script's token over noise of width 1. `length` bytes after which the end of turn
    is likely. n_free: ids that can be taken back, once after a decode that had more rows than that; more only to where
    a decode with ids that are not sure began, or to a mark, as with recurrent models. tail: with marks where it is not
    0.
    """

    can_take_back, can_stop, n_free, keep_ms, tail = True, True, 1 << 30, 0.0, 0

    def __init__(
        self,
        vocab: VocabTable,
        n_seq: int = 1,
        n_ctx: int = 512,
        n_batch: int = 256,
        sharpness: float = 6.0,
        length: int = 10**9,
    ):
        self.vocab, self.n_seq, self.n_ctx, self.n_batch, self.n_ubatch = vocab, n_seq, n_ctx, n_batch, 64
        self.n_alike = self.n_ubatch
        self.computes_later = False
        self.is_interrupted = False
        self.sharpness, self.length = sharpness, length
        self.kv: list[list[int]] = [[] for _ in range(n_seq)]
        self.points: list[set[int]] = [set() for _ in range(n_seq)]
        self.marks: list[set[int]] = [set() for _ in range(n_seq)]
        self.n_last = [0] * n_seq
        self.wanted = [0] * n_seq
        self.n_decodes, self.rows_per_pass = 0, 4
        self.seen: list[tuple[int, int]] = []  # where an image begins, and how many of its rows were read then
        self.batches: list[dict[int, int]] = []
        self._out: list[np.ndarray] = []
        self._next = _pieces_of_script(vocab.pieces)
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def interrupt(self, wanted: bool = True) -> None:
        self.is_interrupted = wanted

    def prepare(self, rows: Sequence[Rows]) -> list[Rows]:
        return [self._prepared(row) if row.n_unsure > min(self.n_free, len(row.ids) - 1) else row for row in rows]

    def _prepared(self, row: Rows) -> Rows:
        n_sure = len(row.ids) - max(row.n_unsure, row.n_logits)
        if n_sure > READ_AGAIN:
            self.decode([Rows(row.seq, row.pos, row.ids[:n_sure], 0)])
            row = Rows(row.seq, row.pos + n_sure, row.ids[n_sure:], row.n_logits, row.n_unsure)
        self.points[row.seq] = {len(self.kv[row.seq])}
        return row

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        if may_stop and self.is_interrupted:
            for row in rows:  # passes that were done stay in the KV
                self.kv[row.seq] += row.ids[: len(row.ids) // 2]
                self.n_last[row.seq] = len(row.ids) // 2
            raise AbortedError("interrupted")
        self.n_decodes += 1
        assert 0 < sum(len(row.ids) for row in rows) <= self.n_batch
        self._out = []
        counts: dict[int, int] = {}
        for row in rows:
            kv = self.kv[row.seq]
            self.n_last[row.seq] = len(row.ids)
            assert row.pos == len(kv), f"sequence {row.seq}: rows at {row.pos}, KV has {len(kv)}"
            assert len(kv) + len(row.ids) <= self.n_ctx, "KV overflow"
            counts[row.seq] = counts.get(row.seq, 0) + len(row.ids)
            for i, id_ in enumerate(row.ids):
                kv.append(id_)
                if len(row.ids) - i <= row.n_logits:
                    self._out.append(self._logits(kv))
        self.batches.append(counts)

    def _logits(self, kv: list[int]) -> np.ndarray:
        key = tuple(kv)
        if key not in self._known:
            self._known[key] = self._compute(kv)
        return self._known[key]

    def _compute(self, kv: list[int]) -> np.ndarray:
        vocab = self.vocab
        row: np.ndarray = NOISE[zlib.crc32(repr((kv[-4:], len(kv))).encode()) % len(NOISE)][: vocab.n_vocab].copy()
        offset = len(vocab.join(kv))
        row[self._next[offset % len(SCRIPT)]] += self.sharpness
        for special in vocab.specials.values():
            row[special] -= 20
        if offset >= self.length:
            row[vocab.eos] += 30
        return row

    def see(self, seq: int, placed: PlacedImage, n_done: int) -> int:
        """A pass of rows. What is held of an image is a byte for its first position, and for all of them at its end."""
        kv = self.kv[seq]
        assert len(kv) == placed.start + bool(n_done)
        n = min(n_done + self.rows_per_pass, placed.n_rows)
        self.seen.append((placed.start, n))
        del kv[placed.start :]
        kv += [0] * (placed.end - placed.start if n == placed.n_rows else 1)
        return n

    def logits(self) -> np.ndarray:
        return np.stack(self._out)

    def want_likeliest(self, seq: int, n: int) -> None:
        self.wanted[seq] = n

    def rows(self) -> np.ndarray:
        return self.logits()

    def reach(self, seq: int, n: int) -> int:
        end = len(self.kv[seq])
        if n >= end or self.n_free >= 1 << 30 or end - n <= min(self.n_free, self.n_last[seq] - 1):
            return min(n, end)
        return max((pos for pos in self.points[seq] | self.marks[seq] if pos <= n), default=0)

    def take_back(self, seq: int, n: int) -> int:
        n = self.reach(seq, n)
        del self.kv[seq][n:]
        self.n_last[seq] = 0
        self.points[seq] = {pos for pos in self.points[seq] if pos <= n}
        self.marks[seq] = {pos for pos in self.marks[seq] if pos <= n}
        return n

    def mark(self, seq: int, is_last: bool) -> None:
        self.marks[seq].add(len(self.kv[seq]))

    def clear(self, seq: int) -> None:
        self.kv[seq].clear()
        self.points[seq].clear()
        self.marks[seq].clear()


@cache
def _pieces_of_script(pieces: tuple[bytes, ...]) -> list[int]:
    """The id of the longest piece at each offset of SCRIPT."""
    tokenize, again = greedy(pieces), SCRIPT * 2
    return [tokenize(again[at : at + 40])[0] for at in range(len(SCRIPT))]


class SimulatedClock:
    """Seconds that timed models spent."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class TimedModel(ScriptedModel):
    """A scripted model whose decodes take time: seconds(rows, depth) for each pass over the weights, of that many rows
    behind `depth`.
    """

    def __init__(
        self, vocab: VocabTable, clock: SimulatedClock, seconds: Callable[[int, int], float], **options: Any
    ) -> None:
        super().__init__(vocab, **options)
        self._clock, self._seconds = clock, seconds
        self.arrival: Callable[[], float] = lambda: math.inf  # when somebody comes next
        self.arrived: Callable[[], object] = lambda: None

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        depth = max(row.pos for row in rows)
        passes = sizes_of_passes({row.seq: len(row.ids) for row in rows}, self.n_ubatch)
        seconds = sum(self._seconds(n_seq * n, depth) for n_seq, n in passes)
        if may_stop and 0 < (wait := self.arrival() - self._clock.seconds) < seconds:
            self._clock.seconds += wait
            seconds -= wait
            self.arrived()
        super().decode(rows, may_stop)
        self._clock.seconds += seconds


class ToyStream:
    """Text passes, the end of turn is mapped, other specials are left out: the least that a drafter needs of rules."""

    pending = b""

    def feed(self, ids: Sequence[int]) -> list[bytes | int]:
        return [
            DRAFT_END if i == TARGET_VOCAB.eos else TARGET_VOCAB.pieces[i]
            for i in ids
            if i != TARGET_VOCAB.specials["<|im_start|>"]
        ]


class ToyRules:
    def stream(self) -> ToyStream:
        return ToyStream()

    def back(self, special: int) -> tuple[int, ...]:
        return (TARGET_END,) if special == DRAFT_END else ()


class RandomDrafter:
    origin = Origin.MODEL

    """Proposes anything at all, now and then the truth (what an ideal drafter would say), of every length it may."""

    def __init__(self, truth: dict[int, list[int]] | None = None, seed: int = 0) -> None:
        self.truth, self.rng = truth or {}, random.Random(seed)
        self.at: dict[int, int] = {}

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        self.at[seq] = 0

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        n = self.rng.randint(0, ask.n_max)
        right = self.truth.get(ask.seq, [])[self.at[ask.seq] : self.at[ask.seq] + self.rng.randint(0, n)]
        ids = right + [self.rng.randrange(TARGET_VOCAB.n_vocab) for _ in range(n - len(right))]
        return Draft(tuple(ids), (0.5,) * len(ids))

    def observe(self, commit: Commit) -> None:
        self.at[commit.seq] += len(commit.ids)

    def end(self, seq: int) -> None:
        del self.at[seq]

    def reset(self) -> None:
        self.at.clear()


KEYS = token_keys(TARGET_VOCAB.pieces)


def make_engine(
    target: ScriptedModel,
    drafter: Drafter | None = None,
    least: Least | None = None,
    policy: Policy | None = None,
    clock: Clock = perf_counter,
    policies: Callable[[], Policy] = AutoPolicy,
    grammars: Grammars | None = None,
    cache: PromptCache[Any] | None = None,
) -> Engine:
    """policy: one that stays; policies: makes one, and another after a failure. With grammars, what they force is
    drafted first.
    """
    matchers: dict[int, Matcher] = {}
    keys = KEYS if target.vocab is TARGET_VOCAB else token_keys(target.vocab.pieces)

    breakers = breakers_of(target.vocab.pieces, target.vocab.tokenize)

    def sampler(request: Request, seed: int) -> Sampler:
        def chain(stages: Sequence[Stage]) -> NumpyChain:
            return NumpyChain(target.vocab.n_vocab, stages)

        ends = ends_of(request, target.vocab)
        matcher = grammars.matcher_of(request) if grammars is not None else None
        return Sampler(
            request.sampling,
            seed,
            ends.never,
            target.n_ctx,
            chain,
            keys,
            request.prompt,
            ends.late,
            request.min_tokens,
            matcher,
            breakers,
        )

    makes = policies if policy is None else lambda: policy
    every = [] if drafter is None else [drafter] if grammars is None else [GrammarDrafter(matchers), drafter]
    drafting = Drafting(every, makes, target.vocab.n_vocab, target.vocab.eog, clock, matchers) if every else None
    return Engine(target, drafting, sampler, lambda: 1, least=least, clock=clock, matchers=matchers, cache=cache)


class Collector:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.text = ""
        self.deltas: list[Delta] = []
        self.progress: list[Progress] = []
        self.end: Event | None = None

    def __call__(self, event: Event) -> None:
        assert self.end is None, "an event after the last one"
        if isinstance(event, Delta):
            self.deltas.append(event)
            self.ids += event.ids
            self.text += event.text
        elif isinstance(event, Progress):
            self.progress.append(event)
        else:
            self.end = event
            if isinstance(event, Done):
                self.text += event.text

    @property
    def done(self) -> Done:
        assert isinstance(self.end, Done), self.end
        return self.end

    @property
    def failed(self) -> Failed:
        assert isinstance(self.end, Failed), self.end
        return self.end


def run(engine: Engine, requests: Sequence[Request], max_rounds: int = 5000, may_fail: bool = False) -> list[Collector]:
    """All requests at once, to the end. A drafter or a policy that fails, for which answers go on, fails the test
    unless it may.
    """
    sinks = [Collector() for _ in requests]
    for number, (request, sink) in enumerate(zip(requests, sinks, strict=True), 1):
        engine.requests.check(request)
        engine.submit(number, request, sink)
    for _ in range(max_rounds):
        if engine.is_idle:
            assert may_fail or not failures(engine)
            return sinks
        engine.step()
    raise AssertionError("the loop does not come to an end")


def failures(engine: Engine) -> int:
    """Of all drafters and the policy."""
    return sum(one.n_failures for one in engine.drafters()) + engine.totals().n_policy_failures
