"""llama-server's own form of answers (POST /completion): events in, JSON texts out; no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from uad.server.job import Job
from uad.server.outcome import Json, Outcome, logprobs_json, stats_json
from uad.server.sampling import STAGES
from uad.server.wire import LOWEST, dumps, dumps_large
from uad.types import Delta, Origin, Request, SamplingParams, SpeculativeParams


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


def settings_json(request: Request, drafters: Sequence[Origin], seed: int | None, stream: bool) -> Json:
    """`generation_settings` of one request, with the seed that was drawn."""
    n_predict = -1 if request.max_tokens is None else request.max_tokens
    return {
        **sampling_json(request.sampling, seed),
        "max_tokens": n_predict,
        "n_predict": n_predict,
        "min_tokens": request.min_tokens,
        "stop": request.stop,
        "stop_token_ids": request.stop_token_ids,
        "include_stop_str_in_output": request.include_stop,
        "stream": stream,
        "n_probs": request.n_probs,
        **speculative_json(request.speculative, drafters),
    }


def sampling_json(params: SamplingParams, seed: int | None) -> Json:
    """Sampling parameters under llama-server's names."""
    return {
        "seed": -1 if seed is None else seed,
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "typical_p": params.typical_p,
        "repeat_last_n": params.repeat_last_n,
        "repeat_penalty": params.repeat_penalty,
        "frequency_penalty": params.frequency_penalty,
        "presence_penalty": params.presence_penalty,
        "ignore_eos": params.ignore_eos,
        "logit_bias": [{"token": id_, "bias": LOWEST if math.isinf(bias) else bias} for id_, bias in params.logit_bias],
        "samplers": list(STAGES),
    }


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
