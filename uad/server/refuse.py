"""Fields of features that this server does not have. Neutral values pass, active ones are refused by name. Unknown
fields and those that only change how an answer is presented are ignored, as llama-server does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from uad.errors import InvalidRequestError, NotSupportedError
from uad.server.schemas import Body

B = TypeVar("B", bound=Body)

NO_FUNCTIONS = "send tools, which came after it; in an app, update it, or switch function calling off in its settings"
NO_SAMPLER = "send 0 or leave the field out; in an app, switch it off in its sampler settings"


@dataclass(frozen=True, slots=True)
class Feature:
    """A field, when it is active, and what to do instead."""

    name: str
    is_active: Callable[[str, object], bool]
    way_out: str


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequestError(f"{name}: must be a number", name)
    return value


def _filled(name: str, value: object) -> bool:
    return value not in (None, "", [], {}, False)


def _on(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name}: must be true or false", name)
    return value


def _positive(name: str, value: object) -> bool:
    return _number(name, value) > 0


def _not_zero(name: str, value: object) -> bool:
    return _number(name, value) != 0


def _above_one(name: str, value: object) -> bool:
    return _number(name, value) > 1


def _other_than(*neutral: str) -> Callable[[str, object], bool]:
    return lambda name, value: value not in neutral


def _not_text(name: str, value: object) -> bool:
    return value != ["text"] and _filled(name, value)


FEATURES = (
    Feature("functions", _filled, NO_FUNCTIONS),
    Feature("function_call", _other_than("none", "auto"), NO_FUNCTIONS),
    Feature("grammar_lazy", _on, "the grammar holds from the beginning of the answer; leave the field out"),
    Feature("modalities", _not_text, 'this server answers with text; leave the field out or send ["text"]'),
    Feature("audio", _filled, "this server answers with text; leave the field out, or switch voice off in the app"),
    Feature("mirostat", _not_zero, NO_SAMPLER),
    Feature("dry_multiplier", _positive, NO_SAMPLER),
    Feature("dynatemp_range", _positive, NO_SAMPLER),
    Feature("adaptive_target", _positive, NO_SAMPLER),
    Feature("min_keep", _above_one, NO_SAMPLER),
    Feature("n_indent", _positive, NO_SAMPLER),
    Feature("t_max_predict_ms", _positive, "use max_tokens to bound the answer"),
    Feature("post_sampling_probs", _on, "this server reports probabilities of the unmodified distribution"),
    Feature("lora", _filled, "merge the adapter into the model file"),
    Feature("echo", _on, "put the prompt in front of the answer yourself"),
    Feature("best_of", _above_one, "use n, and choose by logprobs"),
    Feature("suffix", _filled, "send it to /v1/completions, or to /infill as input_suffix"),
)


def checked(kind: type[B], members: Mapping[str, object]) -> B:
    """The members of a request as a body of its route. Raises what `check_features` raises, and ValidationError."""
    check_features(members, kind.model_fields)
    return kind.model_validate(members)


def check_features(body: Mapping[str, object], known: Collection[str] = ()) -> None:
    """Raise NotSupportedError for the first feature that `body` switches on and its route lacks, which has the fields
    `known`.
    """
    if body.get("chat_template"):
        raise InvalidRequestError(
            "chat_template: templates are not taken from requests; start the server with --chat-template",
            "chat_template",
        )
    for feature in (one for one in FEATURES if one.name not in known):
        value = body.get(feature.name)
        if value is not None and feature.is_active(feature.name, value):
            raise NotSupportedError(f"{feature.name} is not supported: {feature.way_out}", feature.name)
    messages = body.get("messages")
    for i, message in enumerate(messages if isinstance(messages, list) else ()):
        _check_message(i, message)


def _check_message(i: int, message: object) -> None:
    if not isinstance(message, dict):
        return
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind != "text":
            where = f"messages.{i}.content"
            raise NotSupportedError(
                f"{where}: this server reads text parts only; leave images, audio and files out of the conversation",
                where,
            )
