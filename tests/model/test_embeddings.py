"""Embedding models: vectors beside llama.cpp's kernels, poolings, bits in any company, tokens, ranks, and an embedder's
life.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from kit.embedding_models import NAMES, make, pooling_of
from kit.models import TARGET
from kit.tiny_models import WORDS

from uad.base.common.embedding import Vectors
from uad.base.config import Config, EmbeddingConfig, ModelConfig
from uad.base.errors import ConfigError, DecodeError, UnavailableError
from uad.llama.embedding import CHUNK, EmbeddingContext
from uad.llama.kernels import use
from uad.llama.model import Model
from uad.runtime.embedder import EmbeddingRuntime

pytestmark = pytest.mark.model
POOLED = ("mean", "cls", "last")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embedding-models")


@contextmanager
def opened(path: Path, pooling: str = "", kernels: bool = True) -> Iterator[EmbeddingContext]:
    config = ModelConfig(path=path, embeds=True, kernels=kernels, n_threads=2)
    with Model(config, "target") as model, EmbeddingContext(model, config, pooling) as context:
        yield context


def some_ids(n_vocab: int, seed: int, n: int, longest: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(n_vocab) for _ in range(rng.randint(1, longest))] for _ in range(n)]


def cosine(a: Vectors, b: Vectors) -> float:
    x, y = (rows.astype(np.float64).ravel() for rows in (a, b))
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pooling", [*POOLED, "none"])
def test_vectors_are_those_of_llama_cpps_kernels(folder: Path, name: str, pooling: str) -> None:
    path = make(name, folder)
    with opened(path, pooling) as context, opened(path, pooling, kernels=False) as other:
        assert context.pooling == other.pooling == pooling
        for ids in some_ids(context.model.info.n_vocab, 1, 6, 300):
            (ours,), (theirs,) = context.embed([ids]), other.embed([ids])
            assert ours.shape == (len(ids) if pooling == "none" else 1, 64)
            assert cosine(ours, theirs) > 0.9999


@pytest.mark.parametrize("name", NAMES)
def test_a_pooled_vector_is_made_of_the_rows_of_its_text(folder: Path, name: str) -> None:
    path = make(name, folder)
    ids = some_ids(200, 2, 1, 1)[0] * 3 + [7, 11, 13]
    with opened(path, "none") as context:
        (rows,) = context.embed([ids])
    for pooling, expected in (("mean", rows.mean(axis=0)), ("cls", rows[0]), ("last", rows[-1])):
        with opened(path, pooling) as context:
            (found,) = context.embed([ids])
        assert found[0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_how_rows_are_pooled(folder: Path, name: str) -> None:
    with opened(make(name, folder)) as context:
        assert context.pooling == pooling_of(name)


@pytest.mark.parametrize("name", NAMES)
def test_texts_share_passes_in_uads_kernels_alone(folder: Path, name: str) -> None:
    with opened(make(name, folder)) as context:
        assert context.n_together > 1 or not use.keep_rows(ModelConfig(path=context.model.path))
    with opened(make(name, folder), kernels=False) as context:
        assert context.n_together == 1


def embedded(runtime: EmbeddingRuntime, texts: Sequence[list[int]], size: int) -> list[Vectors]:
    """Vectors of the texts, in requests of this size that all wait together."""
    futures = [runtime.embedder.embed(texts[start : start + size]) for start in range(0, len(texts), size)]
    return [rows for future in futures for rows in future.result(300)]


@pytest.mark.parametrize(
    ("name", "kernels", "n"),
    [("bert", True, 1000), *((name, True, 120) for name in NAMES[1:]), ("bert", False, 120), ("qwen3", False, 60)],
)
def test_a_text_has_the_same_bits_alone_and_in_any_company(folder: Path, name: str, kernels: bool, n: int) -> None:
    config = Config(target=ModelConfig(path=make(name, folder), kernels=kernels, n_threads=2))
    with EmbeddingRuntime(config, lambda what, share: None) as runtime:
        texts = some_ids(runtime.info.target.n_vocab, 3, n, 60) + some_ids(runtime.info.target.n_vocab, 4, 5, 500)
        alone = [runtime.embedder.embed([ids]).result(60)[0] for ids in texts]
        for size in (7, 64):
            assert all(map(np.array_equal, alone, embedded(runtime, texts, size))), size
        totals, _ = runtime.embedder.work()
        assert totals.n_requests == 3 * len(texts)
        assert (totals.n_decodes < totals.n_requests) == (runtime.embedder._passes.context.n_together > 1)


# --- tokens

SAID = (
    "",
    "water",
    "  Water,  and\tmore\n\nwater!",
    "a café in 東京, naïve",
    "[SEP] </s> <s>text[CLS]",
    "1234 " + " ".join(WORDS.split()),
    "\u200b\U0001f600 x\r\n",
)


@pytest.mark.parametrize("name", ["bert", "gemma-embedding", "qwen3", "modern-bert"])
@pytest.mark.parametrize("text", SAID)
def test_a_text_has_llama_cpps_tokens(folder: Path, name: str, text: str) -> None:
    config = Config(target=ModelConfig(path=make(name, folder)))
    params = lib.llama_model_default_params()
    params.vocab_only = True
    handle = lib.llama_model_load_from_file(str(config.target.path).encode(), params)
    data, ids = text.encode(), (ctypes.c_int32 * 4096)()
    n = lib.llama_tokenize(lib.llama_model_get_vocab(handle), data, len(data), ids, 4096, True, True)
    lib.llama_model_free(handle)
    with EmbeddingRuntime(config, lambda what, share: None) as runtime:
        assert runtime.embedder.ids(text) == ids[:n]


def test_a_text_that_is_cut_ends_as_texts_do(folder: Path) -> None:
    with EmbeddingRuntime(Config(target=ModelConfig(path=make("bert", folder))), lambda what, share: None) as runtime:
        ids = runtime.embedder.ids("water " * 1000)
        cut = runtime.embedder.cut(ids)
        assert (len(cut), cut[0], cut[-1]) == (512, ids[0], ids[-1])
        assert cut[:-1] == ids[:511]


# --- ranks


@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_scores_have_the_order_of_llama_cpps_kernels(folder: Path, name: str) -> None:
    path, documents = make(name, folder, "rank"), ["water", "green tea", "a house of glass", "street after street"]
    orders = []
    for kernels in (True, False):
        with EmbeddingRuntime(Config(target=ModelConfig(path=path, kernels=kernels)), lambda *_: None) as runtime:
            pairs = [runtime.embedder.pair("water", document) for document in documents]
            scores = [float(rows[0, 0]) for rows in runtime.embedder.embed(pairs).result(60)]
            orders.append(sorted(range(4), key=lambda i, own=scores: own[i]))  # type: ignore[misc]
    assert orders[0] == orders[1]


def test_a_pair_is_put_together_as_llama_server_does(folder: Path) -> None:
    config = Config(target=ModelConfig(path=make("bert", folder, "rank")))
    with EmbeddingRuntime(config, lambda what, share: None) as runtime:
        query, document = (runtime.embedder.ids(text)[1:-1] for text in ("water", "green tea"))
        bos, *_, sep = runtime.embedder.ids("water")
        assert runtime.embedder.facts.ranks
        assert runtime.embedder.pair("water", "green tea") == [bos, *query, sep, *document] or runtime.embedder.pair(
            "water", "green tea"
        ) == [bos, *query, sep, sep, *document, sep]


def test_a_model_without_a_classifier_ranks_nothing(folder: Path) -> None:
    config = Config(target=ModelConfig(path=make("bert", folder)), embedding=EmbeddingConfig(ranks=True))
    with pytest.raises(ConfigError, match="no classifier"):
        EmbeddingRuntime(config, lambda what, share: None)


# --- life


def test_a_model_that_writes_embeds_where_that_is_asked_for() -> None:
    config = Config(target=ModelConfig(path=TARGET), embedding=EmbeddingConfig(is_on=True, pooling="mean"))
    with EmbeddingRuntime(config, lambda what, share: None) as runtime:
        (rows,) = runtime.embedder.embed([runtime.embedder.ids("Once upon a time")]).result(60)
        assert rows.shape == (1, runtime.info.target.n_embd)


def test_after_sleep_the_bits_are_the_same(folder: Path) -> None:
    with EmbeddingRuntime(Config(target=ModelConfig(path=make("nomic-bert", folder))), lambda *_: None) as runtime:
        texts = some_ids(200, 5, 10, 50)
        before = runtime.embedder.embed(texts).result(60)
        for i in range(2):
            runtime.fall_asleep()
            while not runtime.embedder.sleeper.is_unloaded:
                threading.Event().wait(0.001)
            if i == 0:  # the second time the texts wake it
                runtime.wake().result(60)
            assert all(map(np.array_equal, before, runtime.embedder.embed(texts).result(60)))
        assert runtime.sleep.n_wakes == 2


def test_a_text_without_numbers_fails_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddingRuntime(Config(target=ModelConfig(path=make("bert", folder))), lambda *_: None) as runtime:
        context = runtime.embedder._passes.context
        embed = context.embed

        def broken(texts: Sequence[list[int]]) -> list[Vectors]:
            if any(ids[0] == 13 for ids in texts):
                raise DecodeError("NaN")
            return embed(texts)

        gate = threading.Event()
        runtime.embedder.commands.post(lambda: gate.wait(10))
        monkeypatch.setattr(context, "embed", broken)
        good, bad = runtime.embedder.embed([[5, 6]]), runtime.embedder.embed([[13, 6]])
        gate.set()
        assert good.result(60)[0].shape == (1, 64)
        with pytest.raises(DecodeError):
            bad.result(60)


def test_once_closed_nothing_waits_for_ever(folder: Path) -> None:
    runtime = EmbeddingRuntime(Config(target=ModelConfig(path=make("bert", folder))), lambda what, share: None)
    gate = threading.Event()
    runtime.embedder.commands.post(lambda: gate.wait(10))
    waiting = runtime.embedder.embed([[5, 6]])
    closing = threading.Thread(target=runtime.close)
    closing.start()
    gate.set()
    closing.join(60)
    assert waiting.done()
    with pytest.raises(UnavailableError):
        runtime.embedder.embed([[5]])
    runtime.close()


def test_texts_are_as_long_as_the_model_or_the_flags_allow(folder: Path) -> None:
    for config, n in (
        (ModelConfig(path=make("bert", folder), n_ctx=4096), 512),  # its positions are learned
        (ModelConfig(path=make("nomic-bert", folder), n_ctx=1024), 1024),
        (ModelConfig(path=make("nomic-bert", folder), n_ubatch=128, n_batch=128), 128),
        (ModelConfig(path=make("qwen3", folder), n_ubatch=64), 512),
    ):
        with EmbeddingRuntime(Config(target=config), lambda what, share: None) as runtime:
            assert runtime.embedder.facts.n_most == n
            (rows,) = runtime.embedder.embed([[5] * n]).result(60)
            assert np.isfinite(rows).all()
    assert CHUNK == 256
