"""The dialect of llama-server's own API, and the settings of a request as answers repeat them under its names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from uad.base.common.json_out import Json
from uad.base.common.samplers import SETTINGS
from uad.base.events import Delta
from uad.base.types import Origin, Request, SamplingParams, SpeculativeParams
from uad.http.apis.api import AnswerRoute, Api, Called
from uad.http.apis.choice import Choice, logprobs_json, stats_json
from uad.http.apis.dialect import Dialect, Frame, JsonMembers, Served, Translated, read_prompted
from uad.http.apis.embeddings import NATIVE_EMBEDDINGS
from uad.http.requests.chat import Reading
from uad.http.requests.fields import REQUEST_ROWS, InfillBody, NativeBody
from uad.http.requests.job import Job


def read_native(members: Mapping[str, object], called: Called) -> Translated[NativeBody]:
    """POST /completion. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    return read_prompted(members, NativeBody)


def read_infill(members: Mapping[str, object], called: Called) -> Translated[InfillBody]:
    """POST /infill. Raises as `read_native` does."""
    return read_prompted(members, InfillBody)


class NativeDialect(Dialect):
    """POST /completion and /completions. fields: the members of the end of the answer that are wanted, if not all."""

    def __init__(self, job: Job, served: Served, return_tokens: bool = False, fields: Sequence[str] = ()) -> None:
        super().__init__(job)
        self._model = served.model
        self._return_tokens = return_tokens
        self._fields = fields

    def piece(self, choice: Choice, delta: Delta) -> Iterator[Frame]:
        """An object for each token, drafted ones too, as llama-server has them; the last text may have none. In a whole
        answer tokens without probabilities need not be apart.
        """
        n_before = len(choice.ids) - len(delta.ids)
        if not delta.ids or not (self.job.stream or delta.probs):
            if delta.text or delta.ids:
                yield self._token(choice, delta.text, list(delta.ids), len(choice.ids))
            return
        for i, (id_, text) in enumerate(zip(delta.ids, delta.pieces, strict=True)):
            out = self._token(choice, text, [id_], n_before + i + 1)
            if delta.probs:
                out["completion_probabilities"] = logprobs_json(delta.probs[i : i + 1], self.job.post_sampling)
            yield out

    def blank(self, choice: Choice) -> JsonMembers:
        """An object without text."""
        return self._token(choice, "", [], len(choice.ids))

    def _token(self, choice: Choice, text: str, ids: list[int], n_predicted: int) -> JsonMembers:
        return {
            "index": choice.index,
            "content": text,
            "tokens": ids,
            "stop": False,
            "tokens_predicted": n_predicted,
            "tokens_evaluated": len(choice.request.prompt),
        }

    def closing(self, choice: Choice, finished: Sequence[Choice]) -> Iterator[Frame]:
        """The last object of one sequence, without text."""
        done = choice.end
        out: JsonMembers = {
            "index": choice.index,
            "content": "",
            "tokens": [],
            "id_slot": done.slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": done.usage.n_predicted,
            "tokens_evaluated": done.usage.n_prompt,
            "generation_settings": settings_json(self.job, choice.request, done.seed),
            "prompt": choice.prompt.text,
            "has_new_line": choice.has_new_line,
            "truncated": done.truncated,
            "stop_type": str(done.stop_kind),
            "stopping_word": done.stopping_word,
            "tokens_cached": done.usage.n_prompt + max(done.usage.n_predicted - 1, 0),
            **stats_json([choice]),
        }
        # The fold needs the index and fills in the text: it chooses then
        yield chosen(out, self._fields) if self._fields and self.job.stream else out

    def fold(self, frames: Iterable[Frame]) -> object:
        """The last object of each sequence with the text of all before it; a list for several sequences."""
        by_choice: list[list[JsonMembers]] = [[] for _ in self.choices]
        for frame in frames:
            members = self.members_of(frame)
            by_choice[members["index"]].append(members)
        answers = [self._folded(frames) for frames in by_choice]
        return answers[0] if len(answers) == 1 else answers

    def _folded(self, frames: Sequence[JsonMembers]) -> JsonMembers:
        tokens = list(chain.from_iterable(frame["tokens"] for frame in frames)) if self._return_tokens else []
        out = {**frames[-1], "content": "".join(frame["content"] for frame in frames), "tokens": tokens}
        out = chosen(out, self._fields) if self._fields else out
        name = "completion_probabilities"
        probs = [frame[name] for frame in frames if name in frame]
        if probs and (not self._fields or name in self._fields):
            out[name] = chain.from_iterable(probs)
        return out


def chosen(out: JsonMembers, fields: Sequence[str]) -> JsonMembers:
    """Only the members in `fields`; `a/b` takes member b of member a, and stays its name. Unknown ones are left out."""
    members: JsonMembers = {}
    for name in fields:
        value: object = out
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            members[name] = value
    return members


# --- settings: sampling, draft control, limits


def settings_json(job: Job, request: Request, seed: int | None) -> Json:
    """`generation_settings` of one request of a job, with the seed that was drawn."""
    n_predict = -1 if request.max_tokens is None else request.max_tokens
    return {
        **sampling_json(request.sampling, seed, _banned(job, request)),
        "max_tokens": n_predict,
        "n_predict": n_predict,
        **{row.name or name: getattr(request, name) for name, row in REQUEST_ROWS.items() if row.is_echoed},
        **speculative_json(request.speculative, job.drafters),
    }


def _banned(job: Job, request: Request) -> list[int]:
    """The ends that `ignore_eos` bans: not those that the request itself stops at."""
    asked = {id_ for id_, name in job.eog.items() if name and any(name in word for word in request.stop)}
    return [id_ for id_ in job.eog if request.sampling.ignore_eos and id_ not in asked | set(request.stop_token_ids)]


def speculative_json(params: SpeculativeParams, drafters: Sequence[Origin]) -> Json:
    """Draft control under the flat names that llama-server has or once had. drafters: those that draft with it."""
    return {
        "speculative.enabled": params.enabled,
        "speculative.n_max": params.longest,
        "speculative.n_min": params.n_min,
        "speculative.p_min": params.p_min,
        "speculative.policy": params.policy,
        "speculative.types": ",".join(drafters) or "none",
    }


def sampling_json(params: SamplingParams, seed: int | None, banned: Sequence[int] = ()) -> Json:
    """Sampling parameters under llama-server's names. banned: ends that `ignore_eos` bans. A ban is null, as there."""
    biases = (*params.logit_bias, *((id_, -math.inf) for id_ in banned))
    return {
        "seed": -1 if seed is None else seed,
        **{name: getattr(params, name) for name in SETTINGS},
        "dry_sequence_breakers": params.dry_sequence_breakers,
        "ignore_eos": params.ignore_eos,
        "logit_bias": [{"token": id_, "bias": None if math.isinf(bias) else bias} for id_, bias in biases],
        "samplers": params.samplers,
    }


def _answered(job: Job, served: Served, reading: Reading, body: NativeBody) -> NativeDialect:
    return NativeDialect(job, served, body.return_tokens, body.response_fields)


_COMPLETION = AnswerRoute(read_native, _answered)
NATIVE = Api(
    answers={
        "/completion": _COMPLETION,
        "/completions": _COMPLETION,
        "/infill": AnswerRoute(read_infill, _answered, takes_pictures=False),
    },
    embeds=NATIVE_EMBEDDINGS,
)
