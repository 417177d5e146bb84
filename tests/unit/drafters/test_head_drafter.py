"""The drafter on a head: which id it reads with which hidden row, at which position, and what it reads again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from kit.toys import FINE, toy_vocab

from uad.base.types import Ask, Commit, Origin, Rows, SamplingParams
from uad.drafts.model.coupling import Coupling, own_chooser
from uad.drafts.model.head import HeadDrafter
from uad.engine.sampling.noise import Position, gumbel, token_keys
from uad.text.vocab.encode import Encoder

WIDTH = 2
VOCAB = toy_vocab("fine", FINE, ("</s>",), ("</s>",))
END = min(VOCAB.eog)
GUESSED = 1000.0  # what a hidden row of the head begins with, in the place of a position


class ScriptedRows:
    """Hidden rows that say which sequence and position they are of."""

    def __init__(self) -> None:
        self.spans: dict[int, tuple[int, int]] = {}
        self.expected: dict[int, int] = {}
        self.cuts: list[tuple[int, int]] = []

    def expect(self, seq: int, first: int) -> None:
        self.expected[seq] = first

    def ignore(self, seq: int) -> None:
        self.expected.pop(seq, None)

    def cut(self, seq: int, pos: int) -> None:
        self.cuts.append((seq, pos))

    def span(self, seq: int) -> tuple[int, int]:
        return self.spans.get(seq, (0, 0))

    def get(self, seq: int, start: int, end: int) -> np.ndarray:
        first, last = self.span(seq)
        assert first <= start <= end <= last
        return np.array([[seq, pos] for pos in range(start, end)], np.float32).reshape(-1, WIDTH)


class ScriptedHead:
    """Foretells id + 1 behind each id. Its KV checks that positions follow each other, and notes what it was given."""

    n_ctx, n_batch, width = 64, 32, WIDTH
    origin, behind, first, n_block = Origin.HEAD, 1, 0, 0

    def __init__(self) -> None:
        self.source = ScriptedRows()
        self.kv: dict[int, list[tuple[int, int, float]]] = {}
        self.n_decodes = 0
        self._asked: list[tuple[int, int]] = []

    def read(self, rows: Sequence[Rows], hidden: Sequence[np.ndarray]) -> None:
        self.n_decodes += 1
        self._asked = []
        assert sum(len(row.ids) for row in rows) <= self.n_batch
        for row, given in zip(rows, hidden, strict=True):
            kv = self.kv.setdefault(row.seq, [])
            assert not kv or kv[-1][0] + 1 == row.pos
            assert len(row.ids) == len(given)
            for i, (id_, one) in enumerate(zip(row.ids, given, strict=True)):
                assert row.pos + i < self.n_ctx
                kv.append((row.pos + i, id_, float(one[1])))
            self._asked += [(row.seq, kv[-1][1])] * row.n_logits

    def fused(self, hidden: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return hidden

    def logits(self) -> np.ndarray:
        out = np.zeros((len(self._asked), len(VOCAB.pieces)), np.float32)
        for row, (_, id_) in zip(out, self._asked, strict=True):
            row[(id_ + 1) % len(row)] = 9.0
        return out

    def outputs(self) -> np.ndarray:
        return np.array([[seq, GUESSED + id_] for seq, id_ in self._asked], np.float32)

    def take_back(self, seq: int, n: int) -> int:
        self.kv[seq] = [one for one in self.kv[seq] if one[0] < n]
        return n

    def clear(self, seq: int) -> None:
        self.kv[seq] = []


def drafter_on(head: ScriptedHead, window: int = 0) -> HeadDrafter:
    keys = token_keys(VOCAB.texts)
    return HeadDrafter(head, lambda sampling, n: own_chooser(sampling, n, VOCAB.texts, keys), VOCAB, window)


def pairs(ids: Sequence[int], start: int = 0) -> list[tuple[int, int, float]]:
    """What the KV holds of committed ids: each with the row of the position before it, the first with zeros."""
    return [(pos, id_, float(max(pos - 1, 0))) for pos, id_ in enumerate(ids)][start:]


def test_each_id_is_read_with_the_row_before_it_and_guesses_with_the_heads_own() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head)
    text = [5, 6, 7, 8]
    drafter.begin(0, text[:3])
    drafter.observe(Commit(0, (8,)))
    head.source.spans[0] = (0, 3)
    (draft,) = drafter.propose([Ask(0, 3)])
    assert draft.ids == (9, 10, 11)
    assert (draft.origin, draft.n_read) == (Origin.HEAD, 4)
    assert all(0 < p <= 1 for p in draft.p)
    assert head.kv[0] == [*pairs(text), (4, 9, GUESSED + 8), (5, 10, GUESSED + 9)]


def test_accepted_guesses_are_read_again_with_the_targets_rows() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head)
    drafter.begin(0, [5, 6, 7])
    drafter.observe(Commit(0, (8,)))
    head.source.spans[0] = (0, 3)
    drafter.propose([Ask(0, 3)])
    drafter.observe(Commit(0, (9, 10, 30), 3, 2))
    head.source.spans[0] = (0, 7)
    (draft,) = drafter.propose([Ask(0, 1)])
    assert draft.ids == (31,)
    assert head.kv[0] == pairs([5, 6, 7, 8, 9, 10, 30])


def test_sequences_share_decodes_and_end_alone() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head)
    for seq, last in ((0, END - 3), (1, 20), (3, 40)):
        drafter.begin(seq, [5, last])
        head.source.spans[seq] = (0, 1)
    drafts = drafter.propose([Ask(0, 8), Ask(1, 2), Ask(2, 4), Ask(3, 1)])
    assert [draft.ids for draft in drafts] == [(END - 2, END - 1, END), (21, 22), (), (41,)]
    assert head.n_decodes == 3, "one that reads, and one for each further id of the longest"


def test_of_a_long_text_it_reads_the_last_ids() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head, window=4)
    text = list(range(10, 30))
    drafter.begin(0, text)
    assert head.source.expected == {0: 15}
    head.source.spans[0] = (15, 19)
    (draft,) = drafter.propose([Ask(0, 1)])
    assert draft.ids == (30,)
    assert head.kv[0] == pairs(text, 16)


def test_rows_that_are_missing_are_not_waited_for() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head)
    text = list(range(10, 20))
    drafter.begin(0, text)
    (draft,) = drafter.propose([Ask(0, 4)])
    assert (draft.ids, draft.n_read) == ((), 1), "the first id needs no row"
    head.source.spans[0] = (6, 9)
    (draft,) = drafter.propose([Ask(0, 1)])
    assert draft.ids == (20,)
    assert head.kv[0] == pairs(text, 7)


def test_a_backlog_may_take_several_rounds() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head)
    text = list(range(10, 50))
    drafter.begin(0, text)
    head.source.spans[0] = (0, 39)
    drafts = [drafter.propose([Ask(0, 1, n_read=16)])[0] for _ in range(3)]
    assert [(draft.n_read, draft.ids) for draft in drafts] == [(16, ()), (16, ()), (8, (50,))]
    drafter.observe(Commit(0, (60, 61, 62)))
    head.source.spans[0] = (0, 42)
    (draft,) = drafter.propose([Ask(0, 0, n_read=8)])
    assert draft.n_read == 0, "so few can wait"


def test_the_next_text_of_a_slot_keeps_what_it_has_in_common() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head)
    drafter.begin(0, [5, 6, 7, 8])
    head.source.spans[0] = (0, 3)
    drafter.propose([Ask(0, 2)])
    drafter.end(0)
    assert head.source.expected == {}
    drafter.begin(0, [5, 6, 40, 41])
    (draft,) = drafter.propose([Ask(0, 1)])
    assert (draft.ids, draft.n_read) == ((42,), 2)
    assert head.kv[0] == pairs([5, 6, 40, 41])
    drafter.begin(0, [9, 6])
    assert drafter.propose([Ask(0, 1)])[0].ids == (7,)
    assert head.kv[0] == pairs([9, 6])


def test_a_draft_ends_with_the_context_the_ask_and_doubt() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head)
    text = list(range(10, 10 + head.n_ctx - 2))
    drafter.begin(0, text)
    head.source.spans[0] = (0, len(text) - 1)
    drafts = [drafter.propose([Ask(0, 9)])[0] for _ in range(2)]
    assert [len(draft.ids) for draft in drafts] == [0, 3], "the first reads a batch; the last id needs no position"
    drafter.observe(Commit(0, (90,)))
    head.source.spans[0] = (0, len(text))
    assert drafter.propose([Ask(0, 9, n_min=4)])[0].ids == ()
    drafter.observe(Commit(0, (91,)))
    head.source.spans[0] = (0, len(text) + 1)
    assert drafter.propose([Ask(0, 9, p_min=0.999)])[0].ids == ()


def test_after_a_failure_nothing_is_known() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head)
    drafter.begin(0, [5, 6])
    head.source.spans[0] = (0, 1)
    drafter.propose([Ask(0, 1)])
    drafter.reset()
    assert head.kv[0] == []
    assert drafter.propose([Ask(0, 1)])[0].ids == ()
    drafter.begin(0, [5, 6])
    assert drafter.propose([Ask(0, 1)])[0].ids == (7,)


@pytest.mark.parametrize("temperature", [0.7, 1.2])
def test_it_chooses_what_the_target_draws(temperature: float) -> None:
    sampling = SamplingParams(temperature=temperature, seed=3, top_k=0, top_p=1.0, min_p=0.0)
    keys, encoder, rng = token_keys(VOCAB.texts), Encoder(VOCAB), np.random.default_rng(0)
    own = own_chooser(sampling, 2, VOCAB.texts, keys)
    other = Coupling(encoder, encoder, lambda id_: (id_,)).chooser(sampling, 2)
    for chooser in (own, other):
        chooser.observe([1, 2])
        chooser.observe([65, 66, END])
        chooser.start(b"")
    at, agreed = Position().after(1).after(1).after(0), 0
    for _ in range(40):
        row = (5 * rng.standard_normal(len(VOCAB.pieces))).astype(np.float32)
        logits = row.astype(np.float64) / sampling.temperature
        drawn = int((logits + gumbel(3, at, keys)).argmax())
        id_, p = own.choose(row)
        assert 0 < p <= 1
        agreed += id_ == drawn
        own.wrote(VOCAB.texts[drawn])
        at = at.after(len(VOCAB.texts[drawn]))
    assert agreed >= 38, "all but what is too unlikely to be looked at"


class ScriptedEagle(ScriptedHead):
    """Does not read the first id, and fuses rows: a thousandth is added to the positions that they say."""

    first = 1

    def fused(self, hidden: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return [rows + np.array([0, 0.001], np.float32) for rows in hidden]


def test_a_head_of_eagle3_reads_fused_rows_from_the_second_id_on() -> None:
    head = ScriptedEagle()
    drafter = drafter_on(head)
    drafter.begin(0, [5, 6, 7])
    drafter.observe(Commit(0, (8,)))
    head.source.spans[0] = (0, 3)
    (draft,) = drafter.propose([Ask(0, 2)])
    assert draft.ids == (9, 10)
    assert [(pos, id_) for pos, id_, _ in head.kv[0]] == [(1, 6), (2, 7), (3, 8), (4, 9)]
    assert [row for _, _, row in head.kv[0]] == pytest.approx([0.001, 1.001, 2.001, GUESSED + 8])


class ScriptedBlock(ScriptedHead):
    """Reads rows at their own positions, and foretells the ids that follow the last one."""

    behind, n_block = 0, 3

    def guess(self, places: Sequence[tuple[int, int, int]]) -> np.ndarray:
        self.n_decodes += 1
        out = np.zeros((len(places), self.n_block, len(VOCAB.pieces)), np.float32)
        for rows, (seq, pos, id_) in zip(out, places, strict=True):
            assert [at for at, _, _ in self.kv[seq]] == list(range(pos))
            for i, row in enumerate(rows):
                row[id_ + 1 + i] = 9.0
                self.kv[seq].append((pos + i, id_, GUESSED))
        return out.reshape(-1, out.shape[-1])


def test_a_head_of_blocks_reads_all_but_the_last_id_and_guesses_at_once() -> None:
    head = ScriptedBlock()
    drafter = drafter_on(head)
    for seq in (0, 1):
        drafter.begin(seq, [5, 6, 7 + seq])
        drafter.observe(Commit(seq, (20,)))
        head.source.spans[seq] = (0, 3)
    drafts = drafter.propose([Ask(0, 5), Ask(1, 2)])
    assert [draft.ids for draft in drafts] == [(21, 22, 23), (21, 22)]
    assert [draft.n_read for draft in drafts] == [3, 3]
    assert head.n_decodes == 2
    assert head.kv[0][:3] == [(0, 5, 0.0), (1, 6, 1.0), (2, 7, 2.0)]
    drafter.observe(Commit(0, (21, 30), 3, 1))
    head.source.spans[0] = (0, 5)
    (draft,) = drafter.propose([Ask(0, 3)])
    assert draft.ids == (31, 32, 33)
    assert [id_ for _, id_, row in head.kv[0] if row < GUESSED] == [5, 6, 7, 20, 21]


def test_rows_of_a_text_that_was_replaced_are_dropped() -> None:
    head = ScriptedHead()
    drafter = drafter_on(head)
    drafter.begin(0, [5, 6, 7])
    drafter.end(0)
    drafter.begin(0, [5, 6, 9, 10])
    assert head.source.cuts == [(0, 0), (0, 2)]
