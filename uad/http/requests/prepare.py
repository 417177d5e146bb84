"""From a request to what the engine takes. Each `Request` is built once: of its prompt, its sampling, how its answers
are read, its constraint, and the bounds of its thoughts, in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uad.base.config import ServerConfig
from uad.base.errors import InvalidRequestError
from uad.base.token_ids import check_ids
from uad.base.types import Image, Request, SamplingParams
from uad.http.requests.chat import PLAIN, Reading, reading_of
from uad.http.requests.constraint import asked_constraint, chat_constraint, constraint_of
from uad.http.requests.fields import ChatBody, CompletionBody, GenerationBody, NativeBody
from uad.http.requests.generation import Backend
from uad.http.requests.job import AnswerCounts, Job, check_sampling, drafters_of, sampling_params, without_prompt
from uad.http.requests.prompt_ids import Prompt, check_begun, encode_chat, encode_completion, text_of
from uad.http.requests.thoughts import kwarg_budget, thought_bounds

MAX_ECHOED_PROBS = 1 << 20
"""Probabilities of a prompt."""
AnsweredBody = ChatBody | CompletionBody | NativeBody
"""A body that is answered."""
_TAIL_IDS = 64
"""How many ids at the end of a prompt are looked at for a thought that has begun."""


def prepared(
    engine: Backend,
    body: AnsweredBody,
    prompts: Sequence[object],
    images: Sequence[Sequence[Image]],
    server: ServerConfig,
) -> tuple[Job, Reading]:
    """Requests for every prompt and choice, and how their answers are read. Renders, tokenizes and compiles: for worker
    threads. Raises InvalidRequestError, NotSupportedError or ContextOverflowError.

    prompts: of a completion; images: of each prompt, of which a chat is one.
    """
    if isinstance(body, ChatBody):
        encoded = [encode_chat(engine.text, body, images[0])]
        if body.verbose or engine.config.verbose:
            encoded = [replace(prompt, text=text_of(engine.text, prompt.ids)) for prompt in encoded]
    else:
        pairs = zip(prompts, images, strict=True)
        encoded = [encode_completion(engine, body, prompt, own) for prompt, own in pairs]
    choices = AnswerCounts.of(body)
    request = replace(
        without_prompt(engine, body, choices),
        prompt_probs=_has_prompt_probs(body, choices, encoded),
        sampling=sampling_params(engine, body),
        constraint=constraint_of(engine, body),
    )
    reading = PLAIN
    if isinstance(body, ChatBody):
        reading, request = _for_chat(engine, body, encoded[0], request, server)
    firsts = [
        replace(request, prompt=prompt.ids, drafted_prompt=prompt.drafted, images=prompt.images) for prompt in encoded
    ]
    requests = tuple(choice for first in firsts for choice in _choices(first, choices.n))
    return _job(engine, body, choices, requests, encoded, server), reading


def check_prepared(engine: Backend, body: AnsweredBody) -> None:
    """Raise InvalidRequestError for what `prepared` or the engine refuses of a body, beside its prompts, and that
    neither models nor vocabularies are needed for.
    """
    request = without_prompt(engine, body, AnswerCounts.of(body))
    asked_constraint(body)
    bound = SamplingParams(
        allowed=tuple(body.allowed_token_ids), bad_words=tuple(tuple(word) for word in body.bad_words_ids)
    )
    check_ids(replace(request, sampling=bound), engine.info.target.n_vocab)
    check_sampling(body)
    if isinstance(body, ChatBody):
        check_begun(body)
        kwarg_budget(body)


def _has_prompt_probs(body: GenerationBody, choices: AnswerCounts, prompts: Sequence[Prompt]) -> bool:
    """Whether the answer repeats the prompts with probabilities. Raises InvalidRequestError where it cannot."""
    n_probs = choices.n_probs
    if not (isinstance(body, CompletionBody) and body.echo and choices.logprobs):
        return False
    if any(prompt.images for prompt in prompts):
        raise InvalidRequestError.at("echo", "with logprobs a prompt can hold no images")
    most = MAX_ECHOED_PROBS // (1 + n_probs)
    if any(len(prompt.ids) > most for prompt in prompts):
        raise InvalidRequestError.at(
            "echo", f"with logprobs {n_probs} a prompt may have at most {most} tokens; ask for fewer logprobs"
        )
    return True


def _for_chat(
    engine: Backend, body: ChatBody, prompt: Prompt, request: Request, server: ServerConfig
) -> tuple[Reading, Request]:
    """How a chat's answers are read, and the request with what follows from that."""
    own, tail = request.constraint, text_of(engine.text, prompt.ids[-_TAIL_IDS:])
    reading = reading_of(engine, body, tail, own, server.reasoning_format)
    return reading, replace(
        request,
        constraint=chat_constraint(engine, body, own, reading.calls, reading.start, tail),
        shown=() if reading.is_plain else reading.format.shown(with_calls=reading.calls.are_possible),
        thoughts=thought_bounds(engine, body, reading.start),
    )


def _choices(first: Request, n: int) -> list[Request]:
    """The n choices of a prompt. They have seeds in a row: else all of them would be the same text."""
    sampling = first.sampling
    if sampling.seed is None:
        return [first] * n
    return [first, *(replace(first, sampling=replace(sampling, seed=sampling.seed + i)) for i in range(1, n))]


def _job(
    engine: Backend,
    body: AnsweredBody,
    choices: AnswerCounts,
    requests: tuple[Request, ...],
    prompts: Sequence[Prompt],
    server: ServerConfig,
) -> Job:
    ping = server.sse_ping_interval if body.sse_ping_interval is None else body.sse_ping_interval
    first = requests[0]
    return Job(
        requests=requests,
        prompts=tuple(prompt for prompt in prompts for _ in range(choices.n)),
        n=choices.n,
        n_best=choices.n_best,
        logprobs=choices.logprobs,
        echo=isinstance(body, CompletionBody) and body.echo,
        include_usage=bool(body.stream_options.include_usage),
        ping=ping if ping > 0 else None,
        drafters=drafters_of(engine, first.speculative, bool(first.prediction)),
        eog=engine.info.eog,
        is_verbose=body.verbose or engine.config.verbose,
        token_ids=isinstance(body, ChatBody | CompletionBody) and body.return_token_ids,
    )
