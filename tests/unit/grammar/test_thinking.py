"""Thoughts of an answer by its ids: where they are, how many ids they take, and how a bound ends them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.grammar_kit import END, IDS, START, STOP, TABLE, choice, schema, start, tokenize

from uad.base.types import ThoughtBounds
from uad.text.grammar.protocol import Matcher
from uad.text.grammar.thinking import ThinkingMatcher
from uad.text.vocab.thoughts import ThoughtTracker, ends_in_character

NAMED = ThoughtBounds("<start>", "<stop>")  # specials of this vocabulary: one id each
TYPED = ThoughtBounds("<tool>", "</t>")
CLOSING = (*tokenize(b" ab"), STOP)


def counted(bounds: ThoughtBounds, *ids: int) -> int:
    tracker = ThoughtTracker(bounds, TABLE)
    for id_ in ids:
        tracker.feed(id_)
    return tracker.n


def fed(matcher: Matcher, *ids: int) -> Matcher:
    for id_ in ids:
        mask = matcher.mask()
        assert mask is None or id_ in mask.allowed(TABLE.n_vocab), id_
        matcher.accept(id_)
    return matcher


def bounded(budget: int, **more: object) -> ThoughtBounds:
    return replace(NAMED, budget=budget, closing=CLOSING, **more)  # type: ignore[arg-type]


class TestCounts:
    """Which ids are thoughts."""

    def test_markers_of_one_id_are_not_counted(self) -> None:
        assert counted(NAMED, START, *b"abcd", STOP, *b"said") == 4

    def test_a_thought_that_the_prompt_began(self) -> None:
        assert counted(replace(NAMED, in_thought=True), *b"abcd", STOP, *b"said") == 4

    def test_one_that_does_not_end(self) -> None:
        assert counted(NAMED, START, *b"abcd") == 4

    def test_white_space_may_stand_before(self) -> None:
        assert counted(NAMED, *b" \n", START, *b"abcd", STOP) == 4

    def test_only_at_the_front(self) -> None:
        assert counted(NAMED, *b"a", START, *b"abcd", STOP) == 0
        assert counted(NAMED, START, *b"a", STOP, START, *b"abcd", STOP) == 1

    def test_or_anywhere(self) -> None:
        anywhere = replace(NAMED, anywhere=True)
        assert counted(anywhere, *b"a", START, *b"abcd", STOP, *b"b", START, *b"ab") == 6

    @pytest.mark.parametrize("anywhere", [False, True])
    def test_markers_of_several_ids(self, anywhere: bool) -> None:
        bounds = replace(TYPED, anywhere=anywhere)
        assert counted(bounds, *b"<tool>ab</t>said") == 2 + len("</t>") - 1
        assert counted(bounds, IDS[b"<tool>"], *b"ab") == 2
        assert counted(bounds, *b"<tooo>ab") == 0


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", False),
        (b"a", False),
        ("é".encode(), False),
        ("é".encode()[:1], True),
        ("🙂".encode()[:3], True),
        (b"\xa9", False),
    ],
)
def test_where_a_character_is_cut(data: bytes, expected: bool) -> None:
    assert ends_in_character(data) is expected


class TestBudget:
    """A thought that takes as many ids as it may is closed."""

    def test_closing_ids_are_forced_at_the_bound(self) -> None:
        matcher = fed(ThinkingMatcher(bounded(3), TABLE), START, *b"abc")
        assert tuple(matcher.forced) == CLOSING
        with pytest.raises(AssertionError):
            fed(matcher, *b"d")
        fed(matcher, *CLOSING)
        assert matcher.forced == ()
        assert matcher.mask() is None

    def test_one_that_ends_earlier_is_left_alone(self) -> None:
        matcher = fed(ThinkingMatcher(bounded(3), TABLE), START, *b"ab", STOP, *b"many more")
        assert matcher.forced == ()
        assert matcher.mask() is None

    def test_none_at_all(self) -> None:
        assert tuple(ThinkingMatcher(bounded(0, in_thought=True), TABLE).forced) == CLOSING
        assert tuple(fed(ThinkingMatcher(bounded(0), TABLE), START).forced) == CLOSING

    def test_an_answer_without_thoughts_has_no_bound(self) -> None:
        assert fed(ThinkingMatcher(bounded(1), TABLE), *b"abc").mask() is None

    def test_each_thought_has_its_own(self) -> None:
        matcher = ThinkingMatcher(bounded(2, anywhere=True), TABLE)
        fed(matcher, START, *b"a", STOP, START, *b"a")
        assert matcher.forced == ()
        assert tuple(fed(matcher, *b"b").forced) == CLOSING

    def test_a_character_becomes_whole_first(self) -> None:
        first, second = "é".encode()
        matcher = fed(ThinkingMatcher(bounded(2), TABLE), START, *b"a", first)
        assert matcher.forced == ()
        assert tuple(fed(matcher, second).forced) == CLOSING

    def test_one_that_does_not_is_not_waited_for(self) -> None:
        matcher = fed(ThinkingMatcher(bounded(1), TABLE), START, *[0xF0] * 5)
        assert tuple(matcher.forced) == CLOSING

    def test_drafts_are_cut_where_they_differ(self) -> None:
        matcher = fed(ThinkingMatcher(bounded(3), TABLE), START, *b"a")
        assert matcher.n_valid([*b"bc", *CLOSING, *b"said"]) == 2 + len(CLOSING) + 4
        assert matcher.n_valid([*b"bcd"]) == 2
        assert matcher.n_valid([*b"b", STOP, *b"cdefg"]) == 7
        assert tuple(fed(matcher, *b"bc").forced) == CLOSING


class TestBehind:
    """What the answer is bound by beside the budget."""

    bounds = replace(TYPED, in_thought=True, budget=2, closing=tuple(tokenize(b" ab</t>")))
    bound = replace(choice("yes", "no"), triggers=("</t>",), must_trigger=True)

    def test_a_constraint_holds_behind_the_thought(self) -> None:
        matcher = fed(ThinkingMatcher(self.bounds, TABLE, start(self.bound)), *b"ab")
        assert not matcher.is_over
        fed(matcher, *self.bounds.closing)
        assert matcher.n_valid([*b"abc"]) == 0
        assert fed(matcher, *b"yes").is_over

    def test_no_end_comes_before(self) -> None:
        mask = ThinkingMatcher(self.bounds, TABLE, start(self.bound)).mask()
        assert mask is not None
        assert END not in mask.allowed(TABLE.n_vocab)

    def test_white_space_may_stand_between(self) -> None:
        bound = replace(
            schema({"const": 1}), lead="lead: GAP?\nGAP: /[ \\n]{1,4}/\n", triggers=("</t>",), must_trigger=True
        )
        for gap in (b"", b"\n\n", b" "):
            assert fed(start(bound), *b"hm</t>", *gap, *b"1").is_over
        with pytest.raises(AssertionError):
            fed(start(bound), *b"hm</t>", *b"\n\n\n\n\n")
