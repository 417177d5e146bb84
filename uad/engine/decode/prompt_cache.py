"""The prompt cache: copies in memory of what slots held of texts that were replaced, for when those come back.

A copy costs time, so it is made only where reading the text again would take several times as long. The rates of
reading and of copying are those that were seen lately. Knows no model: `States` copies.

There may be a lower level, on a disk. It gets each copy that is made, and again what falls out of memory. A request
that a text of it helps waits while that is read into memory; others pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from math import inf
from typing import Generic, Protocol, TypeVar

from uad.base.common.sequences import common_prefix
from uad.base.events import CacheCounts
from uad.base.types import Clock
from uad.engine.decode.lower_level import LowerLevel, StoredText

_log = logging.getLogger("uad.request")
_GAIN = 4.0  # reading again must take this many times as long as the copies: not every text comes back
_GAIN_OF_ENDS = 16.0  # where only the end of a text is lost: more likely it was edited than left for later
_PRICE_S_PER_BYTE = 2e-9  # seconds per byte, before any copy was timed
_NEWEST = 0.5  # share of the newest copy in the price
_MARGIN_BYTES = 256 << 20  # bytes that are left to others
_MOST_TRIES = 4  # texts of the disk that are tried for a request: files may be damaged, or gone
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


class Rates:
    """How fast prompts are read and copies are made, lately.

    reading: ids per second; 0: not known. copying: seconds per byte; 0: no copy was timed.
    """

    def __init__(self) -> None:
        self.reading = self.copying = 0.0

    def pays(self, n_ids: int, n_bytes: int, gain: float) -> bool:
        """Whether reading ids takes `gain` times as long as copying n_bytes bytes."""
        # A slot holds 3,000 ids in 90 MB, of which the next prompt keeps 100. At 150 ids/s the other 2,900 take 19 s to
        # read again; a copy now and one back take 2 · 90 MB · 2 ns = 0.36 s. 19 > 4 · 0.36: it is kept. Of a tiny model
        # that reads 10,000 ids/s they take 0.29 s, and the text is read again if it ever comes back.
        return (
            n_ids > 0
            and self.reading > 0
            and n_ids / self.reading > gain * n_bytes * (self.copying or _PRICE_S_PER_BYTE)
        )

    def copied(self, n_bytes: int, seconds: float) -> None:
        """Record that a copy of n_bytes bytes took `seconds`."""
        newest = seconds / max(n_bytes, 1)
        self.copying += (_NEWEST if self.copying else 1.0) * (newest - self.copying)


class MemoryTexts(Generic[S]):
    """Texts in memory: `all`, the least recently used first, of at most `most` bytes together (None: no limit).

    room: bytes that this process may still take, None where that is not known. down: is passed each text that is
    dropped, unless a longer one begins with it.
    """

    def __init__(
        self,
        states: States[S],
        most: int | None,
        room: Callable[[], int | None],
        down: Callable[[StoredText[S]], None],
    ) -> None:
        self._states = states
        self._most = most
        self._room = room
        self._down = down
        self.all: list[StoredText[S]] = []
        self.n_dropped = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of all texts. From any thread."""
        return sum(text.n_bytes for text in self.all)

    def best(self, prompt: Sequence[int]) -> tuple[StoredText[S] | None, int]:
        """The text that the prompt can go on from furthest, and how many ids that are."""
        best, most = None, 0
        for text in reversed(self.all):
            n = self._states.reach_of(text.state, min(common_prefix(text.ids, prompt), len(prompt)))
            if n > most:
                best, most = text, n
        return best, most

    def add(self, text: StoredText[S], spared: StoredText[S] | None) -> None:
        """A text for which there is room is the newest one. Those that it begins with have had their time, unless
        spared.
        """
        self.all = [*(kept for kept in self.all if kept is spared or not _begins(kept, text.ids)), text]

    def take_in(self, text: StoredText[S]) -> None:
        """A text from the disk is the newest one. It may be larger than all that memory may hold: the next exchange
        uses it, and clears up.
        """
        self.all = [kept for kept in self.all if kept.ids != text.ids]
        self.make_room(text.n_bytes, None, text.ids)
        self.all.append(text)

    def can_take_in(self, n_bytes: int) -> bool:
        """Whether the machine has room for n_bytes bytes from the disk; texts that are in the way are dropped."""
        room = self._room()
        return room is None or n_bytes + _MARGIN_BYTES <= room or self.make_room(n_bytes, None, ())

    def make_room(self, size: int, spared: StoredText[S] | None, held: Sequence[int], may_drop: bool = True) -> bool:
        """Drop texts until a copy of `size` bytes fits: beginnings of what is to be copied, then the least recently
        used. False: it never will, or not without that.
        """
        # At most 8 GB are allowed, texts have 7, the process may take 2 more: the bound is min(8, 2 - 0.25 + 7) = 8 GB.
        # A copy of 1.5 GB lacks 0.5. An earlier turn of the same conversation goes first, and not to the disk: the copy
        # has all of it. Then goes the text that was not used for longest.
        total, room = self.n_bytes, self._room()
        most = min(inf if self._most is None else self._most, inf if room is None else room - _MARGIN_BYTES + total)
        if total + size <= most:
            return True
        if not may_drop or size + (spared.n_bytes if spared is not None else 0) > most:
            return False
        others = [text for text in self.all if text is not spared]
        for text in sorted(others, key=lambda text: not _begins(text, held)):
            self.drop(text, goes_down=not _begins(text, held))
            total -= text.n_bytes
            if total + size <= most:
                break
        return True

    def trim(self) -> None:
        """Drop what is more than memory may hold, after a text from the disk was used."""
        while self._most is not None and self.n_bytes > self._most:
            self.drop(self.all[0])

    def drop(self, text: StoredText[S], goes_down: bool = True) -> None:
        """Forget a text, for others or at the end."""
        self.all.remove(text)
        self.n_dropped += 1
        if goes_down:
            self._down(text)


class Arrivals(Generic[S]):
    """Texts on their way from the disk to memory, for requests that wait for them, by the requests' numbers."""

    def __init__(self, lower: LowerLevel[S], texts: MemoryTexts[S], rates: Rates) -> None:
        self._lower = lower
        self._texts = texts
        self._rates = rates
        self._coming: dict[int, tuple[str, Future[StoredText[S] | None]]] = {}
        self._tries: dict[int, int] = {}

    def is_coming(self, number: int) -> bool:
        """Whether a request waits for a text that is not there yet."""
        coming = self._coming.get(number)
        return coming is not None and not coming[1].done()

    def waits(self, number: int, prompt: Sequence[int], n_kept: int, rate: float) -> bool:
        """Whether a request should wait, as a text that helps it is read from the disk: asked when it could start in a
        slot of which it can go on from n_kept ids, and again until it may. number: of the request. rate: ids read per
        second, lately.
        """
        while not self.is_coming(number):
            came = self._coming.pop(number, None)
            text = came[1].result() if came is not None else None
            if text is not None:
                self._texts.take_in(text)
            if text is not None or not self._call(number, prompt, n_kept, rate):
                self.gone(number)
                return False
        return True

    def _call(self, number: int, prompt: Sequence[int], n_kept: int, rate: float) -> bool:
        """Have the text of the disk read that helps a request most; False where none is worth that, or can be had."""
        if (copy := self._lower.find(prompt)) is None:
            return False
        # what read the text may have been this machine
        self._rates.reading = rate or self._rates.reading or copy.rate
        # Of a prompt the disk has 800 ids, memory 300, the slot 100. The file saves reading 500 ids. Whether `exchange`
        # takes the text then depends on the 700 that it has beyond the slot.
        n_new = copy.n - max(n_kept, self._texts.best(prompt)[1])
        if n_new <= 0 or not self._rates.pays(copy.n - n_kept, copy.n_bytes, _GAIN):
            return False
        seconds = n_new / self._rates.reading
        if not self._lower.is_quicker(copy.n_bytes, seconds) or not self._texts.can_take_in(copy.n_bytes):
            return False
        self._tries[number] = self._tries.get(number, 0) + 1
        if self._tries[number] > _MOST_TRIES:
            return False
        # once for all that wait for it
        same = next((coming for name, coming in self._coming.values() if name == copy.name), None)
        self._coming[number] = copy.name, same or self._lower.read(copy.name, seconds)
        return True

    def gone(self, number: int) -> None:
        """The request starts, or waits no more."""
        self._coming.pop(number, None)
        self._tries.pop(number, None)

    def clear(self) -> None:
        """No request waits any more."""
        self._coming.clear()
        self._tries.clear()


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
        self._states = states
        self._clock = clock
        self._ahead = ahead
        self._lower = lower
        self._restored = restored
        self._rates = Rates()
        self._texts = MemoryTexts(states, most_bytes, room, self._put_down)
        self._take_turns = False  # whether a text was replaced by another lately
        self._counts = CacheCounts()
        self.arrivals = Arrivals(lower, self._texts, self._rates) if lower is not None else None
        self.tells_drafters = restored is not None
        """Whether drafters hear of texts that come back."""

    @property
    def counts(self) -> CacheCounts:
        """Counts of its contents, and of what it did since start. From any thread."""
        texts = self._texts
        now = CacheCounts(n_texts=len(texts.all), n_bytes=texts.n_bytes, n_dropped=texts.n_dropped) + self._counts
        return now if self._lower is None else now + self._lower.counts()

    # --- texts that go to the disk

    def store(self, seq: int, held: Sequence[int]) -> None:
        """Write the contents of a slot to the disk, if they are worth a file there."""
        if self._lower is None or not held:
            return
        size, rate = self._states.size(seq), self._rates.reading
        if self._lower.wants(held, size, rate) and (state := self._states.save(seq)) is not None:
            self._lower.write(StoredText(list(held), state, size), rate, waits=True)

    def store_all(self, rate: float) -> None:
        """Write the contents of memory to the disk, as far as they are not there yet. rate: as in `exchange`."""
        self._rates.reading = rate or self._rates.reading
        for text in self._texts.all:
            self._put_down(text, waits=True)

    def _put_down(self, text: StoredText[S], *, waits: bool = False) -> None:
        if self._lower is not None:
            self._lower.write(text, self._rates.reading, waits=waits)

    def clear(self) -> None:
        """Forget all texts in memory."""
        for text in tuple(self._texts.all):
            self._texts.drop(text)
        if self.arrivals is not None:
            self.arrivals.clear()

    # --- prompts that start

    def exchange(
        self, seq: int, held: Sequence[int], n_kept: int, prompt: Sequence[int], rate: float
    ) -> list[int] | None:
        """Before a prompt starts in a slot that holds `held`, of which it can go on from n_kept: keep what would be
        lost, and bring back what helps more. rate: ids read per second, lately.

        Returns the ids that the sequence holds now; None where that did not change.
        """
        self._rates.reading = rate or self._rates.reading
        kept, n = self._texts.best(prompt)
        helps = kept is not None and self._rates.pays(n - n_kept, kept.n_bytes, _GAIN)
        if held:
            self._take_turns = helps or 2 * n_kept < len(held)
        now = None
        if kept is not None and helps:
            self._keep(seq, held, 0, kept)
            now = self._bring_back(seq, kept, n, (n - n_kept) / self._rates.reading)
        else:
            self._keep(seq, held, n_kept)
        self._texts.trim()
        return now

    def keep_ahead(self, seq: int, held: Sequence[int], rate: float, may_drop: bool = True) -> bool:
        """While nothing runs: copy what a slot holds if texts took turns in slots lately, so that the next one need not
        wait for it. may_drop: also where another text has to go. rate: as in `exchange`; before it is known nothing is
        copied. Returns whether a copy was made.
        """
        n_before = self._counts.n_saved
        if self._ahead and self._take_turns and rate:
            self._rates.reading = rate
            self._keep(seq, held, 0, may_drop=may_drop)
        return self._counts.n_saved > n_before

    def _keep(
        self,
        seq: int,
        held: Sequence[int],
        n_kept: int,
        spared: StoredText[S] | None = None,
        may_drop: bool = True,
    ) -> None:
        """Copy what the slot holds, unless a stored text begins with it, or what is lost is not worth two copies."""
        if not held:
            return
        stored = next((text for text in self._texts.all if common_prefix(text.ids, held) == len(held)), None)
        if stored is not None:
            self._put_down(stored)
            return
        size = self._states.size(seq)
        gain = _GAIN if 2 * n_kept < len(held) else _GAIN_OF_ENDS
        if not self._rates.pays(len(held) - n_kept, 2 * size, gain):
            return
        has_room = self._texts.make_room(size, spared, held, may_drop)
        if not has_room and not (self._lower is not None and self._lower.wants(held, size, self._rates.reading)):
            return
        began = self._clock()
        state = self._states.save(seq)
        if state is not None:
            text = StoredText(list(held), state, size)
            if has_room:
                self._texts.add(text, spared)
            seconds = self._clock() - began
            self._rates.copied(size, seconds)
            self._counts += CacheCounts(n_saved=1, seconds=seconds)
            self._put_down(text)
            _log.debug("slot %d: its %s tokens are kept in the prompt cache", seq, f"{len(held):,}")

    def _bring_back(self, seq: int, text: StoredText[S], n: int, gained: float) -> list[int]:
        """Put a text into the slot. It stays stored where the prompt takes only its beginning: it may go on itself.
        gained: seconds in which its ids would be read.
        """
        began = self._clock()
        self._texts.all.remove(text)
        if not self._states.restore(seq, text.state):
            _log.warning("slot %d: a text of the prompt cache could not be brought back; it is read again", seq)
            return []
        if n < len(text.ids):
            self._texts.all.append(text)
        if self._restored is not None:
            self._restored(seq, text.ids, text.state)
        seconds = self._clock() - began
        self._rates.copied(text.n_bytes, seconds)
        self._counts += CacheCounts(
            n_restored=1,
            seconds=seconds,
            n_from_disk=int(text.from_disk),
            saved_seconds=max(gained - seconds - text.read_s, 0.0),
        )
        where = "the prompt cache on disk" if text.from_disk else "the prompt cache"
        text.from_disk, text.read_s = False, 0.0
        _log.debug("slot %d: %s tokens come from %s", seq, f"{n:,}", where)
        return list(text.ids)


def _begins(text: StoredText[S], held: Sequence[int]) -> bool:
    """Whether the held ids begin with all of a stored text."""
    return common_prefix(text.ids, held) == len(text.ids)
