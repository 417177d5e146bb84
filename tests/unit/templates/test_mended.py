"""What becomes of turns that a template refuses: the nearest conversation that it takes, found at a bounded cost."""

from __future__ import annotations

from typing import Any, cast

import pytest
from kit.histories import APIS, BROKEN, Call, History, Turn

import uad.text.templates.conversation as conversation
from uad.base.errors import InvalidRequestError
from uad.http.apis.anthropic import read_message
from uad.http.apis.openai import read_chat
from uad.http.apis.responses import read_response
from uad.http.requests.prompt_ids import render_chat
from uad.text.calls.format import AnswerFormat
from uad.text.prompts import Text
from uad.text.templates.conversation import Talk, converse
from uad.text.templates.render import Rendered

COUNTS = """\
{%- set ns = namespace(n=0) -%}
{%- for m in messages -%}
{%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) -%}
{%- if (m.role == 'user') != (ns.n % 2 == 0) -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
{%- set ns.n = ns.n + 1 -%}
{%- elif m.role not in ('assistant', 'tool') -%}{{ raise_exception('no such role') }}{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}[U]{{ m.content }}
{%- elif m.role == 'assistant' -%}[A]{{ m.content or '' }}
{%- for c in m.tool_calls or [] -%}
{%- if c.id | length != 9 -%}{{ raise_exception('ids of nine letters') }}{%- endif -%}
[C]{{ c.function.name }}{{ c.function.arguments | tojson }}{%- endfor -%}
{%- else -%}
{%- if m.tool_call_id | length != 9 -%}{{ raise_exception('ids of nine letters') }}{%- endif -%}
[R]{{ m.content }}{%- endif -%}
{%- endfor -%}"""
"""As Mistral's: users and answers alternate, and calls with their results do not count."""
KNOWN = COUNTS.replace(
    "{%- else -%}\n",
    "{%- else -%}{%- if not loop.previtem or loop.previtem.role not in ('assistant', 'tool') -%}"
    "{{ raise_exception('a result of nothing') }}{%- endif -%}\n",
)
"""As gpt-oss's: a result comes after a call."""
FULL = COUNTS.replace(
    "{%- if m.role == 'user' -%}[U]",
    "{%- if not (m.content or m.tool_calls) -%}{{ raise_exception() }}{%- endif -%}{%- if m.role == 'user' -%}[U]",
)
"""No turn is empty."""


def say(role: str, *texts: str, **more: Any) -> Turn:
    return Turn(role, texts or None, **more)


def calls(*ids: str, said: str = "", broken: str = "") -> Turn:
    return Turn("assistant", (said,) if said else None, tuple(Call(id_, "f", f"w{id_}", broken) for id_ in ids))


def result(id_: str, text: str, name: str = "") -> Turn:
    return Turn("tool", (text,), id=id_, name=name)


U, V, A, B = say("user", "U"), say("user", "V"), say("assistant", "A"), say("assistant", "B")
CALLED = '[C]f{"word": "w1"}'


def text(template: str, *history: Turn) -> str:
    members = APIS["chat"](history)["messages"]
    return converse(members, Talk(template, add_generation_prompt=False)).text


@pytest.mark.parametrize(
    ("template", "history", "wanted"),
    [
        (COUNTS, (U, calls("1"), result("1", "R"), V), f"[U]U[A]{CALLED}[R]R[A][U]V"),
        (COUNTS, (U, calls("1"), result("1", "R"), say("system", "S"), V), f"[U]U[A]{CALLED}[R]R[A][U]S\n\nV"),
        (COUNTS, (U, calls("1"), say("system", "S"), result("1", "R"), A), f"[U]U[A]{CALLED}[R]R[A][U]S[A]A"),
        (COUNTS, (U, V, A, B, U), "[U]U\n\nV[A]A\n\nB[U]U"),
        (COUNTS, (A, U), "[U][A]A[U]U"),
        (COUNTS, (U, A, calls("1"), result("1", "R"), B, U), f"[U]U[A]A{CALLED}[R]R[A]B[U]U"),
        (
            COUNTS,
            (U, calls("1"), V),
            '[U]U[A]<tool_call>\n{"name": "f", "arguments": {"word": "w1"}}\n</tool_call>[U]V',
        ),
        (
            COUNTS,
            (U, calls("1"), V, result("1", "R")),
            '[U]U[A]<tool_call>\n{"name": "f", "arguments": {"word": "w1"}}\n</tool_call>[U]V[R]R',
        ),
        (
            COUNTS.replace("{{ m.content or '' }}", "{{ m.content if m.content and not m.tool_calls else '' }}"),
            (U, A, calls("1"), result("1", "R"), B, U),
            f"[U]U[A]A[U][A]{CALLED}[R]R[A]B[U]U",
        ),
        (KNOWN, (U, result("9", "R"), V), "[U]U\n\nResult of a tool call:\nR\n\nV"),
        (KNOWN, (result("9", "R", "look_up"),), "[U]Result of look_up:\nR"),
        (
            KNOWN,
            (U, calls("1", broken=BROKEN[0]), result("1", "R"), A),
            '[U]U[A]<tool_call>\n{"name": "f", "arguments": {"word": "w1}\n</tool_call>'
            "[U]Result of a tool call:\nR[A]A",
        ),
        (FULL, (U, calls("1"), result("1", "R"), V), f"[U]U[A]{CALLED}[R]R[A] [U]V"),
        (FULL, (U, say("assistant", ""), V), "[U]U[A] [U]V"),
        (FULL, (say("user", ""), A, V), "[U] [A]A[U]V"),
    ],
)
def test_refused_turns_are_told_in_the_nearest_way(template: str, history: History, wanted: str):
    assert text(template, *history) == wanted


USUAL = (say("user", "U"), calls("1"), result("1", "R"), calls("2"), result("2", "R"), A, U)


@pytest.mark.parametrize(("history", "most"), [(USUAL, 1), ((*USUAL, V), 2), ((V, V, *USUAL, calls("3"), V), 2)])
def test_a_usual_conversation_is_rendered_once_and_a_refused_one_twice(
    monkeypatch: pytest.MonkeyPatch, history: History, most: int
):
    n = 0

    def counted(*args: Any, **kwargs: Any) -> Rendered:
        nonlocal n
        n += 1
        return render(*args, **kwargs)

    render = conversation.render
    monkeypatch.setattr(conversation, "render", counted)
    text(COUNTS, *history)
    assert n == most


def test_a_conversation_that_no_way_helps_is_rendered_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch):
    tried = []
    render = conversation.render
    monkeypatch.setattr(conversation, "render", lambda *args, **kwargs: tried.append(1) or render(*args, **kwargs))
    refuses = COUNTS + "{% if messages | length > 3 %}{{ raise_exception('too long') }}{% endif %}"
    with pytest.raises(InvalidRequestError, match=r"messages\[\d+\] .*too long") as error:
        text(refuses, *((U, A) * 50), V)
    assert error.value.param in str(error.value)
    assert len(tried) <= 5 + 2 + 7, "five ways, and a search for the message"


READ = {"chat": read_chat, "messages": read_message, "responses": read_response}


class Renderer:
    """The part of an engine that renders."""

    answers = AnswerFormat()

    def chat_text(self, messages: list[dict[str, Any]], kwargs: Any, opens: bool, prefill: str, special: bool) -> str:
        return converse(messages, Talk(COUNTS, kwargs=kwargs, prefill=prefill)).text


@pytest.mark.parametrize("api", sorted(APIS))
@pytest.mark.parametrize(
    "history", [(U, calls("1"), result("1", "R"), V), (U, V, A, U, V), (result("9", "R"), V), (U, calls("1"), V, V)]
)
def test_apis_say_the_same(api: str, history: History):
    prompts = {
        name: render_chat(cast(Text, Renderer()), READ[name](APIS[name](history)).chat) for name in ("chat", api)
    }
    assert prompts["chat"].split() == prompts[api].split()


def test_a_marker_in_what_is_told_stays_text():
    messages = APIS["chat"]((U, calls("1", broken=BROKEN[0]), result("1", "<|im_end|>"), V, V))["messages"]
    found = converse(messages, Talk(KNOWN))
    assert "<|im_end|>" in found.text
    assert "im_end" not in "".join(part.text for part in found.parts if part.trusted)


def test_a_text_that_the_template_refuses_is_written_as_it_is():
    refuses = (
        "{% for m in messages %}{% if '<x>' in m.content %}{{ raise_exception('no x') }}{% endif %}"
        + "<{{ m.role }}>{{ m.content }}{% endfor %}"
    )
    found = converse([{"role": "user", "content": "a <x> b"}], Talk(refuses))
    assert found.text == "<user>a <x> b"
    assert [part.text for part in found.parts if not part.trusted] == ["a <x> b"]
