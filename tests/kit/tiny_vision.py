"""Writes tiny random projectors (mmproj) for the tiny models, and pictures: the same for the same name and seed."""

from __future__ import annotations

import zlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from kit.tiny_models import WIDTH, Tensors
from uad.base.types import Image

INNER, HEADS, FF, LAYERS, PATCH = 32, 2, 48, 2, 4
SIDE = 32
"""Pixels of a picture's side for a projector of one size."""


@dataclass(frozen=True)
class _Kind:
    """What llama.cpp calls it, the metadata that it needs beside those of all, and its tensors beside the encoder's."""

    name: str
    numbers: dict[str, int]
    tensors: Tensors


_KINDS = {
    # one size: 8 by 8 patches, of which 2 by 2 are one row; rows of an image see each other
    "gemma3": _Kind(
        "gemma3",
        {"clip.vision.projector.scale_factor": 2},
        {
            "v.patch_embd.bias": (INNER,),
            "v.position_embd.weight": (INNER, (SIDE // PATCH) ** 2),
            "mm.input_projection.weight": (WIDTH, INNER),
            "mm.soft_emb_norm.weight": (INNER,),
        },
    ),
    # any size: 2 by 2 patches are one row, whose position has two dimensions (M-RoPE)
    "qwen2vl": _Kind(
        "qwen2vl_merger",
        {},
        {
            "v.patch_embd.weight.1": (PATCH, PATCH, 3, INNER),
            "mm.0.weight": (4 * INNER, 4 * INNER),
            "mm.0.bias": (4 * INNER,),
            "mm.2.weight": (4 * INNER, WIDTH),
            "mm.2.bias": (WIDTH,),
        },
    ),
}
KINDS = tuple(_KINDS)


def make_projector(kind: str, folder: Path, seed: int = 0, width: int = WIDTH) -> Path:
    """A projector of this kind for tiny models, whose ids have rows of `width` numbers."""
    out = folder / f"mmproj-{kind}-{width}-{seed}.gguf"
    if out.exists():
        return out
    plan, rng = _KINDS[kind], np.random.default_rng([seed, width, zlib.crc32(kind.encode())])
    part = out.with_suffix(".part")
    with closing(GGUFWriter(part, "clip")) as writer:
        writer.add_name(out.stem)
        writer.add_bool("clip.has_vision_encoder", True)
        writer.add_bool("clip.use_gelu", True)
        writer.add_string("clip.projector_type", plan.name)
        numbers = {
            "image_size": SIDE,
            "patch_size": PATCH,
            "embedding_length": INNER,
            "feed_forward_length": FF,
            "block_count": LAYERS,
            "projection_dim": width,
            "attention.head_count": HEADS,
        }
        for key, number in numbers.items():
            writer.add_uint32(f"clip.vision.{key}", number)
        for key, number in plan.numbers.items():
            writer.add_uint32(key, number)
        writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
        writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
        writer.add_array("clip.vision.image_std", [0.25, 0.25, 0.25])
        for tensor, sizes in {**_encoder(), **plan.tensors}.items():
            shape = tuple(width if size == WIDTH else size for size in reversed(sizes))
            writer.add_tensor(tensor, _values(rng, tensor, shape))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    part.replace(out)
    return out


def make_hearing(folder: Path) -> Path:
    """The header of a projector for sound alone."""
    out = folder / "mmproj-sound.gguf"
    with closing(GGUFWriter(out, "clip")) as writer:
        writer.add_bool("clip.has_audio_encoder", True)
        writer.add_string("clip.projector_type", "ultravox")
        writer.add_tensor("a.nothing", np.zeros(4, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return out


def picture(seed: int, width: int = SIDE, height: int = SIDE) -> Image:
    """Random blocks of colour: pictures of different seeds look different to a model."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (-(-height // 8), -(-width // 8), 3), np.uint8)
    pixels = blocks.repeat(8, 0).repeat(8, 1)[:height, :width]
    return Image.of(width, height, pixels.tobytes())


def _encoder() -> Tensors:
    layer: Tensors = {
        **{f"ln{i}.{end}": (INNER,) for i in (1, 2) for end in ("weight", "bias")},
        **{f"attn_{one}.weight": (INNER, INNER) for one in ("q", "k", "v", "out")},
        **{f"attn_{one}.bias": (INNER,) for one in ("q", "k", "v", "out")},
        "ffn_up.weight": (INNER, FF),
        "ffn_up.bias": (FF,),
        "ffn_down.weight": (FF, INNER),
        "ffn_down.bias": (INNER,),
    }
    return {
        "v.patch_embd.weight": (PATCH, PATCH, 3, INNER),
        "v.post_ln.weight": (INNER,),
        "v.post_ln.bias": (INNER,),
        **{f"v.blk.{i}.{tensor}": sizes for i in range(LAYERS) for tensor, sizes in layer.items()},
    }


def _values(rng: np.random.Generator, tensor: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Weights that keep activations near 1."""
    noise = rng.standard_normal(shape).astype(np.float32)
    if "norm" in tensor or "ln" in tensor:
        return (1 if tensor.endswith("weight") else 0) + np.float32(0.1) * noise
    if tensor.endswith(".bias"):
        return np.float32(0.1) * noise
    n_in = int(np.prod(shape[1:])) if tensor.startswith("v.patch") else shape[-1]
    return noise / np.float32(max(n_in, 1) ** 0.5)
