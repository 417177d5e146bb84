"""Events of the sequences of one request, put into the form of its answer: whole, or as frames of a stream. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from uad.apis.outcome import Outcome, timings_json
from uad.apis.problems import Problem
from uad.apis.shapes import Shape
from uad.common.json_out import Json, with_member
from uad.events import Delta, Done, Progress, TokenText
from uad.requests.job import Job
from uad.stats import Timings

Arrival = tuple[int, Delta | Progress | Done]
"""An event, and the number of its sequence."""


class Teller:
    """Keeps what each sequence has said so far, and puts new events into the client's form."""

    def __init__(self, job: Job, shape: Shape) -> None:
        self.job = job
        self.shape = shape
        self.outcomes = [Outcome(i) for i in range(len(job.requests))]
        self._is_opened = [False] * len(job.requests)
        self._origins = OriginTeller(len(job.requests))

    def hear(self, arrivals: list[Arrival]) -> None:
        """Take in events of an answer that is sent as a whole."""
        for index, event in arrivals:
            if isinstance(event, Delta):
                self.outcomes[index].observe(event, keep=True)
            elif isinstance(event, Progress):
                self.outcomes[index].prompt_probs += event.probs
            else:
                self._finish(index, event, keep=True)

    def tell(self, arrivals: list[Arrival]) -> bytes:
        """The events as frames of the stream."""
        texts: list[str] = []
        for index, event in merge(arrivals):
            outcome = self.outcomes[index]
            if not self._is_opened[index]:
                self._is_opened[index] = True
                texts += self.shape.opening(outcome)
            if isinstance(event, Delta):
                outcome.observe(event, keep=False)
                texts += self._piece(outcome, event)
            elif isinstance(event, Progress):
                texts += self._progress(outcome, event)
            else:
                texts += self._origins.put(index, (), self._close(index, event))
        return b"".join(self.shape.frame(text) for text in texts)

    def failed(self, problem: Problem) -> bytes:
        """An error as the last frames of the stream."""
        return b"".join(map(self.shape.frame, self.shape.failed(problem)))

    def _piece(self, outcome: Outcome, event: Delta) -> list[str]:
        texts = [_timed(text, event.timings) for text in self.shape.piece(outcome, event)]
        return self._origins.put(outcome.index, event.tokens, texts)

    def _progress(self, outcome: Outcome, event: Progress) -> list[str]:
        """How far the prompt was read, for who asked for it."""
        outcome.prompt_probs += event.probs
        if not self.job.requests[outcome.index].progress:
            return []
        progress = {
            "total": event.n_prompt,
            "cache": event.n_cached,
            "processed": event.n_past,
            "time_ms": int(event.ms),
        }
        return [_timed(with_member(self.shape.blank(outcome), "prompt_progress", progress), event.timings)]

    def _close(self, index: int, done: Done) -> list[str]:
        outcome = self.outcomes[index]
        rest = self._finish(index, done, keep=False)
        pieces = self.shape.piece(outcome, rest) if rest.text else []
        is_last = all(outcome.done is not None for outcome in self.outcomes)
        return [*pieces, *self.shape.closing(outcome, self.outcomes if is_last else [])]

    def _finish(self, index: int, done: Done, keep: bool) -> Delta:
        rest = Delta(done.request, (), (), done.text)
        self.outcomes[index].observe(rest, keep)
        self.outcomes[index].done = done
        return rest


def _timed(text: str, timings: Timings | None) -> str:
    """The JSON text of an object, with `timings` if there are some."""
    return text if timings is None else with_member(text, "timings", timings_json([timings]))


class OriginTeller:
    """Puts the tokens of each sequence into its next chunk. A piece may have no chunk: its tokens wait for one."""

    def __init__(self, n: int) -> None:
        self._waiting: list[list[TokenText]] = [[] for _ in range(n)]

    def put(self, index: int, tokens: Sequence[TokenText], texts: list[str]) -> list[str]:
        """The chunks of a piece, each with its token where there are as many; else the first has all that wait."""
        waiting = self._waiting[index]
        if not waiting and len(tokens) == len(texts):
            pairs = zip(texts, tokens, strict=True)
            return [with_member(text, "origins", [_token(one)]) for text, one in pairs]
        waiting += tokens
        if not waiting or not texts:
            return texts
        told = with_member(texts[0], "origins", [_token(one) for one in waiting])
        waiting.clear()
        return [told, *texts[1:]]


def _token(one: TokenText) -> Json:
    token: Json = {"text": one.text, "by": one.origin}
    return token | {"rejected": one.rejected} if one.rejected else token


def merge(arrivals: list[Arrival]) -> list[Arrival]:
    """The same events with neighbouring deltas of one sequence joined: a reader that fell behind gets fewer, larger
    pieces.
    """
    if len(arrivals) < 2:
        return arrivals
    merged: list[Arrival] = []
    last: dict[int, int] = {}
    for index, event in arrivals:
        at = last.get(index)
        before = merged[at][1] if at is not None else None
        if at is not None and isinstance(event, Delta) and isinstance(before, Delta):
            merged[at] = index, _joined(before, event)
        else:
            last[index] = len(merged)
            merged.append((index, event))
    return merged


def _joined(a: Delta, b: Delta) -> Delta:
    return Delta(
        a.request,
        a.ids + b.ids,
        a.origins + b.origins,
        a.text + b.text,
        a.probs + b.probs,
        a.pieces + b.pieces,
        b.timings,
        a.tokens + b.tokens,
    )
