"""Every conversation renders: roles in any order, in the words of all three APIs, with all that was said in the prompt,
in order.
"""

from __future__ import annotations

import itertools
import os
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

EXAMPLES = int(os.environ.get("UAD_EXAMPLES", "5"))
READ = {"chat": read_chat, "messages": read_message, "responses": read_response}


class Renderer:
    """The part of an engine that renders."""

    def __init__(self, template: str) -> None:
        self._template = template

    def render_chat(
        self, messages: Sequence[Json], kwargs: Mapping[str, object], opens: bool, prefill: str, add_special: bool
    ) -> str:
        return converse(messages, Talk(self._template, "<BOS>", "<EOS>", kwargs, opens, prefill)).text


def rendered(template: str, api: str, history: History, with_tools: bool) -> str:
    body = APIS[api](history)
    if with_tools:
        functions = [{"name": name, "description": "d", "parameters": PARAMETERS} for name in NAMES]
        body["tools"] = {
            "chat": [{"type": "function", "function": one} for one in functions],
            "messages": [{"name": one["name"], "description": "d", "input_schema": PARAMETERS} for one in functions],
            "responses": [{"type": "function", **one} for one in functions],
        }[api]
    return render_chat(cast(Backend, Renderer(template)), READ[api](body).chat)


def check(template: str, api: str, history: History, with_tools: bool) -> None:
    """All words are there, in the order of the turns. A template may put system messages elsewhere, and results in the
    order of their calls.
    """
    text = rendered(template, api, history, with_tools)
    leaves_out = drops_beside_calls(template)
    at = 0
    one_call = not calling(template).parallel
    for role, turns in itertools.groupby(history, lambda turn: "tool" if one_call and turn.calls else turn.role):
        group = list(turns)
        anywhere = role in ("system", "developer")
        places = {word: text.find(word, 0 if anywhere else at) for turn in group for word in words_of(turn)}
        if leaves_out and any(turn.calls for turn in group):
            said = {word for turn in group for word in words_of(turn)} - {c.word for turn in group for c in turn.calls}
            places = {word: place for word, place in places.items() if place >= 0 or word not in said}
        for word, place in places.items():
            assert place >= 0, (word, "is elsewhere" if word in text else "is nowhere", text)
        if not anywhere:
            at = max([at, *places.values()])


def drops_beside_calls(template: str) -> bool:
    """Whether what an answer says beside its call is left out by design."""
    call = {"id": "abcdefgh1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "tea"}'}}
    said = [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "Wqbeside", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefgh1", "content": "R"},
    ]
    return "Wqbeside" not in converse(said, Talk(template)).text


REAL = {path.stem: path for path in sorted((folder() or Path("none")).glob("templates/*.jinja"))}


@pytest.mark.parametrize("name", sorted(REAL))
@settings(deadline=None, max_examples=EXAMPLES)
@given(history=histories(), api=st.sampled_from(sorted(APIS)), with_tools=st.booleans())
def test_real_templates_render_every_conversation(name: str, history: History, api: str, with_tools: bool):
    check(REAL[name].read_text(encoding="utf-8"), api, history, with_tools)
