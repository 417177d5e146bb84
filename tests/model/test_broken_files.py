"""Files whose metadata are wrong: each is refused with the name of the file, the key and the way out, or has a sensible
value and a line about it. No traceback, and no exit code that has a supervisor start again and again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kit.broken_files import BOOL, F32, I32, TEXT, U32, Change, rewritten
from kit.models import config, finish
from kit.process import uad
from kit.tiny_models import N_CTX, SPECIALS, make
from kit.vocab_makers import CONTROL, NORMAL

from uad.base.config import Config, KvOverride, ModelConfig
from uad.base.errors import ModelLoadError
from uad.base.gguf import GgufFile
from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.llama.footprint import Footprint
from uad.llama.model import Model, check_vocabulary
from uad.llama.vocab import load_vocab
from uad.runtime.runtime import Runtime

EOS, BOS = "tokenizer.ggml.eos_token_id", "tokenizer.ggml.bos_token_id"
COMMA = 11  # llama.cpp's EOS of BPE where it finds none
TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
LENGTH = "llama.context_length"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("llama", tmp_path_factory.mktemp("broken"))


@pytest.fixture(scope="module")
def endless(tiny: Path) -> Path:
    """A model without any token that could end an answer."""
    tokens = [f"other{i}" if text in SPECIALS else text for i, text in enumerate(tokens_of(tiny))]
    changes: dict[str, Change] = {EOS: None, TOKENS: (TEXT, tokens), TYPES: (I32, [NORMAL] * len(tokens))}
    return rewritten(tiny, tiny.with_name("endless.gguf"), changes)


def tokens_of(model: Path) -> list[str]:
    with GgufFile(model) as file:
        return file.texts(TOKENS)


REFUSED: dict[str, tuple[dict[str, Change], str]] = {
    "no context length": ({LENGTH: None}, rf"key not found in model: {LENGTH}\); --override-kv {LENGTH}=TYPE:VALUE"),
    "a context length of text": (
        {LENGTH: (TEXT, "4096")},
        rf"{LENGTH} has wrong type str .*--override-kv {LENGTH}=int:",
    ),
    "a context length below 0": ({LENGTH: (I32, -5)}, rf"{LENGTH} has wrong type i32 .*--override-kv {LENGTH}=int:"),
    "context lengths": ({LENGTH: (U32, [4096])}, rf"{LENGTH} has wrong type arr .*--override-kv {LENGTH}=int:"),
    "a fraction as context length": ({LENGTH: (F32, 4096.5)}, rf"{LENGTH} has wrong type f32 .*=int:VALUE"),
    "no block count": ({"llama.block_count": None}, "key not found in model: llama.block_count"),
    "more blocks than there are": ({"llama.block_count": (U32, 3)}, r"blk\.2\..* not found"),
    "no heads": ({"llama.attention.head_count": (U32, 0)}, r"attn_q.weight' has wrong shape"),
    "heads left out": ({"llama.attention.head_count": None}, "wrong shape"),
    "three heads": ({"llama.attention.head_count": (U32, 3)}, "wrong shape"),
    "no heads of keys": ({"llama.attention.head_count_kv": (U32, 0)}, r"attn_k.weight' has wrong shape"),
    "too many heads of keys": ({"llama.attention.head_count_kv": (U32, 7)}, "wrong shape"),
    "no width": ({"llama.embedding_length": (U32, 0)}, r"token_embd.weight' has wrong shape"),
    "another width": ({"llama.embedding_length": (U32, 128)}, "wrong shape"),
    "no inner width": ({"llama.feed_forward_length": (U32, 0)}, "wrong shape"),
    "no epsilon": (
        {"llama.attention.layer_norm_rms_epsilon": None},
        "key not found in model: llama.attention.layer_norm",
    ),
    "rope over nothing": ({"llama.rope.dimension_count": (U32, 0)}, "invalid n_rot: 0"),
    "rope over an odd number": ({"llama.rope.dimension_count": (U32, 31)}, "invalid n_rot: 31"),
    "keys of no width": ({"llama.attention.key_length": (U32, 0)}, "wrong shape"),
    "an unknown architecture": (
        {"general.architecture": (TEXT, "nosuch")},
        "'nosuch'.*; a newer llama-cpp-python than",
    ),
    "a projector": ({"general.architecture": (TEXT, "clip")}, "projector of images beside a model"),
    "a name that is a number": ({"general.name": (U32, 3)}, "general.name has wrong type.*=str:VALUE"),
    "no tokens": ({TOKENS: None}, "cannot find tokenizer vocab"),
    "fewer tokens than rows": (
        {TOKENS: (TEXT, ["a", "b"]), TYPES: (I32, [1, 1])},
        "",
    ),
    "no kind of tokenizer": ({"tokenizer.ggml.model": None}, "key not found in model: tokenizer.ggml.model"),
    "an unknown tokenizer": ({"tokenizer.ggml.model": (TEXT, "zzz")}, "unknown tokenizer: 'zzz'"),
    "an unknown pre-tokenizer": ({"tokenizer.ggml.pre": (TEXT, "zzz")}, "'zzz'.*; a newer llama-cpp-python than"),
    "no merges": ({"tokenizer.ggml.merges": None}, "cannot find tokenizer merges"),
    "few types": ({TYPES: (I32, [1])}, "Index out of array bounds"),
    "types as text": ({TYPES: (TEXT, ["a"])}, "invalid gguf type"),
    "an end by its name": ({EOS: (TEXT, "</s>")}, rf"{EOS} has wrong type str .*=int:VALUE"),
    "an end below 0": ({EOS: (I32, -1)}, rf"{EOS} has wrong type i32 .*=int:VALUE"),
    "a beginning as text": (
        {"tokenizer.ggml.add_bos_token": (TEXT, "yes")},
        "add_bos_token has wrong type.*=bool:VALUE",
    ),
    "an alignment of 0": ({"general.alignment": (U32, 0)}, "cannot load it"),
    "an encoder": ({"llama.attention.causal": (BOOL, False)}, "an encoder model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_file_key_and_way_out(name: str, tiny: Path, tmp_path: Path) -> None:
    changes, words = REFUSED[name]
    file = rewritten(tiny, tmp_path / "broken.gguf", changes)
    for role in ("target", "draft"):
        with pytest.raises(ModelLoadError, match=f"{role} {file}: (llama.cpp cannot load it|an encoder)") as caught:
            Model(ModelConfig(file), role)
        if role == "target":
            assert not words or caught.match(words)
        else:
            assert "--override-kv" not in str(caught.value), "a flag for the target only"
    if name != "an encoder":  # which memory is reckoned for, before its weights say what it is
        with pytest.raises(ModelLoadError, match=f"target {file}: llama.cpp cannot load it"):
            looked_at(file)


def looked_at(file: Path) -> None:
    """All that `uad plan` has llama.cpp read of a target."""
    Footprint(ModelConfig(file), "target", 1).close()
    check_vocabulary(ModelConfig(file), "target")


def test_the_value_that_the_message_asks_for_mends_the_file(tiny: Path, tmp_path: Path) -> None:
    file = rewritten(tiny, tmp_path / "broken.gguf", {LENGTH: None, EOS: (TEXT, "</s>")})
    end = load_vocab(tiny).eos
    assert end is not None
    with Model(ModelConfig(file, overrides=(KvOverride(LENGTH, 512), KvOverride(EOS, end)))) as model:
        assert model.info.n_ctx_train == 512
        assert model.vocab.eos == end


GIVEN_UP = {
    "no blocks": ({"llama.block_count": (U32, 0)}, "n_layer_all"),
    "an epsilon that is no number": ({"llama.attention.layer_norm_rms_epsilon": (F32, float("nan"))}, "eps >= 0"),
}


@pytest.mark.parametrize("name", GIVEN_UP)
def test_what_llama_cpp_gives_up_on_at_start_is_no_reason_to_start_again(name: str, tiny: Path, tmp_path: Path) -> None:
    changes, words = GIVEN_UP[name]
    file = rewritten(tiny, tmp_path / "broken.gguf", changes)
    done = uad("generate", "-m", str(file), "-p", "x", "-t", "1", timeout=120)
    *_, last = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert last.startswith(f"uad: error: llama.cpp gave up over target {file}: ")
    assert words in last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("length", [0, 2**31, 2**32 - 1])
@pytest.mark.parametrize("fit", [True, False])
def test_a_context_length_that_cannot_be_is_replaced_and_told(
    length: int, fit: bool, tiny: Path, tmp_path: Path
) -> None:
    file = rewritten(tiny, tmp_path / "broken.gguf", {LENGTH: (U32, length)})
    pair = Config(ModelConfig(file, n_threads=1), ModelConfig(file, n_threads=1), fit=fit)
    with Runtime.open(pair) as runtime:
        assert runtime.info.n_ctx == N_CTX == 4096
        for role in ("target", "draft"):
            told = f"the {role} {file} says {LENGTH} = {length}, which cannot be: 4096 is assumed"
            assert sum(note.startswith(told) for note in runtime.info.notes) == 1
        finish(runtime, [Request((1, 2, 3), max_tokens=8)])


@pytest.mark.parametrize("n_ctx", [1, 2, 255])
def test_a_context_of_a_few_tokens_is_as_large_as_llama_cpp_makes_it(n_ctx: int, tiny: Path, tmp_path: Path) -> None:
    file = rewritten(tiny, tmp_path / "short.gguf", {LENGTH: (U32, n_ctx)})
    with Runtime.open(Config(ModelConfig(file, n_threads=1), ModelConfig(file, n_threads=1))) as runtime:
        assert runtime.info.n_ctx == 256
        finish(runtime, [Request((1, 2, 3), max_tokens=8)])
    with Runtime.open(Config(ModelConfig(tiny, n_ctx=n_ctx, n_threads=1))) as runtime:
        assert runtime.info.n_ctx == 256


def test_a_model_that_computes_no_numbers_is_told(tiny: Path, tmp_path: Path) -> None:
    file = rewritten(tiny, tmp_path / "noise.gguf", {"llama.rope.freq_base": (F32, 0.0)})
    with Runtime.open(Config(ModelConfig(file, n_threads=1), ModelConfig(file, n_threads=1))) as runtime:
        told = [note for note in runtime.info.notes if "computes no numbers (NaN)" in note]
    assert [note.split()[:3] for note in told] == [["the", role, str(file)] for role in ("target", "draft")]
    with Runtime.open(Config(ModelConfig(tiny, n_threads=1))) as runtime:
        assert not any("NaN" in note for note in runtime.info.notes)


# --- ends of answers


ENDS: dict[str, dict[str, Change]] = {
    "missing": {EOS: None},
    "out of range": {EOS: (U32, 10**6)},
    "a token of text": {EOS: (U32, COMMA)},
    "another token of text, and a turn's": {EOS: (U32, 65), "tokenizer.ggml.eot_token_id": (U32, 66)},
    "a message's": {"tokenizer.ggml.eom_token_id": (U32, 67)},
    "a text's beginning too": {BOS: (U32, 65), "tokenizer.ggml.add_bos_token": (BOOL, True)},
    "those between files": {"tokenizer.ggml.fim_rep_token_id": (U32, 70), "tokenizer.ggml.fim_pad_token_id": (U32, 71)},
}


@pytest.mark.parametrize("name", ENDS)
def test_only_specials_end_answers_and_begin_texts(name: str, tiny: Path, tmp_path: Path) -> None:
    right = load_vocab(tiny)
    table = load_vocab(rewritten(tiny, tmp_path / "broken.gguf", ENDS[name]))
    assert table.eog == {right.specials[one] for one in ("<|endoftext|>", "<|im_end|>")} == right.eog
    assert table.bos is None
    assert table.eos in {None, right.eos}
    assert table.specials == right.specials


@pytest.mark.parametrize("types", [True, False])
def test_a_marker_that_the_file_names_ends_answers_whatever_its_type(types: bool, tiny: Path, tmp_path: Path) -> None:
    """Old converters wrote `<stop>` as text, or no types at all. What a user types is not it."""
    *tokens, _ = tokens_of(tiny)
    n = len(tokens) + 1
    changes: dict[str, Change] = {
        EOS: (U32, n - 1),
        TOKENS: (TEXT, [*tokens, "<stop>"]),
        TYPES: (I32, [CONTROL if i == n - 2 else NORMAL for i in range(n)]) if types else None,
    }
    table = load_vocab(rewritten(tiny, tmp_path / "broken.gguf", changes))
    assert table.eos == n - 1
    assert n - 1 in table.eog
    assert table.pieces[n - 1] == b""
    assert table.specials["<stop>"] == n - 1
    assert n - 1 not in table.tokenize(b"a <stop> b")


def test_an_answer_goes_on_past_a_comma(tiny: Path, tmp_path: Path) -> None:
    file = rewritten(tiny, tmp_path / "broken.gguf", {EOS: None})
    commas = Request((1, 2, 3), max_tokens=6, sampling=SamplingParams(temperature=0, logit_bias=((COMMA, 200.0),)))
    for draft in (None, tiny, file):
        with Runtime.open(config(file, draft, n_ctx=256)) as runtime:
            assert finish(runtime, [commas])[0].ids == [COMMA] * 6


def test_where_nothing_ends_an_answer_a_line_says_so_and_drafts_change_no_text(tiny: Path, endless: Path) -> None:
    plain = Request((1, 2, 3), max_tokens=40, sampling=SamplingParams(temperature=0))
    asks = [plain, replace(plain, speculative=SpeculativeParams(n_max=8, p_min=0.0, policy=SpecPolicy.FIXED))]
    texts = []
    for target, draft in ((endless, None), (endless, tiny), (tiny, None), (tiny, endless)):
        with Runtime.open(config(target, draft, n_ctx=512)) as runtime:
            told = [
                note for note in runtime.info.notes if note.startswith(f"no token ends an answer of {target}: {EOS}")
            ]
            assert len(told) == (target == endless)
            texts.append([done.ids for done in finish(runtime, asks)])
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]
