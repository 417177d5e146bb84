"""Unloads the models while nothing needs them, and loads them again. All that was learned and measured stays, and so
does all that is known of the vocabularies: only weights and contexts go.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from uad.base.errors import ModelLoadError, UadError, UnavailableError
from uad.base.events import SleepState
from uad.base.model_files import fingerprint
from uad.base.types import Clock, Origin
from uad.engine.decode.guard import reason, warn
from uad.llama.backend import abort, native
from uad.llama.model import Model
from uad.llama.projector import Projector
from uad.runtime.commands import Commands
from uad.runtime.slots.actions import SlotActions
from uad.text.prompts import Prompts

_log = logging.getLogger("uad")


class Resting(Protocol):
    """The engine that runs on the models."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""

    def leave(self) -> None:
        """Keep nothing of what contexts hold."""

    def hold(self, origin: Origin, is_held: bool) -> None:
        """Whether a drafter is not asked."""


class OpenContext(Protocol):
    """A context that can be closed and opened again."""

    @property
    def model(self) -> Model:
        """The model that it is of."""

    @property
    def projector(self) -> Projector | None:
        """The projector that makes rows of images for it."""

    def reopen(self) -> None:
        """Make it again. Raises ModelLoadError."""

    def close(self) -> None:
        """Free it."""


class Sleeper:
    """The models of these contexts, on which `engine` runs. slots: actions on slots, which need them, too. chosen:
    contexts of drafts that nobody named; text: with a projector that nobody named. Raises ModelLoadError where a file
    cannot be read.
    """

    def __init__(
        self,
        engine: Resting,
        contexts: Sequence[OpenContext],
        clock: Clock,
        slots: SlotActions | None,
        commands: Commands,
        chosen: Mapping[Origin, OpenContext] = MappingProxyType({}),
        text: Prompts | None = None,
    ) -> None:
        self._engine, self._contexts, self._clock = engine, contexts, clock
        self._slots, self._commands = slots, commands
        self._models = tuple(dict.fromkeys(context.model for context in self._contexts))
        self._projectors = tuple(context.projector for context in self._contexts if context.projector is not None)
        self._chosen, self._text = chosen, text
        self._sight = None if text is None else text.sight
        files = [path for model in self._models for path in model.files]
        self._prints = {
            path: fingerprint(path) for path in [*files, *(projector.path for projector in self._projectors)]
        }
        self._since = 0.0
        self._lock = threading.Lock()
        self.is_unloaded = False
        """Whether the models are unloaded, or being so; from then on only `load` changes that."""
        self.lacks_draft = False
        """Whether a draft was chosen, and could not be loaded again."""
        self.state = SleepState()

    # --- from any thread

    def fall_asleep(self) -> None:
        """Unload the models, unless a request comes before that; `state` says so at once. The next request loads them
        again.
        """
        commands = self._commands
        with commands.lock, self._lock:
            if not commands.is_closed and commands.error is None and not self.state.is_asleep:
                self.state = replace(self.state, is_asleep=True)
                commands.put(self._unload)

    def call_off(self) -> None:
        """They shall stay, unless it is too late."""
        with self._lock:
            self.state = replace(self.state, is_asleep=self.is_unloaded)

    def wake(self) -> Future[None]:
        """Have the models loaded; the future is done then, or has UnavailableError, after which another call tries
        again. Of calls that are all cancelled before nothing is loaded.
        """
        woken: Future[None] = Future()

        def load() -> None:
            if woken.set_running_or_notify_cancel():
                try:
                    self.load()
                except UadError as error:
                    woken.set_exception(error)
                else:
                    woken.set_result(None)

        self.call_off()
        if not self._commands.post(load):
            woken.set_exception(UnavailableError("the server is shutting down"))
        return woken

    # --- on the model thread

    def _unload(self) -> None:
        """While nothing runs or waits: free the models and contexts, and what slots and the prompt cache hold, unless
        that was called off.
        """
        is_busy = not self._engine.is_idle or (self._slots is not None and self._slots.is_busy)
        if is_busy or self._commands.error is not None:
            self.call_off()
            return
        with self._lock:
            if self.is_unloaded or not self.state.is_asleep:
                return
            self.is_unloaded = True
        self._engine.leave()
        self._close()
        self._since = self._clock()
        _log.info("asleep: the models are unloaded until the next request")

    def load(self) -> None:
        """Have all as it was before, unless it is. Raises UnavailableError, with nothing loaded, after which another
        try may succeed; or the fatal error that stopped the model thread.
        """
        if self._commands.error is not None:
            raise self._commands.error
        if not self.is_unloaded:
            return
        began = self._clock()
        try:
            with abort.again():
                self._open()
        except Exception as error:
            self._close()
            if self._commands.is_closed:
                raise UnavailableError("the server is shutting down") from None
            with self._lock:
                self.state = replace(self.state, n_failed=self.state.n_failed + 1)
            text = f"the models cannot be loaded again after sleep: {reason(error)}"
            _log.error("%s", text, exc_info=not isinstance(error, UadError))
            raise UnavailableError(text) from None
        now, state = self._clock(), self.state
        asleep_s, loading_s = state.asleep_s + began - self._since, state.loading_s + now - began
        with self._lock:
            self.is_unloaded = False
            self.state = SleepState(False, state.n_wakes + 1, state.n_failed, asleep_s, loading_s)
        _log.info("awake: the models were loaded again in %.1f s", now - began)

    def _open(self) -> None:
        self._reopen([context for context in self._contexts if context not in self._chosen.values()])
        if self._text is None or self._sight is None:
            self._see()
        else:
            self._text.sight = self._sight if self._helped(self._see, "the projector was found") else None
        self.lacks_draft = False
        for origin, chosen in self._chosen.items():
            is_there = self._helped(partial(self._reopen, [chosen]), f"the draft {chosen.model.path.name} was chosen")
            if not is_there:
                self.lacks_draft = True
                chosen.close()
                chosen.model.close()
            self._engine.hold(origin, not is_there)

    def _reopen(self, contexts: Sequence[OpenContext]) -> None:
        """These contexts with their models. Raises ModelLoadError, and what decoding does."""
        models = dict.fromkeys(context.model for context in contexts)
        self._check_files([path for model in models for path in model.files])
        for model in models:
            model.reopen(lambda: not self._commands.is_closed)
        for context in contexts:
            context.reopen()

    def _see(self) -> None:
        self._check_files([projector.path for projector in self._projectors])
        for projector in self._projectors:
            projector.reopen()

    def _check_files(self, files: Sequence[Path]) -> None:
        for path in files:
            if fingerprint(path) != self._prints[path]:
                raise ModelLoadError(f"{path} is another file than the one that was unloaded; restart the server")

    def _helped(self, work: Callable[[], None], what: str) -> bool:
        """Whether an optional help is there again; where it is not, a line says so. Raises while the server closes."""
        try:
            work()
        except Exception as error:
            if self._commands.is_closed:
                raise
            warn(_log, error, "%s, and cannot be loaded again (%s): answers go on without it", what, reason(error))
            return False
        return True

    def _close(self) -> None:
        for context in reversed(self._contexts):
            context.close()
        for projector in self._projectors:
            projector.close()
        for model in reversed(self._models):
            model.close()
        gc.collect()
        native.trim()
