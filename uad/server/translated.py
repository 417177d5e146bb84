"""Routes that are chats in other words: a request is translated into a chat's, and answered in its own form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiohttp import web
from pydantic import ValidationError

from uad.apis.outcome import Json
from uad.apis.problems import told
from uad.apis.shapes import Shape
from uad.apis.spoken import Reading, chat_job
from uad.errors import ContextOverflowError, InvalidRequestError, NotSupportedError
from uad.requests.engine import Backend
from uad.requests.job import Job, check_counts
from uad.requests.prompt_ids import encode_chat
from uad.requests.refuse import checked
from uad.requests.schemas import Body, ChatBody
from uad.server.completions import answer
from uad.server.state import STATE, State

_SEVERAL = ("n", "n_cmpl")
_FOREIGN = (*_SEVERAL, "n_probs", "logprobs")
B = TypeVar("B", bound=Body)
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


Form = Callable[[State, Translated[B], Job, Reading], Shape]
"""The form of an answer, made where long work is done."""


async def answer_as(
    request: web.Request,
    read: Callable[[dict[str, object]], Translated[B]],
    shape: Form[B],
) -> web.StreamResponse:
    """Answer a request that `read` makes of its members, in the form that `shape` gives."""
    state = request.app[STATE]
    asked, size = await state.read(request, read)
    with spelled(asked.spelling), state.gate.enter(check_counts(state.engine, asked.chat, 1, state.gate.limit)):
        job, form = await state.off_loop(size, lambda: _job(state, asked, shape))
        return await answer(request, job, form)


def _job(state: State, asked: Translated[B], shape: Form[B]) -> tuple[Job, Shape]:
    ping, thoughts = state.config.sse_ping_interval, state.config.reasoning_format
    try:
        job, reading = chat_job(state.engine, asked.chat, ping, thoughts)
    except InvalidRequestError as error:
        if asked.relaxed is None or not (error.param or "").startswith("tools"):
            raise
        job, reading = chat_job(state.engine, asked.relaxed, ping, thoughts)
    return job, shape(state, asked, job, reading)


async def count(
    request: web.Request,
    read: Callable[[dict[str, object]], Translated[B]],
    form: Callable[[int], Mapping[str, object]],
) -> web.Response:
    """How many ids the prompt of such a request has. Raises ContextOverflowError where it could not fit at all."""
    state = request.app[STATE]
    asked, size = await state.read(request, read)
    with spelled(asked.spelling):
        return await state.reply(size, lambda: form(_count(state.engine, asked.chat)))


def _count(engine: Backend, body: ChatBody) -> int:
    return len(encode_chat(engine, body).ids)


def chat_of(members: Mapping[str, object], spelling: Spelling) -> ChatBody:
    """The members of a chat, checked; what is wrong is told in the request's own words."""
    with spelled(spelling):
        return checked(ChatBody, members)


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
        raise InvalidRequestError(f"{own}: {text}", own) from None
    except (InvalidRequestError, NotSupportedError) as error:
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


def validated(kind: type[B], value: object, where: str) -> B:
    """A value inside of a request, as a body of its own. Raises InvalidRequestError that says where it is wrong."""
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{where}: must be an object", where)
    try:
        return kind.model_validate({name: member for name, member in value.items() if member is not None})
    except ValidationError as error:
        param, text = told(error)
        at = f"{where}.{param}" if param else where
        raise InvalidRequestError(f"{at}: {text}", at) from None
