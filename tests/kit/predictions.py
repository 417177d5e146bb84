"""Requests with predictions one after the other, on a machine that counts its time: the real drafter and policy, no
model.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kit.simulator import Cost
from uad.base.common.sequences import common_prefix
from uad.base.types import Commit, Draft, Origin, SpeculativeParams
from uad.drafts.lookup.prediction import drafter
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import Decoded, Drafted, Ended, Wish
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

PLAIN_MS: Final = 100.0
LOOK_MS: Final = 0.2
LONGEST: Final = 58
"""Ids of a draft, with flash attention on CPUs."""
_PIECE: Final = re.compile(rb" ?[A-Za-z0-9_]+| ?[^A-Za-z0-9_\s]|\n *|\s")
_NOUNS: Final = b"river stone lantern cart price queue baker token mirror walnut garden engine".split()
_FUNCTION: Final = b"""def %s_%d(%s, factor=%d):
    # the %s of a %s
    total = %s * factor + %d
    return total - %d

"""


def rising(times: float) -> Cost:
    """Decodes of which eight rows cost so many times a single one, each further row the same."""
    return lambda n: PLAIN_MS * (1.0 + (times - 1.0) / 7.0 * (n - 1))


class PredictedRequest(NamedTuple):
    """An answer, and what the request says that it will be."""

    answer: bytes
    prediction: bytes


def code(n: int) -> bytes:
    """n functions of five lines."""
    named = [(_NOUNS[i % 12], _NOUNS[(5 * i + 3) % 12], i) for i in range(n)]
    return b"".join(_FUNCTION % (a, i, b, i + 2, a, b, b, 3 * i, i) for a, b, i in named)


def edited(text: bytes, share: float, seed: int = 0) -> bytes:
    """The text with this share of its lines renamed, extended, deleted or put in."""
    rng, lines = random.Random(seed), text.split(b"\n")
    for i, line in enumerate(lines):
        if rng.random() < share:
            new = (line.replace(b"total", b"amount"), line + b"  # changed", b"", b"    log(%d)\n" % i + line)
            lines[i] = new[rng.randrange(4)]
    return b"\n".join(lines)


def _vocab(texts: Sequence[bytes]) -> VocabTable:
    words = sorted({word for text in texts for word in _PIECE.findall(text) if len(word) > 1})
    pieces = (*(bytes([i]) for i in range(256)), *words)
    ids = {piece: i for i, piece in enumerate(pieces)}

    def tokenize(data: bytes) -> list[int]:
        return [id_ for word in _PIECE.findall(data) for id_ in ((ids[word],) if word in ids else word)]

    return VocabTable("words", pieces, {}, tokenize)


@dataclass
class PredictedSession:
    """Requests one after the other in one slot of a server. texts: of all of them. n_measured: sizes of decodes that
    were measured at start. lengths: ids drafted in each round of the last request.
    """

    cost: Cost
    texts: Sequence[bytes]
    n_measured: int = 17
    ms: float = 0.0
    lengths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._encoder = Encoder(_vocab(self.texts))
        self._drafter = drafter(self._encoder)
        samples = [CostSample(n, 0, self.cost(n)) for n in range(1, self.n_measured + 1)]
        self.policy = AutoPolicy(Machine(CostCurve(samples)))

    def answer(self, request: PredictedRequest, n_most: int = 1 << 30) -> float:
        """Writes the answer, n_most ids at most; returns the speed over that without drafts."""
        ids, before = tuple(self._encoder.encode(request.answer)[:n_most]), self.ms
        self.lengths = []
        self.policy.begin(0, 100)
        self._drafter.begin(0, ())
        self._drafter.predict(0, request.prediction)
        self._commit(Commit(0, ids[:1]))
        at = 1
        while at < len(ids):
            at += self._round(ids, at)
        self.policy.observe(Ended(0))
        self._drafter.end(0)
        return (len(ids) - 1) * self.cost(1) / (self.ms - before)

    def _round(self, ids: tuple[int, ...], at: int) -> int:
        draft, n_rows = self._draft(min(len(ids) - at - 1, LONGEST), at, len(ids) - at)
        n = common_prefix(draft.ids, ids[at : at + len(draft.ids)])
        self.ms += self.cost(n_rows)
        self.policy.observe(Decoded([(1, n_rows)], 100 + at, self.cost(n_rows) / 1e3))
        self.lengths.append(len(draft.ids))
        self._commit(Commit(0, ids[at : at + n + 1], len(draft.ids), n))
        return n + 1

    def _draft(self, room: int, at: int, n_left: int) -> tuple[Draft, int]:
        """What is submitted, and how many rows its decode has."""
        wish = Wish(0, SpeculativeParams(), room, 100 + at, n_left, is_predicted=True)
        if self.policy.plan([wish]):
            return Draft(), 1
        asks = self.policy.asks(Origin.PREDICTION)
        if asks:
            self.policy.observe(Drafted(Origin.PREDICTION, self._drafter.propose(asks), LOOK_MS / 1e3))
            self.ms += LOOK_MS
        chosen = self.policy.choose().get(0)
        return (chosen.draft, max(chosen.n_rows, 1 + len(chosen.draft.ids))) if chosen is not None else (Draft(), 1)

    def _commit(self, commit: Commit) -> None:
        self.policy.observe(commit)
        self._drafter.observe(commit)
