"""The devices that llama.cpp computes on, by name, and what its build can do there. Knows no model."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from uad.llama import native

_ENUMERATION = (
    "ggml_backend_dev_count",
    "ggml_backend_dev_get",
    "ggml_backend_dev_name",
    "ggml_backend_dev_description",
)

_GPUS = (1, 2)  # ggml_backend_dev_type of graphics processors with memory of their own, and in the machine's


def devices() -> tuple[str, ...]:
    """One line per device ("CPU: …", "CUDA0: …"), then the kernels that this build has. Empty lines are left out."""
    native.start()
    features = lib.llama_print_system_info().decode(errors="replace").strip(" |")
    named = _named() or (_processor(),)
    return tuple(line for line in (*named, features) if line)


def offloads() -> bool:
    """Whether this build computes on anything but the CPU."""
    return bool(lib.llama_supports_gpu_offload())


def _named() -> tuple[str, ...]:
    """What ggml itself enumerates; () where the binding's library does not lead to ggml's symbols."""
    library: Any = getattr(lib, "_lib", None)
    if not all(hasattr(library, name) for name in _ENUMERATION):
        return ()
    count, get, name, description = (getattr(library, symbol) for symbol in _ENUMERATION)
    count.restype, get.restype, get.argtypes = ctypes.c_size_t, ctypes.c_void_p, [ctypes.c_size_t]
    for text in (name, description):
        text.restype, text.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    return tuple(f"{name(device).decode()}: {description(device).decode()}" for device in map(get, range(count())))


def memory_left() -> int:
    """Bytes that are free on all GPUs together; 0 where this build uses none, or where they do not say."""
    library: Any = getattr(lib, "_lib", None)
    if not offloads() or not all(hasattr(library, name) for name in (*_ENUMERATION, "ggml_backend_dev_memory")):
        return 0
    count, get, memory, kind = (
        getattr(library, f"ggml_backend_dev_{name}") for name in ("count", "get", "memory", "type")
    )
    count.restype, get.restype, get.argtypes = ctypes.c_size_t, ctypes.c_void_p, [ctypes.c_size_t]
    memory.restype, memory.argtypes = (
        None,
        [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)],
    )
    kind.restype, kind.argtypes = ctypes.c_int, [ctypes.c_void_p]
    left = 0
    for device in map(get, range(count())):
        if kind(device) in _GPUS:
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            memory(device, ctypes.byref(free), ctypes.byref(total))
            left += free.value
    return left


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return f"CPU: {model or platform.machine()}"
