"""Which of a model's weights llama.cpp may rearrange for this processor's kernels, and which stay as they are.

Rearranged weights lie in buffers that support some operations only. llama.cpp puts a weight there because it could
multiply a matrix by it, and ends the process where the model's graph does more: the AMX buffer takes contiguous inputs
only, and models with latent attention (MLA) multiply permuted ones by `attn_k_b` and `attn_v_b`. So another process
looks for such weights first (`rearranging.py`), and they are kept in plain memory.
"""

from __future__ import annotations

import json
import pickle
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from uad.base.common import children
from uad.base.config import ModelConfig
from uad.llama.backend import amx
from uad.llama.backend.devices import used
from uad.llama.kernels import use as kernels

CHILD = "uad.llama.rearranging"
ONLY_TRY = "--only-try"
_SECONDS = 120
_LAYER = re.compile(r"^blk\.(\d+)\.(.+)$")


@dataclass(frozen=True, slots=True)
class Rearranged:
    """Whether a model's weights are rearranged, the names of those that are not all the same, and why none is."""

    is_on: bool
    plain: tuple[str, ...] = ()
    reason: str = ""


def rearranged(config: ModelConfig) -> Rearranged:
    """Which weights of this model are rearranged: none with --no-repack. Takes a second, once, where there is AMX."""
    kernels.of(config)  # its buffers come first, and llama.cpp reads the list of all once
    if not amx.rearranges(config):
        return Rearranged(False)
    if not amx.choosy_buffers():
        return Rearranged(True)
    try:
        stat = config.path.stat()
    except OSError:
        return Rearranged(True)  # loading will say what is wrong with the file
    is_remote = any(device.is_remote for device in used(config))
    # what changes neither the graph's operations nor where weights lie; the other process knows no workers
    alike = replace(config, n_ctx=0, n_threads=1, n_threads_batch=1, n_snapshots=min(config.n_snapshots, 4), hub=None)
    alike = replace(alike, mmap=False, mlock=False, loras=(), devices=() if is_remote else config.devices)
    result = _tried(alike, stat.st_size, stat.st_mtime_ns)
    if result.plain and is_remote:
        return Rearranged(False, (), "some cannot be, and which of them workers have is not known")
    return result


@lru_cache(maxsize=256)
def _tried(config: ModelConfig, _size: int, _time: int) -> Rearranged:
    """The findings of another process, which llama.cpp may end. Where looking at the graph ended it, it only tries."""
    reason = ""
    for words in ((), (ONLY_TRY,)):
        try:
            done = children.run(CHILD, *words, data=pickle.dumps(config), seconds=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Rearranged(False, (), f"it could not be tried: {error}")
        # it prints the names before it tries the others: no line means that looking at the graph ended it
        plain = tuple(json.loads(done.stdout)) if done.stdout.strip() else ()
        if done.returncode == 0:
            return Rearranged(True, plain)
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        reason = errors[-1].removeprefix("uad: error: ") if errors else f"exit code {done.returncode}"
        if done.stdout.strip():
            break  # it had looked at the graph, and ended while the weights were tried
    return Rearranged(False, (), reason)


def notes(config: ModelConfig, role: str) -> tuple[str, ...]:
    """The line about weights that could not be rearranged, though it was not switched off."""
    result = rearranged(config)
    if result.plain:
        matches = [(name, _LAYER.match(name)) for name in result.plain]
        kinds = sorted({(match[2] if match else name).removesuffix(".weight") for name, match in matches})
        return (f"{role}: {', '.join(kinds)} stay as they are in the file: llama.cpp cannot use them rearranged",)
    if result.reason:
        return (f"{role}: its weights are not rearranged for this processor (slower prompts): {result.reason}",)
    return ()


def patterns(names: Iterable[str]) -> Iterator[str]:
    """Regular expressions that fit these tensors alone, one for each kind: llama.cpp tries each on each name.

    blk.0.attn_k_b.weight and blk.7.attn_k_b.weight give ^blk\\.(0|7)\\.attn_k_b\\.weight$.
    """
    layers: dict[str, list[str]] = {}
    for name in names:
        if match := _LAYER.match(name):
            layers.setdefault(match[2], []).append(match[1])
        else:
            yield f"^{re.escape(name)}$"
    for rest, numbers in layers.items():
        yield rf"^blk\.({'|'.join(numbers)})\.{re.escape(rest)}$"
