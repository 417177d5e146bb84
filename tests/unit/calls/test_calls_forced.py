"""Calls that must be made: what the grammar of a format can write for random schemas, the parser reads, and an
independent judge accepts.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Sequence

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.calls_kit import FORMATS, said
from kit.grammar_kit import END, PIECES, STOP, allowed, start, tokenize
from kit.schema_maker import make_parameters

from uad.base.types import Constraint, ConstraintKind
from uad.text.calls.constraint import grammar_of
from uad.text.calls.format import QUOTE, AnswerFormat, CallFormat
from uad.text.calls.tools import Calls, Tool
from uad.text.grammar.source import JSON_STYLE, LARK

N_EXAMPLES = int(os.environ.get("UAD_EXAMPLES", "40"))
NAMES = ("look_up", "get-weather", "say")
CLOSING = (b'"', b"}", b"]", b'"}')
NASTY = (
    "null",
    "true",
    "12",
    "1.5",
    "1e3",
    "{}",
    "[1]",
    '"a"',
    "None",
    "a, b=1",
    "\n",
    " ",
    "</",
    "\\",
    "'",
    QUOTE,
    "<tool_call>",
)
LETTER = tokenize(b"q")
N_MOST = 1500


def forced(format_: CallFormat, *tools: Tool, parallel: bool = False) -> Constraint:
    found = grammar_of(format_, Calls(tools, "required", parallel=parallel))
    assert found is not None
    return Constraint(ConstraintKind.GRAMMAR, f"{LARK} {{}}\n{found.lark(style=JSON_STYLE)}")


def ends_of(format_: CallFormat) -> list[list[int]]:
    """What ends a value, as ids."""
    if format_.body == "gemma":
        return [tokenize(QUOTE.encode())]
    if format_.tags is None:
        return []
    names = (
        "",
        *(f"{name}" for name in ("id", "name", "from", "a-b", "größe", "n", "value_1", "class", "shared", "cat")),
    )
    closing = {"\n" * format_.tags.lines + format_.tags.value_end.replace("{key}", name) for name in names}
    return [tokenize(text.encode()) for text in sorted(closing)]


def drawn(constraint: Constraint, rng: random.Random, ends: Sequence[list[int]]) -> str | None:
    """An answer drawn at random; what closes something is drawn more often, and texts that look like something else.
    None: it did not end in time.
    """
    matcher, ids = start(constraint), list[int]()
    nasty = [tokenize(text.encode()) for text in NASTY]
    while not matcher.is_over and len(ids) < N_MOST:
        can = allowed(matcher)
        wanted = ends if rng.random() < 0.4 else nasty if rng.random() < 0.2 else []
        fitting = [row for row in wanted if matcher.n_valid(row) == len(row)]
        if wanted is ends:  # not those that are characters of a string in JSON
            fitting = [row for row in fitting if matcher.n_valid([*row, *LETTER]) == len(row)]
        closing = [id_ for id_ in can if id_ in (END, STOP) or (id_ < len(PIECES) and PIECES[id_] in CLOSING)]
        plain = [
            id_ for id_ in can if id_ < len(PIECES) and PIECES[id_].isascii() and PIECES[id_].decode().isprintable()
        ]
        row = (
            rng.choice(fitting)
            if fitting
            else [rng.choice(closing if closing and rng.random() < 0.5 else plain or can)]
        )
        for id_ in row:
            matcher.accept(id_)
        ids += row
    return b"".join(PIECES[id_] for id_ in ids if id_ < len(PIECES)).decode() if matcher.is_over else None


@settings(max_examples=N_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(FORMATS)), st.integers(0, 1 << 32))
def test_what_a_grammar_writes_is_read_as_a_call_that_fits(name: str, seed: int) -> None:
    rng, format_ = random.Random(seed), FORMATS[name]
    tool = Tool(rng.choice(NAMES), make_parameters(rng))
    calls = Calls((tool, Tool("other", {})), "required", parallel=False)
    text = drawn(forced(format_, *calls.tools), rng, ends_of(format_))
    if text is None or re.search(r"\d[eE][-+]?\d{3}", text):
        return  # a number with such an exponent is none of a machine's
    heard = said(text, AnswerFormat((format_,)), calls)
    assert (heard.content, len(heard.calls)) == ("", 1), f"{text!r} against {tool.parameters}"
    called, written, _ = heard.calls[0]
    assert called in (tool.name, "other")
    if called == tool.name:
        try:
            jsonschema.validate(json.loads(written), tool.parameters)
        except (ValueError, jsonschema.ValidationError) as error:
            raise AssertionError(f"{text!r}, read as {written}, against {json.dumps(tool.parameters)}") from error
