"""The form of Anthropic's Messages API: one message, or a stream of its blocks. Events in, JSON texts out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from uad.apis.dialogue import seal
from uad.apis.messages_request import MessagesBody
from uad.apis.outcome import Outcome
from uad.apis.problems import Problem
from uad.apis.segments import Added, Closed, Opened, Segment, SegmentKind, SegmentShape, Step
from uad.apis.shapes import new_id
from uad.common.json_out import Json, dumps, named_frame
from uad.events import Delta
from uad.requests.chat import Reading
from uad.requests.job import Job
from uad.stats import Usage
from uad.types import Finish


class MessageShape(SegmentShape):
    """POST /v1/messages."""

    ping = named_frame(dumps({"type": "ping"}))
    call_prefix = "toolu_"

    def __init__(self, job: Job, body: MessagesBody, model: str, reading: Reading) -> None:
        super().__init__(job, reading)
        self._body = body
        self._same: Json = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": model}

    # --- the stream

    def opening(self, outcome: Outcome) -> list[str]:
        """The message without content."""
        n_prompt = len(self._job.requests[0].prompt)
        begun = self._message([], None, None, Usage(n_prompt, outcome.n_cached, 0))
        return [dumps({"type": "message_start", "message": begun})]

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """Events for what the piece says."""
        return list(self._events(self._segments.feed(delta)))

    def blank(self, outcome: Outcome) -> str:
        """Nothing: a message has no event for how far the prompt was read."""
        return ""

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """What was kept back, the end of the last block, why it ended, and the usage."""
        rest = list(self._events(self._segments.finish(outcome.is_cut)))
        reason, word = self._reason(outcome)
        delta: Json = {"stop_reason": reason, "stop_sequence": word}
        end = {"type": "message_delta", "delta": delta, "usage": _usage_json(outcome.end.usage)}
        return [*rest, dumps(end), dumps({"type": "message_stop"})]

    def failed(self, problem: Problem) -> list[str]:
        """The end of a stream that breaks off."""
        return [dumps(problem.anthropic())]

    def _events(self, steps: Iterable[Step]) -> Iterator[str]:
        for step in steps:
            where: Json = {"index": step.segment.index}
            match step:
                case Opened():
                    yield dumps({"type": "content_block_start", **where, "content_block": self._begun(step.segment)})
                case Added():
                    if delta := self._delta(step):
                        yield dumps({"type": "content_block_delta", **where, "delta": delta})
                case Closed():
                    if step.segment.kind is SegmentKind.THOUGHT:
                        signature = {"type": "signature_delta", "signature": self._signature(step.segment)}
                        yield dumps({"type": "content_block_delta", **where, "delta": signature})
                    yield dumps({"type": "content_block_stop", **where})

    def _begun(self, segment: Segment) -> Json:
        match segment.kind:
            case SegmentKind.THOUGHT:
                return {"type": "thinking", "thinking": "", "signature": ""}
            case SegmentKind.TEXT:
                return {"type": "text", "text": ""}
            case SegmentKind.CALL:
                return {**_use(segment), "input": {}}

    def _delta(self, step: Added) -> Json:
        match step.segment.kind:
            case SegmentKind.THOUGHT:
                return {} if self._body.hides_thoughts else {"type": "thinking_delta", "thinking": step.text}
            case SegmentKind.TEXT:
                return {"type": "text_delta", "text": step.text}
            case SegmentKind.CALL:
                return {"type": "input_json_delta", "partial_json": step.text}

    # --- the whole

    def whole(self, outcomes: Sequence[Outcome]) -> Json:
        """The answer in one object. A call that was cut in its arguments is left out: they are no object."""
        outcome = self._heard(outcomes)
        blocks = [block for one in self._segments.all if (block := self._block(one)) is not None]
        return self._message(blocks, *self._reason(outcome), outcome.end.usage)

    def _message(self, blocks: list[Json], reason: str | None, word: str | None, usage: Usage) -> Json:
        own: Json = {"content": blocks, "stop_reason": reason, "stop_sequence": word}
        return {**self._same, **own, "usage": _usage_json(usage)}

    def _block(self, segment: Segment) -> Json | None:
        match segment.kind:
            case SegmentKind.THOUGHT:
                text = "" if self._body.hides_thoughts else segment.text
                return {"type": "thinking", "thinking": text, "signature": self._signature(segment)}
            case SegmentKind.TEXT:
                return {"type": "text", "text": segment.text}
            case SegmentKind.CALL:
                arguments = _object(segment.text)
                return None if arguments is None else {**_use(segment), "input": arguments}

    def _signature(self, segment: Segment) -> str:
        """Nothing is signed here. Thoughts that are not shown are in it, so that they come back."""
        return seal(segment.text) if self._body.hides_thoughts else ""

    def _reason(self, outcome: Outcome) -> tuple[str, str | None]:
        """Why the message ended, and the stop sequence that it ended at."""
        end = outcome.end
        if end.finish is Finish.LENGTH:
            return "max_tokens", None
        if self._segments.n_calls:
            return "tool_use", None
        if end.stopping_word and end.stopping_word in self._body.stop_sequences:
            return "stop_sequence", end.stopping_word
        return "end_turn", None


def _use(segment: Segment) -> Json:
    return {"type": "tool_use", "id": segment.call_id, "name": segment.name}


def _object(text: str) -> Json | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _usage_json(usage: Usage) -> Json:
    """Anthropic counts what was in the cache apart from what was read."""
    return {
        "input_tokens": usage.n_prompt - usage.n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.n_cached,
        "output_tokens": usage.n_predicted,
        "output_tokens_details": {"thinking_tokens": usage.n_thought},
    }
