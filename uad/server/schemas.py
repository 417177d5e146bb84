"""Request bodies (pydantic), with llama-server's names and aliases. Unknown members are ignored: clients send many.

Null members are gone before they arrive here, so None always means absent. Nothing here knows a vocabulary: `prompts` and `bias` do.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictBool, StrictStr, model_validator

from uad.server.fields import (
    Alternatives,
    ChatAlternatives,
    Choices,
    Count,
    DrafterTypes,
    DraftLength,
    Factor,
    Ids,
    Length,
    Names,
    Penalty,
    Probability,
    Seconds,
    Seed,
    Temperature,
    TopK,
    Words,
    text_parts,
)
from uad.server.toolfields import MAX_CALLS, MAX_TOOLS, CallBody, ReasoningFormat, ToolBody, ToolChoice
from uad.types import SpecPolicy

MAX_MESSAGES = 8192
MAX_PARTS = 4096  # of one message
MAX_KWARGS = 64


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
                near = get_close_matches(name[:64], cls.model_fields, n=1, cutoff=0.0)[0]
                raise ValueError(f"unknown member {name[:64]!r}; did you mean {near!r}?")
        return {name: member for name, member in value.items() if member is not None} if isinstance(value, dict) else value


class GenerationBody(Body):
    """What all three generation routes take."""

    stream: StrictBool = False
    stream_options: StreamOptions = StreamOptions()
    sse_ping_interval: Seconds | None = None
    max_tokens: Length | None = Field(None, validation_alias=AliasChoices("n_predict", "max_completion_tokens", "max_tokens"))
    n: Choices = Field(1, validation_alias=AliasChoices("n_cmpl", "n"))
    stop: Words = []
    stop_token_ids: Ids = []
    include_stop_str_in_output: StrictBool = False
    min_tokens: Count = 0
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: Probability | None = None
    min_p: Probability | None = None
    typical_p: Probability | None = Field(None, validation_alias=AliasChoices("typical_p", "typ_p"))
    repeat_last_n: Length | None = None
    repeat_penalty: Factor | None = Field(None, validation_alias=AliasChoices("repeat_penalty", "repetition_penalty"))
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    seed: Seed | None = None
    logit_bias: Any = None
    ignore_eos: StrictBool | None = None
    samplers: Names | None = None
    n_probs: Alternatives | None = None
    cache_prompt: StrictBool = True
    id_slot: Length = -1
    speculative: SpeculativeBody = SpeculativeBody()

    @model_validator(mode="before")
    @classmethod
    def _folded(cls, value: dict[str, Any]) -> dict[str, Any]:
        """`speculative.n_max` and so on, as llama-server spells them, become members of the object, which wins over them."""
        flat = {name: value[f"speculative.{name}"] for name in SpeculativeBody.model_fields if f"speculative.{name}" in value}
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
    reasoning_effort: StrictStr | None = Field(None, max_length=64)
    enable_thinking: StrictBool | None = None
    thinking_budget: Length | None = Field(
        None, validation_alias=AliasChoices("reasoning_budget_tokens", "thinking_budget_tokens", "thinking_budget")
    )
    tools: list[ToolBody] = Field([], max_length=MAX_TOOLS)
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: StrictBool = True
    reasoning_format: ReasoningFormat | None = None
    add_generation_prompt: StrictBool | None = None
    continue_final_message: StrictBool | None = None


class ChatBody(TemplateBody, GenerationBody):
    """POST /v1/chat/completions."""

    logprobs: StrictBool = False
    top_logprobs: ChatAlternatives | None = None


class CompletionBody(GenerationBody):
    """POST /v1/completions. `prompt` is checked by `prompts`."""

    prompt: Any
    logprobs: Alternatives | None = None


class NativeBody(GenerationBody):
    """POST /completion, llama-server's own form."""

    prompt: Any
    logprobs: Alternatives | None = None
    return_tokens: StrictBool = False
    response_fields: list[StrictStr] = Field([], max_length=256)


class TokenizeBody(Body):
    """POST /tokenize."""

    content: Any
    add_special: StrictBool = False
    parse_special: StrictBool = True
    with_pieces: StrictBool = False


class DetokenizeBody(Body):
    """POST /detokenize."""

    tokens: Any
