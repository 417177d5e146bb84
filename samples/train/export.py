"""Writes a trained model and its vocabulary as an F16 GGUF. Knows nothing of training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType
from model import RMS_EPS, ROPE_BASE, Llama
from numpy.typing import NDArray
from recipes import Recipe
from torch import Tensor
from vocabulary import Vocabulary

# declared, far beyond the length in training: long prompts must be possible, good text there is not promised
N_CTX = 32_768
LICENSE = "PSF-2.0 AND BSD-3-Clause (training text)"


@contextmanager
def replacing(out: Path, arch: str) -> Iterator[GGUFWriter]:
    """What is added in the block becomes the file `out`; what was there stays if anything goes wrong."""
    part = out.with_name(out.name + ".part")
    writer = GGUFWriter(part, arch)
    try:
        yield writer
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        part.replace(out)
    finally:
        writer.close()
        part.unlink(missing_ok=True)


def export(recipe: Recipe, vocabulary: Vocabulary, model: Llama, out: Path) -> None:
    """Writes `out`, or leaves what was there if anything goes wrong."""
    with replacing(out, "llama") as writer:
        add_metadata(writer, recipe)
        vocabulary.write(writer)
        add_specials(writer, recipe, vocabulary)
        for name, tensor in tensors(model):
            writer.add_tensor(name, tensor)


def add_metadata(writer: GGUFWriter, recipe: Recipe) -> None:
    """Name, licence and sizes."""
    writer.add_name(f"uad-sample-{recipe.name}")
    writer.add_license(LICENSE)
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(recipe.width)
    writer.add_block_count(recipe.layers)
    writer.add_feed_forward_length(recipe.ff)
    writer.add_head_count(recipe.heads)
    writer.add_head_count_kv(recipe.heads_kv)
    writer.add_layer_norm_rms_eps(RMS_EPS)
    writer.add_rope_dimension_count(recipe.head_dim)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_vocab_size(recipe.n_vocab)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)


def add_specials(writer: GGUFWriter, recipe: Recipe, vocabulary: Vocabulary) -> None:
    """Ids of the specials, and the chat template that uses them."""
    writer.add_add_bos_token(recipe.bos is not None)
    if recipe.bos is not None:
        writer.add_bos_token_id(vocabulary.id_of(recipe.bos))
    writer.add_eos_token_id(vocabulary.id_of(recipe.eos))
    writer.add_eot_token_id(vocabulary.id_of(recipe.eos))
    writer.add_chat_template(recipe.template)


def tensors(model: Llama) -> list[tuple[str, NDArray[np.floating]]]:
    """Every parameter under its GGUF name: matrices in F16, norms in F32."""
    return [(gguf_name(name), stored(weight)) for name, weight in model.named_parameters()]


def gguf_name(name: str) -> str:
    """'blocks.0.attention.attn_q.weight' -> 'blk.0.attn_q.weight'"""
    return name.replace("blocks.", "blk.").replace("attention.", "").replace("feed_forward.", "")


def stored(weight: Tensor) -> NDArray[np.floating]:
    """A parameter as it goes into the file."""
    values: NDArray[np.floating] = weight.detach().float().cpu().numpy()
    return values.astype(np.float16 if weight.dim() == 2 else np.float32)
