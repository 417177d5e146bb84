"""Answers that are JSON calls as a whole: which are, and that any other flows as soon as it cannot be one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.calls_kit import FORMATS

from uad.text.calls.events import Arguments, CallEnd, CallEvent, CallStart, Content, Thought
from uad.text.calls.format import AnswerFormat, Keys
from uad.text.calls.parser import AnswerParser
from uad.text.calls.strict import MAX_DEPTH, MAX_WHOLE_CHARS
from uad.text.calls.tools import Calls, Tool

HERMES = AnswerFormat((FORMATS["hermes"],))
LOOK_UP = Tool(
    "look_up",
    {
        "type": "object",
        "properties": {
            "word": {"type": "string", "enum": ["tea", "milk"]},
            "n": {"type": "integer", "minimum": 1},
            "list": {"type": "array", "items": {"type": "number"}},
            "place": {"$ref": "#/$defs/place"},
        },
        "required": ["word"],
        "additionalProperties": False,
        "$defs": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}},
    },
)
SAY = Tool("say", {"type": "object", "properties": {"text": {"type": "string"}}})
CALLS = Calls((LOOK_UP, SAY))
ARGUMENTS = '{"word": "tea", "n": 3}'
CALL = f'{{"name": "look_up", "arguments": {ARGUMENTS}}}'


def heard(text: str, is_cut: bool = False, step: int = 1, format_: AnswerFormat = HERMES) -> list[CallEvent]:
    parser = AnswerParser(format_, CALLS, whole=format_.keys_of_whole("on"))
    events = [event for at in range(0, len(text), step) for event in parser.feed(text[at : at + step])]
    return events + parser.finish(is_cut)


def texts(events: list[CallEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Content))


def call(arguments: str, index: int = 0, name: str = "look_up", id_: str = "") -> list[CallEvent]:
    return [CallStart(index, name, id_), Arguments(index, arguments), CallEnd(index)]


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"\n {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```\n",
        f"```JSON {CALL}```",
        f"```json\n{CALL}",
        f"[{CALL}]",
        f'{{"arguments": {ARGUMENTS}, "name": "look_up"}}',
        f'{{"name": "look_up", "parameters": {ARGUMENTS}}}',
        f'{{"type": "function", "index": 0, "name": "look_up", "arguments": {ARGUMENTS}}}',
    ],
)
def test_such_an_answer_is_a_call_with_the_arguments_as_they_are_written(text: str, step: int) -> None:
    assert heard(text, step=step) == call(ARGUMENTS)


def test_arguments_may_be_a_text_and_lack_escapes_of_line_ends() -> None:
    assert heard(f'{{"name": "look_up", "arguments": {json.dumps(ARGUMENTS)}}}') == call(ARGUMENTS)
    assert heard('{"name": "say", "arguments": {"text": "a\n\tb"}}') == call('{"text": "a\\n\\tb"}', name="say")


def test_a_list_in_a_fence_is_several_calls() -> None:
    other = '{"id": "abcdefghi", "name": "say", "arguments": {"text": "\\"\\u00e4\\n\\\\"}}'
    found = heard(f"```json\n[\n  {CALL},\n  {other}\n]\n```")
    assert found == call(ARGUMENTS) + call('{"text": "\\"\\u00e4\\n\\\\"}', 1, "say", "abcdefghi")


def test_a_call_may_come_after_a_thought() -> None:
    assert heard(f"<think>\nHm.\n</think>\n\n{CALL}")[-3:] == call(ARGUMENTS)
    cut = heard(f"<think>Hm.</think>{CALL} so", step=1000)
    assert cut == [Thought("Hm."), Content(f"{CALL} so")]


def test_members_may_be_called_as_the_format_calls_them() -> None:
    format_ = AnswerFormat((FORMATS["command-r"],))
    assert format_.keys_of_whole("auto") == Keys("tool_name", "parameters")
    assert heard(f'{{"tool_name": "look_up", "parameters": {ARGUMENTS}}}', format_=format_) == call(ARGUMENTS)


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_s_own_calls_are_read_as_before(name: str) -> None:
    format_ = AnswerFormat((FORMATS[name],))
    example = format_.calls[0].example
    calls = Calls((Tool("look_up", {"type": "object", "properties": {"word": {"type": "string"}}}),))
    for step in (1, 1000):
        found = []
        for whole in (None, format_.keys_of_whole("on")):
            parser = AnswerParser(format_, calls, whole=whole)
            events = [event for at in range(0, len(example), step) for event in parser.feed(example[at : at + step])]
            found.append(events + parser.finish(is_cut=False))
        assert found[0] == found[1]
        assert any(isinstance(event, CallStart) for event in found[0])


DEEP = "[" * (MAX_DEPTH + 1)
NO_CALLS = [
    ('```python\nprint("a")\n```', "```p"),
    ("``` x", "``` x"),
    ("``x", "``x"),
    ("Hello", "H"),
    ("{}", "{}"),
    ("[]", "[]"),
    ("[1]", "[1"),
    ('{"city": "Paris"}', '{"c'),
    ('{"nam":', '{"nam"'),
    ('{"name" "', '{"name" "'),
    ('{"name": "Alice", "age": 3}', '{"name": "A'),
    ('{"name": "look_ups"}', '{"name": "look_ups'),
    ('{"name": "look"}', '{"name": "look"'),
    ('{"name": ["look_up"]}', '{"name": ['),
    ('{"name": "look_up", "age": 3}', '{"name": "look_up", "ag'),
    ('{"name": "look_up", "name": "say"}', '{"name": "look_up", "n'),
    ('{"name": "look_up"}', '{"name": "look_up"}'),
    ('{"name": "look_up", "arguments": null}', '{"name": "look_up", "arguments": n'),
    ('{"name": "look_up", "arguments": "{}"}', '{"name": "look_up", "arguments": "{}"}'),
    ('{"name": "look_up", "arguments": "tea"}', '{"name": "look_up", "arguments": "tea"}'),
    ('{"name": "say", "arguments": "{\\"x\\": NaN}"}', '{"name": "say", "arguments": "{\\"x\\": NaN}"}'),
    ('{"name": "say", "arguments": "[1]"}', '{"name": "say", "arguments": "[1]"}'),
    ('{"name": "look_up", "arguments": {"wort": "tea"}}', '{"name": "look_up", "arguments": {"wort"'),
    ('{"name": "look_up", "arguments": {"word": 3}}', '{"name": "look_up", "arguments": {"word": 3'),
    ('{"name": "look_up", "arguments": {"word": "x"}}', '{"name": "look_up", "arguments": {"word": "x"'),
    ('{"name": "look_up", "arguments": {"n": 0}}', '{"name": "look_up", "arguments": {"n": 0}'),
    ('{"name": "look_up", "arguments": {"n": 1.5, ', '{"name": "look_up", "arguments": {"n": 1.5,'),
    ('{"name": "look_up", "arguments": {"n": 01', '{"name": "look_up", "arguments": {"n": 01'),
    ('{"name": "look_up", "arguments": {"n": nil', '{"name": "look_up", "arguments": {"n": n'),
    ('{"name": "look_up", "arguments": {"list": ["', '{"name": "look_up", "arguments": {"list": ["'),
    ('{"name": "look_up", "arguments": {"list": [1,]', '{"name": "look_up", "arguments": {"list": [1,]'),
    ('{"name": "look_up", "arguments": {"place": {"x": "', '{"name": "look_up", "arguments": {"place": {"x": "'),
    ('{"name": "look_up", "arguments": {"n": 3}}', '{"name": "look_up", "arguments": {"n": 3}}'),
    ('{"name": "say", "arguments": {"text": "\\x"}}', '{"name": "say", "arguments": {"text": "\\x'),
    ('{"name": "say", "arguments": {"text": "\\u00g"}}', '{"name": "say", "arguments": {"text": "\\u00g'),
    (f'{{"name": "say", "arguments": {{"x": {DEEP}', f'{{"name": "say", "arguments": {{"x": {DEEP}'),
    (f"{CALL} so", f"{CALL} s"),
    (f"{CALL}\n{CALL}", f"{CALL}\n{{"),
    (f"{CALL}```", f"{CALL}`"),
    (f"[{CALL} {CALL}]", f"[{CALL} {{"),
    (f"```json\n{CALL}\n```\nSo.", f"```json\n{CALL}\n```\nS"),
    (f"```json\n{CALL}\nso", f"```json\n{CALL}\ns"),
    (f"So:\n```json\n{CALL}\n```", "S"),
]


@pytest.mark.parametrize(("text", "begun"), NO_CALLS, ids=[text[:60] for text, _ in NO_CALLS])
def test_any_other_answer_flows_with_the_first_letter_that_no_call_has(text: str, begun: str) -> None:
    plain, judged = AnswerParser(HERMES, CALLS), AnswerParser(HERMES, CALLS, whole=Keys())
    said = ["", ""]
    for n, letter in enumerate(text, 1):
        for i, parser in enumerate((plain, judged)):
            said[i] += texts(parser.feed(letter))
        assert said[1] == (said[0] if n >= len(begun) else ""), text[:n]
    assert texts(heard(text)) == text
    assert not any(isinstance(event, CallStart) for event in heard(text))


@pytest.mark.parametrize("text", [CALL, f"```json\n{CALL}\n```", CALL[:-1], CALL[:30], "```js", "{"])
def test_an_answer_that_was_cut_is_text(text: str) -> None:
    assert texts(heard(text, is_cut=True)) == text
    assert not any(isinstance(event, CallStart) for event in heard(text, is_cut=True))


def test_what_the_request_says_of_a_tool_is_no_call_of_it() -> None:
    text = f'{{"name": "say", "parameters": {json.dumps(SAY.parameters)}}}'
    assert texts(heard(text)) == text
    assert texts(heard(f"[{text}]")) == f"[{text}]"


def test_calls_in_their_own_markers_may_come_after_such_a_beginning() -> None:
    found = heard(f'{{"name": "Alice"}}\n<tool_call>\n{CALL}\n</tool_call>')
    assert texts(found) == '{"name": "Alice"}'
    assert "".join(one.text for one in found if isinstance(one, Arguments)) == ARGUMENTS


def test_an_answer_that_is_too_long_is_content() -> None:
    parser = AnswerParser(HERMES, CALLS, whole=Keys())
    assert parser.feed('{"name": "say", "arguments": {"text": "' + "a" * (MAX_WHOLE_CHARS - 100)) == []
    assert len(texts(parser.feed("a" * 100))) > MAX_WHOLE_CHARS


WORDS = ['{"name": "say", "arguments": ', '{"text": "a"}', "```", "json", "\n", *'{}[],:" x1\\', '"n"', CALL]


@given(st.lists(st.sampled_from(WORDS), max_size=8), st.integers(1, 9))
def test_how_an_answer_is_cut_changes_nothing_and_nothing_vanishes(pieces: list[str], step: int) -> None:
    text = "".join(pieces)
    whole, cut = heard(text, step=max(len(text), 1)), heard(text, step=step)
    assert (texts(whole), [one for one in whole if isinstance(one, CallStart)]) == (
        texts(cut),
        [one for one in cut if isinstance(one, CallStart)],
    )
    plain = AnswerParser(HERMES, CALLS)
    unjudged = plain.feed(text) + plain.finish(False)
    if not any(isinstance(one, CallStart) for one in whole):
        assert texts(whole) == texts(unjudged)
