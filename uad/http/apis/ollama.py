"""The dialect of Ollama's API: requests and the chats that they stand for, answers as lines of JSON, and what is told
of the one model.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from math import inf
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, Field, StrictBool, StrictStr

from uad.base.checkpoint import checkpoint
from uad.base.common.json_out import Json, dumps
from uad.base.common.samplers import SETTINGS
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.events import Delta
from uad.base.types import Finish, TokenProb
from uad.http.apis.api import BODY_ONLY, About, AnswerRoute, Api, Called, EmbedRoute
from uad.http.apis.blocks import Added, BlockKind, Blocks, BlockStep, Closed
from uad.http.apis.choice import Choice, logprobs_json, stats_json
from uad.http.apis.dialect import (
    AtOnce,
    Dialect,
    Frame,
    JsonMembers,
    Served,
    Spelling,
    Translated,
    accounted,
    chat_of,
    refuse,
    renaming,
    rest_of,
    spelled,
)
from uad.http.apis.embeddings import Dimensions, EmbedAsk, read_body, texts_of
from uad.http.apis.messages import CallIds, Picture
from uad.http.apis.problems import Problem, UnknownModelError
from uad.http.requests.chat import Reading
from uad.http.requests.fields import MAX_MESSAGES, Body, ChatBody, CompletionBody, account_for_request, checked
from uad.http.requests.generation import Backend
from uad.http.requests.job import Job
from uad.http.requests.message_fields import MAX_CALLS, MAX_TOOLS

log = logging.getLogger("uad.server")
VERSION = "0.13.0"
"""The version of Ollama whose API this is. Clients ask for it, and refuse to talk to what is too old for them."""
RUNNING = "Ollama is running"
"""Ollama's answer to `GET /`, which clients look for."""
OPTIONS = {"num_predict": "max_tokens", "seed": "seed", "stop": "stop", **{name: name for name in SETTINGS}}
"""Members of `options`, and what a chat calls them."""
FIXED = (
    *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "numa", "low_vram"),
    *("f16_kv", "use_mmap", "use_mlock", "vocab_only", "logits_all", "embedding_only"),
)
"""Members of `options` that a server is started with, and no request changes."""
_EFFORTS = ("low", "medium", "high", "max")
_DURATION = re.compile(r"[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")
_FORMAT = '"json", or a JSON schema'
_NAMES = (
    (r"(max_completion_tokens|n_predict|max_tokens)\b", "options.num_predict"),
    (r"response_format(\.json_schema)?(\.schema)?\b", "format"),
    (r"reasoning_effort\b|enable_thinking\b", "think"),
    (r"(messages\.\d+)\.(reasoning_content|reasoning)\b", r"\1.thinking"),
    (r"(messages\.\d+)\.name\b", r"\1.tool_name"),
)
_UNSUPPORTED = {
    "context": "send the conversation to /api/chat",
    "template": "the model's own is used; start the server with --chat-template, or send a whole prompt with raw",
}
_FOREVER_S = 100 * 365 * 86400
"""Seconds after the start at which the model is said to be unloaded, where it never is. To keep it so long is for ever.
"""
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DIGITS = 3
"""Digits of the number of parameters as `details` has it."""


# --- requests


def _keep_alive(value: object) -> object:
    """Seconds, or a duration as Go writes it."""
    if isinstance(value, str):
        if not _DURATION.fullmatch(value):
            raise ValueError('must be a number of seconds, or a duration such as "5m" or "-1s"')
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError('must be a number of seconds, or a duration such as "5m"')
    return value


def kept_for(value: str | float | None) -> float | None:
    """Seconds for which a checked `keep_alive` wants the models to stay loaded; below 0 it means for ever."""
    if value is None:
        return None
    if isinstance(value, str):
        parts = re.findall(rf"([\d.]+)({'|'.join(_UNITS)})", value)
        value = sum(float(number) * _UNITS[unit] for number, unit in parts) * (-1 if value.startswith("-") else 1)
    return float(value) if 0 <= value < _FOREVER_S else inf


def _think(value: object) -> object:
    if not isinstance(value, bool) and value not in _EFFORTS:
        raise ValueError(f"must be true, false, or one of {', '.join(_EFFORTS)}")
    return value


class OllamaRequest(Body):
    """Fields of both routes. Fields that are not named here go to the chat unchanged: drafts, slots, constraints."""

    model: StrictStr = ""
    stream: StrictBool = True
    options: dict[StrictStr, Any] = Field({})
    format: Any = None
    keep_alive: Annotated[Any, AfterValidator(_keep_alive)] = None
    think: Annotated[Any, AfterValidator(_think)] = None
    logprobs: StrictBool = False
    top_logprobs: Any = None


class OllamaChat(OllamaRequest):
    """POST /api/chat."""

    messages: Annotated[list[Any], Field(max_length=MAX_MESSAGES)] = Field([])
    tools: list[dict[StrictStr, Any]] = Field([], max_length=MAX_TOOLS)


class OllamaCompletion(OllamaRequest):
    """POST /api/generate."""

    prompt: StrictStr = ""
    suffix: StrictStr = ""
    system: StrictStr = ""
    images: Any = None
    raw: StrictBool = False


class OllamaMessage(Body):
    """One of `messages`."""

    role: StrictStr
    content: Any = ""
    thinking: StrictStr | None = None
    images: Any = None
    tool_calls: Annotated[list[Any], Field(max_length=MAX_CALLS)] = Field([])
    tool_name: StrictStr | None = None
    tool_call_id: StrictStr | None = None


class OllamaToolCall(Body):
    """One of the `tool_calls` of a message."""

    id: StrictStr | None = None
    function: dict[StrictStr, Any]


class OllamaEmbed(Body):
    """POST /api/embed."""

    model: StrictStr = ""
    input: Any = None
    truncate: StrictBool = True
    dimensions: Dimensions | None = None
    options: dict[StrictStr, Any] = Field({})
    keep_alive: Annotated[Any, AfterValidator(_keep_alive)] = None


class OllamaEmbedOne(Body):
    """POST /api/embeddings, which is older: one text, whose vector is not scaled."""

    model: StrictStr = ""
    prompt: Any = None
    options: dict[StrictStr, Any] = Field({})
    keep_alive: Annotated[Any, AfterValidator(_keep_alive)] = None


class ShowBody(Body):
    """POST /api/show."""

    model: StrictStr = Field("", validation_alias=AliasChoices("model", "name"))


def read_talk(members: Mapping[str, object], called: Called = BODY_ONLY) -> Translated[OllamaChat] | AtOnce:
    """The request and its chat; what loads or unloads the model where it has no messages. Raises InvalidRequestError,
    NotSupportedError or ValidationError.
    """
    if not members.get("messages"):
        return _loaded(OllamaChat.model_validate(members), TalkDialect.answer_members(""))
    refuse(members, {"template": _UNSUPPORTED["template"]})
    own = OllamaChat.model_validate(members)
    account_for_request(members, OllamaChat, ChatBody)
    same, spelling = _same(own)
    chat = {**rest_of(members, own), **same, **_thinking(own), **_logprobs(own)}
    messages, places = _messages(own.messages)
    chat |= {"messages": messages, "tools": own.tools}
    return Translated(own, chat_of(chat, spelling), spelling, keep_s=kept_for(own.keep_alive), places=places)


def read_generate(members: Mapping[str, object], called: Called = BODY_ONLY) -> Translated[OllamaCompletion] | AtOnce:
    """The request, and a chat of its one question; with `raw` or `suffix` what goes on from its prompt; what loads or
    unloads the model where nothing is asked. Raises InvalidRequestError, NotSupportedError or ValidationError.
    """
    own = OllamaCompletion.model_validate(members)
    if not (members.get("prompt") or members.get("suffix") or members.get("images")):
        return _loaded(own, GenerateDialect.answer_members(""))
    if own.raw and (own.system or members.get("template") or members.get("context")):
        raise InvalidRequestError("raw mode does not support template, system, or context", "raw")
    refuse(members, _UNSUPPORTED)
    account_for_request(members, OllamaCompletion, ChatBody)
    same, spelling = _same(own, (r"messages\b.*", "prompt"), (r"logprobs\b", "top_logprobs"))
    more = {**rest_of(members, own), **same}
    images = _pictures(own.images, "images")
    if own.raw or own.suffix:
        if images:
            raise NotSupportedError.at(
                "images", "raw prompts and those with a suffix have none; leave raw and suffix out"
            )
        plain: Json = {**more, "prompt": own.prompt, "suffix": own.suffix}
        plain |= {"logprobs": own.top_logprobs or 0} if own.logprobs else {}
        with spelled(spelling):
            body, keep_s = checked(CompletionBody, plain), kept_for(own.keep_alive)
        return Translated(own, body, spelling, keep_s=keep_s, prompts=[own.prompt])
    messages: list[Json] = [{"role": "system", "content": own.system}] if own.system else []
    more |= {"messages": [*messages, {"role": "user", "content": _content(own.prompt, images)}]}
    chat = chat_of({**more, **_thinking(own), **_logprobs(own)}, spelling)
    places = [image.where for image in images]
    return Translated(own, chat, spelling, keep_s=kept_for(own.keep_alive), places=places)


def _same(own: OllamaRequest, *names: tuple[str, str]) -> tuple[Json, Spelling]:
    """Fields with the same meaning on both routes, in a chat's words, and how a request calls the fields of a chat.
    names: further rules for that.
    """
    given = {name: value for name, value in own.options.items() if value is not None}
    out: Json = {OPTIONS[name]: value for name, value in given.items() if name in OPTIONS}
    length = out.get("max_tokens")
    if isinstance(length, int | float) and not isinstance(length, bool) and length < 1:
        out["max_tokens"] = -1  # Ollama has -1 and 0 for no end, and -2 for the end of the context, which is one here
    for name in given:
        if name not in OPTIONS:
            _leave_out(name[:64])
    if own.format not in (None, ""):
        out["response_format"] = _form(own.format)
    own_names = [(rf"{name}\b", f"options.{name}") for name in given if OPTIONS.get(name) == name]
    return {**out, "stream": own.stream}, renaming([*names, *_NAMES, *own_names])


@lru_cache(256)
def _leave_out(name: str) -> None:
    """Say once that an option has no effect."""
    why = "the server is started with it" if name in FIXED else "there is no such option here"
    log.warning("option %r of Ollama's API has no effect: %s", name, why)


def _form(value: object) -> Json:
    if value == "json":
        return {"type": "json_object"}
    if isinstance(value, dict):
        return {"type": "json_schema", "json_schema": {"schema": value}}
    raise InvalidRequestError.at("format", f"must be {_FORMAT}")


def _thinking(own: OllamaRequest) -> Json:
    if own.think is None:
        return {}
    effort = {} if isinstance(own.think, bool) else {"reasoning_effort": own.think}
    return {"enable_thinking": own.think is not False, **effort}


def _logprobs(own: OllamaRequest) -> Json:
    return {"logprobs": True, "top_logprobs": own.top_logprobs} if own.logprobs else {}


def _pictures(value: object, where: str) -> list[Picture]:
    """The pictures of `images`, which are base64."""
    given = value or []
    if not isinstance(given, list) or not all(isinstance(data, str) for data in given):
        raise InvalidRequestError.at(where, "must be a list of images in base64")
    return [Picture.of_base64(data, f"{where}.{k}") for k, data in enumerate(given)]


def _content(text: object, images: Sequence[Picture]) -> object:
    """The content of a message: its pictures stand before its text, or its parts, as in Ollama."""
    if not images:
        return text
    texts = text if isinstance(text, list) else [{"type": "text", "text": text}] if text else []
    return [*(image.part for image in images), *texts]


def _pictured_parts(content: object, where: str) -> list[str]:
    """The places of the parts that are pictures, in a content of parts."""
    parts = content if isinstance(content, list) else []
    return [
        f"{where}.{k}" for k, part in enumerate(parts) if isinstance(part, dict) and part.get("type") == "image_url"
    ]


def _messages(given: Sequence[object]) -> tuple[list[Json], list[str]]:
    """The chat's messages, one for each of the request, and the places of their pictures."""
    out: list[Json] = []
    places: list[str] = []
    ids = CallIds()
    for i, member in enumerate(given):
        checkpoint()
        where = f"messages.{i}"
        body = accounted(OllamaMessage, member, where, "/api/chat")
        images = _pictures(body.images, f"{where}.images")
        places += [*(image.where for image in images), *_pictured_parts(body.content, f"{where}.content")]
        message: Json = {"role": body.role, "content": _content(body.content, images)}
        if body.thinking:
            message["reasoning_content"] = body.thinking
        if body.tool_calls:
            calls = [
                accounted(OllamaToolCall, call, f"{where}.tool_calls.{k}", "/api/chat")
                for k, call in enumerate(body.tool_calls)
            ]
            message["tool_calls"] = [
                {"id": ids.of_call(call.id, str(call.function.get("name"))), "function": call.function}
                for call in calls
            ]
        if body.role == "tool":
            message |= {"name": body.tool_name, "tool_call_id": ids.of_result(body.tool_call_id, body.tool_name)}
        out.append({name: value for name, value in message.items() if value is not None})
    return out, places


# --- answers


def _line(text: str) -> bytes:
    return f"{text}\n".encode("ascii")


def _when(seconds: float) -> str:
    """A time, given in seconds since 1970, as Ollama writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _ns(ms: float) -> int:
    """At least 1: clients divide by it."""
    return max(int(ms * 1e6), 1)


class LineDialect(Dialect):
    """Base of both: each frame is a line, an object with a piece of the answer. The last has the numbers."""

    content_type = "application/x-ndjson"
    event = staticmethod(_line)

    def __init__(self, job: Job, served: Served, reading: Reading, body: OllamaRequest) -> None:
        super().__init__(job)
        self._model = body.model or served.model
        self._begun = time.time()
        is_plain = reading.is_plain  # then the text is the content, and no parser is needed
        self._blocks = None if is_plain else Blocks(reading.parser(), "call_")
        self.ping = self.event(dumps(self._frame()))  # a piece without text: clients take no comments, no empty lines

    @staticmethod
    @abstractmethod
    def answer_members(content: str, thinking: str = "", calls: Sequence[JsonMembers] = ()) -> JsonMembers:
        """The member of a frame that has its piece of the answer."""

    @staticmethod
    @abstractmethod
    def message_members(frame: JsonMembers) -> JsonMembers:
        """`content`, `thinking` and `tool_calls` of a frame, as far as it has them."""

    def _frame(self, content: str = "", thinking: str = "", calls: Sequence[JsonMembers] = ()) -> JsonMembers:
        same = {"model": self._model, "created_at": _when(time.time())}
        return {**same, **self.answer_members(content, thinking, calls), "done": False}

    def piece(self, choice: Choice, delta: Delta) -> Iterator[Frame]:
        """A line for each thing that the text says. The first has all probabilities of the piece."""
        if self._blocks is not None:
            yield from self._lines(self._blocks.feed(delta.text), delta.probs)
        elif delta.text or delta.probs:
            yield self._with_probs(self._frame(delta.text), delta.probs)

    def _lines(self, steps: Iterable[BlockStep], probs: Sequence[TokenProb] = ()) -> Iterator[Frame]:
        for step in steps:
            if (frame := self._shown(step)) is not None:
                yield self._with_probs(frame, probs)
                probs = ()
        if probs:
            yield self._with_probs(self._frame(), probs)

    def _shown(self, step: BlockStep) -> JsonMembers | None:
        """A call is shown once it is whole; a call whose arguments were cut is left out: they are no object."""
        kind = step.block.kind
        match step:
            case Added() if kind is BlockKind.TEXT:
                return self._frame(step.text)
            case Added() if kind is BlockKind.THOUGHT:
                return self._frame(thinking=step.text)
            case Closed() if kind is BlockKind.CALL:
                block = step.block
                try:
                    arguments = json.loads(block.text)
                except (ValueError, RecursionError):
                    return None
                function = {"index": block.call_index, "name": block.name, "arguments": arguments}
                is_whole = isinstance(arguments, dict)
                return self._frame(calls=[{"id": block.call_id, "function": function}]) if is_whole else None
            case _:
                return None

    def _with_probs(self, frame: JsonMembers, probs: Sequence[TokenProb]) -> JsonMembers:
        return {**frame, "logprobs": logprobs_json(probs)} if probs else frame

    def blank(self, choice: Choice) -> JsonMembers:
        """A line that says nothing."""
        return self._frame()

    def closing(self, choice: Choice, finished: Sequence[Choice]) -> Iterator[Frame]:
        """The text that was kept back, and the line with why it ended and the numbers. Times are in nanoseconds."""
        if self._blocks is not None:
            yield from self._lines(self._blocks.finish(choice.is_cut))
        end, timings = choice.end, choice.end.timings
        prompt, written = _ns(timings.prompt_ms), _ns(timings.predicted_ms)
        yield {
            **self._frame(),
            "done": True,
            "done_reason": "length" if end.finish is Finish.LENGTH else "stop",
            "total_duration": max(int((time.time() - self._begun) * 1e9), prompt + written),
            "load_duration": 0,
            "prompt_eval_count": end.usage.n_prompt,
            "prompt_eval_duration": prompt,
            "eval_count": end.usage.n_predicted,
            "eval_duration": written,
            **stats_json([choice]),
        }

    def failed(self, problem: Problem) -> Iterator[Frame]:
        """The last line of a stream that breaks off."""
        yield error_json(problem)

    def fold(self, frames: Iterable[Frame]) -> JsonMembers:
        """The last line, with what all of them say."""
        contents, thoughts, calls, probs = list[str](), list[str](), list[JsonMembers](), list[Iterable[JsonMembers]]()
        last: JsonMembers = {}
        for frame in map(self.members_of, frames):
            last, message = frame, self.message_members(frame)
            contents.append(message["content"])
            thoughts.append(message.get("thinking", ""))
            calls += message.get("tool_calls", ())
            probs += [frame["logprobs"]] if "logprobs" in frame else []
        out = {**last, **self.answer_members("".join(contents), "".join(thoughts), calls)}
        return {**out, "logprobs": chain.from_iterable(probs)} if self.job.logprobs else out


class TalkDialect(LineDialect):
    """POST /api/chat."""

    @staticmethod
    def answer_members(content: str, thinking: str = "", calls: Sequence[JsonMembers] = ()) -> JsonMembers:
        """A message."""
        message: JsonMembers = {"role": "assistant", "content": content}
        message |= {"thinking": thinking} if thinking else {}
        return {"message": message | ({"tool_calls": calls} if calls else {})}

    @staticmethod
    def message_members(frame: JsonMembers) -> JsonMembers:
        """The message's own members."""
        message: JsonMembers = frame["message"]
        return message


class GenerateDialect(LineDialect):
    """POST /api/generate."""

    @staticmethod
    def answer_members(content: str, thinking: str = "", calls: Sequence[JsonMembers] = ()) -> JsonMembers:
        """A text, and thoughts beside it."""
        return {"response": content, **({"thinking": thinking} if thinking else {})}

    @staticmethod
    def message_members(frame: JsonMembers) -> JsonMembers:
        """The text under a message's names."""
        return {"content": frame["response"], "thinking": frame.get("thinking", "")}


# --- embeddings


def read_embed(members: Mapping[str, object], called: Called) -> EmbedAsk | AtOnce:
    """POST /api/embed; without a text it loads or unloads the model. Raises what reading bodies does."""
    body = read_body(OllamaEmbed, members, "/api/embed")
    keep_s = kept_for(body.keep_alive)
    if body.input in (None, "", []):
        return AtOnce({"model": body.model, "embeddings": []}, keep_s != 0, keep_s)
    return EmbedAsk(
        texts_of(body.input, "input"),
        lambda done: {
            "model": body.model or done.model,
            "embeddings": (rows[0].tolist() for rows in done.vectors),
            "total_duration": int(1e9 * done.seconds),
            "load_duration": 0,
            "prompt_eval_count": sum(done.counts),
        },
        cuts=body.truncate,
        dimensions=[body.dimensions],
        normalize=2,
        keep_s=keep_s,
    )


def read_embed_one(members: Mapping[str, object], called: Called) -> EmbedAsk | AtOnce:
    """POST /api/embeddings; without a text it loads or unloads the model. Raises what reading bodies does."""
    body = read_body(OllamaEmbedOne, members, "/api/embeddings")
    keep_s = kept_for(body.keep_alive)
    if body.prompt in (None, ""):
        return AtOnce({"embedding": []}, keep_s != 0, keep_s)
    if not isinstance(body.prompt, str):
        raise InvalidRequestError.at("prompt", "must be a text; POST /api/embed takes several")
    return EmbedAsk(
        [body.prompt],
        lambda done: {"embedding": done.vectors[0][0].tolist()},
        "prompt",
        cuts=True,
        normalize=-1,
        keep_s=keep_s,
    )


# --- requests that only load or unload a model


def _loaded(own: OllamaRequest, reply: JsonMembers) -> AtOnce:
    """The answer to a request that asks nothing, as clients send it before the first question and after the last."""
    keep_s = kept_for(own.keep_alive)
    reason = "unload" if keep_s == 0 else "load"
    answer = {"model": own.model, "created_at": _when(time.time()), **reply, "done": True, "done_reason": reason}
    return AtOnce(answer, keep_s != 0, keep_s)


# --- the model


def tagged(name: str) -> str:
    """A model's name with its tag, as Ollama lists it."""
    return name if ":" in name else f"{name}:latest"


def plain_name(name: str) -> str:
    """The same for all spellings that Ollama takes for one name: in any case, with the names of its registry or
    without.
    """
    return tagged(name.casefold().removeprefix("registry.ollama.ai/").removeprefix("library/"))


def version(about: About) -> Json:
    """GET /api/version."""
    return {"version": VERSION}


def tags(about: About) -> Json:
    """GET /api/tags: the one model."""
    return {"models": [{**_model(about), "modified_at": _when(about.started)}]}


def running(about: About) -> Json:
    """GET /api/ps: the model while it is loaded."""
    if about.engine.sleep.is_asleep:
        return {"models": []}
    until = _when(about.started + _FOREVER_S if about.expires_at is None else about.expires_at)
    facts = {"expires_at": until, "size_vram": 0, "context_length": about.engine.info.n_ctx}
    return {"models": [{**_model(about), **facts}]}


def show(about: About) -> Json:
    """POST /api/show {model}, with or without the tag, in any case. May render the chat template: for worker threads.
    Raises UnknownModelError or ValidationError.
    """
    asked = ShowBody.model_validate(about.asked).model
    if plain_name(asked) not in map(plain_name, about.names):
        raise UnknownModelError(f"model '{asked}' not found")
    engine = about.engine
    info, target = engine.info, engine.info.target
    arch = target.arch or "unknown"
    return {
        "modelfile": f"FROM {PurePath(target.path).name}\nPARAMETER num_ctx {info.n_ctx}\n",
        "parameters": f"num_ctx {info.n_ctx}",
        "template": _template(engine),
        "details": _details(engine),
        "model_info": {
            "general.architecture": arch,
            "general.basename": target.desc,
            "general.parameter_count": target.n_params,
            f"{arch}.context_length": info.n_ctx,
            f"{arch}.embedding_length": target.n_embd,
        },
        "capabilities": _capabilities(engine),
        "modified_at": _when(about.started),
    }


def _template(engine: Backend) -> str:
    """The chat template. Clients look in Ollama's own for `.Suffix` to know whether the model fills in the middle."""
    template = engine.info.target.chat_template or ""
    return template + ("{# .Suffix #}" if _inserts(engine) else "")


def _inserts(engine: Backend) -> bool:
    fim = engine.info.fim
    return None not in (fim.prefix, fim.suffix, fim.middle)


def _capabilities(engine: Backend) -> list[str]:
    if engine.embeds is not None:
        return ["rerank" if engine.embeds.facts.ranks else "embedding"]
    has = {
        "completion": True,
        "tools": engine.text.template_caps().get("supports_tools", False),
        "insert": _inserts(engine),
        "vision": engine.sees_images,
        "thinking": engine.text.answers.thinks,
    }
    return [name for name, there in has.items() if there]


def _model(about: About) -> Json:
    """`digest` is not that of the file, whose reading would take minutes: of its name and its sizes."""
    target, name = about.engine.info.target, about.names[0]
    named = f"{PurePath(target.path).name} {target.size} {target.n_params}"
    digest = hashlib.sha256(named.encode("utf-8", "replace")).hexdigest()
    same = {"name": tagged(name), "model": tagged(name), "size": target.size, "digest": digest}
    return {**same, "details": _details(about.engine)}


def _details(engine: Backend) -> Json:
    target = engine.info.target
    quantization = target.ftype.replace(" - Small", "_S").replace(" - Medium", "_M").replace(" - Large", "_L")
    return details(target.arch, target.n_params, quantization)


def details(arch: str, n_params: int, quantization: str) -> Json:
    """Details of a model in lists of models."""
    family = arch or "unknown"
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": _count(n_params),
        "quantization_level": quantization,
    }


def _count(n: int) -> str:
    """1543714304 as 1.54B."""
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if n >= unit:
            return f"{n / unit:.{_DIGITS}g}{name}"
    return str(n)


# --- the API


def error_json(problem: Problem, name: str = "") -> JsonMembers:
    """Ollama's error: a text."""
    return {"error": problem.message}


OLLAMA = Api(
    answers={
        "/api/chat": AnswerRoute(read_talk, TalkDialect),
        "/api/generate": AnswerRoute(read_generate, GenerateDialect),
    },
    embeds={"/api/embed": EmbedRoute(read_embed), "/api/embeddings": EmbedRoute(read_embed_one)},
    facts={"/api/tags": tags, "/api/ps": running, "/api/version": version},
    facts_of={"/api/show": show},
    absent=(
        "/api/pull",
        "/api/push",
        "/api/create",
        "/api/copy",
        "/api/delete",
        "/api/blobs/{digest}",
        "/api/me",
        "/api/signout",
    ),
    owns=lambda path: "/api/" in path and "/v1/" not in path,  # below --api-prefix /api are the others' paths, too
    error=error_json,
    event=_line,
    broken=error_json,
)
