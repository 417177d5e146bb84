"""Messages of a chat, put together from the pieces in which other APIs send a conversation. Knows none of them."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from uad.base.common.json_out import Json

_SEAL = "uad1:"


class Dialogue:
    """A conversation as chat completions have it: what the assistant thinks, says and calls in a row is one message."""

    def __init__(self) -> None:
        self.messages: list[Json] = []

    def say(self, role: str, texts: Sequence[str]) -> None:
        """A message of its own, but for the assistant, whose message goes on."""
        parts = [{"type": "text", "text": text} for text in texts]
        if role != "assistant":
            self.messages.append({"role": role, "content": parts})
            return
        message = self._assistant()
        known = message.get("content")
        message["content"] = [*known, *parts] if isinstance(known, list) else parts

    def go_on(self, role: str, texts: Sequence[str]) -> None:
        """As `say`, but in the last message where that is of the same role."""
        last = self.messages[-1] if self.messages else {}
        known = last.get("content")
        if last.get("role") == role and isinstance(known, list):
            last["content"] = [*known, *({"type": "text", "text": text} for text in texts)]
        else:
            self.say(role, texts)

    def think(self, text: str) -> None:
        """What the assistant thought."""
        message = self._assistant()
        known = message.get("reasoning_content")
        message["reasoning_content"] = f"{known}\n\n{text}" if known else text

    def call(self, id_: str, name: str, arguments: object) -> None:
        """A call of the assistant's. arguments: JSON text, or an object."""
        message = self._assistant()
        known = message.get("tool_calls")
        call = {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        message["tool_calls"] = [*known, call] if isinstance(known, list) else [call]

    def result(self, id_: str, texts: Sequence[str]) -> None:
        """What a call gave."""
        self.messages.append({"role": "tool", "tool_call_id": id_, "content": "\n".join(texts)})

    def _assistant(self) -> Json:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant"})
        return self.messages[-1]


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
