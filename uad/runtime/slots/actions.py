"""When slots are saved, restored and erased: the models' side between rounds, once the slot is free, files on a thread
of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from uad.base.errors import UadError, UnavailableError
from uad.base.events import SlotAction, SlotOutcome
from uad.base.types import Clock
from uad.engine.decode.guard import known
from uad.runtime.slots.file import SavedSlot, file_in, read_slot, write_slot
from uad.runtime.slots.keeper import SlotKeeper

MOST = 16
"""Actions that wait or run; each may have a copy of a slot in memory."""


@dataclass(eq=False, slots=True)
class _PendingAction:
    """An action on its way. `saved` is what was read from its file."""

    action: SlotAction
    slot: int
    path: Path
    began: float
    outcome: Future[SlotOutcome]
    saved: SavedSlot | None = None
    n_bytes: int = 0


class SlotActions:
    """Actions on slots, asked for from any thread, and done where they belong.

    post: has something done on the model thread; False where that has ended.
    """

    def __init__(
        self, keeper: SlotKeeper, folder: Path, post: Callable[[Callable[[], None]], bool], clock: Clock
    ) -> None:
        self._keeper, self._folder, self._post, self._clock = keeper, folder, post, clock
        self._files = ThreadPoolExecutor(1, "uad-slots")
        self._waiting: list[_PendingAction] = []  # for their slots to be free; on the model thread
        self._jobs: set[_PendingAction] = set()
        self._end: UadError | None = None

    def start(self, action: SlotAction, slot: int, name: str) -> Future[SlotOutcome]:
        """From any thread; name: of the file. An action that is cancelled before its slot is free does not happen.

        Raises InvalidRequestError, or UnavailableError where too many wait.
        """
        self._keeper.check(slot)
        path = file_in(self._folder, name) if action is not SlotAction.ERASE else self._folder
        if len(self._jobs) >= MOST:
            raise UnavailableError(f"{MOST} actions on slots wait already")
        job = _PendingAction(action, slot, path, self._clock(), Future())
        self._jobs.add(job)
        job.outcome.add_done_callback(lambda _: self._jobs.discard(job))
        if action is SlotAction.RESTORE:
            self._in_files(job, self._read)
        else:
            self._when_free(job)
        return job.outcome

    @property
    def is_busy(self) -> bool:
        """Whether an action waits or runs. From any thread."""
        return bool(self._jobs)

    def settle(self) -> None:
        """Do what waits for slots that are free now. On the model thread, between rounds."""
        for job in [job for job in self._waiting if self._keeper.is_ready(job.slot, job.saved)]:
            self._waiting.remove(job)
            if job.outcome.set_running_or_notify_cancel():
                self._guarded(job, self._act)

    def fail_all(self, error: UadError) -> None:
        """All that waits, or comes yet, ends with this error. On the model thread, or once that is lost."""
        self._end = error
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            self._fail(job, error)

    def close(self) -> None:
        """Wait for files that are being written. Once the model thread has ended."""
        self._files.shutdown()

    # --- steps of a job

    def _act(self, job: _PendingAction) -> None:
        """Do a job's action in its slot, which is free. On the model thread."""
        if job.action is SlotAction.ERASE:
            self._succeed(job, self._keeper.erase(job.slot))
        elif job.action is SlotAction.SAVE:
            saved = self._keeper.copy(job.slot)
            self._in_files(job, lambda job: self._write(job, saved))
        elif job.saved is not None:
            self._succeed(job, self._keeper.put(job.slot, job.saved))

    def _write(self, job: _PendingAction, saved: SavedSlot) -> None:
        job.n_bytes = write_slot(job.path, saved)
        self._succeed(job, len(saved.target.ids))

    def _read(self, job: _PendingAction) -> None:
        if not job.outcome.cancelled():
            job.saved, job.n_bytes = read_slot(job.path, *self._keeper.facts)
            self._when_free(job)

    def _in_files(self, job: _PendingAction, work: Callable[[_PendingAction], None]) -> None:
        self._files.submit(self._guarded, job, work)

    def _when_free(self, job: _PendingAction) -> None:
        if not self._post(lambda: self._arrived(job)):
            self._fail(job, self._end or UnavailableError("the server is shutting down"))

    def _arrived(self, job: _PendingAction) -> None:
        if self._end is not None:
            self._fail(job, self._end)
            return
        self._waiting.append(job)
        self.settle()

    def _guarded(self, job: _PendingAction, work: Callable[[_PendingAction], None]) -> None:
        try:
            work(job)
        except Exception as error:
            self._fail(job, known(error))

    def _succeed(self, job: _PendingAction, n_ids: int) -> None:
        job.outcome.set_result(SlotOutcome(n_ids, job.n_bytes, 1e3 * (self._clock() - job.began)))

    def _fail(self, job: _PendingAction, error: UadError) -> None:
        with suppress(InvalidStateError):  # it was cancelled
            job.outcome.set_exception(error)
