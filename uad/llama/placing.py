"""The process that tries whether llama.cpp understands lists of places (`placement.py`): wrong ones may end it.

A model of one layer, written for that, is loaded without its weights; the log names each tensor that was put elsewhere.
Nothing else tells: the list's structure has no name in the binding.
"""

from __future__ import annotations

import math
import os
import re
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import llama_cpp.llama_cpp as lib

from uad.base.config import Place
from uad.llama import placement
from uad.llama.backend import native

_PLACES = (Place("^no tensor$", placement.CPU), Place(r"\.ffn_(up|down)\.", placement.CPU))
_PLAIN = ("blk.0.attn_q.weight",)
_MOVED = {"blk.0.attn_q.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"}
_SAID = re.compile(r"tensor (\S+) .*buffer type overridden to")
_WRONG = 3  # exit code
_WIDTH, _N_TOKENS, _ALIGNMENT = 32, 4, 32
_U32, _F32, _TEXT = 4, 6, 8  # GGUF's numbers of types of values
_OF_LAYER = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_VALUES: tuple[tuple[str, int, int | float | str], ...] = (
    ("general.architecture", _TEXT, "llama"),
    ("tokenizer.ggml.model", _TEXT, "none"),
    ("llama.vocab_size", _U32, _N_TOKENS),
    ("llama.context_length", _U32, _WIDTH),
    ("llama.embedding_length", _U32, _WIDTH),
    ("llama.feed_forward_length", _U32, _WIDTH),
    ("llama.block_count", _U32, 1),
    ("llama.attention.head_count", _U32, 1),
    ("llama.attention.layer_norm_rms_epsilon", _F32, 1e-5),
)
_TENSORS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("token_embd.weight", (_WIDTH, _N_TOKENS)),
    ("output_norm.weight", (_WIDTH,)),
    *((f"blk.0.{name}_norm.weight", (_WIDTH,)) for name in ("attn", "ffn")),
    *((f"blk.0.{name}.weight", (_WIDTH, _WIDTH)) for name in _OF_LAYER),
)


def main() -> int:
    """Exit code 0 if exactly those tensors are put elsewhere that the list names. Ends as llama.cpp does otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "layer.gguf")
        path.write_bytes(layer())
        return 0 if moved(path, _PLACES, _PLAIN) == _MOVED else _WRONG


def moved(path: Path, places: Sequence[Place], plain: Sequence[str]) -> set[str]:
    """Names of the tensors that llama.cpp says it puts where these places are."""
    log = native.start()
    params = lib.llama_model_default_params()
    params.load_mode, params.no_alloc, params.n_gpu_layers = 0, True, 0
    placement.fill(params, places, plain)
    with log.collecting() as lines:
        if model := lib.llama_model_load_from_file(os.fsencode(path), params):
            lib.llama_model_free(model)
    return {match[1] for line in lines if (match := _SAID.search(line))}


def layer() -> bytes:
    """A GGUF file of a model with one layer, all weights 0."""
    head = b"".join(_header())
    return head + bytes(-len(head) % _ALIGNMENT) + bytes(sum(map(_n_bytes, (shape for _, shape in _TENSORS))))


def _header() -> Iterator[bytes]:
    yield struct.pack("<4sIQQ", b"GGUF", 3, len(_TENSORS), len(_VALUES))
    for key, kind, value in _VALUES:
        yield _text(key) + struct.pack("<I", kind)
        yield _text(value) if isinstance(value, str) else struct.pack("<I" if kind == _U32 else "<f", value)
    offset = 0
    for name, shape in _TENSORS:
        yield _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        offset += _n_bytes(shape)


def _n_bytes(shape: Sequence[int]) -> int:
    """Bytes of a tensor of 32-bit numbers; its rows make it a multiple of the alignment."""
    return 4 * math.prod(shape)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


if __name__ == "__main__":
    sys.exit(main())
