"""The tiny models of the tests: llama.cpp loads them, their memory is of the kind that is said, their text varies."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from kit.tiny_models import N_CTX, NAMES, SPECIALS, WINDOW, Kind, make

from uad.base.config import ModelConfig
from uad.base.types import Rows
from uad.llama.context import Context, context_params
from uad.llama.model import Model

ENDING = b" 1234567890 the same."
"""More ids than the convolutions of a recurrent model reach back."""
N_SNAPSHOTS = 4


@pytest.fixture(scope="module", params=NAMES)
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    with Model(config(make(request.param, folder)), request.param) as loaded:
        yield loaded


@pytest.fixture
def context(model):
    with Context(model, config(model.path), 1) as opened:
        yield opened


def config(path: Path) -> ModelConfig:
    return ModelConfig(path, n_ctx=256, n_batch=64, n_threads=1)


def kind(model: Model) -> Kind:
    return NAMES[model.meta("general.architecture")]


@contextmanager
def with_snapshots(model: Model):
    """llama.cpp's handle of a context that was asked to keep snapshots."""
    params = context_params(config(model.path), 256, 1)
    params.n_rs_seq = N_SNAPSHOTS
    handle = lib.llama_init_from_model(model.handle, params)
    assert handle
    try:
        yield handle
    finally:
        lib.llama_free(handle)


def greedy(context: Context, prompt: list[int], n: int) -> list[int]:
    context.clear(0)
    ids, new = list(prompt), list(prompt)
    for _ in range(n):
        context.decode([Rows(0, len(ids) - len(new), new, 1)])
        new = [int(context.logits()[-1].argmax())]
        ids += new
    return ids[len(prompt) :]


def test_logits_of_forty_ids_are_finite_and_differ(model, context) -> None:
    ids = [(7 * i) % model.info.n_vocab for i in range(40)]
    context.decode([Rows(0, 0, ids, len(ids))])
    logits = context.logits()
    assert logits.shape == (40, model.info.n_vocab)
    assert np.isfinite(logits).all()
    assert logits.std(axis=1).min() > 0.5
    assert len({row.tobytes() for row in logits}) == 40


def test_greedy_text_varies_and_depends_on_what_lies_far_back(model, context) -> None:
    texts = []
    for beginning in (b"A river and a lantern wait in", b"12 + 34 = 46, and then"):
        ids = greedy(context, model.vocab.tokenize(beginning + ENDING), 32)
        assert len(set(ids)) > 8
        texts.append(b"".join(model.vocab.pieces[id_] for id_ in ids).decode())
    assert texts[0] != texts[1]
    assert all(text.isprintable() for text in texts)


def test_one_by_one_is_nearly_as_all_at_once(model, context) -> None:
    ids = model.vocab.tokenize(b"A river and a lantern, and 12 more.")
    context.decode([Rows(0, 0, ids, 1)])
    at_once = context.logits()[-1].copy()
    context.clear(0)
    for i, id_ in enumerate(ids):
        context.decode([Rows(0, i, [id_], 1)])
    # not the same bits: a single row has other kernels, and may choose another expert where two are close
    assert np.corrcoef(context.logits()[-1], at_once)[0, 1] > 0.9


def test_the_memory_is_of_the_kind(model, context) -> None:
    hybrid = kind(model).has_attention and kind(model).has_state
    assert lib.llama_model_is_hybrid(model.handle) == hybrid
    assert lib.llama_model_is_recurrent(model.handle) == (kind(model) is Kind.RECURRENT)
    assert lib.llama_model_n_swa(model.handle) == (WINDOW if kind(model) is Kind.SWA else 0)
    assert context.can_stop != kind(model).has_state


def test_snapshots_are_kept_where_the_kind_says_so(model) -> None:
    with with_snapshots(model) as handle:
        assert lib.llama_n_rs_seq(handle) == (N_SNAPSHOTS if kind(model) is Kind.SNAPSHOTS else 0)


def test_the_vocabulary_covers_all_text_and_has_a_chat_template(model) -> None:
    vocab, text = model.vocab, "A naïve river; 東京\t😀\n".encode()
    assert 300 <= model.info.n_vocab <= 600
    assert b"".join(vocab.pieces[id_] for id_ in vocab.tokenize(text)) == text
    assert len(vocab.tokenize(text)) < len(text)
    assert set(vocab.specials) == set(SPECIALS)
    assert vocab.eos == vocab.specials["<|im_end|>"]
    assert not vocab.add_bos
    assert "<|im_start|>" in model.info.chat_template
    assert model.info.n_ctx_train == N_CTX


@pytest.mark.parametrize("name", NAMES)
def test_a_name_and_a_seed_give_the_same_bytes(name, tmp_path) -> None:
    written = []
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / folder).mkdir()
        written.append(make(name, tmp_path / folder, seed).read_bytes())
    assert written[0] == written[1] != written[2]
    assert len(written[0]) < 2_000_000
    assert sorted(path.suffix for path in tmp_path.rglob("*.*")) == [".gguf"] * 3


def test_a_file_is_written_once(tmp_path) -> None:
    first = make("llama", tmp_path)
    stamp = first.stat().st_mtime_ns
    assert make("llama", tmp_path) == first
    assert first.stat().st_mtime_ns == stamp


def test_a_name_that_there_is_not_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="no tiny model 'lama'; there are llama, gemma3"):
        make("lama", tmp_path)
