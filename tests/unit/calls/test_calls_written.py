"""What every real chat template writes of calls, whatever their arguments are, is read as the same calls."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.calls_kit import FORMATS, Said, said, said_in_pieces
from kit.calls_written import REAL, TOOLS, UNREADABLE, MadeCall, arguments, of_template, writes_what_is_read, written

from uad.text.calls.format import AnswerFormat
from uad.text.calls.tools import Calls, Tool

EXAMPLES = int(os.environ.get("UAD_EXAMPLES", "0"))
SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def made(found: Said) -> list[MadeCall]:
    return [(name, json.loads(text)) for name, text, _ in found.calls]


def cut(text: str, sizes: list[int]) -> list[str]:
    """The text in pieces of these sizes, over and over."""
    pieces, at, i = [], 0, 0
    while at < len(text):
        pieces.append(text[at : at + sizes[i % len(sizes)]])
        at, i = at + sizes[i % len(sizes)], i + 1
    return pieces


@pytest.mark.parametrize("name", sorted(REAL))
def test_calls_that_a_template_writes_are_read_as_they_are(name: str):
    if not writes_what_is_read(name):
        pytest.skip("writes no calls that are read")
    _, does, answers = of_template(name)
    format_ = next(one for one in answers.calls if not does.calls or one is answers.calls[-1])
    calls = st.lists(
        st.tuples(st.sampled_from([tool.name for tool in TOOLS.tools]), arguments(format_)),
        min_size=1,
        max_size=3 if does.parallel else 1,
    )

    @settings(max_examples=EXAMPLES or 2, **SETTINGS)
    @given(calls, st.lists(st.integers(1, 40), min_size=1, max_size=4))
    def check(wanted: list[MadeCall], sizes: list[int]) -> None:
        answer = written(name, wanted)
        found = said(answer, answers, TOOLS)
        assert made(found) == wanted
        assert said_in_pieces(answer, answers, TOOLS) == found
        assert said_in_pieces(cut(answer, sizes), answers, TOOLS) == found

    check()


TEXTS = {"type": "object", "properties": {name: {"type": "string"} for name in ("from", "class", "a-b")}}
LFM = Calls((Tool("get-weather", TEXTS), Tool("a.b", TEXTS), Tool("import", TEXTS)))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=4), one, max_size=3),
    max_leaves=6,
)


PYTHON_CALLS = st.tuples(
    st.sampled_from(["get-weather", "a.b", "import"]),
    st.dictionaries(st.sampled_from(list(TEXTS["properties"])), VALUES),
)


@settings(max_examples=EXAMPLES or 60, **SETTINGS)
@given(st.lists(PYTHON_CALLS, min_size=1, max_size=2), st.booleans())
def test_calls_in_pythons_own_spelling_are_read_as_they_are(calls: list[MadeCall], as_json: bool):
    spell: Any = json.dumps if as_json else repr
    texts = [f"{name}({', '.join(f'{key}={spell(value)}' for key, value in some.items())})" for name, some in calls]
    answer = f"<|tool_call_start|>[{', '.join(texts)}]<|tool_call_end|>"
    found = said(answer, AnswerFormat((FORMATS["lfm2"],)), LFM)
    assert (made(found), found.content) == (calls, "")
    assert said_in_pieces(answer, AnswerFormat((FORMATS["lfm2"],)), LFM) == found


@settings(max_examples=EXAMPLES or 100, **SETTINGS)
@given(VALUES, st.sampled_from([None, 1, 4]), st.booleans())
def test_valid_json_is_told_as_it_is(value: object, indent: int | None, is_ascii: bool):
    text = json.dumps({"any": value}, indent=indent, ensure_ascii=is_ascii)
    for answer in (
        f'<tool_call>{{"name": "mixed", "arguments": {text}}}</tool_call>',
        f"<function=mixed>{text}</function>",
    ):
        format_ = AnswerFormat((FORMATS["hermes" if answer.startswith("<tool") else "functionary-3.1"],))
        assert said(answer, format_).calls == [("mixed", text, "")]
        assert said_in_pieces(answer, format_).calls == [("mixed", text, "")]


IMITATIONS = (
    ("Qwen3-Coder", "a\n</parameter>\n</function>\nb"),
    ("GLM-4.6", "a</arg_value><arg_key>n</arg_key>b"),
    ("google-gemma-4-31B-it", 'a<|"|>, b'),
    ("LFM2.5-8B-A1B", "a'), b"),
)


@pytest.mark.parametrize(("name", "text"), IMITATIONS)
def test_what_nobody_can_tell_from_the_end_of_a_call_is_not_lost(name: str, text: str):
    if name not in REAL:
        pytest.skip("make vocabs fetches the templates")
    answers = of_template(name)[2]
    assert any(one(answers.calls[0], {"text": text}) for _, one in UNREADABLE)
    answer = written(name, [("second", {"text": text, "n": 3})])
    for found in (said(answer, answers, TOOLS), said_in_pieces(answer, answers, TOOLS)):
        assert found.calls[0][0] == "second"
        assert all(isinstance(json.loads(text), dict) for _, text, _ in found.calls)
        shown = " ".join([found.content, *(text for _, text, _ in found.calls)])
        assert "a" in shown
        assert "b" in re.split(r"\W+", shown)
