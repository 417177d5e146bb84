"""POST /v1/responses: OpenAI's Responses API, without memory. And how many ids a request of it has."""

from __future__ import annotations

from aiohttp import web

from uad.apis.responses_answer import ResponseShape
from uad.apis.responses_request import ResponsesBody, read_response
from uad.apis.spoken import Reading
from uad.apis.translated import Translated, answer_as, count
from uad.requests.job import Job
from uad.server.state import State


async def create(request: web.Request) -> web.StreamResponse:
    """POST /v1/responses."""
    return await answer_as(request, read_response, _shape)


async def input_tokens(request: web.Request) -> web.Response:
    """POST /v1/responses/input_tokens."""
    return await count(request, read_response, lambda n: {"object": "response.input_tokens", "input_tokens": n})


def _shape(state: State, asked: Translated[ResponsesBody], job: Job, reading: Reading) -> ResponseShape:
    return ResponseShape(job, asked.own, state.alias, reading)
