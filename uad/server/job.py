"""From a checked body to what is submitted: the server's defaults with single fields replaced. And back to JSON."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from uad.checkpoint import checkpoint
from uad.common.samplers import SAMPLERS, SETTINGS
from uad.errors import InvalidRequestError, NotSupportedError
from uad.server.constraint import constraint_of
from uad.server.engine import Backend
from uad.server.json_out import LOWEST
from uad.server.outcome import Json
from uad.server.prompt_ids import Prompt
from uad.server.schemas import ChatBody, CompletionBody, GenerationBody, NativeBody
from uad.types import Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams

RANDOM_SEEDS = (-1, 2**32 - 1)  # llama-server's two spellings of "draw one"
MAX_BIASES = 4096
DIRECT = (*SETTINGS, "ignore_eos")
STAGES = tuple(sampler.name for sampler in SAMPLERS)  # in llama.cpp's order
ALIASES = {alias: sampler.name for sampler in SAMPLERS for alias in sampler.aliases}
LETTERS = {sampler.letter: sampler.name for sampler in SAMPLERS} | {"i": "infill"}


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


def check_counts(engine: Backend, body: GenerationBody, n_prompts: int, limit: int) -> int:
    """How many sequences the request asks for, or InvalidRequestError where the server could never run them."""
    n_slots = engine.info.n_slots
    if body.n > n_slots:
        raise InvalidRequestError(
            f"n: must be at most {n_slots}, the number of slots; start the server with a larger --parallel", "n"
        )
    if body.id_slot >= n_slots:
        raise InvalidRequestError(f"id_slot: must be below {n_slots}, the number of slots", "id_slot")
    if n_prompts * body.n > limit:
        raise InvalidRequestError(f"prompt: at most {limit // body.n} prompts in one request", "prompt")
    return n_prompts * body.n


def make_job(engine: Backend, body: GenerationBody, prompts: list[Prompt], ping: float) -> Job:
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
        origins=_origins(body),
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


def _origins(body: GenerationBody) -> bool:
    if body.return_origins and not body.stream:
        raise InvalidRequestError(
            "return_origins: the chunks of a stream have it; set stream to true", "return_origins"
        )
    return body.return_origins


def _choice(model: Request, prompt: Prompt, i: int) -> Request:
    seed = model.sampling.seed
    sampling = model.sampling if seed is None else replace(model.sampling, seed=seed + i)
    return replace(model, prompt=prompt.ids, sampling=sampling)


def _check_stops(engine: Backend, body: GenerationBody, max_tokens: int | None) -> None:
    n_vocab = engine.info.target.n_vocab
    if any(id_ >= n_vocab for id_ in body.stop_token_ids):
        raise InvalidRequestError(f"stop_token_ids: token ids must lie between 0 and {n_vocab - 1}", "stop_token_ids")
    if max_tokens is not None and body.min_tokens > max_tokens:
        raise InvalidRequestError(
            f"min_tokens: must not be above max_tokens, which is {max_tokens} for this request", "min_tokens"
        )


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


def sampling_params(engine: Backend, body: GenerationBody) -> SamplingParams:
    """Sampling of one request. May tokenize (logit_bias): for worker threads."""
    changes = {name: value for name in DIRECT if (value := getattr(body, name)) is not None}
    if changes.get("repeat_last_n", 0) < 0:
        changes["repeat_last_n"] = engine.info.n_ctx
    if body.seed is not None:
        changes["seed"] = None if body.seed in RANDOM_SEEDS else body.seed
    if body.logit_bias is not None:
        changes["logit_bias"] = tuple(_biases(engine, body.logit_bias))
    if body.samplers is not None:
        changes |= _switched_off(body.samplers)
    return replace(engine.config.sampling, **changes)


def drafters_of(engine: Backend, params: SpeculativeParams) -> tuple[Origin, ...]:
    """Those that draft for such a request, in the order in which a fixed policy asks them, which is the server's."""
    if not params.enabled or params.longest <= 0:
        return ()
    if params.types:
        return tuple(one for one in engine.info.drafters if one in params.types)
    left_out = engine.config.drafting.weighed if params.policy is SpecPolicy.FIXED else ()
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
        raise InvalidRequestError(
            f"speculative.n_min: must not be above n_max, which is {params.longest} for this request",
            "speculative.n_min",
        )
    return replace(params, n_min=params.longest)


def _with_drafters(params: SpeculativeParams, drafters: Collection[Origin]) -> SpeculativeParams:
    """`none` drafts nothing; a drafter that was not loaded cannot be asked for."""
    for one in params.types:
        if one not in drafters:
            here = f"has {', '.join(drafters)}" if drafters else "has no drafter"
            raise InvalidRequestError(
                f"speculative.types: this server {here}, not {one}; see --spec-type", "speculative.types"
            )
    return params if params.types else replace(params, enabled=False)


def _switched_off(samplers: list[str]) -> dict[str, float]:
    wanted = list(dict.fromkeys(_stage_names(samplers)))
    if wanted != sorted(wanted, key=STAGES.index):
        raise NotSupportedError(
            f"samplers: this server keeps llama.cpp's order ({', '.join(STAGES)}); leave the field out", "samplers"
        )
    left_out = [name for sampler, names in SAMPLERS.items() if sampler.name not in wanted for name in names]
    return {name: SETTINGS[name].off[0] for name in left_out if SETTINGS[name].off}


def _stage_names(samplers: list[str]) -> Iterator[str]:
    """Known stages in the asked order. Others are left out: they are neutral here, or their own field was refused."""
    for name in samplers:
        plain = LETTERS.get(name, name.lower().replace("-", "_"))
        if plain == "infill":
            raise NotSupportedError("samplers: infill is not supported; leave it out", "samplers")
        stage = ALIASES.get(plain, plain)
        if stage in STAGES:
            yield stage


def _biases(engine: Backend, value: object) -> Iterator[tuple[int, float]]:
    n = 0
    for key, bias in _pairs(value):
        addend = _addend(bias)
        ids = _ids(engine, key)
        n += len(ids)
        if n > MAX_BIASES:
            raise InvalidRequestError(f"logit_bias: at most {MAX_BIASES} tokens, those of texts included", "logit_bias")
        for id_ in ids:
            yield id_, addend


def _pairs(value: object) -> list[tuple[object, object]]:
    if isinstance(value, dict | list) and len(value) > MAX_BIASES:
        raise InvalidRequestError(f"logit_bias: at most {MAX_BIASES} tokens", "logit_bias")
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return [(key, bias) for key, bias in value]
    raise InvalidRequestError("logit_bias: must be an object, or a list of [token id or text, bias]", "logit_bias")


def _addend(bias: object) -> float:
    if bias is False:
        return -math.inf
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not -1e6 <= bias <= 1e6:
        raise InvalidRequestError(
            "logit_bias: a bias must be a number between -1e6 and 1e6, or false to ban the token", "logit_bias"
        )
    return float(bias)


def _ids(engine: Backend, key: object) -> list[int]:
    if isinstance(key, str) and not _is_integer(key):
        if len(key) > MAX_BIASES:
            raise InvalidRequestError(f"logit_bias: a text of at most {MAX_BIASES} characters", "logit_bias")
        checkpoint()
        return engine.tokenize(key, add_special=False, parse_special=False)
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise InvalidRequestError("logit_bias: a token must be an id or text", "logit_bias")
    id_ = int(key)
    if not 0 <= id_ < engine.info.target.n_vocab:
        raise InvalidRequestError(
            f"logit_bias: token ids must lie between 0 and {engine.info.target.n_vocab - 1}", "logit_bias"
        )
    return [id_]


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20


def settings_json(request: Request, drafters: Sequence[Origin], seed: int | None, stream: bool) -> Json:
    """`generation_settings` of one request, with the seed that was drawn."""
    n_predict = -1 if request.max_tokens is None else request.max_tokens
    return {
        **sampling_json(request.sampling, seed),
        "max_tokens": n_predict,
        "n_predict": n_predict,
        "min_tokens": request.min_tokens,
        "stop": request.stop,
        "stop_token_ids": request.stop_token_ids,
        "include_stop_str_in_output": request.include_stop,
        "stream": stream,
        "n_probs": request.n_probs,
        **speculative_json(request.speculative, drafters),
    }


def sampling_json(params: SamplingParams, seed: int | None) -> Json:
    """Sampling parameters under llama-server's names."""
    return {
        "seed": -1 if seed is None else seed,
        **{name: getattr(params, name) for name in SETTINGS},
        "ignore_eos": params.ignore_eos,
        "logit_bias": [{"token": id_, "bias": LOWEST if math.isinf(bias) else bias} for id_, bias in params.logit_bias],
        "samplers": STAGES,
    }


def speculative_json(params: SpeculativeParams, drafters: Sequence[Origin]) -> Json:
    """Draft control under the flat names that llama-server has or once had. drafters: those that draft with it."""
    return {
        "speculative.enabled": params.enabled,
        "speculative.n_max": params.longest,
        "speculative.n_min": params.n_min,
        "speculative.p_min": params.p_min,
        "speculative.policy": params.policy,
        "speculative.types": ",".join(drafters) or "none",
    }
