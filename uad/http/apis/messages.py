"""Messages of a chat, put together from the pieces in which other APIs send a conversation. Knows none of them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from uad.base.common.json_out import Json

_SEAL = "uad1:"
_LONGEST_HEAD_CHARS = 64
"""Characters in which a data URL begins, with white space before it."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture between texts."""

    url: str
    """The picture as a chat has it: an address that holds it (`data:`) or says where it is."""
    where: str
    """The picture's place in the request."""

    @classmethod
    def of_base64(cls, data: str, where: str) -> Picture:
        """The picture of a file in base64; a data URL is taken as it is."""
        is_url = data[:_LONGEST_HEAD_CHARS].lstrip().lower().startswith("data:")
        return cls(data if is_url else f"data:image/any;base64,{data}", where)

    @property
    def part(self) -> Json:
        """The part of a message that it is."""
        return {"type": "image_url", "image_url": {"url": self.url}}


Piece = str | Picture
"""A part of a message: text or a picture."""


class Dialogue:
    """A conversation as chat completions have it: what the assistant thinks, says and calls in a row is one message."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.places: list[str] = []
        """Where the pictures of the messages stand in the request, in the order of the messages."""

    def say(self, role: str, pieces: Sequence[Piece]) -> None:
        """A message of its own, but for the assistant, whose message goes on."""
        parts = self._parts(pieces)
        if role != "assistant":
            self.messages.append({"role": role, "content": parts})
            return
        message = self._assistant()
        known = message.get("content")
        message["content"] = [*known, *parts] if isinstance(known, list) else parts

    def go_on(self, role: str, pieces: Sequence[Piece]) -> None:
        """Say this in the last message, where that is of the same role; else as `say` does."""
        last = self.messages[-1] if self.messages else {}
        known = last.get("content")
        if last.get("role") == role and isinstance(known, list):
            last["content"] = [*known, *self._parts(pieces)]
        else:
            self.say(role, pieces)

    def think(self, text: str) -> None:
        """Add a thought of the assistant's."""
        message = self._assistant()
        known = message.get("reasoning_content")
        message["reasoning_content"] = f"{known}\n\n{text}" if known else text

    def call(self, id_: str, name: str, arguments: object) -> None:
        """A call of the assistant's. arguments: JSON text, or an object."""
        message = self._assistant()
        known = message.get("tool_calls")
        call = {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        message["tool_calls"] = [*known, call] if isinstance(known, list) else [call]

    def result(self, id_: str, pieces: Sequence[Piece], name: str | None = None) -> None:
        """Add the result of a call. name: of the tool, where the request says it."""
        texts = [piece for piece in pieces if isinstance(piece, str)]
        content = "\n".join(texts) if len(texts) == len(pieces) else self._parts(pieces)
        named: Json = {} if name is None else {"name": name}
        self.messages.append({"role": "tool", "tool_call_id": id_, "content": content, **named})

    def _parts(self, pieces: Sequence[Piece]) -> list[Json]:
        self.places += [piece.where for piece in pieces if isinstance(piece, Picture)]
        return [{"type": "text", "text": piece} if isinstance(piece, str) else piece.part for piece in pieces]

    def _assistant(self) -> Json:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant"})
        return self.messages[-1]


class CallIds:
    """Names of the calls of a conversation. Clients need not send any: a result says at most which tool it is of."""

    def __init__(self) -> None:
        self._n = 0
        self._waiting: dict[str, str] = {}  # calls without a result so far, each with its tool

    def of_call(self, id_: str | None, tool: str) -> str:
        """The call's own id, else a new one of nine letters and digits, which is what some templates take."""
        self._n += 1
        id_ = id_ or f"call{self._n:05}"
        self._waiting[id_] = tool
        return id_

    def of_result(self, id_: str | None, tool: str | None) -> str | None:
        """The result's own id, else that of the first call that waits, of those of its tool if there are any."""
        waiting = [name for name, called in self._waiting.items() if called == tool] or [*self._waiting]
        id_ = id_ or (waiting[0] if waiting else None)
        if id_ is not None:
            self._waiting.pop(id_, None)
        return id_


def seal(text: str) -> str:
    """Thoughts for a field that clients send back unread, where they send nothing else of them. It hides nothing."""
    return _SEAL + base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")


def unsealed(text: str | None) -> str:
    """The thoughts that `seal` put away; empty for what another server made, which only that server can read."""
    if text is None or not text.startswith(_SEAL):
        return ""
    try:
        return base64.b64decode(text.removeprefix(_SEAL), validate=True).decode("utf-8")
    except ValueError:
        return ""
