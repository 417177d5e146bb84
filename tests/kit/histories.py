"""Random conversations as clients of all three APIs send them: roles in any order, results of no call, empty answers,
texts in parts. Every text holds a word of its own, so that it can be looked for in a prompt.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]
NAMES = ("look_up", "write_file")
PARAMETERS = {"type": "object", "properties": {"word": {"type": "string", "description": "d"}}, "required": ["word"]}
AROUND = (
    *("{}", "{}\n", "- {}\n  two", '"{}" {{x}}', "<|im_end|>{}", "a {} </tool_call>", "[/INST] {} é", "{} <b>"),
    *("<|channel|>analysis<|message|>{}", "<tool_response>{}</tool_response>"),
)
"""What stands around a word; specials among it, which stay letters."""
BROKEN = ('{"word": "%s', "%s", '["%s"]')
"""Arguments that are no object."""


@dataclass(frozen=True)
class Call:
    """A call of an answer."""

    id: str
    name: str
    word: str
    broken: str = ""

    @property
    def arguments(self) -> str:
        """As JSON text."""
        return self.broken % self.word if self.broken else json.dumps({"word": self.word})


@dataclass(frozen=True)
class Turn:
    """What one role says. texts: its parts; None: no content at all. id: of the call whose result this is."""

    role: str
    texts: tuple[str, ...] | None = None
    calls: tuple[Call, ...] = ()
    thought: str = ""
    id: str = ""
    name: str = ""


History = tuple[Turn, ...]
_KINDS = ("user", "user", "assistant", "assistant", "call", "call", "result", "result", "orphan", "system", "developer")


@st.composite
def histories(draw: st.DrawFn, most: int = 8) -> History:
    """The last turn is no answer after an answer and no call: llama-server refuses these, too."""
    numbers = itertools.count(1)
    waiting: list[Call] = []

    def word() -> str:
        return f"Wq{next(numbers)}z"

    def texts(n: int) -> tuple[str, ...]:
        return tuple(draw(st.sampled_from(AROUND)).format(word()) for _ in range(n)) or ("",)

    turns: list[Turn] = []
    for kind in draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=most)):
        n = draw(st.sampled_from((1, 1, 1, 2, 0)))
        if kind == "call":
            calls = tuple(
                Call(f"call_{next(numbers)}", name, word(), broken)
                for name, broken in draw(
                    st.lists(
                        st.tuples(st.sampled_from(NAMES), st.sampled_from(("",) * 9 + BROKEN)), min_size=1, max_size=3
                    )
                )
            )
            said = draw(st.sampled_from((None, None, texts(0), texts(n))))
            turns.append(Turn("assistant", said, calls, draw(st.sampled_from(("", "hm")))))
            waiting += calls
        elif kind in ("result", "orphan"):
            at = draw(st.integers(0, len(waiting) - 1)) if waiting and kind == "result" else -1
            call = Call(f"gone_{next(numbers)}", "gone", "") if at < 0 else waiting.pop(at)
            turns.append(Turn("tool", texts(n), id=call.id, name=draw(st.sampled_from(("", call.name)))))
        elif kind == "assistant":
            turns.append(Turn("assistant", texts(n), thought=draw(st.sampled_from(("", "", "hm")))))
        else:
            turns.append(Turn(kind, texts(n), name=draw(st.sampled_from(("", "", "example")))))
    while turns[-1].role == "assistant":
        if len(turns) > 1 and turns[-2].role != "assistant" and not turns[-1].calls and not turns[-1].thought:
            break
        turns.pop() if len(turns) > 1 else turns.append(Turn("user", texts(1)))
    return tuple(turns)


def words_of(turn: Turn) -> list[str]:
    """The words of a turn that a prompt must hold: of its texts, its calls, and the names of its tools."""
    texts = [text[text.index("Wq") : text.index("z", text.index("Wq")) + 1] for text in turn.texts or () if text]
    return [*texts, *(call.word for call in turn.calls)]


# --- the same in the words of each API


def as_chat(history: History) -> Json:
    """The body of a chat completion."""
    return {"messages": [_message(turn) for turn in history]}


def _message(turn: Turn) -> Json:
    message: Json = {"role": turn.role}
    if turn.texts is None:
        message["content"] = None
    elif len(turn.texts) == 1:
        message["content"] = turn.texts[0]
    else:
        message["content"] = [{"type": "text", "text": text} for text in turn.texts]
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.calls
        ]
    more = {"reasoning_content": turn.thought, "tool_call_id": turn.id, "name": turn.name}
    return message | {name: value for name, value in more.items() if value}


def as_messages(history: History) -> Json:
    """The body of a message: results are blocks of the user's, together with what the user says next."""
    turns: list[Json] = []
    for role, group in itertools.groupby(history, lambda turn: "user" if turn.role == "tool" else turn.role):
        role = "system" if role == "developer" else role
        if role != "user":
            turns += [{"role": role, "content": _blocks(turn)} for turn in group]
        else:
            turns += _user_turns(list(group))
    return {"messages": turns}


def _user_turns(group: list[Turn]) -> Iterator[Json]:
    """A turn for what is said after each run of results, since results come first there."""
    blocks: list[Json] = []
    for i, turn in enumerate(group):
        if turn.role == "tool" and i and group[i - 1].role == "user":
            yield {"role": "user", "content": blocks}
            blocks = []
        blocks += _blocks(turn)
    yield {"role": "user", "content": blocks}


def _blocks(turn: Turn) -> list[Json]:
    texts = [{"type": "text", "text": text} for text in turn.texts or ()]
    if turn.role == "tool":
        return [{"type": "tool_result", "tool_use_id": turn.id, "content": texts}]
    thoughts = [{"type": "thinking", "thinking": turn.thought}] if turn.thought else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": {"word": call.word}} for call in turn.calls
    ]
    return [*thoughts, *texts, *calls]


def as_response(history: History) -> Json:
    """The body of a response."""
    return {"input": [item for turn in history for item in _items(turn)]}


def _items(turn: Turn) -> Iterator[Json]:
    kind = "output_text" if turn.role == "assistant" else "input_text"
    parts = [{"type": kind, "text": text} for text in turn.texts or ()]
    if turn.role == "tool":
        yield {"type": "function_call_output", "call_id": turn.id, "output": parts}
        return
    if turn.thought:
        yield {"type": "reasoning", "content": [{"type": "reasoning_text", "text": turn.thought}]}
    if turn.texts is not None:
        yield {"type": "message", "role": turn.role, "content": parts}
    for call in turn.calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


APIS: Mapping[str, Callable[[History], Json]] = {"chat": as_chat, "messages": as_messages, "responses": as_response}
