"""All routes that generate: a request is read, its prompts become ids, its sequences run, and its answer is sent, whole
or as a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain, islice
from typing import Any

from aiohttp import web

from uad.base.errors import InvalidRequestError
from uad.base.types import Image
from uad.http.apis.answer import RunningAnswer
from uad.http.apis.api import AnswerRoute, Called, CountRoute, ReadBody
from uad.http.apis.dialect import AtOnce, Dialect, Prompted, Translated, spelled
from uad.http.edge.bodies import MAX_TEXT_BYTES, WITH_PICTURES_BYTES
from uad.http.edge.connection import limit_write_time
from uad.http.edge.json_in import SMALL_BYTES
from uad.http.edge.replies import FAILED, begin_stream, reply
from uad.http.requests.fields import GenerationBody, TemplateBody
from uad.http.requests.generation import Backend, Generation
from uad.http.requests.job import check_counts
from uad.http.requests.left_out import leave_out
from uad.http.requests.pictures import PictureSource, chat_sources, check_sight, has_pictures, prompted_sources
from uad.http.requests.prepare import AnsweredBody, check_prepared, prepared
from uad.http.requests.prompt_ids import check_begun, check_prompts, encode_chat, encode_completion
from uad.http.server.quick import kind_of
from uad.http.server.state import STATE, State

STALLED_SECONDS = 5.0
"""A stream that was cancelled because it is not read waits so long for its reader to take the error."""


async def answer(route: AnswerRoute, request: web.Request) -> web.StreamResponse:
    """Every route that generates: in any API, a chat or what goes on from prompts."""
    state = request.app[STATE]
    asked, size = await _read(
        state, request, route.read, WITH_PICTURES_BYTES if route.takes_pictures else MAX_TEXT_BYTES
    )
    if isinstance(asked, AtOnce):
        async with state.idle.awake(asked.loads):
            state.idle.keep(asked.keep_s)
            return reply(asked.answer)
    body, spelling = asked.chat, asked.spelling
    assert isinstance(body, GenerationBody), "only chats that are counted are not answered"
    with spelled(spelling):
        n = check_counts(body, len(asked.prompts) or 1, state.admission.limit)
        await _before_waking(state, size, asked)
    async with state.idle.awake():
        with state.admission.enter(n):
            async with _seen(state, size, asked) as images:
                kind = None if any(images) or asked.relaxed is not None else kind_of(body, size)
                with spelled(spelling):
                    make = partial(_dialect, state, route, asked, images)
                    dialect = await state.prepared(size, kind, make)
                    keep_s = asked.keep_s
                    del asked, body, make, images  # the files of pictures are in them, and the answer may be long
                    return await _answer(request, dialect, keep_s)


async def count(route: CountRoute, request: web.Request) -> web.StreamResponse:
    """Every route that says how many ids the prompt of a chat has."""
    state = request.app[STATE]
    asked, size = await _read(state, request, route.read, WITH_PICTURES_BYTES)
    assert isinstance(asked, Translated), "only what generates is answered at once"
    with spelled(asked.spelling):
        await _before_waking(state, size, asked)
    async with state.idle.awake(), _seen(state, size, asked) as images:
        with spelled(asked.spelling):
            return await state.reply(size, lambda: route.counted(_n_tokens(state, asked.chat, images)))


async def _read(state: State, request: web.Request, read: ReadBody, most: int) -> tuple[Translated[Any] | AtOnce, int]:
    """The request, and the bytes of its body."""
    called = Called(request.headers, request.match_info, request.query)
    return await state.read(request, lambda members: read(members, called), most)


async def _before_waking(state: State, size: int, asked: Translated[Any]) -> None:
    """Refuse a request while the models are unloaded, where `_check` does so: none is loaded for it. Where they are
    loaded, what prepares it refuses it.
    """
    if state.engine.sleep.is_asleep:
        await state.off_loop(size, partial(_check, state.engine, asked))


def _check(engine: Backend, asked: Translated[Any]) -> None:
    body = asked.chat
    if isinstance(body, AnsweredBody):
        check_prepared(engine, body)
    else:
        check_begun(body)
    if isinstance(body, Prompted):
        check_prompts(engine, body, asked.prompts)
    check_sight(engine.sees_images, [*chain.from_iterable(_sources(asked))])


def _sources(asked: Translated[Any]) -> list[list[PictureSource]]:
    """The pictures of each prompt, of which a chat is one. Raises InvalidRequestError, for a place in the request."""
    body = asked.chat
    if not isinstance(body, TemplateBody):
        return prompted_sources(body, asked.prompts)
    return [chat_sources(body, asked.places)]


@asynccontextmanager
async def _seen(state: State, size: int, asked: Translated[Any]) -> AsyncIterator[list[list[Image]]]:
    """The pictures of each prompt; the lists are empty then. Raises NotSupportedError where the model sees none."""
    body = asked.chat
    if isinstance(body, TemplateBody) and not has_pictures(body):
        yield [[]]
        return
    with spelled(asked.spelling):
        sources = await state.off_loop(size, partial(_sources, asked))
    counts, flat = [*map(len, sources)], [*chain.from_iterable(sources)]
    del asked, body, sources  # the files of pictures are in them
    check_sight(state.engine.sees_images, flat)
    async with state.media.images(flat) as images:
        left = iter(images)
        yield [[*islice(left, n)] for n in counts]


def _dialect(state: State, route: AnswerRoute, asked: Translated[Any], images: Sequence[Sequence[Image]]) -> Dialect:
    """Prepare the generation, and the form of its answer. Renders, tokenizes and compiles: for worker threads."""
    body = asked.chat
    assert isinstance(body, AnsweredBody), "only chats that are counted are not answered"
    try:
        job, reading = prepared(state.engine, body, asked.prompts, images, state.config)
    except InvalidRequestError as error:
        if asked.relaxed is None or not (error.param or "").startswith("tools"):
            raise
        leave_out("/v1/responses", "strict, which tools have unless they say otherwise,", str(error))
        job, reading = prepared(state.engine, asked.relaxed, (), images, state.config)
    return route.dialect(job, state.served, reading, asked.own)


def _n_tokens(state: State, body: TemplateBody | Prompted, images: Sequence[Sequence[Image]]) -> int:
    """Raises ContextOverflowError where the prompt could not fit at all."""
    if not isinstance(body, TemplateBody):
        return len(encode_completion(state.engine, body, body.prompt).ids)
    return len(encode_chat(state.engine.text, body, images[0]).ids)


# --- every answer


async def _answer(request: web.Request, dialect: Dialect, keep_s: float | None) -> web.StreamResponse:
    """Generate, and give back the finished response. Everything still running when the client leaves is cancelled.

    keep_s: see `Translated`.
    """
    state, job = request.app[STATE], dialect.job
    state.bodies.release(request)  # what is left of it is in the job
    for wanted in job.requests:
        for image in wanted.images:
            image.pixels.lend()
    stalled = partial(limit_write_time, request, STALLED_SECONDS)
    with Generation(state.engine, job.requests, stalled, not job.stream, state.ticks) as generation:
        state.idle.keep(keep_s)  # not by a request that is refused
        state.live.add(generation)
        try:
            answer = RunningAnswer(dialect)
            if job.stream:
                return await _stream(request, generation, answer)
            while generation.is_open:
                answer.collect(await generation.take(None))
            return await _whole(state, answer)
        finally:
            state.live.discard(generation)


async def _whole(state: State, answer: RunningAnswer) -> web.Response:
    """The answer at once; a long one, or one with probabilities, a hundred numbers per token, is put together off the
    loop.
    """
    job = answer.job
    n_chars = sum(len(prompt.text) for prompt in job.prompts) + answer.n_chars
    if n_chars > SMALL_BYTES or job.token_ids or any(request.logprobs for request in job.requests):
        return await state.reply(n_chars, answer.to_json, answer.dialect.depth)
    return reply(answer.to_json())


async def _stream(request: web.Request, generation: Generation, answer: RunningAnswer) -> web.StreamResponse:
    """Send the frames that events make. They may make none for long, so silence is measured by what is sent."""
    ping, clock = answer.job.ping, asyncio.get_running_loop().time
    last_data = sent = clock()
    arrivals = await generation.take(ping)  # an error before the first event still gets its own status
    request[FAILED] = answer.failed
    response = await begin_stream(request, answer.dialect.content_type)
    while True:
        data = answer.frames(arrivals)
        if not generation.is_open:
            break
        if data or (ping is not None and clock() >= sent + ping):
            last_data = clock() if data else last_data
            await response.write(data or answer.dialect.silence(clock() - last_data))
            sent = clock()
        arrivals = await generation.take(None if ping is None else max(sent + ping - clock(), 0.0))
    await response.write(data + answer.dialect.ending)
    await response.write_eof()
    return response
