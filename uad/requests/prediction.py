"""`prediction` of a request, OpenAI's Predicted Outputs: what the answer is expected to be."""

from __future__ import annotations

from typing import Final

from uad.errors import InvalidRequestError

MAX_BYTES: Final = 1 << 22
"""Of all its text: about a million tokens."""
MAX_PARTS: Final = 4096


def prediction_of(value: object) -> bytes:
    """The text of `{"type": "content", "content": ...}`, a string or text parts, as UTF-8; empty where there is none.

    For every route that generates. Raises InvalidRequestError.
    """
    if value is None:
        return b""
    if not isinstance(value, dict):
        raise _invalid('must be an object: {"type": "content", "content": "the expected answer"}')
    if value.get("type") != "content":
        raise _invalid('its type must be "content", the only one there is')
    data = b"".join(text.encode() for text in _texts(value.get("content")))
    if len(data) > MAX_BYTES:
        raise _invalid(f"its content has {len(data)} bytes, of {MAX_BYTES} at most; send the part that is answered")
    return data


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise _invalid("its content must be a string, or a list of text parts")
    if len(content) > MAX_PARTS:
        raise _invalid(f"its content has {len(content)} parts, of {MAX_PARTS} at most")
    return [_text(part) for part in content]


def _text(part: object) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(text := part.get("text"), str):
        return text
    raise _invalid('its content may hold only parts of type "text"')


def _invalid(message: str) -> InvalidRequestError:
    return InvalidRequestError(f"prediction: {message}", "prediction")
