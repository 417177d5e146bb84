"""Answers of Google's Gemini API: their events, which are folded to a whole answer or sent as one list; and errors."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from uad.base.common.json_out import finite, visible
from uad.base.common.sums import total
from uad.base.events import Delta
from uad.base.types import Finish, TokenProb
from uad.http.apis.blocks import Added, BlockKind, Blocks, BlockStep, Closed
from uad.http.apis.choice import Choice, stats_json
from uad.http.apis.dialect import Dialect, Frame, JsonMembers, Served, new_id
from uad.http.apis.messages import seal
from uad.http.apis.problems import Problem
from uad.http.requests.chat import Reading
from uad.http.requests.job import Job

_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
"""Names of errors by status."""


@dataclass(frozen=True, slots=True)
class ContentForm:
    """The form of an answer, as its request asks. is_list: its stream is one list of JSON instead of events."""

    shows_thoughts: bool
    is_list: bool = False


class Speech:
    """The parts of a candidate's answer. Their end is kept back until more is said, for the last event of a stream.
    Clients take an event without words for a turn that failed, and leave the turn out of the chat.
    """

    def __init__(self, blocks: Blocks, shows_thoughts: bool, has_probs: bool) -> None:
        self._blocks = blocks
        self._shows_thoughts = shows_thoughts
        self._has_probs = has_probs
        self._hidden: list[str] = []  # thoughts that no part holds yet
        self._end: list[JsonMembers] = []  # one part, or none
        self._probs: list[TokenProb] = []

    def feed(self, delta: Delta) -> tuple[list[JsonMembers], list[TokenProb]]:
        """The parts that can be sent after a piece, and the probabilities of what they say."""
        *parts, last = self._joined(self._blocks.feed(delta.text, delta.probs)) or [{}]
        text = last.get("text", "")
        # One character is enough of an end. A piece with probabilities stays whole, as its tokens are.
        if len(text) > 1 and not self._has_probs:
            parts.append({**last, "text": text[:-1]})
            last = {"text": text[-1], **({"thought": True} if "thought" in last else {})}
        self._end = [last] if last else []
        probs, self._probs = (self._probs, [*delta.probs]) if parts else ([], [*self._probs, *delta.probs])
        return parts, probs

    def finish(self, is_cut: bool) -> tuple[list[JsonMembers], list[TokenProb]]:
        """The last parts. An answer that says nothing has an empty text, with the thoughts that were not shown."""
        parts = self._joined(self._blocks.finish(is_cut))
        return parts or [{"text": "", **self._signature()}], self._probs

    def rest(self) -> tuple[list[JsonMembers], list[TokenProb]]:
        """The parts and probabilities that were kept back of an answer that breaks off."""
        return self._end, self._probs

    def _joined(self, steps: Iterable[BlockStep]) -> list[JsonMembers]:
        """The part that was kept back and those of the steps, neighbouring texts in one."""
        parts = [*self._end]
        for part in self._parts(steps):
            if parts and _goes_on(parts[-1], part) and not self._has_probs:
                parts[-1] = {**parts[-1], "text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        return parts

    def _parts(self, steps: Iterable[BlockStep]) -> Iterator[JsonMembers]:
        """A call is a part once it is whole. A call whose arguments were cut is left
        out: they are no object.
        """
        for step in steps:
            kind = step.block.kind
            match step:
                case Added(text=""):
                    pass
                case Added() if kind is BlockKind.THOUGHT and not self._shows_thoughts:
                    self._hidden.append(step.text)
                case Added() if kind is BlockKind.THOUGHT:
                    yield {"text": step.text, "thought": True}
                case Added() if kind is BlockKind.TEXT:
                    yield {"text": step.text, **self._signature()}
                case Closed() if kind is BlockKind.CALL and (arguments := _object(step.block.text)) is not None:
                    call = {"id": step.block.call_id, "name": step.block.name, "args": arguments}
                    yield {"functionCall": call, **self._signature()}

    def _signature(self) -> JsonMembers:
        """Thoughts that are not shown, for the part after them: clients send it back."""
        text, self._hidden = "".join(self._hidden), []
        return {"thoughtSignature": base64.b64encode(seal(text).encode()).decode()} if text else {}


def _goes_on(before: JsonMembers, part: JsonMembers) -> bool:
    """Whether a part is more of the text before it."""
    are_texts = "text" in before and "text" in part and "thoughtSignature" not in part
    return are_texts and before.get("thought") == part.get("thought")


class ContentDialect(Dialect):
    """POST …:generateContent, and its stream of events. Each frame is an answer with a piece of one candidate."""

    ping = b"\n"  # Google's own client takes a comment of the stream for JSON

    def __init__(self, job: Job, served: Served, reading: Reading, form: ContentForm) -> None:
        super().__init__(job)
        self._same: JsonMembers = {"modelVersion": served.model, "responseId": new_id("", 22)}
        self._speech = [
            Speech(Blocks(reading.parser(), "call_"), form.shows_thoughts, bool(job.logprobs)) for _ in job.requests
        ]

    def _frame(self, index: int, parts: Sequence[JsonMembers], probs: Sequence[TokenProb] = ()) -> JsonMembers:
        candidate: JsonMembers = {"content": {"parts": parts, "role": "model"}, "index": index}
        candidate |= {"logprobsResult": _logprobs(probs)} if probs else {}
        return {"candidates": [candidate], **self._same}

    def piece(self, choice: Choice, delta: Delta) -> Iterator[Frame]:
        """An answer with what the piece says, as far as it can be sent."""
        parts, probs = self._speech[choice.index].feed(delta)
        if parts:
            yield self._frame(choice.index, parts, probs)

    def blank(self, choice: Choice) -> JsonMembers:
        """An answer that says nothing."""
        return self._frame(choice.index, [])

    def closing(self, choice: Choice, finished: Sequence[Choice]) -> Iterator[Frame]:
        """The last words, and why it ended; in the last of all, the numbers."""
        last = self._frame(choice.index, *self._speech[choice.index].finish(choice.is_cut))
        last["candidates"][0] |= {"finishReason": "MAX_TOKENS" if choice.end.finish is Finish.LENGTH else "STOP"}
        if self.job.logprobs:
            last["candidates"][0] |= {"avgLogprobs": finite(choice.mean_logprob)}
        yield {**last, "usageMetadata": self._usage(finished), **stats_json(finished)} if finished else last

    def _usage(self, finished: Sequence[Choice]) -> JsonMembers:
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
        """The parts that were kept back, and the last event of a stream that breaks off."""
        for choice, speech in zip(self.choices, self._speech, strict=True):
            parts, probs = speech.rest() if choice.done is None else ([], [])
            if parts:
                yield self._frame(choice.index, parts, probs)
        yield error_json(problem)

    def fold(self, frames: Iterable[Frame]) -> JsonMembers:
        """The last frame, with all candidates."""
        folded = [_FoldedCandidate() for _ in self.choices]
        last: JsonMembers = {}
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


def answered(job: Job, served: Served, reading: Reading, form: ContentForm) -> ContentDialect:
    """The dialect of an answer."""
    kind = ContentListDialect if form.is_list else ContentDialect
    return kind(job, served, reading, form)


def _object(text: str) -> JsonMembers | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@dataclass(slots=True)
class _FoldedCandidate:
    """The pieces of a candidate so far."""

    parts: list[JsonMembers] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    chosen: list[Iterable[JsonMembers]] = field(default_factory=list)
    top: list[Iterable[JsonMembers]] = field(default_factory=list)
    last: JsonMembers = field(default_factory=dict)

    def add(self, candidate: JsonMembers) -> None:
        """A piece. Neighbouring texts of one kind become one part."""
        self.last = candidate
        for part in candidate["content"]["parts"]:
            if not self.parts or not _goes_on(self.parts[-1], part):
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

    def json(self) -> JsonMembers:
        self._settle()
        out: JsonMembers = {**self.last, "content": {"parts": self.parts, "role": "model"}}
        if self.chosen:
            out["logprobsResult"] = {
                "chosenCandidates": chain.from_iterable(self.chosen),
                "topCandidates": chain.from_iterable(self.top),
            }
        return out


def _logprobs(probs: Sequence[TokenProb]) -> JsonMembers:
    return {
        "chosenCandidates": map(_token, probs),
        "topCandidates": ({"candidates": [*map(_token, prob.top)]} for prob in probs),
    }


def _token(prob: TokenProb) -> JsonMembers:
    return {"token": visible(prob.data), "tokenId": prob.id, "logProbability": finite(prob.logprob)}


def error_json(problem: Problem, name: str = "") -> JsonMembers:
    """Google's error object, inside its envelope. The field that is wrong is among its details."""
    usual = "INVALID_ARGUMENT" if problem.status < 500 else "INTERNAL"
    error: JsonMembers = {
        "code": problem.status,
        "message": problem.message,
        "status": _STATUSES.get(problem.status, usual),
    }
    if problem.param is not None:
        wrong = {"field": problem.param, "description": problem.message}
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [wrong]}]
    return {"error": error}
