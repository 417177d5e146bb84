"""The dialect of Google's Gemini API: a request and the chat that it stands for, answers as events or as one list, what
is told of the model, and errors. Fields are read as the API writes them and as curl's users do: `topK` and `top_k`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Annotated, Any

from pydantic import AliasChoices, AliasGenerator, BeforeValidator, ConfigDict, Field, StrictBool, StrictStr
from pydantic.alias_generators import to_camel

from uad.base.checkpoint import checkpoint
from uad.base.common.json_out import Json, dumps, finite, visible
from uad.base.common.sums import total
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.events import Delta
from uad.base.types import Finish, TokenProb
from uad.http.apis.api import BODY_ONLY, About, AnswerRoute, Api, Called, CountRoute
from uad.http.apis.blocks import Added, BlockKind, Blocks, Closed, Step
from uad.http.apis.choice import Choice, stats_json
from uad.http.apis.dialect import (
    Dialect,
    Frame,
    Members,
    Served,
    Spelling,
    Translated,
    chat_of,
    new_id,
    refuse,
    renaming,
    rest_of,
    tools_at,
    validated,
)
from uad.http.apis.messages import CallIds, Dialogue, Picture, Piece, seal, unsealed
from uad.http.apis.problems import Problem, UnknownModelError
from uad.http.requests.chat import Reading
from uad.http.requests.fields import MAX_MESSAGES, Body
from uad.http.requests.job import Job
from uad.http.requests.left_out import leave_out
from uad.http.requests.message_fields import MAX_NAME, MAX_PARTS, MAX_TOOLS

PATH = "/v1beta/models"
_METHODS = ("generateContent", "streamGenerateContent", "countTokens")
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
    "seed": "seed",
    "candidate_count": "n",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
"""Members of `generationConfig` that a chat has, and what it calls them."""
_CONFIG = "generationConfig"
_CHOICE = "toolConfig.functionCallingConfig"
_NAMES = (
    (r"messages\b.*", "contents"),
    (r"(max_completion_tokens|n_predict)\b", f"{_CONFIG}.maxOutputTokens"),
    (r"tool_choice\b", _CHOICE),
    (r"(top_logprobs|logprobs)\b", f"{_CONFIG}.logprobs"),
    (r"(thinking_budget\w*|reasoning_budget_tokens)\b", f"{_CONFIG}.thinkingConfig.thinkingBudget"),
    (r"reasoning_effort\b", f"{_CONFIG}.thinkingConfig.thinkingLevel"),
    *((rf"{chat}\b", f"{_CONFIG}.{to_camel(name)}") for name, chat in _SETTINGS.items()),
)
_NOTHING_RUNS = "nothing runs here; send functionDeclarations, which the client runs"
_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
"""Names of errors by status."""


# --- requests


class GeminiBody(Body):
    """Base of the bodies here, whose fields go by two names."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(to_camel(name), name))
    )


def _as_list(value: object) -> object:
    """One object is a list of it, as in Google's own examples."""
    return [value] if isinstance(value, dict) else value


class ThinkingConfig(GeminiBody):
    """How much is thought, and whether the answer shows it."""

    include_thoughts: StrictBool = False
    thinking_budget: Any = None
    thinking_level: StrictStr | None = None


class GenerationConfig(GeminiBody):
    """`generationConfig`: sampling, lengths and the form of the answer. What a chat has is checked as there."""

    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    max_output_tokens: Any = None
    stop_sequences: Any = None
    seed: Any = None
    candidate_count: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    response_logprobs: StrictBool = False
    logprobs: Any = None
    response_mime_type: StrictStr = ""
    response_schema: Any = None
    response_json_schema: Any = None
    response_modalities: list[StrictStr] = Field(default=[], max_length=16)
    thinking_config: ThinkingConfig = ThinkingConfig()


class CallingConfig(GeminiBody):
    """`functionCallingConfig`: whether functions are called, and which."""

    mode: StrictStr = "AUTO"
    allowed_function_names: list[StrictStr] = Field(default=[], max_length=MAX_TOOLS)


class ToolConfig(GeminiBody):
    """`toolConfig`."""

    function_calling_config: CallingConfig = CallingConfig()


class ContentsBody(GeminiBody):
    """POST …:generateContent. What is not named here goes to the chat as it is: drafts, slots, llama.cpp's samplers."""

    contents: Annotated[list[Any], Field(max_length=MAX_MESSAGES), BeforeValidator(_as_list)]
    system_instruction: Any = None
    generation_config: GenerationConfig = GenerationConfig()
    tools: list[dict[StrictStr, Any]] = Field([], max_length=MAX_TOOLS)
    tool_config: ToolConfig = ToolConfig()
    cached_content: StrictStr = ""


class ContentBody(GeminiBody):
    """One of `contents`."""

    role: StrictStr = "user"
    parts: Annotated[list[Any], Field(max_length=MAX_PARTS), BeforeValidator(_as_list)] = Field([])


class BlobField(GeminiBody):
    """A file in base64."""

    mime_type: StrictStr = ""
    data: StrictStr


class FileField(GeminiBody):
    """The address of a file."""

    mime_type: StrictStr = ""
    file_uri: StrictStr


class CallField(GeminiBody):
    """A call of an earlier answer."""

    id: StrictStr | None = None
    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    args: dict[StrictStr, Any] = Field({})


class ResponseField(GeminiBody):
    """What a call gave."""

    id: StrictStr | None = None
    name: StrictStr = Field(max_length=MAX_NAME)
    response: dict[StrictStr, Any] = Field({})


class PartBody(GeminiBody):
    """One of the parts of a content. Of its kinds of data it has one."""

    text: StrictStr | None = None
    thought: StrictBool = False
    thought_signature: StrictStr | None = None
    inline_data: BlobField | None = None
    file_data: FileField | None = None
    function_call: CallField | None = None
    function_response: ResponseField | None = None


class DeclarationBody(GeminiBody):
    """A function that the client runs."""

    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    description: StrictStr | None = None
    parameters: Any = None
    parameters_json_schema: Any = None


@dataclass(frozen=True, slots=True)
class ContentForm:
    """What a request says of the form of its answer. is_list: its stream is one list of JSON, and no events."""

    shows_thoughts: bool
    is_list: bool = False


def read_content(
    members: Mapping[str, object], called: Called = BODY_ONLY, stream: bool = False
) -> Translated[ContentForm]:
    """The request and its chat. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    form = called.query.get("alt", "json")
    if form not in ("json", "sse"):
        raise InvalidRequestError.at("alt", f"must be json or sse, not {form[:64]!r}")
    refuse(members, {})
    own = ContentsBody.model_validate(members)
    _check(own)
    config, mode = own.generation_config, own.tool_config.function_calling_config.mode.upper()
    given, places = _tools(own)
    spelling = tools_at(places, _spelling(config))
    talk = _conversation(own)
    chat: Json = {**rest_of(members, own), "messages": talk.messages, "stream": stream, "tools": given}
    settings = config.model_dump(include=set(_SETTINGS), exclude_none=True)
    chat |= {_SETTINGS[name]: value for name, value in settings.items()}
    chat |= {**_choice(own.tool_config.function_calling_config), **_thinking(config.thinking_config), **_form(config)}
    chat |= {"logprobs": config.response_logprobs} | (
        {} if config.logprobs is None else {"top_logprobs": config.logprobs}
    )
    asked = ContentForm(config.thinking_config.include_thoughts, stream and form == "json")
    body = chat_of(chat, spelling)
    if mode != "VALIDATED":
        return Translated(asked, body, spelling, places=talk.places)
    strict = [{**tool, "function": {**tool["function"], "strict": True}} for tool in given]
    return Translated(asked, chat_of({**chat, "tools": strict}, spelling), spelling, body, places=talk.places)


def read_counted(members: Mapping[str, object], called: Called = BODY_ONLY) -> Translated[ContentForm]:
    """POST …:countTokens: contents, or a whole request in `generateContentRequest`. Raises as `read_content` does."""
    for name in ("generateContentRequest", "generate_content_request"):
        if members.get(name) is not None:
            inner = members[name]
            if not isinstance(inner, dict):
                raise InvalidRequestError.at(name, "must be an object")
            return read_content({key: value for key, value in inner.items() if value is not None})
    return read_content(members)


def _check(own: ContentsBody) -> None:
    if own.cached_content:
        raise NotSupportedError(
            "cachedContent is not supported: send the whole conversation; what a prompt has in common with the one "
            "before is cached without being asked",
            "cachedContent",
        )
    for name in own.generation_config.response_modalities:
        if name.upper() not in ("TEXT", "MODALITY_UNSPECIFIED"):
            where = f"{_CONFIG}.responseModalities"
            raise NotSupportedError.at(where, f'this server answers with text, not {name[:64]!r}; send ["TEXT"]')


def _spelling(config: GenerationConfig) -> Spelling:
    given = "responseJsonSchema" if config.response_schema is None else "responseSchema"
    form = (r"(response_format(\.json_schema)?(\.schema)?|guided_choice)\b", f"{_CONFIG}.{given}")
    return renaming([*_NAMES, form])


def _thinking(config: ThinkingConfig) -> Json:
    """A budget of 0 switches thoughts off, and -1 leaves their length to the model."""
    out: Json = {} if config.thinking_level is None else {"reasoning_effort": config.thinking_level.lower()}
    budget = config.thinking_budget
    if budget is not None:
        out["thinking_budget"] = budget
    if isinstance(budget, int) and budget > 0:
        out["enable_thinking"] = True
    return out


def _form(config: GenerationConfig) -> Json:
    """JSON, JSON of a schema, or one of some words."""
    where, kind = f"{_CONFIG}.responseMimeType", config.response_mime_type
    schema = config.response_json_schema
    if config.response_schema is not None:
        if schema is not None:
            raise InvalidRequestError.at(f"{_CONFIG}.responseSchema", "leave this or responseJsonSchema out")
        schema = schema_of(config.response_schema, f"{_CONFIG}.responseSchema")
    match kind.lower():
        case "" | "application/json" if schema is not None:
            return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema, "strict": True}}}
        case "application/json":
            return {"response_format": {"type": "json_object"}}
        case "text/x.enum" if isinstance(schema, dict) and schema.get("enum"):
            return {"guided_choice": schema["enum"]}
        case "text/x.enum":
            raise InvalidRequestError.at(where, "text/x.enum needs a responseSchema with an enum")
        case "" | "text/plain" if schema is None:
            return {}
        case "text/plain":
            raise InvalidRequestError.at(where, "an answer of a schema is application/json, or text/x.enum")
    raise InvalidRequestError.at(where, f"must be text/plain, application/json or text/x.enum, not {kind[:64]!r}")


# --- tools and schemas


def _tools(own: ContentsBody) -> tuple[list[dict[str, Any]], list[str]]:
    """The tools of the chat, and the place of each in the request. What runs on Google's servers is left out."""
    tools: list[dict[str, Any]] = []
    places: list[str] = []
    for i, tool in enumerate(own.tools):
        for name, value in tool.items():
            if value is None:
                continue
            if to_camel(name) != "functionDeclarations":
                leave_out("generateContent", f"the tool {name[:64]!r}", _NOTHING_RUNS)
                continue
            where = f"tools.{i}.{name}"
            if not isinstance(value, list) or len(value) > MAX_TOOLS:
                raise InvalidRequestError.at(where, f"must be a list of at most {MAX_TOOLS} functions")
            tools += [_tool(declared, f"{where}.{k}") for k, declared in enumerate(value)]
            places += [f"{i}.{name}.{k}" for k in range(len(value))]
    return tools, places


def _tool(declared: object, where: str) -> dict[str, Any]:
    declaration = validated(DeclarationBody, declared, where)
    function: dict[str, Any] = {"name": declaration.name, "parameters": declaration.parameters_json_schema}
    if declaration.parameters is not None:
        function["parameters"] = schema_of(declaration.parameters, f"{where}.parameters")
    if declaration.description is not None:
        function["description"] = declaration.description
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _choice(config: CallingConfig) -> Json:
    words = {"AUTO": "auto", "VALIDATED": "auto", "MODE_UNSPECIFIED": "auto", "ANY": "required", "NONE": "none"}
    mode = words.get(config.mode.upper())
    if mode is None:
        where = f"{_CHOICE}.mode"
        raise InvalidRequestError.at(where, f"must be AUTO, ANY, VALIDATED or NONE, not {config.mode[:64]!r}")
    if mode == "none" or not config.allowed_function_names:
        return {"tool_choice": mode}
    tools = [{"type": "function", "function": {"name": name}} for name in config.allowed_function_names]
    return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}}


_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
"""Numbers of 64 bits, which this API may write as texts."""
_KEPT = frozenset(
    {"description", "title", "default", "pattern", "minimum", "maximum", "required", "enum", "$ref", "const"}
)
_FORMATS = frozenset({"date", "time", "date-time", "duration", "uuid", "email", "uri", "ipv4", "ipv6", "hostname"})
"""Formats that say something of a text. "enum", "int32" and "double" repeat what else the schema says."""


def schema_of(value: object, where: str) -> Json:
    """A schema in the API's own form, of which types are in capitals, as a JSON schema. Objects that name their members
    have no others. Raises InvalidRequestError.
    """
    checkpoint()
    if not isinstance(value, dict):
        raise InvalidRequestError.at(where, "must be a schema, which is an object")
    given = {to_camel(name) if "_" in name else name: member for name, member in value.items() if member is not None}
    out: Json = {name: member for name, member in given.items() if name in _KEPT}
    out |= {name: _count(member, f"{where}.{name}") for name, member in given.items() if name in _COUNTS}
    kind = given.get("type", "TYPE_UNSPECIFIED")
    if kind != "TYPE_UNSPECIFIED":
        out["type"] = [str(type_).lower() for type_ in kind] if isinstance(kind, list) else str(kind).lower()
    if isinstance(given.get("format"), str) and given["format"] in _FORMATS:
        out["format"] = given["format"]
    if "properties" in given:
        out |= {"properties": _properties(given, f"{where}.properties"), "additionalProperties": False}
    for name in ("items", "additionalProperties"):
        if name in given:
            member = given[name]
            out[name] = member if isinstance(member, bool) else schema_of(member, f"{where}.{name}")
    for name in ("anyOf", "prefixItems"):
        if name in given:
            members = given[name] if isinstance(given[name], list) else [given[name]]
            out[name] = [schema_of(member, f"{where}.{name}.{i}") for i, member in enumerate(members)]
    if isinstance(given.get("$defs"), dict):
        out["$defs"] = {name: schema_of(schema, f"{where}.$defs.{name}") for name, schema in given["$defs"].items()}
    return {"anyOf": [out, {"type": "null"}]} if given.get("nullable") is True else out


def _count(value: object, where: str) -> object:
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) < 10):
        raise InvalidRequestError.at(where, "must be a whole number")
    return int(value) if isinstance(value, str) else value


def _properties(given: Mapping[str, Any], where: str) -> Json:
    """In the order that `propertyOrdering` says."""
    members = given["properties"]
    if not isinstance(members, dict):
        raise InvalidRequestError.at(where, "must be an object")
    order = given.get("propertyOrdering")
    first = [name for name in order if isinstance(name, str) and name in members] if isinstance(order, list) else []
    names = dict.fromkeys([*first, *members])
    return {name: schema_of(members[name], f"{where}.{name}") for name in names}


# --- the conversation


class _PartsDialogue:
    """A conversation that grows by parts. The model's words in a row are one text: clients send back each piece of a
    stream as a part, or as a content.
    """

    def __init__(self) -> None:
        self.dialogue = Dialogue()
        self.ids = CallIds()
        self._texts: list[str] = []
        self._are_thoughts = False

    def add(self, text: str, is_thought: bool) -> None:
        """Words of the model's."""
        if is_thought != self._are_thoughts:
            self.settle()
        self._are_thoughts = is_thought
        self._texts.append(text)

    def settle(self) -> None:
        """What the model said or thought is whole."""
        text, self._texts = "".join(self._texts), []
        if text and self._are_thoughts:
            self.dialogue.think(text)
        elif text:
            self.dialogue.say("assistant", [text])


def _conversation(own: ContentsBody) -> Dialogue:
    """The chat's messages with their pictures."""
    talk = _PartsDialogue()
    if own.system_instruction is not None:
        where = "systemInstruction"
        parts = _parts(validated(ContentBody, own.system_instruction, where), where)
        texts = [_piece(at, part) for at, part in parts]
        if texts:
            talk.dialogue.say("system", texts)
    for i, content in enumerate(own.contents):
        checkpoint()
        where = f"contents.{i}"
        turn = validated(ContentBody, content, where)
        match turn.role:
            case "model":
                _model_turn(talk, _parts(turn, where))
            case "user" | "function" | "tool" | "":
                talk.settle()
                _user_turn(talk, _parts(turn, where))
            case other:
                raise InvalidRequestError.at(f"{where}.role", f"must be user or model, not {other[:64]!r}")
    talk.settle()
    return talk.dialogue


def _parts(turn: ContentBody, where: str) -> list[tuple[str, PartBody]]:
    places = [f"{where}.parts.{k}" for k in range(len(turn.parts))]
    return [(at, validated(PartBody, part, at)) for at, part in zip(places, turn.parts, strict=True)]


def _model_turn(talk: _PartsDialogue, parts: Sequence[tuple[str, PartBody]]) -> None:
    for at, part in parts:
        if thoughts := _sealed_thoughts(part.thought_signature):
            talk.add(thoughts, is_thought=True)
        if part.function_call is not None:
            talk.settle()
            call = part.function_call
            talk.dialogue.call(talk.ids.of_call(call.id, call.name), call.name, call.args)
        elif part.text is not None:
            talk.add(part.text, part.thought)
        elif part.inline_data is not None or part.file_data is not None or part.function_response is not None:
            raise NotSupportedError.at(at, "the model's parts are text and functionCall here; leave others out")
        elif part.thought_signature is None:
            leave_out("generateContent", "a part of the model's without text or call", _NOTHING_RUNS)


def _user_turn(talk: _PartsDialogue, parts: Sequence[tuple[str, PartBody]]) -> None:
    """Results first, wherever they stand: they answer the calls before them. Turns in a row are one."""
    pieces: list[Piece] = []
    for at, part in parts:
        result = part.function_response
        if result is None:
            pieces.append(_piece(at, part))
        else:
            talk.dialogue.result(talk.ids.of_result(result.id, result.name) or "", [_result(result)], result.name)
    if pieces or not parts:
        talk.dialogue.go_on("user", pieces)


def _result(result: ResponseField) -> str:
    """The one text in `output`, or in `result`, where Google's own clients put it; else the object."""
    texts = [
        value for name, value in result.response.items() if name in ("output", "result") and isinstance(value, str)
    ]
    return texts[0] if len(texts) == len(result.response) == 1 else dumps(result.response)


def _piece(where: str, part: PartBody) -> Piece:
    """A text or a picture."""
    if part.text is not None:
        return part.text
    if part.inline_data is not None:
        at = f"{where}.inlineData"
        _check_type(at, part.inline_data.mime_type)
        return Picture.of_base64(part.inline_data.data, at)
    if part.file_data is not None:
        at = f"{where}.fileData"
        _check_type(at, part.file_data.mime_type)
        return Picture(part.file_data.file_uri, at)
    raise NotSupportedError.at(where, "parts are text, inlineData, fileData, functionCall or functionResponse here")


def _check_type(where: str, mime_type: str) -> None:
    if mime_type and not mime_type.lower().startswith("image/"):
        raise NotSupportedError.at(
            f"{where}.mimeType", f"this server reads text and images only, not {mime_type[:64]!r}; send its text"
        )


def _sealed_thoughts(signature: str | None) -> str:
    """Thoughts that an answer did not show; empty for a signature of another server."""
    try:
        data = base64.b64decode((signature or "").replace("-", "+").replace("_", "/"), validate=True)
        return unsealed(data.decode("utf-8"))
    except ValueError:
        return ""


# --- the answer


class ContentDialect(Dialect):
    """POST …:generateContent, and its stream of events. Each frame is an answer with a piece of one candidate."""

    ping = b"\n"  # Google's own client takes a comment of the stream for JSON

    def __init__(self, job: Job, served: Served, reading: Reading, form: ContentForm) -> None:
        super().__init__(job)
        self._same: Members = {"modelVersion": served.model, "responseId": new_id("", 22)}
        self._shows_thoughts = form.shows_thoughts
        self._blocks = [Blocks(reading.parser(), "call_") for _ in job.requests]
        self._hidden: list[list[str]] = [[] for _ in job.requests]  # thoughts that no part holds yet

    def _frame(self, index: int, parts: Sequence[Members], probs: Sequence[TokenProb] = ()) -> Members:
        candidate: Members = {"content": {"parts": parts, "role": "model"}, "index": index}
        candidate |= {"logprobsResult": _logprobs(probs)} if probs else {}
        return {"candidates": [candidate], **self._same}

    def piece(self, choice: Choice, delta: Delta) -> Iterator[Frame]:
        """An answer with what the piece says; none where it says nothing yet, but for its probabilities."""
        parts = self._parts(choice.index, self._blocks[choice.index].feed(delta.text, delta.probs))
        if parts or delta.probs:
            yield self._frame(choice.index, parts, delta.probs)

    def _parts(self, index: int, steps: Iterable[Step]) -> list[Members]:
        """A call is a part once it is whole. One that was cut in its arguments, which are no object then, is none."""
        parts: list[Members] = []
        for step in steps:
            kind = step.block.kind
            match step:
                case Added() if kind is BlockKind.THOUGHT and not self._shows_thoughts:
                    self._hidden[index].append(step.text)
                case Added() if kind is BlockKind.THOUGHT:
                    parts.append({"text": step.text, "thought": True})
                case Added() if kind is BlockKind.TEXT:
                    parts.append({"text": step.text, **self._signature(index)})
                case Closed() if kind is BlockKind.CALL and (arguments := _object(step.block.text)) is not None:
                    call = {"id": step.block.call_id, "name": step.block.name, "args": arguments}
                    parts.append({"functionCall": call, **self._signature(index)})
        return parts

    def _signature(self, index: int) -> Members:
        """Thoughts that are not shown, for the part after them: clients send it back."""
        text, self._hidden[index] = "".join(self._hidden[index]), []
        return {"thoughtSignature": base64.b64encode(seal(text).encode()).decode()} if text else {}

    def blank(self, choice: Choice) -> Members:
        """An answer that says nothing."""
        return self._frame(choice.index, [])

    def closing(self, choice: Choice, finished: Sequence[Choice]) -> Iterator[Frame]:
        """What was kept back, and why it ended; in the last of all, the numbers."""
        parts = self._parts(choice.index, self._blocks[choice.index].finish(choice.is_cut))
        reason = "MAX_TOKENS" if choice.end.finish is Finish.LENGTH else "STOP"
        last = self._frame(choice.index, parts or [{"text": ""}])
        last["candidates"][0] |= {"finishReason": reason}
        if self.job.logprobs:
            last["candidates"][0] |= {"avgLogprobs": finite(choice.mean_logprob)}
        yield {**last, "usageMetadata": self._usage(finished), **stats_json(finished)} if finished else last

    def _usage(self, finished: Sequence[Choice]) -> Members:
        """A prompt of several candidates counts once."""
        usages = [choice.end.usage for choice in finished]
        all_, prompt = total(usages), usages[0]
        thoughts = {"thoughtsTokenCount": all_.n_thought} if all_.n_thought else {}
        cached = {"cachedContentTokenCount": prompt.n_cached} if prompt.n_cached else {}
        return {
            "promptTokenCount": prompt.n_prompt,
            "candidatesTokenCount": all_.n_predicted - all_.n_thought,
            "totalTokenCount": prompt.n_prompt + all_.n_predicted,
            **thoughts,
            **cached,
        }

    def failed(self, problem: Problem) -> Iterator[Frame]:
        """The last event of a stream that breaks off."""
        yield error_json(problem)

    def fold(self, frames: Iterable[Frame]) -> Members:
        """The last frame, with all candidates."""
        folded = [_FoldedCandidate() for _ in self.choices]
        last: Members = {}
        for last in map(self.members_of, frames):
            for candidate in last["candidates"]:
                folded[candidate["index"]].add(candidate)
        return {**last, "candidates": [candidate.json() for candidate in folded]}


class ContentListDialect(ContentDialect):
    """A stream without `alt=sse`: the same frames as one list, which a client can read as it grows."""

    content_type = "application/json"
    ending = broken_ending = b"]"
    _is_begun = False

    def encoded(self, frame: Frame) -> bytes:
        """The frame as the next item."""
        before, self._is_begun = ",\r\n" if self._is_begun else "[", True
        return (before + self._to_json(frame)).encode("ascii")


def _answered(job: Job, served: Served, reading: Reading, form: ContentForm) -> ContentDialect:
    kind = ContentListDialect if form.is_list else ContentDialect
    return kind(job, served, reading, form)


def _object(text: str) -> Members | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@dataclass(slots=True)
class _FoldedCandidate:
    """The pieces of a candidate so far."""

    parts: list[Members] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    chosen: list[Iterable[Members]] = field(default_factory=list)
    top: list[Iterable[Members]] = field(default_factory=list)
    last: Members = field(default_factory=dict)

    def add(self, candidate: Members) -> None:
        """A piece. Neighbouring texts of one kind become one part."""
        self.last = candidate
        for part in candidate["content"]["parts"]:
            is_new = not self.parts or "text" not in part or "text" not in self.parts[-1]
            if is_new or part.get("thought") != self.parts[-1].get("thought") or "thoughtSignature" in part:
                self._settle()
                self.parts.append(part)
            self.texts += [part["text"]] if "text" in part else []
        if "logprobsResult" in candidate:
            self.chosen.append(candidate["logprobsResult"]["chosenCandidates"])
            self.top.append(candidate["logprobsResult"]["topCandidates"])

    def _settle(self) -> None:
        if self.texts:
            self.parts[-1] = {**self.parts[-1], "text": "".join(self.texts)}
            self.texts = []

    def json(self) -> Members:
        self._settle()
        parts = [part for part in self.parts if part.get("text") != ""]
        out: Members = {**self.last, "content": {"parts": parts or [{"text": ""}], "role": "model"}}
        if self.chosen:
            out["logprobsResult"] = {
                "chosenCandidates": chain.from_iterable(self.chosen),
                "topCandidates": chain.from_iterable(self.top),
            }
        return out


def _logprobs(probs: Sequence[TokenProb]) -> Members:
    return {
        "chosenCandidates": map(_token, probs),
        "topCandidates": ({"candidates": [*map(_token, prob.top)]} for prob in probs),
    }


def _token(prob: TokenProb) -> Members:
    return {"token": visible(prob.data), "tokenId": prob.id, "logProbability": finite(prob.logprob)}


# --- the model, errors, and the API


def models(about: About) -> Json:
    """GET /v1beta/models: the one model."""
    return {"models": [_model(about)]}


def model(about: About) -> Json:
    """GET /v1beta/models/{model}. Raises UnknownModelError."""
    if about.asked["model"] not in about.names:
        name = str(about.asked["model"])[:64]
        raise UnknownModelError(f"models/{name} is not found: this server has models/{about.names[0]}")
    return _model(about)


def _model(about: About) -> Json:
    engine, sampling = about.engine, about.engine.config.sampling
    return {
        "name": f"models/{about.names[0]}",
        "version": "1",
        "displayName": about.names[0],
        "description": engine.info.target.desc,
        "inputTokenLimit": engine.info.n_ctx,
        "outputTokenLimit": engine.info.n_ctx,
        "supportedGenerationMethods": [*_METHODS],
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k,
        "thinking": engine.text.answers.thinks,
    }


def error_json(problem: Problem, name: str = "") -> Members:
    """Google's error object, inside its envelope. The field that is wrong is among its details."""
    usual = "INVALID_ARGUMENT" if problem.status < 500 else "INTERNAL"
    error: Members = {
        "code": problem.status,
        "message": problem.message,
        "status": _STATUSES.get(problem.status, usual),
    }
    if problem.param is not None:
        wrong = {"field": problem.param, "description": problem.message}
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [wrong]}]
    return {"error": error}


def _counted(n: int) -> Members:
    return {"totalTokens": n, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": n}]}


_MODELS = (f"{PATH}/{{model:.+}}", "/v1/models/{model:.+}")
"""Both versions of the API. The list of `/v1/models` is OpenAI's."""
GEMINI = Api(
    answers={
        **{f"{path}:generateContent": AnswerRoute(read_content, _answered) for path in _MODELS},
        **{
            f"{path}:streamGenerateContent": AnswerRoute(partial(read_content, stream=True), _answered)
            for path in _MODELS
        },
    },
    counts={f"{path}:countTokens": CountRoute(read_counted, _counted) for path in _MODELS},
    facts={PATH: models, _MODELS[0]: model},
    absent=(
        f"{PATH}/{{model:.+}}:embedContent",
        f"{PATH}/{{model:.+}}:batchEmbedContents",
        "/v1beta/cachedContents",
        "/v1beta/files",
        "/upload/v1beta/files",
    ),
    owns=lambda path: "/v1beta/" in path or path.endswith(tuple(f":{name}" for name in _METHODS)),
    error=error_json,
    broken=error_json,
    key_headers=("X-Goog-Api-Key",),
    key_params=("key",),
)
