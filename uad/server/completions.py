"""The three generation routes: read, check, tokenize off the loop, answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

from uad.server.answer import answer
from uad.server.job import Job, check_counts, make_job
from uad.server.native import NativeShape
from uad.server.prompts import encode_prompt, split_prompts
from uad.server.refuse import checked
from uad.server.schemas import ChatBody, CompletionBody, NativeBody
from uad.server.shapes import CompletionShape, Identity, Shape
from uad.server.spoken import chat_job, chat_shape
from uad.server.state import STATE

B = TypeVar("B", CompletionBody, NativeBody)


async def chat(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    state = request.app[STATE]
    body, size = await state.read(request, lambda members: checked(ChatBody, members))
    engine, ping = state.engine, state.config.sse_ping_interval
    with state.gate.enter(check_counts(engine, body, 1, state.gate.limit)):
        job, reading = await state.off_loop(size, lambda: chat_job(engine, body, ping, state.config.reasoning_format))
        return await answer(request, job, chat_shape(job, Identity("chatcmpl-", state.alias, state.fingerprint), reading))


async def completion(request: web.Request) -> web.StreamResponse:
    """POST /v1/completions."""
    state = request.app[STATE]
    return await _complete(
        request, CompletionBody, lambda job, body: CompletionShape(job, Identity("cmpl-", state.alias, state.fingerprint))
    )


async def native(request: web.Request) -> web.StreamResponse:
    """POST /completion and /completions."""
    alias = request.app[STATE].alias
    return await _complete(request, NativeBody, lambda job, body: NativeShape(job, alias, body.return_tokens, body.response_fields))


async def _complete(request: web.Request, kind: type[B], shape: Callable[[Job, B], Shape]) -> web.StreamResponse:
    """Both routes that go on from prompts, which differ in what they take and in the form of the answer."""
    state = request.app[STATE]
    (body, prompts), size = await state.read(request, lambda members: _with_prompts(checked(kind, members)))
    engine, ping = state.engine, state.config.sse_ping_interval
    with state.gate.enter(check_counts(engine, body, len(prompts), state.gate.limit)):
        job = await state.off_loop(size, lambda: make_job(engine, body, [encode_prompt(engine, prompt) for prompt in prompts], ping))
        return await answer(request, job, shape(job, body))


def _with_prompts(body: B) -> tuple[B, list[object]]:
    return body, split_prompts(body.prompt)
