"""Measured cost curves in the user's cache directory: one JSON file for a model on a machine with certain settings.

A file holds one model's curve, so that a target keeps its curve with every draft. Its name is made of all that changes
what a decode costs. The length of the context and the number of slots do not: a curve is that of one sequence, which
has a stream of its own.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from uad.base.common.cores import cpu_quota, usable_cores
from uad.base.common.curves import curve_text, curves_folder, read_curve
from uad.base.common.files import is_there, why_hidden, why_not_writable, write_atomically
from uad.base.common.numbers import rounded
from uad.base.common.once import warn_once
from uad.base.config import ModelConfig
from uad.base.errors import ConfigError
from uad.base.model_files import fingerprint
from uad.engine.policy.cost import CostSample
from uad.llama.backend import native
from uad.llama.backend.devices import devices, has_cpu_kernels, offloads
from uad.llama.context import Context, attention
from uad.llama.kernels import use as kernels
from uad.llama.rearranged import rearranged
from uad.runtime.costs import profile

_SLOWER, _QUICKER = 1.15, 0.95  # times as long as before: a curve that is replaced all the same
_log = logging.getLogger("uad")


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """The conditions that a curve holds for. `facts` are for readers of the file; `name` is that of the file."""

    name: str
    facts: Mapping[str, object]


def key(config: ModelConfig, role: str) -> ProfileKey:
    """The key of one model in its role, "target" or "draft", as configured. Raises ModelLoadError where the file cannot
    be read.

    The role counts since a draft without --threads and --threads-draft chooses the number of its threads by measuring.
    """
    flash_attn, most_rows = attention(config, on_cpu=has_cpu_kernels(config))
    facts: dict[str, object] = {
        "model": fingerprint(config.path, role),
        "role": role,
        "llama_cpp": native.build_info(),
        "devices": devices(),
        "threads": config.n_threads or f"auto of {usable_cores()}",
        "threads_batch": config.n_threads_batch or "as threads",
        "gpu_layers": config.n_gpu_layers if offloads(config) else 0,
        "flash_attn": flash_attn,
        "cache_type_k": config.type_k,
        "cache_type_v": config.type_v,
        "ubatch": min(config.n_ubatch, config.n_batch, most_rows),
        "repack": rearranged(config).is_on,
    }
    changed = {
        "kv_offload": not config.kv_offload,
        "op_offload": not config.op_offload,
        "no_host": config.no_host,
        "places": [place.word for place in config.places],
        "overrides": [[override.key, override.value] for override in config.overrides],
    }
    facts |= {name: value for name, value in changed.items() if value}
    if has_cpu_kernels(config):
        facts |= kernels.of(config).facts
    if quota := _held_back(config):
        facts["cpu_quota"] = quota
    if added := [fingerprint(lora.path, "adapter") for lora in config.loras if config.apply_loras and lora.scale]:
        facts["adapters"] = added
    if config.devices is not None:
        facts["device"] = config.devices
    if config.tensor_split:
        facts["tensor_split"] = config.tensor_split
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return ProfileKey(f"{config.path.stem[:60]}-{digest[:16]}", facts)


def _held_back(config: ModelConfig) -> float | None:
    """The quota of this process's control groups, where its threads want more: they wait then, which no other machine's
    curve shows.
    """
    quota = cpu_quota()
    n_threads = max(config.n_threads or usable_cores(), config.n_threads_batch)
    return None if quota is None or n_threads <= quota else round(quota, 2)


def path(key: ProfileKey) -> Path:
    """The file of a curve, in `curves_folder()`; it need not exist. Raises ConfigError for a user without a home."""
    return curves_folder() / f"{key.name}.json"


def load(key: ProfileKey) -> tuple[CostSample, ...] | None:
    """The stored curve; None without one, for a damaged file or one of another version, and where no curves can be
    kept; the log says why.
    """
    try:
        file = path(key)
        if why := why_hidden(file):
            raise ConfigError(f"{file.parent} cannot be looked at ({why}); set UAD_CACHE_DIR to a directory")
    except ConfigError as error:
        warn_once(f"costs are not remembered, they are measured at every start: {error}")
        return None
    try:
        return read(file) if is_there(file) else None
    except (OSError, ConfigError) as error:
        _log.warning("the stored cost curve is not used: %s; `uad profile` writes a new one", error)
        return None


def curve(
    context: Context, config: ModelConfig, role: str, sizes: Sequence[int], seconds: float
) -> tuple[tuple[CostSample, ...], bool]:
    """The stored curve of a loaded model, else a quick one; and whether it was stored. On the thread that owns the
    context.
    """
    stored = load(key(config, role))
    return (profile.quick(context, sizes, seconds), False) if stored is None else (stored, True)


def read(file: Path) -> tuple[CostSample, ...]:
    """The curve in a file. Raises ConfigError that says why it cannot be used."""
    return tuple(CostSample(*sample) for sample in read_curve(file).samples)


def why_worse(key: ProfileKey, every: Sequence[CostSample]) -> str:
    """Why these measurements are not to replace the stored curve; "" where they may, or none is stored. Other programs
    only slow passes down, so the quicker curve is the better one; a disturbed one has to be clearly quicker.
    """
    before = {(sample.n, sample.depth): sample.ms for sample in load(key) or ()}
    ratios = [s.ms / before[s.n, s.depth] for s in profile.medians(every) if (s.n, s.depth) in before]
    if not ratios or (times := median(ratios)) <= (_QUICKER if profile.disturbance(every) else _SLOWER):
        return ""
    return (
        f"passes took {rounded(times)} times as long as in the stored curve, which is kept; if this machine is slower "
        f"now, remove {path(key)} and measure again"
    )


def save(key: ProfileKey, samples: Sequence[CostSample]) -> Path:
    """Write the curve, whole or not at all. Raises ConfigError where that is impossible."""
    text = curve_text(key.facts, ((sample.n, sample.depth, sample.ms) for sample in samples))
    file = path(key)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text.encode())
    except OSError as error:
        raise _not_stored(error.strerror or str(error)) from None
    return file


def check_folder() -> None:
    """Raises ConfigError where no curve could be written into the folder of curves: before one is measured. Makes
    nothing.
    """
    there = next(parent for parent in (curves_folder(), *curves_folder().absolute().parents) if is_there(parent))
    if why := why_not_writable(there / "curve.json"):
        raise _not_stored(why)


def _not_stored(why: str) -> ConfigError:
    return ConfigError(
        f"the cost curve cannot be stored in {curves_folder()} ({why}); set UAD_CACHE_DIR to a directory"
    )
