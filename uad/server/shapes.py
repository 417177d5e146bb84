"""The forms of an answer: OpenAI chat, OpenAI completion, llama-server native. Events in, JSON texts out; no I/O.

A shape lives for one HTTP request. What does not change between pieces is put together once: a piece is sent per decode
round.
"""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from uad.events import Delta
from uad.server.job import Job, settings_json
from uad.server.json_out import PING, dumps, dumps_large
from uad.server.outcome import Json, Outcome, completion_logprobs_json, logprobs_json, n_chars, stats_json, usage_json
from uad.server.problems import Problem

_ALPHABET = string.ascii_letters + string.digits


def new_id(prefix: str, length: int = 32) -> str:
    """A name that nothing else has: the prefix, and so many letters and digits."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(length))


class Shape(Protocol):
    """How one route answers."""

    ends_with_done: bool

    def opening(self, outcome: Outcome) -> list[str]:
        """JSON texts that a stream has before the first event of a sequence."""
        ...

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """JSON texts of a streamed piece of one sequence; none where there is nothing to show."""
        ...

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """JSON texts at the end of a sequence in a stream; finished: all sequences after the last one, else empty."""
        ...

    def whole(self, outcomes: Sequence[Outcome]) -> object:
        """The answer that is not streamed, to be written as JSON."""
        ...


class NamedEvents:
    """Base of answers of one sequence whose streams have named events: each JSON text is an object that begins with its
    `type`. `ping` is sent where nothing is said for a while; `depth` is how deep in a whole answer long lists lie.
    """

    ends_with_done = False
    ping = PING
    depth = 6

    def failed(self, problem: Problem) -> list[str]:
        """JSON texts at the end of a stream that breaks off."""
        raise NotImplementedError


class Identity:
    """Members that every object of one OpenAI answer repeats."""

    def __init__(self, prefix: str, model: str, fingerprint: str) -> None:
        self.members: Json = {
            "created": int(time.time()),
            "id": new_id(prefix),
            "model": model,
            "system_fingerprint": fingerprint,
        }

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
            chunks.append(
                {"choices": [], **self._same.json("chat.completion.chunk"), "usage": usage_json(finished, self._job.n)}
            )
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
        return {
            "text": outcome.text,
            "index": outcome.index,
            "logprobs": logprobs,
            "finish_reason": str(outcome.end.finish),
        }


class NativeShape:
    """POST /completion and /completions."""

    ends_with_done = False

    def __init__(self, job: Job, model: str, return_tokens: bool, fields: Sequence[str]) -> None:
        self._job = job
        self._model = model
        self._return_tokens = return_tokens
        self._fields = fields

    def opening(self, outcome: Outcome) -> list[str]:
        """Nothing: the first object is text."""
        return []

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """A piece of text with its ids."""
        if not delta.text and not delta.ids:
            return []
        out: Json = {"index": outcome.index, "content": delta.text, "tokens": delta.ids, "stop": False}
        out |= {"tokens_predicted": len(outcome.ids), "tokens_evaluated": len(self._job.requests[outcome.index].prompt)}
        if delta.probs:
            out["completion_probabilities"] = logprobs_json(delta.probs)
            return [dumps_large(out)]
        return [dumps(out)]

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """The last object of one sequence, without text."""
        return [dumps(self._final(outcome, "", []))]

    def whole(self, outcomes: Sequence[Outcome]) -> object:
        """The answer in one object, or a list of them for several sequences."""
        answers = [self._answer(outcome) for outcome in outcomes]
        return answers[0] if len(answers) == 1 else answers

    def _answer(self, outcome: Outcome) -> Json:
        out = self._final(outcome, outcome.text, outcome.ids if self._return_tokens else [])
        if outcome.probs and (not self._fields or "completion_probabilities" in self._fields):
            out["completion_probabilities"] = logprobs_json(outcome.probs)
        return out

    def _final(self, outcome: Outcome, text: str, ids: list[int]) -> Json:
        done = outcome.end
        request = self._job.requests[outcome.index]
        out: Json = {
            "index": outcome.index,
            "content": text,
            "tokens": ids,
            "id_slot": done.slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": done.usage.n_predicted,
            "tokens_evaluated": done.usage.n_prompt,
            "generation_settings": settings_json(request, self._job.drafters, done.seed, self._job.stream),
            "prompt": self._job.prompts[outcome.index].text,
            "has_new_line": outcome.has_new_line,
            "truncated": done.truncated,
            "stop_type": str(done.stop_kind),
            "stopping_word": done.stopping_word,
            "tokens_cached": done.usage.n_prompt + max(done.usage.n_predicted - 1, 0),
            **stats_json([outcome]),
        }
        return chosen(out, self._fields) if self._fields else out


def chosen(out: Json, fields: Sequence[str]) -> Json:
    """Only the members in `fields`; `a/b` takes member b of member a, and stays its name. Unknown ones are left out."""
    found: Json = {}
    for name in fields:
        value: object = out
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            found[name] = value
    return found
