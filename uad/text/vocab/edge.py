"""The right edge of a draft: which target ids stand whatever comes next, and how far the others can be trusted.

A draft stops somewhere; the target would cut its last bytes with what follows in view. The continuation is unknown, but
it cannot be just anything: had the text gone on in certain ways, the draft's own tokenizer would hardly have cut where
it did. (" inter" is no token of a draft that knows " interesting".) So continuations are imagined, those that
contradict the draft's cut are all but ruled out, and the rest vote. Knows no model and no committed ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable, character_length, is_text

Hypothesis = tuple[bytes, float]
Judged = tuple[tuple[int, float], ...]

_ZIPF_OFFSET = 200.0
_ASCII_PLACE = 100.0
_PLACES_PER_CHARACTER = 10.0
_RULED_OUT = 0.03
_N_LONGER = 24
_NEGLIGIBLE = 0.04
_N_IDS_BACK = 3
_CHARACTER_ENDS_THERE = 0.05
_SPACES = b" \t\r\n"
_WORDS_BEGIN = (("x", 0.4), ("T", 0.1), ("1", 0.06), ("é", 0.03), ("д", 0.03), ("中", 0.02), ("한", 0.02))
_MARKS = '(=-{[<"*/+&#|:}'


class RightEdge:
    """Judges the last word of what a draft has written. `draft` is the encoder of the drafting vocabulary."""

    def __init__(self, target: Encoder, draft: Encoder, cache_size: int = 1 << 14) -> None:
        self._target = target.prepare()
        self._draft = draft.prepare()
        self._pieces = target.vocab.pieces
        self._ranking = Ranking(target.vocab)
        self._judge = lru_cache(cache_size)(self._judge_word)

    def judge(self, ids: list[int], stream: bytes, n_partial: int, indent: bytes) -> list[tuple[int, float]]:
        """ids with the probability that the target cuts so; those of the last word may be replaced, and end where
        nothing is left to guess.

        ids: the encoding of stream, as it is, without n_partial bytes at its end that belong to a character that is not
        whole. indent: white space with which the current line began; matters where stream ends in white space.
        """
        # Only the last word is in doubt. Of "I find it inter", cut before " inter", the ids of "I find it" stand with
        # 1.0.
        size = len(stream) - n_partial
        cut = self._target.boundaries.last(stream, size - 1)
        k, at = len(ids), size
        while k > 0 and at > cut:
            k -= 1
            at -= len(self._pieces[ids[k]])
        drafted = stream[self._draft.boundaries.last(stream, size - 1) :]
        judged = self._judge(stream[max(at, 0) :], n_partial, drafted, indent)
        return [*((id_, 1.0) for id_ in ids[:k]), *judged]

    def forget(self) -> None:
        """Empty the memory of words that were judged."""
        self._judge.cache_clear()

    def _judge_word(self, word: bytes, n_partial: int, drafted: bytes, indent: bytes) -> Judged:
        if n_partial:
            completions = [(end, 1.0) for end in _completions(word[-n_partial:])]
            return tuple(
                self._weigh_longer(self._vote(word, drafted, completions), word, drafted, _CHARACTER_ENDS_THERE)
            )
        if word[-1] in _SPACES:
            return tuple(self._vote(word, drafted, _after_space(word, indent)))
        return tuple(self._weigh_longer([(id_, 1.0) for id_ in self._target.encode(word)], word, drafted, 1.0))

    def _weigh_longer(
        self, judged: list[tuple[int, float]], word: bytes, drafted: bytes, share: float
    ) -> Iterable[tuple[int, float]]:
        """Weighs the last id, as it is (`share` of its weight), against longer tokens that begin where it begins, or an
        id before it.
        """
        # The draft ended in " inter". The target has " inter" (weight 1, by its place), " interest" (0.6) and "
        # internal" (0.9). The draft has a token " interest" too: had the text gone on with "est", it would have written
        # that, so of the 0.6 only `_RULED_OUT` counts. It has no " internal", so it would have cut here, and the 0.9
        # count. The target cuts after " inter" with 1 / (1 + 0.02 + 0.9) = 0.52.
        weight = share * self._ranking.weights[judged[-1][0]] if judged else 0.0
        starts = [0, *accumulate(len(self._pieces[id_]) for id_, _ in judged)]
        last = self._last_token(drafted)
        against = 0.0
        for k, (id_, trust) in enumerate(judged):
            if k >= len(judged) - _N_IDS_BACK:
                for end, w in self._ranking.going_on(word[starts[k] :], _N_LONGER):
                    fits = w > weight * _NEGLIGIBLE and not self._goes_on(last, end)
                    against += w if fits else w * _RULED_OUT
            yield id_, trust * weight / (weight + against)

    def _last_token(self, drafted: bytes) -> bytes:
        """The draft's probable last token: the longest that drafted ends with."""
        known = self._draft.vocab.by_bytes
        return next((drafted[i:] for i in range(len(drafted)) if drafted[i:] in known), b"")

    def _goes_on(self, last: bytes, end: bytes) -> bool:
        """Whether the draft has a longer token than last, made of it and what follows: then it would hardly have cut
        there. Its tokenizer would not say it better, but cost a call.
        """
        known = self._draft.vocab.by_bytes
        return any(last + end[:n] in known for n in range(1, len(end) + 1))

    def _fits(self, drafted: bytes, ends: Sequence[bytes]) -> list[bool]:
        """Whether the draft's tokenizer cuts after drafted, for each of the bytes that may follow."""
        return [self._cuts_at(len(drafted), ids) for ids in self._draft.encode_all([drafted + end for end in ends])]

    def _cuts_at(self, offset: int, ids: Sequence[int]) -> bool:
        pieces = self._draft.vocab.pieces
        at = 0
        for id_ in ids:
            at += len(pieces[id_])
            if at >= offset:
                return at == offset
        return False

    def _vote(self, word: bytes, drafted: bytes, hypotheses: list[Hypothesis]) -> list[tuple[int, float]]:
        """The ids within word that most hypotheses agree on, each with the share of those that do."""
        # A line has ended: "\n". It may go on as "x" (0.05), "    x" (0.4) or "\nx" (0.12). The target cuts the first
        # two after "\n", and has a token "\n\n" for the third: "\n" gets 0.45 / 0.57 = 0.79. Had the word a further
        # byte, only those two would vote on the next id. A continuation that the draft's tokenizer would have cut
        # otherwise hardly votes.
        ends = [end for end, _ in hypotheses]
        last = self._last_token(drafted)
        fits = self._fits(drafted, ends) if word[-1] in _SPACES else [not self._goes_on(last, end) for end in ends]
        encoded = self._target.encode_all([word + end for end in ends])
        votes = [
            (ids, w if fit else w * _RULED_OUT) for ids, fit, (_, w) in zip(encoded, fits, hypotheses, strict=True)
        ]
        total = sum(weight for _, weight in votes)
        judged: list[tuple[int, float]] = []
        at = k = 0
        while at < len(word):
            tally: dict[int, float] = {}
            for ids, weight in votes:
                if k < len(ids) and at + len(self._pieces[ids[k]]) <= len(word):
                    tally[ids[k]] = tally.get(ids[k], 0.0) + weight
            best = max(tally, key=tally.__getitem__, default=None)
            if best is None:
                break
            judged.append((best, tally[best] / total))
            votes = [(ids, weight) for ids, weight in votes if k < len(ids) and ids[k] == best]
            at += len(self._pieces[best])
            k += 1
        return judged


def _completions(partial: bytes) -> list[bytes]:
    """Ways to end a character that has begun, spread over the possible ones."""
    # After the byte E4 of a character of three, 64 x 64 pairs are possible. Whether the target cuts before the
    # character, or in it, depends on few of their bits, so a dozen that lie far from each other stand for all.
    missing = character_length(partial[0]) - len(partial)
    spread = [bytes([0x80 + (7 * i + 5) % 64, 0x80 + (13 * i + 1) % 64, 0x80 + (29 * i + 3) % 64]) for i in range(12)]
    if len(partial) == 1 and partial in (b"\xe0", b"\xf0"):  # these need a high second byte
        spread = [
            bytes([0x90 + end[0] % 48]) + end[1:] if partial == b"\xf0" else bytes([0xA0 + end[0] % 32]) + end[1:]
            for end in spread
        ]
    return [end[:missing] for end in spread]


def _after_space(word: bytes, indent: bytes) -> list[Hypothesis]:
    """How text may go on after white space: with the next word; with more of the run; after a line break, with a usual
    indentation.
    """
    if word[-1:] == b"\r":
        return [(b"\nx", 0.5), (b"\n\r\nx", 0.5)]
    run = word[len(word.rstrip(_SPACES)) :]
    line = max(run.rfind(b"\n"), run.rfind(b"\r"))
    if line >= 0:
        return _after_line_break(run[line + 1 :], indent)
    hypotheses = (
        [(text.encode(), weight) for text, weight in _WORDS_BEGIN]
        + [(mark.encode(), 0.02) for mark in _MARKS]
        + [(b"\nx", 0.05)]
    )
    if run[-1:] == b"\t":
        return [*hypotheses, (b"\tx", 0.3)]
    return hypotheses + [(b" " * n + b"x", 0.3 / n) for n in (1, 2, 3, 4, 6, 8)]


def _after_line_break(begun: bytes, indent: bytes) -> list[Hypothesis]:
    """begun: the white space that the new line already has."""
    tabs = indent[:1] == b"\t" or begun[:1] == b"\t"
    deeper = indent + (b"\t" if tabs else b"    ")
    back = indent[:-1] if tabs else indent[:-4]
    usual = ((indent, 0.4), (deeper, 0.15), (back, 0.15), (b"", 0.1), (indent[:-2], 0.03), (indent + b"  ", 0.03))
    hypotheses = [(b"x", 0.05), (b" x", 0.02), (b"  x", 0.02)]
    if not begun:
        hypotheses.append((b"\nx", 0.12))
    for margin, weight in usual:
        if margin.startswith(begun):
            rest = margin[len(begun) :]
            hypotheses += [(rest + b"x", weight), (rest + b"(", weight * 0.2)]
    return hypotheses


class Ranking:
    """How likely tokens are, by nothing but their place in the vocabulary, which is written in the order of frequency:
    weights of all (Zipf's law over ids, no unit), and the heaviest of those that go on from given bytes.

    SentencePiece lists single characters last, whatever their frequency: they get the weight of an early place.
    """

    def __init__(self, vocab: VocabTable) -> None:
        self._vocab = vocab
        weights = 1.0 / (np.arange(vocab.n_vocab) + _ZIPF_OFFSET)
        n_characters = 0
        for id_, piece in enumerate(vocab.pieces):
            if len(piece) <= 4 and is_text(piece) and len(piece.decode()) == 1:
                n_characters += len(piece) > 1
                place = _ASCII_PLACE if len(piece) == 1 else _PLACES_PER_CHARACTER * n_characters
                weights[id_] = max(weights[id_], 1.0 / (_ZIPF_OFFSET + place))
        self.weights: list[float] = weights.tolist()
        self._ids = np.array(vocab.sorted_pieces[1], np.intp)

    def going_on(self, data: bytes, n: int) -> list[tuple[bytes, float]]:
        """The bytes after data in the n heaviest longer tokens that begin with it; with their weights."""
        low, high = self._vocab.range_of(data)
        ids = self._ids[low:high]
        if len(ids) > n + 1:
            ids = np.partition(ids, n)[: n + 1]
        pieces, weights = self._vocab.pieces, self.weights
        return [(pieces[id_][len(data) :], weights[id_]) for id_ in ids.tolist() if len(pieces[id_]) > len(data)]
