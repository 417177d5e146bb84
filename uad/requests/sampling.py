"""The samplers of one request: which run, in which order, with which values; biases and bans."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from uad.checkpoint import checkpoint
from uad.common.samplers import SAMPLERS, SETTINGS, sampler_names
from uad.errors import InvalidRequestError
from uad.requests.engine import Backend
from uad.requests.schemas import GenerationBody
from uad.types import SamplingParams

RANDOM_SEEDS = (-1, 2**32 - 1)  # llama-server's two spellings of "draw one"
MAX_BIASES = 4096
MAX_BREAKERS = 64
MAX_BREAKER_CHARS = 40
DIRECT = (*SETTINGS, "ignore_eos")


def sampling_params(engine: Backend, body: GenerationBody) -> SamplingParams:
    """Sampling of one request. May tokenize, and look through the vocabulary: for worker threads."""
    changes = {name: value for name in DIRECT if (value := getattr(body, name)) is not None}
    if changes.get("repeat_last_n", 0) < 0:
        changes["repeat_last_n"] = engine.info.n_ctx
    if body.seed is not None:
        changes["seed"] = None if body.seed in RANDOM_SEEDS else body.seed
    if body.logit_bias is not None:
        changes["logit_bias"] = tuple(_biases(engine, body.logit_bias))
    if body.dry_sequence_breakers is not None:
        changes["dry_sequence_breakers"] = _breakers(body.dry_sequence_breakers)
    if body.samplers is not None:
        changes |= _chain(body.samplers)
    params = replace(
        engine.config.sampling,
        **changes,
        bad_words=tuple(dict.fromkeys(_bad_words(engine, body))),
        allowed=_checked_ids(engine, body.allowed_token_ids, "allowed_token_ids"),
    )
    engine.text.check_sampling(params)
    return params


def _chain(words: Sequence[str]) -> dict[str, object]:
    """The samplers of these names or letters, in their order, and those that are not named off.

    Unknown ones are left out, as llama-server does: clients send those of other servers.
    """
    names = tuple(sampler_names(words))
    left_out = [
        name for sampler, its in SAMPLERS.items() if sampler.letter and sampler.name not in names for name in its
    ]
    return {"samplers": names, **{name: SETTINGS[name].off[0] for name in left_out if SETTINGS[name].off}}


def _breakers(value: object) -> tuple[str, ...]:
    """A list of texts, or the JSON of one."""
    name = "dry_sequence_breakers"
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InvalidRequestError.at(name, "must be a list of strings")
    if len(value) > MAX_BREAKERS:
        raise InvalidRequestError.at(name, f"at most {MAX_BREAKERS} strings")
    return tuple(dict.fromkeys(text[:MAX_BREAKER_CHARS] for text in value if text))


def _bad_words(engine: Backend, body: GenerationBody) -> Iterator[tuple[int, ...]]:
    """Runs of ids; of a text those at the beginning of a word, too, as in vLLM."""
    for word in body.bad_words:
        checkpoint()
        for text in (word, " " + word.lstrip()) if word.strip() else (word,):
            if ids := engine.text.tokenize(text, add_special=False, parse_special=False):
                yield tuple(ids)
    for run in body.bad_words_ids:
        if not run:
            raise InvalidRequestError.at("bad_words_ids", "a list in it is empty")
        yield _checked_ids(engine, run, "bad_words_ids")


def _checked_ids(engine: Backend, ids: Sequence[int], name: str) -> tuple[int, ...]:
    n_vocab = engine.info.target.n_vocab
    if any(id_ >= n_vocab for id_ in ids):
        raise InvalidRequestError.at(name, f"token ids must lie between 0 and {n_vocab - 1}")
    return tuple(dict.fromkeys(ids)) if name == "allowed_token_ids" else tuple(ids)


def _biases(engine: Backend, value: object) -> Iterator[tuple[int, float]]:
    n = 0
    for key, bias in _pairs(value):
        addend = _addend(bias)
        ids = _ids(engine, key)
        n += len(ids)
        if n > MAX_BIASES:
            raise InvalidRequestError.at("logit_bias", f"at most {MAX_BIASES} tokens, those of texts included")
        for id_ in ids:
            yield id_, addend


def _pairs(value: object) -> list[tuple[object, object]]:
    if isinstance(value, dict | list) and len(value) > MAX_BIASES:
        raise InvalidRequestError.at("logit_bias", f"at most {MAX_BIASES} tokens")
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return [(key, bias) for key, bias in value]
    raise InvalidRequestError.at("logit_bias", "must be an object, or a list of [token id or text, bias]")


def _addend(bias: object) -> float:
    if bias is False:
        return -math.inf
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not -1e6 <= bias <= 1e6:
        raise InvalidRequestError.at(
            "logit_bias", "a bias must be a number between -1e6 and 1e6, or false to ban the token"
        )
    return float(bias)


def _ids(engine: Backend, key: object) -> list[int]:
    if isinstance(key, str) and not _is_integer(key):
        if len(key) > MAX_BIASES:
            raise InvalidRequestError.at("logit_bias", f"a text of at most {MAX_BIASES} characters")
        checkpoint()
        return engine.text.tokenize(key, add_special=False, parse_special=False)
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise InvalidRequestError.at("logit_bias", "a token must be an id or text")
    id_ = int(key)
    if not 0 <= id_ < engine.info.target.n_vocab:
        raise InvalidRequestError.at("logit_bias", f"token ids must lie between 0 and {engine.info.target.n_vocab - 1}")
    return [id_]


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20
