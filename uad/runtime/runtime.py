"""The boundary between threads: any thread submits requests, one thread runs the model, events come back through
sinks.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from uad.base.common.embedding import Embeds
from uad.base.config import Config
from uad.base.console import Report
from uad.base.errors import DecodeError, NotSupportedError, UadError, UnavailableError
from uad.base.events import EngineView, Failed, Sink, SleepState, SlotAction, SlotOutcome
from uad.base.types import Request
from uad.engine.decode.guard import deliver, reason, warn
from uad.llama.backend import abort, rpc
from uad.runtime.commands import Commands
from uad.runtime.loaded import Loaded
from uad.runtime.model_thread import ModelThread
from uad.runtime.open import build
from uad.runtime.plan import Plan
from uad.runtime.timing import TIMING
from uad.runtime.worker_watch import WorkerWatch

_log = logging.getLogger("uad")
LONGEST_ROUND_S = 20.0
"""So long a round may go on after it was asked to stop: passes over workers and on GPUs cannot be interrupted."""


class Runtime(Loaded):
    """A loaded target, perhaps with a draft, and the thread that runs them."""

    embeds: Embeds | None = None

    def __init__(self, config: Config, progress: Report, planned: Callable[[Plan], None]) -> None:
        self.config = config
        self._commands = Commands()
        self._numbers = itertools.count(1)
        built: Future[ModelThread] = Future()
        self._thread = threading.Thread(
            target=self._main, args=(built, progress, planned), name="uad-model", daemon=True
        )
        self._thread.start()
        self._model = built.result()
        super().__init__(self._model.parts)
        self._slots, self._sleeper = self._model.slots, self._model.sleeper
        self._forget = abort.listen(self._give_up)
        self._workers = WorkerWatch(self._commands) if rpc.connected() else None

    @classmethod
    def open(
        cls,
        config: Config,
        progress: Report = lambda what, share: None,
        planned: Callable[[Plan], None] = lambda plan: None,
    ) -> Runtime:
        """Load everything; progress(what, share) reports long loads, `planned` gets the plan before them.

        Raises ModelLoadError, MappingError or ConfigError.
        """
        return cls(config, progress, planned)

    def _main(self, built: Future[ModelThread], progress: Report, planned: Callable[[Plan], None]) -> None:
        """Everything native happens on this thread, loading and warming up too. Each thread that computes gets its own
        team of OpenMP threads, and as soon as there are more of them than cores they sleep at barriers instead of
        spinning: decodes took 10 % longer.
        """
        try:
            with abort.starting():
                parts = build(self.config, progress, TIMING, planned)
        except BaseException as error:
            built.set_exception(error)
            return
        with parts.stack:
            try:
                model = ModelThread(parts, self.config.server.slot_save_path, self._commands)
            except BaseException as error:  # else the one that opens this would wait for ever
                built.set_exception(error)
                return
            built.set_result(model)
            model.run()

    def close(self) -> None:
        """Ends running requests with UnavailableError, stops the thread, frees the models. Safe to call twice.

        Raises DecodeError where a round does not end: the thread is left to itself then.
        """
        commands = self._commands
        with commands.lock:
            if commands.is_closed:
                return
            commands.is_closed = True
            if self._workers is not None and self._workers.close():
                return  # to free what lies on workers needs them
            commands.put(None)
            commands.hurry.set()
            self._engine.interrupt()
        if commands.gave_up():
            return
        if not self._model.between_rounds.wait(LONGEST_ROUND_S):
            raise DecodeError(
                f"stopping: the model has been in one pass for {LONGEST_ROUND_S:g} s; a device or an RPC worker stands "
                "still. Look at it, then start uad again"
            )
        self._thread.join()
        if self._slots is not None:
            self._slots.close()
        self._forget()

    # --- what other threads ask

    @property
    def error(self) -> UadError | None:
        """The fatal error that stopped the model thread, if one did."""
        return self._commands.error

    @property
    def sleep(self) -> SleepState:
        """Whether the models are unloaded."""
        return self._sleeper.state

    def fall_asleep(self) -> None:
        """Unload the models soon, unless they are needed before that."""
        self._sleeper.fall_asleep()

    def wake(self) -> Future[None]:
        """Load the models again, unless they are: done then."""
        return self._sleeper.wake()

    def when_stopped(self, call: Callable[[], object]) -> None:
        """Call `call` when a fatal error has stopped the model thread; at once if it has."""
        self._commands.when_stopped(call)

    def submit(self, request: Request, sink: Sink) -> int:
        """Queue a request; sink gets its events on the model thread. Raises InvalidRequestError, ContextOverflowError,
        UnavailableError.
        """
        if self.error is not None:
            raise UnavailableError(f"the model stopped after an error and the server must be restarted: {self.error}")
        request = self._parts.turns.resolved(self._checked(request))
        number, commands = next(self._numbers), self._commands

        def start() -> None:
            try:
                self._sleeper.load()
            except UadError as error:
                deliver(sink, Failed(number, error))
            else:
                self._parts.turns.submit(number, request, sink)

        with commands.lock:  # what comes after the end of the commands would never be answered
            if commands.is_closed:
                raise UnavailableError("the server is shutting down")
            self._sleeper.call_off()
            commands.put(start)
            commands.hurry.set()
            if self._engine.has_room:
                self._engine.interrupt()
        return number

    def cancel(self, request: int, why: str = "cancelled") -> None:
        """The request's slot is free within one round; no event follows. The log says why."""
        with self._commands.lock:
            self._commands.put(lambda: self._parts.turns.cancel(request, why))
            self._engine.interrupt()

    def slot_action(self, action: SlotAction, slot: int, name: str = "") -> Future[SlotOutcome]:
        """Save, restore or erase a slot as soon as no request runs there; name: of the file. One that is cancelled
        before does not happen.

        Raises InvalidRequestError, UnavailableError, also while the models are unloaded, or NotSupportedError where no
        folder for files was given.
        """
        if self._slots is None:
            raise NotSupportedError("This server does not support slots action. Start it with `--slot-save-path`")
        if self.sleep.is_asleep:
            raise UnavailableError("the models are unloaded; wake them first")
        return self._slots.start(action, slot, name)

    def set_adapters(self, scales: tuple[float, ...]) -> None:
        """How much of each adapter is added for later requests that do not say; one number for each."""
        self._parts.turns.default = scales

    def look(self, show: Callable[[EngineView], None]) -> None:
        """Call `show`, on the model thread between two rounds, with what the loop does; never once it has stopped."""

        def looked() -> None:
            try:
                show(self._engine.view())
            except Exception as error:  # a look at the state costs no answer
                warn(_log, error, "the loop cannot be looked at (%s)", reason(error))

        self._commands.put(looked)

    # --- llama.cpp gives up

    def _give_up(self, message: str) -> None:
        def begin(error: UadError) -> None:
            if self._slots is not None:
                self._slots.fail_all(error)

        self._commands.give_up(message, self._parts.turns.tell_all, begin)
