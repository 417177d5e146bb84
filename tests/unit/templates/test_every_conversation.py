"""Every conversation renders: roles in any order, in the words of all three APIs, with all that was said in the prompt,
in order.
"""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.histories import APIS, NAMES, PARAMETERS, History, Json, histories, words_of
from kit.templates_real import folder

from uad.apis.messages_request import read_message
from uad.apis.responses_request import read_response
from uad.apis.translated import read_chat
from uad.requests.engine import Backend
from uad.requests.prompt_ids import render_chat
from uad.templates.calling import calling
from uad.templates.conversation import Talk, converse
from uad.templates.render import Rendered

EXAMPLES = int(os.environ.get("UAD_EXAMPLES", "5"))
READ = {"chat": read_chat, "messages": read_message, "responses": read_response}


class Renderer:
    """The part of an engine that renders."""

    def __init__(self, template: str) -> None:
        self._template = template
        self.found = Rendered(())

    def render_chat(
        self, messages: Sequence[Json], kwargs: Mapping[str, object], opens: bool, prefill: str, add_special: bool
    ) -> str:
        self.found = converse(messages, Talk(self._template, "<BOS>", "<EOS>", kwargs, opens, prefill))
        return self.found.text


def rendered(template: str, api: str, history: History, with_tools: bool) -> Rendered:
    """The way from a body to a prompt, but for the vocabulary."""
    body = APIS[api](history)
    if with_tools:
        functions = [{"name": name, "description": "d", "parameters": PARAMETERS} for name in NAMES]
        body["tools"] = {
            "chat": [{"type": "function", "function": one} for one in functions],
            "messages": [{"name": one["name"], "description": "d", "input_schema": PARAMETERS} for one in functions],
            "responses": [{"type": "function", **one} for one in functions],
        }[api]
    renderer = Renderer(template)
    render_chat(cast(Backend, renderer), READ[api](body).chat)
    return renderer.found


def check(template: str, api: str, history: History, with_tools: bool) -> None:
    """All words are there, in the order of the turns, and specials that were typed are letters. A template may put
    system messages elsewhere, and each result right after its call.
    """
    found = rendered(template, api, history, with_tools)
    text, one_call = found.text, not calling(template).parallel
    leaves_out = drops_beside_calls(template)
    at = 0
    for role, turns in itertools.groupby(
        history, lambda turn: "tool" if one_call and turn.role == "assistant" else turn.role
    ):
        group = list(turns)
        words = [word for turn in group for word in words_of(turn)]
        if leaves_out and any(turn.calls for turn in group):
            words = [call.word for turn in group for call in turn.calls]
        anywhere = role in ("system", "developer")
        places = {word: text.find(word, 0 if anywhere else at) for word in words}
        assert min(places.values(), default=0) >= 0, (places, text)
        at = at if anywhere else max([at, *places.values()])
    typed = re.findall(r"<\|im_end\|>Wq\d+z", text)
    assert typed == re.findall(r"<\|im_end\|>Wq\d+z", "".join(part.text for part in found.parts if not part.trusted))


def drops_beside_calls(template: str) -> bool:
    """Whether what an answer says beside its call is left out by design, or written after the call's result."""
    call = {"id": "abcdefgh1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "tea"}'}}
    said = [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "Wqbeside", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefgh1", "content": "Wqresult"},
    ]
    return "Wqbeside" not in converse(said, Talk(template)).text.partition("Wqresult")[0]


REAL = {path.stem: path for path in sorted((folder() or Path("none")).glob("templates/*.jinja"))}


@pytest.mark.parametrize("name", sorted(REAL))
@settings(deadline=None, max_examples=EXAMPLES)
@given(history=histories(), api=st.sampled_from(sorted(APIS)), with_tools=st.booleans())
def test_real_templates_render_every_conversation(name: str, history: History, api: str, with_tools: bool):
    check(REAL[name].read_text(encoding="utf-8"), api, history, with_tools)
