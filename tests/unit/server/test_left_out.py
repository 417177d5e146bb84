"""Members of requests that nothing reads: left out with a line in the log, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import AliasChoices, Field

from uad.base.errors import InvalidRequestError
from uad.http.requests.fields import Body, ChatBody
from uad.http.requests.left_out import account_for, account_for_body, leave_out, names_of

TABLE = {"labels": "they are for bills", "parts.mediaResolution": "the projector decides"}


@pytest.fixture(autouse=True)
def _first_request() -> None:
    leave_out.cache_clear()


@pytest.mark.parametrize("value", [None, "", [], False])
def test_a_member_that_asks_for_nothing_is_passed_over(value: object, caplog: pytest.LogCaptureFixture) -> None:
    account_for({"labels": value, "other": value}, (), TABLE, "/v1/x")
    assert not caplog.records


def test_a_member_of_the_table_is_left_out_with_one_line_whatever_its_place(caplog: pytest.LogCaptureFixture) -> None:
    for i in range(3):
        account_for({"mediaResolution": {"level": "HIGH"}}, (), TABLE, "/v1/x", f"contents.{i}.parts.{i}")
    (line,) = caplog.messages
    assert line == "/v1/x: 'contents.parts.mediaResolution' is left out: the projector decides"


@pytest.mark.parametrize("value", ["a text", ["a list"], {"an": "object"}])
def test_an_unknown_member_with_content_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        account_for({"known": 1, "other": value}, {"known"}, TABLE, "/v1/x", "contents.0.parts.1")
    assert caught.value.param == "contents.0.parts.1.other"


@pytest.mark.parametrize("place", ["", "tools.0"])
def test_a_row_of_the_table_holds_for_its_parent_only(place: str) -> None:
    with pytest.raises(InvalidRequestError):
        account_for({"mediaResolution": {"level": "HIGH"}}, (), TABLE, "/v1/x", place)


def test_an_unknown_number_or_switch_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        account_for({"depth": 3, "fast": True}, (), TABLE, "/v1/x")
    assert [line.partition(" is left")[0] for line in caplog.messages] == ["/v1/x: 'depth'", "/v1/x: 'fast'"]


class Inner(Body):
    """An object in an object."""

    depth: int = 0


class Outer(Body):
    """An object with a field of two names."""

    inner: Inner = Field(Inner(), validation_alias=AliasChoices("inner", "in_ner"))


def test_a_body_is_accounted_for_with_the_bodies_in_it() -> None:
    account_for_body({}, Outer(), TABLE, "/v1/x")
    given = {"in_ner": {"depth": 1, "word": "a text"}}
    with pytest.raises(InvalidRequestError) as caught:
        account_for_body(given, Outer.model_validate(given), TABLE, "/v1/x", "a.0")
    assert caught.value.param == "a.0.in_ner.word"
    account_for_body({"inner": {"depth": 1}, "min_p": 0.5}, Outer(), TABLE, "/v1/x", more=("min_p",))


def test_the_names_of_a_body_are_all_that_its_fields_go_by() -> None:
    assert {"messages", "max_tokens", "max_completion_tokens", "n_predict", "min_p"} <= names_of(ChatBody)
    assert "max_tokenz" not in names_of(ChatBody)
