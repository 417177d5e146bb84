"""Writes tiny random models that embed or rank texts, one of each architecture: the same bytes for the same name."""

from __future__ import annotations

import zlib
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFWriter

from kit.tiny_models import WORDS
from kit.vocab_makers import CONTROL, NORMAL, byte_to_unicode

N_CTX = 512
POOLINGS = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
_HALF = gguf.GGMLQuantizationType.F16


@dataclass(frozen=True)
class Shape:
    """Sizes of a model: numbers of a row, heads, numbers inside of the feed-forward, layers, tokens."""

    width: int = 64
    heads: int = 2
    inner: int = 128
    layers: int = 2
    n_vocab: int = 0
    """0: as many as the words make."""
    n_ctx: int = N_CTX

    @property
    def head(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True)
class _Plan:
    """An architecture: metadata below its name, the tensors outside of the layers and in each, and its vocabulary."""

    pooling: str
    ends: tuple[str, ...]
    layer: tuple[str, ...]
    keys: dict[str, Any] = field(default_factory=dict)
    vocab: str = "bert"


_QKV = ("attn_q", "attn_k", "attn_v")
_BERT = (
    *("attn_q", "attn_k", "attn_v", "attn_output", "attn_output_norm", "ffn_up", "ffn_down", "layer_output_norm"),
    *("attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias", "attn_output_norm.bias"),
    *("ffn_up.bias", "ffn_down.bias", "layer_output_norm.bias"),
)
_NOMIC = (
    *("attn_qkv", "attn_output", "attn_output_norm", "attn_output_norm.bias", "ffn_up", "ffn_gate", "ffn_down"),
    *("layer_output_norm", "layer_output_norm.bias"),
)
_BERT_ENDS = ("token_embd", "token_types", "token_embd_norm", "token_embd_norm.bias")
_DECODER = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)
_CLASSIFIER = ("cls", "cls.bias", "cls.output", "cls.output.bias")
_PLANS = {
    "bert": _Plan("cls", (*_BERT_ENDS, "position_embd"), _BERT),
    "nomic-bert": _Plan("mean", _BERT_ENDS, _NOMIC),
    "jina-bert-v2": _Plan("mean", _BERT_ENDS, (*_BERT, "ffn_gate"), {"attention.max_alibi_bias": 8.0}),
    "jina-bert-v3": _Plan("mean", _BERT_ENDS, (*(name for name in _BERT if name[:6] not in _QKV), "attn_qkv")),
    "modern-bert": _Plan(
        "cls",
        ("token_embd", "token_embd_norm", "output_norm"),
        ("attn_norm", "attn_qkv", "attn_output", "ffn_up_twice", "ffn_down", "ffn_norm"),
        {"attention.sliding_window": 16, "attention.sliding_window_pattern": 2, "rope.freq_base_swa": 10000.0},
        "gpt2",
    ),
    "gemma-embedding": _Plan(
        "mean",
        ("token_embd", "output_norm"),
        (*_DECODER, "post_attention_norm", "post_ffw_norm"),
        {"attention.sliding_window": 16, "attention.sliding_window_pattern": 2},
        "llama",
    ),
    "qwen3": _Plan("last", ("token_embd", "output_norm"), _DECODER, {}, "gpt2"),
}
NAMES = tuple(_PLANS)


def pooling_of(name: str) -> str:
    """The pooling that the file of a model of this name says."""
    return _PLANS[name].pooling


def make(name: str, folder: Path, pooling: str | None = None, shape: Shape | None = None, ftype: int = _HALF) -> Path:
    """The model of this architecture, written into the folder unless it is there. pooling: as the file says; rank adds
    a classifier; None: the usual one. ftype: of matrices.
    """
    pooling = pooling or _PLANS[name].pooling
    shape = shape or Shape()
    out = folder / f"{name}-{pooling}.gguf"
    if not out.exists():
        _write(out, name, pooling, shape, gguf.GGMLQuantizationType(ftype))
    return out


def _write(out: Path, name: str, pooling: str, shape: Shape, ftype: gguf.GGMLQuantizationType) -> None:
    plan = _PLANS[name]
    rng = np.random.default_rng(zlib.crc32(f"{name} {pooling}".encode()))
    part = out.with_suffix(".part")
    with closing(GGUFWriter(part, name)) as writer:
        writer.add_name(out.stem)
        writer.add_context_length(shape.n_ctx)
        writer.add_embedding_length(shape.width)
        writer.add_block_count(shape.layers)
        writer.add_feed_forward_length(shape.inner)
        writer.add_head_count(shape.heads)
        writer.add_layer_norm_eps(1e-5)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_pooling_type(gguf.PoolingType(POOLINGS[pooling]))
        if plan.layer is not _DECODER and name != "gemma-embedding":
            writer.add_causal_attention(False)
        else:
            writer.add_key_length(shape.head)
            writer.add_value_length(shape.head)
        for key, value in plan.keys.items():
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{name}.{key}", value)
        n_vocab = _add_vocabulary(writer, plan.vocab, shape.n_vocab)
        ends = plan.ends + (_CLASSIFIER if pooling == "rank" and name == "bert" else ())
        ends += ("cls.output",) if pooling == "rank" and name != "bert" else ()
        if pooling == "rank":
            writer.add_array(f"{name}.classifier.output_labels", ["no", "yes"] if name == "qwen3" else ["score"])
        tensors = {one: _sizes(one, shape, n_vocab, name) for one in ends}
        for i in range(shape.layers):
            tensors |= {f"blk.{i}.{one}": _sizes(one, shape, n_vocab, name) for one in plan.layer}
        if name == "modern-bert":  # its first layer has none
            del tensors["blk.0.attn_norm"]
        for tensor, sizes in tensors.items():
            full = tensor.removesuffix("_twice") + ("" if tensor.endswith(".bias") else ".weight")
            noise = rng.standard_normal(tuple(reversed(sizes)), np.float32)
            if tensor.endswith(".bias"):
                values = 0.1 * noise
            elif "norm" in tensor:
                values = 1 + 0.1 * noise
            else:
                values = noise * (1.0 if tensor in _ROWS else sizes[0] ** -0.5)
            is_small = len(sizes) == 1 or "cls" in tensor or tensor in ("token_types", "position_embd")
            kind = gguf.GGMLQuantizationType.F32 if is_small else ftype
            writer.add_tensor(full, gguf.quants.quantize(values.astype(np.float32), kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    part.replace(out)


_ROWS = ("token_embd", "token_types", "position_embd")


def _sizes(tensor: str, shape: Shape, n_vocab: int, name: str) -> tuple[int, ...]:
    width, inner = shape.width, shape.inner
    out = {"attn_qkv": 3 * width, "ffn_up": inner, "ffn_gate": inner, "ffn_up_twice": 2 * inner}
    base, is_bias = tensor.removesuffix(".bias"), tensor.endswith(".bias")
    if base in ("attn_q_norm", "attn_k_norm"):
        return (shape.head,)
    if base == "cls.output":
        n = 2 if name == "qwen3" else 1
        return (n,) if is_bias else (width, n)
    if is_bias:
        return (out.get(base, width),)
    if "norm" in base:
        return (width,)
    rows = {"token_embd": n_vocab, "token_types": 2, "position_embd": shape.n_ctx}
    return (inner if base == "ffn_down" else width, rows.get(base, out.get(base, width)))


# --- vocabularies


def _add_vocabulary(writer: GGUFWriter, kind: str, n: int) -> int:
    """Write the tokenizer; n: tokens in all, 0: as many as the words make. Returns how many there are."""
    tokens, specials, merges = _TOKENS[kind]()
    tokens += [f"▁filler{i}" if kind == "bert" else f"filler{i}" for i in range(n - len(tokens))]
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre("qwen2" if kind == "gpt2" else "default")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in specials else NORMAL for token in tokens])
    if kind == "gpt2":
        writer.add_token_merges(merges)
    else:
        writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_token_type_count(2)
    if kind == "bert":
        for add, token in ((writer.add_bos_token_id, "[CLS]"), (writer.add_sep_token_id, "[SEP]")):
            add(tokens.index(token))
        writer.add_eos_token_id(tokens.index("[SEP]"))
        writer.add_unk_token_id(tokens.index("[UNK]"))
        writer.add_pad_token_id(tokens.index("[PAD]"))
    else:
        writer.add_bos_token_id(tokens.index("<s>"))
        writer.add_eos_token_id(tokens.index("</s>"))
        writer.add_add_bos_token(kind == "llama")
        writer.add_add_eos_token(True)
    return len(tokens)


def _word_pieces() -> tuple[list[str], tuple[str, ...], list[str]]:
    specials = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    letters = [chr(i) for i in range(33, 127) if not chr(i).isupper()]
    words = [word for word in WORDS.split() if word.isascii()]
    return [*specials, *(f"▁{word}" for word in [*letters, *words]), *letters, "東", "京"], specials, []


def _byte_pairs() -> tuple[list[str], tuple[str, ...], list[str]]:
    letters = byte_to_unicode()
    tokens, merges = [letters[byte] for byte in range(256)], []
    for word in WORDS.split():
        spelled = "".join(letters[byte] for byte in f" {word}".encode())
        for n in range(2, len(spelled) + 1):
            if spelled[:n] not in tokens:
                tokens.append(spelled[:n])
                merges.append(f"{spelled[: n - 1]} {spelled[n - 1]}")
    return [*tokens, "<s>", "</s>"], ("<s>", "</s>"), merges


def _sentence_pieces() -> tuple[list[str], tuple[str, ...], list[str]]:
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = [chr(i) for i in range(33, 127)]
    return ["<unk>", "<s>", "</s>", *pieces, "▁", *letters, *(f"▁{word}" for word in WORDS.split())], _MARKS, []


_MARKS = ("<unk>", "<s>", "</s>")
_TOKENS = {"bert": _word_pieces, "gpt2": _byte_pairs, "llama": _sentence_pieces}
