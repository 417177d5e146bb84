"""The dialect of Google's Gemini API: a request and the chat that it stands for, and what is told of models. Fields are
read as the API writes them and as curl's users do: `topK` and `top_k`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool, StrictStr
from pydantic.alias_generators import to_camel

from uad.base.common.json_out import Json
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.http.apis import embeddings
from uad.http.apis.api import BODY_ONLY, About, AnswerRoute, Api, Called, CountRoute, EmbedRoute
from uad.http.apis.dialect import (
    JsonMembers,
    Spelling,
    Translated,
    chat_of,
    refuse,
    renaming,
    rest_of,
    spelled,
    tools_at,
)
from uad.http.apis.embeddings import Dimensions, EmbedAsk, kind_of, texts_of
from uad.http.apis.gemini_answer import ContentForm, answered, error_json
from uad.http.apis.gemini_contents import CONFIG, LEFT_OUT, ROUTE, GeminiBody, as_list, conversation, read_body
from uad.http.apis.gemini_schema import schema_of
from uad.http.apis.problems import UnknownModelError
from uad.http.requests.fields import FEATURES, MAX_MESSAGES, ChatBody
from uad.http.requests.left_out import account_for, account_for_body, names_of
from uad.http.requests.message_fields import MAX_NAME, MAX_TOOLS

PATH = "/v1beta/models"
_METHODS = ("generateContent", "streamGenerateContent", "countTokens")
EMBEDS = ("embedContent", "batchEmbedContents")
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
_CHOICE = "toolConfig.functionCallingConfig"
_NAMES = (
    (r"messages\b.*", "contents"),
    (r"(max_completion_tokens|n_predict)\b", f"{CONFIG}.maxOutputTokens"),
    (r"tool_choice\b", _CHOICE),
    (r"(top_logprobs|logprobs)\b", f"{CONFIG}.logprobs"),
    (r"(thinking_budget\w*|reasoning_budget_tokens)\b", f"{CONFIG}.thinkingConfig.thinkingBudget"),
    (r"reasoning_effort\b", f"{CONFIG}.thinkingConfig.thinkingLevel"),
    *((rf"{chat}\b", f"{CONFIG}.{to_camel(name)}") for name, chat in _SETTINGS.items()),
)
_FUNCTIONS = ("functionDeclarations", "function_declarations")
_ELSEWHERE = {"messages": "send contents", "tool_choice": "send toolConfig"}
_PASSED_ON = names_of(ChatBody) | {"model"} | {feature.name for feature in FEATURES}
"""Members that mean the same in a chat; the model is the path's."""


# --- requests


class ThinkingConfig(GeminiBody):
    """How much is thought, and whether the answer shows it."""

    include_thoughts: StrictBool = False
    thinking_budget: Any = None
    thinking_level: StrictStr | None = None


class GenerationConfig(GeminiBody):
    """`generationConfig`: sampling, lengths and the form of the answer. Fields of a chat are checked as there."""

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
    """POST …:generateContent. Other fields go to the chat unchanged: drafts, slots, llama.cpp's samplers."""

    contents: Annotated[list[Any], Field(max_length=MAX_MESSAGES), BeforeValidator(as_list)]
    system_instruction: Any = None
    generation_config: GenerationConfig = GenerationConfig()
    tools: list[dict[StrictStr, Any]] = Field([], max_length=MAX_TOOLS)
    tool_config: ToolConfig = ToolConfig()
    cached_content: StrictStr = ""


class DeclarationBody(GeminiBody):
    """A function that the client runs."""

    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    description: StrictStr | None = None
    parameters: Any = None
    parameters_json_schema: Any = None


def read_content(
    members: Mapping[str, object], called: Called = BODY_ONLY, stream: bool = False
) -> Translated[ContentForm]:
    """The request and its chat. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    form = called.query.get("alt", "json")
    if form not in ("json", "sse"):
        raise InvalidRequestError.at("alt", f"must be json or sse, not {form[:64]!r}")
    refuse(members, _ELSEWHERE)
    own = ContentsBody.model_validate(members)
    rest = {name: value for name, value in members.items() if not name.startswith("speculative.")}
    account_for_body(rest, own, LEFT_OUT, ROUTE, "", to_camel, _PASSED_ON)
    _check(own)
    config, calling = own.generation_config, own.tool_config.function_calling_config
    given, places, names = _tools(own, is_strict=calling.mode.upper() == "VALIDATED")
    spelling = tools_at(places, _spelling(config, names))
    talk = conversation(own.system_instruction, own.contents)
    chat: Json = {**rest_of(members, own), "messages": talk.messages, "stream": stream, "tools": given}
    settings = config.model_dump(include=set(_SETTINGS), exclude_none=True)
    chat |= {_SETTINGS[name]: value for name, value in settings.items()}
    chat |= {**_choice(calling), **_thinking(config.thinking_config), **_form(config)}
    chat |= {"logprobs": config.response_logprobs} | (
        {} if config.logprobs is None else {"top_logprobs": config.logprobs}
    )
    asked = ContentForm(config.thinking_config.include_thoughts, stream and form == "json")
    return Translated(asked, chat_of(chat, spelling), spelling, places=talk.places)


def read_counted(members: Mapping[str, object], called: Called = BODY_ONLY) -> Translated[ContentForm]:
    """POST …:countTokens: contents, or a whole request in `generateContentRequest`. Raises as `read_content` does."""
    for name in ("generateContentRequest", "generate_content_request"):
        if members.get(name) is not None:
            inner = members[name]
            if not isinstance(inner, dict):
                raise InvalidRequestError.at(name, "must be an object")
            if members.get("contents"):
                raise InvalidRequestError.at("contents", f"stands beside {name}; send one of them")
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
            where = f"{CONFIG}.responseModalities"
            raise NotSupportedError.at(where, f'this server answers with text, not {name[:64]!r}; send ["TEXT"]')


def _spelling(config: GenerationConfig, names: Sequence[tuple[str, str]]) -> Spelling:
    given = "responseJsonSchema" if config.response_schema is None else "responseSchema"
    form = (r"(response_format(\.json_schema)?(\.schema)?|guided_choice)\b", f"{CONFIG}.{given}")
    return renaming([*_NAMES, *names, form])


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
    where, kind = f"{CONFIG}.responseMimeType", config.response_mime_type
    schema = config.response_json_schema
    if config.response_schema is not None:
        if schema is not None:
            raise InvalidRequestError.at(f"{CONFIG}.responseSchema", "leave this or responseJsonSchema out")
        schema = schema_of(config.response_schema, f"{CONFIG}.responseSchema")
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


# --- tools


def _tools(own: ContentsBody, is_strict: bool) -> tuple[list[dict[str, Any]], list[str], list[tuple[str, str]]]:
    """The tools of the chat, the place of each in the request, and how errors name their schemas. Tools that run
    on Google's servers are left out.
    """
    tools: list[dict[str, Any]] = []
    places: list[str] = []
    names: list[tuple[str, str]] = []
    for i, tool in enumerate(own.tools):
        account_for(tool, _FUNCTIONS, LEFT_OUT, ROUTE, f"tools.{i}", to_camel)
        for name in _FUNCTIONS:
            where, declared = f"tools.{i}.{name}", [] if tool.get(name) is None else tool[name]
            if not isinstance(declared, list) or len(declared) > MAX_TOOLS:
                raise InvalidRequestError.at(where, f"must be a list of at most {MAX_TOOLS} functions")
            for k, function in enumerate(declared):
                declaration = read_body(DeclarationBody, function, f"{where}.{k}")
                tools.append(_tool(declaration, f"{where}.{k}", is_strict))
                places.append(f"{i}.{name}.{k}")
                if declaration.parameters is None:
                    names.append((rf"({where}.{k})\.parameters\b", r"\1.parametersJsonSchema"))
    return tools, places, names


def _tool(declaration: DeclarationBody, where: str, is_strict: bool) -> dict[str, Any]:
    parameters = declaration.parameters_json_schema
    if declaration.parameters is not None:
        if parameters is not None:
            raise InvalidRequestError.at(f"{where}.parameters", "leave this or parametersJsonSchema out")
        parameters = schema_of(declaration.parameters, f"{where}.parameters")
    elif parameters is not None and not isinstance(parameters, dict):
        raise InvalidRequestError.at(f"{where}.parametersJsonSchema", "must be a schema, which is an object")
    function = {"name": declaration.name, "description": declaration.description, "parameters": parameters}
    function |= {"strict": is_strict or None}
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _choice(config: CallingConfig) -> Json:
    words = {"AUTO": "auto", "VALIDATED": "auto", "MODE_UNSPECIFIED": "auto", "ANY": "required", "NONE": "none"}
    mode = words.get(config.mode.upper())
    if mode is None:
        where = f"{_CHOICE}.mode"
        raise InvalidRequestError.at(where, f"must be AUTO, ANY, VALIDATED or NONE, not {config.mode[:64]!r}")
    if mode == "none" or not config.allowed_function_names:
        return {"tool_choice": mode}
    allowed = [{"type": "function", "function": {"name": name}} for name in config.allowed_function_names]
    return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}}


# --- embeddings


class EmbedBody(GeminiBody):
    """POST …:embedContent, or one of `requests`."""

    model: StrictStr = ""
    content: Any = None
    task_type: StrictStr = ""
    title: StrictStr = ""
    output_dimensionality: Dimensions | None = None
    auto_truncate: StrictBool = False


class EmbedsBody(GeminiBody):
    """POST …:batchEmbedContents."""

    model: StrictStr = ""
    requests: list[Any]


def read_embed(members: Mapping[str, object], called: Called) -> EmbedAsk:
    """POST …:embedContent. Raises what reading bodies does."""
    return _embed_ask([members], "", lambda values: {"embedding": {"values": next(values)}})


def read_embeds(members: Mapping[str, object], called: Called) -> EmbedAsk:
    """POST …:batchEmbedContents. Raises what reading bodies does."""
    requests = embeddings.read_body(EmbedsBody, members, "batchEmbedContents").requests
    if not requests:
        raise InvalidRequestError.at("requests", "must not be empty")
    return _embed_ask(requests, "requests.", lambda values: {"embeddings": ({"values": vector} for vector in values)})


def _embed_ask(requests: Sequence[Any], start: str, answer: Callable[[Iterator[list[float]]], Json]) -> EmbedAsk:
    bodies = []
    for i, given in enumerate(requests):
        if not isinstance(given, dict):
            raise InvalidRequestError.at(f"{start}{i}", "must be an object")
        place = f"{start}{i}." if start else ""
        with spelled(lambda name, place=place: f"{place}{name}"):  # type: ignore[misc]
            bodies.append(embeddings.read_body(EmbedBody, given, "embedContent"))
    texts = [
        _content_text(body.content, f"{start}{i}.content" if start else "content") for i, body in enumerate(bodies)
    ]
    return EmbedAsk(
        texts_of(texts, "content"),
        lambda done: answer(rows[0].tolist() for rows in done.vectors),
        "content",
        kinds=[kind_of(body.task_type, "taskType") for body in bodies],
        titles=[body.title for body in bodies],
        cuts=any(body.auto_truncate for body in bodies),
        dimensions=[body.output_dimensionality for body in bodies],
    )


def _content_text(content: object, where: str) -> str:
    """The text of a content, which may be a text itself. Raises InvalidRequestError or NotSupportedError."""
    parts = content.get("parts") if isinstance(content, dict) else content
    parts = [{"text": parts}] if isinstance(parts, str) else as_list(parts)
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise InvalidRequestError.at(where, 'must be a content such as {"parts": [{"text": "…"}]}')
    if any(not isinstance(part.get("text"), str) for part in parts):
        raise NotSupportedError.at(where, "this server embeds texts only; leave other parts out")
    if not (text := "".join(part["text"] for part in parts)):
        raise InvalidRequestError.at(where, "must not be empty")
    return text


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
    info = engine.info
    settings = {"temperature": sampling.temperature, "topP": sampling.top_p, "topK": sampling.top_k}
    thinks, embeds = engine.text.answers.thinks, engine.embeds is not None
    return {**listed_model(about.names[0], info.target.desc, info.n_ctx, thinks, embeds), **settings}


def listed_model(name: str, description: str, n_ctx: int, thinks: bool, embeds: bool = False) -> Json:
    """A model as lists have it, by what its file says of it."""
    return {
        "name": f"models/{name}",
        "version": "1",
        "displayName": name,
        "description": description,
        "inputTokenLimit": n_ctx,
        "outputTokenLimit": n_ctx,
        "supportedGenerationMethods": [*(EMBEDS if embeds else _METHODS)],
        "thinking": thinks,
    }


def _counted(n: int) -> JsonMembers:
    return {"totalTokens": n, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": n}]}


_MODELS = (f"{PATH}/{{model:.+}}", "/v1/models/{model:.+}")
"""Both versions of the API. GET below `/v1/models` is OpenAI's, but for clients with headers of this API."""
GEMINI = Api(
    answers={
        **{f"{path}:generateContent": AnswerRoute(read_content, answered) for path in _MODELS},
        **{
            f"{path}:streamGenerateContent": AnswerRoute(partial(read_content, stream=True), answered)
            for path in _MODELS
        },
    },
    counts={f"{path}:countTokens": CountRoute(read_counted, _counted) for path in _MODELS},
    embeds={
        **{f"{path}:embedContent": EmbedRoute(read_embed) for path in _MODELS},
        **{f"{path}:batchEmbedContents": EmbedRoute(read_embeds) for path in _MODELS},
    },
    facts={PATH: models, _MODELS[0]: model},
    absent=(
        "/v1beta/cachedContents",
        "/v1beta/files",
        "/upload/v1beta/files",
    ),
    owns=lambda path: "/v1beta/" in path or path.endswith(tuple(f":{name}" for name in (*_METHODS, *EMBEDS))),
    error=error_json,
    broken=error_json,
    shared=("/v1/models",),
    marks=("X-Goog-Api-Key", "X-Goog-Api-Client"),
    key_headers=("X-Goog-Api-Key",),
    key_params=("key",),
)
