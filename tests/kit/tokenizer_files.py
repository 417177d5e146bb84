"""tokenizer.json files for tests, made from the bundled GGUFs."""

from __future__ import annotations

import json
from pathlib import Path

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from kit.vocab_kit import path_of

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = 3


def byte_level(name: str, out: Path) -> Path:
    """The tokenizer.json of a bundled byte-level model, made from its GGUF."""
    fields = GGUFReader(path_of(name)).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    split = pre_tokenizers.Split(Regex(QWEN2), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=name != "target-chatml")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level]) if name == "target-chatml" else level
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    )
    first = next(token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A", special_tokens=[(first, tokens.index(first))]
    )
    tokenizer.enable_truncation(16)
    tokenizer.save(str(out))
    return out


def edited(path: Path, old: str, new: str) -> Path:
    spec = json.loads(path.read_text())
    spec["model"]["vocab"][new] = spec["model"]["vocab"].pop(old)
    spec["model"]["merges"] = []
    path.write_text(json.dumps(spec))
    return path
