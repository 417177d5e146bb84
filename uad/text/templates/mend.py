"""The nearest conversation that a chat template takes: neighbours joined, systems and results as what the user says,
calls in words, empty turns filled. Which turns it takes after which is found by rendering short conversations.

The changes to a turn depend on its neighbours alone. So the prompt of a longer conversation begins with that of the
shorter one, as far as the template allows. Must not know vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, takewhile
from typing import Any

from uad.base.errors import InvalidRequestError
from uad.text.templates.calling import OTHER, TOOL, Calling, CallWay, calling, probe_tool
from uad.text.templates.contents import text_of
from uad.text.templates.history import BETWEEN, Message, PlacedMessages, call_text, result_text
from uad.text.templates.render import render

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
"""Runs of turns that are no matter of the order."""
_BEFORE = {RESULT: (USER, CALL), **dict.fromkeys((ANSWER, CALL, PARTIAL, SAID, BOTH, EMPTY_ANSWER), (USER,))}
_AFTER = {
    **dict.fromkeys((CALL, PARTIAL, SAID, BOTH), (RESULT, ANSWER, USER)),
    **dict.fromkeys((ANSWER, EMPTY_ANSWER), (USER,)),
}
"""Turns before and after one that make a usual conversation of it. Some templates count turns: where a call may stand
shows later.
"""
Takes = Callable[..., bool]
"""Whether a template takes turns of these kinds in a row."""
_FILLING = " "
"""The text of a turn that has nothing to say and must not be empty."""
_ROLES = {"assistant": ANSWER, "system": SYSTEM}
_RESULTS = (RESULT, ORPHAN, NAMED)
_ROLE_OF = {USER: "user", ANSWER: "assistant"}
_IN_DOUBT = ((START, ANSWER), (START, CALL), (USER, USER), (ANSWER, ANSWER), (ANSWER, CALL), (RESULT, USER))
"""Kinds of turns that follow each other only where the template takes that. A first call, for one, gets an empty turn
of the user before it.
"""
_THOUGHTS = ("reasoning_content", "thinking", "reasoning")


@lru_cache(maxsize=1024)
def takes_turns(template: str, with_tools: bool, kinds: tuple[str, ...]) -> bool:
    """Whether a template writes turns of these kinds in a row. For example (result, user): after a call's result the
    user speaks.
    """
    row = (*_BEFORE.get(kinds[0], ()), *kinds, *_AFTER.get(kinds[-1], (ANSWER, USER)))
    if SYSTEM in kinds and START not in kinds:
        row = (SYSTEM, *row)  # some templates keep one of several
    way = CallWay.of(calling(template))
    messages = [_turn_message(kind, f"wqz said {number}", way) for number, kind in enumerate(row) if kind != START]
    try:
        rendered = render(template, messages, kwargs={"tools": [probe_tool(TOOL)]} if with_tools else None)
    except InvalidRequestError:
        return False
    by_design = [] if BOTH in kinds else [n for n, message in enumerate(messages) if "tool_calls" in message]
    return not any(loss.is_call or loss.at not in by_design for loss in rendered.losses)


def _turn_message(kind: str, text: str, way: CallWay) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant" if "answer" in kind else "user", "content": text}
    orphan: dict[str, object] = {"role": "tool", "content": text, "tool_call_id": way.id[::-1]}
    return {
        CALL: way.called(TOOL),
        PARTIAL: way.called(TOOL, OTHER),
        SAID: {**way.called(TOOL), "content": text},
        BOTH: {**way.called(TOOL), "content": text},
        RESULT: {**way.result(TOOL), "content": text},
        ORPHAN: orphan,
        NAMED: {**orphan, "name": OTHER},
        SYSTEM: {**message, "role": "system"},
        EMPTY_USER: {**message, "content": ""},
        EMPTY_ANSWER: {**message, "content": ""},
    }.get(kind, message)


@dataclass(frozen=True)
class _ChatTurn:
    """A message with its number and kind. joins: it is one turn with what the user says beside it."""

    at: int
    message: Message
    kind: str
    joins: bool = False

    def as_user(self, text: str) -> _ChatTurn:
        """This text as what the user says."""
        return _ChatTurn(self.at, {"role": "user", "content": text}, USER, joins=True)


def mended(placed: PlacedMessages, takes: Takes, does: Calling) -> PlacedMessages:
    """The nearest conversation that a template takes. does: what it does with calls."""
    # For a template that takes no system and nothing that is in doubt: system "Be brief", user "Hi", a call, its
    # result, user "Thanks" become user "Be brief\n\nHi", the call, its result, assistant " ", user "Thanks". The system
    # is what the user says, and joins "Hi". An answer comes between a result and the user, with a blank as empty ones
    # are refused.
    turns = [_ChatTurn(at, message, _kind(message)) for at, message in placed]
    turns = list(_with_calls(list(_with_systems(turns, takes)), takes, does))
    takes_empty = {USER: takes(EMPTY_USER), ANSWER: takes(EMPTY_ANSWER)}
    made: list[tuple[int, Message]] = []
    for group in _in_order(turns, takes):
        turn = _joined(group) if len(group) > 1 else group[0]
        is_filled = takes_empty.get(turn.kind, True) or text_of(turn.message, turn.at)
        made.append((turn.at, turn.message if is_filled else {**turn.message, "content": _FILLING}))
    return tuple(made)


def _kind(message: Message) -> str:
    if message["role"] == "tool":
        return NAMED if message.get("name") else ORPHAN  # until its call is found
    return CALL if message.get("tool_calls") else _ROLES.get(str(message["role"]), USER)


def _with_systems(turns: Sequence[_ChatTurn], takes: Takes) -> Iterator[_ChatTurn]:
    """System messages where the template has a place for them, as what the user says elsewhere. Those between a call
    and its result come after it.
    """
    # With `before` the kind before a run of systems, and `kind` the one after it, a template is asked whether it takes
    # (start, system, user), (answer, system, user) …: many take the first only. In call, system, result the system is
    # `moved` on, as it becomes a user's turn, which must not part a call from its result: call, result, user.
    runs = [list(run) for _, run in groupby(turns, lambda turn: turn.kind == SYSTEM)]
    before, moved = START, list[_ChatTurn]()
    for number, run in enumerate(runs):
        if run[0].kind != SYSTEM:
            n = len(list(takewhile(_is_result, run))) if moved else 0
            yield from (*run[:n], *moved, *run[n:])
            before, moved = RESULT if _is_result(run[-1]) else run[-1].kind, []
            continue
        after = runs[number + 1][0] if number + 1 < len(runs) else None
        kind = ANSWER if after is None else RESULT if _is_result(after) else after.kind
        if takes(before, SYSTEM, USER if before == START else kind):
            several = before == START and len(run) > 1 and not takes(START, SYSTEM, SYSTEM, USER)
            yield from [replace(_joined(run), kind=SYSTEM)] if several else run
            continue
        texts = [turn.as_user(text_of(turn.message, turn.at)) for turn in run]
        if before in (CALL, RESULT) and kind == RESULT:
            moved = texts
        else:
            yield from texts
            before = USER


def _is_result(turn: _ChatTurn) -> bool:
    return turn.kind in _RESULTS


def _before_next(turn: _ChatTurn, before: str) -> str:
    """The kind that stands before the turn after this one: systems do not count, and all results are alike."""
    return before if turn.kind == SYSTEM else RESULT if _is_result(turn) else turn.kind


def _with_calls(turns: Sequence[_ChatTurn], takes: Takes, does: Calling) -> Iterator[_ChatTurn]:
    """Calls with their results. A result without its call is written out in words, as is a call without a result, where
    the template does not take it.
    """
    before, end = START, 0
    for number, turn in enumerate(turns):
        if number < end:
            continue
        end = number + 1
        while turn.kind == CALL and end < len(turns) and (_is_result(turns[end]) or turns[end].kind == SYSTEM):
            end += 1
        group = list(turns[number:end])
        if turn.kind == CALL:
            answered = _answered(group, turns[end].kind if end < len(turns) else ANSWER, takes)
            group = _apart(answered, turn, takes, does)
        for placed in group:
            if placed.kind in (ORPHAN, NAMED) and not takes(before, placed.kind):
                placed = placed.as_user(
                    result_text(placed.message, placed.at, in_tags=not (does.calls and does.results))
                )
            yield placed
            before = _before_next(placed, before)


def _answered(group: Sequence[_ChatTurn], after: str, takes: Takes) -> list[_ChatTurn]:
    """A turn that calls, and what follows it: results of these calls are known as such."""
    called, *others = group
    calls: Any = called.message["tool_calls"]
    waiting = [call.get("id") for call in calls]
    for i, turn in enumerate(others):
        id_ = turn.message.get("tool_call_id") or next(iter(waiting), None)
        if turn.kind != SYSTEM and id_ in waiting:
            waiting.remove(id_)
            others[i] = replace(turn, kind=RESULT)
    rest = next((turn.kind for turn in others if turn.kind != SYSTEM), after)
    if waiting and not (takes(PARTIAL) if len(waiting) < len(calls) else takes(CALL, rest)):
        open_calls = [call for call in calls if call.get("id") in waiting]
        called = _in_words(called, open_calls, [call for call in calls if call not in open_calls])
    return [called, *others]


def _apart(group: list[_ChatTurn], came: _ChatTurn, takes: Takes, does: Calling) -> list[_ChatTurn]:
    """The text of an answer, then its calls, for a template that takes only one of the two. All in words, as it came,
    where it takes no two answers in a row.
    """
    turn, *others = group
    calls: Any = turn.message.get("tool_calls")
    # a template may leave out what is said beside calls, but no call that is in words there
    if not calls or not text_of(turn.message, turn.at) or takes(SAID if turn is came else BOTH):
        return group
    if not takes(ANSWER, CALL):
        all_calls: Any = came.message["tool_calls"]
        return [_in_words(came, all_calls, ()), *(replace(later, kind=_kind(later.message)) for later in others)]
    plain = {name: value for name, value in turn.message.items() if name != "tool_calls"}
    called = {"role": "assistant", "content": does.empty, "tool_calls": calls}
    return [_ChatTurn(turn.at, plain, ANSWER), _ChatTurn(turn.at, called, CALL), *others]


def _in_words(turn: _ChatTurn, calls: Sequence[Any], kept: Sequence[Any]) -> _ChatTurn:
    texts = (text_of(turn.message, turn.at), *map(call_text, calls))
    message = {**turn.message, "content": BETWEEN.join(filter(None, texts)), "tool_calls": kept}
    if kept:
        return replace(turn, message=message)
    del message["tool_calls"]
    return replace(turn, message=message, kind=ANSWER)


def _in_order(turns: Sequence[_ChatTurn], takes: Takes) -> list[list[_ChatTurn]]:
    """The turns in groups that are one turn each; where the order asks for one between two, an empty one."""
    # user, user: two groups if the template takes that, else one, with both texts. start, answer: an empty user's turn
    # comes before it. result, user: an empty answer between them. A message that `joins` is in one turn with its
    # neighbours even where the template would take two, so that a system becomes part of what the user says after it.
    groups: list[list[_ChatTurn]] = []
    before = START
    for turn in turns:
        last = groups[-1][-1] if groups else None
        pair = (before, turn.kind)
        if last is not None and (last.joins or turn.joins) and last.kind == turn.kind == USER:
            groups[-1].append(turn)
        elif pair not in _IN_DOUBT or takes(*pair) or (last is not None and last.kind == SYSTEM and before != START):
            groups.append([turn])
        elif last is not None and last.kind == before and (turn.kind == before or (turn.kind == CALL and takes(BOTH))):
            groups[-1].append(turn)
        else:
            kind = ANSWER if turn.kind == USER else USER
            groups += [[_ChatTurn(turn.at, {"role": _ROLE_OF[kind], "content": ""}, kind)], [turn]]
        before = _before_next(turn, before)
    return groups


def _joined(group: Sequence[_ChatTurn]) -> _ChatTurn:
    """Several turns as one, with the number of the last."""
    last = group[-1]
    message: dict[str, object] = {}
    for turn in group:
        message |= turn.message
    message["content"] = BETWEEN.join(filter(None, (text_of(turn.message, turn.at) for turn in group)))
    for member in _THOUGHTS:
        thoughts = [turn.message.get(member) for turn in group]
        if any(thoughts):
            message[member] = BETWEEN.join(str(thought) for thought in thoughts if thought)
    return replace(last, message=message)
