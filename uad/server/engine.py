"""What the HTTP side needs of a runtime. `uad.runtime.Runtime` satisfies it; tests bring a scripted one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from uad.calls.format import AnswerFormat
from uad.config import Config
from uad.errors import UadError
from uad.types import DrafterStats, Request, RuntimeInfo, Sink, SlotInfo, Totals

Message = Mapping[str, object]


class Engine(Protocol):
    """Generation behind one door. Every method may be called from any thread; `submit` and `cancel` return at once."""

    @property
    def config(self) -> Config: ...

    @property
    def info(self) -> RuntimeInfo: ...

    @property
    def error(self) -> UadError | None: ...

    @property
    def answers(self) -> AnswerFormat: ...

    def when_stopped(self, tell: Callable[[], object]) -> None:
        """Call `tell`, on any thread, when a fatal error has stopped the engine and all requests have been told."""

    def submit(self, request: Request, sink: Sink) -> int: ...

    def cancel(self, request: int) -> None: ...

    def check_length(self, text: str) -> None: ...

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = True) -> list[int]: ...

    def detokenize(self, ids: Sequence[int]) -> bytes: ...

    def piece(self, id_: int) -> bytes: ...

    def chat_prompt(
        self, messages: Sequence[Message], template_kwargs: Mapping[str, object], add_generation_prompt: bool = True, prefill: str = ""
    ) -> list[int]: ...

    def render_chat(
        self, messages: Sequence[Message], template_kwargs: Mapping[str, object], add_generation_prompt: bool = True, prefill: str = ""
    ) -> str: ...

    def slots(self) -> tuple[SlotInfo, ...]: ...

    def totals(self) -> Totals: ...

    def drafters(self) -> tuple[DrafterStats, ...]: ...
