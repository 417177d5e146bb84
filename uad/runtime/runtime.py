"""The boundary between threads: any thread submits requests, one thread runs the model, events come back through
sinks.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from uad.base.config import Config
from uad.base.errors import NotSupportedError, UadError, UnavailableError
from uad.base.events import EngineView, Failed, Sink, SleepState, SlotAction, SlotOutcome
from uad.base.stats import DrafterStats
from uad.base.types import Request
from uad.engine.decode.engine import Engine
from uad.engine.decode.guard import deliver, logged, reason, warn
from uad.llama.backend import abort, rpc
from uad.runtime.adapters import AdapterTurns
from uad.runtime.loaded import Loaded
from uad.runtime.pacing import Remeasurement
from uad.runtime.parts import Parts, build
from uad.runtime.sleep import Sleeper
from uad.runtime.slots.actions import SlotActions
from uad.runtime.target import Progress

_log = logging.getLogger("uad")
_Command = Callable[[], None]
_LAST_WORDS_S = 10.0  # for clients to get their errors, once llama.cpp has given up


class Runtime(Loaded):
    """A loaded target, perhaps with a draft, and the thread that runs them."""

    def __init__(self, config: Config, progress: Progress) -> None:
        self.config = config
        self._commands: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._error: UadError | None = None
        self._when_stopped: list[Callable[[], object]] = []
        self._closing = False
        self._hurry = threading.Event()  # there is work for the model, not only a look at its state
        self._gave_up, self._is_over = threading.Event(), threading.Event()
        self._door = threading.Lock()
        self._slots: SlotActions | None = None
        self._sleeper: Sleeper
        built: Future[Parts] = Future()
        self._thread = threading.Thread(target=self._main, args=(built, progress), name="uad-model", daemon=True)
        self._thread.start()
        super().__init__(built.result())
        self._forget = abort.listen(self._give_up)
        rpc.watch()

    @classmethod
    def open(cls, config: Config, progress: Progress | None = None) -> Runtime:
        """Load everything; progress(what, share) reports long loads.

        Raises ModelLoadError, MappingError or ConfigError.
        """
        return cls(config, progress or (lambda what, share: None))

    def close(self) -> None:
        """Ends running requests with UnavailableError, stops the thread, frees the models. Safe to call twice."""
        with self._door:
            if self._closing:
                return
            self._closing = True
            self._commands.put(None)
            self._hurry.set()
            self._engine.interrupt()
        if self._gave_up.is_set():  # the model thread never ends; the one that failed ends the process
            self._is_over.set()
            threading.Event().wait(_LAST_WORDS_S)
            return
        self._thread.join()
        if self._slots is not None:
            self._slots.close()
        self._forget()

    # --- requests

    @property
    def error(self) -> UadError | None:
        """The fatal error that stopped the model thread, if one did."""
        return self._error

    def when_stopped(self, tell: Callable[[], object]) -> None:
        """Call `tell`, on the model thread, when a fatal error has stopped it and all requests have their errors; at
        once if it has.
        """
        with self._door:
            if self._error is None:
                self._when_stopped.append(tell)
                return
        tell()

    def submit(self, request: Request, sink: Sink) -> int:
        """Queue a request; sink gets its events on the model thread. Raises InvalidRequestError, ContextOverflowError,
        UnavailableError.
        """
        if self._error is not None:
            raise UnavailableError(f"the model stopped after an error and the server must be restarted: {self._error}")
        request = self._parts.turns.resolved(self._checked(request))
        number = next(self._numbers)
        with self._door:  # what comes after the end of the commands would never be answered
            if self._closing:
                raise UnavailableError("the server is shutting down")
            self._sleeper.call_off()
            self._commands.put(lambda: self._start(number, request, sink))
            self._hurry.set()
            if self._engine.has_room:
                self._engine.interrupt()
        return number

    def _start(self, number: int, request: Request, sink: Sink) -> None:
        try:
            self._load()
        except UadError as error:
            deliver(sink, Failed(number, error))
        else:
            self._parts.turns.submit(number, request, sink)

    def cancel(self, request: int) -> None:
        """The request's slot is free within one round; no event follows."""
        with self._door:
            self._commands.put(lambda: self._parts.turns.cancel(request))
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

    def look(self, tell: Callable[[EngineView], None]) -> None:
        """Call `tell`, on the model thread between two rounds, with what the loop does; never once it has stopped."""

        def told() -> None:
            try:
                tell(self._engine.view())
            except Exception as error:  # a look at the state costs no answer
                warn(_log, error, "the loop cannot be looked at (%s)", reason(error))

        self._commands.put(told)

    # --- sleep

    @property
    def sleep(self) -> SleepState:
        """Whether the models are unloaded. From any thread."""
        return self._sleeper.state

    def fall_asleep(self) -> None:
        """Unload the models, unless a request comes before that; `sleep` says so at once. The next request loads them
        again. From any thread.
        """
        with self._door:
            if not self._closing and self._error is None and self._sleeper.plan():
                self._commands.put(self._unload)

    def wake(self) -> Future[None]:
        """Have the models loaded; the future is done then, or has UnavailableError, after which another call tries
        again. Of calls that are all cancelled before nothing is loaded. From any thread.
        """
        woken: Future[None] = Future()
        self._sleeper.call_off()
        if not self._post(lambda: self._wake(woken)):
            woken.set_exception(UnavailableError("the server is shutting down"))
        return woken

    def _wake(self, woken: Future[None]) -> None:
        if woken.set_running_or_notify_cancel():
            try:
                self._load()
            except UadError as error:
                woken.set_exception(error)
            else:
                woken.set_result(None)

    def _load(self) -> None:
        if self._error is not None:
            raise self._error
        self._sleeper.load(lambda: not self._closing)

    def _unload(self) -> None:
        is_busy = not self._engine.is_idle or (self._slots is not None and self._slots.is_busy)
        if is_busy or self._error is not None:
            self._sleeper.call_off()
        self._sleeper.unload()

    def _post(self, command: _Command) -> bool:
        with self._door:
            if not self._closing:
                self._commands.put(command)
            return not self._closing

    # --- the model thread

    def _main(self, built: Future[Parts], progress: Progress) -> None:
        """Everything native happens on this thread, loading and warming up too. Each thread that computes gets its own
        team of OpenMP threads, and as soon as there are more of them than cores they sleep at barriers instead of
        spinning: decodes took 10 % longer.
        """
        try:
            with abort.starting():
                parts = build(self.config, progress)
        except BaseException as error:
            built.set_exception(error)
            return
        with parts.stack:
            try:
                self._sleeper = Sleeper(parts.engine, parts.contexts, parts.wiring.clock)
                folder = self.config.server.slot_save_path
                if parts.keeper is not None and folder is not None:
                    self._slots = SlotActions(parts.keeper, folder, self._post, parts.wiring.clock)
            except BaseException as error:  # else the one that opens this would wait for ever
                built.set_exception(error)
                return
            if parts.disk is not None:
                parts.disk.wake = lambda: self._post(_nothing)
            built.set_result(parts)
            self._run(parts.engine, parts.turns, parts.again)

    def _run(self, engine: Engine, turns: AdapterTurns, again: Remeasurement | None) -> None:
        try:
            while self._obey(engine, turns, again):
                engine.step(self._commands.empty)
            for stats in engine.drafters():
                if stats.n_calls:
                    _log.info("%s", statistics(stats))
            with logged("what slots held could not be stored"):
                engine.store()  # before requests end: those that fail leave nothing in their slots
            self._fail_all(turns, UnavailableError("the server is shutting down"))
            if not self._sleeper.is_unloaded:
                with logged("what slots held could not be cleared away"):
                    engine.leave()
        except Exception as error:
            self._stop(turns, error)

    def _fail_all(self, turns: AdapterTurns, error: UadError) -> None:
        if self._slots is not None:
            self._slots.fail_all(error)
        turns.fail_all(error)

    def _obey(self, engine: Engine, turns: AdapterTurns, again: Remeasurement | None) -> bool:
        """Carry out what other threads asked for; waits while there is nothing to do, and measures costs again where
        that is due. False: stop.
        """
        turns.settle()
        if self._slots is not None:
            self._slots.settle()
        while engine.is_idle and self._commands.empty() and not self._sleeper.is_unloaded and engine.rest():
            pass
        while True:
            wait, due = engine.is_stuck, self._due(again)
            try:
                command = self._commands.get(block=wait, timeout=due.wait if due is not None else None)
            except queue.Empty:
                if engine.is_idle and due is not None:
                    self._measure(engine, due)
                    continue
                # A command and its interruption come as one, under the lock. So an interruption that is there after
                # this belongs to a command that waits, never to one of those that the next round is made for.
                with self._door:
                    if self._commands.empty():
                        engine.interrupt(False)
                        return True
                continue
            if command is None:
                return False
            command()

    def _due(self, again: Remeasurement | None) -> Remeasurement | None:
        return None if self._sleeper.is_unloaded else again

    def _measure(self, engine: Engine, again: Remeasurement) -> None:
        """Measure costs again, until there is other work: that puts a command first, and then sets `_hurry`."""
        self._hurry.clear()
        if self._commands.empty():
            try:
                again(engine.spare(), self._hurry.is_set)
            except Exception as error:
                _log.warning("costs could not be measured again: %s", error)
                engine.forget()  # what the slots hold may have been written over

    def _stop(self, turns: AdapterTurns, error: Exception) -> None:
        """Remember the fatal error, end all requests with it, and go on refusing until closed."""
        _log.error("the model thread stopped: %s", error, exc_info=not isinstance(error, UadError))
        with self._door:
            self._error = (
                error if isinstance(error, UadError) else UadError(f"internal error: {type(error).__name__}: {error}")
            )
        with logged("what the fatal error left could not be cleared away"):  # what broke may break again
            self._fail_all(turns, self._error)
        for tell in self._when_stopped:
            with suppress(Exception):  # no client listens any more
                tell()
        while (command := self._commands.get()) is not None:
            with suppress(Exception):
                command()
                turns.fail_all(self._error)

    # --- llama.cpp gives up

    def _give_up(self, message: str) -> None:
        """End all requests, and wait until the user of this object has closed it: the process ends after this. On the
        thread that failed; the model's waits for llama.cpp, for ever.
        """
        error = UadError(message)
        with self._door:
            self._error = self._error or error
            is_closing = self._closing
        self._gave_up.set()
        if self._slots is not None:
            self._slots.fail_all(error)
        with suppress(Exception):
            with suppress(queue.Empty):
                while True:  # requests that were submitted and not yet seen get the error, too
                    if (command := self._commands.get_nowait()) is not None:
                        command()
            self._parts.turns.tell_all(error)
        for tell in self._when_stopped:
            with suppress(Exception):
                tell()
        if not is_closing:
            self._is_over.wait(_LAST_WORDS_S)


def _nothing() -> None:
    """A command that only has the model thread look whether there is something to do."""


def statistics(stats: DrafterStats) -> str:
    """What a drafter did since start, in one line with llama-server's words."""
    return (
        f"statistics {stats.origin}: #calls = {stats.n_calls}, #drafts = {stats.n_drafts}, #gen tokens = "
        f"{stats.n_drafted}, "
        f"#acc tokens = {stats.n_accepted}, dur = {stats.ms:.1f} ms"
    )
