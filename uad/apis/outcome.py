"""Numbers of finished sequences as clients read them: usage, timings, draft statistics, log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from uad.common.json_out import Json, finite, visible
from uad.common.sums import total
from uad.events import Delta, Done
from uad.stats import DraftStats, Timings
from uad.types import Finish, Origin, TokenProb


@dataclass(slots=True)
class Outcome:
    """One sequence as far as it has come. n_cached: ids of its prompt that were held, of a request that asks for
    progress.
    """

    index: int
    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    probs: list[TokenProb] = field(default_factory=list)
    prompt_probs: list[TokenProb] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    has_new_line: bool = False
    n_cached: int = 0
    done: Done | None = None

    def observe(self, delta: Delta, keep: bool) -> None:
        """Take in one piece; it is kept, text and probabilities, only if the answer is sent as a whole."""
        self.ids += delta.ids
        self.has_new_line = self.has_new_line or "\n" in delta.text
        if keep:
            self.texts.append(delta.text)
            self.probs += delta.probs
            self.deltas.append(delta)

    @property
    def mean_logprob(self) -> float:
        """The mean log-probability of its ids, of an answer whose probabilities were kept; 0 of one without ids."""
        return sum(prob.logprob for prob in self.probs) / len(self.probs) if self.probs else 0.0

    @property
    def n_chars(self) -> int:
        """The length of the kept text."""
        return sum(len(text) for text in self.texts)

    @property
    def text(self) -> str:
        """The kept text."""
        return "".join(self.texts)

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


def usage_json(outcomes: Sequence[Outcome], n: int) -> Json:
    """OpenAI's usage over all sequences; a prompt with `n` choices counts once."""
    usages = [outcome.end.usage for outcome in outcomes]
    n_predicted, prompts = total(usages).n_predicted, total(usages[::n])
    return {
        "completion_tokens": n_predicted,
        "prompt_tokens": prompts.n_prompt,
        "total_tokens": n_predicted + prompts.n_prompt,
        "prompt_tokens_details": {"cached_tokens": prompts.n_cached},
        "completion_tokens_details": {"reasoning_tokens": total(usages).n_thought, **prediction_json(outcomes)},
    }


def prediction_json(outcomes: Sequence[Outcome]) -> Json:
    """OpenAI's counts of a request with a prediction: ids of it that were submitted and became part of the answer, and
    those that did not. Nothing for other requests.
    """
    one = total([outcome.end.timings.draft for outcome in outcomes]).by.get(Origin.PREDICTION)
    if one is None:
        return {}
    return {
        "accepted_prediction_tokens": one.n_accepted,
        "rejected_prediction_tokens": one.n_drafted - one.n_accepted,
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
    """What llama-server has no names for, in an object of its own."""
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
            one.origin: {"drafts": one.n_drafts, "draft_n": one.n_drafted, "draft_n_accepted": one.n_accepted}
            for one in stats.by.values()
        },
    }


def stats_json(outcomes: Sequence[Outcome]) -> Json:
    """`timings` and `uad`, as members to be merged into the last object of an answer."""
    timings = [outcome.end.timings for outcome in outcomes]
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
            None if _known(prob) is None else {visible(one.data): finite(one.logprob) for one in reversed(prob.top)}
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
