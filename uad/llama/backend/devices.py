"""The devices that llama.cpp computes on, of this machine and of RPC workers, and which of them a model uses."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterable, Sequence
from ctypes import c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from uad.base.common.files import is_there
from uad.base.common.names import did_you_mean
from uad.base.config import ModelConfig
from uad.base.errors import ConfigError
from uad.llama.backend import ggml, native

_NEEDED = (
    "ggml_backend_dev_count",
    "ggml_backend_dev_description",
    "ggml_backend_dev_get",
    "ggml_backend_dev_memory",
    "ggml_backend_dev_name",
    "ggml_backend_dev_type",
)
_GPUS = (1, 2)  # ggml_backend_dev_type of graphics processors with memory of their own, and in the machine's
_REMOTE = b"RPC"


@dataclass(frozen=True, slots=True)
class Device:
    """One device."""

    name: str
    """The name that --device takes."""
    description: str
    """The device in words; for a worker's device, the worker's address."""
    takes_layers: bool
    """Layers can be put there: GPUs, and all that workers have."""
    is_remote: bool
    """A worker's."""
    handle: int
    """ggml's pointer."""

    @property
    def free(self) -> int:
        """Bytes that are free there, as the device says; a worker is asked over the network."""
        free, total = c_size_t(), c_size_t()
        ggml.function("ggml_backend_dev_memory")(self.handle, ctypes.byref(free), ctypes.byref(total))
        return int(free.value)


def every() -> tuple[Device, ...]:
    """All devices, those of workers that were added too; () where the binding does not lead to ggml's symbols."""
    native.start()
    if not ggml.has(*_NEEDED):
        return ()
    count, get = ggml.function("ggml_backend_dev_count"), ggml.function("ggml_backend_dev_get")
    return tuple(_device(get(i)) for i in range(count()))


def _device(handle: int) -> Device:
    name, description = ggml.function("ggml_backend_dev_name"), ggml.function("ggml_backend_dev_description")
    kind = ggml.function("ggml_backend_dev_type")(handle)
    texts = [text(handle).decode(errors="replace") for text in (name, description)]
    is_remote = False
    if ggml.has("ggml_backend_dev_backend_reg", "ggml_backend_reg_name"):
        registry = ggml.function("ggml_backend_dev_backend_reg")(handle)
        is_remote = ggml.function("ggml_backend_reg_name")(registry) == _REMOTE
    return Device(texts[0], texts[1], kind in _GPUS, is_remote, handle)


def devices() -> tuple[str, ...]:
    """One line per device ("CPU: …", "CUDA0: …"), then the kernels that this build has. Empty lines are left out."""
    lines = [f"{device.name}: {device.description}" for device in every()]
    features = lib.llama_print_system_info().decode(errors="replace").strip(" |")
    return tuple(line for line in (*(lines or [_processor()]), features) if line)


# --- which of them a model uses


def used(config: ModelConfig) -> tuple[Device, ...]:
    """The devices that a model's layers are put on, beside the CPU. Raises ConfigError for a name that none has."""
    able = [device for device in every() if device.takes_layers]
    return tuple(able) if config.devices is None else named(config.devices, able)


def named(names: Sequence[str], able: Iterable[Device] | None = None, flag: str = "--device") -> tuple[Device, ...]:
    """These devices, in this order. Raises ConfigError that lists what there is."""
    known = {device.name: device for device in (every() if able is None else able)}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) if known else "there is none but the CPU, which `none` stands for"
            there = ", ".join(f"{device.name} ({device.description})" for device in known.values())
            raise ConfigError(f"{flag}: no device {name!r}; {hint}{f' (there are: {there})' if there else ''}")
    return tuple(known[name] for name in names)


def offloads(config: ModelConfig) -> bool:
    """Whether a model is computed on anything but this machine's CPU."""
    if not ggml.has(*_NEEDED):
        return bool(lib.llama_supports_gpu_offload())
    return bool(used(config))


def has_cpu_kernels(config: ModelConfig) -> bool:
    """Whether CPUs may compute a model: this machine's, or a worker's, which does not say what it computes on."""
    return not offloads(config) or any(device.is_remote for device in used(config))


def memory_left(configs: Iterable[ModelConfig]) -> int:
    """Bytes that are free on all devices together that these models use; 0 where they use none, or none says so."""
    by_handle = {device.handle: device for config in configs for device in used(config)} if ggml.has(*_NEEDED) else {}
    return sum(device.free for device in by_handle.values())


def place(params: Any, config: ModelConfig) -> None:
    """Write into llama.cpp's parameters of a model which devices it uses. Raises ConfigError for a name that no device
    has."""
    kept: list[object] = []
    if config.devices is not None:
        handles = [device.handle for device in used(config)]
        array = (c_void_p * (len(handles) + 1))(*handles, None)
        params.devices = ctypes.cast(array, c_void_p)
        kept.append(array)
    if config.tensor_split:
        n = int(lib.llama_max_devices())
        if len(config.tensor_split) > n:
            raise ConfigError(f"--tensor-split: {len(config.tensor_split)} shares, where llama.cpp takes {n} at most")
        shares = (ctypes.c_float * n)(*config.tensor_split)
        params.tensor_split = shares
        kept.append(shares)
    params.placed = kept  # llama.cpp reads them while it loads


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if is_there(path) else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return f"CPU: {model or platform.machine()}"


def extra_buffers(device: int) -> dict[str, int]:
    """The kinds of buffers that weights can be rearranged into, by name."""
    registry = ggml.function("ggml_backend_dev_backend_reg")(device)
    kinds = ggml.registered(registry, "ggml_backend_dev_get_extra_bufts")
    types = kinds(device) if kinds is not None else None
    name, places, i = ggml.function("ggml_backend_buft_name"), {}, 0
    while types and types[i]:
        places[name(types[i]).decode()] = int(types[i])
        i += 1
    return places
