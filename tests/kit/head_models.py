"""Tiny models with a head for multi-token prediction: a tiny model of `kit.tiny_models`, written anew with one more
block.
"""

from __future__ import annotations

import zlib
from contextlib import closing
from enum import Enum
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

from kit.tiny_models import WIDTH, make

Weights = dict[str, NDArray[np.generic]]
FAMILIES = ("qwen35", "deepseek2")
"""One with a recurrent state beside attention, one with attention alone."""
N_CYCLE = 48
"""Ids that a taught model writes, one behind the other, for ever."""
_PEAK = 6.0  # logit of the right id, all others' being 0: at temperature 1 it is drawn in half of all places


class Lesson(Enum):
    """What the head knows. A taught trunk writes the ids of a cycle: the next id follows from the last one alone."""

    NOTHING = "random weights, in trunk and head"
    TOKEN = "the head foretells the next id from the id that it is given"
    HIDDEN = "the head foretells the next id from the hidden row that it is given, which is that of the id before"


class Part(Enum):
    """Which blocks a file holds."""

    BOTH = "both"
    HEAD = "mtp"
    TRUNK = "trunk"
    CLAIM = "the trunk, and the claim that there is a head"


def make_with_head(
    family: str, folder: Path, lesson: Lesson = Lesson.NOTHING, part: Part = Part.BOTH, seed: int = 0
) -> Path:
    """The model, written into the folder unless it is there. Parts of one lesson belong together."""
    out = folder / f"{family}-{lesson.name.lower()}-{part.name.lower()}-{seed}.gguf"
    if not out.exists():
        _write(make(family, folder, seed), out, family, lesson, part, seed)
    return out


def _write(source: Path, out: Path, family: str, lesson: Lesson, part: Part, seed: int) -> None:
    reader = GGUFReader(source)
    n = int(reader.fields[f"{family}.block_count"].contents())
    rng = np.random.default_rng([seed, zlib.crc32(f"{family} {lesson.name}".encode())])
    weights: Weights = {one.name: np.array(one.data).reshape(tuple(reversed(one.shape))) for one in reader.tensors}
    weights |= _head(weights, n, rng)
    if lesson is not Lesson.NOTHING:
        _teach(weights, n, lesson, rng)
    begun = out.with_suffix(".part")
    with closing(GGUFWriter(begun, family)) as writer:
        for field in reader.fields.values():
            if field.name == "general.architecture" or field.name.startswith("GGUF."):
                continue
            is_count = field.name == f"{family}.block_count" and part is not Part.TRUNK
            value = n + 1 if is_count else field.contents()
            inner = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, value, field.types[0], inner)
        if part is not Part.TRUNK:
            writer.add_uint32(f"{family}.nextn_predict_layers", 1)
        for name, values in weights.items():
            if _belongs(name, n, part):
                writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    begun.replace(out)


def _belongs(name: str, n: int, part: Part) -> bool:
    if not name.startswith("blk."):
        return True
    is_head = name.startswith(f"blk.{n}.")
    return part is Part.BOTH or is_head == (part is Part.HEAD)


def _head(trunk: Weights, n: int, rng: np.random.Generator) -> Weights:
    """A block like the trunk's last one, and what makes it a head."""
    last = f"blk.{n - 1}."
    shapes = {name.removeprefix(last): one for name, one in trunk.items() if name.startswith(last)}
    head = {name: _like(name, one.shape, one.dtype, rng) for name, one in shapes.items()}
    head["nextn.eh_proj.weight"] = _like("", (WIDTH, 2 * WIDTH), np.dtype(np.float16), rng)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        head[f"nextn.{name}.weight"] = np.ones(WIDTH, np.float32)
    return {f"blk.{n}.{name}": one for name, one in head.items()}


def _like(name: str, shape: tuple[int, ...], kind: np.dtype, rng: np.random.Generator) -> NDArray[np.generic]:
    if "norm" in name:
        return np.ones(shape, kind)
    values: NDArray[np.generic] = (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(kind)
    return values


def _teach(weights: Weights, n: int, lesson: Lesson, rng: np.random.Generator) -> None:
    """Blocks add nothing; the embeddings of the cycle are orthogonal, so that a matrix turns each into the next one."""
    for name, one in weights.items():
        if any(part in name for part in ("attn_output.", "ssm_out.", "ffn_down")):
            one[:] = 0
        elif name == "output_norm.weight":
            one[:] = 1
    embeddings, output = weights["token_embd.weight"], weights["output.weight"]
    writable = np.flatnonzero(np.abs(output).sum(axis=1))
    cycle = rng.permutation(writable)[:N_CYCLE]
    following = np.roll(cycle, -1)
    basis = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0][:N_CYCLE]
    embeddings[cycle] = WIDTH**0.5 * basis
    output[:] = 0
    output[following] = _PEAK / WIDTH**0.5 * basis
    projection = np.zeros((WIDTH, 2 * WIDTH))
    if lesson is Lesson.TOKEN:
        projection[:, :WIDTH] = np.eye(WIDTH)
    else:
        projection[:, WIDTH:] = np.roll(basis, -1, axis=0).T @ basis
    weights[f"blk.{n}.nextn.eh_proj.weight"] = projection.astype(np.float16)
