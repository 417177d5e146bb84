"""Which requests are rendered and tokenized on the loop's thread: short ones of a kind that was quick before.

The hop to a worker and back takes longer than they do, and while a worker computes the loop waits for the interpreter's
lock anyway, up to a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import thread_time
from typing import Final, TypeVar

from uad.base.common.samplers import SETTINGS
from uad.http.requests.fields import REQUEST_ROWS, ChatBody, CompletionBody, GenerationBody, MessageBody, NativeBody

T = TypeVar("T")
MAX_BYTES: Final = 1024
"""Bytes of the body. To tokenize random letters of this length takes up to 0.8 ms, plain words 0.1."""
MAX_MESSAGES: Final = 4
"""Most messages of a quick chat: a template's work on messages that it refuses is repeated for several of them."""
ROLES: Final = frozenset({"system", "developer", "user"})
"""Templates look for thoughts in the assistant's words: a template took 4 ms for 2 KiB of tags."""
QUICK_S: Final = 0.0005
"""Seconds of computing: half of what a thread may keep the interpreter's lock (`lifecycle.SWITCH_SECONDS`)."""
_MAX_KINDS: Final = 256
_LIGHT: Final = frozenset(
    {
        *(name for name in SETTINGS if not name.startswith("dry_")),
        *(row.name or name for name, row in REQUEST_ROWS.items()),
        *("messages", "prompt", "max_tokens", "seed", "ignore_eos", "stream_options"),
    }
)
"""Fields that are copied, and the text itself: nothing that is compiled, or put to a template as a variable."""
_LIGHT_OF_MESSAGE: Final = frozenset({"role", "content"})


def kind_of(body: GenerationBody, size: int) -> Hashable | None:
    """A key shared by bodies that take equally long: type, fields, roles, lengths of texts, and the power of two below
    their bytes; None for a body that belongs to a worker.
    """
    if size > MAX_BYTES or not body.model_fields_set <= _LIGHT:
        return None
    shape: Hashable
    if isinstance(body, ChatBody):
        messages = body.messages
        if len(messages) > MAX_MESSAGES or not all(map(_is_light, messages)):
            return None
        shape = tuple([(message.role, len(message.content or ())) for message in messages])
    elif type(body) in (CompletionBody, NativeBody) and isinstance(body.prompt, str):  # type: ignore[attr-defined]
        shape = None
    else:
        return None
    return type(body), shape, frozenset(body.model_fields_set), size.bit_length()


def _is_light(message: MessageBody) -> bool:
    return message.role in ROLES and message.model_fields_set <= _LIGHT_OF_MESSAGE


class Quick:
    """Kinds of requests whose last one took no longer than `QUICK_S`. From any thread."""

    def __init__(self, clock: Callable[[], float] = thread_time) -> None:
        self._clock = clock
        self._kinds: dict[Hashable, None] = {}

    def __contains__(self, kind: Hashable) -> bool:
        return kind in self._kinds

    def timed(self, kind: Hashable, work: Callable[[], T]) -> T:
        """The result of `work`, of a request of this kind."""
        began = self._clock()
        try:
            return work()
        finally:
            if self._clock() - began > QUICK_S:
                self._kinds.pop(kind, None)
            elif len(self._kinds) < _MAX_KINDS:
                self._kinds[kind] = None
