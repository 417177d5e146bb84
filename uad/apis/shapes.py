"""The forms of an answer: OpenAI chat, OpenAI completion, llama-server native. Events in, JSON texts out; no I/O.

A shape lives for one HTTP request. What does not change between pieces is put together once: a piece is sent per decode
round.
"""

from __future__ import annotations

import secrets
import string
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from uad.apis.outcome import Outcome, completion_logprobs_json, logprobs_json, n_chars, stats_json, usage_json
from uad.apis.problems import Problem
from uad.apis.settings import settings_json
from uad.common.json_out import PING, Json, dumps, dumps_large, frame
from uad.events import Delta
from uad.requests.job import Job
from uad.types import TokenProb

_ALPHABET = string.ascii_letters + string.digits


def new_id(prefix: str, length: int = 32) -> str:
    """A name that nothing else has: the prefix, and so many letters and digits."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(length))


class Shape(ABC):
    """How one route answers."""

    ends_with_done = False
    ping = PING
    """Sent where nothing is said for a while."""
    depth = 5
    """How deep in a whole answer long lists lie."""
    frame = staticmethod(frame)
    """From a JSON text to what a stream has for it."""

    def opening(self, outcome: Outcome) -> list[str]:
        """JSON texts that a stream has before the first event of a sequence."""
        return []

    @abstractmethod
    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """JSON texts of a streamed piece of one sequence; none where there is nothing to show."""

    @abstractmethod
    def blank(self, outcome: Outcome) -> str:
        """The JSON text of a piece without text, to which members are added; empty where no such piece is sent."""

    @abstractmethod
    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """JSON texts at the end of a sequence in a stream; finished: all sequences after the last one, else empty."""

    @abstractmethod
    def whole(self, outcomes: Sequence[Outcome]) -> object:
        """The answer that is not streamed, to be written as JSON."""

    def failed(self, problem: Problem) -> list[str]:
        """JSON texts at the end of a stream that breaks off."""
        return [dumps(problem.body())]


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


class ChatShape(Shape):
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
            logprobs: Json = {"content": logprobs_json(delta.probs, self._job.post_sampling)}
            return [dumps_large(self._chunk(outcome.index, {"content": delta.text}, None, logprobs))]
        return [self._frames[outcome.index].fill(delta.text)] if delta.text else []

    def blank(self, outcome: Outcome) -> str:
        """A chunk that says nothing."""
        return dumps(self._chunk(outcome.index, {}, None))

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """The chunk with the reason, and the usage chunk after the last sequence if asked for."""
        chunks = [self._chunk(outcome.index, {}, self._finish(outcome))]
        if finished and self._job.include_usage:
            chunks.append(
                {"choices": [], **self._same.json("chat.completion.chunk"), "usage": usage_json(finished, self._job.n)}
            )
        if finished:
            chunks[-1] |= {**stats_json(finished), **self._verbose(finished)}
        return [dumps(chunk) for chunk in chunks]

    def whole(self, outcomes: Sequence[Outcome]) -> Json:
        """The answer in one object."""
        return {
            "choices": [self._choice(outcome) for outcome in outcomes],
            **self._same.json("chat.completion"),
            **({"prompt_token_ids": self._job.requests[0].prompt} if self._job.token_ids else {}),
            "usage": usage_json(outcomes, self._job.n),
            **stats_json(outcomes),
            **self._verbose(outcomes),
        }

    def _verbose(self, outcomes: Sequence[Outcome]) -> Json:
        """The answer in llama-server's own form beside it, with prompt and settings, if asked for."""
        if not self._job.is_verbose:
            return {}
        return {"__verbose": NativeShape(self._job, str(self._same.members["model"]), False, ()).whole(outcomes)}

    def _choice(self, outcome: Outcome) -> Json:
        message = self._message(outcome)
        choice: Json = {"finish_reason": self._finish(outcome), "index": outcome.index, "message": message}
        if self._job.requests[outcome.index].logprobs:
            choice["logprobs"] = {"content": logprobs_json(outcome.probs, self._job.post_sampling)}
        return choice | ({"token_ids": outcome.ids} if self._job.token_ids else {})

    def _message(self, outcome: Outcome) -> Json:
        return {"role": "assistant", "content": outcome.text}

    def _finish(self, outcome: Outcome) -> str:
        return str(outcome.end.finish)


class CompletionShape(Shape):
    """POST /v1/completions."""

    ends_with_done = True

    def __init__(self, job: Job, identity: Identity) -> None:
        self._job = job
        self._same = identity
        self._frames = [_Frames(self._chunk(i, "\0", None, None)) for i in range(len(job.requests))]
        self._offsets = [0] * len(job.requests)
        self._is_echoed: set[int] = set()

    def _chunk(self, index: int, text: str, finish: str | None, logprobs: Json | None) -> Json:
        choice: Json = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}
        return {"choices": [choice], **self._same.json("text_completion")}

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """A chunk of text, the prompt before the first if it is to be echoed; none for an empty piece."""
        echoed, index = self._echoed(outcome), outcome.index
        if delta.probs:
            return [*echoed, self._told(index, delta.text, delta.probs)]
        return [*echoed, self._frames[index].fill(delta.text)] if delta.text else echoed

    def _echoed(self, outcome: Outcome) -> list[str]:
        """The chunk with the prompt, once."""
        index, job = outcome.index, self._job
        if not job.echo or index in self._is_echoed:
            return []
        self._is_echoed.add(index)
        if job.requests[index].prompt_probs:
            return [self._told(index, job.prompts[index].text, outcome.prompt_probs)]
        return [self._frames[index].fill(job.prompts[index].text)]

    def _told(self, index: int, text: str, probs: Sequence[TokenProb]) -> str:
        logprobs = completion_logprobs_json(probs, self._offsets[index], self._job.post_sampling)
        self._offsets[index] += sum(n_chars(prob.data) for prob in probs)
        return dumps_large(self._chunk(index, text, None, logprobs))

    def blank(self, outcome: Outcome) -> str:
        """A chunk without text."""
        return self._frames[outcome.index].fill("")

    def closing(self, outcome: Outcome, finished: Sequence[Outcome]) -> list[str]:
        """The chunk with the reason; usage is in the last of them, or in a chunk of its own if asked for."""
        echoed, chunks = self._echoed(outcome), [self._chunk(outcome.index, "", str(outcome.end.finish), None)]
        if finished and self._job.include_usage:
            chunks.append({"choices": [], **self._same.json("text_completion")})
        if finished:
            chunks[-1] |= {"usage": usage_json(finished, self._job.n), **stats_json(finished)}
        return [*echoed, *(dumps(chunk) for chunk in chunks)]

    def whole(self, outcomes: Sequence[Outcome]) -> Json:
        """The answer in one object."""
        return {
            "choices": [self._choice(i, outcome) for i, outcome in enumerate(self._best(outcomes))],
            **self._same.json("text_completion"),
            "usage": usage_json(outcomes, self._job.n),
            **stats_json(outcomes),
        }

    def _best(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Of each prompt's answers those whose tokens are likeliest, the likeliest first; all, in order, if all are
        wanted.
        """
        job = self._job
        if job.n == job.n_best:
            return list(outcomes)
        by_prompt = [outcomes[start : start + job.n] for start in range(0, len(outcomes), job.n)]
        ranked = [sorted(its, key=lambda one: -one.mean_logprob)[: job.n_best] for its in by_prompt]
        return [outcome for its in ranked for outcome in its]

    def _choice(self, index: int, outcome: Outcome) -> Json:
        job, text, probs = self._job, outcome.text, outcome.probs
        if job.echo:
            text, probs = job.prompts[outcome.index].text + text, [*outcome.prompt_probs, *probs]
        logprobs = completion_logprobs_json(probs, 0, job.post_sampling) if job.logprobs else None
        choice: Json = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": str(outcome.end.finish)}
        if job.token_ids:
            choice |= {"prompt_token_ids": job.requests[outcome.index].prompt, "token_ids": outcome.ids}
        return choice


class NativeShape(Shape):
    """POST /completion and /completions."""

    def __init__(self, job: Job, model: str, return_tokens: bool, fields: Sequence[str]) -> None:
        self._job = job
        self._model = model
        self._return_tokens = return_tokens
        self._fields = fields

    def piece(self, outcome: Outcome, delta: Delta) -> list[str]:
        """An object for each token, drafted ones too, as llama-server has them; the last text may have none."""
        if not delta.ids:
            return [dumps(self._token(outcome, delta.text, [], len(outcome.ids)))] if delta.text else []
        n_before, texts = len(outcome.ids) - len(delta.ids), []
        for i, (id_, text) in enumerate(zip(delta.ids, delta.pieces, strict=True)):
            out = self._token(outcome, text, [id_], n_before + i + 1)
            if delta.probs:
                out["completion_probabilities"] = logprobs_json(delta.probs[i : i + 1], self._job.post_sampling)
            texts.append(dumps_large(out) if delta.probs else dumps(out))
        return texts

    def blank(self, outcome: Outcome) -> str:
        """An object without text."""
        return dumps(self._token(outcome, "", [], len(outcome.ids)))

    def _token(self, outcome: Outcome, text: str, ids: list[int], n_predicted: int) -> Json:
        n_prompt = len(self._job.requests[outcome.index].prompt)
        out: Json = {"index": outcome.index, "content": text, "tokens": ids, "stop": False}
        return out | {"tokens_predicted": n_predicted, "tokens_evaluated": n_prompt}

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
            out["completion_probabilities"] = logprobs_json(outcome.probs, self._job.post_sampling)
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
            "generation_settings": settings_json(self._job, request, done.seed),
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
