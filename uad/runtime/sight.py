"""Opens what a target sees images with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack

from uad.base.common.cores import usable_cores
from uad.base.config import Config
from uad.engine.decode.guard import reason, warn
from uad.llama.projector import Projector
from uad.runtime.target import LoadedTarget
from uad.text.sight import Sight

_log = logging.getLogger("uad")
STAND_IN = b"[image]"
"""The text that drafters read in place of an image."""


def open_sight(
    config: Config, stack: ExitStack, target: LoadedTarget, encode: Callable[[bytes], list[int]]
) -> tuple[Sight | None, tuple[str, ...]]:
    """The target's sight, with its projector on the stack, and the line that says so; None without a projector, and
    where one that nobody named fails. Raises ModelLoadError or ConfigError.
    """
    if config.vision.path is None:
        return None, ()
    context = target.context
    try:
        projector = _opened(config, stack, target)
        sight = Sight(projector, encode(STAND_IN), context.n_ubatch)
    except Exception as error:
        if not config.vision.is_found:
            raise
        why = f"{config.vision.path.name} was found, and cannot be used ({reason(error)})"
        warn(_log, error, "%s", f"images are not seen: the projector {why}")
        return None, ()
    context.projector = projector
    notes: tuple[str, ...] = (f"images: {config.vision.path.name}",)
    if not projector.is_causal:
        notes = (
            f"{notes[0]}; an image is read in one pass, of at most {context.n_ubatch} tokens here (--ubatch-size)",
        )
    return sight, notes


def _opened(config: Config, stack: ExitStack, target: LoadedTarget) -> Projector:
    used = target.config
    n_threads = used.n_threads_batch or used.n_threads or usable_cores()
    return stack.enter_context(Projector(target.model, config.vision, used, n_threads))
