"""POST /v1/messages: Anthropic's Messages API. And how many ids a request of it has."""

from __future__ import annotations

from aiohttp import web

from uad.apis.messages_answer import MessageShape
from uad.apis.messages_request import MessagesBody, check_version, read_message
from uad.apis.spoken import Reading
from uad.apis.translated import Translated, answer_as, count
from uad.requests.job import Job
from uad.server.state import State


async def create(request: web.Request) -> web.StreamResponse:
    """POST /v1/messages."""
    check_version(request.headers.get("anthropic-version"))
    return await answer_as(request, read_message, _shape)


async def count_tokens(request: web.Request) -> web.Response:
    """POST /v1/messages/count_tokens."""
    check_version(request.headers.get("anthropic-version"))
    return await count(request, read_message, lambda n: {"input_tokens": n})


def _shape(state: State, asked: Translated[MessagesBody], job: Job, reading: Reading) -> MessageShape:
    return MessageShape(job, asked.own, state.alias, reading)
