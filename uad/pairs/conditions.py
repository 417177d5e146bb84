"""Conditions of a measured gain beside its two files: the machine, llama.cpp, kernels, devices, and how both models
are run. Read without llama.cpp, so that a router and the processes of its models find the same.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path

from uad.base.common.cores import cpu_quota, usable_cores
from uad.base.config import Config, ModelConfig

_NO_MATTER = frozenset(("path", "hub", "n_ctx", "check_tensors", "mlock"))
"""Settings that do not change what a decode costs, or that the fingerprints of the files say."""
_OF_PROCESSOR = ("model name", "flags", "Features", "CPU implementer", "CPU part")
_VARIABLES = (
    *("UAD_KERNELS", "LLAMA_CPP_LIB_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("GGML_VK_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR"),
)
_GPUS = ("nvidia[0-9]*", "kfd", "dri/renderD*")


@dataclass(frozen=True, slots=True)
class Conditions:
    """Hashes. target: of all that changes what the target's decodes cost; draft: of how the draft is run."""

    target: str = ""
    draft: str = ""


def conditions(config: Config, root: Path = Path("/")) -> Conditions:
    """Conditions of a server with this configuration on this machine. root: where the system's files are."""
    own = (*_machine(root), *_settings(config.target), config.rpc, config.drafting.exact)
    return Conditions(_hash(own), "" if config.draft is None else _hash(tuple(_settings(config.draft))))


def _settings(model: ModelConfig) -> Iterator[object]:
    for setting in fields(model):
        if setting.name not in _NO_MATTER:
            yield setting.name, getattr(model, setting.name)


def _machine(root: Path) -> Iterator[object]:
    yield platform.machine()
    try:
        lines = (root / "proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0].splitlines()
        yield from (line for line in lines if line.partition(":")[0].strip() in _OF_PROCESSOR)
    except OSError:
        yield platform.processor()
    yield usable_cores(root), cpu_quota(root)
    yield sorted(str(device) for pattern in _GPUS for device in (root / "dev").glob(pattern))
    yield [os.environ.get(name, "") for name in _VARIABLES]
    for package in ("llama_cpp", "uad_kernels"):
        yield list(_libraries(package))


def _libraries(package: str) -> Iterator[object]:
    """Names, sizes and times of a package's libraries; nothing where it is not installed."""
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        for file in sorted(path for path in Path(folder).rglob("*") if path.suffix in (".so", ".dylib", ".dll")):
            status = file.stat()
            yield file.name, status.st_size, status.st_mtime_ns


def _hash(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
