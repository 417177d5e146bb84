"""Requests that are chats in other words: their members as a chat's, and errors in the request's own words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from uad.apis.problems import told
from uad.common.json_out import Json
from uad.errors import ContextOverflowError, InvalidRequestError, NotSupportedError, RequestError
from uad.requests.fields import Body, ChatBody, checked

_SEVERAL = ("n", "n_cmpl")
_FOREIGN = (*_SEVERAL, "n_probs", "logprobs")
B = TypeVar("B", bound=Body)
M = TypeVar("M", bound=BaseModel)
Spelling = Callable[[str], str]
"""From a field's name in a chat to the one in the request."""


@dataclass(frozen=True)
class Translated(Generic[B]):
    """A request, the chat that it stands for, and how its fields are called.

    `relaxed` is the chat to try where the schemas of the tools are none that calls can be held to.
    """

    own: B
    chat: ChatBody
    spelling: Spelling
    relaxed: ChatBody | None = None


def chat_of(members: Mapping[str, object], spelling: Spelling) -> ChatBody:
    """The members of a chat, checked; what is wrong is reported in the request's own words. Raises NotSupportedError
    where ids are asked for, which these answers have no place for.
    """
    if members.get("return_token_ids"):
        raise NotSupportedError(
            "return_token_ids is not supported: /v1/chat/completions and /v1/completions have it", "return_token_ids"
        )
    with spelled(spelling):
        return checked(ChatBody, members)


def read_chat(members: Mapping[str, object]) -> Translated[ChatBody]:
    """A chat, which stands for itself. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    body = checked(ChatBody, members)
    return Translated(body, body, lambda name: name)


def rest_of(members: Mapping[str, object], own: Body) -> Json:
    """The members that mean the same in a chat (sampling, drafts, slots): all but those of `own` and some more."""
    return {name: value for name, value in members.items() if name not in (*type(own).model_fields, *_FOREIGN)}


def refuse_several(members: Mapping[str, object]) -> None:
    """Raise NotSupportedError where more than one answer is asked for."""
    for name in _SEVERAL:
        if members.get(name, 1) != 1:
            raise NotSupportedError(f"{name} is not supported: there is one answer; send the request again", name)


@contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """Errors that name a field of the chat name that of the request instead."""
    try:
        yield
    except ContextOverflowError:
        raise
    except ValidationError as error:
        param, text = told(error)
        own = spelling(param)
        raise InvalidRequestError.at(own, f"{text}") from None
    except RequestError as error:
        if error.param is None or (own := spelling(error.param)) == error.param:
            raise
        raise type(error)(own + str(error).removeprefix(error.param), own) from None


def renaming(rules: Sequence[tuple[str, str]]) -> Spelling:
    """A spelling by regular expressions, each for the beginning of a name; the first that fits counts."""
    patterns = [(re.compile(pattern), name) for pattern, name in rules]

    def own(name: str) -> str:
        for pattern, replacement in patterns:
            if pattern.match(name):
                return pattern.sub(replacement, name, count=1)
        return name

    return own


def tools_at(places: Sequence[int], spelling: Spelling) -> Spelling:
    """The same spelling, where the tools of the chat, whose names are in `function`, stand at these places."""

    def own(name: str) -> str:
        head, _, rest = name.partition(".")
        number, _, rest = rest.partition(".")
        if head != "tools" or not number.isdigit():
            return spelling(name)
        return spelling(f"tools.{places[int(number)]}.{rest.removeprefix('function.')}")

    return own


def validated(kind: type[M], value: object, where: str) -> M:
    """A value inside of a request, as a body of its own. Raises InvalidRequestError that says where it is wrong."""
    if not isinstance(value, dict):
        raise InvalidRequestError.at(where, "must be an object")
    try:
        return kind.model_validate({name: member for name, member in value.items() if member is not None})
    except ValidationError as error:
        param, text = told(error)
        at = f"{where}.{param}" if param else where
        raise InvalidRequestError.at(at, f"{text}") from None


def objects_in(value: object, where: str, called: str, most: int) -> list[tuple[str, dict[str, Any]]]:
    """The objects of a list, each after the place where it stands. called: what they are, for InvalidRequestError."""
    if not isinstance(value, list):
        raise InvalidRequestError.at(where, f"must be a string or a list of {called}")
    if len(value) > most:
        raise InvalidRequestError.at(where, f"must hold at most {most} {called}")
    found = [(f"{where}.{i}", one) for i, one in enumerate(value)]
    for at, one in found:
        if not isinstance(one, dict):
            raise InvalidRequestError.at(at, "must be an object")
    return found
