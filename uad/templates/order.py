"""Which turns a chat template takes after which, found by rendering short conversations, each once per template.

Must not know vocabularies.
"""

from __future__ import annotations

from functools import lru_cache

from uad.errors import InvalidRequestError
from uad.templates.calling import OTHER, TOOL, CallWay, calling, probe_tool
from uad.templates.render import render

START, USER, ANSWER, CALL, RESULT, SYSTEM = "start", "user", "answer", "call", "result", "system"
"""Kinds of turns: what stands before the first, the user's, an answer, one that calls a tool, what a call gave."""
PARTIAL = "call twice"
"""An answer with two calls, of which the first has a result."""
SAID, BOTH = "call after words", "words and a call"
"""An answer that says something and calls a tool: whether the call is written, and whether both are."""
ORPHAN, NAMED = "orphan", "named orphan"
"""A result whose call is missing, and one that says which tool it is of."""
EMPTY_USER, EMPTY_ANSWER = "empty user", "empty answer"
USUAL = ((START, SYSTEM, USER), (SAID,), (BOTH,), (EMPTY_USER,), (EMPTY_ANSWER,))
"""What is no matter of the order."""
_BEFORE = {RESULT: (USER, CALL), **dict.fromkeys((ANSWER, CALL, PARTIAL, SAID, BOTH, EMPTY_ANSWER), (USER,))}
_AFTER = {
    **dict.fromkeys((CALL, PARTIAL, SAID, BOTH), (RESULT, ANSWER, USER)),
    **dict.fromkeys((ANSWER, EMPTY_ANSWER), (USER,)),
}
"""What makes a usual conversation of a turn. Some templates count turns: where a call may stand shows later."""


@lru_cache(maxsize=1024)
def takes(template: str, with_tools: bool, kinds: tuple[str, ...]) -> bool:
    """Whether a template writes turns of these kinds in a row. For example (result, user): after a call's result the
    user speaks.
    """
    row = (*_BEFORE.get(kinds[0], ()), *kinds, *_AFTER.get(kinds[-1], (ANSWER, USER)))
    if SYSTEM in kinds and START not in kinds:
        row = (SYSTEM, *row)  # some templates keep one of several
    way = CallWay.of(calling(template))
    messages = [_message(kind, f"wqz said {number}", way) for number, kind in enumerate(row) if kind != START]
    try:
        rendered = render(template, messages, kwargs={"tools": [probe_tool(TOOL)]} if with_tools else None)
    except InvalidRequestError:
        return False
    by_design = [] if BOTH in kinds else [n for n, message in enumerate(messages) if "tool_calls" in message]
    return not any(loss.is_call or loss.at not in by_design for loss in rendered.losses)


def _message(kind: str, text: str, way: CallWay) -> dict[str, object]:
    said: dict[str, object] = {"role": "assistant" if "answer" in kind else "user", "content": text}
    orphan: dict[str, object] = {"role": "tool", "content": text, "tool_call_id": way.id[::-1]}
    return {
        CALL: way.called(TOOL),
        PARTIAL: way.called(TOOL, OTHER),
        SAID: {**way.called(TOOL), "content": text},
        BOTH: {**way.called(TOOL), "content": text},
        RESULT: {**way.result(TOOL), "content": text},
        ORPHAN: orphan,
        NAMED: {**orphan, "name": OTHER},
        SYSTEM: {**said, "role": "system"},
        EMPTY_USER: {**said, "content": ""},
        EMPTY_ANSWER: {**said, "content": ""},
    }.get(kind, said)
