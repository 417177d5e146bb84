"""All routes that generate: a request is read, its prompts become ids, its sequences run, and its answer is sent, whole
or as a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import TypeVar

from aiohttp import web

from uad.base.common.json_out import DONE
from uad.base.errors import InvalidRequestError
from uad.base.types import Image
from uad.http.apis.answer import RunningAnswer
from uad.http.apis.dialect import AtOnce, ChatApi, Dialect, Served, Translated, spelled
from uad.http.apis.native import NativeDialect
from uad.http.apis.openai import CompletionDialect
from uad.http.requests.chat import PLAIN, chat_job, check_chat
from uad.http.requests.fields import Body, CompletionBody, InfillBody, NativeBody, TemplateBody, checked
from uad.http.requests.generation import Backend, Generation
from uad.http.requests.job import Job, check_counts, check_job, make_job
from uad.http.requests.pictures import (
    PictureSource,
    chat_sources,
    check_number,
    check_sight,
    has_pictures,
    prompt_sources,
)
from uad.http.requests.prompt_ids import check_begun, check_prompts, encode_chat, encode_completion, split_prompts
from uad.http.server.bodies import MAX_TEXT, WITH_PICTURES
from uad.http.server.connection import hurry
from uad.http.server.json_in import SMALL
from uad.http.server.quick import kind_of
from uad.http.server.replies import FAILED, begin_stream, reply
from uad.http.server.state import STATE, State

B = TypeVar("B", bound=Body)
P = TypeVar("P", CompletionBody, NativeBody, InfillBody)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
STALLED_SECONDS = 5.0
"""A stream that was cancelled because it is not read waits so long for its reader to take the error."""


# --- chats, in any API


def answering(api: ChatApi[B]) -> Handler:
    """The route that answers requests of this API."""

    async def handle(request: web.Request) -> web.StreamResponse:
        api.check(request.headers)
        state = request.app[STATE]
        asked, size = await state.read(
            request, lambda members: api.at_once(members) or api.read(members), WITH_PICTURES
        )
        if isinstance(asked, AtOnce):
            async with state.idle.awake(asked.loads):
                state.idle.keep(asked.keep_s)
                return reply(asked.answer)
        spelling = asked.spelling
        with spelled(spelling):
            n = check_counts(asked.chat, 1, state.admission.limit)
            await _before_waking(state, size, partial(_check, state, asked))
        async with state.idle.awake():
            with state.admission.enter(n):
                async with _seen(state, await _sources_of(state, size, asked)) as images:
                    kind = None if images or asked.relaxed is not None else kind_of(asked.chat, size)
                    with spelled(spelling):
                        make = partial(_chat_dialect, state, api, asked, images)
                        dialect = await state.prepared(size, kind, make)
                        state.idle.keep(asked.keep_s)  # not by a request that is refused
                        del asked, make  # the files of pictures are in it, and the answer may be long
                        return await _answer(request, dialect)

    return handle


async def _before_waking(state: State, size: int, check: Callable[[], None]) -> None:
    """Refuse a request while the models are unloaded, where `check` does so: none is loaded for it. Where they are
    loaded, what makes its job refuses it.
    """
    if state.engine.sleep.is_asleep:
        await state.off_loop(size, check)


def _check(state: State, asked: Translated[B]) -> None:
    chat = asked.chat
    if isinstance(chat, CompletionBody):
        check_job(state.engine, chat)
        check_prompts(state.engine, chat, [chat.prompt])
        return
    check_chat(state.engine, chat)
    if has_pictures(chat):
        check_sight(state.engine.sees_images, chat_sources(chat, asked.places))


async def _sources_of(state: State, size: int, asked: Translated[B]) -> list[PictureSource]:
    """The pictures of the chat. What is wrong with one is said of its place in the request."""
    chat = asked.chat
    if isinstance(chat, CompletionBody) or not has_pictures(chat):
        return []
    with spelled(asked.spelling):
        return await state.off_loop(size, lambda: chat_sources(chat, asked.places))


@asynccontextmanager
async def _seen(state: State, sources: list[PictureSource]) -> AsyncIterator[list[Image]]:
    """The pictures; the list is empty then. Raises NotSupportedError where the model sees none."""
    check_sight(state.engine.sees_images, sources)
    async with state.media.images(sources) as images:
        yield images


def _chat_dialect(state: State, api: ChatApi[B], asked: Translated[B], images: Sequence[Image]) -> Dialect:
    """What to generate, and in which form. Renders, tokenizes and compiles: for worker threads."""
    ping, thoughts = state.config.sse_ping_interval, state.config.reasoning_format
    if isinstance(asked.chat, CompletionBody):
        prompt = encode_completion(state.engine, asked.chat, asked.chat.prompt)
        return api.dialect(make_job(state.engine, asked.chat, [prompt], ping), state.served, PLAIN, asked.own)
    try:
        job, reading = chat_job(state.engine, asked.chat, ping, thoughts, images)
    except InvalidRequestError as error:
        if asked.relaxed is None or not (error.param or "").startswith("tools"):
            raise
        job, reading = chat_job(state.engine, asked.relaxed, ping, thoughts, images)
    return api.dialect(job, state.served, reading, asked.own)


def counting(api: ChatApi[B]) -> Handler:
    """The route that says how many ids the prompt of such a request has."""

    async def handle(request: web.Request) -> web.StreamResponse:
        api.check(request.headers)
        state = request.app[STATE]
        asked, size = await state.read(request, api.read, WITH_PICTURES)
        with spelled(asked.spelling):
            await _before_waking(state, size, partial(_check, state, asked))
        async with state.idle.awake(), _seen(state, await _sources_of(state, size, asked)) as images:
            with spelled(asked.spelling):
                return await state.reply(size, lambda: api.counted(_n_tokens(state, asked.chat, images)))

    return handle


async def chat_tokens(request: web.Request) -> web.Response:
    """POST /v1/chat/completions/input_tokens: of a chat that need not be one to answer."""
    state = request.app[STATE]
    body, size = await state.read(request, lambda members: checked(TemplateBody, members), WITH_PICTURES)
    await _before_waking(state, size, lambda: _check_template(state, body))
    async with state.idle.awake():
        sources = await state.off_loop(size, lambda: chat_sources(body)) if has_pictures(body) else []
        async with _seen(state, sources) as images:
            n_tokens = await state.off_loop(size, lambda: _n_tokens(state, body, images))
    return reply({"object": "response.input_tokens", "input_tokens": n_tokens})


def _check_template(state: State, body: TemplateBody) -> None:
    check_begun(body)
    if has_pictures(body):
        check_sight(state.engine.sees_images, chat_sources(body))


def _n_tokens(state: State, body: TemplateBody | CompletionBody, images: Sequence[Image] = ()) -> int:
    """Raises ContextOverflowError where the prompt could not fit at all."""
    if isinstance(body, CompletionBody):
        return len(encode_completion(state.engine, body, body.prompt).ids)
    return len(encode_chat(state.engine.text, body, images).ids)


# --- what goes on from prompts


async def completion(request: web.Request) -> web.StreamResponse:
    """POST /v1/completions."""
    return await _complete(request, CompletionBody, lambda job, served, body: CompletionDialect(job, served))


async def native(request: web.Request) -> web.StreamResponse:
    """POST /completion and /completions."""
    return await _complete(request, NativeBody, _native)


async def infill(request: web.Request) -> web.StreamResponse:
    """POST /infill."""
    return await _complete(request, InfillBody, _native)


def _native(job: Job, served: Served, body: NativeBody) -> Dialect:
    return NativeDialect(job, served, body.return_tokens, body.response_fields)


async def _complete(
    request: web.Request, kind: type[P], dialect: Callable[[Job, Served, P], Dialect]
) -> web.StreamResponse:
    """These routes differ in what they take and in the form of the answer."""
    state = request.app[STATE]
    most = MAX_TEXT if kind is InfillBody else WITH_PICTURES
    (body, prompts), size = await state.read(request, lambda members: _with_prompts(checked(kind, members)), most)
    engine, ping = state.engine, state.config.sse_ping_interval
    n = check_counts(body, len(prompts), state.admission.limit)
    await _before_waking(state, size, partial(_check_prompted, engine, body, prompts))
    async with state.idle.awake():
        with state.admission.enter(n):
            sources = _sources(body, prompts)
            counts = [len(own) for own in sources]
            async with _seen(state, [one for own in sources for one in own]) as images:
                del sources
                make = partial(_job, engine, body, prompts, counts, images, ping)
                job = await state.prepared(size, None if images else kind_of(body, size), make)
                answer = dialect(job, state.served, body)
                del body, prompts, make  # the files of pictures are in them, and the answer may be long
                return await _answer(request, answer)


def _check_prompted(engine: Backend, body: CompletionBody | NativeBody, prompts: Sequence[object]) -> None:
    check_job(engine, body)
    check_prompts(engine, body, prompts)
    check_sight(engine.sees_images, [one for own in _sources(body, prompts) for one in own])


def _job(
    engine: Backend,
    body: CompletionBody | NativeBody,
    prompts: Sequence[object],
    counts: Sequence[int],
    images: Sequence[Image],
    ping: float,
) -> Job:
    """What is generated for these prompts, of which each has so many of the images."""
    left = iter(images)
    pairs = [(prompt, [*islice(left, n)]) for prompt, n in zip(prompts, counts, strict=True)]
    return make_job(engine, body, [encode_completion(engine, body, prompt, own) for prompt, own in pairs], ping)


def _with_prompts(body: P) -> tuple[P, list[object]]:
    return body, split_prompts(body.prompt)


def _sources(body: CompletionBody | NativeBody, prompts: Sequence[object]) -> list[list[PictureSource]]:
    """The pictures of each prompt. Raises InvalidRequestError, also where one has a suffix beside them."""
    places = ["prompt"] if len(prompts) == 1 else [f"prompt.{i}" for i in range(len(prompts))]
    found = [prompt_sources(prompt, where) for prompt, where in zip(prompts, places, strict=True)]
    check_number(sum(map(len, found)), "prompt")
    if any(found) and isinstance(body, CompletionBody) and body.suffix:
        raise InvalidRequestError.at("suffix", "a prompt with images has none; leave it out")
    return found


# --- every answer


async def _answer(request: web.Request, dialect: Dialect) -> web.StreamResponse:
    """Generate, and give back the finished response. Everything still running when the client leaves is cancelled."""
    state, job = request.app[STATE], dialect.job
    state.bodies.release(request)  # what is left of it is in the job
    for one in job.requests:
        for image in one.images:
            image.pixels.lend()
    stalled = partial(hurry, request, STALLED_SECONDS)
    with Generation(state.engine, job.requests, stalled, not job.stream, state.ticks) as generation:
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
    if n_chars > SMALL or job.token_ids or any(request.logprobs for request in job.requests):
        return await state.reply(n_chars, answer.to_json, answer.dialect.depth)
    return reply(answer.to_json())


async def _stream(request: web.Request, generation: Generation, answer: RunningAnswer) -> web.StreamResponse:
    """Send the frames that events make. They may make none for long, so silence is measured by what is sent."""
    ping, clock = answer.job.ping, asyncio.get_running_loop().time
    sent = clock()
    arrivals = await generation.take(ping)  # an error before the first event still gets its own status
    request[FAILED] = answer.failed
    response = await begin_stream(request, answer.dialect.content_type)
    while True:
        data = answer.frames(arrivals)
        if not generation.is_open:
            break
        if data or (ping is not None and clock() >= sent + ping):
            await response.write(data or answer.dialect.ping)
            sent = clock()
        arrivals = await generation.take(None if ping is None else max(sent + ping - clock(), 0.0))
    await response.write(data + DONE if answer.dialect.ends_with_done else data)
    await response.write_eof()
    return response
