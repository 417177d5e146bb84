"""Structures and numbers of C that `symbols.py` writes out by hand are those of the installed llama.cpp.

`NativeTensor`, `TensorPlace` and the number of weights' buffers are tried in tests/model/test_rearranged.py and
test_placing.py.
"""

from __future__ import annotations

from ctypes import c_bool, c_size_t, c_void_p, cast

import llama_cpp.llama_cpp as lib
import pytest

from uad.llama.backend import native, symbols
from uad.llama.backend.ggml import function, type_name
from uad.llama.backend.symbols import InitParams


@pytest.fixture(autouse=True)
def start() -> None:
    native.start()


@pytest.mark.parametrize(("size", "no_alloc"), [(1 << 16, True), (3 << 14, True), (1 << 16, False)])
def test_ggml_reads_each_field_of_its_parameters_where_it_is_written(size: int, no_alloc: bool) -> None:
    size_of, no_alloc_of, memory_of = (
        getattr(lib._lib, f"ggml_get_{name}") for name in ("mem_size", "no_alloc", "mem_buffer")
    )
    size_of.argtypes = no_alloc_of.argtypes = memory_of.argtypes = (c_void_p,)
    size_of.restype, no_alloc_of.restype, memory_of.restype = c_size_t, c_bool, c_void_p
    memory = (c_size_t * (size // 8))()
    address = cast(memory, c_void_p).value
    handle = function("ggml_init")(InitParams(size, address, no_alloc))
    try:
        assert (size_of(handle), memory_of(handle), no_alloc_of(handle)) == (size, address, no_alloc)
    finally:
        function("ggml_free")(handle)


@pytest.mark.parametrize("name", symbols.TYPES)
def test_a_number_of_a_type_is_that_of_its_name(name: str) -> None:
    assert type_name(symbols.TYPES[name]) == name.upper()


@pytest.mark.parametrize(
    ("numbers", "constants"),
    [
        (symbols.FLASH_ATTN_TYPES, {"auto": "AUTO", "off": "DISABLED", "on": "ENABLED"}),
        (symbols.ROPE_SCALING_TYPES, {"": "UNSPECIFIED", "none": "NONE", "linear": "LINEAR", "yarn": "YARN"}),
        (symbols.NUMA_STRATEGIES, {"distribute": "DISTRIBUTE", "isolate": "ISOLATE", "numactl": "NUMACTL"}),
    ],
    ids=["LLAMA_FLASH_ATTN_TYPE", "LLAMA_ROPE_SCALING_TYPE", "GGML_NUMA_STRATEGY"],
)
def test_numbers_of_settings_are_the_bindings(numbers, constants, request) -> None:
    prefix = request.node.callspec.id
    assert numbers == {name: getattr(lib, f"{prefix}_{constant}") for name, constant in constants.items()}


def test_the_first_device_of_the_processors_number_is_the_processor() -> None:
    device = function("ggml_backend_dev_by_type")(symbols.CPU_DEVICE)
    assert function("ggml_backend_dev_name")(device) == b"CPU"
