"""The prompt cache: copies in memory of what slots held of texts that were replaced, for when those come back.

A copy costs time, so it is made only where reading the text again would take several times as long. The rates of
reading and of copying are those that were seen lately. Knows no model: `States` copies.

There may be a lower level, on a disk. It gets each copy that is made, and again what falls out of memory. A request
that a text of it helps waits while that is read into memory; others pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from uad.base.common.sequences import common_prefix
from uad.base.events import CacheCounts
from uad.base.types import Clock
from uad.engine.decode.lower_level import Arrivals, FoundText, LowerLevel, StoredText

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


class PromptCache(Generic[S]):
    """Copies of at most `most_bytes` (None: no limit) together; the least recently used goes first.

    room: bytes that this process may still take, None where that is not known. ahead: whether copies are made before
    they are needed. lower: the level on the disk. restored: told of a sequence, its text and the copy that was put into
    it; None where drafters hear nothing of that. On the model thread, but for `counts`.
    """

    def __init__(
        self,
        states: States[S],
        most_bytes: int | None,
        clock: Clock,
        room: Callable[[], int | None] = lambda: None,
        ahead: bool = True,
        *,
        lower: LowerLevel[S] | None = None,
        restored: Callable[[int, Sequence[int], S], None] | None = None,
    ) -> None:
        self._ahead = ahead
        self._states = states
        self._most = most_bytes
        self._clock = clock
        self._room = room
        self._texts: list[StoredText[S]] = []  # the least recently used first
        self._take_turns = False  # whether a text was replaced by another lately
        self._price = 0.0  # seconds per byte; 0: no copy was timed
        self._lower = lower
        self._arrivals = Arrivals(lower) if lower is not None else None
        self._restored = restored
        self._rate = 0.0  # ids of prompts read per second: the last that is known
        self._counts = CacheCounts()

    @property
    def counts(self) -> CacheCounts:
        """What it holds, and what it did since start. From any thread."""
        return self._counts if self._lower is None else self._counts + self._lower.counts()

    @property
    def tells_drafters(self) -> bool:
        """Whether drafters hear of texts that come back."""
        return self._restored is not None

    # --- texts that come from the disk

    def waits(self, number: int, prompt: Sequence[int], n_kept: int, rate: float) -> bool:
        """Whether a request should wait, as a text that helps it is read from the disk: asked when it could start in a
        slot of which it can go on from n_kept ids, and again until it may. number: of the request.
        """
        if self._lower is None or self._arrivals is None:
            return False
        while not self._arrivals.is_coming(number):
            text = self._arrivals.take(number)
            if text is not None:
                self._take_in(text)
                break
            found = self._lower.find(prompt)
            if found is None:
                break
            self._rate = rate or self._rate or found.rate  # what read the text may have been this machine
            seconds = self._gained(found, prompt, n_kept)
            if not seconds or not self._lower.is_quicker(found.n_bytes, seconds):
                break
            if not self._machine_has_room(found.n_bytes) or not self._arrivals.call(number, found.name, seconds):
                break
        else:
            return True
        self._arrivals.gone(number)
        return False

    def is_coming(self, number: int) -> bool:
        """Whether a request waits for a text of the disk that is not there yet."""
        return self._arrivals is not None and self._arrivals.is_coming(number)

    def gone(self, number: int) -> None:
        """A request waits no more."""
        if self._arrivals is not None:
            self._arrivals.gone(number)

    def _gained(self, found: FoundText, prompt: Sequence[int], n_kept: int) -> float:
        """Seconds of reading that a text of the disk would save; 0 where memory has as much, or `exchange` would not
        take it.
        """
        n_new = found.n - max(n_kept, self._best(prompt)[1])
        pays = n_new > 0 and self._pays(found.n - n_kept, found.n_bytes, self._rate, _GAIN)
        return n_new / self._rate if pays else 0.0

    def _machine_has_room(self, n_bytes: int) -> bool:
        """Whether so many bytes can be read; texts that are in the way are dropped."""
        room = self._room()
        return room is None or n_bytes + _MARGIN <= room or self._make_room(n_bytes, None, ())

    def _take_in(self, text: StoredText[S]) -> None:
        """A text from the disk is the newest one in memory. It may be larger than all that memory may hold: the next
        exchange uses it, and clears up.
        """
        self._texts = [one for one in self._texts if one.ids != text.ids]
        self._make_room(text.n_bytes, None, text.ids)
        self._texts.append(text)
        self._count()

    # --- texts that go to the disk

    def store(self, seq: int, held: Sequence[int]) -> None:
        """What a slot holds goes to the disk, if it is worth a file there."""
        if self._lower is None or not held:
            return
        size = self._states.size(seq)
        if self._lower.wants(held, size, self._rate) and (state := self._states.save(seq)) is not None:
            self._lower.write(StoredText(list(held), state, size), self._rate, waits=True)

    def store_all(self, rate: float) -> None:
        """What memory holds goes to the disk, as far as it is not there. rate: as in `exchange`."""
        self._rate = rate or self._rate
        for text in self._texts:
            self._put_down(text, waits=True)

    def _put_down(self, text: StoredText[S], *, waits: bool = False) -> None:
        if self._lower is not None:
            self._lower.write(text, self._rate, waits=waits)

    # --- prompts that start

    def exchange(
        self, seq: int, held: Sequence[int], n_kept: int, prompt: Sequence[int], rate: float
    ) -> list[int] | None:
        """Before a prompt starts in a slot that holds `held`, of which it can go on from n_kept: keep what would be
        lost, and bring back what helps more. rate: ids read per second, lately.

        Returns the ids that the sequence holds now; None where that did not change.
        """
        self._rate = rate or self._rate
        now = self._exchange(seq, held, n_kept, prompt)
        self._trim()
        return now

    def _exchange(self, seq: int, held: Sequence[int], n_kept: int, prompt: Sequence[int]) -> list[int] | None:
        rate = self._rate
        found, n = self._best(prompt)
        helps = found is not None and self._pays(n - n_kept, found.n_bytes, rate, _GAIN)
        if held:
            self._take_turns = helps or 2 * n_kept < len(held)
        if found is None or not helps:
            self._keep(seq, held, n_kept, rate)
            return None
        self._keep(seq, held, 0, rate, found)
        return self._bring_back(seq, found, n, (n - n_kept) / rate)

    def clear(self) -> None:
        """Forget all texts in memory."""
        n = len(self._texts)
        for text in self._texts:
            self._put_down(text)
        self._texts = []
        if self._arrivals is not None:
            self._arrivals.clear()
        self._count(n_dropped=n)

    def _trim(self) -> None:
        """Forget what is more than memory may hold, after a text from the disk was used."""
        while self._most is not None and sum(text.n_bytes for text in self._texts) > self._most:
            self._put_down(self._texts.pop(0))
            self._count(n_dropped=1)

    def keep_ahead(self, seq: int, held: Sequence[int], rate: float, may_drop: bool = True) -> bool:
        """While nothing runs: copy what a slot holds if texts took turns in slots lately, so that the next one need not
        wait for it. may_drop: also where another text has to go. Returns whether a copy was made.
        """
        n_before = self.counts.n_saved
        if self._ahead and self._take_turns:
            self._keep(seq, held, 0, rate, may_drop=may_drop)
        return self.counts.n_saved > n_before

    def _best(self, prompt: Sequence[int]) -> tuple[StoredText[S] | None, int]:
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
        spared: StoredText[S] | None = None,
        may_drop: bool = True,
    ) -> None:
        """Copy what the slot holds, unless a stored text begins with it, or what is lost is not worth two copies."""
        if not held:
            return
        stored = next((text for text in self._texts if common_prefix(text.ids, held) == len(held)), None)
        if stored is not None:
            self._put_down(stored)
            return
        size = self._states.size(seq)
        gain = _GAIN if 2 * n_kept < len(held) else _GAIN_OF_ENDS
        if not self._pays(len(held) - n_kept, 2 * size, rate, gain):
            return
        has_room = self._make_room(size, spared, held, may_drop)
        if not has_room and not (self._lower is not None and self._lower.wants(held, size, rate)):
            return
        began = self._clock()
        state = self._states.save(seq)
        if state is not None:
            text = StoredText(list(held), state, size)
            if has_room:
                self._texts = [one for one in self._texts if one is spared or not _begins(one, held)]
                self._texts.append(text)
            self._copied(size, self._clock() - began, n_saved=1)
            self._put_down(text)
            _log.debug("slot %d: its %s tokens are kept in the prompt cache", seq, f"{len(held):,}")

    def _make_room(self, size: int, spared: StoredText[S] | None, held: Sequence[int], may_drop: bool = True) -> bool:
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
            if not _begins(text, held):
                self._put_down(text)
            self._count(n_dropped=1)
            total -= text.n_bytes
            if total + size <= most:
                break
        return True

    def _bring_back(self, seq: int, text: StoredText[S], n: int, gained: float) -> list[int]:
        """Put a text into the slot. It stays stored where the prompt takes only its beginning: it may go on itself.
        gained: seconds in which its ids would be read.
        """
        began = self._clock()
        self._texts.remove(text)
        if not self._states.restore(seq, text.state):
            _log.warning("slot %d: a text of the prompt cache could not be brought back; it is read again", seq)
            self._count()
            return []
        if n < len(text.ids):
            self._texts.append(text)
        if self._restored is not None:
            self._restored(seq, text.ids, text.state)
        seconds = self._clock() - began
        self._copied(text.n_bytes, seconds, n_restored=1)
        saved = max(gained - seconds - text.read_s, 0.0)
        self._counts += CacheCounts(n_from_disk=int(text.from_disk), saved_seconds=saved)
        where = "the prompt cache on disk" if text.from_disk else "the prompt cache"
        text.from_disk, text.read_s = False, 0.0
        _log.debug("slot %d: %s tokens come from %s", seq, f"{n:,}", where)
        return list(text.ids)

    def _copied(self, n_bytes: int, seconds: float, n_saved: int = 0, n_restored: int = 0) -> None:
        newest = seconds / max(n_bytes, 1)
        self._price += (_NEWEST if self._price else 1.0) * (newest - self._price)
        self._count(n_saved, n_restored, seconds=seconds)

    def _count(self, n_saved: int = 0, n_restored: int = 0, n_dropped: int = 0, seconds: float = 0.0) -> None:
        now = self._counts
        self._counts = replace(
            now,
            n_texts=len(self._texts),
            n_bytes=sum(text.n_bytes for text in self._texts),
            n_saved=now.n_saved + n_saved,
            n_restored=now.n_restored + n_restored,
            n_dropped=now.n_dropped + n_dropped,
            seconds=now.seconds + seconds,
        )


def _begins(text: StoredText[S], held: Sequence[int]) -> bool:
    """Whether the held ids begin with all of a stored text."""
    return common_prefix(text.ids, held) == len(text.ids)
