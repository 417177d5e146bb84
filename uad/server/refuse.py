"""Fields of features that this server does not have. Neutral values pass, active ones are refused by name. Unknown
fields and those that only change how an answer is presented are ignored, as llama-server does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from uad.errors import InvalidRequestError, NotSupportedError
from uad.requests.schemas import Body

B = TypeVar("B", bound=Body)

NO_FUNCTIONS = "send tools, which came after it; in an app, update it, or switch function calling off in its settings"


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


def _given(name: str, value: object) -> bool:
    return True


def _on(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name}: must be true or false", name)
    return value


def _above_one(name: str, value: object) -> bool:
    return _number(name, value) > 1


def _is_false(name: str, value: object) -> bool:
    return not _on(name, value)


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
    Feature("echo", _on, "only /v1/completions has it; put the prompt in front of the answer yourself"),
    Feature("best_of", _above_one, "only /v1/completions has it; use n, and choose by logprobs"),
    Feature("use_beam_search", _on, "ids are drawn one after the other; use best_of in /v1/completions"),
    Feature("prompt_logprobs", _given, "use echo with logprobs in /v1/completions"),
    Feature("truncate_prompt_tokens", _given, "send a shorter prompt; /tokenize tells how long it is"),
    Feature("skip_special_tokens", _is_false, "control tokens are no text; read their ids with return_tokens"),
    Feature("suffix", _filled, "send it to /v1/completions, or to /infill as input_suffix"),
)


def checked(kind: type[B], members: Mapping[str, object]) -> B:
    """The members of a request as a body of its route. Raises what `check_features` raises, and ValidationError."""
    check_features(members, kind.model_fields)
    return kind.model_validate(members)


def check_features(body: Mapping[str, object], known: Collection[str] = ()) -> None:
    """Raise NotSupportedError for the first feature that `body` switches on and this route lacks. known: its fields."""
    if body.get("chat_template"):
        raise InvalidRequestError(
            "chat_template: templates are not taken from requests; start the server with --chat-template",
            "chat_template",
        )
    for feature in (one for one in FEATURES if one.name not in known):
        value = body.get(feature.name)
        if value is not None and feature.name not in known and feature.is_active(feature.name, value):
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
