"""GET /metrics: counters in Prometheus' text format, under llama-server's names; what it has no name for is under
`uad:`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from uad.base.events import CacheCounts, SleepState, SlotInfo, Totals
from uad.base.stats import DrafterStats
from uad.http.server.state import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(state: State) -> bytes:
    """All metrics. The throughput gauges cover the time since the last call."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(state))
    return generate_latest(registry)


class _Collected(Collector):
    """Counts of an application, at this moment."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        slots, totals, drafters, _ = self._state.engine.snapshot()
        before = self._state.scraped
        self._state.scraped = totals
        for name, (text, value) in {**_counters(totals), **_of_sleep(self._state.engine.sleep)}.items():
            yield CounterMetricFamily(name, text, value)
        for name, (text, value) in self._gauges(slots, totals, before).items():
            yield GaugeMetricFamily(name, text, value)
        yield _hits(totals.cache)
        yield from _by_drafter(drafters)

    def _gauges(self, slots: Iterable[SlotInfo], totals: Totals, before: Totals) -> dict[str, tuple[str, float]]:
        n_busy = sum(slot.is_processing for slot in slots)
        prompt_ms, predicted_ms = totals.prompt_ms - before.prompt_ms, totals.predicted_ms - before.predicted_ms
        return {
            "llamacpp:prompt_tokens_seconds": (
                "Prompt tokens per second since the last scrape",
                _rate(totals.n_prompt - before.n_prompt, prompt_ms),
            ),
            "llamacpp:predicted_tokens_seconds": (
                "Generated tokens per second since the last scrape",
                _rate(totals.n_next - before.n_next, predicted_ms),
            ),
            "llamacpp:requests_processing": ("Sequences in a slot", n_busy),
            "llamacpp:requests_deferred": (
                "Sequences waiting for a slot",
                max(self._state.admission.n_inside - n_busy, 0),
            ),
            # a counter for llama-server; but a name of a counter ends in _total, and what is drawn from it is a gauge
            "llamacpp:n_tokens_max": ("Longest sequence so far, prompt and answer", totals.n_tokens_max),
            "llamacpp:n_busy_slots_per_decode": (
                "Mean number of busy slots per decode of the target",
                totals.n_busy_slots / max(totals.n_decodes, 1),
            ),
            "uad:prompt_cache_texts": ("Texts in the prompt cache", totals.cache.n_texts),
            "uad:prompt_cache_bytes": ("Bytes of the prompt cache", totals.cache.n_bytes),
            "uad:prompt_cache_disk_texts": (
                "Texts in the prompt cache's files that fit this server",
                totals.cache.n_disk_texts,
            ),
            "uad:prompt_cache_disk_bytes": ("Bytes of the prompt cache's files", totals.cache.n_disk_bytes),
        }


def _counters(totals: Totals) -> dict[str, tuple[str, float]]:
    draft, crossing, cache = totals.draft, totals.draft.crossing, totals.cache
    return {
        "llamacpp:prompt_tokens_total": (
            "Prompt tokens processed, without those reused from the cache",
            totals.n_prompt,
        ),
        "llamacpp:prompt_tokens_cached_total": ("Prompt tokens reused from the cache", totals.n_cached),
        "llamacpp:prompt_seconds_total": ("Time spent on prompts", totals.prompt_ms / 1e3),
        "llamacpp:tokens_predicted_total": ("Tokens generated", totals.n_predicted),
        "llamacpp:tokens_predicted_seconds_total": ("Time spent generating", totals.predicted_ms / 1e3),
        "llamacpp:n_decode_total": ("Decodes of the target model", totals.n_decodes),
        "uad:requests_total": ("Sequences generated", totals.n_requests),
        "uad:requests_failed_total": ("Sequences that ended with an error", totals.n_failed),
        "uad:policy_failures_total": (
            "Times the policy failed; nothing drafts for a while then",
            totals.n_policy_failures,
        ),
        "llamacpp:spec_decode_num_draft_tokens_total": ("Target tokens proposed by drafts", draft.n_drafted),
        "llamacpp:spec_decode_num_accepted_tokens_total": ("Drafted tokens that the target accepted", draft.n_accepted),
        "llamacpp:spec_decode_num_drafts_total": ("Drafts verified", draft.n_drafts),
        "uad:draft_tokens_salvaged_total": ("Drafted tokens kept from an earlier round", draft.n_salvaged),
        "uad:drafts_healed_total": ("Drafts that chose the bytes after the edge once more", draft.n_healed),
        "uad:draft_seconds_total": ("Time spent drafting", draft.draft_ms / 1e3),
        "uad:translation_words_total": ("Words looked up in the translation caches of drafts", crossing.n_words),
        "uad:translation_words_cached_total": ("Words that the translation caches knew", crossing.n_known),
        "uad:translation_seconds_total": ("Time spent on mirrors and translation, within drafting", crossing.us / 1e6),
        "uad:prompt_cache_saved_total": ("Texts that left their slot and were kept", cache.n_saved),
        "uad:prompt_cache_restored_total": ("Kept texts that came back into a slot", cache.n_restored),
        "uad:prompt_cache_dropped_total": ("Kept texts that made room for others", cache.n_dropped),
        "uad:prompt_cache_seconds_total": ("Time that copies to and from the prompt cache took", cache.seconds),
        "uad:prompt_cache_seconds_saved_total": (
            "Time that reading prompts would have taken longer without the prompt cache, by their speed then",
            cache.saved_seconds,
        ),
        "uad:prompt_cache_disk_read_bytes_total": ("Bytes read from the prompt cache's files", cache.n_disk_read),
        "uad:prompt_cache_disk_written_bytes_total": (
            "Bytes written to the prompt cache's files",
            cache.n_disk_written,
        ),
    }


def _of_sleep(sleep: SleepState) -> dict[str, tuple[str, float]]:
    """They change when the models are loaded again, not while they are unloaded: as in llama-server, a scrape before
    sleep and one in it are the same.
    """
    return {
        "uad:wakes_total": ("Times that the models were loaded again after sleep", sleep.n_wakes),
        "uad:wakes_failed_total": ("Times that the models could not be loaded again after sleep", sleep.n_failed),
        "uad:asleep_seconds_total": ("Time that the models were unloaded", sleep.asleep_s),
        "uad:wake_seconds_total": ("Time that loading the models again took", sleep.loading_s),
    }


def _hits(cache: CacheCounts) -> Metric:
    """Prompts that went on from a text of the prompt cache, by where it lay."""
    family = CounterMetricFamily(
        "uad:prompt_cache_hits_total", "Prompts that went on from a kept text", labels=["level"]
    )
    family.add_metric(["memory"], cache.n_restored - cache.n_from_disk)
    family.add_metric(["disk"], cache.n_from_disk)
    return family


def _by_drafter(drafters: tuple[DrafterStats, ...]) -> Iterator[Metric]:
    """Families with one labelled sample per drafter."""
    if not drafters:
        return
    families: dict[str, tuple[str, list[float]]] = {
        "calls": ("Times a drafter was asked, per sequence", [drafter.n_calls for drafter in drafters]),
        "drafts": ("Drafts submitted to the target", [drafter.n_drafts for drafter in drafters]),
        "tokens_drafted": ("Tokens of those drafts", [drafter.n_drafted for drafter in drafters]),
        "tokens_accepted": ("Drafted tokens that the target accepted", [drafter.n_accepted for drafter in drafters]),
        "seconds": ("Time a drafter took", [drafter.ms / 1e3 for drafter in drafters]),
        "failures": (
            "Times a drafter failed, after which it is off for a while",
            [drafter.n_failures for drafter in drafters],
        ),
    }
    if (positions := _by_position(drafters)).samples:
        yield positions
    for name, (text, values) in families.items():
        yield _labelled(CounterMetricFamily(f"uad:drafter_{name}", text, labels=["type"]), drafters, values)
    is_off = GaugeMetricFamily("uad:drafter_off", "Whether a drafter is off after a failure", labels=["type"])
    yield _labelled(is_off, drafters, [float(drafter.is_off) for drafter in drafters])


def _by_position(drafters: tuple[DrafterStats, ...]) -> Metric:
    """An id at position i of a draft was accepted if more than i of its ids were."""
    text = "Accepted tokens per draft position"
    family = CounterMetricFamily("llamacpp:spec_decode_num_accepted_tokens_per_pos_total", text, labels=["position"])
    for i in range(max(len(drafter.accepted) for drafter in drafters) - 1):
        family.add_metric([str(i)], sum(sum(drafter.accepted[i + 1 :]) for drafter in drafters))
    return family


def _labelled(
    family: CounterMetricFamily | GaugeMetricFamily, drafters: tuple[DrafterStats, ...], values: list[float]
) -> CounterMetricFamily | GaugeMetricFamily:
    for drafter, value in zip(drafters, values, strict=True):
        family.add_metric([str(drafter.origin)], value)
    return family


def _rate(n: int, ms: float) -> float:
    return 1e3 * n / ms if ms > 0 else 0.0
