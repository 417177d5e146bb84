"""The three generation routes: read, check, tokenize off the loop, answer."""

from __future__ import annotations

from aiohttp import web

from uad.server.answer import answer
from uad.server.job import check_counts, make_job
from uad.server.native import NativeShape
from uad.server.prompts import encode_chat, encode_prompt, split_prompts
from uad.server.refuse import check_features
from uad.server.schemas import ChatBody, CompletionBody, NativeBody
from uad.server.shapes import ChatShape, CompletionShape, Identity
from uad.server.state import STATE


async def chat(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    state = request.app[STATE]
    members = await state.read_object(request)
    check_features(members)
    body = ChatBody.model_validate(members)
    engine, ping = state.engine, state.config.sse_ping_interval
    with state.gate.enter(check_counts(engine, body, 1, state.gate.limit)):
        job = await state.off_loop(lambda: make_job(engine, body, [encode_chat(engine, body)], ping))
        return await answer(request, job, ChatShape(job, Identity("chatcmpl-", state.alias, state.fingerprint)))


async def completion(request: web.Request) -> web.StreamResponse:
    """POST /v1/completions."""
    state = request.app[STATE]
    members = await state.read_object(request)
    check_features(members)
    body = CompletionBody.model_validate(members)
    engine, ping = state.engine, state.config.sse_ping_interval
    prompts = split_prompts(body.prompt, engine.info.target.n_vocab)
    with state.gate.enter(check_counts(engine, body, len(prompts), state.gate.limit)):
        job = await state.off_loop(lambda: make_job(engine, body, [encode_prompt(engine, parts) for parts in prompts], ping))
        return await answer(request, job, CompletionShape(job, Identity("cmpl-", state.alias, state.fingerprint)))


async def native(request: web.Request) -> web.StreamResponse:
    """POST /completion and /completions."""
    state = request.app[STATE]
    members = await state.read_object(request)
    check_features(members)
    body = NativeBody.model_validate(members)
    engine, ping = state.engine, state.config.sse_ping_interval
    prompts = split_prompts(body.prompt, engine.info.target.n_vocab)
    with state.gate.enter(check_counts(engine, body, len(prompts), state.gate.limit)):
        job = await state.off_loop(lambda: make_job(engine, body, [encode_prompt(engine, parts) for parts in prompts], ping))
        return await answer(request, job, NativeShape(job, state.alias, body.return_tokens, body.response_fields))
