"""Copies of what free slots hold, target and draft model, as values and back again. On the model thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from uad.base.config import ModelConfig
from uad.base.gguf import files_of
from uad.base.model_files import fingerprint
from uad.base.types import Origin
from uad.drafts.lookup.store import fingerprint as vocabulary_of
from uad.drafts.model.draft_cache import FormerText
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.guard import reason, warn
from uad.llama.backend import native
from uad.llama.backend.devices import devices
from uad.llama.context import Context
from uad.llama.kernels import use as kernels
from uad.llama.memory import SequenceCopies
from uad.llama.probe import digest
from uad.llama.rearranged import rearranged
from uad.runtime.slots.file import Facts, SavedSlot, SavedState

_log = logging.getLogger("uad")
SCALES = "set of adapter scales"
_DEVICES = ("devices", "n_gpu_layers", "tensor_split", "places", "kv_offload", "op_offload", "no_host")
_SHAPES = ("n_threads", "n_threads_batch", "n_batch", "n_ubatch")
_ROPE = (
    *("rope_scaling", "rope_freq_scale", "rope_freq_base"),
    *("yarn_orig_ctx", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_slow", "yarn_beta_fast"),
)


def scales_text(scales: Sequence[float]) -> str:
    """Adapters' scales as facts have them: 1 and 1.0 are one scale."""
    return str(tuple(map(float, scales)))


@dataclass(frozen=True, slots=True)
class KeptModel:
    """A model whose state is kept: what it is, and its context."""

    facts: Facts
    context: Context

    @property
    def copies(self) -> SequenceCopies:
        """Copies of what single sequences hold."""
        return SequenceCopies(self.context.memory)


def kept_model(config: ModelConfig, context: Context) -> KeptModel:
    """A model as it was loaded. Raises ModelLoadError where a file cannot be read."""
    facts = {
        "model file": " ".join(fingerprint(part) for part in files_of(config.path)),
        "vocabulary": vocabulary_of(context.vocab),
        "set of adapters": str([fingerprint(lora.path, "adapter") for lora in config.loras]),
        "type of cached keys": config.type_k,
        "type of cached values": config.type_v,
        "kind of attention": "flash attention" if context.has_flash_attention else "no flash attention",
        "kind of sliding window": "all positions" if config.swa_full else "the window",
        "kind of memory": f"{context.memory.way}, {context.memory.n_snapshots} snapshots",
        "scaling of positions": str([getattr(config, name) for name in _ROPE]),
        "set of overrides": str([(override.key, override.value) for override in config.overrides]),
        "version of llama-cpp-python": native.build_info(),
    }
    return KeptModel(facts, context)


def kept_target(config: ModelConfig, context: Context, exact: bool) -> KeptModel:
    """The same of a target, whose texts go on from a state: then it must have the bits that are computed here. Decodes
    a few ids in the first sequence, which must be empty. Raises what decoding does, too.
    """
    model, own = kept_model(config, context), kernels.of(config).facts.get("kernels", "llama.cpp's own")
    facts = {
        "way to compute": "--exact" if exact else "not --exact",
        "set of kernels": f"{own}, rearranged: {rearranged(config).is_on}",
        "set of devices": f"{devices()}, {[getattr(config, name) for name in _DEVICES]}",
        "build of llama.cpp": native.build_digest(),
        "sample of its numbers": digest(context),
        "number of the window's cells": str(context.memory.n_window_cells),  # attention adds them in their order
    }
    if not kernels.keep_rows(config):  # there the cells of long texts are shared out among threads
        facts["number of threads and rows"] = str([getattr(config, name) for name in _SHAPES])
    return replace(model, facts={**model.facts, **facts})


class SlotCopies:
    """Copies of all that slots hold in which no request runs: `States` of the prompt cache, and what files are of.

    drafts: those that draft, with their models. scales: of the target's adapters, now. A draft that fails costs drafts,
    no text.
    """

    def __init__(
        self,
        target: KeptModel,
        drafts: Sequence[tuple[ModelDrafter, KeptModel]],
        scales: Callable[[], tuple[float, ...]],
    ) -> None:
        self.target, self.drafts = target, drafts
        self._scales = scales

    @property
    def facts(self) -> Facts:
        """Facts about the target's states of now. On the model thread."""
        return {**self.target.facts, SCALES: scales_text(self._scales())}

    @property
    def draft_facts(self) -> tuple[Facts, ...]:
        """Facts about the draft models' states. From any thread."""
        return tuple(model.facts for _, model in self.drafts)

    def size(self, seq: int) -> int:
        """Bytes that `save` would copy."""
        held = [model for drafter, model in self.drafts if _former(drafter, seq) is not None]
        return sum(model.copies.size(seq) for model in (self.target, *held))

    def save(self, seq: int) -> SavedSlot | None:
        """A copy of all that a slot holds, without the target's ids; None where there is no room for it."""
        state = self.target.copies.save(seq)
        if state is None:
            return None
        drafts = [_saved(drafter, model, seq) for drafter, model in self.drafts]
        kept = tuple(draft for draft in drafts if draft is not None)
        return SavedSlot(SavedState(self.facts, (), state), kept)

    def restore(self, seq: int, saved: SavedSlot) -> bool:
        """Put the target's state in place of what the slot holds. False: that failed, and the slot is empty."""
        return self.target.copies.restore(seq, saved.target.state)

    def reach_of(self, saved: SavedSlot, n: int) -> int:
        """How many of the first n ids of a copy a slot could go on from."""
        return self.target.copies.reach_of(saved.target.state, n)

    def restore_drafts(self, seq: int, ids: Sequence[int], saved: Sequence[SavedState]) -> dict[Origin, int]:
        """How many of the text's ids each draft model has read, once its state is back. One that is missing reads the
        text again.
        """
        n_read = dict[Origin, int]()
        for drafter, model in self.drafts:
            for state in (state for state in saved if state.facts == model.facts):
                try:
                    is_there = model.copies.restore(seq, state.state)
                    drafter.take_over(seq, FormerText(state.ids, state.skip, state.state.end) if is_there else None)
                except Exception as error:  # no answer needs it
                    warn(_log, error, "slot %d: the draft model's state does not come back (%s)", seq, reason(error))
                    continue
                if is_there:
                    n_read[drafter.origin] = _about_as_long(state.ids, ids, model.context, self.target.context)
        return n_read


def _former(drafter: ModelDrafter, seq: int) -> FormerText | None:
    """The slot's text, as far as the draft model holds it."""
    try:
        return drafter.former(seq)
    except Exception as error:
        warn(_log, error, "slot %d: the draft model's state is not saved (%s)", seq, reason(error))
        return None


def _saved(drafter: ModelDrafter, model: KeptModel, seq: int) -> SavedState | None:
    former = _former(drafter, seq)
    if former is None:
        return None
    try:
        state = model.copies.save(seq)
    except Exception as error:  # no answer needs it
        warn(_log, error, "slot %d: the draft model's state is not saved (%s)", seq, reason(error))
        return None
    return SavedState(model.facts, former.ids, state, former.skip) if state is not None else None


def _about_as_long(draft_ids: Sequence[int], ids: Sequence[int], draft: Context, target: Context) -> int:
    """How many ids of the target's text have as many bytes as the draft's."""
    n_bytes = sum(len(draft.vocab.pieces[id_]) for id_ in draft_ids)
    return sum(end <= n_bytes for end in accumulate(len(target.vocab.pieces[id_]) for id_ in ids))
