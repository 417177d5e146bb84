"""A chat template's handling of tools and calls, found by rendering a short conversation. Tried once per template."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from uad.base.common.sequences import common_prefix
from uad.text.templates.sandbox import Budget, probed

ANY_ID, NINE, FUNCTIONS = "any", "nine", "functions"
"""Ids that templates want: any; nine letters and digits (Mistral); `functions.NAME:NUMBER`, counted over a conversation
(Kimi).
"""
TOOL, WORD, NUMBER = "wqz_tool", "wqz_word", 31
"""The probe: a call of this tool, with `word` and `n` as arguments."""
_OPEN_NAME = re.compile(r"[<\[][^\s<>\[\]]*\Z")
"""The common part of two texts may end inside the name of a special."""
_DOUBLED = re.compile(r'\{\{\s*"')
OTHER = "wqz_other"
_RESULT, _THOUGHT, _SAID = "wqz result", "wqz thought", "wqz said"
_KEEPING = {
    "enable_thinking": True,
    "thinking": True,
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
    "drop_thinking": False,
}
"""The switch that leaves thoughts in earlier answers, under the names that templates give it."""
_IDS = {ANY_ID: "call_wqz00000000000000001", NINE: "wqz000001", FUNCTIONS: f"functions.{TOOL}:0"}


@dataclass(frozen=True)
class Calling:
    """The template's handling of tools and calls."""

    tools: bool = False
    """It lists what tools there are."""
    calls: bool = False
    """It writes calls of earlier answers."""
    objects: bool = True
    """It takes arguments that are objects, not texts."""
    parallel: bool = True
    """It writes more than one call of an answer."""
    results: bool = False
    """It writes messages of the role `tool`."""
    ids: str = ANY_ID
    """How calls must be called."""
    empty: str | None = ""
    """The content beside a call where nothing else is said."""
    answer: str = ""
    """The probe's call as an answer; empty where it writes none."""
    thoughts: str = ""
    """The member of a message that it writes thoughts from; empty for none."""
    doubled: bool = False
    """It shows the model calls in doubled braces: `{{"name": …}}`."""


@lru_cache(maxsize=16)
def calling(template: str) -> Calling:
    """A template's handling of tools and calls."""
    # Templates differ in what they take: ids, null or "" as content beside calls, arguments as objects or as texts.
    # Each combination is tried, the usual ones first, until the call is there as it should be.
    probe = _CallProbe(template)
    prompt = probe.prompt_with_tool()
    tools = bool(prompt)
    for (ids, id_), empty, objects in product(_IDS.items(), ("", None), (True, False)):
        way = CallWay(objects, empty, id_)
        answer = probe.answer(way)
        if _shows_call(answer):
            return Calling(
                tools=tools,
                calls=True,
                objects=objects,
                parallel=probe.writes_both(way),
                results=probe.writes_result(way),
                ids=ids,
                empty=empty,
                answer=answer,
                thoughts=probe.thoughts(way),
                doubled=bool(_DOUBLED.search(prompt + answer)),
            )
    return Calling(tools=tools, thoughts=probe.thoughts(None), doubled=bool(_DOUBLED.search(prompt)))


@lru_cache(maxsize=16)
def capabilities(template: str) -> Mapping[str, bool]:
    """A template's handling of messages, tools and thoughts, under the names that llama-server has for it."""
    does, probe = calling(template), _CallProbe(template)
    return {
        "supports_string_content": probe.shows({"role": "user", "content": _SAID}),
        "supports_typed_content": probe.shows({"role": "user", "content": [{"type": "text", "text": _SAID}]}),
        "supports_system_role": probe.shows({"role": "system", "content": _SAID}),
        "supports_tools": does.tools,
        "supports_tool_calls": does.calls,
        "supports_parallel_tool_calls": does.calls and does.parallel,
        "supports_object_arguments": does.calls and does.objects,
        "supports_preserve_reasoning": probe.keeps_thoughts(does.thoughts or "reasoning_content"),
        "supports_reasoning_effort": probe.knows_effort(),
    }


def _shows_call(text: str) -> bool:
    """Whether the tool and its arguments are there, and neither as Python shows a dict nor as JSON in JSON."""
    python, double = f"'word': '{WORD}'", json.dumps(json.dumps({"word": WORD}))[2:-2]
    return all(part in text for part in (TOOL, "word", WORD, str(NUMBER))) and python not in text and double not in text


class _CallProbe:
    def __init__(self, template: str) -> None:
        self._template = template
        self._budget = Budget()

    def prompt_with_tool(self) -> str:
        """A prompt with a tool of the request; empty where no prompt has it."""
        system: dict[str, object] = {"role": "system", "content": "wqz"}
        talks = [[_asked()], [system, _asked()]]
        prompts = (self._render(talk, [probe_tool(TOOL)], prompt=True) for talk in talks)
        return next((prompt for prompt in prompts if TOOL in prompt), "")

    def answer(self, way: CallWay) -> str:
        """The text that the template writes for an answer with one call, with what ends its turn."""
        # The common part of the rendering with the answer and the prompt for one is no part of the answer.
        # "<|im_start|>" and "<|im_end|>" have "<|im_" in common: what ends inside of a name is given back to the
        # answer.
        whole = self._render([_asked(), way.called(TOOL)], [probe_tool(TOOL)])
        asked = self._render([_asked()], [probe_tool(TOOL)], prompt=True)
        return whole[len(_OPEN_NAME.sub("", whole[: common_prefix(whole, asked)])) :]

    def writes_both(self, way: CallWay) -> bool:
        """Whether two calls in one answer are both there."""
        messages = [_asked(), way.called(TOOL, OTHER), way.result(TOOL), way.result(OTHER)]
        text = self._render(messages, [probe_tool(TOOL), probe_tool(OTHER)], prompt=True)
        bare = self._render([_asked()], [probe_tool(TOOL), probe_tool(OTHER)], prompt=True)
        return text.count(OTHER) > bare.count(OTHER) and text.count(TOOL) > bare.count(TOOL)

    def writes_result(self, way: CallWay) -> bool:
        """Whether the result of a call is there."""
        return _RESULT in self._render([_asked(), way.called(TOOL), way.result(TOOL)], [probe_tool(TOOL)], prompt=True)

    def thoughts(self, way: CallWay | None) -> str:
        """The member of an assistant's message that the template writes thoughts from, before a call or in a plain
        answer.
        """
        for name in ("reasoning_content", "thinking", "reasoning"):
            answer: dict[str, object] = {"role": "assistant", "content": "wqz answer"}
            talks: list[list[dict[str, object]]] = [[_asked(), {**answer, name: _THOUGHT}]]
            if way is not None:
                talks.append([_asked(), {**way.called(TOOL), name: _THOUGHT}, way.result(TOOL)])
            if any(_THOUGHT in self._render(talk, [probe_tool(TOOL)] if way else None) for talk in talks):
                return name
        return ""

    def shows(self, message: Mapping[str, object]) -> bool:
        """Whether the text of a first message is there, and not as Python or JSON shows a list."""
        talk = [message, _asked()] if message["role"] == "system" else [message]
        text = self._render(talk, None, prompt=True) or self._render(talk, [], prompt=True)
        return _SAID in text and not any(f"{quote}text{quote}: {quote}{_SAID}" in text for quote in "'\"")

    def keeps_thoughts(self, name: str) -> bool:
        """Whether thoughts of an answer that is not the last one can be there; `name` is their member."""
        first, last = ({"role": "assistant", "content": "wqz answer", name: text} for text in (_THOUGHT, "wqz other"))
        return _THOUGHT in self._render([_asked(), first, _asked(), last, _asked()], None, prompt=True, **_KEEPING)

    def knows_effort(self) -> bool:
        """Whether the prompt depends on `reasoning_effort`."""
        thinking = {"enable_thinking": True, "thinking": True}
        words = ("none", "low", "high", "max")
        return len({self._render([_asked()], None, True, **thinking, reasoning_effort=word) for word in words}) > 1

    def _render(
        self, messages: Sequence[Mapping[str, object]], tools: object, prompt: bool = False, **more: object
    ) -> str:
        """The text; empty where the template refuses. Some want the tools as functions, or as one text under another
        name.
        """
        variables: dict[str, object] = {"tools": tools, "functions": json.dumps(tools), "datetime": ""}
        return probed(self._template, messages, self._budget, **{**more, **variables, "add_generation_prompt": prompt})


def _asked() -> dict[str, object]:
    return {"role": "user", "content": "wqz question"}


@dataclass(frozen=True)
class CallWay:
    """How the probe puts calls: their arguments, the content beside them, and the first one's id."""

    objects: bool
    empty: str | None
    id: str

    @classmethod
    def of(cls, does: Calling) -> CallWay:
        """The way of calls that a template takes which does this."""
        return cls(does.objects, does.empty, _IDS[does.ids])

    def called(self, *names: str) -> dict[str, object]:
        """An answer that calls these tools."""
        arguments = {"word": WORD, "n": NUMBER}
        written = arguments if self.objects else json.dumps(arguments)
        calls = [
            {"id": self._id(name), "type": "function", "function": {"name": name, "arguments": written}}
            for name in names
        ]
        return {"role": "assistant", "content": self.empty, "tool_calls": calls}

    def result(self, name: str) -> dict[str, object]:
        """The result of such a call."""
        return {"role": "tool", "content": _RESULT, "tool_call_id": self._id(name), "name": name}

    def _id(self, name: str) -> str:
        if name == TOOL:
            return self.id
        return f"functions.{name}:1" if self.id.startswith("functions.") else self.id[:-1] + "2"


def probe_tool(name: str) -> dict[str, object]:
    """A tool that templates are tried with."""
    properties = {
        "word": {"type": "string", "description": "a word"},
        "n": {"type": "integer", "description": "a number"},
    }
    parameters = {"type": "object", "properties": properties, "required": ["word", "n"]}
    return {"type": "function", "function": {"name": name, "description": "looks up", "parameters": parameters}}
