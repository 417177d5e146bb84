"""Routes that go on from prompts; and how every answer is generated and sent, whole or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from aiohttp import web

from uad.apis.origins import IdTeller, OriginTeller
from uad.apis.outcome import Outcome, timings_json
from uad.apis.problems import Problem
from uad.apis.shapes import CompletionShape, Identity, NativeShape, Shape
from uad.common.json_out import DONE, with_member
from uad.events import Delta, Done, Progress
from uad.requests.engine import Arrival, Backend, Generation, merge
from uad.requests.fields import CompletionBody, InfillBody, NativeBody, checked
from uad.requests.infill import encode_infill, encode_insertion
from uad.requests.job import Job, check_counts, make_job
from uad.requests.prompt_ids import Prompt, encode_prompt, split_prompts, text_of
from uad.server.connection import hurry
from uad.server.json_in import SMALL
from uad.server.replies import FAILED, begin_stream, reply
from uad.server.state import STATE, State
from uad.stats import Timings

B = TypeVar("B", CompletionBody, NativeBody, InfillBody)
STALLED_SECONDS = 5.0
"""A stream that was cancelled because it is not read waits so long for its reader to take the error."""


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
    with state.admission.enter(check_counts(engine, body, len(prompts), state.admission.limit)):
        job = await state.off_loop(
            size, lambda: make_job(engine, body, [_encoded(engine, body, prompt) for prompt in prompts], ping)
        )
        return await answer(request, job, shape(job, body))


def _encoded(engine: Backend, body: CompletionBody | NativeBody, prompt: object) -> Prompt:
    if isinstance(body, InfillBody):
        return encode_infill(engine, body)
    if isinstance(body, CompletionBody) and body.suffix:
        return encode_insertion(engine, prompt, body.suffix, body.add_special_tokens)
    encoded = encode_prompt(engine, prompt, body.add_special_tokens)
    return replace(encoded, text=text_of(engine, encoded.ids)) if isinstance(body, NativeBody) else encoded


def _with_prompts(body: B) -> tuple[B, list[object]]:
    return body, split_prompts(body.prompt)


async def answer(request: web.Request, job: Job, shape: Shape) -> web.StreamResponse:
    """Generate, and give back the finished response. Everything still running when the client leaves is cancelled."""
    state = request.app[STATE]
    state.bodies.release(request)  # what is left of it is in the job
    stalled = partial(hurry, request, STALLED_SECONDS)
    with Generation(state.engine, job.requests, stalled, not job.stream, state.ticks) as generation:
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
    if n_chars > SMALL or teller.job.token_ids or any(request.logprobs for request in teller.job.requests):
        return await state.reply(n_chars, lambda: teller.shape.whole(teller.outcomes), teller.shape.depth)
    return reply(teller.shape.whole(teller.outcomes))


class Teller:
    """Keeps what each sequence has said so far, and puts new events into the client's form."""

    def __init__(self, job: Job, shape: Shape) -> None:
        self.job = job
        self.shape = shape
        self.outcomes = [Outcome(i) for i in range(len(job.requests))]
        self._is_opened = [False] * len(job.requests)
        self._origins = OriginTeller(len(job.requests))
        prompts = [request.prompt for request in job.requests]
        self._ids = IdTeller(prompts, isinstance(shape, CompletionShape)) if job.token_ids else None

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
            if isinstance(event, Progress):
                outcome.n_cached = event.n_cached
            if not self._is_opened[index]:
                self._is_opened[index] = True
                texts += self._opening(outcome)
            if isinstance(event, Delta):
                outcome.observe(event, keep=False)
                texts += self._piece(outcome, event)
            elif isinstance(event, Progress):
                texts += self._progress(outcome, event)
            else:
                texts += self._with_ids(index, (), self._origins.put(index, (), self._close(index, event)))
        return b"".join(self.shape.frame(text) for text in texts)

    def failed(self, problem: Problem) -> bytes:
        """An error as the last frames of the stream."""
        return b"".join(map(self.shape.frame, self.shape.failed(problem)))

    def _piece(self, outcome: Outcome, event: Delta) -> list[str]:
        texts = [_timed(text, event.timings) for text in self.shape.piece(outcome, event)]
        return self._with_ids(outcome.index, event.ids, self._origins.put(outcome.index, event.tokens, texts))

    def _opening(self, outcome: Outcome) -> list[str]:
        texts = self.shape.opening(outcome)
        return texts if self._ids is None else self._ids.begin(outcome.index, texts)

    def _with_ids(self, index: int, ids: Sequence[int], texts: list[str]) -> list[str]:
        return texts if self._ids is None else self._ids.put(index, ids, texts)

    def _progress(self, outcome: Outcome, event: Progress) -> list[str]:
        """How far the prompt was read, for a client that asked for it."""
        outcome.prompt_probs += event.probs
        blank = self.shape.blank(outcome) if self.job.requests[outcome.index].progress else ""
        if not blank:
            return []
        progress = {
            "total": event.n_prompt,
            "cache": event.n_cached,
            "processed": event.n_past,
            "time_ms": int(event.ms),
        }
        return [_timed(with_member(blank, "prompt_progress", progress), event.timings)]

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
    """Send what the teller makes of events. They may make nothing for long, so silence is measured by what is sent."""
    ping, clock = teller.job.ping, asyncio.get_running_loop().time
    spoke = clock()
    arrivals = await generation.take(ping)  # an error before the first event still gets its own status
    request[FAILED] = teller.failed
    response = await begin_stream(request)
    while True:
        data = teller.tell(arrivals)
        if not generation.is_open:
            break
        if data or (ping is not None and clock() >= spoke + ping):
            await response.write(data or teller.shape.ping)
            spoke = clock()
        arrivals = await generation.take(None if ping is None else max(spoke + ping - clock(), 0.0))
    await response.write(data + DONE if teller.shape.ends_with_done else data)
    await response.write_eof()
    return response
