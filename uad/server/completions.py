"""The generation routes: read, check, tokenize off the loop, run, send the answer whole or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

from uad.apis.origins import OriginTeller
from uad.apis.outcome import Outcome, timings_json
from uad.apis.problems import Problem
from uad.apis.shapes import CompletionShape, Identity, NamedEvents, NativeShape, Shape
from uad.apis.spoken import chat_job, chat_shape
from uad.common.json_out import DONE, PING, dumps, frame, named_frame, with_member
from uad.events import Delta, Done, Progress
from uad.requests.engine import Arrival, Backend, Generation, merge
from uad.requests.infill import encode_infill, encode_insertion
from uad.requests.job import Job, check_counts, make_job
from uad.requests.prompt_ids import Prompt, encode_prompt, split_prompts
from uad.requests.refuse import checked
from uad.requests.schemas import ChatBody, CompletionBody, InfillBody, NativeBody
from uad.server.json_in import SMALL
from uad.server.state import FAILED, STATE, STREAM, State
from uad.stats import Timings

B = TypeVar("B", CompletionBody, NativeBody, InfillBody)
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def chat(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    state = request.app[STATE]
    body, size = await state.read(request, lambda members: checked(ChatBody, members))
    engine, ping = state.engine, state.config.sse_ping_interval
    with state.gate.enter(check_counts(engine, body, 1, state.gate.limit)):
        job, reading = await state.off_loop(size, lambda: chat_job(engine, body, ping, state.config.reasoning_format))
        return await answer(
            request, job, chat_shape(job, Identity("chatcmpl-", state.alias, state.fingerprint), reading)
        )


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
    alias = request.app[STATE].alias
    return await _complete(
        request, NativeBody, lambda job, body: NativeShape(job, alias, body.return_tokens, body.response_fields)
    )


async def infill(request: web.Request) -> web.StreamResponse:
    """POST /infill."""
    alias = request.app[STATE].alias
    return await _complete(
        request, InfillBody, lambda job, body: NativeShape(job, alias, body.return_tokens, body.response_fields)
    )


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
        return await state.reply(n_chars, lambda: teller.shape.whole(teller.outcomes), teller.depth)
    return web.Response(text=dumps(teller.shape.whole(teller.outcomes)), content_type="application/json")


class Teller:
    """Keeps what each sequence has said so far, and puts new events into the client's form."""

    def __init__(self, job: Job, shape: Shape) -> None:
        self.job = job
        self.shape = shape
        self.outcomes = [Outcome(i) for i in range(len(job.requests))]
        self.ping = shape.ping if isinstance(shape, NamedEvents) else PING
        self.depth = shape.depth if isinstance(shape, NamedEvents) else 5
        self._frame = named_frame if isinstance(shape, NamedEvents) else frame
        self._is_opened = [False] * len(job.requests)
        self._origins = OriginTeller(len(job.requests))

    def hear(self, arrivals: list[Arrival]) -> None:
        """Take in events of an answer that is sent as a whole."""
        for index, event in arrivals:
            if isinstance(event, Delta):
                self.outcomes[index].observe(event, keep=True)
            elif isinstance(event, Progress):
                self.outcomes[index].prompt_probs += event.probs
            else:
                self._finish(index, event, keep=True)

    def tell(self, arrivals: list[Arrival]) -> bytes:
        """The events as frames of the stream."""
        texts: list[str] = []
        for index, event in merge(arrivals):
            outcome = self.outcomes[index]
            if not self._is_opened[index]:
                self._is_opened[index] = True
                texts += self.shape.opening(outcome)
            if isinstance(event, Delta):
                outcome.observe(event, keep=False)
                texts += self._piece(outcome, event)
            elif isinstance(event, Progress):
                texts += self._progress(outcome, event)
            else:
                texts += self._origins.put(index, (), self._close(index, event))
        return b"".join(self._frame(text) for text in texts)

    def failed(self, problem: Problem) -> bytes:
        """An error as the last frames of the stream."""
        if isinstance(self.shape, NamedEvents):
            return b"".join(map(self._frame, self.shape.failed(problem)))
        return frame(dumps(problem.body()))

    def _piece(self, outcome: Outcome, event: Delta) -> list[str]:
        texts = [_timed(text, event.timings) for text in self.shape.piece(outcome, event)]
        return self._origins.put(outcome.index, event.tokens, texts)

    def _progress(self, outcome: Outcome, event: Progress) -> list[str]:
        """How far the prompt was read, for who asked for it."""
        outcome.prompt_probs += event.probs
        if not self.job.requests[outcome.index].progress:
            return []
        progress = {
            "total": event.n_prompt,
            "cache": event.n_cached,
            "processed": event.n_past,
            "time_ms": int(event.ms),
        }
        return [_timed(with_member(self.shape.blank(outcome), "prompt_progress", progress), event.timings)]

    def _close(self, index: int, done: Done) -> list[str]:
        outcome = self.outcomes[index]
        rest = self._finish(index, done, keep=False)
        pieces = self.shape.piece(outcome, rest) if rest.text else []
        is_last = all(outcome.done is not None for outcome in self.outcomes)
        return [*pieces, *self.shape.closing(outcome, self.outcomes if is_last else [])]

    def _finish(self, index: int, done: Done, keep: bool) -> Delta:
        rest = Delta(done.request, (), (), done.text)
        self.outcomes[index].observe(rest, keep)
        self.outcomes[index].done = done
        return rest


def _timed(text: str, timings: Timings | None) -> str:
    """The JSON text of an object, with `timings` if there are some."""
    return text if timings is None else with_member(text, "timings", timings_json([timings]))


async def _stream(request: web.Request, generation: Generation, teller: Teller) -> web.StreamResponse:
    state, ping = request.app[STATE], teller.job.ping
    arrivals = await generation.take(ping)  # an error before the first event still gets its own status
    response = web.StreamResponse(headers=HEADERS)
    request[STREAM] = response
    request[FAILED] = teller.failed
    await response.prepare(request)
    while True:
        data = teller.tell(arrivals) if arrivals else teller.ping
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
