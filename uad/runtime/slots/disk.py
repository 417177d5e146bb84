"""The prompt cache's level on a disk: texts that left their slots, for when they come back, also after a restart.

The model thread copies states and looks into an index of headers. Files are written on one thread and read on another.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from uad.base.common.arrays import Ints
from uad.base.common.files import why_not_writable
from uad.base.errors import UadError
from uad.base.events import CacheCounts
from uad.base.types import Clock
from uad.engine.decode.guard import reason
from uad.engine.decode.lower_level import FoundText, StoredText
from uad.runtime.slots.copies import SCALES, SlotCopies
from uad.runtime.slots.disk_files import DiskFiles, name_of
from uad.runtime.slots.file import (
    Facts,
    SavedSlot,
    TooSlowError,
    UnusableFileError,
    read_slot,
    size_in_file,
    write_slot,
)

_log = logging.getLogger("uad")
MOST_WAITING_BYTES = 1 << 30  # bytes that wait to be written; one text may be larger
_PATIENCE_S = 60.0  # for room among these, at the end
_PRICE_S_PER_BYTE = 2e-9  # seconds per byte, before a file was read
_LEAST_BYTES = 1 << 20  # bytes: a smaller file takes as long to open and read
_NEWEST = 0.5  # share of the newest file in the price
_FORGETS = 0.9  # of the price, whenever a text is not read because of it: the disk may be quicker now
_FIRST_IDS = 16  # ids that are compared before the others


@dataclass(frozen=True, slots=True)
class _DiskText:
    """A text of the index. waiting: it is not written yet."""

    name: str
    ids: Ints
    slot: SavedSlot
    n_bytes: int
    waiting: StoredText[SavedSlot] | None = None


class _DiskWriter:
    """Writes texts into files, on a thread of its own."""

    def __init__(self, files: DiskFiles) -> None:
        self._files = files
        self.thread = ThreadPoolExecutor(1, "uad-cache-write")
        self._has_room = threading.Condition()
        self._n_waiting = 0  # bytes
        self.waiting: dict[str, _DiskText] = {}
        """Texts that are not written yet, by the names of their files."""
        self.n_written = 0  # bytes

    def add(self, text: _DiskText, waits: bool) -> None:
        """Write a text, if there is room among those that wait for that. waits: for room."""

        def fits() -> bool:
            return not self._n_waiting or self._n_waiting + text.n_bytes <= MOST_WAITING_BYTES

        with self._has_room:
            if not (self._has_room.wait_for(fits, _PATIENCE_S) if waits else fits()):
                _log.debug("--cache-disk: %d tokens are not written, as too much waits for that", len(text.ids))
                return
            self._n_waiting += text.n_bytes
            self.waiting = {**self.waiting, text.name: text}
        self.thread.submit(self._write, text)

    def _write(self, text: _DiskText) -> None:
        try:
            self._files.make_room(text.n_bytes)
            self.n_written += write_slot(self._files.folder / text.name, text.slot)
            self._files.look()
            self._remove_beginnings(text)
            self._files.make_room(0)  # another server may have written at the same time
        except Exception as error:
            cause = error.__cause__
            why = cause.strerror or str(cause) if isinstance(cause, OSError) else reason(error)
            self._files.warn(f"cannot be written ({why})")
        finally:
            with self._has_room:
                self._n_waiting -= text.n_bytes
                self.waiting = {name: kept for name, kept in self.waiting.items() if kept is not text}
                self._has_room.notify_all()

    def _remove_beginnings(self, text: _DiskText) -> None:
        """Texts that another one begins with have had their time: a conversation went on."""
        for name, outline in self._files.texts.items():
            is_same = outline.slot.target.facts == text.slot.target.facts
            if is_same and name != text.name and _common(outline.ids, text.ids) == len(outline.ids):
                self._files.remove(name)


class _DiskReader:
    """Reads texts from files, on a thread of its own, and knows what that takes."""

    def __init__(self, files: DiskFiles, n_vocab: int, clock: Clock) -> None:
        self._files, self._n_vocab, self._clock = files, n_vocab, clock
        self.thread = ThreadPoolExecutor(1, "uad-cache-read")
        self._price = _PRICE_S_PER_BYTE
        self._is_looking = self._is_closing = False
        self.n_read = 0  # bytes

    def seconds(self, n_bytes: int) -> float:
        """Seconds that reading n_bytes is expected to take."""
        return max(n_bytes, _LEAST_BYTES) * self._price

    def is_quicker(self, n_bytes: int, seconds: float) -> bool:
        """See `LowerLevel`."""
        if self.seconds(n_bytes) < seconds:
            return True
        self._price *= _FORGETS
        return False

    def look_again(self) -> None:
        """Read the folder again where another server changed it; nobody waits for that."""
        if self._is_looking or self._is_closing or not self._files.has_changed:
            return
        self._is_looking = True
        self.thread.submit(self._look)

    def close(self) -> None:
        """Nothing is read any more."""
        self._is_closing = True
        self.thread.shutdown(cancel_futures=True)

    def _look(self) -> None:
        try:
            self._files.look()
        finally:
            self._is_looking = False

    def read(self, name: str, seconds: float, facts: Facts, drafts: Sequence[Facts]) -> StoredText[SavedSlot] | None:
        """A text of these facts; see `LowerLevel.read`. On that thread."""
        path, began, n_bytes = self._files.folder / name, self._clock(), 0

        def go_on(n: int) -> bool:
            nonlocal n_bytes
            n_bytes = n
            return self._clock() - began < seconds and not self._is_closing

        try:
            slot, n_bytes = read_slot(path, facts, drafts, go_on)
            ids = slot.target.ids
            if slot.target.state.end != len(ids) or not 0 <= min(ids) <= max(ids) < self._n_vocab:
                raise UnusableFileError("restore", path, "its token ids make no sense")
        except TooSlowError:
            _log.debug("--cache-disk: %s is not waited for: its text is read quicker", name)
            return None
        except Exception as error:
            self._files.refuse(name, error if isinstance(error, UadError) else UadError(reason(error)))
            return None
        finally:
            taken = self._clock() - began
            self.n_read += n_bytes
            if n_bytes:
                self._price += _NEWEST * (taken / max(n_bytes, _LEAST_BYTES) - self._price)
        self._files.touch(name)
        return StoredText(list(ids), slot, n_bytes, from_disk=True, read_s=taken)


class DiskTexts:
    """`LowerLevel` of the prompt cache, in files. limit: most ids that a slot may hold. wake: is called on a thread of
    its own whenever a text was read.
    """

    def __init__(self, files: DiskFiles, copies: SlotCopies, limit: int, clock: Clock) -> None:
        self._files, self._copies, self._limit = files, copies, limit
        self._writer = _DiskWriter(files)
        self._reader = _DiskReader(files, copies.target.context.n_vocab, clock)
        self._is_closing = False
        self.wake: Callable[[], object] = lambda: None
        self.is_quicker = self._reader.is_quicker
        files.look()
        if files.is_readable and (why := why_not_writable(files.folder / "text")):
            files.warn(f"cannot be written ({why})")

    # --- on the model thread

    def find(self, prompt: Sequence[int]) -> FoundText | None:
        """The text that the prompt can go on from furthest. See `LowerLevel`."""
        self._reader.look_again()
        ids, best = _before_images(prompt), None
        for text in self._usable(self._copies.facts[SCALES]):
            n = self._copies.reach_of(text.slot, _common(text.ids, ids)) if len(text.ids) <= self._limit else 0
            if n > 0 and (best is None or (n, -text.n_bytes) > (best.n, -best.n_bytes)):
                best = FoundText(text.name, n, text.n_bytes, text.slot.rate)
        return best

    def read(self, name: str, seconds: float) -> Future[StoredText[SavedSlot] | None]:
        """The text, None where it is gone, damaged, or not read within `seconds`."""
        if (text := self._writer.waiting.get(name)) is not None and text.waiting is not None:
            there: Future[StoredText[SavedSlot] | None] = Future()
            there.set_result(text.waiting)
            return there
        facts, drafts = self._copies.facts, self._copies.draft_facts
        reading = self._reader.thread.submit(self._reader.read, name, seconds, facts, drafts)
        reading.add_done_callback(lambda _: self.wake())
        return reading

    def wants(self, ids: Sequence[int], n_bytes: int, rate: float) -> bool:
        """Whether a text of the adapters' scales of now is worth a file, and no text in a file begins with it."""
        text = _before_images(ids)
        there = self._that_begins(text, self._copies.facts[SCALES])
        return there is None and len(text) == len(ids) and self._is_worth_it(len(ids), n_bytes, rate)

    def write(self, text: StoredText[SavedSlot], rate: float, *, waits: bool = False) -> None:
        """Write a text beside this thread, if it is wanted. See `LowerLevel`."""
        if self._is_closing:
            return
        ids, own = _before_images(text.ids), text.state.target
        if len(ids) < len(text.ids):
            return
        facts = own.facts
        there = self._that_begins(ids, facts[SCALES])
        if there is not None and there.waiting is None:
            self._writer.thread.submit(self._files.touch, there.name)
        slot = replace(text.state, target=replace(own, ids=text.ids), rate=rate)
        n_bytes = size_in_file(slot)
        is_fine = own.state.end == len(ids) and self._is_worth_it(len(ids), n_bytes, rate)
        if there is None and is_fine:
            self._writer.add(_DiskText(name_of(facts, ids), ids, slot, n_bytes, replace(text, state=slot)), waits)

    def _usable(self, scales: str) -> Iterator[_DiskText]:
        """Texts of these adapters' scales, those first that wait to be written."""
        waiting = self._writer.waiting
        for text in waiting.values():
            if text.slot.target.facts[SCALES] == scales:
                yield text
        for name, outline in self._files.texts.items():
            if name not in waiting and outline.slot.target.facts.get(SCALES) == scales:
                yield _DiskText(name, outline.ids, outline.slot, outline.n_bytes)

    def _that_begins(self, ids: Ints, scales: str) -> _DiskText | None:
        """A text that begins with these ids."""
        return next((text for text in self._usable(scales) if _common(text.ids, ids) == len(ids)), None)

    def _is_worth_it(self, n_ids: int, n_bytes: int, rate: float) -> bool:
        """Whether a text fits, and is read from a file quicker than as a prompt."""
        most = self._files.most
        fits = most is None or n_bytes <= most
        return fits and rate > 0 and n_ids / rate > self._reader.seconds(n_bytes)

    # --- from any thread

    def counts(self) -> CacheCounts:
        """Counts of what it holds, and of what it did."""
        return CacheCounts(
            n_disk_texts=len(self._files.texts),
            n_disk_bytes=self._files.n_bytes,
            n_disk_read=self._reader.n_read,
            n_disk_written=self._writer.n_written,
        )

    def settle(self) -> None:
        """Wait until all is written and read that was asked for."""
        for thread in (self._writer, self._reader):
            thread.thread.submit(lambda: None).result()

    def close(self) -> None:
        """Wait until all is written. Nothing is read any more."""
        self._is_closing = True
        self._reader.close()
        self._writer.thread.shutdown()


def _before_images(ids: Sequence[int]) -> Ints:
    """The ids before the first placeholder of an image, which is below 0: files of slots have no images."""
    every = np.asarray(ids, np.int64)
    images = np.flatnonzero(every < 0)
    return (every[: images[0]] if len(images) else every).astype(np.int32)


def _common(a: Ints, b: Ints) -> int:
    """Number of leading ids that a and b share."""
    n = min(len(a), len(b))
    if not np.array_equal(a[: min(n, _FIRST_IDS)], b[: min(n, _FIRST_IDS)]):
        n = min(n, _FIRST_IDS)
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n
