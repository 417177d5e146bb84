"""What a request needs of a runtime: its vocabulary, its templates, and a place to wait for a slot.

`uad.runtime.Runtime` satisfies the protocol; tests bring a scripted one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from uad.calls.format import AnswerFormat
from uad.calls.parser import Start
from uad.calls.tools import Calls, Schema
from uad.config import Config
from uad.errors import UadError
from uad.events import AdapterInfo, EngineView, RuntimeInfo, Sink, SlotInfo, Totals
from uad.stats import DrafterStats
from uad.types import Constraint, Request, SamplingParams

Message = Mapping[str, object]


class Backend(Protocol):
    """Generation behind one door. Every method may be called from any thread; `submit` and `cancel` return at once."""

    @property
    def config(self) -> Config:
        """What the server was started with."""
        ...

    @property
    def info(self) -> RuntimeInfo:
        """The models, the context of a slot in ids, the drafters, and the lines printed at start."""
        ...

    @property
    def error(self) -> UadError | None:
        """The fatal error that stopped the engine; None while it runs."""
        ...

    @property
    def answers(self) -> AnswerFormat:
        """How the target writes thoughts and calls."""
        ...

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """The target's LoRA adapters, with how much of each is added for requests that do not say."""
        ...

    def set_adapters(self, scales: tuple[float, ...]) -> None:
        """How much of each adapter is added for later requests that do not say; one number for each."""

    def when_stopped(self, tell: Callable[[], object]) -> None:
        """Call `tell`, on any thread, when a fatal error has stopped the engine and all requests have been told."""

    def submit(self, request: Request, sink: Sink) -> int:
        """Queue a request, whose events sink gets on another thread; returns its number. Raises InvalidRequestError,
        ContextOverflowError or UnavailableError."""
        ...

    def cancel(self, request: int) -> None:
        """Free the slot of the request with this number within one round; no event follows."""

    def check_length(self, text: str) -> None:
        """Raises ContextOverflowError where a prompt with this text cannot fit into a slot. Cheaper than `tokenize`."""

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = True) -> list[int]:
        """The target's ids of a text. add_special: with BOS, where the model wants one. parse_special: names of
        specials become their ids."""
        ...

    def detokenize(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids, specials as their names. Raises InvalidRequestError for an id outside the vocabulary."""
        ...

    def piece(self, id_: int) -> bytes:
        """The bytes of one id, a special as its name."""
        ...

    def chat_prompt(
        self,
        messages: Sequence[Message],
        template_kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
    ) -> list[int]:
        """The target's ids of a conversation; prefill: how the answer begins. Raises InvalidRequestError or
        ContextOverflowError."""
        ...

    def render_chat(
        self,
        messages: Sequence[Message],
        template_kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
    ) -> str:
        """The text of the same prompt. Raises InvalidRequestError."""
        ...

    def check_constraint(self, constraint: Constraint) -> None:
        """Compile it: for worker threads. Raises InvalidRequestError."""

    def check_sampling(self, sampling: SamplingParams) -> None:
        """Find what its samplers need of the vocabulary: for worker threads."""

    def call_constraint(self, calls: Calls, start: Start, tail: str, answer: Schema | None = None) -> Constraint | None:
        """What an answer may be by what the request says about calls; tail: the end of the prompt. Raises
        NotSupportedError.
        """

    def behind_thoughts(self, bound: Constraint, start: Start, tail: str) -> Constraint:
        """The same constraint behind a thought, where one has begun or may come first; tail: the end of the prompt."""
        ...

    def slots(self) -> tuple[SlotInfo, ...]:
        """What each slot does and holds."""
        ...

    def totals(self) -> Totals:
        """Counts over all finished requests since start."""
        ...

    def drafters(self) -> tuple[DrafterStats, ...]:
        """What each drafter did since start."""
        ...

    def look(self, tell: Callable[[EngineView], None]) -> None:
        """Call `tell`, on another thread and soon, with what the loop does; never once the engine has stopped."""
