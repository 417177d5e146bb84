"""One ask while it is drafted for: when the guessed bytes are as many target ids as were asked for."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.toys import DRAFT_VOCAB, SCRIPT, TARGET_VOCAB, ToyRules

from uad.base.errors import DecodeError
from uad.base.types import Ask, SamplingParams
from uad.drafts.model.choosing import LIKELIEST
from uad.drafts.model.coupling import likely
from uad.drafts.model.draft_work import DraftedSequence, DraftWork
from uad.drafts.model.mirror import Mirror
from uad.drafts.model.recall import Recall
from uad.text.vocab.encode import Encoder, Meter

TARGET, DRAFT = Encoder(TARGET_VOCAB), Encoder(DRAFT_VOCAB)


@given(st.integers(0, 400), st.integers(1, 40), st.integers(1, 12), st.integers(0, 6))
@settings(max_examples=150, deadline=None)
def test_a_draft_is_long_enough_with_as_many_ids_as_its_bytes_have(
    at: int, n_bytes: int, n_max: int, held: int
) -> None:
    """After each id, as if all guessed bytes were encoded anew; what a rule holds back is no guess."""
    mirror = Mirror(DRAFT)
    mirror.extend([SCRIPT[:at]], SCRIPT[at : at + held])
    mirror.sync()
    sequence = DraftedSequence(mirror, ToyRules().stream(), deque(), Meter(TARGET, DRAFT), LIKELIEST, Recall(mirror))
    work = DraftWork(Ask(0, n_max), sequence)
    for id_ in DRAFT.encode(SCRIPT[at + held : at + held + n_bytes] + "é日本 naïve".encode()):
        mirror.guess(id_, 0.5)
        assert work.is_long_enough(TARGET) == (len(TARGET.encode(mirror.ahead(mirror.edge))) >= n_max)


def test_a_row_that_holds_no_numbers_is_an_error_that_says_so() -> None:
    with pytest.raises(DecodeError, match="computes no numbers"):
        likely(np.full(300, np.nan, np.float32), SamplingParams(temperature=0.7))
    with pytest.raises(DecodeError, match="computes no numbers"):
        LIKELIEST.choose(np.full(300, np.nan, np.float32))


@given(st.integers(2, 4000), st.integers(0, 2**32), st.sampled_from([0.5, 1.0, 6.0]), st.sampled_from([0, 3, 40, 99]))
@settings(max_examples=60, deadline=None)
def test_the_likeliest_ids_are_those_of_a_sort(n: int, seed: int, width: float, top_k: int) -> None:
    row = (np.random.default_rng(seed).standard_normal(n) * width).astype(np.float32)
    ids, log_p, n_drawn = likely(row, SamplingParams(temperature=0.7, top_k=top_k, top_p=1.0, min_p=0.0))
    wanted = [i for i in np.argsort(-row, kind="stable")[:40] if row[i] >= row.max() + np.log(1e-5)]
    assert ids.tolist() == wanted
    logits = row[wanted].astype(np.float64) / 0.7
    assert np.allclose(np.exp(log_p), np.exp(logits) / np.exp(logits).sum())
    assert n_drawn == min(top_k or len(wanted), len(wanted))
