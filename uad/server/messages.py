"""POST /v1/messages: Anthropic's Messages API. And how many ids a request of it has."""

from __future__ import annotations

from aiohttp import web

from uad.server.job import Job
from uad.server.messages_answer import MessageShape
from uad.server.messages_request import MessagesBody, check_version, read_message
from uad.server.spoken import Reading
from uad.server.state import State
from uad.server.translated import Translated, answer_as, count


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
