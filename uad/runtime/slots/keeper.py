"""A free slot's content goes into files and comes back: what fits, what is refused. On the model thread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from uad.base.errors import InvalidRequestError, UadError
from uad.engine.decode.engine import Engine
from uad.llama.memory import SavedSequence
from uad.runtime.adapters import AdapterTurns
from uad.runtime.slots.copies import SCALES, SlotCopies, scales_text
from uad.runtime.slots.file import Facts, SavedSlot, SavedState


class SlotKeeper:
    """Copies free slots, and puts copies into them. turns: which adapters the target adds."""

    def __init__(self, engine: Engine, copies: SlotCopies, turns: AdapterTurns) -> None:
        self._engine, self._copies, self._turns = engine, copies, turns

    @property
    def facts(self) -> tuple[Facts, tuple[Facts, ...]]:
        """Facts that files must have, for the target's part and the drafts'. From any thread."""
        return self._copies.target.facts, self._copies.draft_facts

    def check(self, slot: int) -> None:
        """Raises InvalidRequestError where there is no such slot. From any thread."""
        if not 0 <= slot < self._copies.target.context.n_seq:
            raise InvalidRequestError("Invalid slot ID", "id_slot")

    def is_ready(self, slot: int, saved: SavedSlot | None = None) -> bool:
        """Whether no request runs in a slot, nor anywhere one with other adapters than those of a copy that is to be
        put there.
        """
        if self._engine.texts.held(slot) is None:
            return False
        return saved is None or not self._is_of_default(saved) or self._turns.can_default()

    def copy(self, slot: int) -> SavedSlot:
        """All that a free slot holds. Raises UadError where there is no memory for a copy."""
        ids = self._held(slot)
        if not ids:
            return SavedSlot(SavedState(self._copies.facts, (), SavedSequence(0, 0, np.empty(0, np.uint8), ())))
        if min(ids) < 0:
            raise InvalidRequestError("Unable to save slot: its text has images, which files of slots do not keep")
        saved = self._copies.save(slot)
        if saved is None or saved.target.state.end != len(ids):
            raise UadError("Unable to save slot: the model's state could not be copied")
        return replace(saved, target=replace(saved.target, ids=tuple(ids)))

    def put(self, slot: int, saved: SavedSlot) -> int:
        """Let a free slot hold a copy; returns how many ids. The slot's former text leaves for the prompt cache.

        Raises InvalidRequestError, with nothing changed, where the copy does not fit; and UadError where llama.cpp does
        not take it: the slot is empty then.
        """
        own, context = saved.target, self._copies.target.context
        scales, now = own.facts.get(SCALES), scales_text(self._turns.default)
        if scales not in (now, self._copies.facts[SCALES]):
            raise InvalidRequestError(f"Unable to restore slot: it is of another {SCALES} ({scales}; now it is {now})")
        if len(own.ids) > self._engine.limit:
            raise InvalidRequestError(
                f"Unable to restore slot: its {len(own.ids)} tokens do not fit in the slot's context of {context.n_ctx}"
            )
        if self._is_of_default(saved):
            self._turns.use_default()
        ids, last = list(own.ids), context.n_vocab - 1
        if not ids:
            self._engine.texts.replace(slot, [], lambda: False)
            self._engine.texts.erase(slot)
            return 0
        if own.state.end != len(ids) or not 0 <= min(ids) <= max(ids) <= last:
            raise InvalidRequestError("Unable to restore slot: the file's token ids make no sense")
        if not self._engine.texts.replace(slot, ids, lambda: self._copies.restore(slot, saved)):
            raise UadError("Unable to restore slot: llama.cpp does not take this state; the slot is empty now")
        self._engine.learn(slot, ids, self._copies.restore_drafts(slot, ids, saved.drafts))
        return len(ids)

    def _is_of_default(self, saved: SavedSlot) -> bool:
        """Whether a copy is of the adapters of requests that name none, where the last request had others."""
        scales = saved.target.facts.get(SCALES)
        return scales == scales_text(self._turns.default) and scales != self._copies.facts[SCALES]

    def erase(self, slot: int) -> int:
        """Let a free slot hold nothing; returns how many ids it held."""
        n = len(self._held(slot))
        self._engine.texts.erase(slot)
        return n

    def _held(self, slot: int) -> list[int]:
        held = self._engine.texts.held(slot)
        assert held is not None
        return held
