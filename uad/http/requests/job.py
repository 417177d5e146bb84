"""From a checked body to what is submitted: the server's defaults with single fields replaced.

`fields.set_fields` finds the fields that a body sets unchanged. Here are those that have to be worked out: lengths,
probabilities, samplers, draft control, predictions, adapters. `prepare` puts all of them together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from uad.base.checkpoint import checkpoint
from uad.base.common.request_id import REQUEST_ID
from uad.base.common.samplers import SAMPLERS, SETTINGS, sampler_names
from uad.base.config.sources import MOST_LORA_SCALE
from uad.base.errors import InvalidRequestError
from uad.base.types import Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.http.requests.fields import ChatBody, CompletionBody, GenerationBody, NativeBody, set_fields, set_sampling
from uad.http.requests.generation import Backend
from uad.http.requests.left_out import leave_out
from uad.http.requests.prompt_ids import Prompt

MAX_PREDICTED_BYTES: Final = 1 << 22
"""Bytes of all text of a prediction: about a million tokens."""
MAX_PREDICTED_PARTS: Final = 4096
MAX_BIASES = 4096
MOST_BIAS = 1e6
_MOST_DIGITS: Final = 20
"""Digits of an id."""
MAX_BREAKERS = 64
MAX_BREAKER_CHARS = 40


@dataclass(frozen=True, slots=True)
class Job:
    """The sequences to generate for one HTTP request, and the contents of its answer."""

    requests: tuple[Request, ...]
    """Prompt by prompt, each with its `n` choices in a row."""
    prompts: tuple[Prompt, ...]
    """One for each of `requests`."""
    n: int
    include_usage: bool
    ping: float | None
    """Seconds of silence after which a stream sends a comment; None: never."""
    n_best: int
    """How many of the choices are returned: the likeliest."""
    logprobs: bool
    echo: bool = False
    """The prompt stands before each answer."""
    drafters: tuple[Origin, ...] = ()
    """Drafters that draft for the job."""
    eog: Mapping[int, str] = field(default_factory=dict)
    """The ends of the target's vocabulary."""
    is_verbose: bool = False
    """Chats answer with `__verbose`, too."""
    token_ids: bool = False
    """The ids of prompt and answer are returned."""

    @property
    def stream(self) -> bool:
        """Whether the answer is sent as it is written."""
        return self.requests[0].stream

    @property
    def post_sampling(self) -> bool:
        """Whether probabilities are those that ids were drawn with."""
        return self.requests[0].post_sampling


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """The answers of each prompt. n: answers that are generated; n_best: the likeliest of them, which are returned;
    n_probs: alternatives of each token; logprobs: whether there are log-probabilities at all.
    """

    n: int
    n_best: int
    n_probs: int
    logprobs: bool

    @classmethod
    def of(cls, body: GenerationBody) -> AnswerCounts:
        """The counts that a body asks for. Raises InvalidRequestError where its fields contradict each other."""
        return cls(_n_choices(body), body.n, *_probs(body))


def check_counts(body: GenerationBody, n_prompts: int, limit: int) -> int:
    """How many sequences the request asks for, or InvalidRequestError where the server could never run them."""
    n = _n_choices(body)
    if n > limit:
        name = "n" if n == body.n else "best_of"
        raise InvalidRequestError.at(name, f"must be at most {limit}; start the server with a larger --max-queue")
    if n_prompts * n > limit:
        raise InvalidRequestError.at("prompt", f"at most {limit // n} prompts in one request")
    return n_prompts * n


def _n_choices(body: GenerationBody) -> int:
    best_of = body.best_of if isinstance(body, CompletionBody) else None
    if best_of is None:
        return body.n
    if best_of < body.n:
        raise InvalidRequestError.at("best_of", f"must not be below n, which is {body.n}")
    if best_of > body.n and body.stream:
        raise InvalidRequestError.at("best_of", "the best are known at the end only; leave stream out")
    return best_of


def without_prompt(engine: Backend, body: GenerationBody, choices: AnswerCounts) -> Request:
    """The request as far as neither its prompt nor a vocabulary is needed. Raises InvalidRequestError."""
    asked = set_fields(body)
    # -1 is no limit on both sides: of 100 in the request and -1 on the command line 100 counts, of -1 and -1 none.
    lengths = [length for length in (engine.config.n_predict, body.max_tokens) if length is not None and length >= 0]
    max_tokens = min(lengths) if lengths else None
    if max_tokens is not None and asked.get("min_tokens", 0) > max_tokens:
        raise InvalidRequestError.at(
            "min_tokens", f"must not be above max_tokens, which is {max_tokens} for this request"
        )
    if asked.get("origins") and not asked.get("stream"):
        raise InvalidRequestError.at("return_origins", "the chunks of a stream have it; set stream to true")
    slot = asked.get("slot", -1)
    request = Request(
        (),
        speculative=_speculative(engine, body),
        max_tokens=max_tokens,
        cache_prompt=engine.config.server.cache_prompt,
        logprobs=choices.logprobs or choices.n > choices.n_best,
        adapters=scales_of(engine, body.lora) if body.lora else None,
        prediction=prediction_of(body.prediction),
        name=REQUEST_ID.get(),
    )
    slot = slot if slot == -1 else slot % engine.info.n_slots
    return replace(request, **{**asked, "slot": slot, "n_probs": choices.n_probs})


def _probs(body: GenerationBody) -> tuple[int, bool]:
    """How many alternatives each token has, and whether there are log-probabilities at all. OpenAI's chats have two
    fields for these, its completions one, where 0 means none beside the token itself; llama-server has n_probs.
    """
    if isinstance(body, ChatBody):
        # A chat's switch is a number for clients of llama-server, as in completions.
        flag = 0 if isinstance(body.logprobs, bool) else body.logprobs
        if body.top_logprobs is not None and not body.logprobs:
            raise InvalidRequestError.at("top_logprobs", "needs logprobs to be true")
        n_alternatives = next((number for number in (body.top_logprobs, body.n_probs) if number is not None), flag)
        return n_alternatives, bool(body.logprobs or n_alternatives)
    n_probs = body.n_probs
    if n_probs is None and isinstance(body, CompletionBody | NativeBody):
        n_probs = body.logprobs
    is_wanted = bool(n_probs) or (isinstance(body, CompletionBody) and n_probs is not None)
    return n_probs or 0, is_wanted


# --- samplers, biases and bans


def sampling_params(engine: Backend, body: GenerationBody) -> SamplingParams:
    """Sampling of one request. May tokenize, and look through the vocabulary: for worker threads."""
    changes = set_sampling(body)
    if changes.get("repeat_last_n", 0) < 0:
        changes["repeat_last_n"] = engine.info.n_ctx
    if body.seed is not None:
        changes["seed"] = None if body.seed < 0 else body.seed
    if body.logit_bias is not None:
        changes["logit_bias"] = tuple(_biases(engine, body.logit_bias))
    if body.dry_sequence_breakers is not None:
        changes["dry_sequence_breakers"] = _breakers(body.dry_sequence_breakers)
    if body.samplers is not None:
        changes |= _chain(body.samplers)
    changes["bad_words"] = tuple(dict.fromkeys(_bad_words(engine, body)))
    changes["allowed"] = tuple(dict.fromkeys(body.allowed_token_ids))
    params = replace(engine.config.sampling, **changes)
    engine.text.check_sampling(params)
    return params


def check_sampling(body: GenerationBody) -> None:
    """Raise InvalidRequestError for what `sampling_params` refuses whatever the vocabulary."""
    if body.logit_bias is not None:
        _pairs(body.logit_bias)
    if body.dry_sequence_breakers is not None:
        _breakers(body.dry_sequence_breakers)


def _chain(words: Sequence[str]) -> dict[str, object]:
    """The samplers of these names or letters, in their order, and those that are not named off.

    Unknown ones are left out, as llama-server does: clients send those of other servers.
    """
    # ["top_k", "temperature"] must switch off the others: a top_p of the command line would go on working else.
    names = tuple(sampler_names(words))
    left_out = [
        name
        for sampler, letters in SAMPLERS.items()
        if sampler.letter and sampler.name not in names
        for name in letters
    ]
    return {"samplers": names, **{name: SETTINGS[name].off[0] for name in left_out if SETTINGS[name].off}}


def _breakers(value: object) -> tuple[str, ...]:
    """A list of texts, or the JSON of one."""
    name = "dry_sequence_breakers"
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
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
    yield from map(tuple, body.bad_words_ids)


def _biases(engine: Backend, value: object) -> Iterator[tuple[int, float]]:
    """Ids with their biases. Pairs without a token of this vocabulary, or without a bias, are left out, as in
    llama-server. Raises InvalidRequestError for too many, and for a value of another type.
    """
    n = 0
    for pair in _pairs(value):
        key, bias = pair if isinstance(pair, list | tuple) and len(pair) == 2 else (None, None)
        addend, ids = _addend(bias), _biased_ids(engine, key)
        if addend is None or not ids:
            leave_out("logit_bias", str(pair)[:64], "no token of this vocabulary with a number or false")
            continue
        n += len(ids)
        if n > MAX_BIASES:
            raise InvalidRequestError.at("logit_bias", f"at most {MAX_BIASES} tokens, those of texts included")
        for id_ in ids:
            yield id_, addend


def _pairs(value: object) -> Sequence[object]:
    if isinstance(value, dict | list) and len(value) > MAX_BIASES:
        raise InvalidRequestError.at("logit_bias", f"at most {MAX_BIASES} tokens")
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return value
    raise InvalidRequestError.at("logit_bias", "must be an object, or a list of [token id or text, bias]")


def _addend(bias: object) -> float | None:
    """The number that a bias adds; None for a value that is not a bias. It is cut off at a million, up and down."""
    if bias is False:
        return -math.inf
    if isinstance(bias, bool) or not isinstance(bias, int | float):
        return None
    return float(min(max(bias, -MOST_BIAS), MOST_BIAS))


def _biased_ids(engine: Backend, key: object) -> list[int]:
    """The ids of a token or a text; none for what is neither."""
    if isinstance(key, str) and not _is_integer(key):
        if len(key) > MAX_BIASES:
            raise InvalidRequestError.at("logit_bias", f"a text of at most {MAX_BIASES} characters")
        checkpoint()
        return engine.text.tokenize(key, add_special=False, parse_special=False)
    if isinstance(key, str):
        key = int(key) if len(key) <= _MOST_DIGITS else -1
    if isinstance(key, bool) or not isinstance(key, int):
        return []
    return [key] if 0 <= key < engine.info.target.n_vocab else []


def _is_integer(text: str) -> bool:
    """Whether a key is an id: JSON has only texts as keys, so that `{"15": 5}` means token 15, and `{"hello": 5}` the
    tokens of a text.
    """
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit()


# --- drafts


def drafters_of(engine: Backend, params: SpeculativeParams, is_predicted: bool = False) -> tuple[Origin, ...]:
    """Drafters that draft for such a request, in the order in which a fixed policy asks them, which is the server's.
    is_predicted: whether it has a prediction.
    """
    if not params.enabled or params.longest <= 0:
        return ()
    if params.types:
        return tuple(origin for origin in engine.info.drafters if origin in params.types)
    # The server adds a look-up to a draft model by itself. Under auto the policy weighs whether it pays; a fixed
    # request has no such judge, and leaves out what nobody asked for.
    left_out = list(engine.config.drafting.weighed if params.policy is SpecPolicy.FIXED else ())
    if not is_predicted:
        left_out.append(Origin.PREDICTION)
    return tuple(origin for origin in engine.info.drafters if origin not in left_out)


def _speculative(engine: Backend, body: GenerationBody) -> SpeculativeParams:
    """Draft control of one request."""
    changes = body.speculative.model_dump(exclude_none=True)
    params = replace(engine.config.drafting.defaults, **changes)
    if "types" in changes:
        drafters = engine.info.drafters
        for origin in params.types:
            if origin not in drafters:
                here = f"has {', '.join(drafters)}" if drafters else "has no drafter"
                raise InvalidRequestError.at("speculative.types", f"this server {here}, not {origin}; see --spec-type")
        params = params if params.types else replace(params, enabled=False)  # `none` is no type
    if params.n_min <= params.longest:
        return params
    if "n_min" in changes:
        raise InvalidRequestError.at(
            "speculative.n_min", f"must not be above n_max, which is {params.longest} for this request"
        )
    return replace(params, n_min=params.longest)


def prediction_of(value: object) -> bytes:
    """The text of `{"type": "content", "content": ...}`, a string or text parts, as UTF-8; empty for None.

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
    if len(data) > MAX_PREDICTED_BYTES:
        raise InvalidRequestError.at(
            "prediction",
            f"its content has {len(data)} bytes, of {MAX_PREDICTED_BYTES} at most; send the part that is answered",
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
    pieces = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    texts = [text for text in pieces if isinstance(text, str)]
    if len(texts) < len(content):
        raise InvalidRequestError.at("prediction", 'its content may hold only parts of type "text"')
    return texts


def scales_of(engine: Backend, value: object, where: str = "lora") -> tuple[float, ...]:
    """How much of each adapter a list of {"id", "scale"} adds; 0 where it names one not. Raises InvalidRequestError."""
    if not isinstance(value, list):
        raise InvalidRequestError.at(where, "must be a list of objects with id and scale")
    scales = [0.0] * len(engine.snapshot().adapters)
    for i, item in enumerate(value):
        id_, scale = (item.get("id"), item.get("scale", 0.0)) if isinstance(item, dict) else (None, None)
        if type(id_) is not int or not 0 <= id_ < len(scales):
            known = f"id must be the number of an adapter, 0 to {len(scales) - 1}; GET /lora-adapters lists them"
            none = "this server has no adapter; start it with --lora FILE"
            raise InvalidRequestError(f"{where}.{i}: {known if scales else none}", where)
        if isinstance(scale, bool) or not isinstance(scale, int | float) or not abs(scale) <= MOST_LORA_SCALE:
            raise InvalidRequestError(f"{where}.{i}: scale must be a number up to {MOST_LORA_SCALE:g}", where)
        scales[id_] = float(scale)
    return tuple(scales)
