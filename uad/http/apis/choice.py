"""One sequence of an answer, and its numbers as clients read them: usage, timings, draft counts, log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from uad.base.common.json_out import Json, finite, visible
from uad.base.common.sums import total
from uad.base.events import Delta, Done
from uad.base.stats import DraftStats, Timings
from uad.base.types import Finish, Origin, Request, TokenProb
from uad.http.requests.prompt_ids import Prompt


@dataclass(slots=True)
class Choice:
    """One sequence of an answer, as far as it has come."""

    index: int
    request: Request
    prompt: Prompt
    ids: list[int] = field(default_factory=list)
    prompt_probs: list[TokenProb] = field(default_factory=list)
    has_new_line: bool = False
    n_cached: int = 0
    """Ids of its prompt that were held, of a request that asks for progress."""
    is_open: bool = False
    """Whether a frame of it may have been sent."""
    n_probs: int = 0
    logprob: float = 0.0
    """The sum over the answer's n_probs ids so far."""
    done: Done | None = None

    def observe(self, delta: Delta) -> None:
        """Count one piece. The dialect's frames hold its text."""
        self.ids += delta.ids
        self.has_new_line = self.has_new_line or "\n" in delta.text
        if delta.probs:
            self.n_probs += len(delta.probs)
            self.logprob += sum(prob.logprob for prob in delta.probs)

    @property
    def mean_logprob(self) -> float:
        """The mean log-probability of its ids, where they were asked for; 0 of one without ids."""
        return self.logprob / self.n_probs if self.n_probs else 0.0

    @property
    def is_cut(self) -> bool:
        """Whether it ended at a bound, and not where the model or a stop string ended it."""
        return self.end.finish is not Finish.STOP

    @property
    def end(self) -> Done:
        """The last event, of a sequence that is known to have ended."""
        if self.done is None:
            raise AssertionError("the sequence is still running")
        return self.done


def usage_json(choices: Sequence[Choice], n: int) -> Json:
    """OpenAI's usage over all sequences; a prompt with `n` choices counts once."""
    usages = [choice.end.usage for choice in choices]
    n_predicted, prompts = total(usages).n_predicted, total(usages[::n])
    return {
        "completion_tokens": n_predicted,
        "prompt_tokens": prompts.n_prompt,
        "total_tokens": n_predicted + prompts.n_prompt,
        "prompt_tokens_details": {"cached_tokens": prompts.n_cached},
        "completion_tokens_details": {"reasoning_tokens": total(usages).n_thought, **prediction_json(choices)},
    }


def prediction_json(choices: Sequence[Choice]) -> Json:
    """OpenAI's counts of a request with a prediction: ids of it that were submitted and became part of the answer, and
    those that did not. Nothing for other requests.
    """
    stats = total([choice.end.timings.draft for choice in choices]).by.get(Origin.PREDICTION)
    if stats is None:
        return {}
    return {
        "accepted_prediction_tokens": stats.n_accepted,
        "rejected_prediction_tokens": stats.n_drafted - stats.n_accepted,
    }


def timings_json(timings: Sequence[Timings]) -> Json:
    """llama-server's `timings`, added up over the sequences; members are always finite numbers."""
    all_ = total(timings)
    n_steps = max(all_.n_predicted - len(timings), 1)
    out: Json = {
        "cache_n": all_.n_cached,
        "prompt_n": all_.n_prompt,
        "prompt_ms": finite(all_.prompt_ms),
        "prompt_per_token_ms": finite(all_.prompt_ms / max(all_.n_prompt, 1)),
        "prompt_per_second": finite(all_.prompt_per_second),
        "predicted_n": all_.n_predicted,
        "predicted_ms": finite(all_.predicted_ms),
        "predicted_per_token_ms": finite(all_.predicted_ms / n_steps),
        "predicted_per_second": finite(all_.predicted_per_second),
    }
    if all_.draft.n_drafted > 0:
        out |= {"draft_n": all_.draft.n_drafted, "draft_n_accepted": all_.draft.n_accepted}
    if all_.draft.crossing.n_words > 0:
        out |= _translation_json(all_.draft)
    return out


def _translation_json(draft: DraftStats) -> Json:
    crossing = draft.crossing
    return {
        "translate_n": crossing.n_words,
        "translate_n_cached": crossing.n_known,
        "translate_hit_rate": round(finite(crossing.hit_rate), 4),
        "translate_us": round(finite(crossing.us), 1),
        "translate_per_round_us": round(finite(draft.translate_us), 1),
    }


def draft_json(stats: DraftStats) -> Json:
    """Numbers that llama-server has no names for, in an object of their own."""
    return {
        "rounds": stats.n_rounds,
        "drafts": stats.n_drafts,
        "healed": stats.n_healed,
        "salvaged": stats.n_salvaged,
        "rejected": stats.n_rejected,
        "accept_rate": round(finite(stats.accept_rate), 4),
        "mean_accepted_run": round(finite(stats.mean_accepted_run), 4),
        "draft_ms": round(finite(stats.draft_ms), 3),
        "drafters": {
            drafter.origin: {
                "drafts": drafter.n_drafts,
                "draft_n": drafter.n_drafted,
                "draft_n_accepted": drafter.n_accepted,
            }
            for drafter in stats.by.values()
        },
    }


def stats_json(choices: Sequence[Choice]) -> Json:
    """`timings` and `uad`, as members to be merged into the last object of an answer."""
    timings = [choice.end.timings for choice in choices]
    return {"timings": timings_json(timings), "uad": draft_json(total(timings).draft)}


def logprobs_json(probs: Iterable[TokenProb], post: bool = False) -> Iterator[Json]:
    """OpenAI's `logprobs.content`, for `dumps_large`: text without half characters, bytes exact, log(0) as the lowest
    float. post: probabilities in place of their logarithms, under llama-server's names.
    """
    name = "top_probs" if post else "top_logprobs"
    return ({**_token_json(prob, post), name: [_token_json(other, post) for other in prob.top]} for prob in probs)


def completion_logprobs_json(probs: Sequence[TokenProb], offset: int, post: bool = False) -> Json:
    """The same beside the members of OpenAI's completions; `offset` is where in the text the first token begins, in
    characters. The first token of an echoed prompt has none: null.

    Of several alternatives with one text the likeliest stays.
    """
    offsets = accumulate((n_chars(prob.data) for prob in probs[:-1]), initial=offset) if probs else []
    return {
        "content": logprobs_json(probs, post),
        "tokens": (visible(prob.data) for prob in probs),
        "token_logprobs": (_known(prob) for prob in probs),
        "top_logprobs": (
            None
            if _known(prob) is None
            else {visible(token.data): finite(token.logprob) for token in reversed(prob.top)}
            for prob in probs
        ),
        "text_offset": offsets,
    }


def _known(prob: TokenProb) -> float | None:
    return None if math.isnan(prob.logprob) else finite(prob.logprob)


def n_chars(data: bytes) -> int:
    """How many characters begin in these bytes."""
    return sum(byte & 0xC0 != 0x80 for byte in data)


def _token_json(prob: TokenProb, post: bool) -> Json:
    out: Json = {"id": prob.id, "token": visible(prob.data), "bytes": list(prob.data)}
    logprob = _known(prob)
    if not post:
        return {**out, "logprob": logprob}
    return {**out, "prob": None if logprob is None else math.exp(min(logprob, 0.0))}
