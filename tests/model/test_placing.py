"""Lists of places are handed to llama.cpp only where another process saw that it understands them. And types of tensors
that the table of files lacks are asked of it.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest

from uad.base.config import ModelConfig, Place
from uad.base.errors import ConfigError
from uad.base.gguf import BLOCKS, GgufFile
from uad.llama import placement, placing
from uad.llama.backend import ggml, native, symbols
from uad.llama.backend.ggml import type_name, type_sizes
from uad.runtime.check import weight_types

OTHER_LAYOUT = """
import ctypes, sys
from uad.llama import placement, placing
class Place(ctypes.Structure):
    _fields_ = {fields}
placement.TensorPlace = Place
sys.exit(placing.main())
"""
LAYOUTS = {
    "longer": '(("pattern", ctypes.c_char_p), ("buffer", ctypes.c_void_p), ("flags", ctypes.c_void_p))',
    "turned round": '(("buffer", ctypes.c_void_p), ("pattern", ctypes.c_char_p))',
}


@pytest.fixture
def anew():
    """Nothing is known of what was tried before, or is after."""
    placement.is_understood.cache_clear()
    yield
    placement.is_understood.cache_clear()


def test_this_llama_cpp_puts_the_named_tensors_elsewhere_and_no_others(tmp_path) -> None:
    path = tmp_path / "layer.gguf"
    path.write_bytes(placing.layer())
    assert placing.moved(path, (), ()) == set()
    assert placing.moved(path, (Place(r"attn_(k|v)\.", "CPU"),), ()) == {"blk.0.attn_k.weight", "blk.0.attn_v.weight"}
    assert placing.moved(path, (), ("output_norm.weight",)) == {"output_norm.weight"}
    assert placement.is_understood()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_layout_is_found_out_in_a_process_of_its_own(layout) -> None:
    program = OTHER_LAYOUT.format(fields=LAYOUTS[layout])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=240)
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("places", "plain", "words"),
    [((Place("x", "CPU"),), (), "--override-tensor: .* leave it out"), ((), ("x",), "--repack: .* give --no-repack")],
)
def test_what_is_not_understood_is_not_handed_over(places, plain, words, anew, monkeypatch) -> None:
    monkeypatch.setattr(placement.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=-11))
    params = SimpleNamespace()
    with pytest.raises(ConfigError, match=words):
        placement.put(params, places, plain)
    assert vars(params) == {}
    placement.put(params, (), ())


def test_a_process_that_cannot_be_started_is_no_yes(anew, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(placement.subprocess, "run", fail)
    assert not placement.is_understood()


def test_the_installed_library_has_every_function_of_the_table() -> None:
    native.start()
    lacking = [name for name in symbols.GGML if not ggml.has(name)]
    assert set(lacking) <= set(symbols.UNSTABLE)


def test_every_type_of_this_llama_cpp_is_known_by_its_sizes_and_name() -> None:
    count = int(ggml.lib.GGML_TYPE_COUNT)
    known = {kind: sizes for kind in range(count) if (sizes := type_sizes(kind)) is not None}
    assert set(BLOCKS) <= set(known)
    assert {kind: known[kind] for kind in (0, 2, 8, 12, 42)} == {
        0: (1, 4),
        2: (32, 18),
        8: (32, 34),
        12: (256, 144),
        42: (64, 18),
    }
    assert [type_name(kind) for kind in (0, 12, 16, 30, 42)] == ["F32", "Q4_K", "IQ2_XXS", "BF16", "Q2_0"]
    for kind in (-1, 4, count, 1 << 31):
        assert type_sizes(kind) is None
        assert type_name(kind) == f"type {kind}"


def test_a_file_of_a_type_that_the_table_lacks_is_read(tmp_path) -> None:
    """Q2_0: blocks of 64 numbers in 18 bytes. `uad check` counts its matrices."""
    text = struct.pack("<Q", 1) + b"x"
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + text + struct.pack("<IQQIQ", 2, 64, 3, 42, 0)
    path = tmp_path / "one.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(3 * 18))
    assert weight_types(ModelConfig(path)) == {"Q2_0": 1}
    with GgufFile(path) as file:
        assert [(one.shape, one.n_bytes) for one in file.tensors] == [((64, 3), 54)]
