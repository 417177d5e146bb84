"""From a checked body to what is submitted: the server's defaults with single fields replaced."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from uad.common.request_id import REQUEST_ID
from uad.errors import InvalidRequestError
from uad.requests.constraint import constraint_of
from uad.requests.engine import Backend
from uad.requests.prompt_ids import Prompt
from uad.requests.sampling import sampling_params
from uad.requests.schemas import ChatBody, CompletionBody, GenerationBody, NativeBody
from uad.types import Origin, Request, SpecPolicy, SpeculativeParams

MAX_ECHOED: Final = 1 << 20  # probabilities of a prompt
MAX_PREDICTED: Final = 1 << 22
"""Bytes of all text of a prediction: about a million tokens."""
MAX_PREDICTED_PARTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Job:
    """`requests` are prompt by prompt, each with its `n` choices in a row; `prompts` has one entry per request.
    `drafters` are those that draft for it. The `n_best` likeliest of the choices are returned; logprobs: with
    log-probabilities. echo: the prompt stands before each answer. eog: the ends of the target's vocabulary.
    is_verbose: chats answer with `__verbose`, too. token_ids: the ids of prompt and answer are returned.
    """

    requests: tuple[Request, ...]
    prompts: tuple[Prompt, ...]
    n: int
    stream: bool
    include_usage: bool
    ping: float | None
    n_best: int
    logprobs: bool
    echo: bool = False
    drafters: tuple[Origin, ...] = ()
    eog: Mapping[int, str] = field(default_factory=dict)
    is_verbose: bool = False
    token_ids: bool = False

    @property
    def post_sampling(self) -> bool:
        """Whether probabilities are those that ids were drawn with."""
        return self.requests[0].post_sampling


def check_counts(engine: Backend, body: GenerationBody, n_prompts: int, limit: int) -> int:
    """How many sequences the request asks for, or InvalidRequestError where the server could never run them."""
    n_slots, n = engine.info.n_slots, n_choices(body)
    if body.id_slot >= n_slots:
        raise InvalidRequestError.at("id_slot", f"must be below {n_slots}, the number of slots")
    if n > limit:
        name = "n" if n == body.n else "best_of"
        raise InvalidRequestError.at(name, f"must be at most {limit}; start the server with a larger --max-queue")
    if n_prompts * n > limit:
        raise InvalidRequestError.at("prompt", f"at most {limit // n} prompts in one request")
    return n_prompts * n


def n_choices(body: GenerationBody) -> int:
    """How many answers are generated for each prompt. Raises InvalidRequestError where best_of makes no sense."""
    best_of = body.best_of if isinstance(body, CompletionBody) else None
    if best_of is None:
        return body.n
    if best_of < body.n:
        raise InvalidRequestError.at("best_of", f"must not be below n, which is {body.n}")
    if best_of > body.n and body.stream:
        raise InvalidRequestError.at("best_of", "the best are known at the end only; leave stream out")
    return best_of


def make_job(engine: Backend, body: GenerationBody, prompts: list[Prompt], ping: float) -> Job:
    """Requests for every prompt and choice. May tokenize and compile: for worker threads."""
    n_probs, logprobs = _probs(body)
    n, echo = n_choices(body), isinstance(body, CompletionBody) and body.echo
    if echo and logprobs:
        _check_echo(prompts, n_probs)
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
        logprobs=logprobs or n > body.n,
        n_probs=n_probs,
        cache_prompt=engine.config.server.cache_prompt if body.cache_prompt is None else body.cache_prompt,
        slot=body.id_slot,
        constraint=constraint_of(engine, body),
        adapters=scales_of(engine, body.lora) if body.lora else None,
        post_sampling=body.post_sampling_probs,
        prompt_probs=echo and logprobs,
        progress=body.return_progress and body.stream,
        timings=body.timings_per_token and body.stream,
        n_indent=body.n_indent,
        max_predict_ms=max(body.t_max_predict_ms, 0.0),
        prediction=prediction_of(body.prediction),
        origins=_origins(body),
        name=REQUEST_ID.get(),
    )
    requests = tuple(_choice(model, prompt, i) for prompt in prompts for i in range(n))
    interval = ping if body.sse_ping_interval is None else body.sse_ping_interval
    return Job(
        requests=requests,
        prompts=tuple(prompt for prompt in prompts for _ in range(n)),
        n=n,
        n_best=body.n,
        logprobs=logprobs,
        echo=echo,
        stream=body.stream,
        include_usage=bool(body.stream_options.include_usage),
        ping=interval if interval > 0 else None,
        drafters=drafters_of(engine, model.speculative, bool(model.prediction)),
        eog=engine.info.eog,
        is_verbose=body.verbose or engine.config.verbose,
        token_ids=isinstance(body, ChatBody | CompletionBody) and body.return_token_ids,
    )


def _check_echo(prompts: Sequence[Prompt], n_probs: int) -> None:
    most = MAX_ECHOED // (1 + n_probs)
    if any(len(prompt.ids) > most for prompt in prompts):
        raise InvalidRequestError.at(
            "echo", f"with logprobs {n_probs} a prompt may have at most {most} tokens; ask for fewer logprobs"
        )


def _origins(body: GenerationBody) -> bool:
    if body.return_origins and not body.stream:
        raise InvalidRequestError.at("return_origins", "the chunks of a stream have it; set stream to true")
    return body.return_origins


def _choice(model: Request, prompt: Prompt, i: int) -> Request:
    seed = model.sampling.seed
    sampling = model.sampling if seed is None else replace(model.sampling, seed=seed + i)
    return replace(model, prompt=prompt.ids, drafted_prompt=prompt.drafted, sampling=sampling)


def _check_stops(engine: Backend, body: GenerationBody, max_tokens: int | None) -> None:
    n_vocab = engine.info.target.n_vocab
    if any(id_ >= n_vocab for id_ in body.stop_token_ids):
        raise InvalidRequestError.at("stop_token_ids", f"token ids must lie between 0 and {n_vocab - 1}")
    if max_tokens is not None and body.min_tokens > max_tokens:
        raise InvalidRequestError.at(
            "min_tokens", f"must not be above max_tokens, which is {max_tokens} for this request"
        )


def _max_tokens(asked: int | None, limit: int) -> int | None:
    if asked is None or asked < 0:
        return limit if limit >= 0 else None
    return min(asked, limit) if limit >= 0 else asked


def _probs(body: GenerationBody) -> tuple[int, bool]:
    if isinstance(body, ChatBody):
        if body.top_logprobs is not None and not body.logprobs:
            raise InvalidRequestError.at("top_logprobs", "needs logprobs to be true")
        n_probs = body.top_logprobs if body.top_logprobs is not None else body.n_probs
        return n_probs or 0, body.logprobs or bool(n_probs)
    n_probs = body.n_probs
    if n_probs is None and isinstance(body, CompletionBody | NativeBody):
        n_probs = body.logprobs
    is_wanted = bool(n_probs) or (isinstance(body, CompletionBody) and n_probs is not None)
    return n_probs or 0, is_wanted


def drafters_of(engine: Backend, params: SpeculativeParams, is_predicted: bool = False) -> tuple[Origin, ...]:
    """Those that draft for such a request, in the order in which a fixed policy asks them, which is the server's.

    is_predicted: whether it has a prediction.
    """
    if not params.enabled or params.longest <= 0:
        return ()
    if params.types:
        return tuple(one for one in engine.info.drafters if one in params.types)
    left_out = list(engine.config.drafting.weighed if params.policy is SpecPolicy.FIXED else ())
    if not is_predicted:
        left_out.append(Origin.PREDICTION)
    return tuple(one for one in engine.info.drafters if one not in left_out)


def speculative_params(engine: Backend, body: GenerationBody) -> SpeculativeParams:
    """Draft control of one request."""
    changes = body.speculative.model_dump(exclude_none=True)
    params = replace(engine.config.drafting.defaults, **changes)
    if "types" in changes:
        params = _with_drafters(params, engine.info.drafters)
    if params.n_min <= params.longest:
        return params
    if "n_min" in changes:
        raise InvalidRequestError.at(
            "speculative.n_min", f"must not be above n_max, which is {params.longest} for this request"
        )
    return replace(params, n_min=params.longest)


def _with_drafters(params: SpeculativeParams, drafters: Collection[Origin]) -> SpeculativeParams:
    """`none` drafts nothing; a drafter that was not loaded cannot be asked for."""
    for one in params.types:
        if one not in drafters:
            here = f"has {', '.join(drafters)}" if drafters else "has no drafter"
            raise InvalidRequestError.at("speculative.types", f"this server {here}, not {one}; see --spec-type")
    return params if params.types else replace(params, enabled=False)


def prediction_of(value: object) -> bytes:
    """The text of `{"type": "content", "content": ...}`, a string or text parts, as UTF-8; empty where there is none.

    For every route that generates. Raises InvalidRequestError.
    """
    if value is None:
        return b""
    if not isinstance(value, dict):
        raise InvalidRequestError.at(
            "prediction", 'must be an object: {"type": "content", "content": "the expected answer"}'
        )
    if value.get("type") != "content":
        raise InvalidRequestError.at("prediction", 'its type must be "content", the only one there is')
    data = b"".join(text.encode() for text in _predicted_texts(value.get("content")))
    if len(data) > MAX_PREDICTED:
        raise InvalidRequestError.at(
            "prediction",
            f"its content has {len(data)} bytes, of {MAX_PREDICTED} at most; send the part that is answered",
        )
    return data


def _predicted_texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InvalidRequestError.at("prediction", "its content must be a string, or a list of text parts")
    if len(content) > MAX_PREDICTED_PARTS:
        raise InvalidRequestError.at(
            "prediction", f"its content has {len(content)} parts, of {MAX_PREDICTED_PARTS} at most"
        )
    return [_predicted_text(part) for part in content]


def _predicted_text(part: object) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(text := part.get("text"), str):
        return text
    raise InvalidRequestError.at("prediction", 'its content may hold only parts of type "text"')


def scales_of(engine: Backend, value: object, where: str = "lora") -> tuple[float, ...]:
    """How much of each adapter a list of {"id", "scale"} adds; 0 where it names one not. Raises InvalidRequestError."""
    if not isinstance(value, list):
        raise InvalidRequestError.at(where, "must be a list of objects with id and scale")
    scales = [0.0] * len(engine.snapshot().adapters)
    for i, one in enumerate(value):
        id_, scale = (one.get("id"), one.get("scale", 0.0)) if isinstance(one, dict) else (None, None)
        if type(id_) is not int or not 0 <= id_ < len(scales):
            raise InvalidRequestError(f"{where}.{i}: {_no_such(len(scales))}", where)
        if isinstance(scale, bool) or not isinstance(scale, int | float) or not _is_single(scale):
            raise InvalidRequestError(f"{where}.{i}: scale must be a number", where)
        scales[id_] = float(scale)
    return tuple(scales)


def _is_single(scale: float) -> bool:
    """Whether it is finite, also in single precision."""
    return math.isfinite(scale) and abs(scale) < 3e38


def _no_such(n: int) -> str:
    if not n:
        return "this server has no adapter; start it with --lora FILE"
    return f"id must be the number of an adapter, 0 to {n - 1}; GET /lora-adapters lists them"
