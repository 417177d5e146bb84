"""The prompt cache: copies in memory of what slots held of texts that were replaced, for when those come back.

A copy costs time, so it is made only where reading the text again would take several times as long. The rates of
reading and of copying are those that were seen lately. Knows no model: `States` copies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from uad.base.common.sequences import common_prefix
from uad.base.events import CacheCounts
from uad.base.types import Clock

_log = logging.getLogger("uad.request")
_GAIN = 4.0  # reading again must take so many times as long as the copies: not every text comes back
_GAIN_OF_ENDS = 16.0  # where only the end of a text is lost: more likely it was edited than left for later
_PRICE = 2e-9  # seconds per byte, before any copy was timed
_NEWEST = 0.5  # share of the newest copy in the price
_MARGIN = 256 << 20  # bytes that are left to others
S = TypeVar("S")


class States(Protocol[S]):
    """Copies of sequences: `uad.llama.memory.SequenceCopies` makes them."""

    def size(self, seq: int) -> int:
        """Bytes that `save` would copy."""
        ...

    def save(self, seq: int) -> S | None:
        """A copy of all that a sequence holds; None where there is no room for it."""
        ...

    def restore(self, seq: int, saved: S) -> bool:
        """Put a copy in place of what the sequence holds. False: that failed, and the sequence is empty."""
        ...

    def reach_of(self, saved: S, n: int) -> int:
        """How many of the first n ids of a copy a sequence could go on from."""
        ...


@dataclass(slots=True)
class _StoredText(Generic[S]):
    """A text that left its slot. n_bytes: of its copy."""

    ids: list[int]
    state: S
    n_bytes: int = field(default=0)


class PromptCache(Generic[S]):
    """Copies of at most `most_bytes` (None: no limit) together; the least recently used goes first.

    room: bytes that this process may still take, None where that is not known. ahead: whether copies are made before
    they are needed. On the model thread, but for `counts`.
    """

    def __init__(
        self,
        states: States[S],
        most_bytes: int | None,
        clock: Clock,
        room: Callable[[], int | None] = lambda: None,
        ahead: bool = True,
    ) -> None:
        self._ahead = ahead
        self._states = states
        self._most = most_bytes
        self._clock = clock
        self._room = room
        self._texts: list[_StoredText[S]] = []  # the least recently used first
        self._take_turns = False  # whether a text was replaced by another lately
        self._price = 0.0  # seconds per byte; 0: no copy was timed
        self.counts = CacheCounts()

    def exchange(
        self, seq: int, held: Sequence[int], n_kept: int, prompt: Sequence[int], rate: float
    ) -> list[int] | None:
        """Before a prompt starts in a slot that holds `held`, of which it can go on from n_kept: keep what would be
        lost, and bring back what helps more. rate: ids read per second, lately.

        Returns the ids that the sequence holds now; None where that did not change.
        """
        found, n = self._best(prompt)
        helps = found is not None and self._pays(n - n_kept, found.n_bytes, rate, _GAIN)
        if held:
            self._take_turns = helps or 2 * n_kept < len(held)
        if found is None or not helps:
            self._keep(seq, held, n_kept, rate)
            return None
        self._keep(seq, held, 0, rate, found)
        return self._bring_back(seq, found, n)

    def clear(self) -> None:
        """Forget all texts."""
        n, self._texts = len(self._texts), []
        self._count(n_dropped=n)

    def keep_ahead(self, seq: int, held: Sequence[int], rate: float, may_drop: bool = True) -> bool:
        """While nothing runs: copy what a slot holds if texts took turns in slots lately, so that the next one need not
        wait for it. may_drop: also where another text has to go. Returns whether a copy was made.
        """
        n_before = self.counts.n_saved
        if self._ahead and self._take_turns:
            self._keep(seq, held, 0, rate, may_drop=may_drop)
        return self.counts.n_saved > n_before

    def _best(self, prompt: Sequence[int]) -> tuple[_StoredText[S] | None, int]:
        """The stored text that the prompt can go on from furthest, and how many ids that are."""
        best, most = None, 0
        for text in reversed(self._texts):
            n = self._states.reach_of(text.state, min(common_prefix(text.ids, prompt), len(prompt)))
            if n > most:
                best, most = text, n
        return best, most

    def _pays(self, n_ids: int, n_bytes: int, rate: float, gain: float) -> bool:
        """Whether reading ids takes `gain` times as long as to copy so many bytes."""
        return n_ids > 0 and rate > 0 and n_ids / rate > gain * n_bytes * (self._price or _PRICE)

    def _keep(
        self,
        seq: int,
        held: Sequence[int],
        n_kept: int,
        rate: float,
        spared: _StoredText[S] | None = None,
        may_drop: bool = True,
    ) -> None:
        """Copy what the slot holds, unless a stored text begins with it, or what is lost is not worth two copies."""
        if not held or any(common_prefix(text.ids, held) == len(held) for text in self._texts):
            return
        size = self._states.size(seq)
        gain = _GAIN if 2 * n_kept < len(held) else _GAIN_OF_ENDS
        if not self._pays(len(held) - n_kept, 2 * size, rate, gain):
            return
        if not self._make_room(size, spared, held, may_drop):
            return
        began = self._clock()
        state = self._states.save(seq)
        if state is not None:
            self._texts = [text for text in self._texts if text is spared or not _begins(text, held)]
            self._texts.append(_StoredText(list(held), state, size))
            self._copied(size, self._clock() - began, n_saved=1)
            _log.debug("slot %d: its %s tokens are kept in the prompt cache", seq, f"{len(held):,}")

    def _make_room(self, size: int, spared: _StoredText[S] | None, held: Sequence[int], may_drop: bool) -> bool:
        """Forget texts until a copy of so many bytes fits: beginnings of what is to be copied, then the least recently
        used. False: it never will, or not without that.
        """
        total = sum(text.n_bytes for text in self._texts)
        room = self._room()
        most = min(
            (bound for bound in (self._most, None if room is None else room - _MARGIN + total) if bound is not None),
            default=None,
        )
        if most is None or total + size <= most:
            return True
        going = sorted((text for text in self._texts if text is not spared), key=lambda text: not _begins(text, held))
        if not may_drop or size + (spared.n_bytes if spared is not None else 0) > most:
            return False
        for text in going:
            self._texts.remove(text)
            self._count(n_dropped=1)
            total -= text.n_bytes
            if total + size <= most:
                break
        return True

    def _bring_back(self, seq: int, text: _StoredText[S], n: int) -> list[int]:
        """Put a text into the slot. It stays stored where the prompt takes only its beginning: it may go on itself."""
        began = self._clock()
        self._texts.remove(text)
        if not self._states.restore(seq, text.state):
            _log.warning("slot %d: a text of the prompt cache could not be brought back; it is read again", seq)
            self._count()
            return []
        if n < len(text.ids):
            self._texts.append(text)
        self._copied(text.n_bytes, self._clock() - began, n_restored=1)
        _log.debug("slot %d: %s tokens come from the prompt cache", seq, f"{n:,}")
        return list(text.ids)

    def _copied(self, n_bytes: int, seconds: float, n_saved: int = 0, n_restored: int = 0) -> None:
        newest = seconds / max(n_bytes, 1)
        self._price += (_NEWEST if self._price else 1.0) * (newest - self._price)
        self._count(n_saved, n_restored, seconds=seconds)

    def _count(self, n_saved: int = 0, n_restored: int = 0, n_dropped: int = 0, seconds: float = 0.0) -> None:
        now = self.counts
        self.counts = replace(
            now,
            n_texts=len(self._texts),
            n_bytes=sum(text.n_bytes for text in self._texts),
            n_saved=now.n_saved + n_saved,
            n_restored=now.n_restored + n_restored,
            n_dropped=now.n_dropped + n_dropped,
            seconds=now.seconds + seconds,
        )


def _begins(text: _StoredText[S], held: Sequence[int]) -> bool:
    """Whether the held ids begin with all of a stored text."""
    return common_prefix(text.ids, held) == len(text.ids)
