"""Thoughts of an answer: whether a request switches them off, and how long they may be. OpenAI's effort, llama-server's
budget and the template's own switches all say so.
"""

from __future__ import annotations

from uad.base.errors import InvalidRequestError
from uad.base.types import ThoughtBounds
from uad.http.requests.fields import ChatBody, TemplateBody
from uad.http.requests.generation import Backend
from uad.text.calls.parser import Start

_BUDGET, _ENABLE, _EFFORT = "thinking_budget", "enable_thinking", "reasoning_effort"
"""Names of a template's switches."""


def switched(body: TemplateBody, kwargs: dict[str, object]) -> dict[str, object]:
    """The template's variables with what the request says of thoughts. A budget of 0 switches them off, and so does the
    effort "none", which no template knows; the budget wins.
    """
    if body.reasoning_effort == "none":
        kwargs = {_ENABLE: False, **{name: value for name, value in kwargs.items() if name != _EFFORT}}
    elif body.reasoning_effort:
        kwargs = {**kwargs, _EFFORT: body.reasoning_effort}
    if body.enable_thinking is not None:
        kwargs = {**kwargs, _ENABLE: body.enable_thinking}
    if body.thinking_budget is not None and body.thinking_budget >= 0:
        kwargs = {**kwargs, _BUDGET: body.thinking_budget}
        if not body.thinking_budget:
            kwargs[_ENABLE] = False
    return kwargs


def thought_bounds(engine: Backend, body: ChatBody, start: Start) -> ThoughtBounds | None:
    """Marks and bound of an answer's thoughts, for the loop; None if it has none. Tokenizes: for worker threads."""
    answers, config = engine.text.answers, engine.config.server
    if not (answers.thinks or answers.channels or start.in_thought):
        return None
    marks = answers.marks
    if start.in_content and not marks.anywhere:
        return None
    most = body.thinking_budget if body.thinking_budget is not None else kwarg_budget(body)
    if most is None or most < 0:  # the request says nothing, or asks for no bound: the server's own
        most = config.reasoning_budget
    if most < 0:
        return ThoughtBounds(marks.start, marks.end, start.in_thought, marks.anywhere)
    message = body.reasoning_budget_message
    message = config.reasoning_budget_message if message is None else message
    closing = engine.text.tokenize(message + marks.end.strip())
    return ThoughtBounds(marks.start, marks.end, start.in_thought, marks.anywhere, most, tuple(closing))


def kwarg_budget(body: ChatBody) -> int | None:
    """The bound of thoughts among the template's variables, where some clients put it. Raises InvalidRequestError."""
    value = body.chat_template_kwargs.get(_BUDGET)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    where = f"chat_template_kwargs.{_BUDGET}"
    raise InvalidRequestError.at(where, "must be a whole number of tokens, or -1 for no bound")
