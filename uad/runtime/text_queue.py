"""Texts of several requests on their way to an embedding model: which of them share the next pass."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from uad.base.common.embedding import Ids, Vectors


class TextJob:
    """The texts of one request, and their vectors so far."""

    def __init__(self, texts: Sequence[Ids]) -> None:
        self.texts = texts
        self.future: Future[list[Vectors]] = Future()
        self._vectors: dict[int, Vectors] = {}
        self._left = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # the longest last
        self._lengths = [len(texts[i]) for i in self._left]

    @property
    def is_taken(self) -> bool:
        """Whether no text is left to take, or nobody waits any more."""
        return not self._left or self.future.done()

    def take(self, room: int | None) -> int | None:
        """The place of the longest text that has at most `room` ids, of all for None; None where no text fits."""
        at = (len(self._left) if room is None else bisect_right(self._lengths, room)) - 1
        if at < 0:
            return None
        del self._lengths[at]
        return self._left.pop(at)

    def put(self, place: int, vectors: Vectors) -> None:
        """The vectors of a text; with the last of them the future is done."""
        self._vectors[place] = vectors
        if len(self._vectors) == len(self.texts) and self.future.set_running_or_notify_cancel():
            self.future.set_result([self._vectors[i] for i in range(len(self.texts))])

    def fail(self, error: Exception) -> None:
        """Nothing more comes."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class TextQueue:
    """Chooses texts for passes: up to n_texts of n_rows ids together, or a longer one alone."""

    def __init__(self, n_rows: int, n_texts: int) -> None:
        self._n_rows, self._n_texts = n_rows, n_texts
        self._jobs: deque[TextJob] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits. Forgets what was given up."""
        self._jobs = deque(job for job in self._jobs if not job.is_taken)
        return not self._jobs

    def add(self, job: TextJob) -> None:
        """Queue the texts of a request."""
        self._jobs.append(job)

    def take(self) -> list[tuple[TextJob, int]]:
        """The texts of the next pass; there must be one. Requests take turns: each begins a pass with its longest text,
        and the others fill it up with the longest that fit, one after the other.
        """
        self._jobs.rotate(-1)
        first = self._jobs[-1]
        place = first.take(None)
        assert place is not None, "requests without texts left are not kept"
        taken, room = [(first, place)], self._n_rows - len(first.texts[place])
        fitting = deque(self._jobs)
        while fitting and room > 0 and len(taken) < self._n_texts:
            job = fitting.popleft()
            if (place := job.take(room)) is not None:
                taken.append((job, place))
                room -= len(job.texts[place])
                fitting.append(job)
        return taken

    def fail_all(self, error: Exception) -> None:
        """End all requests."""
        while self._jobs:
            self._jobs.popleft().fail(error)
