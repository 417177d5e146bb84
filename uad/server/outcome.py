"""Numbers of finished sequences as clients read them: usage, timings, draft statistics, log-probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from uad.server.wire import finite, visible
from uad.types import Delta, Done, DraftStats, Timings, TokenProb, Usage

Json = dict[str, object]


@dataclass(slots=True)
class Outcome:
    """One sequence as far as it has come."""

    index: int
    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    probs: list[TokenProb] = field(default_factory=list)
    has_new_line: bool = False
    done: Done | None = None

    def observe(self, delta: Delta, keep: bool) -> None:
        """Take in one piece; its text and probabilities only if the answer is sent as a whole."""
        self.ids += delta.ids
        self.has_new_line = self.has_new_line or "\n" in delta.text
        if keep:
            self.texts.append(delta.text)
            self.probs += delta.probs

    @property
    def n_chars(self) -> int:
        """The length of the kept text."""
        return sum(len(text) for text in self.texts)

    @property
    def text(self) -> str:
        """The kept text."""
        return "".join(self.texts)

    @property
    def end(self) -> Done:
        """The last event, of a sequence that is known to have ended."""
        if self.done is None:
            raise AssertionError("the sequence is still running")
        return self.done


def usage_json(outcomes: Sequence[Outcome], n: int) -> Json:
    """OpenAI's usage over all sequences; a prompt with `n` choices counts once."""
    total = _summed([outcome.end.usage for outcome in outcomes], n)
    return {
        "completion_tokens": total.n_predicted,
        "prompt_tokens": total.n_prompt,
        "total_tokens": total.n_predicted + total.n_prompt,
        "prompt_tokens_details": {"cached_tokens": total.n_cached},
    }


def _summed(usages: Sequence[Usage], n: int) -> Usage:
    firsts = usages[::n]
    return Usage(sum(u.n_prompt for u in firsts), sum(u.n_cached for u in firsts), sum(u.n_predicted for u in usages))


def timings_json(timings: Sequence[Timings]) -> Json:
    """llama-server's `timings`, added up over the sequences; members are always finite numbers."""
    total = add_timings(timings)
    n_steps = max(total.n_predicted - len(timings), 1)
    out: Json = {
        "cache_n": total.n_cached,
        "prompt_n": total.n_prompt,
        "prompt_ms": finite(total.prompt_ms),
        "prompt_per_token_ms": finite(total.prompt_ms / max(total.n_prompt, 1)),
        "prompt_per_second": finite(total.prompt_per_second),
        "predicted_n": total.n_predicted,
        "predicted_ms": finite(total.predicted_ms),
        "predicted_per_token_ms": finite(total.predicted_ms / n_steps),
        "predicted_per_second": finite(total.predicted_per_second),
    }
    if total.draft.n_drafted > 0:
        out |= {"draft_n": total.draft.n_drafted, "draft_n_accepted": total.draft.n_accepted}
    if total.draft.crossing.n_words > 0:
        out |= _translation_json(total.draft)
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
            one.origin: {"drafts": one.n_drafts, "draft_n": one.n_drafted, "draft_n_accepted": one.n_accepted} for one in stats.by
        },
    }


def stats_json(outcomes: Sequence[Outcome]) -> Json:
    """`timings` and `uad`, as members to be merged into the last object of an answer."""
    timings = [outcome.end.timings for outcome in outcomes]
    return {"timings": timings_json(timings), "uad": draft_json(add_timings(timings).draft)}


def add_timings(timings: Sequence[Timings]) -> Timings:
    """Sums over sequences: times are work, not elapsed time."""
    if len(timings) == 1:
        return timings[0]
    return Timings(
        prompt_ms=sum(t.prompt_ms for t in timings),
        predicted_ms=sum(t.predicted_ms for t in timings),
        n_prompt=sum(t.n_prompt for t in timings),
        n_cached=sum(t.n_cached for t in timings),
        n_predicted=sum(t.n_predicted for t in timings),
        draft=sum((t.draft for t in timings), DraftStats()),
    )


def logprobs_json(probs: Iterable[TokenProb]) -> Iterator[Json]:
    """OpenAI's `logprobs.content`, for `dumps_large`: text without half characters, bytes exact, log(0) as the lowest float."""
    return ({**_token_json(prob), "top_logprobs": [_token_json(other) for other in prob.top]} for prob in probs)


def completion_logprobs_json(probs: Sequence[TokenProb], offset: int) -> Json:
    """The same beside the members of OpenAI's completions; `offset` is where in the answer the first token begins, in characters.

    Of several alternatives with one text the likeliest stays.
    """
    offsets = accumulate((n_chars(prob.data) for prob in probs[:-1]), initial=offset) if probs else []
    return {
        "content": logprobs_json(probs),
        "tokens": (visible(prob.data) for prob in probs),
        "token_logprobs": (finite(prob.logprob) for prob in probs),
        "top_logprobs": ({visible(other.data): finite(other.logprob) for other in reversed(prob.top)} for prob in probs),
        "text_offset": offsets,
    }


def n_chars(data: bytes) -> int:
    """How many characters begin in these bytes."""
    return sum(byte & 0xC0 != 0x80 for byte in data)


def _token_json(prob: TokenProb) -> Json:
    return {"id": prob.id, "token": visible(prob.data), "bytes": list(prob.data), "logprob": finite(prob.logprob)}
