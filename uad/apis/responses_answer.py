"""The form of OpenAI's Responses API: one object, or a stream of named, numbered events. Events in, JSON texts out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from uad.apis.dialogue import seal
from uad.apis.outcome import Outcome, logprobs_json, prediction_json, stats_json
from uad.apis.problems import Problem
from uad.apis.responses_request import ResponsesBody
from uad.apis.segments import Added, Closed, Opened, Segment, SegmentKind, SegmentShape, Step
from uad.apis.shapes import new_id
from uad.common.json_out import Json, chunks, dumps
from uad.events import Delta
from uad.requests.chat import Reading
from uad.requests.job import Job
from uad.types import Finish, TokenProb

MAX_REPEATED = 1 << 16  # characters of settings
MAX_REPEATED_PROBS = 4096
_PREFIXES = {SegmentKind.THOUGHT: "rs_", SegmentKind.TEXT: "msg_", SegmentKind.CALL: "fc_"}


class ResponseShape(SegmentShape):
    """POST /v1/responses."""

    def __init__(self, job: Job, body: ResponsesBody, model: str, reading: Reading) -> None:
        super().__init__(job, reading)
        self._body = body
        self._ids: dict[int, str] = {}
        self._n_events = 0
        self._same: Json = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            **_settings_json(job, body),
        }

    # --- the stream

    def opening(self, outcome: Outcome) -> list[str]:
        """The response without an answer, twice, as OpenAI sends it."""
        begun = self._response("in_progress", [])
        return [self._event(f"response.{name}", response=begun) for name in ("created", "in_progress")]

    def blank(self, outcome: Outcome) -> str:
        """An event that says nothing but that it goes on, for the progress of the prompt."""
        return self._event("response.in_progress", response=self._response("in_progress", []))

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """Events for what the piece says."""
        return list(self._events(self._segments.feed(delta), "completed"))

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """What was kept back, the end of the last item, and the whole response."""
        rest = list(self._events(self._segments.finish(outcome.is_cut), _status(outcome)))
        response = self._finished(outcome)
        return [*rest, self._event(f"response.{response['status']}", response=response, **stats_json(finished))]

    def failed(self, problem: Problem) -> list[str]:
        """A stream that breaks off: the error, and the response with it."""
        error: Json = {"code": problem.kind, "message": problem.message}
        response = {**self._response("failed", self._items("incomplete")), "error": error}
        return [
            self._event("error", **error, param=problem.param),
            self._event("response.failed", response=response),
        ]

    def _event(self, kind: str, **members: object) -> str:
        number = self._n_events
        self._n_events += 1
        return dumps({"type": kind, "sequence_number": number, **members})

    def _events(self, steps: Iterable[Step], last: str) -> Iterator[str]:
        """last: the status of the item that the answer ends with."""
        for step in steps:
            where: Json = {"output_index": step.segment.index}
            match step:
                case Opened():
                    yield from self._opened(step.segment, where)
                case Added():
                    yield self._added(step, where)
                case Closed():
                    is_last = step.segment is self._segments.all[-1]
                    yield from self._closed(step.segment, where, last if is_last else "completed")

    def _opened(self, segment: Segment, where: Json) -> Iterator[str]:
        yield self._event("response.output_item.added", **where, item=self._item(segment, "in_progress", is_open=True))
        if segment.kind is not SegmentKind.CALL:
            part = _part(segment, "", ())
            yield self._event("response.content_part.added", **self._place(segment, where), part=part)

    def _added(self, step: Added, where: Json) -> str:
        segment = step.segment
        place = self._place(segment, where)
        match segment.kind:
            case SegmentKind.CALL:
                return self._event("response.function_call_arguments.delta", **place, delta=step.text)
            case SegmentKind.THOUGHT:
                return self._event("response.reasoning_text.delta", **place, delta=step.text)
            case SegmentKind.TEXT:
                probs = list(logprobs_json(step.probs))
                return self._event("response.output_text.delta", **place, delta=step.text, logprobs=probs)

    def _closed(self, segment: Segment, where: Json, status: str) -> Iterator[str]:
        place = self._place(segment, where)
        match segment.kind:
            case SegmentKind.CALL:
                done: Json = {"name": segment.name, "arguments": segment.text}
                yield self._event("response.function_call_arguments.done", **place, **done)
            case SegmentKind.THOUGHT:
                yield self._event("response.reasoning_text.done", **place, text=segment.text)
            case SegmentKind.TEXT:
                probs = list(logprobs_json(self._probs(segment)))
                yield self._event("response.output_text.done", **place, text=segment.text, logprobs=probs)
        if segment.kind is not SegmentKind.CALL:
            part = _part(segment, segment.text, self._probs(segment))
            yield self._event("response.content_part.done", **place, part=part)
        yield self._event("response.output_item.done", **where, item=self._item(segment, status))

    def _place(self, segment: Segment, where: Json) -> Json:
        place: Json = {"item_id": self._id(segment), **where}
        return place if segment.kind is SegmentKind.CALL else {**place, "content_index": 0}

    # --- the whole

    def whole(self, outcomes: Sequence[Outcome]) -> Json:
        """The answer in one object."""
        return {**self._finished(self._heard(outcomes)), **stats_json(outcomes)}

    def _finished(self, outcome: Outcome) -> Json:
        status = _status(outcome)
        usage = outcome.end.usage
        return {
            **self._response(status, self._items(status)),
            "completed_at": int(time.time()) if status == "completed" else None,
            "incomplete_details": None if status == "completed" else {"reason": "max_output_tokens"},
            "usage": {
                "input_tokens": usage.n_prompt,
                "input_tokens_details": {"cached_tokens": usage.n_cached},
                "output_tokens": usage.n_predicted,
                "output_tokens_details": {"reasoning_tokens": usage.n_thought, **prediction_json([outcome])},
                "total_tokens": usage.n_prompt + usage.n_predicted,
            },
        }

    def _response(self, status: str, output: list[Json]) -> Json:
        return {
            **self._same,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": output,
            "usage": None,
        }

    def _items(self, last: str) -> list[Json]:
        all_ = self._segments.all
        return [self._item(one, last if one is all_[-1] else "completed") for one in all_]

    def _item(self, segment: Segment, status: str, is_open: bool = False) -> Json:
        own: Json = {"id": self._id(segment), "status": status}
        text, probs = ("", ()) if is_open else (segment.text, self._probs(segment))
        match segment.kind:
            case SegmentKind.THOUGHT:
                sealed = seal(text) if self._body.seals_thoughts and not is_open else None
                content = [] if is_open else [_part(segment, text, ())]
                return {**own, "type": "reasoning", "summary": [], "content": content, "encrypted_content": sealed}
            case SegmentKind.TEXT:
                content = [] if is_open else [_part(segment, text, probs)]
                return {**own, "type": "message", "role": "assistant", "content": content}
            case SegmentKind.CALL:
                call = {"call_id": segment.call_id, "name": segment.name}
                return {**own, "type": "function_call", **call, "arguments": text}

    def _probs(self, segment: Segment) -> Sequence[TokenProb]:
        """Those of a whole text. In a stream many are sent in its pieces only: its end is made on the event loop."""
        n_told = sum(1 + len(prob.top) for prob in segment.probs) if self._job.stream else 0
        return segment.probs if n_told <= MAX_REPEATED_PROBS else ()

    def _id(self, segment: Segment) -> str:
        return self._ids.setdefault(segment.index, new_id(_PREFIXES[segment.kind]))


def _part(segment: Segment, text: str, probs: Iterable[TokenProb]) -> Json:
    if segment.kind is SegmentKind.THOUGHT:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs_json(probs))}


def _status(outcome: Outcome) -> str:
    return "completed" if outcome.end.finish is Finish.STOP else "incomplete"


def _settings_json(job: Job, body: ResponsesBody) -> Json:
    """What the request asked for, as every response repeats it. What is long is not repeated."""
    (request,) = job.requests
    long: Json = {
        "instructions": body.instructions,
        "text": {"format": body.text.format or {"type": "text"}, "verbosity": body.text.verbosity or "medium"},
        "tool_choice": body.tool_choice,
        "tools": [tool for tool in body.tools if tool.get("type", "function") == "function"],
    }
    parallel = body.parallel_tool_calls
    if parallel is None:
        choice = body.tool_choice.get("mode") if isinstance(body.tool_choice, dict) else body.tool_choice
        parallel = choice != "required"
    if sum(map(len, chunks(long))) > MAX_REPEATED:
        long = {"instructions": None, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": []}
    return {
        "background": False,
        "completed_at": None,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata,
        "parallel_tool_calls": parallel,
        "previous_response_id": None,
        "reasoning": {"effort": body.reasoning.effort, "summary": body.reasoning.summary},
        "store": False,
        "temperature": request.sampling.temperature,
        "top_logprobs": body.top_logprobs or 0,
        "top_p": request.sampling.top_p,
        "truncation": "disabled",
        **long,
    }
