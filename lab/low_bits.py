"""Models in types of few bits, and how near their logits are to those of the same weights as F16.

    python lab/low_bits.py SRC.gguf OUT.gguf --type iq3_s    write SRC anew in this type, the embedding in Q6_K
    python lab/low_bits.py MODEL.gguf                        KL divergence in llama.cpp's kernels and in uad's

ggml quantizes, with the same importance of all columns: IQ2 and IQ3 take minutes for 1.5B. Tensors of F32 stay.
Divergence is that of 512 ids of the README and a source file, in passes of 64 rows. The F16 file of the same weights
runs in llama.cpp's kernels. Needs the gguf package.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gguf_files import copy_field, import_gguf, raw_value, read_gguf, replacing

from uad.base.common.cores import usable_cores
from uad.base.common.files import path_of
from uad.base.config import ModelConfig
from uad.base.config.argv import Parser
from uad.base.errors import ConfigError
from uad.base.types import Rows
from uad.tools.cli import run

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType, ReaderTensor

ROOT = Path(__file__).parent.parent
TEXTS = ("README.md", "uad/engine/policy/choose.py")
N_TEXT, N_IDS, N_ROWS, CHUNK = 1500, 512, 64, 256
EMBEDDING, EMBEDDING_TYPE = "token_embd.weight", "q6_k"
TYPES = (
    *("tq1_0", "tq2_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_0", "q4_0", "mxfp4", "nvfp4"),
    *("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs"),
)
Floats = npt.NDArray[np.float32]
Data = npt.NDArray[Any]


def rewrite(src: Path, out: Path, stored: Callable[[ReaderTensor], tuple[Data, Any]]) -> None:
    """Writes `out`, the model `src` with each matrix as `stored` gives it: bytes or halves, and their type."""
    source = read_gguf(src)
    with replacing(out, raw_value(source.fields["general.architecture"]).decode()) as writer:
        for name, field in source.fields.items():
            if not name.startswith(("GGUF.", "general.architecture", "general.file_type")):
                copy_field(writer, name, field)
        for tensor in source.tensors:
            data, kind = (tensor.data, tensor.tensor_type) if tensor.tensor_type.name == "F32" else stored(tensor)
            writer.add_tensor(tensor.name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()


def quantized(weights: Floats, kind: GGMLQuantizationType) -> Data:
    """Rows of this type, of weights whose last dimension is the columns. Raises ConfigError for columns that blocks of
    the type do not divide.
    """
    import llama_cpp.llama_cpp as lib
    from gguf import GGML_QUANT_SIZES

    n_columns, (n_block, n_bytes) = weights.shape[-1], GGML_QUANT_SIZES[kind]
    if n_columns % n_block:
        raise ConfigError(f"{kind.name} has blocks of {n_block}, which do not divide rows of {n_columns}")
    n_rows = weights.size // n_columns
    rows = np.empty((n_rows, n_columns // n_block * n_bytes), np.uint8)
    importance = np.ones(n_columns, np.float32)
    quantize = lib._lib.ggml_quantize_chunk
    quantize.restype, long = ctypes.c_size_t, ctypes.c_int64
    quantize.argtypes = (ctypes.c_int, *[ctypes.c_void_p] * 2, *[long] * 3, ctypes.c_void_p)

    def part(first: int) -> None:
        n = min(CHUNK, n_rows - first)
        places = weights.ctypes.data, rows.ctypes.data
        quantize(int(kind), *places, first * n_columns, n, n_columns, importance.ctypes.data)

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(part, range(0, n_rows, CHUNK)))
    return rows.reshape(*weights.shape[:-1], -1)


def write(src: Path, out: Path, type_: str) -> None:
    """Writes `out`, the model `src` with matrices of this type, one of TYPES."""
    from gguf import GGMLQuantizationType, dequantize

    def stored(tensor: ReaderTensor) -> tuple[Data, Any]:
        kind = GGMLQuantizationType[(EMBEDDING_TYPE if tensor.name == EMBEDDING else type_).upper()]
        if kind == tensor.tensor_type:
            return tensor.data, kind
        return quantized(np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32), kind), kind

    rewrite(src, out, stored)


def exact(src: Path, out: Path) -> None:
    """Writes `out`, the model `src` with matrices as F16."""
    from gguf import GGMLQuantizationType, dequantize

    half = GGMLQuantizationType.F16
    rewrite(src, out, lambda tensor: (dequantize(tensor.data, tensor.tensor_type).astype(np.float16), half))


def logits(path: Path, kernels: bool) -> Floats:
    """Log-probabilities [id, vocabulary] after each id of the texts."""
    from uad.llama.context import Context
    from uad.llama.model import Model

    config = ModelConfig(path, n_ctx=2 * N_IDS, n_ubatch=N_IDS, n_threads=usable_cores(), kernels=kernels)
    text = "".join((ROOT / name).read_text()[:N_TEXT] for name in TEXTS)
    with Model(config) as model, Context(model, config, 1) as context:
        ids, rows = model.vocab.tokenize(text.encode())[:N_IDS], []
        for at in range(0, len(ids), N_ROWS):
            some = ids[at : at + N_ROWS]
            context.decode([Rows(0, at, some, len(some))])
            found = np.array(context.logits(), np.float32)
            found -= found.max(1, keepdims=True)
            rows.append(found - np.log(np.exp(found).sum(1, keepdims=True)))
    return np.concatenate(rows)


def compare(path: Path) -> None:
    """Prints the mean divergence, its median, and how often the likeliest id is the same. Each side has a process."""
    apart: dict[str, Any] = {"max_workers": 1, "max_tasks_per_child": 1}
    apart["mp_context"] = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="low-bits-") as folder:
        exact(path, halves := Path(folder) / "f16.gguf")
        with ProcessPoolExecutor(**apart) as pool:
            of, theirs, ours = pool.map(logits, (halves, path, path), (False, False, True))
    p = np.exp(of.astype(np.float64))
    for name, found in (("llama.cpp", theirs), ("uad", ours)):
        kl = (p * (of - found)).sum(1)
        same = float(np.mean(of.argmax(1) == found.argmax(1)))
        print(f"{path.stem} {name}: KL {kl.mean():.5f}, median {np.median(kl):.5f}, likeliest id {same:.1%} the same")


def main(argv: Sequence[str]) -> int:
    """Write or compare. Raises ConfigError or ModelLoadError."""
    parser = Parser("lab/low_bits.py", "Write a model in a type of few bits, or compare.", positional="MODEL [OUT]")
    parser.add_argument("model", metavar="MODEL", type=path_of, help="GGUF file to start from, or to compare")
    parser.add_argument("out", metavar="OUT", type=path_of, nargs="?", help="GGUF file to write; replaced if it exists")
    parser.add_argument("--type", metavar="TYPE", choices=TYPES, help="type of OUT's matrices")
    given = parser.parse(argv)
    if (given.out is None) != (given.type is None):
        raise ConfigError("OUT and --type belong together")
    import_gguf()
    if given.out is None:
        compare(given.model)
    else:
        write(given.model, given.out, given.type)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
