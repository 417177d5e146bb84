"""Guesses behind choices of white space."""

from __future__ import annotations

import pytest
from kit.grammar_kit import GRAMMARS, IDS, TABLE, fed, regex, schema

from uad.text.grammar.matcher import GrammarMatcher
from uad.text.grammar.protocol import Matcher

PROPERTIES = {"name": {"type": "string"}, "age": {"type": "integer"}, "ok": {"type": "boolean"}}
PERSON = schema({"properties": PROPERTIES, "required": [*PROPERTIES], "additionalProperties": False})


def expected(matcher: Matcher) -> tuple[bytes, list[float]]:
    """The text that is expected, and how probable its ids are."""
    ids = matcher.expected
    return b"".join(TABLE.pieces[id_] for id_, _ in ids), [p for _, p in ids]


def behind(text: str) -> GrammarMatcher:
    return fed(PERSON, text)


def test_a_guess_reaches_from_one_value_to_the_next() -> None:
    text, chances = expected(behind('{"name": "Bob",'))
    assert text == b' "age":'[: len(text)]
    assert text.startswith(b' "age')
    assert chances == [0.9] + [1.0] * (len(chances) - 1)


def test_the_blank_alone_where_the_last_id_is_open() -> None:
    assert expected(behind('{"name":')) == (b" ", [0.9])


def test_what_is_forced_comes_first() -> None:
    text, chances = expected(behind('{"'))
    assert text == b"name"
    assert chances == [1.0]
    text, chances = expected(behind('{"name": "Bob", "'))
    assert text == b"age"


def test_none_where_nothing_is_forced_behind_it() -> None:
    """Inside of a text, where a number follows, and without a choice."""
    for text in ('{"name": "so,', '{"name": "Bob", "age":', '{"name": "Bob", "age": 4'):
        assert expected(behind(text)) == (b"", []), text


def test_an_answer_without_blanks_gets_no_guesses_until_it_has_one() -> None:
    matcher = behind('{"name": "Bob",')
    assert matcher.expected
    matcher.accept(ord('"'))
    assert expected(matcher)[0] == b"age"
    for id_ in b'age":4,':
        assert matcher.expected is not None
        matcher.accept(id_)
    assert expected(matcher) == (b"", [])
    matcher.accept(ord(" "))
    assert expected(matcher)[0] == b'"ok'


def test_a_draft_that_was_taken_in_part_is_judged_too() -> None:
    """Ids of one round are accepted without a look in between."""
    matcher = behind('{"name": "Bob", "age": 4')
    assert expected(matcher) == (b"", [])
    matcher.accept(IDS[b", "])
    assert [id_ for id_, _ in matcher.expected] == [*b'"ok']


@pytest.mark.parametrize("text", ["a,", "a:"])
def test_other_grammars_may_have_such_choices(text: str) -> None:
    matcher = GRAMMARS.start(regex("a[,:] ?(bcde|bcdf)"))
    for id_ in text.encode():
        matcher.accept(id_)
    assert expected(matcher) == (b" bc"[: len(expected(matcher)[0])], [0.9, *[1.0] * (len(matcher.expected) - 1)])
