"""The draft model's state between rounds and within one, and how its beliefs pass to the target's ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from uad.common.sequences import common_prefix
from uad.drafters.choosing import Chooser, Row
from uad.drafters.mirror import Mirror
from uad.drafters.recall import Recall
from uad.mapping.rules import RuleStream
from uad.types import Ask, Rows
from uad.vocab.meter import Meter
from uad.vocab.table import VocabTable

TAIL_IDS = 48


class NoPace:
    """Drafts as far as the ask allows."""

    def wrote(self, seq: int, p: float) -> None: ...

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        return [True] * len(seqs)

    def stepped(self, n_seq: int, seconds: float) -> None: ...


class DraftContext(Protocol):
    """What drafting needs of a context; `uad.llama.context.Context` is one."""

    n_ctx: int
    n_batch: int
    vocab: VocabTable

    def prepare(self, rows: Sequence[Rows]) -> list[Rows]:
        """What is left to decode of these rows, when all is done that lets the last n_unsure of each be taken back."""
        ...

    def decode(self, rows: Sequence[Rows]) -> None:
        """Raises NoKvRoomError or DecodeError."""

    def logits(self) -> npt.NDArray[np.float32]:
        """[rows that wanted logits, n_vocab] in the order of the rows; valid until the next decode."""
        ...

    def reach(self, seq: int, n: int) -> int:
        """How many ids `take_back(seq, n)` would leave."""
        ...

    def take_back(self, seq: int, n: int) -> int:
        """Forget positions >= n, and more where the memory cannot stop there; returns how many ids are left."""
        ...

    def clear(self, seq: int) -> None:
        """Forget all positions."""


@dataclass(slots=True)
class DraftedSequence:
    """One sequence between rounds: its mirror, its rule state, the tail of its target ids, and how long its KV is.
    `earlier` are the ids of the slot's former text, of which the KV still holds those from `earlier_skip` on.
    """

    mirror: Mirror
    stream: RuleStream
    tail: deque[int]
    meter: Meter
    chooser: Chooser
    recall: Recall
    earlier: list[int] = field(default_factory=list)
    earlier_skip: int = 0
    n_in_kv: int = 0
    is_cut: bool = False

    @property
    def held(self) -> tuple[list[int], int]:
        """The ids of the text that the KV is of, up to its end there, and how many of them lie before its window."""
        if self.earlier:
            return self.earlier, self.earlier_skip
        return self.mirror.ids[: self.mirror.n_kv], self.mirror.skip

    def catch_up(self, backlog: list[int]) -> None:
        """These ids were committed; the mirror has seen all before them."""
        if not backlog:
            return
        self.chooser.heard(backlog)
        self.tail.extend(backlog[-TAIL_IDS:])
        self.mirror.extend(self.stream.feed(backlog), self.stream.pending)
        if self.earlier:
            self.mirror.sync()
            n = common_prefix(self.earlier, self.mirror.ids)
            if n > self.earlier_skip:
                self.mirror.skip, self.mirror.n_kv = self.earlier_skip, n
            self.earlier = []


@dataclass(slots=True)
class DraftWork:
    """One ask while a round drafts for it. `rest` are committed bytes that the next ids must agree with; `row` the next
    id's logits; `edge_p` how sure the draft is that a token ends at the edge, which the next id inherits.
    """

    ask: Ask
    sequence: DraftedSequence
    n_left_over: int = 0
    n_left_guesses: int = 0
    first_choice: int = 0
    rest: bytes = b""
    row: Row | None = None
    edge_p: float = 1.0
    healed: bool = False
    n_steps: int = 0
    n_counted: int = 0  # guessed bytes up to a safe boundary, of which it is known how many target ids they are
    n_counted_ids: int = 0
    n_read: int = 0
    closing: tuple[int, ...] = field(default=())
    closing_p: float = 0.0


def shared_out(guesses: list[tuple[int, float]], lengths: list[int], edge: int) -> tuple[list[float], list[int]]:
    """Probabilities of the draft's ids, handed to the target ids in which they begin; and where, from the edge, each
    target id ends.
    """
    p: list[float] = []
    ends: list[int] = []
    at, k = 0, 0
    for length in lengths:
        at += length
        product = 1.0
        while k < len(guesses) and guesses[k][0] - edge < at:
            product *= guesses[k][1]
            k += 1
        p.append(product)
        ends.append(at)
    return p, ends


def with_trust(p: Sequence[float], trust: Sequence[float]) -> list[float]:
    """p with the probability worked in that the target cuts there, given that it cut as predicted before. Doubtful ids
    at the end cost a row each and nothing after them, so they are offered; a policy may think otherwise.
    """
    before = [1.0, *trust]
    return [one * sure / last if last else 0.0 for one, sure, last in zip(p, trust, before, strict=False)]
