"""Writes a deliberately bad draft: another model's architecture, vocabulary and cost with weights drawn at random.

Knows files and tensors only. Norms stay as they are, so that activations keep their size; a confident one has its last
norm raised.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf_files import copy_field, import_gguf, quantizable, read_gguf, replacing
from numpy.typing import NDArray

from uad.base.common.files import check_room
from uad.base.errors import ConfigError, ModelLoadError

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter, ReaderTensor

LOGIT_STD = 20.0
"""Of a confident model: among thousands of logits drawn with it the largest leads by about 5, a probability of 99 %."""

_NORM, _OUTPUTS = "output_norm.weight", ("output.weight", "token_embd.weight")


@dataclass(frozen=True, slots=True)
class Scrambled:
    """A scrambled model; `n_bytes` is the size of the file."""

    source: Path
    path: Path
    seed: int
    confident: bool
    n_bytes: int


def sentence(scrambled: Scrambled) -> str:
    """The one honest sentence about a scrambled model, for reports."""
    kind = "confident nonsense" if scrambled.confident else "nonsense"
    return (
        f"{scrambled.path.name}: {scrambled.source.name} with random weights (seed {scrambled.seed}); it writes "
        f"{kind} at the same cost"
    )


def scramble(src: Path, out: Path, seed: int, confident: bool = False) -> Scrambled:
    """Writes `out`; overwrites. `confident` makes the top probability large, though no better founded.

    ModelLoadError for a source that cannot be used; ConfigError for a missing gguf, a type that cannot be written, or a
    bad output.
    """
    import_gguf()
    reader = read_gguf(src)
    _check(src, reader)
    if out.exists() and (out.is_dir() or out.samefile(src)):
        raise ConfigError(
            f"cannot write {out}: it is {'a folder' if out.is_dir() else 'the source itself'}; name another file"
        )
    try:
        n_bytes = _write(reader, out, np.random.default_rng(seed), confident, seed)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from error
    return Scrambled(src, out, seed, confident, n_bytes)


def _check(src: Path, reader: GGUFReader) -> None:
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if _NORM not in tensors or "token_embd.weight" not in tensors:
        raise ModelLoadError(
            f"{src}: tensor {_NORM} or token_embd.weight is missing; only language models with weights can be scrambled"
        )
    for tensor in tensors.values():
        kind = tensor.tensor_type.name
        if kind.lower() not in quantizable():
            raise ConfigError(
                f"{src}: {tensor.name} is stored as {kind}, which cannot be written; start from an F16, BF16 or Q8_0 "
                "file"
            )


def _write(reader: GGUFReader, out: Path, rng: np.random.Generator, confident: bool, seed: int) -> int:
    with replacing(out, str(reader.fields["general.architecture"].contents())) as writer:
        _add_metadata(writer, reader, seed)
        check_room(out, sum(int(tensor.n_bytes) for tensor in reader.tensors))
        for tensor, data in _weights(reader, rng, confident):
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return out.stat().st_size


def _add_metadata(writer: GGUFWriter, reader: GGUFReader, seed: int) -> None:

    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.name", "general.description"):
            continue
        copy_field(writer, key, field)
    name = reader.fields["general.name"].contents() if "general.name" in reader.fields else "model"
    writer.add_name(f"{name} with random weights")
    writer.add_description(
        f"Random weights (seed {seed}): a deliberately bad draft, to measure what a bad draft costs."
    )


def _weights(
    reader: GGUFReader, rng: np.random.Generator, confident: bool
) -> Iterator[tuple[ReaderTensor, NDArray[Any]]]:
    """Every tensor of the file as it is stored: vectors as they were, matrices drawn with their old mean square."""
    from gguf import quants

    std = {}
    # the last norm last: it needs the output's size
    for tensor in sorted(reader.tensors, key=lambda one: one.name == _NORM):
        values = np.asarray(quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
        if values.ndim > 1:
            std[tensor.name] = float(np.sqrt(np.mean(values**2)))
            values = rng.standard_normal(values.shape, np.float32) * np.float32(std[tensor.name])
        elif tensor.name == _NORM and confident:
            output = next(std[name] for name in _OUTPUTS if name in std)
            values = np.full_like(values, LOGIT_STD / (output * math.sqrt(len(values))))
        yield tensor, quants.quantize(values, tensor.tensor_type)
