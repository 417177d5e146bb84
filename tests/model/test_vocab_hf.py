"""A tokenizer.json instead of llama.cpp's tokenizer: same ids on the bundled models, and a refusal that names the token
that differs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGUFReader
from kit.tokenizer_files import CONTROL, byte_level, edited
from kit.vocab_kit import TEXTS, path_of, vocab
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from uad.base.errors import ConfigError
from uad.text.vocab.encode import Encoder
from uad.text.vocab.hf import hf_tokenize


def sentence_piece(out: Path) -> Path:
    """A tokenizer.json with the gemma draft's tokens (as converters write them, with a prefix), and no merges."""
    fields = GGUFReader(path_of("draft-gemma")).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    tokenizer = Tokenizer(
        models.BPE({token: i for i, token in enumerate(tokens)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    )
    tokenizer.save(str(out))
    return out


@pytest.mark.parametrize("name", ["target-chatml", "draft-zephyr"])
def test_same_ids_as_the_gguf(name: str, tmp_path: Path) -> None:
    table = vocab(name)
    tokenize = hf_tokenize(byte_level(name, tmp_path / "tokenizer.json"), table)
    samples = [text for all_ in TEXTS.values() for text in all_.splitlines(keepends=True)] + [
        b" x",
        b"  x",
        b"",
        b"x\n\n y",
    ]
    assert len(samples) > 200
    for text in samples:
        assert tokenize(text) == table.tokenize(text), text.decode()
    assert len(tokenize(TEXTS["code"])) > 1000  # the file's own truncation is off
    ours = Encoder(replace(table, tokenize=tokenize))
    assert ours.encode(TEXTS["code"]) == table.tokenize(TEXTS["code"])


def test_specials_typed_as_text_are_text(tmp_path: Path) -> None:
    table = vocab("target-chatml")
    tokenize = hf_tokenize(byte_level("target-chatml", tmp_path / "tokenizer.json"), table)
    text = b"<|im_start|>user\nhi<|im_end|>"
    ids = tokenize(text)
    assert table.join(ids) == text
    assert not any(table.is_special(id_) for id_ in ids)


def test_no_prefix_and_no_lost_bytes(tmp_path: Path) -> None:
    table = vocab("draft-gemma")
    tokenize = hf_tokenize(sentence_piece(tmp_path / "tokenizer.json"), table)
    for text in (b"word", b" word", "été ▁ 東京".encode(), TEXTS["code"][:500]):
        assert (
            Encoder(replace(table, tokenize=tokenize)).vocab.join(
                Encoder(replace(table, tokenize=tokenize)).encode(text)
            )
            == text
        )
    assert table.join(tokenize(b"word")) == b"word"


def test_text_that_the_tokenizer_would_change_is_left_to_llama_cpp(tmp_path: Path) -> None:
    table = vocab("target-chatml")
    path = byte_level("target-chatml", tmp_path / "tokenizer.json")
    spec = json.loads(path.read_text())
    spec["normalizer"] = {"type": "Lowercase"}
    path.write_text(json.dumps(spec))
    tokenize = hf_tokenize(path, table)
    assert tokenize(b"Hello World") == table.tokenize(b"Hello World")
    assert tokenize(b"hello world") == table.tokenize(b"hello world")


def test_the_first_differing_token_is_named(tmp_path: Path) -> None:
    table = vocab("target-chatml")
    path = edited(edited(byte_level("target-chatml", tmp_path / "t.json"), "Ġs", "Ġzebra"), "ed", "edd")
    lowest = min((table.pieces.index(b" s"), " s"), (table.pieces.index(b"ed"), "ed"))
    with pytest.raises(ConfigError, match=rf"token {lowest[0]} is .* in the model"):
        hf_tokenize(path, table)


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    path = byte_level("draft-zephyr", tmp_path / "t.json")
    with pytest.raises(ConfigError, match=r"is not target-chatml\.gguf's: token"):
        hf_tokenize(path, vocab("target-chatml"))
    path = byte_level("target-chatml", tmp_path / "t.json")
    with pytest.raises(ConfigError, match=r"is not draft-zephyr\.gguf's: token"):
        hf_tokenize(path, vocab("draft-zephyr"))


def test_specials_must_agree(tmp_path: Path) -> None:
    table = vocab("target-chatml")
    path = byte_level("target-chatml", tmp_path / "t.json")
    path.write_text(path.read_text().replace("<|im_end|>", "<|fin|>"))
    with pytest.raises(ConfigError, match=r"token 4095 is '<\|fin\|>' there and '<\|im_end\|>' in the model"):
        hf_tokenize(path, table)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        ("[]", "has no model"),
        ('{"tokenizer_class": "X"}', "tokenizer_config.json"),
        ('{"model": {"type": "Nonsense"}}', "not understood"),
    ],
)
def test_files_that_are_no_tokenizer(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        hf_tokenize(path, vocab("draft-zephyr"))
