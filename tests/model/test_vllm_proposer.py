"""The class that vLLM makes, with vLLM's modules scripted and a bundled draft model: the target's vocabulary comes from
its tokenizer.json alone.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from kit.tokenizer_files import byte_level
from kit.vocab_kit import TEXTS, encoder, path_of, vocab
from tokenizers import Tokenizer

from uad.base.errors import ConfigError
from uad.base.types import GREEDY, Ask, Commit
from uad.text.vocab.encode import Encoder
from uad.text.vocab.hf_table import HfVocab, hf_table
from uad.vllm import Proposer
from uad.vllm.opened import open_drafters
from uad.vllm.proposer import TRIED, vocab_of
from uad.vllm.settings import read_settings

pytestmark = pytest.mark.model
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MAX_LEN = 600


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_file(str(byte_level("target-chatml", tmp_path_factory.mktemp("t") / "tokenizer.json")))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> SimpleNamespace:
    """vLLM's modules, and its configuration. `rank`, `version` and `is_cpu` may be changed."""
    own = vocab("target-chatml")
    engine = SimpleNamespace(rank=0, version=TRIED[0], is_cpu=True, n_mended=0)

    def module(name: str, **members: object) -> None:
        made = ModuleType(name)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)

    hf = SimpleNamespace(backend_tokenizer=tokenizer, bos_token_id=None, eos_token_id=own.eos, chat_template=TEMPLATE)
    module("vllm")
    sys.modules["vllm"].__getattr__ = lambda name: engine.version  # type: ignore[method-assign]
    module("vllm.tokenizers", cached_tokenizer_from_config=lambda config: hf)
    module("vllm.distributed", get_tensor_model_parallel_rank=lambda: engine.rank)
    module("vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: engine.is_cpu))

    def mended() -> bool:
        engine.n_mended += 1
        return True

    monkeypatch.setattr("uad.vllm.proposer.mend_sampling", mended)  # needs vLLM's kernels: tests/real has it
    engine.model = SimpleNamespace(
        model="some/model",
        max_model_len=MAX_LEN,
        get_vocab_size=lambda: own.n_vocab,
        try_get_generation_config=lambda: {"eos_token_id": [own.eos]},
    )
    engine.config = SimpleNamespace(
        model_config=engine.model,
        speculative_config=SimpleNamespace(num_speculative_tokens=6),
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
    )
    return engine


def environ(**more: str) -> dict[str, str]:
    return {
        "UAD_DRAFT": str(path_of("draft-zephyr")),
        "LLAMA_ARG_SPEC_TYPE": "draft-simple",
        "LLAMA_ARG_SPEC_POLICY": "fixed",
        "LLAMA_ARG_SPEC_DRAFT_P_MIN": "0",
        "LLAMA_ARG_THREADS": "1",
        **more,
    }


def test_the_tokenizer_alone_gives_the_table_of_the_gguf(engine: SimpleNamespace) -> None:
    own, table = vocab("target-chatml"), hf_table(vocab_of(engine.model))
    assert table.pieces == own.pieces
    assert table.specials == own.specials
    assert (table.eos, table.eog) == (own.eos, frozenset([own.eos]))  # what ends answers is the engine's to say
    for text in TEXTS.values():
        assert Encoder(table).encode(text) == encoder("target-chatml").encode(text)


def test_padding_of_the_output_layer_stands_for_nothing(tokenizer: Tokenizer) -> None:
    own = vocab("target-chatml")
    table = hf_table(HfVocab("m", tokenizer.to_str(), own.n_vocab + 100))
    assert table.n_vocab == own.n_vocab + 100
    assert set(table.pieces[own.n_vocab :]) == {b""}


@pytest.mark.parametrize("spec", ["{", "[]", "{}"])
def test_what_is_no_tokenizer_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="tokenizer of m"):
        hf_table(HfVocab("m", spec))


def test_drafts_are_those_of_uad_s_own_drafter_on_the_target_s_gguf(engine: SimpleNamespace) -> None:
    own = vocab("target-chatml")
    start, end = own.specials["<|im_start|>"], own.specials["<|im_end|>"]
    words = encoder("target-chatml").encode(TEXTS["code"][:1500])
    prompt = [start, *encoder("target-chatml").encode(b"user\nWrite code."), end, start, *words[:40]]
    proposer = Proposer(engine.config, environ())
    opened = open_drafters(read_settings("m", environ()).config, own, TEMPLATE, MAX_LEN)
    drafter = opened.model
    assert drafter is not None
    try:
        ids, n = np.zeros((1, MAX_LEN), np.int32), len(prompt)
        ids[0, :n] = prompt
        new, n_drafted, n_right = [prompt[-1]], 0, 0
        drafter.begin(0, prompt, GREEDY)
        for at in range(40, 160):
            (draft,) = proposer.propose([new], np.array([n], np.int32), ids)
            (expected,) = drafter.propose([Ask(0, 6, p_min=0.0, n_read=256)])
            assert draft == list(expected.ids)
            n_drafted, n_right = n_drafted + len(draft), n_right + (draft[:1] == [words[at]])
            new = [words[at]]
            ids[0, n : n + 1] = new
            n += 1
            drafter.observe(Commit(0, tuple(new)))
        assert n_drafted > 300
        assert n_right > 10
    finally:
        opened.stack.close()
        proposer._finalizer()


def test_only_the_worker_that_is_asked_for_drafts_opens_a_draft_model(engine: SimpleNamespace) -> None:
    engine.rank = 1
    proposer = Proposer(engine.config, environ())
    assert proposer._thread is None
    assert proposer.propose([[1], [2]], np.ones(2, np.int32), np.ones((2, 8), np.int32)) == [[], []]
    assert proposer.load_model(None) is None


def test_another_version_of_vllm_is_refused_unless_it_is_to_be_tried(engine: SimpleNamespace) -> None:
    engine.version, engine.rank = "0.99.1", 1
    with pytest.raises(ConfigError, match=r"0\.99\.1.*UAD_VLLM_UNTRIED=1"):
        Proposer(engine.config, environ())
    Proposer(engine.config, environ(UAD_VLLM_UNTRIED="1"))


def test_without_anything_that_drafts_it_says_what_to_name(engine: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match="UAD_DRAFT"):
        Proposer(engine.config, {})


@pytest.mark.parametrize("is_cpu", [True, False])
def test_sampling_is_mended_on_cpus_and_said(
    engine: SimpleNamespace, is_cpu: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engine.is_cpu = is_cpu
    Proposer(engine.config, environ())._finalizer()
    assert engine.n_mended == is_cpu
    assert ("loses temperature" in caplog.text) == is_cpu


def test_drafting_ahead_leaves_drafts_as_they_are(engine: SimpleNamespace) -> None:
    """A text that repeats itself: the draft is right for long, so what it wrote ahead is used."""
    text = encoder("target-chatml").encode(b"one two three four five six seven\n" * 12)
    proposals: dict[str, list[list[int]]] = {}
    for ahead in ("off", "on"):
        proposer = Proposer(engine.config, environ(UAD_VLLM_AHEAD=ahead))
        ids, n = np.zeros((1, MAX_LEN), np.int32), 100
        ids[0, :n] = text[:n]
        found = proposals[ahead] = []
        new = text[n - 1 : n]
        while n < min(len(text), MAX_LEN) - 8:
            (draft,) = proposer.propose([new], np.array([n], np.int32), ids)
            found.append(draft)
            n_right = next((i for i, id_ in enumerate(draft) if id_ != text[n + i]), len(draft))
            new = text[n : n + n_right + 1]
            ids[0, n : n + len(new)] = new
            n += len(new)
        proposer._finalizer()
    agreed = sum(one[:1] == other[:1] for one, other in zip(proposals["off"], proposals["on"], strict=False))
    assert agreed > 0.8 * len(proposals["off"])
