"""Routes of chats: OpenAI's chat completions and Responses API, Anthropic's Messages API. And how long prompts of them
are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from aiohttp import web

from uad.apis.messages_answer import MessageShape
from uad.apis.messages_request import check_version, read_message
from uad.apis.responses_answer import ResponseShape
from uad.apis.responses_request import read_response
from uad.apis.shapes import Identity, Shape
from uad.apis.spoken import chat_shape
from uad.apis.translated import Translated, read_chat, spelled
from uad.errors import InvalidRequestError
from uad.requests.chat import Reading, chat_job
from uad.requests.fields import Body, TemplateBody, checked
from uad.requests.job import Job, check_counts
from uad.requests.prompt_ids import encode_chat
from uad.server.completions import answer
from uad.server.replies import reply
from uad.server.state import STATE, State

B = TypeVar("B", bound=Body)
Read = Callable[[dict[str, object]], Translated[B]]
Form = Callable[[B, Job, Reading], Shape]
"""The form of an answer, made where long work is done."""


async def chat(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    state = request.app[STATE]
    same = Identity("chatcmpl-", state.alias, state.fingerprint)
    return await _answer(request, read_chat, lambda own, job, reading: chat_shape(job, same, reading))


async def responses(request: web.Request) -> web.StreamResponse:
    """POST /v1/responses: without memory."""
    alias = request.app[STATE].alias
    return await _answer(request, read_response, lambda own, job, reading: ResponseShape(job, own, alias, reading))


async def messages(request: web.Request) -> web.StreamResponse:
    """POST /v1/messages."""
    check_version(request.headers.get("anthropic-version"))
    alias = request.app[STATE].alias
    return await _answer(request, read_message, lambda own, job, reading: MessageShape(job, own, alias, reading))


async def chat_tokens(request: web.Request) -> web.Response:
    """POST /v1/chat/completions/input_tokens: how many ids the prompt of a chat has."""
    state = request.app[STATE]
    body, size = await state.read(request, lambda members: checked(TemplateBody, members))
    n_tokens = await state.off_loop(size, lambda: _n_tokens(state, body))
    return reply({"object": "response.input_tokens", "input_tokens": n_tokens})


async def response_tokens(request: web.Request) -> web.Response:
    """POST /v1/responses/input_tokens."""
    return await _count(request, read_response, lambda n: {"object": "response.input_tokens", "input_tokens": n})


async def message_tokens(request: web.Request) -> web.Response:
    """POST /v1/messages/count_tokens."""
    check_version(request.headers.get("anthropic-version"))
    return await _count(request, read_message, lambda n: {"input_tokens": n})


async def _answer(request: web.Request, read: Read[B], form: Form[B]) -> web.StreamResponse:
    """Answer a request that `read` makes of its members, in a form of its own."""
    state = request.app[STATE]
    asked, size = await state.read(request, read)
    with (
        spelled(asked.spelling),
        state.admission.enter(check_counts(state.engine, asked.chat, 1, state.admission.limit)),
    ):
        job, shape = await state.off_loop(size, lambda: _job(state, asked, form))
        return await answer(request, job, shape)


def _job(state: State, asked: Translated[B], form: Form[B]) -> tuple[Job, Shape]:
    ping, thoughts = state.config.sse_ping_interval, state.config.reasoning_format
    try:
        job, reading = chat_job(state.engine, asked.chat, ping, thoughts)
    except InvalidRequestError as error:
        if asked.relaxed is None or not (error.param or "").startswith("tools"):
            raise
        job, reading = chat_job(state.engine, asked.relaxed, ping, thoughts)
    return job, form(asked.own, job, reading)


async def _count(request: web.Request, read: Read[B], form: Callable[[int], Mapping[str, object]]) -> web.Response:
    """How many ids the prompt of such a request has. Raises ContextOverflowError where it could not fit at all."""
    state = request.app[STATE]
    asked, size = await state.read(request, read)
    with spelled(asked.spelling):
        return await state.reply(size, lambda: form(_n_tokens(state, asked.chat)))


def _n_tokens(state: State, body: TemplateBody) -> int:
    return len(encode_chat(state.engine, body).ids)
