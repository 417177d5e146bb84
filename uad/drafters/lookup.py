"""What all drafters without a model have in common: a state per slot, filled by commits, asked in rounds. Knows no way to look up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from uad.drafters.protocol import Pace
from uad.types import GREEDY, Ask, Commit, Draft, Origin, SamplingParams


class SlotState(Protocol):
    """What one slot has: at least its ids, prompt and answer."""

    @property
    def ids(self) -> list[int]: ...


S = TypeVar("S", bound=SlotState)


class LookupDrafter(ABC, Generic[S]):
    """A `Drafter` whose work is done in `_draft`; `observe` only appends ids, so that a sleeping drafter costs nothing."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._slots: dict[int, S] = {}
        self._nothing = Draft(origin=origin, kind=origin)

    @property
    def origin(self) -> Origin:
        return self._origin

    @property
    def memory(self) -> int:
        """Bytes that tables and histories take, of all slots."""
        return sum(self._memory_of(state) for state in self._slots.values())

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        """A sequence starts (again); what the slot knows of the common beginning with its last one is kept, the rest forgotten."""
        if seq not in self._slots:
            self._slots[seq] = self._new(seq)
        self._begin(self._slots[seq], prompt)

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [self._bounded(self._draft(self._slots[ask.seq], ask), ask) for ask in asks]

    def observe(self, commit: Commit) -> None:
        self._slots[commit.seq].ids.extend(commit.ids)

    def end(self, seq: int) -> None:
        """The slot's ids and indexes stay for the next request."""

    def reset(self) -> None:
        self._slots.clear()

    def close(self) -> None:
        """Write what is to be kept in files."""

    def _bounded(self, draft: Draft, ask: Ask) -> Draft:
        return draft if len(draft.ids) >= max(ask.n_min, 1) else self._nothing

    @abstractmethod
    def _new(self, seq: int) -> S:
        """The state of a slot that was not used yet."""

    @abstractmethod
    def _begin(self, state: S, prompt: Sequence[int]) -> None:
        """Take over a prompt."""

    @abstractmethod
    def _draft(self, state: S, ask: Ask) -> Draft:
        """Read the new ids, then guess at most n_max more; n_max may be 0."""

    @abstractmethod
    def _memory_of(self, state: S) -> int:
        """Bytes of one slot's state."""
