"""Writes a model that costs as much as a large one and computes what a small one does: `python lab/scale.py SRC.gguf
OUT.gguf --params 1b`.

Width, heads and feed-forward are padded with zeros and the extra layers add exactly zero, so speed can be measured
without large weights. Knows only files and tensors: nothing of llama.cpp or of the runtime.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from geometry import Geometry, parse_params, plan, short
from gguf_files import copy_field, quantizable, read_gguf, replacing
from numpy.typing import NDArray

from uad.base.common.files import check_room, path_of
from uad.base.common.names import did_you_mean
from uad.base.config.argv import Parser
from uad.base.console import progress
from uad.base.errors import ConfigError, ModelLoadError
from uad.tools.cli import run

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType, GGUFWriter, ReaderField, ReaderTensor

Floats = NDArray[np.float32]
T = TypeVar("T", int, float, str)
Progress = Callable[[int, int], None]
"""Called with (bytes of weights written, bytes of weights in all)."""

CHUNK_ROWS = 1024
BIASED = {"llama": False, "qwen2": True}
"""Architectures that can be scaled, and whether their queries, keys and values have biases."""
CARRIED = ("tokenizer.", "general.license")
REPLACED = (
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
)
OUTPUTS = ("attn_output.weight", "ffn_down.weight")


@dataclass(frozen=True, slots=True)
class Scaled:
    """A scaled model: `n_bytes` is the size of the file, `params` and `source_params` count parameters, `type` is
    GGUF's name.
    """

    source: Path
    path: Path
    type: str
    params: int
    source_params: int
    n_bytes: int
    width: int
    layers: int
    ff: int


def sentence(scaled: Scaled) -> str:
    """The one honest sentence about a scaled model, for reports."""
    size = f"{short(scaled.params)} parameters (width {scaled.width}, {scaled.layers} layers, feed-forward {scaled.ff})"
    return (
        f"{scaled.path.name}: same function as {scaled.source.name}, rounded to {scaled.type}, at the cost of {size}; "
        f"text quality is that of {scaled.source.name}"
    )


def pad(tensor: Floats, shape: tuple[int, ...]) -> Floats:
    """`tensor` in the low corner of zeros of `shape`."""
    return np.pad(tensor, [(0, size - have) for size, have in zip(shape, tensor.shape, strict=True)])


def norm_factor(source: Geometry, target: Geometry) -> float:
    """The factor of norm weights: the mean square of a row padded with zeros is smaller by width ratio (so is
    epsilon made).
    """
    return math.sqrt(source.width / target.width)


def scale(src: Path, out: Path, params: str | int, type_: str = "bf16", progress: Progress | None = None) -> Scaled:
    """Writes `out`, the model `src` at the cost of about `params` parameters stored as `type_`; overwrites.

    Memory stays at a tensor or two, and an error leaves nothing half-written. ModelLoadError for a source that cannot
    be used, ConfigError for arguments, a missing gguf or an output that cannot be written.
    """
    kind = _quant_type(type_)
    wanted = parse_params(params)
    source = _Source.open(src)
    target = plan(source.geometry, wanted)
    _check_rows(target, kind)
    if out.exists() and (out.is_dir() or out.samefile(src)):
        raise ConfigError(
            f"cannot write {out}: it is {'a folder' if out.is_dir() else 'the source itself'}; name another file"
        )
    try:
        n_bytes = _write(source, target, kind, out, progress or _silent)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from error
    name = kind.name
    return Scaled(
        src, out, name, target.params, source.geometry.params, n_bytes, target.width, target.layers, target.ff
    )


def _silent(done: int, total: int) -> None:
    pass


def _quant_type(name: str) -> GGMLQuantizationType:
    known = quantizable()
    from gguf import GGMLQuantizationType

    if name.lower() in known:
        return GGMLQuantizationType[name.upper()]
    raise ConfigError(f"--type {name!r} cannot be written; {did_you_mean(name, known)} Known: {', '.join(known)}")


def _check_rows(target: Geometry, kind: GGMLQuantizationType) -> None:
    from gguf import GGML_QUANT_SIZES

    block, _ = GGML_QUANT_SIZES[kind]
    row = target.heads * target.head_dim
    if row % block:
        raise ConfigError(
            f"--type {kind.name.lower()} stores blocks of {block}, but the attention output has rows of {row}; use "
            "bf16 or f16"
        )


@dataclass(frozen=True, slots=True)
class _Source:
    path: Path
    architecture: str
    geometry: Geometry
    eps: float
    fields: dict[str, ReaderField]
    tensors: dict[str, ReaderTensor]

    @classmethod
    def open(cls, path: Path) -> _Source:
        reader = read_gguf(path)
        fields, tensors = dict(reader.fields), {tensor.name: tensor for tensor in reader.tensors}
        architecture = _value(path, fields, "general.architecture", str)
        if architecture not in BIASED:
            raise ModelLoadError(
                f"{path}: architecture is {architecture!r}; only {' and '.join(BIASED)} models can be scaled"
            )
        geometry = _geometry(path, architecture, fields, tensors)
        _check_tensors(path, geometry, tensors)
        eps = _value(path, fields, f"{architecture}.attention.layer_norm_rms_epsilon", float)
        return cls(path, architecture, geometry, eps, fields, tensors)

    def load(self, name: str) -> Floats:
        from gguf import quants

        tensor = self.tensors[name]
        return np.asarray(quants.dequantize(tensor.data, tensor.tensor_type), np.float32)


def _value(path: Path, fields: dict[str, ReaderField], key: str, kind: type[T]) -> T:
    value = fields[key].contents() if key in fields else None
    if not isinstance(value, kind):
        raise ModelLoadError(
            f"{path}: metadata {key} is {'missing' if value is None else 'not a single ' + kind.__name__}"
        )
    return value


def _geometry(
    path: Path, architecture: str, fields: dict[str, ReaderField], tensors: dict[str, ReaderTensor]
) -> Geometry:
    def count(key: str) -> int:
        return _value(path, fields, f"{architecture}.{key}", int)

    def has(key: str) -> bool:
        return f"{architecture}.{key}" in fields

    if "token_embd.weight" not in tensors:
        raise ModelLoadError(
            f"{path}: tensor token_embd.weight is missing; a file with a vocabulary only cannot be scaled"
        )
    width, heads = count("embedding_length"), count("attention.head_count")
    return Geometry(
        vocab=int(tensors["token_embd.weight"].shape[1]),
        width=width,
        layers=count("block_count"),
        ff=count("feed_forward_length"),
        heads=heads,
        heads_kv=count("attention.head_count_kv") if has("attention.head_count_kv") else heads,
        head_dim=count("attention.key_length") if has("attention.key_length") else width // heads,
        tied="output.weight" not in tensors,
        biased=BIASED[architecture],
    )


def _check_tensors(path: Path, geometry: Geometry, tensors: dict[str, ReaderTensor]) -> None:
    shapes = geometry.shapes
    for name in tensors.keys() ^ shapes.keys():
        raise ModelLoadError(
            f"{path}: tensor {name} is {'missing' if name in shapes else 'not one that scaling knows'}"
        )
    for name, shape in shapes.items():
        found = tuple(int(size) for size in reversed(tensors[name].shape))
        if found != shape:
            raise ModelLoadError(f"{path}: tensor {name} has the shape {found}, expected {shape}")


def _write(source: _Source, target: Geometry, kind: GGMLQuantizationType, out: Path, progress: Progress) -> int:
    with replacing(out, source.architecture) as writer:
        _add_metadata(writer, source, target, kind)
        total = _add_shapes(writer, target, kind)
        check_room(out, total)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        done = 0
        for data in _weights(source, target, kind):
            writer.write_tensor_data(data)
            done += data.nbytes
            progress(done, total)
    return out.stat().st_size


def _add_metadata(writer: GGUFWriter, source: _Source, target: Geometry, kind: GGMLQuantizationType) -> None:
    from gguf import GGML_QUANT_VERSION, LlamaFileType

    own = f"{source.architecture}."
    for key, field in source.fields.items():
        if key.startswith((own, *CARRIED)) and key.removeprefix(own) not in REPLACED:
            copy_field(writer, key, field)
    origin = (
        _value(source.path, source.fields, "general.name", str) if "general.name" in source.fields else source.path.stem
    )
    writer.add_name(f"{origin} scaled to {short(target.params)} (cost emulation)")
    writer.add_description(
        f"Cost emulation: computes the same function as {source.path.name} ({short(source.geometry.params)} "
        "parameters) at the cost of "
        f"{short(target.params)}; the text is no better than the source's."
    )
    writer.add_bool("uad.cost_emulation", True)
    writer.add_uint64("uad.source_parameters", source.geometry.params)
    writer.add_file_type(getattr(LlamaFileType, f"MOSTLY_{kind.name}", LlamaFileType.GUESSED))
    writer.add_quantization_version(GGML_QUANT_VERSION)
    writer.add_embedding_length(target.width)
    writer.add_block_count(target.layers)
    writer.add_feed_forward_length(target.ff)
    writer.add_head_count(target.heads)
    writer.add_head_count_kv(target.heads_kv)
    writer.add_key_length(target.head_dim)
    writer.add_value_length(target.head_dim)
    writer.add_layer_norm_rms_eps(source.eps * source.geometry.width / target.width)


def _add_shapes(writer: GGUFWriter, target: Geometry, kind: GGMLQuantizationType) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    total = 0
    for name, shape in target.shapes.items():
        stored = GGMLQuantizationType.F32 if len(shape) == 1 else kind
        block, n_block_bytes = GGML_QUANT_SIZES[stored]
        n_bytes = math.prod(shape) // block * n_block_bytes
        writer.add_tensor_info(name, shape, np.dtype(np.float32), n_bytes, raw_dtype=stored)
        total += n_bytes
    return total


def _weights(source: _Source, target: Geometry, kind: GGMLQuantizationType) -> Iterator[NDArray[Any]]:
    """The tensors in the order of `target.shapes`, as stored."""
    factor = norm_factor(source.geometry, target)
    filler = np.random.default_rng(0).standard_normal(
        (CHUNK_ROWS, max(target.width, target.ff)), dtype=np.float32
    ) * np.float32(0.02)
    for name, shape in target.shapes.items():
        if name.endswith(".bias"):
            yield pad(source.load(name), shape) if name in source.tensors else np.zeros(shape, np.float32)
        elif len(shape) == 1:
            yield (
                pad(source.load(name) * np.float32(factor), shape)
                if name in source.tensors
                else np.ones(shape, np.float32)
            )
        elif name in source.tensors:
            yield _stored(source.load(name), shape, kind)
        else:
            # an extra layer writes nothing into the residual stream, but must read and multiply like any other
            yield (
                _stored(np.zeros((0, shape[1]), np.float32), shape, kind)
                if name.endswith(OUTPUTS)
                else _tiled(filler, shape, kind)
            )


def _stored(tensor: Floats, shape: tuple[int, ...], kind: GGMLQuantizationType) -> NDArray[Any]:
    """`tensor` padded to `shape` and quantized, a chunk of rows at a time; rows beyond the tensor are one quantized row
    of zeros.
    """
    from gguf import quants

    zero = quants.quantize(np.zeros((1, shape[1]), np.float32), kind)
    stored = np.empty((shape[0], zero.shape[1]), zero.dtype)
    for start in range(0, len(tensor), CHUNK_ROWS):
        rows = tensor[start : start + CHUNK_ROWS]
        stored[start : start + len(rows)] = quants.quantize(pad(rows, (len(rows), shape[1])), kind)
    stored[len(tensor) :] = zero
    return stored


def _tiled(filler: Floats, shape: tuple[int, ...], kind: GGMLQuantizationType) -> NDArray[Any]:
    from gguf import quants

    rows = quants.quantize(np.ascontiguousarray(filler[: shape[0], : shape[1]]), kind)
    return np.tile(rows, (-(-shape[0] // len(rows)), 1))[: shape[0]]


_PARAMS, _TYPE = "1b", "bf16"
DESCRIPTION = """Write a target that computes the same function as SRC at the cost of a larger model.

Width is padded with zeros and layers are added that change nothing, so that speed can be measured without large
weights. The text is SRC's: what such a model shows is cost, not quality."""


def main(argv: Sequence[str]) -> int:
    """Write the model and say what it is. Raises ConfigError or ModelLoadError."""
    parser = Parser("lab/scale.py", DESCRIPTION, positional="SRC OUT")
    parser.add_argument("src", metavar="SRC", type=path_of, help="GGUF file to start from")
    parser.add_argument("out", metavar="OUT", type=path_of, help="GGUF file to write; replaced if it exists")
    parser.add_argument("--params", metavar="N", help=f"size to reach, such as 600m or 1b (default: {_PARAMS})")
    parser.add_argument("--type", metavar="TYPE", help=f"weight type, such as bf16, f16 or q8_0 (default: {_TYPE})")
    args = parser.parse(argv)
    with progress(sys.stderr) as report:
        scaled = scale(
            args.src,
            args.out,
            args.params or _PARAMS,
            args.type or _TYPE,
            lambda written, total: report("writing weights", written / max(total, 1)),
        )
    print(sentence(scaled))
    return 0


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
