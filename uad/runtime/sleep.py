"""Unloads the models while nothing needs them, and loads them again. What was learned and measured stays, and so does
all that is known of the vocabularies: only weights and contexts go.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from uad.base.errors import ModelLoadError, UadError, UnavailableError
from uad.base.events import SleepState
from uad.base.types import Clock
from uad.engine.decode.engine import Engine
from uad.engine.decode.guard import reason
from uad.llama.backend import abort, native
from uad.llama.context import Context
from uad.runtime.costs.profile_store import fingerprint

_log = logging.getLogger("uad")


class Sleeper:
    """The models of an engine. contexts: all that are open, in the order in which they were made.

    On the model thread, but for `state`, `plan` and `call_off`. Raises ModelLoadError where a file cannot be read.
    """

    def __init__(self, engine: Engine, contexts: Sequence[Context], clock: Clock) -> None:
        self._engine, self._contexts, self._clock = engine, contexts, clock
        self._models = tuple(dict.fromkeys(one.model for one in contexts))
        self._projectors = tuple(one.projector for one in contexts if one.projector is not None)
        files = [path for model in self._models for path in model.files]
        self._prints = {path: fingerprint(path) for path in [*files, *(one.path for one in self._projectors)]}
        self._since = 0.0
        self._lock = threading.Lock()
        self.is_unloaded = False
        """Whether the models are unloaded, or being so; from then on only `load` changes that."""
        self.state = SleepState()

    def plan(self) -> bool:
        """The models shall be unloaded, and others behave as if they were. Returns whether that is new."""
        with self._lock:
            is_new = not self.state.is_asleep
            self.state = replace(self.state, is_asleep=True)
            return is_new

    def call_off(self) -> None:
        """They shall stay, unless it is too late."""
        with self._lock:
            self.state = replace(self.state, is_asleep=self.is_unloaded)

    def unload(self) -> None:
        """While nothing runs or waits: free the models and contexts, and what slots and the prompt cache hold, unless
        that was called off.
        """
        with self._lock:
            if self.is_unloaded or not self.state.is_asleep:
                return
            self.is_unloaded = True
        self._engine.leave()
        self._close()
        self._since = self._clock()
        _log.info("asleep: the models are unloaded until the next request")

    def load(self, go_on: Callable[[], bool]) -> None:
        """Have all as it was before. go_on: False ends loading. Raises UnavailableError, with nothing loaded; another
        try may succeed.
        """
        if not self.is_unloaded:
            return
        began = self._clock()
        try:
            with abort.again():
                self._open(go_on)
        except Exception as error:
            self._close()
            if not go_on():
                raise UnavailableError("the server is shutting down") from None
            with self._lock:
                self.state = replace(self.state, n_failed=self.state.n_failed + 1)
            said = f"the models cannot be loaded again after sleep: {reason(error)}"
            _log.error("%s", said, exc_info=not isinstance(error, UadError))
            raise UnavailableError(said) from None
        now, state = self._clock(), self.state
        asleep_s, loading_s = state.asleep_s + began - self._since, state.loading_s + now - began
        with self._lock:
            self.is_unloaded = False
            self.state = SleepState(False, state.n_wakes + 1, state.n_failed, asleep_s, loading_s)
        _log.info("awake: the models were loaded again in %.1f s", now - began)

    def _open(self, go_on: Callable[[], bool]) -> None:
        for path, known in self._prints.items():
            _check(path, known)
        for model in self._models:
            model.reopen(go_on)
        for projector in self._projectors:
            projector.reopen()
        for context in self._contexts:
            context.reopen()

    def _close(self) -> None:
        for context in reversed(self._contexts):
            context.close()
        for projector in self._projectors:
            projector.close()
        for model in reversed(self._models):
            model.close()
        gc.collect()
        native.trim()


def _check(path: Path, known: str) -> None:
    if fingerprint(path) != known:
        raise ModelLoadError(f"{path} is another file than the one that was unloaded; restart the server")
