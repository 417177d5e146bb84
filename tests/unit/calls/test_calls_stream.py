"""Arguments are told while they come, and only what cannot be JSON yet is kept back."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.calls_kit import ALL, FORMATS, said, said_in_pieces

from uad.text.calls.events import Arguments, Content
from uad.text.calls.format import AnswerFormat
from uad.text.calls.parser import AnswerParser
from uad.text.calls.reader import MAX_BUFFERED_CHARS
from uad.text.calls.source import MAX_BLANKS

PIECES = [
    *"{}[]()\"',:=\\\n ",
    "say",
    "text",
    "x",
    "5",
    "null",
    "True",
    '{"name": "say", "arguments": ',
    '{"text": "a"}',
    "say(text='a'",
    "say{text:",
]
LONG = 'word </parameter> "x" \'y\' <|"|> {z}, 1: [2]\n' * 40
STREAMS = {
    "hermes": f'<tool_call>{{"name": "say", "arguments": {{"text": {json.dumps(LONG)}}}}}</tool_call>',
    "deepseek-v3.1": f"<｜tool▁call▁begin｜>say<｜tool▁sep｜>{json.dumps({'text': LONG})}<｜tool▁call▁end｜>",
    "qwen3-coder": f"<tool_call>\n<function=say>\n<parameter=text>\n{LONG}\n</parameter>\n</function>\n</tool_call>",
    "seed-oss": f"<seed:tool_call><function=say><parameter=text>{LONG}</parameter></function></seed:tool_call>",
    "gemma-4": f'<|tool_call>call:say{{text:<|"|>{LONG}<|"|>}}<tool_call|>',
    "lfm2": f"<|tool_call_start|>[say(text={LONG!r})]<|tool_call_end|>",
    "harmony": f"<|channel|>commentary to=functions.say<|message|>{json.dumps({'text': LONG})}<|call|>",
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_long_text_is_told_while_it_comes(name: str):
    parser, told = AnswerParser(AnswerFormat((FORMATS[name],)), ALL), ""
    for n_fed, letter in enumerate(STREAMS[name]):
        told += "".join(event.text for event in parser.feed(letter) if isinstance(event, Arguments))
        assert len(told) >= n_fed - 160
    told += "".join(event.text for event in parser.finish(is_cut=False) if isinstance(event, Arguments))
    assert json.loads(told) == {"text": LONG}


@pytest.mark.parametrize(
    ("gap", "is_an_end"),
    [
        (" " * MAX_BLANKS, True),
        (" " * 600 + "," + " " * 600, True),
        ("," + " " * MAX_BLANKS, True),
        (" " * (MAX_BLANKS + 1), False),
    ],
    ids=["all that may be", "a comma between", "a comma first", "too many"],
)
def test_a_mark_ends_a_text_before_a_bounded_number_of_blanks_in_pieces_as_in_a_whole(gap: str, is_an_end: bool):
    """More of them are the model's text, and nothing is held back for them."""
    begun = f'<tool_call>{{"name": "say", "arguments": {{"text": "tea"{gap}'
    parser = AnswerParser(AnswerFormat((FORMATS["hermes"],)), ALL)
    events = [event for letter in begun for event in parser.feed(letter)]
    told = "".join(event.text for event in events if isinstance(event, Arguments))
    assert (" " not in told.removeprefix('{"text": ')) is is_an_end
    text, format_ = begun + "}}</tool_call>", AnswerFormat((FORMATS["hermes"],))
    whole = said(text, format_, is_cut=False)
    assert said_in_pieces(text, format_, is_cut=False) == whole
    assert (json.loads(whole.calls[0][1]) == {"text": "tea"}) is is_an_end


def test_a_value_that_is_too_long_to_be_kept_back_is_a_text_and_the_rest_is_content():
    long = "5" * (MAX_BUFFERED_CHARS - 10)
    answer = f"<tool_call>\n<function=look_up>\n<parameter=n>\n{long}"
    parser = AnswerParser(AnswerFormat((FORMATS["qwen3-coder"],)), ALL)
    events = [*parser.feed(answer), *parser.feed("6" * 20), *parser.feed("end"), *parser.finish(is_cut=False)]
    told = "".join(event.text for event in events if isinstance(event, Arguments))
    assert json.loads(told) == {"n": long + "6" * 20}
    assert "".join(event.text for event in events if isinstance(event, Content)) == "end"


def test_an_answer_that_is_cut_in_a_number_has_what_there_is_of_it():
    for name, text in (
        ("hermes", '<tool_call>{"name": "look_up", "arguments": {"word": "tea", "n": 12'),
        ("hermes", '<tool_call>{"name": "look_up", "arguments": {"word": "tea", "n'),
        ("qwen3-coder", "<tool_call>\n<function=look_up>\n<parameter=n>\n12"),
    ):
        found = said(text, AnswerFormat((FORMATS[name],)))
        assert (found.content, found.n_ended) == ("", 0)
        assert found.calls[0][1] in ('{"word": "tea", "n": 12', '{"word": "tea", "n', '{"n": "12')


@pytest.mark.parametrize("text", ['{"Hello" she said, ', '{"name": "x" and so on, ', "{ and so on, ", "[1, 2], "])
def test_an_answer_that_begins_like_a_call_without_a_marker_is_soon_content(text: str):
    parser = AnswerParser(AnswerFormat((FORMATS["llama-3"],)), ALL)
    events = [event for letter in text + "word " * 60 for event in parser.feed(letter)]
    assert "".join(event.text for event in events if isinstance(event, Content)).startswith(text)


@settings(max_examples=int(os.environ.get("UAD_EXAMPLES", "0")) or 100, deadline=None)
@given(st.data())
def test_whatever_an_ended_answer_holds_arguments_are_objects_and_cuts_change_nothing(data: st.DataObject):
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    format_ = FORMATS[name]
    pieces = [*format_.markers(), *PIECES, format_.example, format_.example[: len(format_.example) // 2]]
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=16)))
    size = data.draw(st.integers(2, 9))
    found = said(text, AnswerFormat((format_,)), is_cut=False)
    assert all(isinstance(json.loads(arguments), dict) for _, arguments, _ in found.calls)
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    assert said_in_pieces(parts, AnswerFormat((format_,)), is_cut=False) == found
    assert said_in_pieces(text, AnswerFormat((format_,)), is_cut=False) == found
