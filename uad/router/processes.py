"""Processes of instances: each is started, watched until it ends, and stopped. On the event loop's thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from uad.router.child import Launcher, ProcessFailedError, ended
from uad.router.instances import Instance

_log = logging.getLogger("uad")


class Processes:
    """on_planned gets an instance, and the bytes of memory that its process is about to take. on_loaded gets it once
    the process is ready. on_ended gets it once the process is gone, with the reason where that was not asked for; an
    instance that was started comes there in any case.
    """

    def __init__(
        self,
        launcher: Launcher,
        on_planned: Callable[[Instance, int], None],
        on_loaded: Callable[[Instance], None],
        on_ended: Callable[[Instance, ProcessFailedError | None], None],
    ) -> None:
        self._launcher, self._on_planned, self._on_loaded, self._on_ended = launcher, on_planned, on_loaded, on_ended
        self._running: dict[Instance, asyncio.Task[None]] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def start(self, instance: Instance) -> None:
        """Begin to load."""
        task = self._running[instance] = _begun(self._run(instance))
        task.add_done_callback(lambda task: self._end(instance, task), context=Context())

    def stop(self, instance: Instance) -> None:
        """Begin to end it, or its load."""
        if instance.child is None:
            self._running[instance].cancel()
            return
        task = _begun(instance.child.stop(instance.model.stop_seconds))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def all_ended(self) -> None:
        """Wait until none is left."""
        while tasks := {*self._running.values(), *self._stopping}:
            await asyncio.wait(tasks)

    async def _run(self, instance: Instance) -> None:
        """From the start of its process to its end. Raises ProcessFailedError where it ends by itself."""
        child = await self._launcher.start(
            instance.model,
            lambda: not instance.is_loaded or instance.n_busy > 0,
            lambda n_bytes: self._on_planned(instance, n_bytes),
        )
        instance.child = child
        self._on_loaded(instance)
        code = await child.wait()
        raise ProcessFailedError(child.reason or ended(code), code)

    def _end(self, instance: Instance, task: asyncio.Task[None]) -> None:
        del self._running[instance]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ProcessFailedError):
            _log.error("the process of %s could not be started", instance.model.name, exc_info=error)
            error = ProcessFailedError(f"its process could not be started: {error}", -1)
        self._on_ended(instance, None if instance.is_stopping else error)


def _begun(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task whose lines in the log are of no request."""
    return asyncio.create_task(work, context=Context())
