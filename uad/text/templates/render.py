"""Chat templates rendered in a sandbox, with the seams between template text (trusted) and message content (untrusted).

Must not know vocabularies. Templates come from model files and are treated as hostile: bounded in size, steps and time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from uad.base.errors import InvalidRequestError
from uad.text.templates.contents import forms, texts_of
from uad.text.templates.sandbox import Budget, RefusedError, compile_template, settle
from uad.text.templates.seams import (
    Found,
    Loss,
    Masked,
    Part,
    by_marks,
    by_search,
    find_parts,
    mask,
    put_back,
    search_parts,
)

__all__ = ["Part", "Rendered", "check_message", "render", "settle_kwargs"]

_RESERVED = frozenset(
    {"messages", "bos_token", "eos_token", "add_generation_prompt", "raise_exception", "strftime_now"}
)
_ROLE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt in pieces. `exact` is false where the template transforms its input so that the seams had to be searched
    for.

    `losses` are the messages whose text is not in it.
    """

    parts: tuple[Part, ...]
    exact: bool = True
    losses: tuple[Loss, ...] = ()

    @property
    def text(self) -> str:
        """All pieces as one text."""
        return "".join(part.text for part in self.parts)


def render(
    template: str,
    messages: Sequence[Mapping[str, object]],
    *,
    bos: str = "",
    eos: str = "",
    add_generation_prompt: bool = True,
    kwargs: Mapping[str, object] | None = None,
    budget: Budget | None = None,
) -> Rendered:
    """The prompt of a conversation, as the template writes it. `kwargs` are further template variables (tools,
    enable_thinking ...).

    Raises InvalidRequestError for malformed messages and variables that are taken, RefusedError for what the template
    refuses.
    """
    budget = budget or Budget()
    values = settle_kwargs(template, kwargs or {})
    checked = [_as_wanted(template, check_message(message, at), at) for at, message in enumerate(messages)]
    now = datetime.now()
    variables: dict[str, object] = {
        "bos_token": bos,
        "eos_token": eos,
        "add_generation_prompt": add_generation_prompt,
        "uad_now": now,
        "date_string": f"{now:%d %b %Y}",
    }
    asked = {**values, "messages": checked}
    try:
        text = _run(template, {**variables, **asked}, budget)
    except RefusedError:
        # It may be a text that is refused, such as a marker of the format: templates get none of the texts here.
        masked = mask(asked, split_thoughts=True)
        put = put_back(_run(template, {**variables, **masked.values}, budget.fresh()), masked)
        text = "".join(part.text for part in put.parts)
        return Rendered(put.parts, losses=by_marks(checked, masked, put.shown, text, budget))
    for masked in (mask(asked), mask(asked, split_thoughts=True)):
        rendered = _find(template, text, variables, masked, budget)
        if rendered is not None:
            return Rendered(rendered.parts, losses=by_marks(checked, masked, rendered.shown, text, budget))
    return Rendered(search_parts(text, mask(asked)), exact=False, losses=by_search(checked, text, budget))


def _find(template: str, text: str, variables: Mapping[str, object], masked: Masked, budget: Budget) -> Found | None:
    try:
        skeleton = _run(template, {**variables, **masked.values}, budget)
    except InvalidRequestError:
        return None
    return find_parts(text, skeleton, masked)


def _run(template: str, variables: Mapping[str, object], budget: Budget) -> str:
    compiled = compile_template(template)
    try:
        return compiled.render(variables, budget)
    except RefusedError:
        # Most templates expect None where there are no tools; some (for tool use only) read them without asking, or as
        # one text.
        tools = variables.get("tools") or []
        date = f"{variables['uad_now']:%b %d %Y}"
        functions = json.dumps(tools, ensure_ascii=False) if tools else ""
        return compiled.render({**variables, "tools": tools, "functions": functions, "datetime": date}, budget)


def settle_kwargs(template: str, kwargs: Mapping[str, object]) -> dict[str, object]:
    """Variables for a template, switches of it as true or false. Raises InvalidRequestError that names one that is
    taken or no switch.
    """
    for name in kwargs:
        if name in _RESERVED or name.startswith(("_", "uad_")) or not name.isidentifier():
            raise InvalidRequestError(f"the template variable '{name}' cannot be set", "chat_template_kwargs")
    _check_json(kwargs, "chat_template_kwargs")
    return settle(kwargs, compile_template(template).switches)


def check_message(message: Mapping[str, object], at: int) -> Mapping[str, object]:
    """The message itself if it has a role and is JSON. Raises InvalidRequestError that names it."""
    where = f"messages[{at}]"
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"{where} is not an object with 'role' and 'content'", where)
    role = message.get("role")
    if not isinstance(role, str) or not 0 < len(role) <= 64 or not _ROLE_CHARACTERS.issuperset(role):
        raise InvalidRequestError(
            f"{where}.role must be a word such as user or assistant, not {role!r}", f"{where}.role"
        )
    _check_json(message, where)
    return message


def _as_wanted(template: str, message: Mapping[str, object], at: int) -> dict[str, object]:
    """The message with its content in the form that the template takes."""
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return {**message, "content": None}
    texts = texts_of(content, f"messages[{at}].content")
    return {**message, "content": forms(template).wants(str(message["role"]), texts)}


def _check_json(value: object, where: str) -> None:
    try:
        json.dumps(value, default=_refuse)
    except (TypeError, ValueError, RecursionError):
        raise InvalidRequestError(f"{where} holds something that JSON cannot express", where) from None


def _refuse(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError
