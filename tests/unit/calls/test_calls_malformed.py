"""What models write wrong in their calls, in every format: it is read as it is meant where that is plain, and nothing
of it vanishes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from kit.calls_kit import ALL, FILES, FORMATS, Said, said, said_in_pieces

from uad.text.calls.format import AnswerFormat, CallFormat
from uad.text.calls.tools import Calls, Tool

JSON_ARGUMENTS = re.compile(r"\{\"word\": \"tea\", \"n\": 3\}")
JSON_FORMATS = sorted(name for name, one in FORMATS.items() if JSON_ARGUMENTS.search(one.example))
TAGGED = sorted(name for name, one in FORMATS.items() if one.tags is not None)
TEA = {"word": "tea", "n": 3}


def read(name: str, text: str, is_cut: bool = False, calls: Calls = ALL) -> Said:
    """What a text says, and the same letter by letter."""
    format_ = AnswerFormat((FORMATS[name],))
    found = said(text, format_, calls, is_cut=is_cut)
    assert said_in_pieces(text, format_, calls, is_cut=is_cut) == found
    return found


def only(found: Said) -> object:
    """The arguments of the only call, with nothing beside it."""
    assert found.content.strip() == ""
    ((name, text, _),) = found.calls
    assert name == "look_up"
    return json.loads(text)


MENDED = {
    "a line end in a string": ('{"word": "t\ne\r\na", "n": 3}', {"word": "t\ne\r\na", "n": 3}),
    "control characters in a string": ('{"word": "t\te\x1ba\x00", "n": 3}', {"word": "t\te\x1ba\0", "n": 3}),
    "a comma too many": ('{"word": "tea", "n": 3, }', TEA),
    "a comma too many in a list": ('{"word": ["tea", ], "n": 3,\n}', {"word": ["tea"], "n": 3}),
    "a brace too few": ('{"word": "tea", "n": 3', TEA),
    "a brace too few behind a string": ('{"n": 3, "word": "tea"', TEA),
    "a bracket too few": ('{"n": 3, "word": ["tea"}', {"n": 3, "word": ["tea"]}),
    "a brace too many": ('{"word": "tea", "n": 3}}', TEA),
    "braces too many": ('{"word": "tea", "n": 3}\n}}', TEA),
    "quotation marks in a string": ('{"word": "say "tea", now", "n": 3}', {"word": 'say "tea", now', "n": 3}),
    "a backslash that means nothing": ('{"word": "\\d\\.\\u12", "n": 3}', {"word": "\\d\\.\\u12", "n": 3}),
    "an apostrophe with a backslash": ('{"word": "it\\\'s", "n": 3}', {"word": "it's", "n": 3}),
    "Python's quotation marks": ("{'word': 'tea', 'n': 3}", TEA),
    "Python's constants": ('{"word": None, "n": True}', {"word": None, "n": True}),
    "names without quotation marks": ("{word: tea, n: 3}", TEA),
    "numbers that are none": ('{"word": NaN, "n": 1e999}', {"word": "NaN", "n": "1e999"}),
    "a number that is none in JSON": ('{"word": "tea", "n": +3.}', {"word": "tea", "n": 3.0}),
    "a text of JSON": (json.dumps(json.dumps(TEA)), TEA),
    "a text of JSON with a line end": ('"{\\"word\\": \\"t\\na\\"}"', {"word": "t\na"}),
    "a text of JSON with a brace too few": ('"{\\"word\\": \\"tea\\""', {"word": "tea"}),
    "an empty text": ('""', {}),
    "an empty list": ("[]", {}),
    "null": ("null", {}),
    "an empty object": ("{ }", {}),
}


@pytest.mark.parametrize("fault", MENDED)
@pytest.mark.parametrize("name", JSON_FORMATS)
def test_json_with_a_usual_fault_is_read_as_it_is_meant(name: str, fault: str):
    written, wanted = MENDED[fault]
    example = FORMATS[name].example.replace(', "id": "a1b2c3d4e"', "")  # which would be a member of the arguments
    assert only(read(name, JSON_ARGUMENTS.sub(lambda _: written, example))) == wanted


@pytest.mark.parametrize("name", [name for name in JSON_FORMATS if FORMATS[name].body == "named"])
def test_a_tool_without_arguments_needs_no_body(name: str):
    assert only(read(name, JSON_ARGUMENTS.sub("", FORMATS[name].example))) == {}


UNREADABLE = {
    "no value": ('{"word": "tea", "n": }', {"word": "tea"}),
    "two values": ('{"word": "tea", "n": 3 4 "x"}', {"word": "tea"}),
    "no colon": ('{"word": "tea", "n" 3}', {"word": "tea"}),
    "no name": ('{"n": 3, : "tea"}', {"n": 3}),
    "no comma": ('{"n": 3, "word": ["tea"] "x": 1}', {"n": 3, "word": ["tea"]}),
    "another bracket": ('{"word": "tea", "n": 3)}', TEA),
    "too deep": ('{"word": "tea", "n": ' + "[" * 300 + "]" * 300 + "}", None),
}


@pytest.mark.parametrize("fault", UNREADABLE)
@pytest.mark.parametrize("name", JSON_FORMATS)
def test_a_call_ends_where_it_cannot_be_read_and_the_rest_is_content(name: str, fault: str):
    written, wanted = UNREADABLE[fault]
    answer = JSON_ARGUMENTS.sub(lambda _: written, FORMATS[name].example)
    found = read(name, answer)
    ((tool, text, _),) = found.calls
    assert tool == "look_up"
    assert wanted in (None, json.loads(text))
    assert lost(answer, found, FORMATS[name]) == []


# --- the objects around arguments


def hermes(text: str) -> Said:
    return read("hermes", f"<tool_call>\n{text}\n</tool_call>")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"name": "look_up", "arguments": {"word": "tea"}', {"word": "tea"}),
        ('{"name": "look_up", "arguments": {"word": "tea"}, }', {"word": "tea"}),
        ('{"name": "look_up", "arguments": {"word": "tea"}}}', {"word": "tea"}),
        ('{"arguments": {"word": "tea",}, "name": "look_up"', {"word": "tea"}),
        ('{"name": "look_up"', {}),
        ('{"name": "look_up",}', {}),
        ('{"name": "look_up", "word": "tea", "n": 3}', TEA),
        ('{"type": "function", "name": "look_up", "arguments": {"word": "tea"}, "id": "1"}', {"word": "tea"}),
        ('{"name": "look_up", "parameters": {"word": "tea"}}', {"word": "tea"}),
        ("{'name': 'look_up', 'arguments': {'word': 'tea'}}", {"word": "tea"}),
        ('[{"name": "look_up", "arguments": {"word": "tea"}}]', {"word": "tea"}),
    ],
)
def test_an_object_with_a_usual_fault_is_read_as_it_is_meant(text: str, wanted: object):
    assert only(hermes(text)) == wanted


def test_members_that_a_call_does_not_have_are_content():
    found = hermes('{"thought": "hm", "name": "look_up", "arguments": {"word": "tea"}, "parameters": {"n": 3}}')
    assert [text for _, text, _ in found.calls] == ['{"word": "tea"}']
    assert found.content == '{"thought": "hm", "parameters": {"n": 3}}'


def test_what_stands_between_calls_of_a_list_stays_readable():
    call = '{"name": "look_up", "arguments": {"word": "tea"}'
    found = read("mistral-nemo", f"[TOOL_CALLS][{call}}}}}, {call}}},]")
    assert ([name for name, *_ in found.calls], found.content) == (["look_up", "look_up"], "")
    found = read("gigachat-3.1", f"<|function_call|>{call}}} and so on")
    assert ([name for name, *_ in found.calls], found.content) == (["look_up"], "and so on")


# --- tags


def tagged(name: str, *values: tuple[str, str], ending: str = "") -> str:
    """A call of `say` as the format's example has it, with these arguments; without its end if an ending is given."""
    format_ = FORMATS[name]
    assert format_.tags is not None
    before, _, rest = format_.example.partition("look_up")
    gap = rest.partition(format_.tags.key)[0]
    key = re.escape(format_.tags.key)
    found = re.search(rf"{key}word(?P<after>.*?)tea(?P<close>.*?)(?={key}|\Z)", format_.example, re.DOTALL)
    assert found is not None
    close = format_.tags.value_end if "{key}" in format_.tags.value_end else found["close"]
    ends = [close.replace("{key}", name_) for name_, _ in values[:-1]]
    ends.append(ending or format_.example.rpartition("3")[2].replace("</n>", f"</{values[-1][0]}>", 1))
    made = zip(values, ends, strict=True)
    one = (f"{format_.tags.key}{key_}{found['after']}{text}{end}" for (key_, text), end in made)
    return f"{before}say{gap}{''.join(one)}"


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize("is_last", [True, False])
def test_a_value_may_hold_its_closing_tag(name: str, is_last: bool):
    tags = FORMATS[name].tags
    assert tags is not None
    close = tags.value_end.replace("{key}", "text")
    for value in (f"Close it with {close} here.", f"{close}{close} x", f"a\n {close}b\n", f"a{tags.key}", f"<{close}<"):
        answer = tagged(name, ("text", value), *([] if is_last else [("more", "1")]))
        found = read(name, answer)
        ((tool, text, _),) = found.calls
        assert (tool, json.loads(text)["text"], found.content.strip()) == ("say", value, "")


def test_a_value_on_lines_of_its_own_never_ends_in_mid_line():
    value = "Write </parameter>\n<parameter=b> and </parameter>\n</function>\n</tool_call> so."
    found = read("qwen3-coder", tagged("qwen3-coder", ("text", value)))
    assert [json.loads(text) for _, text, _ in found.calls] == [{"text": value}]


@pytest.mark.parametrize(
    "answer",
    [
        "<tool_call>\n<function=say>\n<parameter=text>\n  hi\n  </parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=say>\n<parameter=text>  hi</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=say>\n<parameter=text>\n  hi\n</parameter>\n</tool_call>",
        "<tool_call>\n<function=say>\n<parameter=text>\n  hi\n</parameter>\n",
        "<tool_call>\n<function=say>\n<parameter=text>\n  hi",
        '<tool_call>\n<function=say>\n{"text": "  hi"}\n</function>\n</tool_call>',
        '<tool_call>\n<function=say>{"text": "  hi"',
    ],
)
def test_tags_with_a_usual_fault_are_read_as_they_are_meant(answer: str):
    found = read("qwen3-coder", answer)
    assert ([json.loads(text) for _, text, _ in found.calls], found.content) == ([{"text": "  hi"}], "")


def test_a_call_without_its_end_goes_on_with_the_next_one():
    one = "<function=say>\n<parameter=text>\nhi\n</parameter>\n"
    found = read("qwen3-coder", f"<tool_call>\n{one}{one}</function>\n</tool_call>")
    assert [json.loads(text) for _, text, _ in found.calls] == [{"text": "hi"}, {"text": "hi"}]


def test_a_text_keeps_its_quotation_marks_where_the_schema_says_text_or_null():
    found = read("qwen3-coder", CODER_MIXED.replace("VALUE", '"use strict"'))
    assert json.loads(found.calls[0][1]) == {"maybe": '"use strict"'}


CODER_MIXED = "<tool_call>\n<function=mixed>\n<parameter=maybe>\nVALUE\n</parameter>\n</function>\n</tool_call>"


def test_json_in_tags_with_a_line_end_in_a_string_is_json():
    answer = CODER_MIXED.replace("maybe", "list").replace("VALUE", '["a\nb", True]')
    assert json.loads(read("qwen3-coder", answer).calls[0][1]) == {"list": ["a\nb", True]}


# --- Gemma's notation and Python's

GEMMA_TOOL = Calls(
    (
        Tool(
            "run",
            {
                "type": "object",
                "properties": {
                    "code": {"type": "string"},
                    "n": {"type": "integer"},
                    "list": {"type": "array", "items": {"type": "string"}},
                    "at": {"$ref": "#/$defs/P"},
                    "maybe": {"type": ["string", "null"]},
                },
                "$defs": {"P": {"type": "object", "properties": {"x": {"type": "string"}}}},
            },
        ),
    )
)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ('code:<|"|>say <|"|>hi<|"|> now<|"|>,n:1', {"code": 'say <|"|>hi<|"|> now', "n": 1}),
        ('code:<|"|>a<|"|>, b<|"|>,n:1', {"code": 'a<|"|>, b', "n": 1}),
        ('code:<|"|>a, b: {c}\n<|"|>', {"code": "a, b: {c}\n"}),
        ('n:<|"|>3<|"|>,code:5', {"n": 3, "code": "5"}),
        ("code:true,list:[1,null,x y]", {"code": "true", "list": ["1", "null", "x y"]}),
        ('at:{x:5,y:5},maybe:None,any:<|"|>5<|"|>', {"at": {"x": "5", "y": 5}, "maybe": None, "any": "5"}),
        ('<|"|>code<|"|>:<|"|><|"|>,<|"|>b c<|"|>:"d\\n"', {"code": "", "b c": "d\n"}),
        ("code:http://a.b/c?d,n:-1.5e3", {"code": "http://a.b/c?d", "n": -1500.0}),
        ('code:<|"|>a<|"|>,', {"code": "a"}),
        ("", {}),
    ],
)
@pytest.mark.parametrize("ending", ["}<tool_call|>", "}", "}}<tool_call|>", "<tool_call|>", ""])
def test_gemmas_notation_is_read_by_the_schema(written: str, wanted: object, ending: str):
    found = read("gemma-4", f"<|tool_call>call:run{{{written}{ending}", calls=GEMMA_TOOL)
    assert ([json.loads(text) for _, text, _ in found.calls], found.content) == ([wanted], "")


PYTHON_TOOLS = Calls((Tool("send"), Tool("get-weather"), Tool("a.b"), Tool("class")))


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ('send(from="a@b")', [("send", {"from": "a@b"})]),
        ("get-weather(in-city='x', n=-5, f=-1.5e-3)", [("get-weather", {"in-city": "x", "n": -5, "f": -0.0015})]),
        ("class(class=None, a=True, b=true, c=null)", [("class", {"class": None, "a": True, "b": True, "c": None})]),
        (
            "a.b(x=[1, (2, 'c'), {'d': {5: []}}]), send()",
            [("a.b", {"x": [1, [2, "c"], {"d": {"5": []}}]}), ("send", {})],
        ),
        ("send(a='it's', b=1)", [("send", {"a": "it's", "b": 1})]),
        ("send(a='print('x')')", [("send", {"a": "print('x')"})]),
        ("send(a='''x\n'y'\n''')", [("send", {"a": "x\n'y'\n"})]),
        ("send(a=''')", [("send", {"a": "'"})]),
        ('send(a="\\x41\\u0042\\t\\d\\\\")', [("send", {"a": "AB\t\\d\\"})]),
        ("send(a=celsius, b=1_000, c=05,)", [("send", {"a": "celsius", "b": 1000, "c": "05"})]),
        ('send(a="<|tool_call_end|>")', [("send", {"a": "<|tool_call_end|>"})]),
    ],
)
@pytest.mark.parametrize(("start", "ending"), [("[", "]"), ("", ""), ("[", ""), ("[", ")]"), ("[", ",]")])
def test_pythons_calls_are_read_without_python(written: str, wanted: object, start: str, ending: str):
    found = read("lfm2", f"<|tool_call_start|>{start}{written}{ending}<|tool_call_end|>", calls=PYTHON_TOOLS)
    assert ([(name, json.loads(text)) for name, text, _ in found.calls], found.content) == (wanted, "")


# --- harmony

HEADER = " to=functions.look_up<|channel|>commentary json<|message|>"


def test_a_message_to_a_tool_that_cannot_be_read_is_content_with_its_header():
    for text in (f"{HEADER}what?<|call|>", f"{HEADER.replace('look_up', 'nothing')}{{}}<|call|>"):
        found = read("harmony", text)
        assert (found.calls, found.content) == ([], text.removesuffix("<|call|>").replace("<|message|>", ""))


def test_what_stands_behind_a_call_in_its_message_is_content():
    found = read("harmony", f'{HEADER}{{"word": "<|call|>"}} so<|call|>')
    assert ([text for _, text, _ in found.calls], found.content) == (['{"word": "<|call|>"}'], "so")


# --- nothing vanishes, whatever it is

MARKUP = {"name", "arguments", "parameters", "function", "functions", "json", "string", "number", "type", "index"}
MARKUP |= {
    "a1b2c3d4e",
    "1",
    "0",
    "true",
    "false",
    "id",
    "tool",
    "call",
    "end",
    "start",
    "item",
    "commentary",
    "to",
    "null",
}


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def lost(answer: str, found: Said, format_: CallFormat) -> list[str]:
    """Words of an answer that are neither said nor part of a call. What formats are made of does not count."""
    texts = [*format_.markers(), format_.keys.name, format_.keys.arguments, format_.keys.id]
    known = MARKUP | {word for text in texts for word in words_of(text)}
    answer = answer.partition("<|message|>")[2] if format_.channels and found.calls else answer
    for marker in format_.markers():
        answer = answer.replace(marker, " ")
    arguments = [json_texts(text) for _, text, _ in found.calls]
    shown = " ".join([found.content, found.thought, *(name + id_ for name, _, id_ in found.calls), *arguments])
    return [word for word in words_of(answer) if word not in known and word not in shown]


def json_texts(text: str) -> str:
    """A text, and what it says as JSON."""
    try:
        return f"{text} {json.dumps(json.loads(text), ensure_ascii=False)}"
    except ValueError:
        return text


def edits(text: str) -> Iterator[str]:
    """The text with one letter less, or with something that does not belong there; but for harmony's header, which
    nobody sees.
    """
    for at in range(text.find("<|message|>") + 1, len(text) + 1):
        yield text[:at] + text[at + 1 :]
        yield text[:at] + ("qqq", '"', "}", ",", "\n", " qqq ", "'")[at % 7] + text[at:]


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_of_a_damaged_call_vanishes(name: str):
    example = FORMATS[name].example.replace("tea", "zebra").replace(" 3", " 7431")
    example = example.replace(', "id": "a1b2c3d4e"', "")  # an id that comes too late is not told
    for answer in edits(example):
        found = said(answer, AnswerFormat((FORMATS[name],)), is_cut=False)
        assert lost(answer, found, FORMATS[name]) == [], answer
        assert all(isinstance(json.loads(text), dict) for _, text, _ in found.calls), answer


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_of_an_answer_that_ends_anywhere_vanishes(name: str):
    example = FORMATS[name].example.replace("tea", "zebra ox").replace(" 3", " 7431")
    for at in range(len(example)):
        for is_cut in (True, False):
            found = said(example[:at], AnswerFormat((FORMATS[name],)), is_cut=is_cut)
            assert lost(example[:at].rpartition(" ")[0], found, FORMATS[name]) == [], example[:at]
            if not is_cut:
                assert all(isinstance(json.loads(text), dict) for _, text, _ in found.calls), example[:at]
