"""Whatever a sequence went through, a row of it has the bits of the same ids read in one go: drafts that were wrong,
marks, copies that come back into other sequences, interrupts, other sequences beside it. For every kind of memory.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.tiny_models import NAMES, make
from numpy.typing import NDArray

from uad.base.common.sequences import common_prefix
from uad.base.config import KvOverride, ModelConfig
from uad.base.errors import AbortedError
from uad.base.types import Rows
from uad.llama.context import Context
from uad.llama.kernels import use
from uad.llama.memory import SavedSequence, SequenceCopies
from uad.llama.model import Model

pytestmark = pytest.mark.model
SEQUENCES, PER_SEQUENCE, LENGTH, STEPS = 4, 768, 600, 1000
WINDOW = {"overrides": (KvOverride("lfm2.attention.sliding_window", 32),)}
KINDS: tuple[tuple[str, dict], ...] = (*((name, {}) for name in NAMES), ("lfm2", WINDOW))


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: "-".join((kind[0], *kind[1])))
def context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    kernels = use.of(ModelConfig(Path(__file__)))
    if kernels.library is None:  # in llama.cpp's own a row's bits depend on how many are beside it
        pytest.skip(kernels.note())
    name, fields = request.param
    own = ModelConfig(
        make(name, tmp_path_factory.mktemp("histories")),
        n_ctx=SEQUENCES * PER_SEQUENCE,
        n_threads=1,
        n_ubatch=64,
        n_snapshots=8,
        n_checkpoints=4,
        checkpoint_step=100,
        **fields,
    )
    with Model(own) as model, Context(model, own, SEQUENCES) as one:
        yield one


class History:
    """Sequences of a context that hold beginnings of texts, some of which begin alike."""

    def __init__(self, context: Context, seed: int) -> None:
        self.context, self.random = context, random.Random(seed)
        self.copies = SequenceCopies(context.memory)
        first = self.ids(LENGTH)
        self.texts = [first[:n] + self.ids(LENGTH - n) for n in (LENGTH, 90, 250, 270, 500)]
        self.wanted = [self.read(text) for text in self.texts]
        self.held = [(0, 0)] * SEQUENCES
        """The text of each sequence, and how many ids of it are held."""
        self.saved: list[tuple[tuple[int, int], SavedSequence]] = []
        self.n_compared = 0

    def ids(self, n: int) -> list[int]:
        return [self.random.randrange(3, 250) for _ in range(n)]

    def read(self, text: list[int]) -> NDArray[np.float32]:
        """Logits of all rows [id, n_vocab]."""
        rows = []
        for at in range(0, LENGTH, 64):
            part = tuple(text[at : at + 64])
            self.context.decode([Rows(0, at, part, len(part))])
            rows.append(self.context.logits().copy())
        self.context.clear(0)
        return np.concatenate(rows)

    def step(self) -> None:
        seq = self.random.randrange(SEQUENCES)
        steps = (self.decode, self.switch, self.save, self.restore, self.mark, self.interrupt, self.clear)
        self.random.choices(steps, (30, 4, 3, 4, 3, 4, 4))[0](seq)
        assert [self.context.memory.end(i) for i in range(SEQUENCES)] == [n for _, n in self.held]

    def decode(self, seq: int) -> None:
        """Some sequences go on beside each other, some of them with wrong ids at the end."""
        others = (other for other in range(SEQUENCES) if other == seq or self.random.random() < 0.5)
        is_prompt = self.random.random() < 0.3
        rows, right = [], {}
        for one in others:
            which, n = self.held[one]
            new = self.texts[which][n : n + (self.random.randint(1, 150) if is_prompt else self.random.randint(1, 6))]
            wrong = [] if is_prompt else self.ids(self.random.choice((0, 1, 3, 8, 11)))
            if new:
                n_logits = self.random.choice((1, min(len(new), 16))) if is_prompt else len(new) + len(wrong)
                rows.append(Rows(one, n, (*new, *wrong), n_logits, len(wrong)))
                right[one] = n + len(new)
        if not rows:
            return
        rows = self.context.prepare(rows)
        self.context.decode(rows)
        logits, at = self.context.logits(), 0
        for row in rows:
            which, begin = self.held[row.seq][0], row.pos + len(row.ids) - row.n_logits
            n = max(right[row.seq] - begin, 0)
            assert np.array_equal(logits[at : at + n], self.wanted[which][begin : begin + n]), (row.seq, begin)
            self.n_compared += n
            at += row.n_logits
        for row in rows:
            self.back(row.seq, right[row.seq])

    def back(self, seq: int, n: int) -> None:
        self.held[seq] = self.held[seq][0], self.context.take_back(seq, n)

    def switch(self, seq: int) -> None:
        which, n = self.held[seq]
        other = self.random.randrange(len(self.texts))
        self.back(seq, common_prefix(self.texts[which][:n], self.texts[other]))
        self.held[seq] = other, self.held[seq][1]

    def save(self, seq: int) -> None:
        copy = self.copies.save(seq) if self.held[seq][1] else None
        if copy is not None:
            self.saved = [*self.saved[-4:], (self.held[seq], copy)]

    def restore(self, seq: int) -> None:
        if self.saved:
            held, copy = self.random.choice(self.saved)
            assert self.copies.restore(seq, copy)
            self.held[seq] = held

    def mark(self, seq: int) -> None:
        self.context.mark(seq, is_last=True)

    def interrupt(self, seq: int) -> None:
        which, n = self.held[seq]
        new = tuple(self.texts[which][n : n + self.random.randint(1, 150)])
        if not new or not self.context.can_stop:
            return
        self.context.interrupt()
        with pytest.raises(AbortedError):
            self.context.decode([Rows(seq, n, new, 1)], may_stop=True)
        self.context.interrupt(False)
        self.back(seq, n)

    def clear(self, seq: int) -> None:
        self.context.clear(seq)
        self.held[seq] = self.random.randrange(len(self.texts)), 0


def test_a_row_has_the_bits_of_its_text_read_in_one_go_whatever_came_before(context: Context) -> None:
    history = History(context, seed=3)
    for _ in range(STEPS):
        history.step()
    assert history.n_compared > STEPS
