"""Constraints compiled for one vocabulary, and remembered: a grammar that many requests share is compiled once,
on a thread of its own, with limits.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import NamedTuple, TypeVar

import llguidance

from uad.base.common.threads import start_deep
from uad.base.errors import InvalidRequestError, NotSupportedError, UnavailableError
from uad.base.types import Constraint, ConstraintKind, Request
from uad.text.grammar.matcher import GrammarMatcher, Trigger, can_begin, mask_of
from uad.text.grammar.protocol import Matcher
from uad.text.grammar.source import culprit, parsed, schema_source, source
from uad.text.grammar.thinking import ThinkingMatcher
from uad.text.grammar.vocabulary import GrammarVocabulary

T = TypeVar("T")
_log = logging.getLogger("uad.request")
_MOST = 256  # grammars: as many requests may wait, unless more are asked for
MAX_FORCED_BYTES = 1 << 16  # bytes in one piece: that they are forced is found out in one go, at 1 to 7 µs each
_TRIAL_IDS = 32  # ids of any answer, which show whether masks stay within their limits
_PANIC = "panic: "
_FAULT = "llguidance fails on it, by a fault of its own; say the same in another way"
LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=1_000_000,  # of compiling: some 20 ms
    step_lexer_fuel=200_000,  # of a mask: some 15 ms
    step_max_items=50_000,  # of a mask: some 3 ms
    max_lexer_states=100_000,  # over all requests with this grammar, up to 2 kB each
    max_grammar_size=100_000,
    verbose_errors=False,
)
MOST_CPU_S = 0.8
"""Processor time of compiling. A grammar within the limits of size takes a third of this."""
LONGEST_S = 5.0
_LOOK_S = 0.1
_STACK_BYTES = 256 << 20  # bytes
_MOST_AT_ONCE = 8
_running = threading.BoundedSemaphore(_MOST_AT_ONCE)


class Compiled(NamedTuple):
    """A constraint's grammar at its beginning, and the ids that run across a trigger into what the grammar forbids."""

    native: llguidance.LLMatcher
    barred: tuple[int, ...]


class Grammars:
    """May be used from several threads; matchers from one at a time. notes: the line for the start, if there is
    something to say.
    """

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        self.notes: tuple[str, ...] = (
            (f"answers cannot be constrained: {vocabulary.reason}",) if vocabulary.reason else ()
        )
        self._known: OrderedDict[Constraint, Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, constraint: Constraint) -> None:
        """Compile it, unless that was done of late. Takes milliseconds, some tenths of a second for large ones.

        Raises InvalidRequestError, with the place where there is one.
        """
        self._compiled(constraint)

    def matcher_of(self, request: Request) -> Matcher | None:
        """The matcher of a request's answer, at its beginning; None: the answer may be anything."""
        matcher = self.start(request.constraint) if request.constraint is not None else None
        thoughts = request.thoughts
        if thoughts is None or thoughts.budget is None:
            return matcher
        return ThinkingMatcher(thoughts, self._vocabulary.table, matcher)

    def start(self, constraint: Constraint) -> GrammarMatcher:
        """A matcher at the beginning of an answer."""
        compiled = self._compiled(constraint)
        trigger = Trigger(constraint, self._vocabulary.table) if constraint.triggers else None
        failed = partial(self._forget, constraint)
        return GrammarMatcher(compiled.native.deep_copy(), self._vocabulary, failed, trigger, compiled.barred)

    def _forget(self, constraint: Constraint) -> None:
        """An answer exceeded a limit. All copies share what was counted, so the next one needs a fresh grammar."""
        with self._lock:
            self._known.pop(constraint, None)

    def _compiled(self, constraint: Constraint) -> Compiled:
        with self._lock:
            compiled = self._known.get(constraint)
            if compiled is not None:
                self._known.move_to_end(constraint)
                return compiled
        compiled = self._compile(constraint)
        with self._lock:
            self._known[constraint] = compiled
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return compiled

    def _compile(self, constraint: Constraint) -> Compiled:
        if self._vocabulary.reason:
            raise NotSupportedError(f"answers of this model cannot be constrained: {self._vocabulary.reason}")
        if not all(constraint.triggers):
            raise InvalidRequestError("a trigger must not be empty")
        began = perf_counter()
        compiled = limited(lambda: self._compile_here(constraint))
        _log.debug("a grammar (%s) took %.0f ms to compile", constraint.kind, 1e3 * (perf_counter() - began))
        return compiled

    def _compile_here(self, constraint: Constraint) -> Compiled:
        native = self._made(source(constraint))
        if any("oneOf" in note for note in native.get_grammar_warnings()):
            _say_any_of()
        trial = native.deep_copy()
        for _ in range(_TRIAL_IDS):
            n_vocab = self._vocabulary.table.n_vocab
            ids = mask_of(trial.compute_bitmask(), n_vocab).allowed(n_vocab)
            if trial.is_error() or trial.is_stopped() or not len(ids):
                break
            if len(trial.compute_ff_bytes()) > MAX_FORCED_BYTES:
                raise InvalidRequestError(
                    f"it forces more than {MAX_FORCED_BYTES} bytes in one piece; send a shorter text"
                )
            trial.consume_token(int(ids[len(ids) // 2]))
        if trial.is_error():
            raise InvalidRequestError(self._complaint(constraint, trial.get_error()))
        return Compiled(native, self._barred(constraint, native))

    def _barred(self, constraint: Constraint, native: llguidance.LLMatcher) -> tuple[int, ...]:
        if not constraint.triggers:
            return ()
        holding = Trigger(constraint, self._vocabulary.table).holding()
        return tuple(id_ for id_, begun in holding if not can_begin(native, begun, self._vocabulary))

    def _made(self, grammar: str) -> llguidance.LLMatcher:
        return llguidance.LLMatcher(self._vocabulary.native, grammar, limits=LIMITS, log_level=0)

    def _complaint(self, constraint: Constraint, error: str) -> str:
        """llguidance's words, and which part of a schema they are about."""
        words = _FAULT if error.startswith(_PANIC) else error.removesuffix("\n<non-verbose/>").strip()[:500]
        if constraint.kind is not ConstraintKind.JSON_SCHEMA:
            start = "failed to parse grammar: " if constraint.kind is ConstraintKind.GRAMMAR else ""
            return start + words
        place = culprit(parsed(constraint.text), lambda part: self._made(schema_source(part)).is_error())
        return f"the schema cannot be compiled: {words} (at {place})"


@cache
def _say_any_of() -> None:
    _log.warning("oneOf in a schema is read as anyOf where its parts may overlap; an answer may fit several of them")


# --- work that may take too long, or call too deeply for usual threads


def limited(work: Callable[[], T]) -> T:
    """Run `work`; returns or raises what it does.

    Raises InvalidRequestError where it computes for longer than MOST_CPU_S, or takes longer than LONGEST_S on a busy
    machine; then it is left to end by itself. Raises UnavailableError where too much is left so.
    """
    if not _running.acquire(blocking=False):
        raise UnavailableError(f"{_MOST_AT_ONCE} grammars are being compiled; try again later")

    def released() -> T:
        try:
            return work()
        finally:
            _running.release()

    try:
        thread, done = start_deep(released, "uad-grammar", _STACK_BYTES)
    except BaseException:
        _running.release()
        raise
    began = monotonic()
    while True:
        try:
            return done.result(_LOOK_S)
        except TimeoutError:
            is_late = monotonic() - began > LONGEST_S or _cpu_seconds(thread, began) > MOST_CPU_S
            if is_late and not done.done():
                raise InvalidRequestError("it takes too long to compile; send something simpler") from None


def _cpu_seconds(thread: threading.Thread, began: float) -> float:
    """Seconds that a thread has computed so far; where the system does not say, or it has ended, the seconds since it
    began.
    """
    try:
        return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return monotonic() - began
