"""The dialects of OpenAI's older APIs: chat completions, with thoughts and tool calls, and completions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from uad.base.common.json_out import DONE, dumps
from uad.base.events import Delta
from uad.base.types import Finish, TokenProb
from uad.http.apis.api import BODY_ONLY, AnswerRoute, Api, Called, CountRoute
from uad.http.apis.blocks import Added, BlockKind, Blocks, BlockStep, Closed, Opened
from uad.http.apis.choice import Choice, completion_logprobs_json, logprobs_json, n_chars, stats_json, usage_json
from uad.http.apis.dialect import Dialect, Frame, JsonMembers, Served, TextFrame, Translated, new_id, read_prompted
from uad.http.apis.embeddings import OPENAI_EMBEDDINGS
from uad.http.apis.native import NativeDialect
from uad.http.requests.chat import Reading
from uad.http.requests.fields import ChatBody, CompletionBody, TemplateBody, account_for_request, checked
from uad.http.requests.job import Job


class ChunkDialect(Dialect):
    """Base of both: each frame is a chunk with one choice, or with none at the end."""

    ending = DONE
    id_prefix = "cmpl-"
    object_ = "text_completion"

    def __init__(self, job: Job, served: Served) -> None:
        super().__init__(job)
        self._same: JsonMembers = {
            "created": int(time.time()),
            "id": new_id(self.id_prefix),
            "model": served.model,
            "system_fingerprint": served.fingerprint,
            "object": self.object_,
        }
        # {"choices":[{"text":" + the text + ","index":0, …: a text is put between what never changes
        self._around = [
            dumps(self.members_of(TextFrame(i, "\0"))).split('"\\u0000"') if job.stream else []
            for i in range(len(self.choices))
        ]

    def encoded(self, frame: Frame) -> bytes:
        """The frame in the bytes of a stream."""
        if isinstance(frame, TextFrame):
            return self.event(dumps(frame.text).join(self._around[frame.choice]))
        return super().encoded(frame)

    def _chunk(self, choice: JsonMembers) -> JsonMembers:
        return {"choices": [choice], **self._same}


def read_chat(members: Mapping[str, object], called: Called = BODY_ONLY) -> Translated[ChatBody]:
    """A chat, which stands for itself. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    body = checked(ChatBody, members)
    account_for_request(members, ChatBody)
    return Translated(body, body)


def read_counted(members: Mapping[str, object], called: Called) -> Translated[TemplateBody]:
    """A chat that is counted, which need not be one to answer. Raises as `read_chat` does."""
    body = checked(TemplateBody, members)
    account_for_request(members, ChatBody)
    return Translated(body, body)


def read_completion(members: Mapping[str, object], called: Called) -> Translated[CompletionBody]:
    """POST /v1/completions. Raises as `read_chat` does."""
    return read_prompted(members, CompletionBody)


class ChatDialect(ChunkDialect):
    """POST /v1/chat/completions, with `reasoning_content` and `tool_calls` where the text holds such."""

    id_prefix = "chatcmpl-"
    object_ = "chat.completion.chunk"

    def __init__(self, job: Job, served: Served, reading: Reading, body: object = None) -> None:
        super().__init__(job, served)
        is_plain = reading.is_plain  # then the text is the content, and no parser is needed
        self._blocks = None if is_plain else [Blocks(reading.parser(), "call_") for _ in job.requests]
        self._native = NativeDialect(job, served) if job.is_verbose else None
        self._beside: list[Frame] = []

    def members_of(self, frame: Frame) -> JsonMembers:
        """The frame in full."""
        return self._delta(frame.choice, {"content": frame.text}) if isinstance(frame, TextFrame) else frame

    def _delta(self, index: int, delta: JsonMembers, finish: str | None = None, **more: object) -> JsonMembers:
        return self._chunk({"finish_reason": finish, "index": index, "delta": delta, **more})

    def opening(self, choice: Choice) -> Iterator[Frame]:
        """The chunk with the role."""
        yield self._delta(choice.index, {"role": "assistant", "content": None})

    def piece(self, choice: Choice, delta: Delta) -> Iterable[Frame]:
        """A chunk for each thing that the text says; none where it says nothing yet, but for its probabilities."""
        if self._native is not None and not self.job.stream:
            self._beside += self._native.piece(choice, delta)
        if self._blocks is not None:
            return self._chunks(choice, self._blocks[choice.index].feed(delta.text), delta.probs)
        if delta.probs:
            return (self._delta(choice.index, {"content": delta.text}, logprobs=self._logprobs(delta.probs)),)
        return (TextFrame(choice.index, delta.text),) if delta.text else ()

    def _chunks(self, choice: Choice, steps: Iterable[BlockStep], probs: Sequence[TokenProb] = ()) -> Iterator[Frame]:
        """All probabilities of the piece are in the first chunk."""
        index, has_places = choice.index, choice.request.origins
        for step in steps:
            kind = step.block.kind
            if isinstance(step, Closed) or (isinstance(step, Opened) and kind is not BlockKind.CALL):
                continue
            if probs:
                yield self._delta(index, _delta_json(step), logprobs=self._logprobs(probs))
                probs = ()
            elif has_places and isinstance(step, Added) and step.at >= 0:
                yield {**self._delta(index, _delta_json(step)), "origins_at": step.at}
            elif isinstance(step, Added) and kind is BlockKind.TEXT:
                yield TextFrame(index, step.text)
            else:
                yield self._delta(index, _delta_json(step))
        if probs:
            yield self._delta(index, {}, logprobs=self._logprobs(probs))

    def _logprobs(self, probs: Iterable[TokenProb]) -> JsonMembers:
        return {"content": logprobs_json(probs, self.job.post_sampling)}

    def blank(self, choice: Choice) -> JsonMembers:
        """A chunk that says nothing."""
        return self._delta(choice.index, {})

    def closing(self, choice: Choice, finished: Sequence[Choice]) -> Iterator[Frame]:
        """The text kept back, the chunk with the reason, and after the last sequence one with the usage, if wanted."""
        finish, job = str(choice.end.finish), self.job
        if self._blocks is not None:
            blocks = self._blocks[choice.index]
            yield from self._chunks(choice, blocks.finish(choice.is_cut))
            if blocks.n_calls and choice.end.finish is Finish.STOP:
                finish = "tool_calls"
        last = self._delta(choice.index, {}, finish)
        if self._native is not None:
            self._beside += self._native.closing(choice, finished)
        if finished and (job.include_usage or not job.stream):
            yield last
            ids = {"prompt_token_ids": job.prompts[0].shown_ids} if job.token_ids and not job.stream else {}
            last = {"choices": [], **self._same, **ids, "usage": usage_json(finished, job.n)}
        if finished:
            last |= stats_json(finished)
            last |= {} if self._native is None else {"__verbose": self._native.fold(self._beside)}
        yield last

    def fold(self, frames: Iterable[Frame]) -> JsonMembers:
        """The last chunk, with all choices in place of none."""
        messages = [_FoldedMessage() for _ in self.choices]
        last: JsonMembers = {}
        for frame in frames:
            if isinstance(frame, TextFrame):
                messages[frame.choice].contents.append(frame.text)
                continue
            last = frame
            for part in frame["choices"]:
                messages[part["index"]].add(part)
        folded = [self._folded(choice, message) for choice, message in zip(self.choices, messages, strict=True)]
        return {**last, "choices": folded, "object": "chat.completion"}

    def _folded(self, choice: Choice, message: _FoldedMessage) -> JsonMembers:
        out: JsonMembers = {"finish_reason": message.finish, "index": choice.index, "message": message.json()}
        if choice.request.logprobs:
            out["logprobs"] = {"content": chain.from_iterable(message.probs)}
        return {**out, "token_ids": choice.ids} if self.job.token_ids else out


@dataclass(slots=True)
class _FoldedMessage:
    """A choice's chunks so far."""

    contents: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[JsonMembers] = field(default_factory=list)
    probs: list[Iterable[JsonMembers]] = field(default_factory=list)
    finish: str | None = None

    def add(self, part: JsonMembers) -> None:
        delta: JsonMembers = part["delta"]
        self.contents.append(delta.get("content") or "")
        self.thoughts.append(delta.get("reasoning_content", ""))
        # A call's first chunk has its name, and later ones pieces of its arguments: '{"wo', 'rd": "tea"}'
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(self.calls):
                self.calls.append({name: call[name] for name in ("id", "type", "function")})
            else:
                self.calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        if "logprobs" in part:
            self.probs.append(part["logprobs"]["content"])
        self.finish = part["finish_reason"]

    def json(self) -> JsonMembers:
        content, thought = "".join(self.contents), "".join(self.thoughts)
        out: JsonMembers = {"role": "assistant", "content": content if content or not self.calls else None}
        out |= {"reasoning_content": thought} if thought else {}
        return out | ({"tool_calls": self.calls} if self.calls else {})


def _delta_json(step: Opened | Added) -> JsonMembers:
    """A step's addition to the message: `{"content": "He"}`, or the head of a call, or a piece of its arguments."""
    block = step.block
    if isinstance(step, Opened):
        function = {"name": block.name, "arguments": ""}
        return {
            "tool_calls": [{"index": block.call_index, "id": block.call_id, "type": "function", "function": function}]
        }
    if block.kind is BlockKind.CALL:
        return {"tool_calls": [{"index": block.call_index, "function": {"arguments": step.text}}]}
    return {"content" if block.kind is BlockKind.TEXT else "reasoning_content": step.text}


_LOGPROBS = tuple(completion_logprobs_json((), 0))


class CompletionDialect(ChunkDialect):
    """POST /v1/completions."""

    prompt_ids_in_choice = True

    def __init__(self, job: Job, served: Served, reading: Reading, body: object = None) -> None:
        super().__init__(job, served)
        self._offsets = [0] * len(job.requests)
        self._is_echoed: set[int] = set()

    def members_of(self, frame: Frame) -> JsonMembers:
        """The frame in full."""
        return self._text(frame.choice, frame.text) if isinstance(frame, TextFrame) else frame

    def _text(
        self, index: int, text: str, finish: str | None = None, logprobs: JsonMembers | None = None
    ) -> JsonMembers:
        return self._chunk({"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish})

    def piece(self, choice: Choice, delta: Delta) -> Iterator[Frame]:
        """A chunk of text, the prompt before the first if it is to be echoed; none for an empty piece."""
        yield from self._echo(choice)
        if delta.probs:
            yield self._with_probs(choice.index, delta.text, delta.probs)
        elif delta.text:
            yield TextFrame(choice.index, delta.text)

    def _echo(self, choice: Choice) -> Iterator[Frame]:
        """The chunk with the prompt, once."""
        if self.job.echo and choice.index not in self._is_echoed:
            self._is_echoed.add(choice.index)
            if choice.request.prompt_probs:
                yield self._with_probs(choice.index, choice.prompt.text, choice.prompt_probs)
            else:
                yield TextFrame(choice.index, choice.prompt.text)

    def _with_probs(self, index: int, text: str, probs: Sequence[TokenProb]) -> JsonMembers:
        logprobs = completion_logprobs_json(probs, self._offsets[index], self.job.post_sampling)
        self._offsets[index] += sum(n_chars(prob.data) for prob in probs)
        return self._text(index, text, None, logprobs)

    def blank(self, choice: Choice) -> JsonMembers:
        """A chunk without text."""
        return self._text(choice.index, "")

    def closing(self, choice: Choice, finished: Sequence[Choice]) -> Iterator[Frame]:
        """The chunk with the reason; usage is in the last of them, or in a chunk of its own if asked for."""
        yield from self._echo(choice)
        last = self._text(choice.index, "", str(choice.end.finish))
        if finished and self.job.include_usage:
            yield last
            last = {"choices": [], **self._same}
        yield {**last, "usage": usage_json(finished, self.job.n), **stats_json(finished)} if finished else last

    def fold(self, frames: Iterable[Frame]) -> JsonMembers:
        """The last chunk, with all choices that are wanted in place of its own."""
        texts: list[list[str]] = [[] for _ in self.choices]
        probs: list[list[JsonMembers]] = [[] for _ in self.choices]
        last: JsonMembers = {}
        for frame in frames:
            if isinstance(frame, TextFrame):
                texts[frame.choice].append(frame.text)
                continue
            last = frame
            for part in frame["choices"]:
                texts[part["index"]].append(part["text"])
                probs[part["index"]] += [part["logprobs"]] if part["logprobs"] else []
        folded = []
        for place, choice in enumerate(self._best()):
            own = probs[choice.index]
            joined = {name: chain.from_iterable([frame[name] for frame in own]) for name in _LOGPROBS}
            text = self._text(
                place, "".join(texts[choice.index]), str(choice.end.finish), joined if self.job.logprobs else None
            )["choices"][0]
            ids = {"prompt_token_ids": choice.prompt.shown_ids, "token_ids": choice.ids} if self.job.token_ids else {}
            folded.append({**text, **ids})
        return {**last, "choices": folded}

    def _best(self) -> list[Choice]:
        """The likeliest answers of each prompt, the likeliest first; all, in order, if all are wanted."""
        job, choices = self.job, self.choices
        if job.n == job.n_best:
            return choices
        by_prompt = [choices[start : start + job.n] for start in range(0, len(choices), job.n)]
        ranked = [sorted(choices, key=lambda choice: -choice.mean_logprob)[: job.n_best] for choices in by_prompt]
        return [choice for ranking in ranked for choice in ranking]


_CHAT = AnswerRoute(read_chat, ChatDialect)
_CHAT_TOKENS = CountRoute(read_counted, lambda n: {"object": "response.input_tokens", "input_tokens": n})
OPENAI = Api(
    answers={
        "/v1/chat/completions": _CHAT,
        "/chat/completions": _CHAT,
        "/v1/completions": AnswerRoute(read_completion, CompletionDialect),
    },
    counts={
        "/v1/chat/completions/input_tokens": _CHAT_TOKENS,
        "/chat/completions/input_tokens": _CHAT_TOKENS,
    },
    embeds=OPENAI_EMBEDDINGS,
    key_headers=("Authorization", "Api-Key"),  # the second is Azure's
)
