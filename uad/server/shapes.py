"""The forms an answer can take: OpenAI chat, OpenAI completion, llama-server native. Events in, JSON texts out; no I/O.

A shape lives for one HTTP request. What does not change from piece to piece is put together once, because a piece is sent per decode round.
"""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Sequence
from typing import Protocol

from uad.server.job import Job
from uad.server.outcome import Json, Outcome, completion_logprobs_json, logprobs_json, n_chars, stats_json, usage_json
from uad.server.wire import dumps, dumps_large
from uad.types import Delta

_ALPHABET = string.ascii_letters + string.digits


class Shape(Protocol):
    """How one route answers. `closing` gets all sequences where the one that ends is the last of them, else nothing."""

    ends_with_done: bool

    def opening(self, outcome: Outcome) -> list[str]: ...

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]: ...

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]: ...

    def whole(self, outcomes: Sequence[Outcome]) -> object: ...


class Identity:
    """Members that every object of one OpenAI answer repeats."""

    def __init__(self, prefix: str, model: str, fingerprint: str) -> None:
        name = prefix + "".join(secrets.choice(_ALPHABET) for _ in range(32))
        self.members: Json = {"created": int(time.time()), "id": name, "model": model, "system_fingerprint": fingerprint}

    def json(self, object_: str) -> Json:
        """The members, with the object's kind."""
        return {**self.members, "object": object_}


class _Frames:
    """Pieces of one choice, cut around the text: `head` + JSON string + `tail`."""

    def __init__(self, chunk: Json) -> None:
        self.head, self.tail = dumps(chunk).split('"\\u0000"')

    def fill(self, text: str) -> str:
        return self.head + dumps(text) + self.tail


class ChatShape:
    """POST /v1/chat/completions."""

    ends_with_done = True

    def __init__(self, job: Job, identity: Identity) -> None:
        self._job = job
        self._same = identity
        self._frames = [_Frames(self._chunk(i, {"content": "\0"}, None)) for i in range(len(job.requests))]

    def _chunk(self, index: int, delta: Json, finish: str | None, logprobs: Json | None = None) -> Json:
        choice: Json = {"finish_reason": finish, "index": index, "delta": delta}
        if logprobs is not None:
            choice["logprobs"] = logprobs
        return {"choices": [choice], **self._same.json("chat.completion.chunk")}

    def opening(self, outcome: Outcome) -> list[str]:
        """The chunk with the role."""
        return [dumps(self._chunk(outcome.index, {"role": "assistant", "content": None}, None))]

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """A chunk of text; none for an empty piece."""
        if delta.probs:
            logprobs: Json = {"content": logprobs_json(delta.probs)}
            return [dumps_large(self._chunk(outcome.index, {"content": delta.text}, None, logprobs))]
        return [self._frames[outcome.index].fill(delta.text)] if delta.text else []

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """The chunk with the reason, and the usage chunk after the last sequence if asked for."""
        chunks = [self._chunk(outcome.index, {}, self._finish(outcome))]
        if finished and self._job.include_usage:
            chunks.append({"choices": [], **self._same.json("chat.completion.chunk"), "usage": usage_json(finished, self._job.n)})
        if finished:
            chunks[-1] |= stats_json(finished)
        return [dumps(chunk) for chunk in chunks]

    def whole(self, outcomes: Sequence[Outcome]) -> Json:
        """The answer in one object."""
        return {
            "choices": [self._choice(outcome) for outcome in outcomes],
            **self._same.json("chat.completion"),
            "usage": usage_json(outcomes, self._job.n),
            **stats_json(outcomes),
        }

    def _choice(self, outcome: Outcome) -> Json:
        message = self._message(outcome)
        choice: Json = {"finish_reason": self._finish(outcome), "index": outcome.index, "message": message}
        if self._job.requests[outcome.index].logprobs:
            choice["logprobs"] = {"content": logprobs_json(outcome.probs)}
        return choice

    def _message(self, outcome: Outcome) -> Json:
        return {"role": "assistant", "content": outcome.text}

    def _finish(self, outcome: Outcome) -> str:
        return str(outcome.end.finish)


class CompletionShape:
    """POST /v1/completions."""

    ends_with_done = True

    def __init__(self, job: Job, identity: Identity) -> None:
        self._job = job
        self._same = identity
        self._frames = [_Frames(self._chunk(i, "\0", None, None)) for i in range(len(job.requests))]
        self._offsets = [0] * len(job.requests)

    def _chunk(self, index: int, text: str, finish: str | None, logprobs: Json | None) -> Json:
        choice: Json = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}
        return {"choices": [choice], **self._same.json("text_completion")}

    def opening(self, outcome: Outcome) -> list[str]:
        """Nothing: the first chunk is text."""
        return []

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """A chunk of text; none for an empty piece."""
        if delta.probs:
            logprobs = completion_logprobs_json(delta.probs, self._offsets[outcome.index])
            self._offsets[outcome.index] += sum(n_chars(prob.data) for prob in delta.probs)
            return [dumps_large(self._chunk(outcome.index, delta.text, None, logprobs))]
        return [self._frames[outcome.index].fill(delta.text)] if delta.text else []

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """The chunk with the reason; usage is in the last of them, or in a chunk of its own if asked for."""
        chunks = [self._chunk(outcome.index, "", str(outcome.end.finish), None)]
        if finished and self._job.include_usage:
            chunks.append({"choices": [], **self._same.json("text_completion")})
        if finished:
            chunks[-1] |= {"usage": usage_json(finished, self._job.n), **stats_json(finished)}
        return [dumps(chunk) for chunk in chunks]

    def whole(self, outcomes: Sequence[Outcome]) -> Json:
        """The answer in one object."""
        return {
            "choices": [self._choice(outcome) for outcome in outcomes],
            **self._same.json("text_completion"),
            "usage": usage_json(outcomes, self._job.n),
            **stats_json(outcomes),
        }

    def _choice(self, outcome: Outcome) -> Json:
        wanted = self._job.requests[outcome.index].logprobs
        logprobs = completion_logprobs_json(outcome.probs, 0) if wanted else None
        return {"text": outcome.text, "index": outcome.index, "logprobs": logprobs, "finish_reason": str(outcome.end.finish)}
