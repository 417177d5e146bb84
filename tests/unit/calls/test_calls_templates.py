"""Conversations with tools and calls as templates take them: found by rendering, said in words where a template has no
place for them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.calls_kit import FORMATS
from kit.calls_kit import said as read
from kit.templates_real import folder

from uad.base.common.sequences import common_prefix
from uad.base.errors import InvalidRequestError
from uad.text.calls.format import ThoughtFormat
from uad.text.calls.recognise import answer_format, thought_format, written_as
from uad.text.calls.tools import Calls, Tool
from uad.text.mapping.families import bundled_mappings, load_families
from uad.text.templates.calling import _OPEN_NAME, FUNCTIONS, NINE, calling, capabilities
from uad.text.templates.conversation import Talk, converse

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}{% if add_generation_prompt "
    "%}<assistant>{% endif %}"
)
CALLS = "{% for c in m.tool_calls or [] %}<tool_call>\n{{ CALL | tojson }}\n</tool_call>{% endfor %}</{{ m.role }}>"
NATIVE = "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}" + PLAIN.replace(
    "</{{ m.role }}>", CALLS, 1
).replace("CALL", "c.function")
TEXTS = NATIVE.replace(
    "{{ c.function | tojson }}", '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments + "" }}}'
)
ONE = NATIVE.replace(
    "{% for m in messages %}",
    "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}",
)
SILENT = NATIVE.replace("{{ m.content }}", "{{ m.content if not m.tool_calls else '' }}")
NINE_ONLY = NATIVE.replace(
    "<tool_call>", "{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}{{ c.id }}<tool_call>"
).replace("<{{ m.role }}>", "<{{ m.role }}>{{ m.tool_call_id or '' }}")
BY_ID = NATIVE.replace("{{ c.function | tojson }}", "{{ c.id }}{{ c.function.arguments | tojson }}")
THINKS = PLAIN.replace("{{ m.content }}", "{% if m.thinking %}[{{ m.thinking }}]{% endif %}{{ m.content }}")
TOOLS = [
    {"type": "function", "function": {"name": "look_up", "description": "Looks up.", "parameters": {"type": "object"}}}
]


def call(name: str, arguments: Any, id_: str = "call_1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def called(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


ASKED = {"role": "user", "content": "U"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "R"}
HISTORY = [ASKED, called(call("look_up", '{"word": "tea"}')), RESULT]


def text(
    template: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, prompt: bool = False
) -> str:
    kwargs = {"tools": tools} if tools else {}
    return converse(messages, Talk(template, kwargs=kwargs, add_generation_prompt=prompt)).text


def test_what_templates_do_with_calls_is_found_out():
    assert not calling(PLAIN).calls
    assert not calling(PLAIN).tools
    native = calling(NATIVE)
    assert (native.tools, native.calls, native.objects, native.parallel, native.results) == (
        True,
        True,
        True,
        True,
        True,
    )
    assert not calling(TEXTS).objects
    assert not calling(ONE).parallel
    assert (calling(NINE_ONLY).ids, calling(BY_ID).ids) == (NINE, FUNCTIONS)
    assert (calling(THINKS).thoughts, calling(PLAIN).thoughts) == ("thinking", "")


def test_calls_in_the_form_that_the_template_wants():
    wanted = (
        '<user>U</user><assistant><tool_call>\n{"name": "look_up", "arguments": {"word": '
        '"tea"}}\n</tool_call></assistant><tool>R</tool>'
    )
    assert text(NATIVE, HISTORY) == wanted
    assert text(TEXTS, HISTORY) == wanted
    as_object = [ASKED, called(call("look_up", {"word": "tea"})), RESULT]
    assert text(NATIVE, as_object) == text(TEXTS, as_object) == wanted


def test_tools_are_given_to_a_template_that_tells_them():
    assert text(NATIVE, [ASKED], TOOLS).startswith('<tools>[{"type": "function", "function": {"name": "look_up"')


def test_without_calls_and_tools_nothing_changes():
    assert text(NATIVE, [ASKED], prompt=True) == "<user>U</user><assistant>"


def test_tools_and_calls_in_words_where_the_template_has_no_place_for_them():
    told = text(PLAIN, HISTORY, TOOLS, prompt=True)
    assert told.startswith("<system>You can call tools.")
    assert json.dumps(TOOLS[0]) in told
    rest = told.partition("</system>")[2]
    assert rest == (
        '<user>U</user><assistant><tool_call>\n{"name": "look_up", "arguments": {"word": '
        '"tea"}}\n</tool_call></assistant>'
        "<user><tool_response>\nR\n</tool_response></user><assistant>"
    )
    assert text(PLAIN, [{"role": "system", "content": "S"}, ASKED], TOOLS).startswith(
        "<system>S\n\nYou can call tools."
    )


def test_results_in_words_are_one_turn():
    two = [
        ASKED,
        called(call("f", "{}", "1"), call("g", "{}", "2"), content="So."),
        {**RESULT, "tool_call_id": "1"},
        RESULT,
        ASKED,
    ]
    told = text(PLAIN, two)
    assert told.count("<user>") == 2
    assert told.endswith(
        "<user><tool_response>\nR\n</tool_response>\n\n<tool_response>\nR\n</tool_response>\n\nU</user>"
    )
    assert '<assistant>So.\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n\n<tool_call>' in told


def test_arguments_that_are_no_object_are_said_as_they_are():
    broken = [ASKED, called(call("look_up", '{"word": "te')), RESULT]
    assert '<tool_call>\n{"name": "look_up", "arguments": {"word": "te}\n</tool_call>' in text(NATIVE, broken)


def test_several_calls_one_by_one_where_the_template_takes_one():
    messages = [
        ASKED,
        called(call("f", "{}", "1"), call("g", "{}", "2"), content="So."),
        {**RESULT, "tool_call_id": "2", "content": "B"},
        {**RESULT, "tool_call_id": "1", "content": "A"},
    ]
    told = text(ONE, messages)
    assert told.index('"f"') < told.index("A") < told.index('"g"') < told.index("B")
    assert told.count("So.") == 1


def test_ids_as_the_template_wants_them():
    told = text(NINE_ONLY, HISTORY)
    first = told.partition("<assistant>")[2][:9]
    assert first.isalnum()
    assert f"<tool>{first}R</tool>" in told
    kept = [ASKED, called(call("look_up", "{}", "abcdefghi"))]
    assert "abcdefghi" in text(NINE_ONLY, kept)
    assert "functions.look_up:0" in text(BY_ID, HISTORY)


def test_what_is_said_beside_calls_may_be_left_out_by_the_template():
    assert "So." not in text(SILENT, [ASKED, called(call("f", "{}"), content="So."), RESULT])
    with pytest.raises(InvalidRequestError, match=r"messages\[1\]"):
        text(
            SILENT.replace("not m.tool_calls", "m.role == 'user'"),
            [ASKED, {"role": "assistant", "content": "A"}, ASKED],
        )


def test_thoughts_go_where_the_template_reads_them():
    told = [ASKED, {"role": "assistant", "content": "A", "reasoning_content": "T"}]
    assert text(THINKS, told) == "<user>U</user><assistant>[T]A</assistant>"


@pytest.mark.parametrize(
    "bad", [3, [3], [{"function": 3}], [{"function": {}}], [{"function": {"name": "f", "arguments": 3}}]]
)
def test_calls_that_are_none_are_refused_by_name(bad: object):
    with pytest.raises(InvalidRequestError, match=r"messages\[1\].tool_calls"):
        text(NATIVE, [ASKED, {"role": "assistant", "content": "", "tool_calls": bad}])


def test_names_of_arguments_never_become_specials():
    hostile = [ASKED, called(call("look_up", {"<|im_end|>": 1})), RESULT]
    parts = converse(hostile, Talk(NATIVE)).parts
    assert "<|im_end|>" not in "".join(part.text for part in parts if part.trusted)


def test_a_list_of_the_request_cannot_be_changed_but_one_of_the_template_can():
    grown = (
        "{% set found = [] %}{% for m in messages %}{{ found.append(m.content) or '' }}{% endfor %}{{ found | "
        "join('+') }}"
    )
    assert text(grown, [ASKED, ASKED]) == "U+U"
    with pytest.raises(InvalidRequestError):
        text("{{ messages.append(1) }}", [ASKED])


def test_thoughts_by_family_by_template_and_as_usual():
    families = load_families([bundled_mappings()])
    assert thought_format("", None) is None
    assert thought_format("{{ '[THINK]' }}{{ '[/THINK]' }}", families["chatml"]) == ThoughtFormat("[THINK]", "[/THINK]")
    assert thought_format("", families["deepseek-r1"]) == ThoughtFormat()
    gemma = thought_format("", families["gemma-4"])
    assert gemma is not None
    assert gemma.anywhere


REAL = {path.stem: path for path in sorted((folder() or Path("none")).glob("templates/*.jinja"))}
NO_CALLS = {"muse-glimmer"}
"""Templates that write calls in a format that is not known here."""


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_templates_render_tools_calls_and_results(name: str):
    template = REAL[name].read_text(encoding="utf-8")
    arguments = {"word": "<|wqz_word|>", "n": 5}
    messages = [
        ASKED,
        called(call("look_up", json.dumps(arguments))),
        RESULT,
        {"role": "assistant", "content": "A2"},
        {"role": "user", "content": "U2"},
    ]
    tool = {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "d"}, "n": {"type": "integer", "description": "d"}},
    }
    rendered = converse(
        messages,
        Talk(
            template,
            "<BOS>",
            "<EOS>",
            {"tools": [{"type": "function", "function": {**TOOLS[0]["function"], "parameters": tool}}]},
        ),
    )
    assert all(part in rendered.text for part in ("look_up", "wqz_word", "R", "U2"))
    assert "<|wqz_word|>" not in "".join(part.text for part in rendered.parts if part.trusted)


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_templates_write_what_a_parser_reads(name: str):
    does = calling(REAL[name].read_text(encoding="utf-8"))
    assert (written_as(does.answer, FORMATS.values()) is not None) == (does.calls and name not in NO_CALLS)


TRICKY = {
    "text": 'two\nlines "q" \\ back é </b> {x}',
    "n": -3,
    "f": 1.5,
    "ok": True,
    "no": None,
    "list": [1, "a", {"b": []}],
    "obj": {"k": "v", "z": {"y": [True, None]}},
}
TYPES = {
    "text": "string",
    "n": "integer",
    "f": "number",
    "ok": "boolean",
    "no": ["string", "null"],
    "list": "array",
    "obj": "object",
}
SCHEMA = {
    "type": "object",
    "properties": {name: {"type": kind, "description": "d"} for name, kind in TYPES.items()},
    "required": ["text"],
}
WRITES_NO_NULL = {"MiniMax-M3": {**TRICKY, "list": [1, "a", {"b": [2]}], "obj": {"k": "v", "z": {"y": [True, 0.5]}}}}
"""Templates that write nothing for null and empty lists."""
del WRITES_NO_NULL["MiniMax-M3"]["no"]


@pytest.mark.parametrize("name", sorted(REAL))
def test_what_real_templates_write_of_calls_is_read_as_the_same_calls(name: str):
    template = REAL[name].read_text(encoding="utf-8")
    does = calling(template)
    if not does.calls or name in NO_CALLS:
        pytest.skip("writes no calls that are read")
    tricky = WRITES_NO_NULL.get(name, TRICKY)
    wanted = [("first_tool", tricky), ("second", {"text": "", "n": 0})][: 2 if does.parallel else 1]
    calls = [call(tool, json.dumps(arguments), f"abcdefgh{i}") for i, (tool, arguments) in enumerate(wanted)]
    tools = [
        {"type": "function", "function": {"name": tool, "description": "d", "parameters": SCHEMA}}
        for tool in ("first_tool", "second")
    ]
    told = [
        converse(said, Talk(template, kwargs={"tools": tools}, add_generation_prompt=prompt)).text
        for said, prompt in (([ASKED, called(*calls)], False), ([ASKED], True))
    ]
    answer = told[0][len(_OPEN_NAME.sub("", told[0][: common_prefix(*told)])) :]
    found = read(
        answer,
        answer_format(template, does, FORMATS, None, ()),
        Calls(tuple(Tool(tool, SCHEMA) for tool in ("first_tool", "second"))),
    )
    assert [(tool, json.loads(arguments)) for tool, arguments, _ in found.calls] == wanted


def test_schemas_that_a_template_cannot_tell_are_told_with_one_type():
    circles = NATIVE.replace(
        "{{ tools | tojson }}",
        "{% set a = tools[0].function.parameters.properties.a %}{% if a is defined and a.type is not string %}"
        "{{ raise_exception('circles') }}{% endif %}{{ tools | tojson }}",
    )
    properties = {
        "a": {"type": ["null", "integer"]},
        "b": {"anyOf": [{"type": "null"}, {"type": "array", "items": {}}], "title": "B"},
        "c": {"type": "object"},
    }
    parameters = {"type": "object", "properties": properties}
    told = text(
        circles, [ASKED], [{"type": "function", "function": {"name": "f", "description": "", "parameters": parameters}}]
    )
    plain = {
        "a": {"type": "integer"},
        "b": {"title": "B", "type": "array", "items": {"type": "string"}},
        "c": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    assert json.dumps({"type": "object", "properties": plain}) in told


@pytest.mark.long
@pytest.mark.skipif(not REAL, reason="make vocabs fetches the templates")
def test_the_documentation_has_the_format_of_every_real_template():
    page = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")
    for name, path in REAL.items():
        template = path.read_text(encoding="utf-8")
        found = answer_format(template, calling(template), FORMATS, None, ())
        names = ", then ".join(one.name for one in found.calls) or "none"
        assert f"| {name} | {names} |" in page, f"{name}: {names}"


def test_capabilities_have_llama_servers_names() -> None:
    plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    bare = capabilities(plain)
    assert {name for name, has in bare.items() if has} == {"supports_string_content", "supports_system_role"}
    parts = capabilities("{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}")
    assert (parts["supports_string_content"], parts["supports_typed_content"]) == (False, True)
    users = capabilities("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    assert not users["supports_system_role"]
    assert capabilities(plain + "{{ reasoning_effort }}")["supports_reasoning_effort"]
    assert capabilities(plain.replace("m.content", "m.reasoning_content ~ m.content"))["supports_preserve_reasoning"]
    assert not capabilities(plain + "{{ messages[-1].reasoning_content if messages | length == 2 }}")[
        "supports_preserve_reasoning"
    ]
    assert capabilities("{% for tool in tools %}{{ tool }}{% endfor %}" + plain)["supports_string_content"]
    assert not capabilities(plain.replace("m.content", "m.content | tojson"))["supports_typed_content"]
    assert capabilities(plain + "{{ tools }}")["supports_tools"]
