"""From a request body to `SamplingParams` and `SpeculativeParams`: the server's defaults with single fields replaced."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace

from uad.checkpoint import checkpoint
from uad.errors import InvalidRequestError, NotSupportedError
from uad.server.engine import Engine
from uad.server.schemas import GenerationBody
from uad.types import Origin, SamplingParams, SpecPolicy, SpeculativeParams

RANDOM_SEEDS = (-1, 2**32 - 1)  # llama-server's two spellings of "draw one"
MAX_BIASES = 4096
DIRECT = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "frequency_penalty", "presence_penalty", "ignore_eos")
STAGES: dict[str, dict[str, float]] = {  # llama.cpp's order, and what switches each stage off
    "penalties": {"repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    "top_k": {"top_k": 0},
    "typ_p": {"typical_p": 1.0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "temperature": {"temperature": 1.0},
}
ALIASES = {"typical_p": "typ_p", "typical": "typ_p", "temp": "temperature", "nucleus": "top_p"}
LETTERS = {"e": "penalties", "k": "top_k", "y": "typ_p", "p": "top_p", "m": "min_p", "t": "temperature", "i": "infill"}


def sampling_params(engine: Engine, body: GenerationBody) -> SamplingParams:
    """Sampling of one request. May tokenize (logit_bias): for worker threads."""
    changes = {name: value for name in DIRECT if (value := getattr(body, name)) is not None}
    if body.repeat_last_n is not None:
        changes["repeat_last_n"] = engine.info.n_ctx if body.repeat_last_n < 0 else body.repeat_last_n
    if body.seed is not None:
        changes["seed"] = None if body.seed in RANDOM_SEEDS else body.seed
    if body.logit_bias is not None:
        changes["logit_bias"] = tuple(_biases(engine, body.logit_bias))
    if body.samplers is not None:
        changes |= _switched_off(body.samplers)
    return replace(engine.config.sampling, **changes)


def drafters_of(engine: Engine, params: SpeculativeParams) -> tuple[Origin, ...]:
    """Those that draft for such a request, in the order in which a fixed policy asks them, which is the server's."""
    if not params.enabled or params.longest <= 0:
        return ()
    if params.types:
        return tuple(one for one in engine.info.drafters if one in params.types)
    left_out = engine.config.drafting.weighed if params.policy is SpecPolicy.FIXED else ()
    return tuple(one for one in engine.info.drafters if one not in left_out)


def speculative_params(engine: Engine, body: GenerationBody) -> SpeculativeParams:
    """Draft control of one request."""
    changes = body.speculative.model_dump(exclude_none=True)
    params = replace(engine.config.drafting.defaults, **changes)
    if "types" in changes:
        params = _with_drafters(params, engine.info.drafters)
    if params.n_min <= params.longest:
        return params
    if "n_min" in changes:
        raise InvalidRequestError(
            f"speculative.n_min: must not be above n_max, which is {params.longest} for this request", "speculative.n_min"
        )
    return replace(params, n_min=params.longest)


def _with_drafters(params: SpeculativeParams, drafters: Collection[Origin]) -> SpeculativeParams:
    """`none` drafts nothing; a drafter that was not loaded cannot be asked for."""
    for one in params.types:
        if one not in drafters:
            here = f"has {', '.join(drafters)}" if drafters else "has no drafter"
            raise InvalidRequestError(f"speculative.types: this server {here}, not {one}; see --spec-type", "speculative.types")
    return params if params.types else replace(params, enabled=False)


def _switched_off(samplers: list[str]) -> dict[str, float]:
    wanted = list(dict.fromkeys(_stage_names(samplers)))
    if wanted != sorted(wanted, key=list(STAGES).index):
        raise NotSupportedError(f"samplers: this server keeps llama.cpp's order ({', '.join(STAGES)}); leave the field out", "samplers")
    off = [STAGES[name] for name in STAGES if name not in wanted]
    return {field: value for fields in off for field, value in fields.items()}


def _stage_names(samplers: list[str]) -> Iterator[str]:
    """Known stages in the asked order. Others are left out: they are neutral here, or their own field was refused."""
    for name in samplers:
        plain = LETTERS.get(name, name.lower().replace("-", "_"))
        if plain == "infill":
            raise NotSupportedError("samplers: infill is not supported; leave it out", "samplers")
        stage = ALIASES.get(plain, plain)
        if stage in STAGES:
            yield stage


def _biases(engine: Engine, value: object) -> Iterator[tuple[int, float]]:
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
        raise InvalidRequestError("logit_bias: a bias must be a number between -1e6 and 1e6, or false to ban the token", "logit_bias")
    return float(bias)


def _ids(engine: Engine, key: object) -> list[int]:
    if isinstance(key, str) and not _is_integer(key):
        if len(key) > MAX_BIASES:
            raise InvalidRequestError(f"logit_bias: a text of at most {MAX_BIASES} characters", "logit_bias")
        checkpoint()
        return engine.tokenize(key, add_special=False, parse_special=False)
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise InvalidRequestError("logit_bias: a token must be an id or text", "logit_bias")
    id_ = int(key)
    if not 0 <= id_ < engine.info.target.n_vocab:
        raise InvalidRequestError(f"logit_bias: token ids must lie between 0 and {engine.info.target.n_vocab - 1}", "logit_bias")
    return [id_]


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20
