"""What a free slot holds, target and draft model, as a value and back again. On the model thread."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from uad.base.common.splits import files_of
from uad.base.config import ModelConfig
from uad.base.errors import InvalidRequestError, UadError
from uad.base.types import Origin
from uad.drafts.lookup.store import fingerprint as vocabulary_of
from uad.drafts.model.draft_cache import FormerText
from uad.drafts.model.drafter import ModelDrafter
from uad.engine.decode.engine import Engine
from uad.engine.decode.guard import reason, warn
from uad.llama.backend import native
from uad.llama.backend.devices import devices
from uad.llama.context import Context
from uad.llama.memory import SavedSequence, SequenceCopies
from uad.llama.rearranged import rearranged
from uad.runtime.adapters import AdapterTurns
from uad.runtime.costs.profile_store import fingerprint
from uad.runtime.slots.file import Facts, SavedSlot, SavedState

_log = logging.getLogger("uad")
_SCALES = "set of adapter scales"
_ROPE = (
    *("rope_scaling", "rope_freq_scale", "rope_freq_base"),
    *("yarn_orig_ctx", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_slow", "yarn_beta_fast"),
)


@dataclass(frozen=True, slots=True)
class KeptModel:
    """A model whose state is kept: what it is, and its context."""

    facts: Facts
    context: Context

    @property
    def copies(self) -> SequenceCopies:
        """Copies of what single sequences hold."""
        return SequenceCopies(self.context.memory)


def kept_model(config: ModelConfig, context: Context, exact: bool) -> KeptModel:
    """A model as it was loaded. exact: with `--exact`, where a state must have the bits that this machine computes.

    Raises ModelLoadError where a file cannot be read.
    """
    facts = {
        "model file": " ".join(fingerprint(part) for part in files_of(config.path)),
        "vocabulary": vocabulary_of(context.vocab),
        "set of adapters": str([fingerprint(one.path, "adapter") for one in config.loras]),
        "type of cached keys": config.type_k,
        "type of cached values": config.type_v,
        "kind of attention": "flash attention" if context.rows_are_apart else "no flash attention",
        "kind of sliding window": "all positions" if config.swa_full else "the window",
        "kind of memory": f"{context.memory.way}, {context.memory.n_snapshots} snapshots",
        "scaling of positions": str([getattr(config, name) for name in _ROPE]),
        "set of overrides": str([(one.key, one.value) for one in config.overrides]),
        "way to compute": f"--exact on {devices()}, rearranged: {rearranged(config).is_on}" if exact else "not --exact",
        "version of llama-cpp-python": native.build_info(),
    }
    return KeptModel(facts, context)


class SlotKeeper:
    """Copies free slots, and puts copies into them. draft: the draft model's drafter, with its model."""

    def __init__(
        self, engine: Engine, turns: AdapterTurns, target: KeptModel, draft: tuple[ModelDrafter, KeptModel] | None
    ) -> None:
        self._engine, self._turns = engine, turns
        self._target, self._draft = target, draft

    @property
    def facts(self) -> tuple[Facts, Facts | None]:
        """What files must be of, the target's part and the draft's. From any thread."""
        return self._target.facts, self._draft[1].facts if self._draft is not None else None

    def check(self, slot: int) -> None:
        """Raises InvalidRequestError where there is no such slot. From any thread."""
        if not 0 <= slot < self._target.context.n_seq:
            raise InvalidRequestError("Invalid slot ID", "id_slot")

    def is_free(self, slot: int) -> bool:
        """Whether no request runs in a slot."""
        return self._engine.held(slot) is not None

    def copy(self, slot: int) -> SavedSlot:
        """All that a free slot holds. Raises UadError where there is no memory for a copy."""
        ids = self._held(slot)
        facts = {**self._target.facts, _SCALES: str(self._turns.active)}
        if not ids:
            return SavedSlot(SavedState(facts, (), SavedSequence(0, 0, np.empty(0, np.uint8), ())))
        if min(ids) < 0:
            raise InvalidRequestError("Unable to save slot: its text has images, which files of slots do not keep")
        state = self._target.copies.save(slot)
        if state is None or state.end != len(ids):
            raise UadError("Unable to save slot: the model's state could not be copied")
        return SavedSlot(SavedState(facts, tuple(ids), state), self._copied_draft(slot))

    def _copied_draft(self, slot: int) -> SavedState | None:
        if self._draft is None:
            return None
        drafter, model = self._draft
        try:
            former = drafter.former(slot)
            state = model.copies.save(slot) if former is not None else None
        except Exception as error:  # no answer needs it
            warn(_log, error, "slot %d: the draft model's state is not saved (%s)", slot, reason(error))
            return None
        return SavedState(model.facts, former.ids, state, former.skip) if former is not None and state else None

    def put(self, slot: int, saved: SavedSlot) -> int:
        """Let a free slot hold a copy; returns how many ids. What it held leaves for the prompt cache.

        Raises InvalidRequestError, with nothing changed, where the copy does not fit; and UadError where llama.cpp does
        not take it: the slot is empty then.
        """
        own, context = saved.target, self._target.context
        if (scales := own.facts.get(_SCALES)) != str(self._turns.active):
            raise InvalidRequestError(
                f"Unable to restore slot: it is of another {_SCALES} ({scales}; now it is {self._turns.active})"
            )
        if len(own.ids) > self._engine.limit:
            raise InvalidRequestError(
                f"Unable to restore slot: its {len(own.ids)} tokens do not fit in the slot's context of {context.n_ctx}"
            )
        ids, last = list(own.ids), context.n_vocab - 1
        if not ids:
            self._engine.replace(slot, [], lambda: False)
            self._engine.erase(slot)
            return 0
        if own.state.end != len(ids) or not 0 <= min(ids) <= max(ids) <= last:
            raise InvalidRequestError("Unable to restore slot: the file's token ids make no sense")
        if not self._engine.replace(slot, ids, lambda: self._target.copies.restore(slot, own.state)):
            raise UadError("Unable to restore slot: llama.cpp does not take this state; the slot is empty now")
        n_read = self._put_draft(slot, ids, saved.draft)
        self._engine.learn(slot, ids, {} if n_read is None else {Origin.MODEL: n_read})
        return len(ids)

    def _put_draft(self, slot: int, ids: Sequence[int], saved: SavedState | None) -> int | None:
        """How many of the text's ids the draft model has read; None where it reads the text again."""
        if self._draft is None or saved is None:
            return None
        drafter, model = self._draft
        try:
            is_there = model.copies.restore(slot, saved.state)
            drafter.take_over(slot, FormerText(saved.ids, saved.skip, saved.state.end) if is_there else None)
        except Exception as error:  # no answer needs it
            warn(_log, error, "slot %d: the draft model's state does not come back (%s)", slot, reason(error))
            return None
        return _about_as_long(saved.ids, ids, model.context, self._target.context) if is_there else None

    def erase(self, slot: int) -> int:
        """Let a free slot hold nothing; returns how many ids it held."""
        n = len(self._held(slot))
        self._engine.erase(slot)
        return n

    def _held(self, slot: int) -> list[int]:
        held = self._engine.held(slot)
        assert held is not None
        return held


def _about_as_long(draft_ids: Sequence[int], ids: Sequence[int], draft: Context, target: Context) -> int:
    """How many ids of the target's text have as many bytes as the draft's."""
    n_bytes = sum(len(draft.vocab.pieces[id_]) for id_ in draft_ids)
    return sum(end <= n_bytes for end in accumulate(len(target.vocab.pieces[id_]) for id_ in ids))
