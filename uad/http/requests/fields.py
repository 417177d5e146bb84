"""The table of request fields: a row has a field's name, its further names, type, bounds, default, and one line for
docs/http.md. Unknown members are ignored: clients send many.

Rows are the attributes of the bodies below. Two kinds come from tables elsewhere: fields of samplers
(`common/samplers`), and what goes into `types.Request` as it is (`common/settings`). Every number that can reach
llama.cpp passes through a bounded field. Null members are gone before they arrive here, so None always means absent.
Nothing here knows a vocabulary: `prompt_ids` and `job` do.

Fields of features that this server does not have are at the end: neutral values pass, active ones are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    StrictBool,
    StrictStr,
    create_model,
    model_validator,
)

from uad.base.common.names import nearest
from uad.base.common.samplers import SETTINGS
from uad.base.common.settings import INT32_MAX, Refused, RequestField, Setting, request_fields
from uad.base.config import SPEC_TYPE
from uad.base.config.drafter_types import REQUEST_TYPES
from uad.base.errors import ConfigError, InvalidRequestError, NotSupportedError
from uad.base.types import Origin, Request, SpecPolicy
from uad.http.requests.left_out import account_for, names_of
from uad.http.requests.message_fields import (
    MAX_TOOLS,
    AllowedTools,
    CallBody,
    CalledBody,
    Continued,
    FunctionBody,
    NamedTool,
    ReasoningFormat,
    ToolBody,
    ToolChoice,
)
from uad.http.requests.message_fields import Body as Body
from uad.http.requests.message_fields import MessageBody as MessageBody
from uad.http.requests.no_effect import NO_EFFECT, account_for_top

ROUTE = "/v1/chat/completions"
MAX_STOPS = 256
MAX_STOP_CHARS = 4096
MAX_STOP_IDS = 4096
MAX_MESSAGES = 8192
MAX_KWARGS = 64
MAX_EXTRA = 4096
MAX_BUDGET_MESSAGE_CHARS = 4096
"""Characters."""
MAX_ALTERNATIVES = 100
B = TypeVar("B", bound=Body)


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return value


def _taken(value: object, is_whole: bool, low: float, high: float, refused: Refused) -> int | float:
    """A number as llama-server takes it: a fraction is cut off where it is whole, and the nearest bound counts for a
    number out of bounds. A number that is `refused` there stays, for the check of the bounds.
    """
    number = _number(value)
    if isinstance(number, float) and not math.isfinite(number):
        return number
    number = math.trunc(number) if is_whole else number
    if number < low and refused in ("nothing", "above"):
        return low
    return high if number > high and refused in ("nothing", "below") else number


def _usual_below(value: object, low: float) -> object:
    return None if value is None or _number(value) < low else value


def _seed(value: object) -> int | float:
    """A negative seed wraps to 32 bits, any other to 64, as in a C integer. All bits set: a random seed, -1."""
    # -1 as a number of 32 or of 64 bits is what clients in C send for "draw one".
    number = _number(value)
    if isinstance(number, float) and not math.isfinite(number):
        return number
    whole = math.trunc(number) % 2 ** (32 if number < 0 else 64)
    return -1 if whole in (2**32 - 1, 2**64 - 1) else whole


def _alternatives(value: object) -> object:
    """How many: true is one, and what is below 0, none at all."""
    if value is None or value is False:
        return None
    number = 1 if value is True else _number(value)
    return number if number >= 0 else None


def _pause(value: float) -> float:
    if 0 < value < 1:
        raise ValueError("must be 1 or more, or 0 or -1 for none")
    return value


def _switch_or_number(value: object) -> object:
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float) or not math.isfinite(value) or value > MAX_ALTERNATIVES:
        raise ValueError(f"must be true or false, or a number up to {MAX_ALTERNATIVES}")
    return max(math.trunc(value), 0)


def _words(value: object) -> object:
    words = [value] if isinstance(value, str) else value
    words = [word for word in words if word is not None] if isinstance(words, list) else words
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
    """Drafters as --spec-type has them, or a list of them."""
    names = value if isinstance(value, list) else [value]
    texts = [name for name in names if isinstance(name, str)]
    if len(texts) < len(names):
        raise ValueError("must be a string or a list of strings")
    try:
        return REQUEST_TYPES.parse(",".join(texts))
    except ConfigError as error:
        raise ValueError(str(error)) from None
    except ValueError:
        raise ValueError(f"must be {SPEC_TYPE.expects}") from None


def _within(low: float, high: float, refused: Refused = "both", is_whole: bool = True) -> BeforeValidator:
    """A validator that takes a number in low..high."""
    return BeforeValidator(partial(_taken, is_whole=is_whole, low=low, high=high, refused=refused))


_Number = BeforeValidator(_number)
_Finite = Field(allow_inf_nan=False)
Length = Annotated[int, Field(ge=-1, le=INT32_MAX), _within(-1, INT32_MAX, "below")]
Count = Annotated[int, Field(ge=0, le=INT32_MAX), _within(0, INT32_MAX, "below")]
Choices = Annotated[int, Field(ge=1, le=1024), _within(1, 1024)]
Alternatives = Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES), _within(0, MAX_ALTERNATIVES, "above")]
DraftLength = Annotated[int, Field(ge=0, le=512), _within(0, 512, "below")]
Probability = Annotated[float, _Finite, Field(ge=0.0, le=1.0), _within(0.0, 1.0, "nothing", is_whole=False)]
Seed = Annotated[int, Field(ge=-1, le=2**64 - 1), BeforeValidator(_seed)]
Logprobs = Annotated[Alternatives | None, BeforeValidator(_alternatives)]
ChatLogprobs = Annotated[bool | Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES)], BeforeValidator(_switch_or_number)]
Effort = Annotated[StrictStr, Field(max_length=64)]
Id = Annotated[int, Field(ge=0, le=INT32_MAX), _Number]
IdList = Annotated[list[Id], Field(max_length=MAX_STOP_IDS)]
Seconds = Annotated[
    float,
    _Finite,
    Field(ge=-1.0, le=86400.0),
    AfterValidator(_pause),
    _within(-1.0, 86400.0, "below", is_whole=False),
]
Names = Annotated[list[StrictStr], BeforeValidator(_names), Field(max_length=256)]
StopTexts = Annotated[list[Annotated[StrictStr, Field(max_length=MAX_STOP_CHARS)]], BeforeValidator(_words)]
DrafterTypes = Annotated[tuple[Origin, ...], BeforeValidator(_types)]


def row(default: object, says: str, *names: str, echoed: bool = False, **bounds: Any) -> Any:
    """A field of a body. says: its line in docs/http.md. names: all that it goes by, its own included; the first that
    a body has counts. echoed: whether `generation_settings` of answers has it. default: `...` where it must be there.
    """
    # max_tokens goes by n_predict first: of {"max_tokens": 5, "n_predict": 9} 9 counts, as in llama-server.
    alias = AliasChoices(*names) if names else None
    return Field(default, validation_alias=alias, description=says, json_schema_extra={"echoed": echoed}, **bounds)


REQUEST_ROWS = request_fields(Request)
"""Fields of `Request` that a body sets as they are, by their name there."""


def _number_type(field: Setting | RequestField, is_whole: bool) -> Any:
    """The type of a number with these bounds."""
    span, taken = Field(ge=field.low, le=field.high), _within(field.low, field.high, field.refused, is_whole)
    return Annotated[int, span, taken] if is_whole else Annotated[float, _Finite, span, taken]


def _sampler_type(setting: Setting) -> Any:
    """The type of a member that is a sampler's field. None: the server's own counts."""
    usual = BeforeValidator(partial(_usual_below, low=setting.low))
    if setting.usual_below:
        span, taken = (
            Field(ge=setting.low, le=setting.high),
            _within(setting.low, setting.high, setting.refused, is_whole=False),
        )
        return Annotated[Annotated[float, _Finite, span, taken] | None, usual]
    return Optional[_number_type(setting, setting.is_whole)]  # noqa: UP045


def _request_type(hint: Any, row: RequestField) -> Any:
    """The type of a member that sets a field of `Request` with this annotation."""
    least = row.counts_from
    if hint is int or hint is float:
        kind = _number_type(row, hint is int)
        return kind if least is None else Annotated[kind, AfterValidator(lambda value: max(value, least))]
    # They become tuples only after validation: the errors speak of lists, which is what JSON has.
    return {
        bool: StrictBool,
        tuple[str, ...]: Annotated[StopTexts, AfterValidator(tuple)],
        tuple[int, ...]: Annotated[IdList, AfterValidator(lambda ids: tuple(dict.fromkeys(ids)))],
    }[hint]


def _members_of_tables() -> dict[str, Any]:
    """Members made of the rows of samplers and of `Request`, for `create_model`. None: the server's default holds."""
    kinds = {name: _sampler_type(setting) for name, setting in SETTINGS.items()}
    rows = {name: row(None, setting.help, name, *setting.aliases, echoed=True) for name, setting in SETTINGS.items()}
    hints = get_type_hints(Request)
    for field, declared in REQUEST_ROWS.items():
        name = declared.name or field
        kinds[name] = _request_type(hints[field], declared)
        rows[name] = row(None, declared.says, echoed=declared.is_echoed)
    return {name: (Optional[kind], rows[name]) for name, kind in kinds.items()}  # noqa: UP045


if TYPE_CHECKING:

    class TableBody(Body):
        """Members that code reads by name. All others are reached with `set_fields`, typed by `Request`."""

        stream: bool | None
        n_probs: int | None

else:
    TableBody = create_model("TableBody", __base__=Body, **_members_of_tables())


def set_fields(body: TableBody) -> dict[str, Any]:
    """Fields of a `Request` that the body sets unchanged, by their names there."""
    given = ((name, row, getattr(body, row.name or name)) for name, row in REQUEST_ROWS.items())
    return {name: value for name, row, value in given if value is not None and (body.stream or not row.only_streamed)}


def set_sampling(body: GenerationBody) -> dict[str, Any]:
    """Fields of `SamplingParams` that the body sets unchanged, by their names there."""
    return {name: value for name in (*SETTINGS, "ignore_eos") if (value := getattr(body, name)) is not None}


class StreamOptions(Body):
    """`stream_options` of OpenAI."""

    include_usage: StrictBool | None = row(None, "the last chunk has `usage`")


class SpeculativeBody(Body):
    """`speculative` of one request; the only object in which an unknown member is an error."""

    enabled: StrictBool | None = row(None, "whether anything drafts", echoed=True)
    n_max: DraftLength | None = row(
        None,
        "most tokens of a draft, for the draft model and heads (`draft-mtp` and others); 0 switches all drafters off; "
        "48 under `auto` and 16 under `fixed`, unless somebody says it",
        echoed=True,
    )
    n_min: DraftLength | None = row(None, "shorter drafts of these two are not submitted; `fixed` only", echoed=True)
    p_min: Probability | None = row(
        None, "these two stop before a token that is less likely; `fixed` only", echoed=True
    )
    policy: SpecPolicy | None = row(None, "`auto` (what pays on this machine, at most n_max) or `fixed`", echoed=True)
    types: DrafterTypes | None = row(
        None,
        "the drafters that may draft, of those that the server has, as in `--spec-type`; under `fixed` the first of "
        "them in the server's order that has a guess drafts, head and model last",
        echoed=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(f"unknown member {name[:64]!r}; did you mean {nearest(name, cls.model_fields)!r}?")
        return (
            {name: member for name, member in value.items() if member is not None} if isinstance(value, dict) else value
        )


class GenerationBody(TableBody):
    """Fields of all three generation routes."""

    verbose: StrictBool = row(False, "chats answer with `__verbose`, too: the prompt and all settings")
    stream_options: StreamOptions = row(StreamOptions(), "an object, see `stream_options.include_usage`")
    sse_ping_interval: Seconds | None = row(
        None, "seconds of silence after which a stream sends a comment: 1 or more; 0 or -1: never"
    )
    max_tokens: Length | None = row(
        None,
        "most tokens of the answer; -1: until the context is full",
        *("n_predict", "max_completion_tokens", "max_tokens"),
        echoed=True,
    )
    n: Choices = row(
        1,
        "answers to each prompt; answer i uses seed + i, and those beyond the slots wait for their turn",
        "n_cmpl",
        "n",
    )
    seed: Seed | None = row(
        None, "of the random numbers; -1, and all bits of 32 or 64 set: a new one for each request", echoed=True
    )
    logit_bias: Any = row(None, "what is added to logits (see **Words**)", echoed=True)
    ignore_eos: StrictBool | None = row(None, "ends of the vocabulary are not drawn (see **Stops**)", echoed=True)
    samplers: Names | None = row(None, "names or letters of the samplers that run, in their order", echoed=True)
    dry_sequence_breakers: Any = row(
        None, "texts that end what DRY takes for a repetition: a list, or the JSON of one; 64 at most", echoed=True
    )
    bad_words: StopTexts = row([], "what is never written, at the beginning of a word or inside, a text or several")
    bad_words_ids: Annotated[list[IdList], Field(max_length=MAX_STOPS)] = row([], "the same, as token ids")
    allowed_token_ids: IdList = row([], "all tokens that may be written; empty: any")
    speculative: SpeculativeBody = row(
        SpeculativeBody(),
        'draft control, with the members below, which may also be given flat: `"speculative.n_max": 8`; an unknown '
        "member is an error",
    )
    lora: Any = row(None, 'how much of each adapter is added: `[{"id": 0, "scale": 1}]` ([deploy.md](deploy.md))')
    prediction: Any = row(
        None, 'what the answer is expected to be: `{"type": "content", "content": "a text"}` (see **Prediction**)'
    )
    response_format: Any = row(
        None, "OpenAI's form of an answer; of this and the next seven one at most ([grammar.md](grammar.md))"
    )
    json_schema: Any = row(None, "the answer is JSON of this schema")
    grammar: Any = row(None, "the answer is of this grammar, in GBNF or Lark; empty: without the server's own")
    guided_json: Any = row(None, "as `json_schema`")
    guided_regex: Any = row(None, "the whole answer matches this regular expression")
    guided_choice: Any = row(None, "the answer is one of these texts")
    guided_grammar: Any = row(None, "as `grammar`")
    structured_outputs: Any = row(None, "vLLM's object: one of `json`, `regex`, `choice`, `grammar`, `json_object`")

    @model_validator(mode="before")
    @classmethod
    def _folded(cls, value: dict[str, Any]) -> dict[str, Any]:
        """`speculative.n_max` and so on, as llama-server spells them, become members of the object, which wins over
        them.
        """
        # {"speculative.n_max": 8, "speculative": {"p_min": 0.5}} is {"speculative": {"n_max": 8, "p_min": 0.5}}.
        flat = {
            name: value[f"speculative.{name}"]
            for name in SpeculativeBody.model_fields
            if f"speculative.{name}" in value
        }
        asked = value.get("speculative", {})
        if not flat or not isinstance(asked, dict):
            return value
        return {**value, "speculative": flat | {name: member for name, member in asked.items() if member is not None}}


class TemplateBody(Body):
    """A chat that the chat template renders to a prompt."""

    messages: list[MessageBody] = row(
        ...,
        "the conversation, texts and images (see **Messages**)",
        min_length=1,
        max_length=MAX_MESSAGES,
        fail_fast=True,
    )
    chat_template_kwargs: dict[StrictStr, Any] = row({}, "see **Template variables**", max_length=MAX_KWARGS)
    reasoning_effort: Effort | None = row(None, "a word for the template; `none` switches thoughts off")
    enable_thinking: StrictBool | None = row(None, "the template's switch of thoughts")
    thinking_budget: Length | None = row(
        None,
        "most tokens of a thought; -1: the server's bound ([tools.md](tools.md))",
        *("reasoning_budget_tokens", "thinking_budget_tokens", "reasoning_budget", "thinking_budget"),
    )
    reasoning_budget_message: StrictStr | None = row(
        None, "what is written before a thought ends by its budget", max_length=MAX_BUDGET_MESSAGE_CHARS
    )
    tools: list[ToolBody] = row([], "functions that the answer may call ([tools.md](tools.md))", max_length=MAX_TOOLS)
    tool_choice: ToolChoice = row(
        "auto", "`none`, `auto`, `required`, the function to call, or those that may be called (`allowed_tools`)"
    )
    parallel_tool_calls: StrictBool | None = row(None, "whether there may be several calls in one answer")
    reasoning_format: ReasoningFormat | None = row(
        None,
        "`none`: thoughts stay in the content; `auto`, `deepseek`: they are `reasoning_content`; `deepseek-legacy`: so "
        "it is in whole answers, in streams as `none`",
    )
    add_generation_prompt: StrictBool | None = row(None, "whether the template opens an answer")
    continue_final_message: Continued | None = row(
        None, "the last message is the beginning of the answer; `reasoning_content`, `content`: of its thoughts, or not"
    )
    add_special_tokens: StrictBool = row(True, "see **How a prompt begins**")

    @model_validator(mode="after")
    def _has_tools(self) -> TemplateBody:
        """Raises InvalidRequestError for two tools of one name, and a choice of what is not there."""
        choice, names = self.tool_choice, dict[str, None]()
        for i, name in enumerate(tool.function.name for tool in self.tools):
            if name in names:
                raise InvalidRequestError.at(f"tools.{i}.function.name", f"two tools have the name {name[:64]!r}")
            names[name] = None
        if choice == "required" and not names:
            raise InvalidRequestError.at("tool_choice", "a call is required, and there is no tool to call; send one")
        asked = [choice.name] if isinstance(choice, NamedTool) else getattr(choice, "names", ())
        for name in asked:
            if name not in names:
                raise InvalidRequestError.at("tool_choice", f"tools has no function {name[:64]!r}")
        return self

    @property
    def offered(self) -> list[ToolBody]:
        """The tools that may be called, by what `tool_choice` says of that."""
        choice = self.tool_choice
        if not isinstance(choice, AllowedTools):
            return self.tools
        return [tool for tool in self.tools if tool.function.name in choice.names]


class ChatBody(TemplateBody, GenerationBody):
    """POST /v1/chat/completions."""

    logprobs: ChatLogprobs = row(False, "the answer has log-probabilities; a number n: with n alternatives")
    top_logprobs: Alternatives | None = row(None, "how many alternatives; needs `logprobs`")
    return_token_ids: StrictBool = row(False, "the answer has token ids, as vLLM's (see **Answers**)")


class CompletionBody(GenerationBody):
    """POST /v1/completions. `prompt` is checked by `prompt_ids`."""

    prompt: Any = row(
        ..., 'text, ids, text mixed with ids, `{"prompt_string": …}`, or a list of these for several prompts'
    )
    echo: StrictBool = row(False, "the prompt stands before the answer")
    best_of: Choices | None = row(None, "how many answers are written, of which the `n` likeliest are returned")
    suffix: StrictStr = row("", "what follows the answer (see **Filling in the middle**)")
    logprobs: Logprobs = row(None, "log-probabilities, with n alternatives")
    add_special_tokens: StrictBool = row(True, "see **How a prompt begins**")
    return_token_ids: StrictBool = row(False, "the answer has token ids, as vLLM's (see **Answers**)")


class NativeBody(GenerationBody):
    """POST /completion, llama-server's own form."""

    prompt: Any = row(
        ..., 'text, ids, text mixed with ids, `{"prompt_string": …}`, or a list of these for several prompts'
    )
    logprobs: Logprobs = row(None, "as `n_probs`")
    add_special_tokens: StrictBool = row(True, "see **How a prompt begins**")
    return_tokens: StrictBool = row(False, "the answer has its token ids")
    response_fields: list[StrictStr] = row([], "the members that the answer has, and no others", max_length=256)


class ExtraBody(Body):
    """A chunk of another file."""

    text: StrictStr
    filename: StrictStr = "tmp"


class InfillBody(NativeBody):
    """POST /infill. See **Filling in the middle** in docs/http.md."""

    prompt: StrictStr = row("", "goes on after the prefix")
    input_prefix: Any = row(..., "what stands before the cursor: a text, or a list of ids and texts")
    input_suffix: Any = row(..., "what stands after it")
    input_extra: list[ExtraBody] = row(
        [], 'chunks of other files: `[{"filename", "text"}]`', max_length=MAX_EXTRA, fail_fast=True
    )


class TokenizeBody(Body):
    """POST /tokenize."""

    content: Any = row(..., "a text, or a list of ids and texts")
    add_special: StrictBool = row(False, "with BOS in front, where the model wants one")
    parse_special: StrictBool = row(True, "names of control tokens become their ids")
    with_pieces: StrictBool = row(False, "the text of each token beside its id")


class SlotBody(Body):
    """POST /slots/{id}?action=save or restore."""

    filename: StrictStr = row(..., "the name of a file in the directory of --slot-save-path")


class DetokenizeBody(Body):
    """POST /detokenize."""

    tokens: Any = row(..., "a list of token ids")


# --- fields of features that are not here

NO_FUNCTIONS = "send tools, which came after it; in an app, update it, or switch function calling off in its settings"


_EMPTY: tuple[object, ...] = ("", [], {}, False)


@dataclass(frozen=True, slots=True)
class Feature:
    """A field that only other servers have, and what to do instead."""

    name: str
    instead: str
    neutral: tuple[object, ...] = _EMPTY
    """Values that ask for nothing, which clients may always send."""
    is_switch: bool = False
    """Whether it is true or false, and nothing else."""
    most: float | None = None
    """It is a number, and up to this one asks for nothing."""

    def is_active(self, value: object) -> bool:
        """Whether it asks for something. Raises InvalidRequestError for what is no value of this field."""
        if self.is_switch and not isinstance(value, bool):
            raise InvalidRequestError.at(self.name, "must be true or false")
        if self.most is None:
            return value not in self.neutral
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidRequestError.at(self.name, "must be a number")
        return value > self.most


FEATURES = (
    Feature("functions", NO_FUNCTIONS),
    Feature("function_call", NO_FUNCTIONS, ("none", "auto")),
    Feature("grammar_lazy", "the grammar holds from the beginning of the answer; leave the field out", is_switch=True),
    Feature("modalities", 'this server answers with text; leave the field out or send ["text"]', (["text"], *_EMPTY)),
    Feature("audio", "this server answers with text; leave the field out, or switch voice off in the app"),
    Feature("echo", "only /v1/completions has it; put the prompt in front of the answer yourself", is_switch=True),
    Feature("best_of", "only /v1/completions has it; use n, and choose by logprobs", most=1),
    Feature("use_beam_search", "ids are drawn one after the other; use best_of in /v1/completions", is_switch=True),
    Feature("prompt_logprobs", "use echo with logprobs in /v1/completions", ()),
    Feature("truncate_prompt_tokens", "send a shorter prompt; /tokenize tells how long it is", ()),
    Feature(
        "skip_special_tokens", "control tokens are no text; read their ids with return_tokens", (True,), is_switch=True
    ),
    Feature("return_token_ids", "send return_tokens; /v1/completions and chats have return_token_ids", is_switch=True),
    Feature("suffix", "send it to /v1/completions, or to /infill as input_suffix"),
)


def account_for_request(given: Mapping[str, object], *kinds: type[Body]) -> None:
    """Account for the members of a request that none of these bodies has. Raises InvalidRequestError."""
    account_for_top(given, frozenset().union(_ELSEWHERE, *map(names_of, kinds)))


_ELSEWHERE = frozenset(
    (
        *("model", "chat_template", "t_max_prompt_ms"),
        *(feature.name for feature in FEATURES),
        *(f"speculative.{name}" for name in SpeculativeBody.model_fields),
    )
)
"""Names that are read, or refused, where a request is no body yet."""


def checked(kind: type[B], members: Mapping[str, object]) -> B:
    """The members of a request as a body of its route. Raises what `check_features` raises, and ValidationError."""
    check_features(members, kind.model_fields)
    return kind.model_validate(members)


def check_features(body: Mapping[str, object], known: Collection[str] = ()) -> None:
    """Raise NotSupportedError for the first feature that `body` switches on and this route lacks. known: its fields."""
    if body.get("chat_template"):
        raise InvalidRequestError.at(
            "chat_template", "templates are not taken from requests; start the server with --chat-template"
        )
    for feature in FEATURES:
        value = body.get(feature.name)
        if value is not None and feature.name not in known and feature.is_active(value):
            raise NotSupportedError(f"{feature.name} is not supported: {feature.instead}", feature.name)
    for name, check in (("messages", _check_message), ("tools", _check_tool)):
        items = body.get(name)
        for i, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict):
                check(item, f"{name}.{i}")
    given = body.get("response_format")
    schema = given.get("json_schema") if isinstance(given, dict) else None
    if isinstance(schema, dict):
        account_for(schema, ("schema", "strict"), NO_EFFECT, ROUTE, "response_format.json_schema")


def _check_message(message: Mapping[str, Any], where: str) -> None:
    content = message.get("content")
    for k, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind not in ("text", "image_url", "refusal"):
            raise NotSupportedError.at(
                f"{where}.content",
                "this server reads text and images (image_url) only; leave audio and files out of the conversation",
            )
        if isinstance(part, dict):
            _account(part, ("type", kind), f"{where}.content.{k}", image_url=("url",))
    _account(message, names_of(MessageBody), where)
    calls = message.get("tool_calls")
    for k, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict):
            _account(call, names_of(CallBody), f"{where}.tool_calls.{k}", function=names_of(CalledBody))


def _check_tool(tool: Mapping[str, Any], where: str) -> None:
    _account(tool, names_of(ToolBody), where, function=names_of(FunctionBody))


def _account(given: Mapping[str, Any], read: Collection[Any], where: str, **inner: Collection[Any]) -> None:
    """Account for all members of an object, and of the objects in it. inner: what is read of these."""
    account_for(given, read, NO_EFFECT, ROUTE, where)
    for name, names in inner.items():
        if isinstance(members := given.get(name), dict):
            account_for(members, names, NO_EFFECT, ROUTE, f"{where}.{name}")
