"""Whether a target computes the same bits whatever shape its passes have: rows of every width, slots beside each other,
prompts read at once and in pieces. Compares logits; draws and drafts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from uad.base.common.logits import Logits
from uad.base.types import READ_AGAIN, Rows
from uad.engine.decode.engine import n_at_once
from uad.engine.decode.layout import Least, padding
from uad.llama.context import Context

IdSequence = Sequence[int]
Until = Callable[[], bool]
"""Whether it is time to stop."""
_APART_IDS = 37  # ids between where the text of one sequence begins and that of the next one
_GRAIN, _SMALL = 64, 24  # ids of pieces of a prompt: as many as the kernel for prompts wants, and fewer
_AFTER_IDS = 8  # ids after a prompt that are decoded one by one: they show what the cache holds of it


class Passes:
    """Decodes given texts in passes that are laid out and padded as the engine's, in a context that nothing else uses.
    least: see `layout.padding`.
    """

    def __init__(self, context: Context, least: Least) -> None:
        self.context, self.least = context, least
        self._held = dict.fromkeys(range(context.n_seq), 0)
        self._begun: dict[int, tuple[IdSequence, int]] = {}

    def clear(self) -> None:
        """Forget all texts."""
        for seq in self._held:
            self.context.clear(seq)
        self._held = dict.fromkeys(self._held, 0)
        self._begun.clear()

    def begin(self, texts: Sequence[IdSequence], depth: int) -> None:
        """Sequence i holds the first `depth` ids of text i: what it held of the same text is kept, as far as its memory
        can go back there.
        """
        for seq, text in enumerate(texts):
            if depth and self._begun.get(seq) == (text, depth) and self.context.reach(seq, depth) == depth:
                self._held[seq] = self.context.take_back(seq, depth)
                continue
            self.context.clear(seq)
            self._held[seq] = 0
            if depth:
                self.read(seq, text, depth)
                self.context.keep(seq)
            self._begun[seq] = text, depth

    def reset(self, seq: int, n: int) -> None:
        """The sequence keeps n of its ids at most: as many as its memory can go back to."""
        self._held[seq] = self.context.take_back(seq, n)

    def read(self, seq: int, text: IdSequence, end: int, piece: int = 0) -> Logits:
        """Read a prompt up to `end`, `piece` ids at a time (0: as many as a batch holds); the last row's logits, [1,
        n_vocab]. The last piece also takes a rest shorter than a piece, where a batch holds both.
        """
        context = self.context
        most = context.n_batch - (self.least.rows - 1)
        size = min(piece, most) if piece else most
        logits: Logits = np.empty((0, context.n_vocab), np.float32)
        at = self._held[seq]  # what is held may go back before it, where dummy rows were taken back
        while (left := end - at) > 0:
            n = left if left < 2 * size and left <= most else size
            if n < left and context.n_free < self.least.rows:
                n = n_at_once(n, context.n_ubatch, self.least.rows) or n
            n -= 1 if left - n == 1 and n > 2 else 0
            at += n
            logits = self._together({seq: text}, at, int(at == end))[seq]
        return logits

    def rows(self, texts: Sequence[IdSequence], depth: int, n: int, width: int) -> list[Logits]:
        """Logits after `depth` ids of each text, [n - n % width, n_vocab], in passes of `width` rows of each."""
        self.begin(texts, depth)
        by_seq = dict(enumerate(texts))
        passes = [self.advance(by_seq, at + width, width) for at in range(depth, depth + n - width + 1, width)]
        return [np.concatenate([logits[seq] for logits in passes]) for seq in by_seq]

    def advance(self, texts: Mapping[int, IdSequence], end: int, n_logits: int) -> dict[int, Logits]:
        """Decode these texts up to `end`: a copy of the logits of the last ids of each, [n_logits, n_vocab]."""
        out: dict[int, Logits] = {}
        most = self.least.most_sequences(self.context.n_ubatch)
        seqs = sorted(texts)
        for seq in seqs:  # as rows that write
            self._catch_up(seq, texts[seq], end - n_logits)
        for at in range(0, len(seqs), most):
            out |= self._together({seq: texts[seq] for seq in seqs[at : at + most]}, end, n_logits)
        return out

    def _catch_up(self, seq: int, text: IdSequence, end: int) -> None:
        """See `Engine._catch_up`."""
        held = self._held[seq]
        n = n_at_once(end - held, self.context.n_ubatch, self.least.rows)
        if self.least.rows > 1 and self.context.n_free < self.least.rows and n > READ_AGAIN:
            self.context.decode([Rows(seq, held, text[held : held + n], 0)])
            self._held[seq] += n

    def _together(self, texts: Mapping[int, IdSequence], end: int, n_logits: int) -> dict[int, Logits]:
        context, least, held = self.context, self.least.rows, self._held
        counts = {seq: end - held[seq] for seq in texts}
        extra = padding(counts, context.n_ubatch, self.least)
        rows = []
        for seq, text in texts.items():
            ids = [*text[held[seq] : end]]
            ids += ids[-1:] * extra[seq]
            n = min(len(ids), max(n_logits + extra[seq], least)) if n_logits else 0
            rows.append(Rows(seq, held[seq], ids, n, extra[seq]))
        rows = context.prepare(rows)
        context.decode(rows)
        out, at = dict[int, Logits](), 0
        logits: Logits = context.logits() if n_logits else np.empty((0, context.n_vocab), np.float32)
        for row in rows:
            at += row.n_logits
            last = at - extra[row.seq] if n_logits else 0
            out[row.seq] = logits[last - n_logits : last].copy()
        for seq in texts:
            held[seq] = context.take_back(seq, end) if extra[seq] else end
        return out


@dataclass(slots=True)
class RowsCompared:
    """Rows of passes of one shape: `n_slots` sequences with `width` rows each. Of `n_ids` rows `n_other` had other bits
    than a single row alone, by `most` at most in a logit.
    """

    n_slots: int
    width: int
    n_ids: int = 0
    n_other: int = 0
    most: float = 0.0

    def add(self, logits: Logits, wanted: Logits) -> None:
        """Compare these rows, [n, n_vocab] and as many or more."""
        n, other, most = differences(logits, wanted[: len(logits)])
        self.n_ids += n
        self.n_other += other
        self.most = max(self.most, most)


@dataclass(slots=True)
class PromptCompared:
    """One way to read a prompt, compared to reading it alone and at once, by the row that ends it and some after it.
    is_small: passes of fewer than 64 ids may have read a part of it.
    """

    how: str
    is_small: bool
    n_ids: int
    n_other: int
    most: float


def differences(logits: Logits, wanted: Logits) -> tuple[int, int, float]:
    """How two times as many rows, [n, n_vocab], differ: how many they are, how many are not equal to the bit, and the
    largest difference of a logit.
    """
    if logits.shape != wanted.shape:
        raise ValueError(f"logits of {logits.shape} are compared to logits of {wanted.shape}")
    bits, expected = (np.ascontiguousarray(rows).view(np.uint32) for rows in (logits, wanted))
    n_other = int((bits != expected).any(axis=1).sum())
    most = float(np.nan_to_num(np.abs(logits - wanted)).max()) if n_other else 0.0
    return len(logits), n_other, most


@dataclass(slots=True)
class RowsFound:
    """Results of comparing rows. seconds: the least time that a single row took."""

    compared: list[RowsCompared]
    seconds: float = float("inf")


def stretches(ids: IdSequence, at: int, length: int, n: int) -> list[tuple[int, ...]]:
    """n texts of this length out of these ids, the first from place `at` on, each beginning elsewhere; ids go round."""
    return [tuple(ids[(at + i * _APART_IDS + k) % len(ids)] for k in range(length)) for i in range(n)]


def compare_rows(
    alone: Passes,
    beside: Passes,
    ids: IdSequence,
    depths: Sequence[int],
    widths: Sequence[int],
    n_ids: int,
    until: Until,
    progress: Callable[[float], None],
) -> RowsFound:
    """Teacher-forced: the same texts in passes of every width, alone and in all slots beside each other, compared to
    single rows alone, until each width has n_ids rows or it is time to stop.

    Depths take turns: a depth is the number of ids before a text. Raises what decoding does.
    """
    length, n_seq = max(widths), beside.context.n_seq
    counts = {(n, width): RowsCompared(n, width) for n in (1, n_seq) for width in sorted(widths)}
    rows = RowsFound(list(counts.values()))
    at = turn = 0
    while not until() and min(compared.n_ids for compared in rows.compared) < n_ids:
        depth = depths[turn % len(depths)]
        texts = stretches(ids, at, depth + length, n_seq)
        wanted = []
        for text in texts:
            alone.begin([text], depth)
            began = perf_counter()
            wanted.append(alone.rows([text], depth, length, 1)[0])
            rows.seconds = min(rows.seconds, (perf_counter() - began) / length)
        for width in telling_first(widths):
            if until():
                break
            progress(min(min(compared.n_ids for compared in rows.compared) / n_ids, 0.999))
            if width == 1:
                counts[1, 1].add(wanted[0], wanted[0])
            for n, passes in ((1, alone), (n_seq, beside))[width == 1 :]:
                for row, expected in zip(passes.rows(texts[:n], depth, length, width), wanted, strict=False):
                    counts[n, width].add(row, expected)
        at, turn = at + length, turn + 1
    alone.clear()
    beside.clear()
    return rows


def telling_first(widths: Sequence[int]) -> list[int]:
    """The same widths; those first at which kernels change, and the largest."""
    telling = [n for n in (1, 2, max(widths), 8, 4, 3, 5, 7, 9, 16, 17) if n in widths]
    return list(dict.fromkeys([*telling, *widths]))


def compare_prompts(alone: Passes, beside: Passes, ids: IdSequence, n: int, until: Until) -> list[PromptCompared]:
    """A prompt of n ids read at once, in pieces, again and from what a slot holds of it, alone and beside another text;
    no further ones once it is time to stop: they have no ids.
    Raises what decoding does.
    """
    text, other = stretches(ids, 0, n + _AFTER_IDS, 2)
    last = beside.context.n_seq - 1

    def ended(passes: Passes, seq: int, piece: int = 0) -> Logits:
        rows = [passes.read(seq, text, n, piece)]
        rows += [passes.advance({seq: text}, n + i + 1, 1)[seq] for i in range(_AFTER_IDS)]
        return np.concatenate(rows)

    def cached(held: int) -> Logits:
        """The slot holds the beginning, and after it another text."""
        alone.clear()
        alone.read(0, (*text[:held], *other), held + _AFTER_IDS)
        alone.reset(0, held)
        return ended(alone, 0)

    def cleared(passes: Passes, seq: int = 0, piece: int = 0) -> Logits:
        passes.clear()
        if seq:
            passes.read(0, other, n)
        return ended(passes, seq, piece)

    wanted = cleared(alone)
    half = max(n // 2, 2)
    ways: list[tuple[str, bool, Callable[[], Logits]]] = [
        (f"in pieces of {_SMALL}", True, lambda: cleared(alone, piece=_SMALL)),
        (f"in pieces of {_GRAIN}", n < 2 * _GRAIN, lambda: cleared(alone, piece=_GRAIN)),
        (f"from cache, {n - half} ids left", n - half < _GRAIN, lambda: cached(half)),
        (f"from cache, {min(_SMALL, half)} ids left", True, lambda: cached(n - min(_SMALL, half))),
        (f"in slot {last} beside another text", False, lambda: cleared(beside, last)),
        ("again", False, lambda: cleared(alone)),
    ]
    compared = [
        PromptCompared(how, is_small, *((0, 0, 0.0) if until() else differences(read(), wanted)))
        for how, is_small, read in ways
    ]
    alone.clear()
    beside.clear()
    return compared
