"""Routes that go on from prompts; and how every answer is generated and sent, whole or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

from uad.apis.shapes import CompletionShape, Identity, NativeShape, Shape
from uad.apis.teller import Teller
from uad.common.json_out import DONE
from uad.requests.backend import Backend
from uad.requests.infill import encode_infill, encode_insertion
from uad.requests.job import Job, check_counts, make_job
from uad.requests.prompt_ids import Prompt, encode_prompt, split_prompts
from uad.requests.refuse import checked
from uad.requests.schemas import CompletionBody, InfillBody, NativeBody
from uad.server.generation import Generation
from uad.server.json_in import SMALL
from uad.server.replies import FAILED, begin_stream, reply
from uad.server.state import STATE, State

B = TypeVar("B", CompletionBody, NativeBody, InfillBody)


async def completion(request: web.Request) -> web.StreamResponse:
    """POST /v1/completions."""
    state = request.app[STATE]
    return await _complete(
        request,
        CompletionBody,
        lambda job, body: CompletionShape(job, Identity("cmpl-", state.alias, state.fingerprint)),
    )


async def native(request: web.Request) -> web.StreamResponse:
    """POST /completion and /completions."""
    return await _complete(request, NativeBody, _native(request))


async def infill(request: web.Request) -> web.StreamResponse:
    """POST /infill."""
    return await _complete(request, InfillBody, _native(request))


def _native(request: web.Request) -> Callable[[Job, NativeBody], Shape]:
    alias = request.app[STATE].alias
    return lambda job, body: NativeShape(job, alias, body.return_tokens, body.response_fields)


async def _complete(request: web.Request, kind: type[B], shape: Callable[[Job, B], Shape]) -> web.StreamResponse:
    """Both routes that go on from prompts, which differ in what they take and in the form of the answer."""
    state = request.app[STATE]
    (body, prompts), size = await state.read(request, lambda members: _with_prompts(checked(kind, members)))
    engine, ping = state.engine, state.config.sse_ping_interval
    with state.gate.enter(check_counts(engine, body, len(prompts), state.gate.limit)):
        job = await state.off_loop(
            size, lambda: make_job(engine, body, [_encoded(engine, body, prompt) for prompt in prompts], ping)
        )
        return await answer(request, job, shape(job, body))


def _encoded(engine: Backend, body: CompletionBody | NativeBody, prompt: object) -> Prompt:
    if isinstance(body, InfillBody):
        return encode_infill(engine, body)
    if isinstance(body, CompletionBody) and body.suffix:
        return encode_insertion(engine, prompt, body.suffix)
    return encode_prompt(engine, prompt)


def _with_prompts(body: B) -> tuple[B, list[object]]:
    return body, split_prompts(body.prompt)


async def answer(request: web.Request, job: Job, shape: Shape) -> web.StreamResponse:
    """Generate, and give back the finished response. Everything still running when the client leaves is cancelled."""
    state = request.app[STATE]
    with Generation(state.engine, job.requests) as generation:
        state.live.add(generation)
        try:
            teller = Teller(job, shape)
            if job.stream:
                return await _stream(request, generation, teller)
            while generation.is_open:
                teller.hear(await generation.take(None))
            return await _whole(state, teller)
        finally:
            state.live.discard(generation)


async def _whole(state: State, teller: Teller) -> web.Response:
    """The answer at once; a long one, or one with probabilities, a hundred numbers per token, is put together off the
    loop.
    """
    n_chars = sum(len(prompt.text) for prompt in teller.job.prompts) + sum(
        outcome.n_chars for outcome in teller.outcomes
    )
    if n_chars > SMALL or any(request.logprobs for request in teller.job.requests):
        return await state.reply(n_chars, lambda: teller.shape.whole(teller.outcomes), teller.shape.depth)
    return reply(teller.shape.whole(teller.outcomes))


async def _stream(request: web.Request, generation: Generation, teller: Teller) -> web.StreamResponse:
    state, ping = request.app[STATE], teller.job.ping
    arrivals = await generation.take(ping)  # an error before the first event still gets its own status
    request[FAILED] = teller.failed
    response = await begin_stream(request)
    while True:
        data = teller.tell(arrivals) if arrivals else teller.shape.ping
        if not generation.is_open:
            break
        await _write(state, response, data)
        arrivals = await generation.take(ping)
    await _write(state, response, data + DONE if teller.shape.ends_with_done else data)
    await response.write_eof()
    return response


async def _write(state: State, response: web.StreamResponse, data: bytes) -> None:
    if data:
        async with asyncio.timeout(state.config.timeout):
            await response.write(data)
