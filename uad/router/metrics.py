"""GET /metrics of a router: what the processes of models count, with a label `model`, and what it counts itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from uad.router.instances import LoadState
from uad.router.pool import ModelPool

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S.*)")


def render(pool: ModelPool, texts: Mapping[str, str]) -> str:
    """All metrics; `texts` are those of the processes, by the names of their models."""
    families: dict[str, list[str]] = {}
    heads: dict[str, str] = {}
    for model, text in texts.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                # HELP and TYPE of a family, once
                before = heads.get(family, "")
                if line.split(" ", 2)[1] not in before:
                    heads[family] = f"{before}{line}\n"
            elif sample := _SAMPLE.fullmatch(line):
                labels = _labels(model) + ("," + sample[2] if sample[2] else "")
                families.setdefault(family, []).append(f"{sample[1]}{{{labels}}} {sample[3]}")
    lines = [line for family, samples in families.items() for line in (*heads[family].splitlines(), *samples)]
    return "".join(f"{line}\n" for line in (*lines, *_own(pool)))


def _labels(model: str) -> str:
    escaped = model.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'model="{escaped}"'


def _own(pool: ModelPool) -> Iterator[str]:
    models = pool.models.values()
    yield from _family("uad:router_models", "gauge", "Models by state", (
        (f'state="{state}"', sum(pooled.state is state for pooled in models)) for state in LoadState
    ))  # fmt: skip
    yield from _family("uad:router_waiting", "gauge", "Requests that wait for a load", (("", pool.n_waiting),))
    counted = {
        "uad:router_requests_total": ("Requests sent to a model", "n_requests"),
        "uad:router_loads_total": ("Times that a model was loaded", "n_loads"),
        "uad:router_load_seconds_total": ("Time that this took", "load_s"),
        "uad:router_failures_total": ("Times that the process of a model failed", "n_failed"),
        "uad:router_evictions_total": ("Times that a model made room for another", "n_evicted"),
    }
    for name, (text, count) in counted.items():
        samples = ((_labels(pooled.model.name), getattr(pooled.counts, count)) for pooled in models)
        yield from _family(name, "counter", text, samples)


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    yield from (f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}" for labels, value in samples)
