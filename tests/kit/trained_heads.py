"""Heads with random weights for the tiny models of `kit.tiny_models`, in the shapes that published heads have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

from kit.tiny_models import FF, HEAD, HEADS, N_CTX, WIDTH

BLOCK = 4
_RANK = 8
_SELECTOR = {"conv_kernel_size": 3, "conv_group_size": 16, "selector_rank": _RANK, "selector_top_k": 4}


@dataclass(frozen=True)
class Shape:
    """A head: its architecture, and which of the optional parts it has. has_own: embedding and output of its own;
    n_reduced: ids that it can guess, 0: all; has_markov: those of DSpark, with a confidence;
    has_selector: those of DFlash2.
    """

    arch: str
    layers: tuple[int, ...] = (0, 1, 1)
    has_own: bool = False
    n_reduced: int = 0
    norms_first: bool = False
    has_markov: bool = False
    has_selector: bool = False
    is_anchored: bool = True


SHAPES = {
    "eagle3": Shape("eagle3"),
    "eagle3 with an embedding of its own, for some ids": Shape("eagle3", has_own=True, n_reduced=40),
    "eagle3 with norms before residuals and the fusion": Shape("eagle3", norms_first=True),
    "dflash": Shape("dflash", layers=(0, 1)),
    "dflash for some ids": Shape("dflash", layers=(0, 1), has_own=True, n_reduced=40),
    "dflash2": Shape("dflash", layers=(0, 1), has_selector=True),
    "dspark": Shape("dflash", has_markov=True),
    "dspark after the anchor": Shape("dflash", has_markov=True, is_anchored=False),
}


def make_trained_head(target: Path, shape: Shape, folder: Path, name: str = "head") -> Path:
    """A head for this target, with its vocabulary."""
    out, reader = folder / f"{name}.gguf", GGUFReader(target)
    n_vocab, arch = len(reader.fields["tokenizer.ggml.tokens"].contents()), shape.arch
    with closing(GGUFWriter(out, arch)) as writer:
        writer.add_context_length(N_CTX)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(1)
        writer.add_feed_forward_length(FF)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(1)
        writer.add_key_length(HEAD)
        writer.add_value_length(HEAD)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(HEAD)
        writer.add_array(f"{arch}.target_layers", list(shape.layers))
        if arch == "eagle3":
            writer.add_uint32("eagle3.target_hidden_size", WIDTH)
            writer.add_bool("eagle3.norm_before_residual", shape.norms_first)
            writer.add_bool("eagle3.norm_before_fc", shape.norms_first)
        else:
            writer.add_uint32("dflash.block_size", BLOCK)
            writer.add_bool("dflash.sample_from_anchor", shape.is_anchored)
            writer.add_mask_token_id(0)
            for key, value in _SELECTOR.items() if shape.has_selector else ():
                writer.add_uint32(f"dflash.{key}", value)
        for key, field in reader.fields.items():
            if key.startswith("tokenizer.") and key != "tokenizer.ggml.mask_token_id":
                inner = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
                writer.add_key_value(key, field.contents(), field.types[0], inner)
        for tensor, values in _weights(shape, n_vocab):
            writer.add_tensor(tensor, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return out


def _weights(shape: Shape, n_vocab: int) -> Iterator[tuple[str, NDArray[np.generic]]]:
    rng, is_eagle = np.random.default_rng(0), shape.arch == "eagle3"
    n_in, n_guessed = (2 * WIDTH if is_eagle else WIDTH), shape.n_reduced or n_vocab

    def matrix(n_out: int, n_from: int) -> NDArray[np.generic]:
        values: NDArray[np.generic] = (rng.standard_normal((n_out, n_from)) / n_from**0.5).astype(np.float16)
        return values

    yield "fc.weight", matrix(WIDTH, len(shape.layers) * WIDTH)
    for name, n_out, n_from in (
        ("attn_q", HEADS * HEAD, n_in),
        ("attn_k", HEAD, n_in),
        ("attn_v", HEAD, n_in),
        ("attn_output", WIDTH, HEADS * HEAD),
        ("ffn_gate", FF, WIDTH),
        ("ffn_up", FF, WIDTH),
        ("ffn_down", WIDTH, FF),
    ):
        yield f"blk.0.{name}.weight", matrix(n_out, n_from)
    norms = {"output_norm": WIDTH, "blk.0.attn_norm": WIDTH, "blk.0.ffn_norm": WIDTH}
    if is_eagle:
        norms |= {"blk.0.attn_norm_2": WIDTH}
        norms |= {"enc.output_norm": len(shape.layers) * WIDTH} if shape.norms_first else {}
    else:
        norms |= {"enc.output_norm": WIDTH, "blk.0.attn_q_norm": HEAD, "blk.0.attn_k_norm": HEAD}
    for name, size in norms.items():
        yield f"{name}.weight", np.ones(size, np.float32)
    if shape.has_own:
        yield "token_embd.weight", matrix(n_vocab, WIDTH)
        yield "output.weight", matrix(n_guessed, WIDTH)
    if shape.n_reduced:
        yield "d2t", np.sort(rng.choice(n_vocab, shape.n_reduced, replace=False)).astype(np.int64)
    if shape.has_markov:
        yield "markov_w1.weight", matrix(n_vocab, _RANK)
        yield "markov_w2.weight", matrix(n_guessed, _RANK)
        yield "conf_proj.weight", matrix(1, WIDTH + _RANK)
    if shape.has_selector:
        kernel, n_groups = _SELECTOR["conv_kernel_size"], WIDTH // _SELECTOR["conv_group_size"]
        for part in ("attn", "ffn"):
            base = np.zeros((2, kernel, WIDTH), np.float32)
            base[:, 0] = 1
            yield f"blk.0.{part}_conv_base", base
            yield f"blk.0.{part}_conv_proj.weight", matrix(2 * kernel * n_groups, WIDTH)
        yield "selector_predecessor.weight", matrix(n_vocab, _RANK)
        yield "selector_successor.weight", matrix(n_vocab, _RANK)
        yield "selector_hidden.weight", matrix(_RANK, WIDTH)
