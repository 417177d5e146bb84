"""Calls that must be made, in a vocabulary that writes every marker as one token: answers drawn at random from what is
allowed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
from kit.calls_kit import BEGINNING, FORMATS, said
from kit.grammar_kit import PIECES as WORDS
from kit.grammar_kit import tokenize

from uad.base.errors import NotSupportedError
from uad.base.types import Constraint, ConstraintKind
from uad.text.calls.constraint import after_thoughts, call_constraint
from uad.text.calls.format import AnswerFormat
from uad.text.calls.parser import Start
from uad.text.calls.tools import Calls, Tool
from uad.text.grammar.grammars import Grammars
from uad.text.grammar.matcher import GrammarMatcher
from uad.text.grammar.vocabulary import GrammarVocabulary
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

pytestmark = pytest.mark.long
MARKERS = (
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<|tool_call|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    *(
        "<|tool_calls_section_end|>",
        "<|open|>",
        "<|close|>",
        "<|sep|>",
        '<|"|>',
        "<|tool_call>",
        "<tool_call|>",
        "]<]minimax[>[",
    ),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_call:opensource>", "</arg_value:opensource>"),
    *(
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|constrain|>",
        "<|end|>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
    ),
    *(
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "<|python_tag|>",
        "<|tool_call:begin|>",
        "<|tool_call:end|>",
    ),
)
ENDS = ("<eos>", "<|call|>")
ALL_TAGS = [one.tags for one in FORMATS.values() if one.tags is not None]
ENDS_OF_VALUES = sorted({"\n" * tags.lines + tags.value_end.replace("{key}", "text") for tags in ALL_TAGS})
PIECES = (*WORDS, *(text.encode() for text in ENDS_OF_VALUES))
SPECIALS = {name: len(PIECES) + i for i, name in enumerate((*MARKERS, *ENDS))}
EOG = frozenset(SPECIALS[name] for name in ENDS)
TABLE = VocabTable(
    name="markers",
    pieces=(*PIECES, *([b""] * len(SPECIALS))),
    specials=SPECIALS,
    tokenize=tokenize,
    eos=SPECIALS["<eos>"],
    eog=EOG,
)
GRAMMARS = Grammars(GrammarVocabulary(TABLE, Encoder(TABLE).encode))
LOOK = {
    "type": "object",
    "properties": {"word": {"enum": ["tea", "milk"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["word", "n"],
    "additionalProperties": False,
}
SAY = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "loud": {"type": "boolean"},
        "to": {"anyOf": [{"enum": ["a b"]}, {"type": "null"}]},
    },
    "required": ["text"],
    "additionalProperties": False,
}
TOOLS = (Tool("look_up", LOOK), Tool("say", SAY, strict=True))
SCHEMAS: dict[str, dict[str, Any]] = {tool.name: dict(tool.parameters) for tool in TOOLS}
_CLOSING = (b'"', b"}", b"]", b'"}', b"\n", *PIECES[len(WORDS) :])
N_TRIES = 10


def shown(ids: Sequence[int]) -> str:
    """As a server with the format's markers shows it."""
    pieces = (TABLE.texts[id_] or (b"" if id_ in EOG else TABLE.special_names[id_].encode()) for id_ in ids)
    return b"".join(pieces).decode("utf-8", "replace")


def allowed(matcher: GrammarMatcher) -> list[int]:
    """The ids that may follow."""
    mask = matcher.mask()
    return list(range(TABLE.n_vocab)) if mask is None else mask.allowed(TABLE.n_vocab).tolist()


def drawn(matcher: GrammarMatcher, rng: random.Random, begun: tuple[int, ...] = (), n_most: int = 1000) -> str | None:
    """An answer of printable ids, drawn at random; what closes something is drawn more often. None: it did not end in
    time.
    """
    written: list[int] = []
    while not matcher.is_over:
        ids = allowed(matcher)
        fit = (
            [id_ for id_ in ids if PIECES[id_].isascii() and PIECES[id_].decode().isprintable()]
            if max(ids) < len(PIECES)
            else ids
        )
        closing = [id_ for id_ in ids if id_ >= len(PIECES) or PIECES[id_] in _CLOSING]
        begun, id_ = (
            begun[1:],
            begun[0] if begun else rng.choice(closing if closing and rng.random() < 0.5 else fit or ids),
        )
        written.append(id_)
        matcher.accept(id_)
        if len(written) > n_most:
            return None
    return shown(written)


def check(text: str, format_: AnswerFormat, calls: Calls, start: Start = BEGINNING) -> str:
    """The text says nothing but calls of the tools, which their schemas allow; returns the thoughts before them."""
    heard = said(text, format_, calls, start)
    assert heard.content == "", text
    assert heard.calls, text
    for name, arguments, _ in heard.calls:
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])
    return heard.thought


def bound(
    format_: AnswerFormat, calls: Calls, start: Start = BEGINNING, tail: str = "", answer: dict[str, Any] | None = None
) -> Constraint:
    found = call_constraint(TABLE, format_, calls, start, tail, answer)
    assert found is not None
    return found


@pytest.mark.parametrize("choice", ["required", "say"])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_an_answer_that_must_call_calls(name: str, choice: str) -> None:
    format_, rng, n = AnswerFormat((FORMATS[name],)), random.Random(7), 0
    calls = Calls(TOOLS, choice, named=choice == "say", parallel=choice == "required")
    constraint = bound(format_, calls)
    for _ in range(N_TRIES):
        text = drawn(GRAMMARS.start(constraint), rng)
        if text is not None:
            check(text, format_, calls)
            n += 1
    assert n > N_TRIES // 4


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_call_comes_after_thoughts(name: str) -> None:
    """Where the prompt ends in a thought; and where the model may begin one, or not."""
    format_, rng = AnswerFormat((FORMATS[name],), thinks=True), random.Random(7)
    calls, start = Calls(TOOLS, "required", parallel=False), Start(in_thought=True)
    end = "<|end|>" if FORMATS[name].channels else "</think>"
    begun = (*tokenize(b"hm"), SPECIALS[end])
    texts = [drawn(GRAMMARS.start(bound(format_, calls, start)), rng, begun) for _ in range(5)]
    thoughts = [check(text, format_, calls, start) for text in texts if text is not None]
    assert thoughts
    assert set(thoughts) == {"hm"}
    texts = [drawn(GRAMMARS.start(bound(format_, calls)), rng) for _ in range(N_TRIES)]
    thoughts = [check(text, format_, calls) for text in texts if text is not None]
    assert {bool(thought) for thought in thoughts} == {False, True}


def test_no_thought_comes_where_the_prompt_has_closed_one() -> None:
    format_, calls = AnswerFormat((FORMATS["hermes"],), thinks=True), Calls(TOOLS, "required")
    closed = bound(format_, calls, tail="<think>\n\n</think>\n\n")
    assert allowed(GRAMMARS.start(closed)) == [SPECIALS["<tool_call>"]]
    assert set(allowed(GRAMMARS.start(bound(format_, calls)))) == {SPECIALS["<tool_call>"], SPECIALS["<think>"]}


def test_no_end_comes_before_a_required_call() -> None:
    format_, start = AnswerFormat((FORMATS["hermes"],)), Start(in_thought=True)
    matcher = GRAMMARS.start(bound(format_, Calls(TOOLS, "required"), start))
    for id_ in tokenize(b"hm"):
        assert EOG.isdisjoint(allowed(matcher))
        matcher.accept(id_)


def test_a_call_that_the_prompt_has_begun() -> None:
    """Functionary's prompt ends with what calls begin with."""
    format_, calls = AnswerFormat((FORMATS["functionary-3.2"],)), Calls(TOOLS, "required", parallel=False)
    text = drawn(
        GRAMMARS.start(bound(format_, calls, tail="<|start_header_id|>assistant<|end_header_id|>\n\n>>>")),
        random.Random(1),
    )
    assert text is not None
    assert text.startswith(("look_up\n{", "say\n{"))
    check(text, format_, calls)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_strict_tool_binds_calls_that_are_made(name: str) -> None:
    """The text is free up to a call. Llama 3's calls are whole answers."""
    format_, calls, rng = AnswerFormat((FORMATS[name],)), Calls(TOOLS, "auto", parallel=False), random.Random(3)
    constraint = call_constraint(TABLE, format_, calls, Start(), "")
    assert constraint is not None
    before = "" if name == "llama-3" else "well"
    assert set(allowed(GRAMMARS.start(constraint))) >= EOG
    n = 0
    for i in range(N_TRIES):
        trigger = constraint.triggers[i % len(constraint.triggers)]
        text = drawn(GRAMMARS.start(constraint), rng, tuple(encoded(before + trigger)))
        if text is not None:
            heard = said(text, format_, calls)
            assert heard.content == before
            for called, arguments, _ in heard.calls:
                jsonschema.validate(json.loads(arguments), SCHEMAS[called])
            n += bool(heard.calls)
    assert n > N_TRIES // 5


def test_what_only_looks_like_a_call_of_llama_3_is_free() -> None:
    format_, calls = AnswerFormat((FORMATS["llama-3"],)), Calls(TOOLS, "auto")
    constraint = call_constraint(TABLE, format_, calls, Start(), "")
    assert constraint is not None
    for text in ('well {"name": "other"', '{"word": 1', '["name"'):
        matcher = GRAMMARS.start(constraint)
        for id_ in tokenize(text.encode()):
            assert id_ in allowed(matcher), text
            matcher.accept(id_)
        assert matcher.mask() is None
    for text, allows in (('{"name": "say"', True), ('{"name": "other"', False)):
        ids = tokenize(text.encode())
        for before in ((), (SPECIALS["<|python_tag|>"],), tokenize(b"\n ")):
            assert (GRAMMARS.start(constraint).n_valid([*before, *ids]) == len(before) + len(ids)) is allows


def test_a_strict_call_that_functionarys_prompt_has_begun() -> None:
    format_, calls = AnswerFormat((FORMATS["functionary-3.2"],)), Calls(TOOLS, "auto", parallel=False)
    constraint = call_constraint(TABLE, format_, calls, Start(), "assistant<|end_header_id|>\n\n>>>")
    assert constraint is not None
    text = drawn(GRAMMARS.start(constraint), random.Random(2), tuple(tokenize(b"say\n")))
    assert text is not None
    check(text, format_, calls)
    free = GRAMMARS.start(constraint)
    assert free.n_valid(ids := tokenize(b"all\nwell")) == len(ids)


@pytest.mark.parametrize("name", ["hermes", "harmony"])
@pytest.mark.parametrize("is_begun", [False, True])
def test_an_answer_in_json_stands_after_thoughts(name: str, is_begun: bool) -> None:
    """The prompt ends in a thought, or the model may begin one, or not. Behind harmony's stands a header."""
    format_, rng, start = AnswerFormat((FORMATS[name],), thinks=True), random.Random(7), Start(in_thought=is_begun)
    tail = "<|start|>assistant" if name == "harmony" else "<think>\n" if is_begun else "assistant\n"
    own = Constraint(ConstraintKind.JSON_SCHEMA, '{"enum": [17, 18]}')
    constraint = after_thoughts(TABLE, format_, own, start, tail)
    end = SPECIALS[format_.marks.end]
    begun = (*tokenize(b"hm"), end) if is_begun else ()
    texts = [drawn(GRAMMARS.start(constraint), rng, begun) for _ in range(N_TRIES)]
    heard = [said(text, format_, Calls(), start) for text in texts if text is not None]
    assert heard
    assert {one.content for one in heard} == {"17", "18"}
    assert {bool(one.thought) for one in heard} == ({True} if is_begun else {False, True})


def test_what_describes_thoughts_itself_or_has_none_stays_as_it_is() -> None:
    thinks, own = AnswerFormat((FORMATS["hermes"],), thinks=True), Constraint(ConstraintKind.REGEX, "[ab]")
    assert after_thoughts(TABLE, thinks, own, Start(), "<think>\n\n</think>\n\n") == own
    assert after_thoughts(TABLE, thinks, own, Start(in_content=True), "") == own
    assert after_thoughts(TABLE, AnswerFormat((FORMATS["hermes"],)), own, Start(), "") == own
    whole = Constraint(ConstraintKind.GRAMMAR, 'root ::= "<think>" [^<]+ "</think>" "yes"')
    assert after_thoughts(TABLE, thinks, whole, Start(), "") == whole


def encoded(text: str) -> list[int]:
    """The ids of a text with its markers."""
    found = TABLE.names.search(text) if TABLE.names is not None else None
    if found is None:
        return tokenize(text.encode())
    return [*tokenize(text[: found.start()].encode()), SPECIALS[found[0]], *encoded(text[found.end() :])]


def test_what_is_not_strict_binds_nothing() -> None:
    format_ = AnswerFormat((FORMATS["hermes"],))
    assert call_constraint(TABLE, format_, Calls(TOOLS[:1]), Start(), "") is None
    assert call_constraint(TABLE, format_, Calls(TOOLS, "none"), Start(), "") is None


def test_a_call_or_the_answer_that_was_asked_for() -> None:
    format_, calls, rng = AnswerFormat((FORMATS["hermes"],)), Calls(TOOLS[:1]), random.Random(5)
    constraint = bound(format_, calls, answer={"const": 42})
    texts = {drawn(GRAMMARS.start(constraint), rng) for _ in range(N_TRIES)}
    assert "42" in texts
    for text in texts - {"42", None}:
        check(text or "", format_, calls)
    assert len(texts) > 2


def test_an_answer_or_a_call_without_markers() -> None:
    format_, calls, rng = AnswerFormat((FORMATS["llama-3"],)), Calls(TOOLS[:1], parallel=False), random.Random(5)
    texts = {drawn(GRAMMARS.start(bound(format_, calls, answer={"const": [1]})), rng) for _ in range(N_TRIES)}
    assert "[1]" in texts
    for text in texts - {"[1]", None}:
        check(text or "", format_, calls)
    assert len(texts) > 2


def test_a_required_call_in_no_known_format_is_refused() -> None:
    with pytest.raises(NotSupportedError, match="send tool_choice auto"):
        call_constraint(TABLE, AnswerFormat(), Calls(TOOLS, "required"), Start(), "")
    assert call_constraint(TABLE, AnswerFormat(), Calls(TOOLS), Start(), "") is None
