"""Every conversation renders: roles in any order, in the words of all three APIs, with all that was said in the prompt,
in order.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.histories import APIS, BROKEN, NAMES, PARAMETERS, Call, History, Json, Turn, histories, words_of
from kit.templates_real import folder

from uad.base.common.sequences import common_prefix
from uad.http.apis.anthropic import read_message
from uad.http.apis.openai import read_chat
from uad.http.apis.responses import read_response
from uad.http.requests.prompt_ids import render_chat
from uad.text.calls.format import AnswerFormat
from uad.text.prompts import Text
from uad.text.templates.calling import calling
from uad.text.templates.conversation import Talk, converse
from uad.text.templates.render import Rendered

EXAMPLES = int(os.environ.get("UAD_EXAMPLES", "5"))
READ = {"chat": read_chat, "messages": read_message, "responses": read_response}


class Renderer:
    """The part of an engine that renders."""

    answers = AnswerFormat()

    def __init__(self, template: str) -> None:
        self._template = template
        self.found = Rendered(())

    def chat_text(
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
    render_chat(cast(Text, renderer), READ[api](body).chat)
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
    more = [{"role": "assistant", "content": "A"}, {"role": "user", "content": "U"}]
    texts = [converse(messages, Talk(template)).text for messages in (said, said + more)]
    return not all("Wqbeside" in text.partition("Wqresult")[0] for text in texts)


REAL = {path.stem: path for path in sorted((folder() or Path("none")).glob("templates/*.jinja"))}
PARTICULAR = (
    *("Apertus-8B-Instruct", "Kimi-K3", "MiniMax-M2", "Mistral-Small-3.2-24B-Instruct-2506", "Qwen3.5-4B"),
    *("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "google-gemma-2-2b-it", "google-gemma-4-31B-it"),
    *("meta-llama-Llama-3.1-8B-Instruct", "mistralai-Ministral-3-14B-Reasoning-2512", "openai-gpt-oss-120b"),
    "mistralai-Mistral-Nemo-Instruct-2407",
)
"""Templates that refuse or leave out turns which others take. All are tried where UAD_EXAMPLES is set."""
CHOSEN = [name for name in sorted(REAL) if name in PARTICULAR or "UAD_EXAMPLES" in os.environ]


@pytest.mark.parametrize("name", CHOSEN)
@settings(deadline=None, max_examples=EXAMPLES)
@given(history=histories(), api=st.sampled_from(sorted(APIS)), with_tools=st.booleans())
def test_real_templates_render_every_conversation(name: str, history: History, api: str, with_tools: bool):
    check(REAL[name].read_text(encoding="utf-8"), api, history, with_tools)


@pytest.mark.parametrize("name", CHOSEN)
def test_a_call_without_a_result_is_not_lost_beside_one_that_has_its(name: str) -> None:
    """A result that names no call ends the conversation, so that the one that lacks its result is written in words."""
    calls = Call("call_2", "look_up", "Wq3z"), Call("call_4", "look_up", "Wq5z")
    answered = Turn("tool", ("Wq7z",), id="call_2"), Turn("tool", ("Wq9z",), id="gone_8")
    check(
        REAL[name].read_text(encoding="utf-8"),
        "chat",
        (Turn("system", ("Wq1z",)), Turn("assistant", calls=calls), *answered),
        False,
    )


# --- the longer prompt begins with the shorter one


def spelled(kinds: str) -> History:
    """A history with a turn per letter: system, user, answer, call, broken call, result of the last call, orphan."""
    made: list[Turn] = []
    for number, kind in enumerate(kinds):
        word, last = f"Wq{number}z", next((turn.calls[0].id for turn in reversed(made) if turn.calls), "gone")
        call = Call(f"call_{number}", "look_up", f"Wq{number + 100}z", BROKEN[0] if kind == "b" else "")
        made.append(
            {
                "s": Turn("system", (word,)),
                "u": Turn("user", (word,)),
                "a": Turn("assistant", (word,)),
                "r": Turn("tool", (word,), id=last),
                "o": Turn("tool", (word,), id=f"gone_{number}"),
            }.get(kind, Turn("assistant", None, (call,)))
        )
    return tuple(made)


USUAL = "suauacrcrau"
GROWING = {
    "a user after a result": "suacruacrcruau",
    "users in a row": "suuauuau",
    "a reminder after a result": "sucrsacrcrsau",
    "results without calls": "soauoacroau",
    "calls without results": "sucuaucuau",
    "calls that cannot be read": "subracrbrau",
    "answers in a row": "suaauaau",
    "a word before each call": "suacrauacrau",
    "an answer first": "auacrau",
}


def n_changed(template: str, history: History, with_tools: bool) -> int:
    """How often a prompt does not begin with what was said in the one before. There is one before each answer."""
    asked = [n for n in range(1, len(history)) if history[n].role == "assistant" != history[n - 1].role]
    texts = [rendered(template, "chat", history[:n], with_tools).text for n in (*asked, len(history))]
    said = [[word for turn in history[:n] for word in words_of(turn)] for n in asked]
    return sum(
        max(before.find(word) for word in words) >= common_prefix(before, after)
        for before, after, words in zip(texts, texts[1:], said, strict=False)
    )


def is_steady(template: str, with_tools: bool) -> bool:
    """Whether the template itself leaves in its place what was said."""
    return not any(n_changed(template, spelled(kinds), with_tools) for kinds in (USUAL, "suasuau"))


@pytest.mark.parametrize("with_tools", [False, True], ids=["plain", "tools"])
@pytest.mark.parametrize("name", [name for name in CHOSEN if name not in ("Kimi-K3", "google-gemma-4-31B-it")])
def test_prompts_of_real_templates_grow_at_their_end(name: str, with_tools: bool):
    template = REAL[name].read_text(encoding="utf-8")
    if not is_steady(template, with_tools):
        pytest.skip("the template writes what was said anew, in a usual conversation, too")
    # A template that knows no calls may know results. With the first call in a conversation all of them are words.
    grown = {what: kinds for what, kinds in GROWING.items() if "o" not in kinds or calling(template).results}
    found = {what: n_changed(template, spelled(kinds), with_tools) for what, kinds in grown.items()}
    assert not any(found.values()), found
