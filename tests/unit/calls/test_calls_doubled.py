"""Calls in doubled braces, `{{"name": …}}`: read where the model's own template shows them so, text elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kit.calls_kit import FORMATS, TOOLS, Said
from kit.templates_real import folder

from uad.text.calls.events import Arguments, CallStart, Content
from uad.text.calls.format import AnswerFormat, Keys
from uad.text.calls.parser import AnswerParser
from uad.text.calls.recognise import answer_format
from uad.text.calls.tools import Calls
from uad.text.templates.calling import calling

DOUBLED = AnswerFormat((FORMATS["hermes"],), doubled=True)
TEA = {"word": "tea", "n": 3}
CALL = '{{"name": "look_up", "arguments": {{"word": "tea", "n": 3}}}}'
OUTER = '{{"name": "look_up", "arguments": {"word": "tea", "n": 3}}}'
INNER = '{"name": "look_up", "arguments": {{"word": "tea", "n": 3}}}'
SAY = '{{"name": "say", "arguments": {{"text": "hi"}}}}'


def heard(text: str, format_: AnswerFormat = DOUBLED, step: int = 1, answered: object = None) -> Said:
    known = () if answered is None else (("look_up", answered),)
    parser = AnswerParser(format_, Calls(TOOLS, answered=known), whole=format_.keys_of_whole("auto"))
    events = [event for at in range(0, len(text), step) for event in parser.feed(text[at : at + step])]
    events += parser.finish(is_cut=False)
    calls = [event for event in events if isinstance(event, CallStart)]
    said = {one.index: "" for one in calls}
    for event in events:
        if isinstance(event, Arguments):
            said[event.index] += event.text
    content = "".join(event.text for event in events if isinstance(event, Content))
    return Said(content, "", [(one.name, said[one.index], one.id) for one in calls], len(calls))


def made(text: str, answered: object = None) -> list[tuple[str, object]]:
    """The calls of a text with nothing beside them, the same for every way to cut it."""
    found = heard(text, answered=answered)
    assert all(heard(text, step=step, answered=answered) == found for step in (2, 3, 5, 7, 1000))
    assert found.content == ""
    return [(name, json.loads(arguments)) for name, arguments, _ in found.calls]


def tagged(*calls: str) -> str:
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


@pytest.mark.parametrize("call", [CALL, OUTER, INNER])
@pytest.mark.parametrize("around", ["{}", "\n{}\n", "```json\n{}\n```", "[{}]", "<tool_call>\n{}\n</tool_call>"])
def test_a_call_in_doubled_braces_is_a_call_with_tags_and_without(call: str, around: str):
    assert made(around.replace("{}", call)) == [("look_up", TEA)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "a {{b}} c"},
        {"text": "}}}} {{{{"},
        {"text": '{{"name": "say"}}'},
        {"text": ""},
        {},
        {"text": "x", "more": {"deep": {"deeper": [{}, {"a": []}]}, "empty": {}}},
    ],
)
@pytest.mark.parametrize("around", ["{}", "<tool_call>\n{}\n</tool_call>"])
def test_strings_keep_their_braces_and_objects_may_be_doubled_or_not(arguments: dict[str, object], around: str):
    once = json.dumps(arguments)
    texts = [once, f"{{{once}}}"]
    if "text" not in arguments or not {*"{}"} & {*str(arguments["text"])}:
        texts.append(once.replace("{", "{{").replace("}", "}}"))
    for text in texts:
        call = f'{{{{"name": "say", "arguments": {text}}}}}'
        assert made(around.replace("{}", call, 1)) == [("say", arguments)]


def test_several_calls_are_all_read():
    both = [("look_up", TEA), ("say", {"text": "hi"})]
    assert made(tagged(CALL, SAY)) == made(tagged(f"{CALL}\n{SAY}")) == made(tagged(f"[{CALL}, {SAY}]")) == both
    assert made(f"[{CALL}, {SAY}]") == both
    assert made(tagged(SAY, CALL.replace("{{", "{").replace("}}", "}"))) == both[::-1]


@pytest.mark.parametrize(
    "call",
    [
        CALL[:-1],
        f"{CALL}}}",
        CALL[:-2],
        OUTER[:-1],
        f"{OUTER}}}",
        f"{{{CALL}}}",
        CALL.replace("}}}}", "} }}}"),
        CALL.replace("}}}}", "}}} }"),
        CALL.replace('{{"name', '{ {"name'),
        CALL.replace("look_up", "nothing"),
        CALL.replace('"n": 3', "'n': 3"),
        CALL.replace('"n": 3', '"n": 3,'),
        CALL.replace('"arguments": ', '"arguments": 3, "x": '),
    ],
)
@pytest.mark.parametrize("around", ["{}", "<tool_call>\n{}\n</tool_call>", "So: {}"])
def test_what_is_doubled_in_part_or_damaged_stays_text(call: str, around: str):
    text = around.replace("{}", call, 1)
    for step in (1, 3, 1000):
        assert heard(text, step=step) == Said(text, "", [], 0)


@pytest.mark.parametrize("call", [CALL, OUTER, INNER])
@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "[{}]", "<tool_call>\n{}\n</tool_call>"])
def test_a_call_whose_result_was_just_given_stays_text(call: str, around: str):
    text = around.replace("{}", call)
    for step in (1, 3, 1000):
        assert heard(text, step=step, answered={"n": 3.0, "word": "tea"}) == Said(text, "", [], 0)
    assert made(text, answered={"word": "tea", "n": 4}) == [("look_up", TEA)]
    assert made(text, answered='{"word": "te') == [("look_up", TEA)]


def test_beside_a_call_whose_result_was_just_given_another_one_is_made():
    for text in (tagged(CALL, SAY), tagged(SAY, CALL)):
        found = heard(text, answered=TEA)
        assert [name for name, *_ in found.calls] == ["say"]
        assert CALL in found.content


def test_no_call_of_doubled_braces_is_sent_before_it_is_whole():
    parser = AnswerParser(DOUBLED, Calls(TOOLS), whole=Keys())
    assert parser.feed(f"<tool_call>\n{CALL}") == []
    assert parser.feed("\n</tool_call>") != []
    cut = AnswerParser(DOUBLED, Calls(TOOLS), whole=Keys())
    assert cut.feed(CALL[:-1]) + cut.finish(is_cut=True) == [Content(CALL[:-1])]


def test_a_call_may_lack_arguments_and_its_schema_does_not_judge_it_in_tags():
    assert made(tagged('{{"name": "look_up"}}')) == [("look_up", {})]
    assert made(tagged('{{"name": "look_up", "arguments": {{"word": 5}}}}')) == [("look_up", {"word": 5})]
    assert made(tagged('{{"name": "look_up", "arguments": "{\\"n\\": 1}"}}')) == [("look_up", {"n": 1})]


@pytest.mark.parametrize("text", [CALL, tagged(CALL), OUTER, tagged(OUTER)])
def test_models_that_are_shown_single_braces_are_read_as_before(text: str):
    assert heard(text, replace(DOUBLED, doubled=False)) == Said(text, "", [], 0)


# --- templates

REAL = {path.stem: path for path in sorted((folder() or Path("none")).glob("templates/*.jinja"))}
SHOWN = {"NVIDIA-Nemotron-Nano-v2"}
"""Templates that show calls in doubled braces."""


@pytest.mark.parametrize("name", sorted(REAL))
def test_of_real_templates_those_that_show_doubled_braces_are_known(name: str):
    template = REAL[name].read_text(encoding="utf-8")
    does = calling(template)
    assert does.doubled == answer_format(template, does, FORMATS, None, ()).doubled == (name in SHOWN)


@pytest.mark.skipif(not REAL, reason="make vocabs fetches the templates")
def test_a_template_like_qwen_2_5_coders_has_its_calls_read():
    plain = REAL["Qwen-Qwen2.5-7B-Instruct"].read_text(encoding="utf-8")
    shown = '{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}'
    assert shown in plain
    template = plain.replace(shown, f"{{{shown}}}")
    format_ = answer_format(template, calling(template), FORMATS, None, ())
    assert (format_.calls, format_.doubled) == ((FORMATS["hermes"],), True)
    assert heard(tagged(OUTER), format_).calls == heard(OUTER, format_).calls != []


@pytest.mark.skipif(not REAL, reason="make vocabs fetches the templates")
def test_a_list_in_doubled_braces_is_read_as_its_template_shows_it():
    template = REAL["NVIDIA-Nemotron-Nano-v2"].read_text(encoding="utf-8")
    format_ = answer_format(template, calling(template), FORMATS, None, ())
    found = heard(f"<TOOLCALL>[{OUTER}, {SAY}]</TOOLCALL>", format_)
    assert ([name for name, *_ in found.calls], found.content) == (["look_up", "say"], "")


def test_a_template_that_writes_its_calls_in_doubled_braces_has_a_format():
    template = (
        "{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
        '<tool_call>\n{{ \'{{"name": "\' + c.function.name + \'", "arguments": \' }}{{ c.function.arguments | tojson }}'
        "{{ '}}' }}\n</tool_call>{% endfor %}</{{ m.role }}>{% endfor %}"
    )
    does = calling(template)
    assert does.doubled
    assert answer_format(template, does, FORMATS, None, ()).calls == (FORMATS["hermes"],)
