"""How long the thoughts of a chat may be: from a request's fields, and the server's own."""

from __future__ import annotations

from uad.calls.parser import Start
from uad.errors import InvalidRequestError
from uad.requests.engine import Backend
from uad.requests.schemas import ChatBody
from uad.types import ThoughtBounds

_KWARG = "thinking_budget"


def thought_bounds(engine: Backend, body: ChatBody, start: Start) -> ThoughtBounds | None:
    """What the loop is told of an answer's thoughts; None where it has none. Tokenizes: for worker threads."""
    answers = engine.answers
    if not (answers.thinks or answers.channels or start.in_thought):
        return None
    marks = answers.marks
    if start.in_content and not marks.anywhere:
        return None
    budget = budget_of(engine, body)
    message = body.reasoning_budget_message
    if message is None:
        message = engine.config.server.reasoning_budget_message
    closing = engine.tokenize(message + marks.end.strip()) if budget is not None else []
    return ThoughtBounds(marks.start, marks.end, start.in_thought, marks.anywhere, budget, tuple(closing))


def budget_of(engine: Backend, body: ChatBody) -> int | None:
    """Most ids of a thought: the request's own bound, else the server's; None: no bound."""
    asked = body.thinking_budget
    if asked is None:
        asked = _of_template(body)
    if asked is None or asked < 0:
        asked = engine.config.server.reasoning_budget
    return asked if asked >= 0 else None


def _of_template(body: ChatBody) -> int | None:
    """The bound among the template's variables, where some clients put it."""
    value = body.chat_template_kwargs.get(_KWARG)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    where = f"chat_template_kwargs.{_KWARG}"
    raise InvalidRequestError(f"{where}: must be a whole number of tokens, or -1 for no bound", where)
