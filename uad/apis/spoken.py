"""Chat answers whose text holds thoughts and tool calls: they are taken out of it as it comes. Events in, JSON texts
out; no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uad.apis.outcome import Outcome, logprobs_json
from uad.apis.shapes import ChatShape, Identity, new_id
from uad.calls.events import Arguments, CallEnd, CallStart, Content, Event, Thought
from uad.common.json_out import Json, dumps, dumps_large, with_member
from uad.events import Delta
from uad.requests.chat import Reading
from uad.requests.job import Job
from uad.types import Finish

_SHORTEST_ID = 9  # a model's own id that is shorter is a number in its answer, and no name in a conversation


def chat_shape(job: Job, identity: Identity, reading: Reading) -> ChatShape:
    """The form of a chat's answer."""
    return ChatShape(job, identity) if reading.is_plain else SpokenShape(job, identity, reading)


class SpokenShape(ChatShape):
    """POST /v1/chat/completions, with `reasoning_content` and `tool_calls`."""

    def __init__(self, job: Job, identity: Identity, reading: Reading) -> None:
        super().__init__(job, identity)
        self._reading = reading
        self._parsers = [reading.parser() for _ in job.requests]
        self._n_calls = [0] * len(job.requests)

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """A chunk for each thing that the text says; none where it says nothing yet."""
        events = joined(self._parsers[outcome.index].feed(delta.text))
        if not delta.probs:
            return self._chunks(outcome, events)
        logprobs: Json = {"content": logprobs_json(delta.probs, self._job.post_sampling)}
        first, rest = _delta(events[0]) if events else {}, events[1:]
        return [dumps_large(self._chunk(outcome.index, first, None, logprobs)), *self._chunks(outcome, rest)]

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """What was kept back, and the last chunks."""
        parser = self._parsers[outcome.index]
        kept = self._chunks(outcome, joined(parser.finish(outcome.is_cut)))
        self._n_calls[outcome.index] = parser.n_calls
        return [*kept, *super().closing(outcome, finished)]

    def _chunks(self, outcome: Outcome, events: Iterable[Event]) -> list[str]:
        has_places = self._job.requests[outcome.index].origins
        return [self._told(outcome.index, event, has_places) for event in events]

    def _told(self, index: int, event: Event, has_place: bool) -> str:
        """The chunk of one event; where its text begins in that of all tokens, if that is wanted and known."""
        if isinstance(event, Content):
            text = self._frames[index].fill(event.text)
        else:
            text = dumps(self._chunk(index, _delta(event), None))
        if has_place and isinstance(event, Content | Thought) and event.at >= 0:
            return with_member(text, "origins_at", event.at)
        return text

    def _message(self, outcome: Outcome) -> Json:
        parser = self._reading.parser()
        events = joined([*parser.feed(outcome.text), *parser.finish(outcome.is_cut)])
        self._n_calls[outcome.index] = parser.n_calls
        said = "".join(event.text for event in events if isinstance(event, Content))
        thought = "".join(event.text for event in events if isinstance(event, Thought))
        calls = [_call(event, _arguments(events, event.index)) for event in events if isinstance(event, CallStart)]
        message: Json = {"role": "assistant", "content": said if said or not calls else None}
        message |= {"reasoning_content": thought} if thought else {}
        return message | ({"tool_calls": calls} if calls else {})

    def _finish(self, outcome: Outcome) -> str:
        finish = outcome.end.finish
        return "tool_calls" if finish is Finish.STOP and self._n_calls[outcome.index] else str(finish)


def _delta(event: Event) -> Json:
    match event:
        case Content():
            return {"content": event.text}
        case Thought():
            return {"reasoning_content": event.text}
        case CallStart():
            return {"tool_calls": [{"index": event.index, **_call(event, "")}]}
        case Arguments():
            return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}
        case CallEnd():
            return {}


def joined(events: Iterable[Event]) -> list[Event]:
    """The same events, neighbouring pieces of one kind as one."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Content) and isinstance(last, Content):
            out[-1] = Content(last.text + event.text, last.at)
        elif isinstance(event, Thought) and isinstance(last, Thought):
            out[-1] = Thought(last.text + event.text, last.at)
        elif isinstance(event, Arguments) and isinstance(last, Arguments) and event.index == last.index:
            out[-1] = Arguments(event.index, last.text + event.text)
        elif not isinstance(event, CallEnd):
            out.append(event)
    return out


def _arguments(events: Iterable[Event], index: int) -> str:
    return "".join(event.text for event in events if isinstance(event, Arguments) and event.index == index)


def id_of(given: str, prefix: str) -> str:
    """A call's id: the model's own where it is a name, else a new one."""
    return given if len(given) >= _SHORTEST_ID else new_id(prefix, 24)


def _call(event: CallStart, arguments: str) -> Json:
    return {
        "id": id_of(event.id, "call_"),
        "type": "function",
        "function": {"name": event.name, "arguments": arguments},
    }
