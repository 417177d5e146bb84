"""`--backend-sampling`: the likeliest ids that llama.cpp finds beside its logits are those that the host finds, and so
are the texts.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from kit.models import DRAFTS, TARGET, chat_prompts, chat_requests, config, finish, quantized
from kit.tiny_models import make
from kit.toys import TARGET_VOCAB, ScriptedModel, make_engine, run

from uad.base.config import ModelConfig
from uad.base.errors import ConfigError
from uad.base.types import Request, Rows, SamplingParams, SpecPolicy, SpeculativeParams
from uad.llama import backend_sampling
from uad.llama.backend_sampling import MOST_ROWS, BackendSampling
from uad.llama.context import Context
from uad.llama.model import Model
from uad.runtime.runtime import Runtime

pytestmark = pytest.mark.model
CONFIG = ModelConfig(TARGET, n_ctx=1024, n_batch=128, n_threads=2, backend_sampling=True)
DRAFTED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=5, p_min=0.2)
PLAIN = SpeculativeParams(enabled=False)
REQUESTS = {
    "greedy": Request((), SamplingParams(temperature=0.0)),
    "drawn": Request((), SamplingParams(temperature=0.8, seed=5)),
    "few": Request((), SamplingParams(temperature=1.0, top_k=3, seed=6)),
    "many": Request((), SamplingParams(temperature=0.9, top_k=500, top_p=0.9, seed=7)),
    "any": Request((), SamplingParams(temperature=0.8, top_k=0, seed=8)),
    "penalties": Request((), SamplingParams(temperature=0.0, repeat_penalty=1.3)),
    "banned": Request((), SamplingParams(temperature=0.0, bad_words=((300,),))),
    "logprobs": Request((), SamplingParams(temperature=0.8, seed=9), logprobs=True, n_probs=3),
    "drawn logprobs": Request(
        (), SamplingParams(temperature=0.8, seed=9), logprobs=True, n_probs=3, post_sampling=True
    ),
}


@pytest.fixture(scope="module")
def model():
    with Model(CONFIG) as loaded:
        yield loaded


@pytest.fixture
def context(model):
    with Context(model, CONFIG, 2) as opened:
        yield opened


def likeliest(context: Context, n: int, ids, n_logits: int):
    context.want_likeliest(0, n)
    context.decode([Rows(0, 0, ids, n_logits)])
    rows = context.rows()
    context.clear(0)
    return rows


def with_equal_rows(source: Path, out: Path, same: tuple[tuple[int, int], ...]) -> Path:
    """A copy of a model whose ids of each pair have the same logits."""
    shutil.copy(source, out)
    reader = GGUFReader(out, "r+")
    tensor = next(one for one in reader.tensors if one.name == "token_embd.weight")
    assert tensor.data.shape[0] > max(max(pair) for pair in same)
    for a, b in same:
        tensor.data[a] = tensor.data[b]
    reader.data.flush()
    return out


def test_the_likeliest_id_of_every_row_is_the_hosts(model, context) -> None:
    ids = model.vocab.tokenize(b"def add(self, item):\n    return")
    whole = np.array(likeliest(context, 0, ids, len(ids)))
    found = likeliest(context, 1, ids, len(ids))
    assert [(int(ids[0]), len(ids)) for ids, _ in found] == [(int(row.argmax()), 1) for row in whole]


def test_top_k_finds_the_k_likeliest_with_their_logits(model, context) -> None:
    ids = model.vocab.tokenize(b"class Cart:\n    pass")
    whole = np.array(likeliest(context, 0, ids, 4))
    for k in (2, 40, 200):
        for row, (found, logits) in zip(whole, likeliest(context, k, ids, 4), strict=True):
            assert set(np.argsort(-row)[:k]) <= set(found)
            assert np.array_equal(row[found], logits)


def test_of_equal_logits_the_first_is_found_as_on_the_host(tmp_path: Path) -> None:
    ids = [(31 * i + 300) % 4000 for i in range(24)]
    with Model(CONFIG) as model, Context(model, CONFIG, 1) as context:
        best = [int(row.argmax()) for row in likeliest(context, 0, ids, 24)]
    wanted = sorted(set(best))
    pairs = tuple((other, one) for one in wanted for other in (one - 1, one + 1) if other not in wanted)
    own = replace(CONFIG, path=with_equal_rows(TARGET, tmp_path / "equal.gguf", pairs))
    with Model(own) as model, Context(model, own, 1) as context:
        whole = np.array(likeliest(context, 0, ids, 24))
        ties = [int((row == row.max()).sum()) for row in whole]
        assert max(ties) >= 3, "the model has equal logits"
        found = [int(ids[0]) for ids, _ in likeliest(context, 1, ids, 24)]
        assert found == [int(row.argmax()) for row in whole]


def test_rows_whose_logits_are_equal_are_decoded_again_for_top_k(tmp_path: Path) -> None:
    with Model(CONFIG) as model, Context(model, CONFIG, 1) as context:
        first = int(likeliest(context, 0, (300, 301), 1)[0].argmax())
    own = replace(CONFIG, path=with_equal_rows(TARGET, tmp_path / "equal.gguf", ((first + 1, first),)))
    with Model(own) as model, Context(model, own, 1) as context:
        decodes, decode = [], context.decode

        def counted(rows):
            decodes.append(rows)
            decode(rows)

        context.decode = counted
        expected = likeliest(context, 0, (300, 301), 1)[0].copy()
        assert expected[first] == expected[first + 1]
        assert len(decodes) == 1
        context.want_likeliest(0, 40)
        context.decode([Rows(0, 0, (300, 301), 1)])
        assert np.array_equal(context.rows()[0], expected)
        assert len(decodes) == 3
        assert context.memory.states.end(0) == 2
        context.clear(0)
        (likely,) = likeliest(context, 40, (300, 302), 1)
        assert isinstance(likely, tuple), "and the next rows are sampled again"


def test_some_sequences_are_sampled_and_others_are_not(model, context) -> None:
    a, b = model.vocab.tokenize(b"def add(self, item):\n"), model.vocab.tokenize(b"class Cart")
    both = [Rows(0, 0, a, 3), Rows(1, 0, b, 2)]
    context.decode(both)
    whole = context.logits().copy()
    context.clear(0), context.clear(1)
    context.want_likeliest(1, 1)
    context.decode(both)
    rows = context.rows()
    assert np.array_equal(np.stack(rows[:3]), whole[:3])
    assert [int(ids[0]) for ids, _ in rows[3:]] == whole[3:].argmax(axis=1).tolist()
    assert np.array_equal(context.logits(), whole), "and all of them can still be had"


def test_many_rows_of_a_sequence_are_whole(context) -> None:
    ids = [7 * i + 300 for i in range(MOST_ROWS + 1)]
    assert all(isinstance(row, tuple) for row in likeliest(context, 1, ids, MOST_ROWS))
    rows = likeliest(context, 1, ids, MOST_ROWS + 1)
    assert isinstance(rows, np.ndarray)
    assert len(rows) == MOST_ROWS + 1


def test_a_backend_that_finds_others_is_not_used(model, monkeypatch) -> None:
    found = BackendSampling.likeliest

    def wrong(self, rows, at):
        return [(ids + 1, logits) for ids, logits in found(self, rows, at) or []]

    monkeypatch.setattr(BackendSampling, "likeliest", wrong)
    with Context(model, CONFIG, 2) as context:
        assert any("has no effect" in note for note in context.notes)
        assert isinstance(likeliest(context, 1, (300, 301), 1), np.ndarray)


def test_a_device_that_cannot_sort_leaves_top_k_to_the_host(model, monkeypatch) -> None:
    monkeypatch.setattr(backend_sampling.binding, "llama_get_sampled_candidates_count_ith", lambda *_: 0)
    with Context(model, CONFIG, 1) as context:
        assert not any("has no effect" in note for note in context.notes)
        assert isinstance(likeliest(context, 40, (300, 301), 1), np.ndarray)
        ((found, _),) = likeliest(context, 1, (300, 301), 1)
        assert found == likeliest(context, 0, (300, 301), 1)[0].argmax()


def test_a_binding_without_it_is_named(model, monkeypatch) -> None:
    monkeypatch.delattr(backend_sampling.binding, "llama_set_sampler")
    with pytest.raises(ConfigError, match=r"--backend-sampling.*lacks llama_set_sampler"):
        Context(model, CONFIG, 1)


@pytest.mark.parametrize("name", ["swa", "recurrent"])
def test_memories_that_cannot_decode_rows_again_leave_top_k_to_the_host(name: str, tmp_path: Path) -> None:
    kinds = {"swa": "gemma3", "recurrent": "mamba"}
    own = replace(CONFIG, path=make(kinds[name], tmp_path))
    with Model(own) as model, Context(model, own, 1) as context:
        whole = np.array(likeliest(context, 0, (5, 6, 7), 3))
        assert [int(ids[0]) for ids, _ in likeliest(context, 1, (5, 6, 7), 3)] == whole.argmax(axis=1).tolist()
        assert np.array_equal(likeliest(context, 40, (5, 6, 7), 3), whole)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        *{"greedy": 1, "drawn": 40, "few": 3, "many": 500, "drawn logprobs": 40}.items(),
        *((name, 0) for name in ("any", "penalties", "banned", "logprobs")),
    ],
)
def test_a_request_says_how_many_of_the_likeliest_it_needs(name: str, n: int) -> None:
    target = ScriptedModel(TARGET_VOCAB, n_seq=2)
    target.wanted = [7, 7]
    request = replace(REQUESTS[name], prompt=(1, 2, 3), max_tokens=4)
    run(make_engine(target), [request])
    assert sorted(target.wanted) == sorted([n, 7])


def test_a_request_that_must_not_end_yet_needs_whole_rows() -> None:
    target = ScriptedModel(TARGET_VOCAB)
    target.wanted = [7]
    run(make_engine(target), [replace(REQUESTS["greedy"], prompt=(1, 2, 3), max_tokens=4, min_tokens=2)])
    assert target.wanted == [0]


def texts(folder: Path, slots: int, is_on: bool):
    its = config(quantized("q8_0", folder), DRAFTS["zephyr"], slots=slots, n_ctx=1024)
    its = replace(its, target=replace(its.target, backend_sampling=is_on))
    out = {}
    with Runtime.open(its) as runtime:
        assert any(note.startswith("--backend-sampling") for note in runtime.info.notes) == is_on
        for drafts in (PLAIN, DRAFTED):
            requests = [
                replace(chat_requests(runtime, [prompt], replace(one, max_tokens=24, speculative=drafts))[0])
                for one, prompt in zip(REQUESTS.values(), chat_prompts(len(REQUESTS)), strict=True)
            ]
            for name, waiter in zip(REQUESTS, finish(runtime, requests), strict=True):
                out[name, drafts.enabled] = waiter.ids, [one for delta in waiter.deltas for one in delta.probs]
    return out


@pytest.mark.parametrize("slots", [1, 4])
def test_texts_are_those_of_whole_rows(slots: int, tmp_path: Path) -> None:
    expected, found = texts(tmp_path, slots, False), texts(tmp_path, slots, True)
    assert {name for name in expected if found[name][0] != expected[name][0]} == set()
    if slots == 1:
        assert {name for name in expected if found[name][1] != expected[name][1]} == set()


def test_with_exact_the_host_looks_at_whole_rows() -> None:
    its = config(draft=None, exact=True)
    with Runtime.open(replace(its, target=replace(its.target, backend_sampling=True))) as runtime:
        assert "--backend-sampling has no effect with --exact" in runtime.info.notes
