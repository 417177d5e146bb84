"""The door between two worlds: any thread submits requests, one thread runs the model, events come back through sinks."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType

from uad.config import Config
from uad.decode.step import Engine
from uad.errors import InvalidRequestError, UadError, UnavailableError
from uad.policy.machine import RoundCosts
from uad.policy.standing import Habit
from uad.runtime.counted import Costs
from uad.runtime.parts import Parts, build
from uad.runtime.target import Progress
from uad.types import Clock, DrafterStats, Origin, Request, RuntimeInfo, Sink, SlotInfo, Totals

_log = logging.getLogger("uad")
_Command = Callable[[], None]


class Runtime:
    """A loaded target, perhaps with a draft, and the thread that runs them. Use with `with`, or call `close()`."""

    def __init__(self, config: Config, progress: Progress, costs: Costs | None = None) -> None:
        self.config = config
        self._commands: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._error: UadError | None = None
        self._closing = False
        self._door = threading.Lock()
        built: Future[Parts] = Future()
        self._thread = threading.Thread(target=self._main, args=(built, progress, costs), name="uad-model", daemon=True)
        self._thread.start()
        self._parts = parts = built.result()
        self.info: RuntimeInfo = parts.info
        self._engine = parts.engine
        self._prompts = parts.prompts

    @classmethod
    def open(cls, config: Config, progress: Progress | None = None, costs: Costs | None = None) -> Runtime:
        """Load everything; progress(what, share) is told of long loads; costs: count time by these instead of measuring it.

        Raises ModelLoadError, MappingError or ConfigError.
        """
        return cls(config, progress or (lambda what, share: None), costs)

    def close(self) -> None:
        """Ends running requests with UnavailableError, stops the thread, frees the models. Safe to call twice."""
        with self._door:
            if self._closing:
                return
            self._closing = True
            self._commands.put(None)
        self._thread.join()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def clock(self) -> Clock:
        """What requests are timed with."""
        return self._parts.clock

    # --- requests

    @property
    def error(self) -> UadError | None:
        """The fatal error that stopped the model thread, if one did."""
        return self._error

    def submit(self, request: Request, sink: Sink) -> int:
        """Queue a request; sink gets its events on the model thread. Raises InvalidRequestError, ContextOverflowError, UnavailableError."""
        if self._error is not None:
            raise UnavailableError(f"the model stopped after an error and the server must be restarted: {self._error}")
        self._check_ids(request)
        self._engine.check(request)
        number = next(self._numbers)
        with self._door:  # what comes behind the end of the commands would never be answered
            if self._closing:
                raise UnavailableError("the server is shutting down")
            self._commands.put(lambda: self._engine.submit(number, request, sink))
        return number

    def cancel(self, request: int) -> None:
        """The request's slot is free within one round; no event follows."""
        self._commands.put(lambda: self._engine.cancel(request))

    def _check_ids(self, request: Request) -> None:
        n_vocab = self.info.target.n_vocab
        if not all(0 <= id_ < n_vocab for id_ in request.prompt):
            raise InvalidRequestError(f"the prompt has a token id outside the vocabulary (0 to {n_vocab - 1})", "prompt")
        if request.prescribed and not self._parts.model.vocab.eog:
            raise InvalidRequestError("an answer can be prescribed to a target only that has an id to end it with", "prescribed")
        if not all(0 <= id_ < n_vocab for id_, _ in request.sampling.logit_bias):
            raise InvalidRequestError(f"logit_bias names a token id outside the vocabulary (0 to {n_vocab - 1})", "logit_bias")

    def slots(self) -> tuple[SlotInfo, ...]:
        return self._engine.slots()

    def totals(self) -> Totals:
        return self._engine.totals()

    def drafters(self) -> tuple[DrafterStats, ...]:
        """What each drafter did since start."""
        return self._engine.drafters()

    def costs(self) -> RoundCosts | None:
        """What rounds cost, as it is known now; None where nothing drafts."""
        policy = self._parts.policy
        if policy is None:
            return None
        machine, habit = policy.machine, policy.habits.get(Origin.MODEL) or Habit()
        draft = machine.draft if self.info.draft is not None else None
        return RoundCosts(machine.target, draft, habit.usual_ms(paused=False), habit.ids_per_step, machine.target.speed)

    def calibration(self) -> list[tuple[str, float, float, float]]:
        """(kind of draft, acceptance predicted, observed, over how many ids), one for each bin of belief that has seen something."""
        kinds = list(self._parts.policy.calibrations.items()) if self._parts.policy is not None else []
        return [(kind, one.predicted, one.observed, one.n) for kind, calibration in kinds for one in calibration.reliability()]

    # --- text

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = True) -> list[int]:
        return self._prompts.tokenize(text, add_special, parse_special)

    def detokenize(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids, specials as their names. Raises InvalidRequestError for an id outside the vocabulary."""
        if not all(0 <= id_ < self.info.target.n_vocab for id_ in ids):
            raise InvalidRequestError(f"token ids must be between 0 and {self.info.target.n_vocab - 1}", "tokens")
        return b"".join(self.piece(id_) for id_ in ids)

    def piece(self, id_: int) -> bytes:
        return self._prompts.piece(id_)

    def is_eog(self, id_: int) -> bool:
        return id_ in self._parts.model.vocab.eog

    def chat_prompt(
        self,
        messages: Sequence[Mapping[str, object]],
        template_kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
    ) -> list[int]:
        return self._prompts.chat(messages, template_kwargs, add_generation_prompt, prefill)

    def render_chat(
        self, messages: Sequence[Mapping[str, object]], template_kwargs: Mapping[str, object], add_generation_prompt: bool = True
    ) -> str:
        return self._prompts.render(messages, template_kwargs, add_generation_prompt).text

    # --- the model thread

    def _main(self, built: Future[Parts], progress: Progress, costs: Costs | None) -> None:
        """Everything native happens on this thread, loading and warming up too. Each thread that computes gets its own team of OpenMP
        threads, and as soon as there are more of them than cores they sleep at barriers instead of spinning: decodes took 10 % longer."""
        try:
            parts = build(self.config, progress, costs)
        except BaseException as error:
            built.set_exception(error)
            return
        with parts.stack:
            built.set_result(parts)
            self._run(parts.engine)

    def _run(self, engine: Engine) -> None:
        try:
            while self._obey(engine):
                engine.step()
            for stats in engine.drafters():
                _log.info("%s", statistics(stats))
            engine.fail_all(UnavailableError("the server is shutting down"))
        except Exception as error:
            self._stop(engine, error)

    def _obey(self, engine: Engine) -> bool:
        """Carry out what other threads asked for; waits while there is nothing to do. False: stop."""
        wait = engine.is_idle
        while True:
            try:
                command = self._commands.get(block=wait)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
            wait = engine.is_idle

    def _stop(self, engine: Engine, error: Exception) -> None:
        """Remember the fatal error, tell it to everybody, and go on refusing until closed."""
        _log.error("the model thread stopped: %s", error, exc_info=not isinstance(error, UadError))
        self._error = error if isinstance(error, UadError) else UadError(f"internal error: {type(error).__name__}: {error}")
        with suppress(Exception):  # what broke may break again while it is cleared away, when all are told
            engine.fail_all(self._error)
        while (command := self._commands.get()) is not None:
            with suppress(Exception):
                command()
                engine.fail_all(self._error)


def statistics(stats: DrafterStats) -> str:
    """What a drafter did since start, in one line with llama-server's words."""
    return (
        f"statistics {stats.origin}: #calls = {stats.n_calls}, #drafts = {stats.n_drafts}, #gen tokens = {stats.n_drafted}, "
        f"#acc tokens = {stats.n_accepted}, dur = {stats.ms:.1f} ms"
    )
