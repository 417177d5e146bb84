"""Opens what a target sees images with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from uad.base.common.cores import usable_cores
from uad.base.config import Config
from uad.llama.projector import Projector
from uad.runtime.target import LoadedTarget
from uad.text.sight import Sight

STAND_IN = b"[image]"
"""What drafters read in place of an image."""


def open_sight(
    config: Config, stack: ExitStack, target: LoadedTarget, encode: Callable[[bytes], list[int]]
) -> tuple[Sight | None, tuple[str, ...]]:
    """What the target sees, with its projector on the stack, and the line that says so; None without --mmproj. Raises
    ModelLoadError or ConfigError.
    """
    if config.vision.path is None:
        return None, ()
    context, used = target.context, target.config
    n_threads = used.n_threads_batch or used.n_threads or usable_cores()
    projector = stack.enter_context(Projector(target.model, config.vision, used, n_threads))
    context.projector = projector
    notes: tuple[str, ...] = (f"images: {config.vision.path.name}",)
    if not projector.is_causal:
        notes = (
            f"{notes[0]}; an image is read in one pass, of at most {context.n_ubatch} tokens here (--ubatch-size)",
        )
    return Sight(projector, encode(STAND_IN), context.n_ubatch), notes
