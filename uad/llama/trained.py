"""How many positions a model is good for: what it was trained on, and what stretching positions makes of it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import llama_cpp.llama_cpp as lib

from uad.config import ModelConfig

Meta = Callable[[str], str | None]
UNKNOWN = 4096
"""Positions of a model whose file says none, or a number that llama.cpp cannot count to."""


def n_ctx_trained(handle: ctypes.c_void_p) -> int:
    """Positions that a loaded file says it was trained on, 1 at least."""
    n = int(lib.llama_model_n_ctx_train(handle))
    return n if n > 0 else UNKNOWN


def trained_context(config: ModelConfig, n_ctx_train: int, meta: Meta) -> int:
    """Positions for which the model is meant, with the rope and YaRN settings of its configuration.

    Without any it is what the file says, which includes the stretching that the file describes. A factor counts from
    the context of the first training; `none` takes the stretching away. A base frequency alone says nothing about how
    far it reaches.
    """
    arch = meta("general.architecture") or ""
    own = _number(meta(f"{arch}.rope.scaling.original_context_length"))
    first = config.yarn_orig_ctx or int(own) or n_ctx_train
    if config.rope_scaling == "none":
        return min(first, n_ctx_train)
    if config.rope_freq_scale:
        return int(first / config.rope_freq_scale)
    if config.rope_scaling or config.yarn_orig_ctx:
        factor = _number(meta(f"{arch}.rope.scaling.factor")) or 1.0
        return int(first * factor)
    return n_ctx_train


def training_note(config: ModelConfig, role: str, n_ctx: int, n_ctx_train: int, meta: Meta) -> tuple[str, ...]:
    """A line where a sequence may get longer than that; n_ctx: positions of one sequence."""
    key = f"{meta('general.architecture')}.context_length"
    if n_ctx_train == UNKNOWN and not 0 < _number(meta(key)) < 2**31:
        more = " (-c names more)" if role == "target" and not config.n_ctx else ""
        return (f"the {role} {config.path} says {key} = {meta(key)}, which cannot be: {UNKNOWN} is assumed{more}",)
    trained = trained_context(config, n_ctx_train, meta)
    if n_ctx <= -(-trained // 256) * 256:  # llama.cpp makes contexts in steps of 256
        return ()
    if config.rope_freq_base:
        return (
            f"the {role}'s context of {n_ctx} tokens is beyond the {trained} of its training; --rope-freq-base has to "
            "bear that",
        )
    factor = -(-n_ctx // (config.yarn_orig_ctx or n_ctx_train))
    out = f"; --rope-scaling yarn --rope-scale {factor} stretches it" if role == "target" else ""
    return (
        f"the {role}'s context of {n_ctx} tokens is beyond the {trained} that it was trained for: texts get worse "
        f"past that{out}",
    )


def _number(text: str | None) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0
