"""Smaller drafts under llama.cpp: the same pieces, the same logits, and `uad trim` as a user meets it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from kit.models import DRAFTS, TARGET, chat_prompts, chat_requests, config, finish, quantized
from kit.vocab_makers import ALPHABET, CONTROL, NORMAL, USER_DEFINED, bpe, byte_to_unicode, scored, write

from uad.base.config import ModelConfig
from uad.base.errors import ConfigError, ModelLoadError
from uad.base.gguf import GgufFile
from uad.base.types import Request, Rows, SamplingParams, SpecPolicy, SpeculativeParams
from uad.llama.context import Context
from uad.llama.model import TYPES, Model
from uad.llama.vocab import load_vocab
from uad.runtime.runtime import Runtime
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable
from uad.tools.cli import main
from uad.tools.cli import trim as trimming
from uad.tools.trim import cut
from uad.tools.trim.choose import DEFAULT_KEEP, Ways, choose
from uad.tools.trim.cut import write_trimmed
from uad.tools.trim.vocabulary import read_vocabulary

pytestmark = pytest.mark.model
TEXT = (
    "def add(self, item, price=12.5):\n    return self.total + price\n\n"
    "Once upon a time there was a small lantern in Oslo. The river and the stone waited for the baker: 3, 5, 7.\n"
)
ODD = TEXT + "naïve café, 東京, привет 😀 \x00\x7f <|endoftext|> </s> " + "zq" * 20


def shrunk(source: Path, out: Path, texts: list[bytes], keep: int = 10**6) -> tuple[int, ...]:
    """Write `out` with what these texts use; returns the ids that stayed."""
    table = load_vocab(source, quick=False)
    counts: dict[int, int] = {}
    for text in texts:
        for id_ in Encoder(table).encode(text):
            counts[id_] = counts.get(id_, 0) + 1
    with GgufFile(source) as file:
        vocabulary = read_vocabulary(file)
        kept = choose(counts, trimming.always_kept(vocabulary, table), Ways(vocabulary), keep)
        write_trimmed(file, vocabulary, kept, out, lambda done, total: None)
    return kept


def same_pieces(old: VocabTable, new: VocabTable, kept: tuple[int, ...], texts: list[bytes]) -> int:
    """Check that texts of kept tokens are cut alike, and others without loss; returns how many there were of the
    former.
    """
    places = {id_: place for place, id_ in enumerate(kept)}
    encoder, n_same = Encoder(new), 0
    for text in texts:
        before = old.tokenize(text)
        if places.keys() >= {*before}:
            assert new.tokenize(text) == [places[id_] for id_ in before], text
            n_same += 1
        if old.join(before) == text:  # a toy's own tokenizer may lose some
            assert new.join(encoder.encode(text)) == text
    return n_same


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["gpt-2", "qwen2", "llama-bpe", "starcoder", "scored"])
def test_text_of_kept_tokens_is_cut_as_before_whatever_the_vocabulary(kind: str, seed: int, tmp_path: Path) -> None:
    """With random merges and scores, so that a missing step on the way to a token shows."""
    if kind == "scored":
        source = scored(tmp_path / "v.gguf", "llama", seed, n_words=150)
    else:
        source = bpe(tmp_path / "v.gguf", kind, seed, n_merges=120, extra=[("s1", USER_DEFINED)] if seed % 2 else ())
    rng = random.Random(seed)
    texts = ["".join(rng.choices(ALPHABET.strip("\x00"), k=rng.randrange(1, 16))).encode() for _ in range(1500)]
    kept = shrunk(source, tmp_path / "out.gguf", texts[:25])
    old, new = load_vocab(source, quick=False), load_vocab(tmp_path / "out.gguf", quick=False)
    assert new.n_vocab == len(kept) < old.n_vocab
    assert new.pieces == tuple(old.pieces[id_] for id_ in kept)
    assert same_pieces(old, new, kept, texts) > 100


@pytest.mark.parametrize("name", ["zephyr", "gemma"])
def test_real_text_of_kept_tokens_is_cut_as_before(name: str, tmp_path: Path) -> None:
    kept = shrunk(DRAFTS[name], tmp_path / "out.gguf", [TEXT.encode()])
    old, new = load_vocab(DRAFTS[name]), load_vocab(tmp_path / "out.gguf")
    assert 256 < len(kept) < 500
    assert (new.bos, new.eos, new.eot, new.add_bos) == tuple(
        kept.index(id_) if isinstance(id_, int) and not isinstance(id_, bool) else id_
        for id_ in (old.bos, old.eos, old.eot, old.add_bos)
    )
    assert new.specials == {text: kept.index(id_) for text, id_ in old.specials.items()}
    assert new.eog == {kept.index(id_) for id_ in old.eog}
    rng = random.Random(1)
    spoken = [old.pieces[id_] for id_ in kept if old.pieces[id_]]
    mixed = [b"".join(rng.choices(spoken, k=rng.randrange(1, 6))) for _ in range(800)]
    plain = [TEXT[i : i + 40].encode() for i in range(len(TEXT))]
    assert same_pieces(old, new, kept, [*mixed, *plain]) > 100
    for data in (ODD.encode(), b"\xff\xfe caf\xc3", bytes(range(256))):
        assert new.join(Encoder(new).encode(data)) == data


@pytest.mark.parametrize("keep", [262, 261])
def test_with_nothing_but_bytes_and_specials_text_is_still_complete(keep: int, tmp_path: Path) -> None:
    if keep == 261:  # one too few for these
        kept = shrunk(DRAFTS["gemma"], tmp_path / "out.gguf", [TEXT.encode()], keep)
        assert len(kept) == 261
    else:
        kept = shrunk(DRAFTS["zephyr"], tmp_path / "out.gguf", [TEXT.encode()], keep)
    new = load_vocab(tmp_path / "out.gguf")
    assert new.n_vocab <= keep
    assert new.join(Encoder(new).encode(ODD.encode())) == ODD.encode()


def test_what_llama_cpp_takes_for_an_end_stays_whatever_the_file_says(tmp_path: Path) -> None:
    """By name: the file calls it ordinary text."""
    texts = [*byte_to_unicode().values(), "ab", "<|im_end|>", "<|fim_prefix|>"]
    source = write(
        tmp_path / "v.gguf", "gpt2", [("<s>", CONTROL, 0.0), *((text, NORMAL, 0.0) for text in texts)], ["a b"], "gpt-2"
    )
    kept = shrunk(source, tmp_path / "out.gguf", [b"nothing of it"])
    new = load_vocab(tmp_path / "out.gguf")
    assert {"<|im_end|>", "<|fim_prefix|>"} <= new.specials.keys()
    assert new.specials["<|im_end|>"] in new.eog
    assert 257 not in kept


def logits(path: Path, ids: list[int]) -> np.ndarray:
    # with rearranged weights llama.cpp has other kernels for other numbers of tokens in a vocabulary
    given = ModelConfig(path, n_ctx=256, n_batch=64, n_threads=1, repack=False)
    with Model(given) as loaded, Context(loaded, given, 1) as context:
        context.decode([Rows(0, 0, ids, len(ids))])
        return context.logits().copy()


@pytest.mark.parametrize("name", ["zephyr", "gemma", "q8_0", "q4_0"])
def test_kept_tokens_get_the_same_logits(name: str, tmp_path: Path) -> None:
    source = DRAFTS[name] if name in DRAFTS else quantized(name, tmp_path)
    kept = shrunk(source, tmp_path / "out.gguf", [TEXT.encode()])
    ids = load_vocab(source).tokenize(TEXT.encode())[:48]
    before, after = logits(source, ids), logits(tmp_path / "out.gguf", [kept.index(id_) for id_ in ids])
    assert after.shape == (len(ids), len(kept))
    assert np.allclose(before[:, kept], after, rtol=0, atol=1e-5)


def test_an_untied_model_gets_the_same_logits_too(tmp_path: Path) -> None:
    """Its output matrix is another one, and both are cut."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter

    reader, writer = GGUFReader(DRAFTS["zephyr"]), GGUFWriter(tmp_path / "untied.gguf", "llama")
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", "general.architecture")):
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    other = np.random.default_rng(1).standard_normal((2048, 128)).astype(np.float16)
    writer.add_tensor("output.weight", other, raw_dtype=GGMLQuantizationType.F16)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    kept = shrunk(tmp_path / "untied.gguf", tmp_path / "out.gguf", [TEXT.encode()])
    ids = load_vocab(tmp_path / "untied.gguf").tokenize(TEXT.encode())[:32]
    before, after = (
        logits(tmp_path / "untied.gguf", ids),
        logits(tmp_path / "out.gguf", [kept.index(id_) for id_ in ids]),
    )
    assert np.allclose(before[:, kept], after, rtol=0, atol=1e-4)
    assert before.std() > 1


# --- uad trim


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT * 3)
    return path


def test_the_command_says_what_became_of_it(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "small.gguf"
    assert main(["trim", str(DRAFTS["zephyr"]), "-o", str(out), "--corpus", str(text), "--keep", "300"]) == 0
    printed, err = capsys.readouterr()
    first, file, matrix = printed.splitlines()
    found = load_vocab(out).n_vocab
    assert 290 < found <= 300
    assert first.startswith(f"{out}: {found} of 2,048 tokens of draft-zephyr.gguf, which are ")
    assert 50 < float(first.split("which are ")[1].split(" %")[0]) < 100
    assert file.split()[:4] == ["file", "1.37", "MiB", "->"]
    assert matrix.split() == ["token_embd.weight", "512", "KiB", "->", f"{found / 4:.3g}", "KiB"]
    assert "reading the corpus: done" in err
    assert "writing weights: done" in err


def test_the_whole_corpus_is_kept_where_there_is_room(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trim", str(DRAFTS["gemma"]), "-o", str(tmp_path / "small.gguf"), "--corpus", str(text)]) == 0
    assert "which are 100.0 % of the tokens of the corpus" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["q8_0", "bf16"])
def test_weights_can_be_written_in_another_type(kind: str, text: Path, tmp_path: Path) -> None:
    same, other = tmp_path / "same.gguf", tmp_path / "other.gguf"
    assert main(["trim", str(DRAFTS["zephyr"]), "-o", str(same), "--corpus", str(text)]) == 0
    assert main(["trim", str(DRAFTS["zephyr"]), "-o", str(other), "--corpus", str(text), "--type", kind]) == 0
    assert load_vocab(other).pieces == load_vocab(same).pieces
    with GgufFile(same) as before, GgufFile(other) as after:
        kinds = [
            {tensor.name: tensor.kind for tensor in file.tensors if "attn_q" in tensor.name} for file in (before, after)
        ]
    assert kinds[0].keys() == kinds[1].keys()
    assert {*kinds[1].values()} == {{"q8_0": 8, "bf16": 30}[kind]} != {*kinds[0].values()}
    assert sorted(path.name for path in tmp_path.glob("*.gguf*")) == ["other.gguf", "same.gguf"]


def test_a_type_that_cannot_be_written_leaves_what_was_there(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(b"of before")
    monkeypatch.setitem(TYPES, "q8_0", 9999)
    with pytest.raises(ModelLoadError, match="cannot write its weights in q8_0"):
        trimming.trim(DRAFTS["zephyr"], out, [text], None, lambda what, share: None, "q8_0")
    assert out.read_bytes() == b"of before"
    assert [path.name for path in tmp_path.glob("out*")] == ["out.gguf"]


def test_a_trimmed_draft_drafts_the_same_text(text: Path, tmp_path: Path) -> None:
    prompts = chat_prompts(2)
    text.write_text(TEXT + "\n".join(prompts))
    request = Request(
        (),
        SamplingParams(temperature=0.0),
        SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.3),
        max_tokens=32,
    )
    trimmed = [tmp_path / f"{name}.gguf" for name in DRAFTS]
    for source, out in zip(DRAFTS.values(), trimmed, strict=True):
        trimming.trim(source, out, [text], 600, lambda what, share: None)
    answers = []
    for draft in (None, *trimmed):
        with Runtime.open(config(TARGET, draft, exact=True)) as runtime:
            results = finish(runtime, chat_requests(runtime, prompts, request))
        answers.append([result.ids for result in results])
        assert (sum(result.done.timings.draft.n_accepted for result in results) > 0) == (draft is not None)
    assert answers[1] == answers[2] == answers[0]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["{zephyr}"], ["-o/--output"]),
        (["-o", "{out}"], ["DRAFT"]),
        (["{zephyr}", "-o", "{out}", "--keep", "few"], ["--keep", "'few'", "whole number"]),
        (["{zephyr}", "-o", "{out}", "--keep", "0"], ["--keep", "'0'"]),
        (["{zephyr}", "-o", "{out}", "--keep", "9" * 30], ["--keep"]),
        (["{zephyr}", "-o", "{out}", "--keep", "100"], ["--keep 100", "always stay", "at least 26"]),
        (["{zephyr}", "-o", "{out}", "--corpus", "{no}"], ["{no}", "no such file"]),
        (["{zephyr}", "-o", "{out}", "--corpus", "{zephyr}"], ["{zephyr}", "not a text file"]),
        (["{zephyr}", "-o", "{zephyr}"], ["{zephyr}", "itself"]),
        (["{zephyr}", "-o", "{folder}"], ["{folder}", "folder"]),
        (["{zephyr}", "-o", "{no}/out.gguf"], ["no folder"]),
        (["{no}", "-o", "{out}"], ["{no}", "no such file"]),
        (["{text}", "-o", "{out}"], ["{text}", "not a GGUF"]),
        (["{t5}", "-o", "{out}"], ["{t5}", "unigram"]),
        (["{vocab}", "-o", "{out}"], ["{vocab}", "vocabulary only"]),
        (["{zephyr}", "-o", "{out}", "--kep", "3"], ["--kep", "--keep"]),
        (["{zephyr}", "-o", "{out}", "--type", "q9"], ["--type", "'q9'", "q4_0, q8_0, bf16"]),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    words, parts, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {
        "zephyr": DRAFTS["zephyr"],
        "out": tmp_path / "out.gguf",
        "no": tmp_path / "nowhere",
        "folder": tmp_path,
        "text": text,
    }
    places |= {"t5": scored(tmp_path / "t5.gguf", "t5", 1), "vocab": bpe(tmp_path / "vocab.gguf", "gpt-2", 1)}
    before = DRAFTS["zephyr"].stat()
    assert main(["trim", *(word.format(**places) for word in words)]) == 2
    printed, err = capsys.readouterr()
    assert printed == ""
    assert err.count("\n") == 1
    assert err.startswith("uad: error: ")
    assert all(part.format(**places) in err for part in parts), err
    assert not places["out"].exists()
    assert (DRAFTS["zephyr"].stat().st_size, DRAFTS["zephyr"].stat().st_mtime_ns) == (
        before.st_size,
        before.st_mtime_ns,
    )


def test_the_help_tells_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["trim", "--help"])
    printed = capsys.readouterr().out
    assert f"(default: {DEFAULT_KEEP})" in printed
    assert "uad trim DRAFT -o OUT" in printed


def test_a_vocabulary_that_llama_cpp_sees_otherwise_is_refused(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uad.llama.vocab.load_vocab", lambda path: load_vocab(TARGET))
    with pytest.raises(ModelLoadError, match="finds 4096 tokens in it, its header has 2048"):
        trimming.trim(DRAFTS["zephyr"], tmp_path / "out.gguf", [text], None, lambda what, share: None)


def test_a_corpus_without_text_is_refused_before_anything_is_written(text: Path, tmp_path: Path) -> None:
    text.write_text("")
    with pytest.raises(ConfigError, match="holds no text"):
        trimming.trim(DRAFTS["zephyr"], tmp_path / "out.gguf", [text], None, lambda what, share: None)
    assert not (tmp_path / "out.gguf").exists()


# --- uad inspect


def test_inspect_says_what_trimming_would_bring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["inspect", str(TARGET), str(DRAFTS["zephyr"])]
    assert main(words) == 0
    assert "uad trim" not in capsys.readouterr().out
    saving = cut.saving
    monkeypatch.setattr(cut, "saving", lambda path: saving(path, 300))
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "the draft's vocabulary is 38 % of its weights; `uad trim` would make the file about" in printed
