"""However the text of an answer is cut, it says the same; and whatever it is, all of it is told."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.calls_kit import FILES, FORMATS, TOOLS, Said, said, said_in_pieces
from test_calls_formats import CASES, MALFORMED, Case

from uad.text.calls.events import Content
from uad.text.calls.format import AnswerFormat
from uad.text.calls.parser import MAX_AGAIN_CHARS, AnswerParser
from uad.text.calls.source import SoughtTexts
from uad.text.calls.tools import Calls
from uad.text.calls.values import GEMMA, escaped, of_json, of_tags, of_text, quoted, read_whole

TEXTS = [
    *CASES,
    *(Case(name, f"a {text} b") for name, text in MALFORMED),
    *(Case(name, file.format.example) for name, file in FILES.items()),
]


def cut(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted({min(one, len(text)) for one in at}), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def whole(case: Case, pieces: list[str] | None = None) -> Said:
    format_ = AnswerFormat((FORMATS[case.format],), case.thoughts)
    return said_in_pieces([case.text] if pieces is None else pieces, format_, start=case.start)


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: f"{case.format}: {case.text[:60]}")
def test_character_by_character_says_the_same(case: Case):
    assert whole(case, list(case.text)) == whole(case)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TEXTS), st.lists(st.integers(0, 300), max_size=8))
def test_any_cut_says_the_same(case: Case, at: list[int]):
    assert whole(case, cut(case.text, at)) == whole(case)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_cut_of_any_mixture_of_markers_says_the_same(data: st.DataObject):
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    markers = [
        *FORMATS[name].markers(),
        '{"name": "say", "arguments": ',
        '{"text": "a"}',
        "say",
        "look_up",
        "{",
        "}",
        '"',
        " ",
        "\n",
        "x",
        "<",
        "[",
        "]",
    ]
    text = "".join(data.draw(st.lists(st.sampled_from(markers), max_size=14)))
    at = data.draw(st.lists(st.integers(0, 200), max_size=8))
    format_ = AnswerFormat((FORMATS[name],))
    assert said_in_pieces(cut(text, at), format_) == said(text, format_)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='ab<|>{}[]"\\\n tool_call', max_size=60), st.sampled_from(sorted(FORMATS)))
def test_text_without_a_call_comes_out_as_it_is(text: str, name: str):
    found = said(text, AnswerFormat((FORMATS[name],)))
    if (
        not found.calls
        and not found.thought
        and "<think>" not in text
        and not FORMATS[name].channels
        and not FORMATS[name].plain
    ):
        assert found.content == text


def test_what_looks_like_calls_again_and_again_is_not_read_for_ever():
    text = '<tool_call>{"x":{' * 20_000
    parser = AnswerParser(AnswerFormat((FORMATS["hermes"],)), Calls(TOOLS))
    events = parser.feed(text) + parser.finish()
    assert "".join(event.text for event in events if isinstance(event, Content)) == text
    assert parser._source.n_again < MAX_AGAIN_CHARS + len(text)


def test_a_word_that_may_still_begin_is_held_back():
    assert SoughtTexts("ab", "b", "abc<").held_from("xxabc", 0) == 2
    assert SoughtTexts("ab", "b", "abc<").held_from("xxabd", 0) == 5


@pytest.mark.parametrize(
    ("raw", "types", "json"),
    [
        ("5", {"integer"}, "5"),
        ("5", {"string"}, '"5"'),
        ("5", set(), "5"),
        ("5", {"string", "integer"}, "5"),
        ("x5", {"integer"}, '"x5"'),
        ("True", {"boolean"}, "true"),
        ("True", {"string", "null"}, '"True"'),
        ("null", {"string", "null"}, "null"),
        ("None", {"object", "null"}, "null"),
        ('{"a": 1}', {"object"}, '{"a": 1}'),
        ("{'a': [True, None]}", {"object"}, '{"a": [true, null]}'),
        ("{'a': f()}", {"object"}, "\"{'a': f()}\""),
        ("None", {"string", "null"}, "null"),
        (" [1]\n", {"array"}, "[1]"),
        ("1.5e3", {"number"}, "1.5e3"),
        ("01", {"number"}, '"01"'),
        ('say "a"\n', {"string"}, '"say \\"a\\"\\n"'),
    ],
)
def test_texts_become_what_the_schema_says(raw: str, types: set[str], json: str):
    assert of_text(raw, frozenset(types)) == json


def test_json_that_is_none_is_a_string():
    assert (of_json("[1,"), of_json("nothing"), of_json("3")) == ('"[1,"', '"nothing"', "3")
    assert escaped('a"b\n') == quoted('a"b\n')[1:-1]


@pytest.mark.parametrize("text", ["", "{", "{a}", "{a:1", '{a:<|"|>x}', "{a:1} b", "[" * 300 + "]" * 300])
def test_what_is_not_gemmas_notation_is_told(text: str):
    with pytest.raises(ValueError, match=r"\w"):
        read_whole(text, GEMMA)


def lfm(text: str) -> Said:
    return said(f"<|tool_call_start|>{text}<|tool_call_end|>", AnswerFormat((FORMATS["lfm2"],)))


def test_python_strings_may_go_over_lines_and_hold_any_backslash():
    found = lfm('mixed(a="x\ny\\q", b=\'"\\\\q\')')
    assert found.calls == [("mixed", '{"a": "x\\ny\\\\q", "b": "\\"\\\\q"}', "")]


@pytest.mark.parametrize(
    ("raw", "json"),
    [
        ("5", '"5"'),
        ("]<item>1]</item>]<item>x]</item>", '[1, "x"]'),
        ("]<a>1]</a>]<b>]<item>2]</item>]</b>", '{"a": "1", "b": [2]}'),
        ("]<b>]</b>", '{"b": []}'),
        ("]<a>1", '"]<a>1"'),
        ("]<a>1]</b>", '"]<a>1]</b>"'),
        ("]<a>" * 70 + "]</a>" * 70, f'"{"]<a>" * 70 + "]</a>" * 70}"'),
    ],
)
def test_tags_in_tags(raw: str, json: str):
    schema = {"type": ["object", "string"], "properties": {"a": {"type": "string"}, "b": {"type": "array"}}}
    assert of_tags(raw, "]", schema, schema) == json


@pytest.mark.parametrize("text", ["say(1)", "say(**a)", "say('a')", "f(a=1)", "x", "[say]", "say(a b=1)"])
def test_what_is_no_python_call_of_a_tool_is_content(text: str):
    assert lfm(text).content == f"<|tool_call_start|>{text}<|tool_call_end|>"


@pytest.mark.parametrize("rest", ["a=g())]", "a=" + "(" * 9000 + ")]"])
def test_a_python_call_that_cannot_be_read_has_what_there_is_and_the_rest_is_content(rest: str):
    found = lfm(f"[say(text='b', {rest}")
    assert [name for name, *_ in found.calls] == ["say"]
    assert json.loads(found.calls[0][1])["text"] == "b"
    assert found.content.replace("(", "").endswith(")]<|tool_call_end|>")


def test_a_python_call_may_be_long():
    assert lfm("say(text=1)" + " " * 70000).calls == [("say", '{"text": 1}', "")]
