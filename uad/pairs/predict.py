"""Expected gain of a draft, before it is measured. It follows from the sizes of both files, their vocabularies and chat
formats, and from the cost of decodes, where `uad profile` has measured it.

The model is that of docs/design.md with one acceptance for all ids. A draft of k ids brings 1 + p + … + p^k ids, and
takes T(1 + k) of the target and k steps of the draft. It ranks candidates; what a pair really gains is measured.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from uad.base.errors import ModelLoadError
from uad.base.gguf import GgufFile
from uad.pairs.costs import Curve
from uad.pairs.header import HeaderFacts, Stamp, facts

_LONGEST_DRAFT_IDS = 8
"""Ids of a draft that are tried in the arithmetic."""
_TOKENS = "tokenizer.ggml.tokens"
_GPT2_BLANK, _BLANK, _BREAK = "Ġ".encode(), "▁".encode(), "Ċ".encode()
"""How byte-level and SentencePiece vocabularies write blanks and line breaks."""
_ROW_DECODES = 0.12
"""Cost of a further row for the target, in plain decodes: weights are read once, and products grow."""
_STEP_DECODES = 0.004
"""Cost of a step of a draft beside reading its weights, in plain decodes of a target of 1 GB."""
_BEST, _PER_DOUBLING, _LEAST = 0.86, 0.05, 0.2
"""Acceptance of a draft as large as the target, what each halving of its size takes, and the least."""
_OTHER_WORDS = 0.6
"""The part of that acceptance that is left where no token of the draft is one of the target's: ids are cut again."""
_NO_CHAT = 0.8
"""The same for a draft that gets no conversations in a format it knows."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """gain: expected speed, in that of the target alone. n: the length of drafts with it; 0: none pays."""

    gain: float
    n: int
    acceptance: float
    coverage: float
    """The part of the draft's tokens that the target has, weighted by how common they are."""
    cost: float
    """Time of a step of the draft, in plain decodes of the target."""


def predicted(
    target: HeaderFacts,
    draft: HeaderFacts,
    covered: float,
    reads_chats: bool = True,
    curves: tuple[Curve | None, Curve | None] = (None, None),
) -> Prediction:
    """The gain of a pair whose vocabularies have so much in common. reads_chats: whether the draft gets conversations
    in a format that it knows. curves: of target and draft, as they were measured.
    """
    halvings = math.log2(max(target.n_params, 1) / max(draft.n_params, 1))
    acceptance = max(_BEST - _PER_DOUBLING * max(halvings, 0.0), _LEAST)
    acceptance *= _OTHER_WORDS + (1 - _OTHER_WORDS) * covered
    if not reads_chats:
        acceptance *= _NO_CHAT
    target_curve, draft_curve = curves
    if target_curve is None or draft_curve is None:
        cost = draft.size / max(target.size, 1) + _STEP_DECODES * 1e9 / max(target.size, 1)
    else:
        cost = draft_curve.ms(1) / target_curve.ms(1)
    gain, n = max((_speed(acceptance, cost, _rows(target_curve, k), k), k) for k in range(_LONGEST_DRAFT_IDS + 1))
    return Prediction(gain, n, acceptance, covered, cost)


def _rows(curve: Curve | None, k: int) -> float:
    """Time of a decode of the target with k ids more, in decodes of a single id."""
    return 1 + _ROW_DECODES * k if curve is None else curve.ms(1 + k) / curve.ms(1)


def _speed(acceptance: float, cost: float, rows: float, k: int) -> float:
    """Ids per plain decode with drafts of k ids. With p = 0.8, k = 2: 1 + 0.8 + 0.64 ids for three rows and two
    steps.
    """
    return sum(acceptance**i for i in range(k + 1)) / (rows + k * cost)


def coverage(target: Path, target_stamp: Stamp, draft: Path, draft_stamp: Stamp) -> float:
    """How much of a draft's vocabulary the target has, common tokens counting more: numbers of tokens follow how common
    they are in most vocabularies. The stamps are those of the files, for which the answer holds. For worker threads.
    """
    ours, theirs = facts(target, target_stamp), facts(draft, draft_stamp)
    pair = ours.vocab, theirs.vocab
    if pair not in _covered:
        _covered[pair] = 1.0 if ours.vocab == theirs.vocab else _coverage((target, target_stamp), (draft, draft_stamp))
    return _covered[pair]


_covered: dict[tuple[str, str], float] = {}
"""Results of `coverage`, by the hashes of both vocabularies: families of models share them."""


def _coverage(target: tuple[Path, Stamp], draft: tuple[Path, Stamp]) -> float:
    known, theirs = _known(*target), _words(*draft)
    weights = [1 / (100 + i) for i in range(len(theirs))]
    return sum(weight for weight, word in zip(weights, theirs, strict=True) if word in known) / (sum(weights) or 1)


@lru_cache(maxsize=1)
def _known(path: Path, of: Stamp) -> frozenset[int]:
    """Hashes of the last target: all its candidates are compared with them."""
    return frozenset(_words(path, of))


def _words(path: Path, of: Stamp) -> array[int]:
    """Hashes of a vocabulary's tokens: the texts of fifty would take half a gigabyte."""
    try:
        with GgufFile(path) as file:
            tokens = file.raw_texts(_TOKENS)
    except ModelLoadError:
        return array("q")
    plain = (token.replace(_GPT2_BLANK, b" ").replace(_BLANK, b" ").replace(_BREAK, b"\n") for token in tokens)
    return array("q", map(hash, plain))
