"""GET /metrics: counters in Prometheus' text format, under llama-server's names; what it has no name for is under `uad:`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uad.server.state import State
from uad.types import DrafterStats


@dataclass(frozen=True, slots=True)
class Metric:
    """One number with its meaning."""

    name: str
    kind: str
    help: str
    value: float

    def lines(self) -> str:
        """HELP, TYPE and the value."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n{self.name} {self.value}\n"


def render(state: State) -> str:
    """All metrics. The throughput gauges cover the time since the last call."""
    metrics = "".join(metric.lines() for metric in [*_counters(state), *_draft_counters(state), *_gauges(state)])
    return metrics + _by_drafter(state.engine.drafters())


def _counters(state: State) -> list[Metric]:
    totals, tally = state.engine.totals(), state.tally
    return [
        _counter("llamacpp:prompt_tokens_total", "Prompt tokens processed, without those reused from the cache", totals.n_prompt),
        _counter("llamacpp:prompt_tokens_cached_total", "Prompt tokens reused from the cache", tally.n_cached),
        _counter("llamacpp:prompt_seconds_total", "Time spent on prompts", tally.prompt_ms / 1e3),
        _counter("llamacpp:tokens_predicted_total", "Tokens generated", totals.n_predicted),
        _counter("llamacpp:tokens_predicted_seconds_total", "Time spent generating", tally.predicted_ms / 1e3),
        _counter("llamacpp:n_decode_total", "Decodes of the target model", totals.n_decodes),
        _counter("llamacpp:n_tokens_max", "Longest sequence so far, prompt and answer", tally.n_tokens_max),
        _counter("uad:requests_total", "Sequences generated", totals.n_requests),
        _counter("uad:requests_failed_total", "Sequences that ended with an error", totals.n_failed),
    ]


def _draft_counters(state: State) -> list[Metric]:
    draft = state.engine.totals().draft
    return [
        _counter("llamacpp:spec_decode_num_draft_tokens_total", "Target tokens proposed by drafts", draft.n_drafted),
        _counter("llamacpp:spec_decode_num_accepted_tokens_total", "Drafted tokens that the target accepted", draft.n_accepted),
        _counter("llamacpp:spec_decode_num_drafts_total", "Drafts verified", draft.n_drafts),
        _counter("uad:draft_tokens_salvaged_total", "Drafted tokens kept from an earlier round", draft.n_salvaged),
        _counter("uad:drafts_healed_total", "Drafts that chose bytes behind the edge anew", draft.n_healed),
        _counter("uad:draft_seconds_total", "Time spent drafting", draft.draft_ms / 1e3),
        _counter("uad:translation_words_total", "Words looked up in the translation caches of drafts", draft.crossing.n_words),
        _counter("uad:translation_words_cached_total", "Words that the translation caches knew", draft.crossing.n_known),
        _counter(
            "uad:policy_failures_total", "Times the policy failed; nothing drafts for a while then", state.engine.totals().n_policy_failures
        ),
        _counter("uad:translation_seconds_total", "Time spent on mirrors and translation, within drafting", draft.crossing.us / 1e6),
    ]


def _by_drafter(drafters: Sequence[DrafterStats]) -> str:
    """One labelled sample per drafter."""
    families = (
        ("calls", "Times a drafter was asked, per sequence", [one.n_calls for one in drafters]),
        ("drafts", "Drafts submitted to the target", [one.n_drafts for one in drafters]),
        ("tokens_drafted", "Tokens of those drafts", [one.n_drafted for one in drafters]),
        ("tokens_accepted", "Drafted tokens that the target accepted", [one.n_accepted for one in drafters]),
        ("seconds", "Time a drafter took", [one.ms / 1e3 for one in drafters]),
        ("failures", "Times a drafter failed, after which it is off for a while", [one.n_failures for one in drafters]),
    )
    if not drafters:
        return ""
    counters = "".join(_family(f"uad:drafter_{name}_total", "counter", text, drafters, values) for name, text, values in families)
    is_off = [int(one.is_off) for one in drafters]
    return counters + _family("uad:drafter_off", "gauge", "Whether a drafter is off after a failure", drafters, is_off)


def _family(name: str, kind: str, text: str, drafters: Sequence[DrafterStats], values: Sequence[float]) -> str:
    samples = "".join(f'{name}{{type="{one.origin}"}} {value}\n' for one, value in zip(drafters, values, strict=True))
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{samples}"


def _gauges(state: State) -> list[Metric]:
    prompt, predicted = state.tally.window_prompt, state.tally.window_predicted
    state.tally.window_prompt = state.tally.window_predicted = (0, 0.0)
    n_busy = sum(slot.is_processing for slot in state.engine.slots())
    return [
        _gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens per second since the last scrape", _rate(prompt)),
        _gauge("llamacpp:predicted_tokens_seconds", "Generated tokens per second since the last scrape", _rate(predicted)),
        _gauge("llamacpp:requests_processing", "Sequences in a slot", n_busy),
        _gauge("llamacpp:requests_deferred", "Sequences waiting for a slot", max(state.gate.n_inside - n_busy, 0)),
    ]


def _counter(name: str, text: str, value: float) -> Metric:
    return Metric(name, "counter", text, value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return Metric(name, "gauge", text, value)


def _rate(window: tuple[int, float]) -> float:
    n, ms = window
    return 1e3 * n / ms if ms > 0 else 0.0
