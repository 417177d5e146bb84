"""One generation request, checked and ready to run: what to submit, and how the client wants to hear the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from uad.errors import InvalidRequestError
from uad.server.constraint import constraint_of
from uad.server.engine import Engine
from uad.server.prompts import Prompt
from uad.server.sampling import drafters_of, sampling_params, speculative_params
from uad.server.schemas import ChatBody, CompletionBody, GenerationBody, NativeBody
from uad.types import Origin, Request


@dataclass(frozen=True, slots=True)
class Job:
    """`requests` are prompt by prompt, each with its `n` choices in a row; `prompts` has one entry per request.
    `drafters` are those that draft for it."""

    requests: tuple[Request, ...]
    prompts: tuple[Prompt, ...]
    n: int
    stream: bool
    include_usage: bool
    ping: float | None
    drafters: tuple[Origin, ...] = ()


def check_counts(engine: Engine, body: GenerationBody, n_prompts: int, limit: int) -> int:
    """How many sequences the request asks for, or InvalidRequestError where the server could never run them."""
    n_slots = engine.info.n_slots
    if body.n > n_slots:
        raise InvalidRequestError(f"n: must be at most {n_slots}, the number of slots; start the server with a larger --parallel", "n")
    if body.id_slot >= n_slots:
        raise InvalidRequestError(f"id_slot: must be below {n_slots}, the number of slots", "id_slot")
    if n_prompts * body.n > limit:
        raise InvalidRequestError(f"prompt: at most {limit // body.n} prompts in one request", "prompt")
    return n_prompts * body.n


def make_job(engine: Engine, body: GenerationBody, prompts: list[Prompt], ping: float) -> Job:
    """Requests for every prompt and choice. May tokenize and compile: for worker threads."""
    n_probs, logprobs = _probs(body)
    max_tokens = _max_tokens(body.max_tokens, engine.config.n_predict)
    _check_stops(engine, body, max_tokens)
    model = Request(
        prompt=(),
        sampling=sampling_params(engine, body),
        speculative=speculative_params(engine, body),
        max_tokens=max_tokens,
        stop=tuple(body.stop),
        stop_token_ids=tuple(dict.fromkeys(body.stop_token_ids)),
        include_stop=body.include_stop_str_in_output,
        min_tokens=body.min_tokens,
        logprobs=logprobs,
        n_probs=n_probs,
        cache_prompt=body.cache_prompt,
        slot=body.id_slot,
        constraint=constraint_of(engine, body),
    )
    requests = tuple(_choice(model, prompt, i) for prompt in prompts for i in range(body.n))
    interval = ping if body.sse_ping_interval is None else body.sse_ping_interval
    return Job(
        requests=requests,
        prompts=tuple(prompt for prompt in prompts for _ in range(body.n)),
        n=body.n,
        stream=body.stream,
        include_usage=bool(body.stream_options.include_usage),
        ping=interval if interval > 0 else None,
        drafters=drafters_of(engine, model.speculative),
    )


def _choice(model: Request, prompt: Prompt, i: int) -> Request:
    seed = model.sampling.seed
    sampling = model.sampling if seed is None else replace(model.sampling, seed=seed + i)
    return replace(model, prompt=prompt.ids, sampling=sampling)


def _check_stops(engine: Engine, body: GenerationBody, max_tokens: int | None) -> None:
    n_vocab = engine.info.target.n_vocab
    if any(id_ >= n_vocab for id_ in body.stop_token_ids):
        raise InvalidRequestError(f"stop_token_ids: token ids must lie between 0 and {n_vocab - 1}", "stop_token_ids")
    if max_tokens is not None and body.min_tokens > max_tokens:
        raise InvalidRequestError(f"min_tokens: must not be above max_tokens, which is {max_tokens} for this request", "min_tokens")


def _max_tokens(asked: int | None, limit: int) -> int | None:
    if asked is None or asked < 0:
        return limit if limit >= 0 else None
    return min(asked, limit) if limit >= 0 else asked


def _probs(body: GenerationBody) -> tuple[int, bool]:
    if isinstance(body, ChatBody):
        if body.top_logprobs is not None and not body.logprobs:
            raise InvalidRequestError("top_logprobs: needs logprobs to be true", "top_logprobs")
        n_probs = body.top_logprobs if body.top_logprobs is not None else body.n_probs
        return n_probs or 0, body.logprobs or bool(n_probs)
    n_probs = body.n_probs
    if n_probs is None and isinstance(body, CompletionBody | NativeBody):
        n_probs = body.logprobs
    is_wanted = bool(n_probs) or (isinstance(body, CompletionBody) and n_probs is not None)
    return n_probs or 0, is_wanted
