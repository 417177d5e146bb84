"""Request bodies (pydantic), with llama-server's names and aliases. Unknown members are ignored: clients send many.

Every number that can reach llama.cpp passes through a bounded field. Null members are gone before they arrive here, so
None always means absent. Nothing here knows a vocabulary: `prompt_ids` and `job` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    create_model,
    model_validator,
)

from uad.common.names import nearest
from uad.common.samplers import SETTINGS
from uad.common.settings import INT32_MAX, Setting
from uad.config import SPEC_TYPE
from uad.errors import ConfigError
from uad.requests.toolfields import MAX_CALLS, MAX_TOOLS, CallBody, ReasoningFormat, ToolBody, ToolChoice
from uad.types import Origin, SpecPolicy

MAX_STOPS = 256
MAX_STOP_CHARS = 4096
MAX_STOP_IDS = 4096
MAX_MESSAGES = 8192
MAX_PARTS = 4096  # of one message
MAX_KWARGS = 64
MAX_EXTRA = 4096
MAX_BUDGET_MESSAGE = 4096  # characters


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return value


def _pause(value: float) -> float:
    if 0 < value < 1:
        raise ValueError("must be 1 or more, or 0 or -1 for none")
    return value


def _words(value: object) -> object:
    words = [value] if isinstance(value, str) else value
    if isinstance(words, list) and len(words) > MAX_STOPS:
        raise ValueError(f"must hold at most {MAX_STOPS} strings")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("must be a string or a list of strings")
    return [word for word in words if word]


def _names(value: object) -> object:
    if isinstance(value, str):
        return list(value)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("must be a list of sampler names, or a string of sampler letters")
    return value


def _types(value: object) -> object:
    """As --spec-type has them, or a list of them."""
    names = value if isinstance(value, list) else [value]
    texts = [name for name in names if isinstance(name, str)]
    if len(texts) < len(names):
        raise ValueError("must be a string or a list of strings")
    try:
        return SPEC_TYPE.parse(",".join(texts))
    except ConfigError as error:
        raise ValueError(str(error)) from None
    except ValueError:
        raise ValueError(f"must be {SPEC_TYPE.expects}") from None


def _parts(value: object) -> object:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise ValueError("must be a string or a list of text parts")
    return value


_Number = BeforeValidator(_number)
_Finite = Field(allow_inf_nan=False)
Length = Annotated[int, Field(ge=-1, le=INT32_MAX), _Number]
Count = Annotated[int, Field(ge=0, le=INT32_MAX), _Number]
Choices = Annotated[int, Field(ge=1, le=1024), _Number]
Seed = Annotated[int, Field(ge=-1, le=2**63 - 1), _Number]
Alternatives = Annotated[int, Field(ge=0, le=100), _Number]
ChatAlternatives = Annotated[int, Field(ge=0, le=20), _Number]
DraftLength = Annotated[int, Field(ge=0, le=512), _Number]
Probability = Annotated[float, _Finite, Field(ge=0.0, le=1.0), _Number]
Effort = Annotated[StrictStr, Field(max_length=64)]
Ids = Annotated[list[Count], Field(max_length=MAX_STOP_IDS)]

Seconds = Annotated[float, _Finite, Field(ge=-1.0, le=86400.0), AfterValidator(_pause), _Number]
Milliseconds = Annotated[float, _Finite, Field(ge=-1.0, le=2.0**63), _Number]
Names = Annotated[list[StrictStr], BeforeValidator(_names), Field(max_length=256)]
Words = Annotated[list[Annotated[StrictStr, Field(max_length=MAX_STOP_CHARS)]], BeforeValidator(_words)]
DrafterTypes = Annotated[tuple[Origin, ...], BeforeValidator(_types)]
text_parts = BeforeValidator(_parts)


def number_of(setting: Setting) -> object:
    """The type of a number within the bounds of a setting."""
    span = Field(ge=setting.low, le=setting.high)
    return Annotated[int, span, _Number] if setting.is_whole else Annotated[float, _Finite, span, _Number]


class Body(BaseModel):
    """Base of every request body."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True, regex_engine="rust-regex")


class StreamOptions(Body):
    """`stream_options` of OpenAI."""

    include_usage: StrictBool | None = None


class SpeculativeBody(Body):
    """`speculative` of one request; the only object in which an unknown member is an error."""

    enabled: StrictBool | None = None
    n_max: DraftLength | None = None
    n_min: DraftLength | None = None
    p_min: Probability | None = None
    policy: SpecPolicy | None = None
    types: DrafterTypes | None = None

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(f"unknown member {name[:64]!r}; did you mean {nearest(name, cls.model_fields)!r}?")
        return (
            {name: member for name, member in value.items() if member is not None} if isinstance(value, dict) else value
        )


if TYPE_CHECKING:
    SamplingBody = Body
else:  # made of the table of samplers; None: the server's default
    SamplingBody = create_model(
        "SamplingBody",
        __base__=Body,
        **{
            name: (Optional[number_of(one)], Field(None, validation_alias=AliasChoices(name, *one.aliases)))  # noqa: UP045
            for name, one in SETTINGS.items()
        },
    )


class GenerationBody(SamplingBody):
    """What all three generation routes take."""

    stream: StrictBool = False
    verbose: StrictBool = False
    stream_options: StreamOptions = StreamOptions()
    sse_ping_interval: Seconds | None = None
    max_tokens: Length | None = Field(
        None, validation_alias=AliasChoices("n_predict", "max_completion_tokens", "max_tokens")
    )
    n: Choices = Field(1, validation_alias=AliasChoices("n_cmpl", "n"))
    stop: Words = Field([])
    stop_token_ids: Ids = Field([])
    include_stop_str_in_output: StrictBool = False
    min_tokens: Count = 0
    seed: Seed | None = None
    logit_bias: Any = None
    ignore_eos: StrictBool | None = None
    samplers: Names | None = None
    dry_sequence_breakers: Any = None
    bad_words: Words = Field([])
    bad_words_ids: Annotated[list[Ids], Field(max_length=MAX_STOPS)] = Field([])
    allowed_token_ids: Ids = Field([])
    n_probs: Alternatives | None = None
    post_sampling_probs: StrictBool = False
    timings_per_token: StrictBool = False
    return_progress: StrictBool = False
    n_indent: Count = 0
    t_max_predict_ms: Milliseconds = 0.0
    cache_prompt: StrictBool | None = None
    id_slot: Length = -1
    return_origins: StrictBool = False
    speculative: SpeculativeBody = SpeculativeBody()
    lora: Any = None  # see `job.scales_of`
    prediction: Any = None
    response_format: Any = None  # this and what follows: see `constraint`
    json_schema: Any = None
    grammar: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    structured_outputs: Any = None

    @model_validator(mode="before")
    @classmethod
    def _folded(cls, value: dict[str, Any]) -> dict[str, Any]:
        """`speculative.n_max` and so on, as llama-server spells them, become members of the object, which wins over
        them.
        """
        flat = {
            name: value[f"speculative.{name}"]
            for name in SpeculativeBody.model_fields
            if f"speculative.{name}" in value
        }
        asked = value.get("speculative", {})
        if not flat or not isinstance(asked, dict):
            return value
        return {**value, "speculative": flat | {name: member for name, member in asked.items() if member is not None}}


class TextPart(Body):
    """One part of a message's content; other kinds are refused before validation."""

    type: Literal["text"]
    text: StrictStr


class MessageBody(Body):
    """One chat message. Further members known to chat templates travel along."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True), text_parts] | None = None
    name: StrictStr | None = None
    reasoning_content: StrictStr | None = Field(None, validation_alias=AliasChoices("reasoning_content", "reasoning"))
    tool_call_id: StrictStr | None = None
    tool_calls: Annotated[list[CallBody], Field(max_length=MAX_CALLS)] | None = None

    @model_validator(mode="after")
    def _has_content(self) -> MessageBody:
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise ValueError("must contain 'content'")
        return self


class TemplateBody(Body):
    """What renders to a prompt through the chat template."""

    messages: list[MessageBody] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    chat_template_kwargs: dict[StrictStr, Any] = Field({}, max_length=MAX_KWARGS)
    reasoning_effort: Effort | None = None
    enable_thinking: StrictBool | None = None
    thinking_budget: Length | None = Field(
        None,
        validation_alias=AliasChoices(
            "reasoning_budget_tokens", "thinking_budget_tokens", "reasoning_budget", "thinking_budget"
        ),
    )
    reasoning_budget_message: StrictStr | None = Field(None, max_length=MAX_BUDGET_MESSAGE)
    tools: list[ToolBody] = Field([], max_length=MAX_TOOLS)
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: StrictBool | None = None
    reasoning_format: ReasoningFormat | None = None
    add_generation_prompt: StrictBool | None = None
    continue_final_message: StrictBool | None = None
    add_special_tokens: StrictBool = True


class ChatBody(TemplateBody, GenerationBody):
    """POST /v1/chat/completions."""

    logprobs: StrictBool = False
    top_logprobs: ChatAlternatives | None = None
    return_token_ids: StrictBool = False


class CompletionBody(GenerationBody):
    """POST /v1/completions. `prompt` is checked by `prompt_ids`."""

    prompt: Any
    echo: StrictBool = False
    best_of: Choices | None = None
    suffix: StrictStr = ""
    logprobs: Alternatives | None = None
    add_special_tokens: StrictBool = True
    return_token_ids: StrictBool = False


class NativeBody(GenerationBody):
    """POST /completion, llama-server's own form."""

    prompt: Any
    logprobs: Alternatives | None = None
    add_special_tokens: StrictBool = True
    return_tokens: StrictBool = False
    response_fields: list[StrictStr] = Field([], max_length=256)


class ExtraBody(Body):
    """A chunk of another file."""

    text: StrictStr
    filename: StrictStr = "tmp"


class InfillBody(NativeBody):
    """POST /infill. Prefix and suffix are texts, or lists of ids and texts; `prompt` goes on after the prefix."""

    prompt: StrictStr = ""
    input_prefix: Any
    input_suffix: Any
    input_extra: list[ExtraBody] = Field([], max_length=MAX_EXTRA, fail_fast=True)


class TokenizeBody(Body):
    """POST /tokenize."""

    content: Any
    add_special: StrictBool = False
    parse_special: StrictBool = True
    with_pieces: StrictBool = False


class DetokenizeBody(Body):
    """POST /detokenize."""

    tokens: Any
