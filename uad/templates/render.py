"""Chat templates rendered in a sandbox, with the seams between template text (trusted) and message content (untrusted).

Must not know vocabularies. Templates come from model files and are treated as hostile: bounded in size, steps and time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from uad.errors import InvalidRequestError
from uad.templates.sandbox import Budget, compile_template
from uad.templates.seams import Masked, Part, find_parts, mask, search_parts
from uad.templates.switches import settle

__all__ = ["Part", "Rendered", "render", "settle_kwargs"]

_RESERVED = frozenset({"messages", "bos_token", "eos_token", "add_generation_prompt", "raise_exception", "strftime_now"})
_ROLE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt in pieces. `exact` is false where the template transforms its input so that the seams had to be searched for."""

    parts: tuple[Part, ...]
    exact: bool = True

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


def render(
    template: str,
    messages: Sequence[Mapping[str, object]],
    *,
    bos: str = "",
    eos: str = "",
    add_generation_prompt: bool = True,
    kwargs: Mapping[str, object] | None = None,
) -> Rendered:
    """The prompt of a conversation. `kwargs` are further template variables (tools, enable_thinking ...).

    Raises InvalidRequestError for what the template refuses, for malformed messages and for names of variables that are taken.
    """
    values = settle_kwargs(template, kwargs or {})
    checked = [_check_message(message, at) for at, message in enumerate(messages)]
    variables: dict[str, object] = {
        "bos_token": bos,
        "eos_token": eos,
        "add_generation_prompt": add_generation_prompt,
        "uad_now": datetime.now(),
    }
    budget = Budget()
    text = _run(template, {**variables, **values, "messages": checked}, budget)
    asked = {**values, "messages": checked}
    masked = mask(asked)
    parts = _find(template, text, variables, masked, budget)
    if parts is None:
        parts = _find(template, text, variables, mask(asked, split_thoughts=True), budget)
    if parts is not None:
        return Rendered(parts)
    return Rendered(search_parts(text, masked), exact=False)


def _find(template: str, text: str, variables: Mapping[str, object], masked: Masked, budget: Budget) -> tuple[Part, ...] | None:
    try:
        skeleton = _run(template, {**variables, **masked.values}, budget)
    except InvalidRequestError:
        return None
    return find_parts(text, skeleton, masked)


def _run(template: str, variables: Mapping[str, object], budget: Budget) -> str:
    compiled = compile_template(template)
    try:
        return compiled.render({"tools": None, **variables}, budget)
    except InvalidRequestError:
        # Most templates expect None where there are no tools; some (for tool use only) go over them without asking.
        if "tools" in variables:
            raise
        return compiled.render({"tools": [], **variables}, budget)


def settle_kwargs(template: str, kwargs: Mapping[str, object]) -> dict[str, object]:
    """Variables for a template, switches of it as true or false. Raises InvalidRequestError that names one that is taken or no switch."""
    for name in kwargs:
        if name in _RESERVED or name.startswith(("_", "uad_")) or not name.isidentifier():
            raise InvalidRequestError(f"the template variable '{name}' cannot be set", "chat_template_kwargs")
    _check_json(kwargs, "chat_template_kwargs")
    return settle(kwargs, compile_template(template).switches)


def _check_message(message: Mapping[str, object], at: int) -> dict[str, object]:
    where = f"messages[{at}]"
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"{where} is not an object with 'role' and 'content'", where)
    role = message.get("role")
    if not isinstance(role, str) or not 0 < len(role) <= 64 or not _ROLE_CHARACTERS.issuperset(role):
        raise InvalidRequestError(f"{where}.role must be a word such as user or assistant, not {role!r}", f"{where}.role")
    _check_json(message, where)
    return {**message, "content": _content(message.get("content"), f"{where}.content")}


def _content(content: object, where: str) -> str | None:
    """A content given as a list of text parts becomes one text."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidRequestError(f"{where} must be text or a list of text parts", where)
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else None
        if not isinstance(text, str):
            raise InvalidRequestError(f"{where}: only parts of the type 'text' can be used here", where)
        texts.append(text)
    return "\n".join(texts)


def _check_json(value: object, where: str) -> None:
    try:
        json.dumps(value, default=_refuse)
    except (TypeError, ValueError, RecursionError):
        raise InvalidRequestError(f"{where} holds something that JSON cannot express", where) from None


def _refuse(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError
