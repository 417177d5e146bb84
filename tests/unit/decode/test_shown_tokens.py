"""Names of control tokens that a request wants to see are in the text; the ids are the same."""

from __future__ import annotations

import pytest
from test_stops import FIXED, PLAIN, answer, drafters, request

NAME = "<|im_start|>"


def test_a_name_is_in_the_text_where_it_is_asked_for_and_nothing_else_changes():
    hidden, shown = answer(request(PLAIN)), answer(request(PLAIN, shown=(NAME, "<|no_such|>")))
    assert hidden.ids == shown.ids
    assert NAME in shown.text
    assert shown.text.replace(NAME, "") == hidden.text


def test_the_same_text_drafted_or_not():
    truth = answer(request(PLAIN))
    wanted = answer(request(PLAIN, shown=(NAME,))).text
    assert {answer(request(FIXED, shown=(NAME,)), drafter).text for drafter in drafters(truth.ids)} == {wanted}


@pytest.mark.parametrize("word", [NAME, f"\n{NAME}count"])
def test_a_stop_string_with_the_name_ends_the_text_all_the_same(word: str):
    assert answer(request(PLAIN, shown=(NAME,), stop=(word,))).ids == answer(request(PLAIN, stop=(word,))).ids
