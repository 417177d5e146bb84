"""The costs of decodes on machines that were measured, and on imagined GPUs. Milliseconds."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rounds import Recording

from uad.base.common.row_costs import cost_of_rows
from uad.base.types import MODELS, Origin

KERNELS = Path(__file__).with_name("kernels.csv")
_GPU_MS = 20.0
_DRAFT = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class Curve:
    """target[n - 1]: one pass of n rows; beyond the last one with the slope of the last half. step: a step of the draft
    model; reading an id takes read_ms. call_ms: what a call takes beside its decodes, look_ms a look into the text,
    loop_ms a round's own work. changes: what the first single rows after one of several take longer. n_free ids of a
    draft are taken back at no cost, more for keep_ms. beside: what further draft models cost.
    """

    name: str
    target: tuple[float, ...]
    step: float
    read_ms: float
    call_ms: float = 0.7
    look_ms: float = 0.05
    loop_ms: float = 0.3
    draft: str = ""
    changes: tuple[float, ...] = ()
    n_free: int = 1 << 30
    keep_ms: float = 0.0
    beside: tuple[Curve, ...] = ()

    def of(self, origin: str) -> Curve:
        """The costs of this draft model."""
        return dict(zip(MODELS, (self, *self.beside), strict=False))[Origin(origin)]

    def with_memory(self, n_free: str, share: str) -> Curve:
        """The same where a draft of more than n_free ids needs a checkpoint, which takes this share of a plain
        decode.
        """
        return replace(self, n_free=int(n_free), keep_ms=float(share) * self.target_ms(1))

    def target_ms(self, n: int) -> float:
        last = len(self.target)
        if n <= last:
            return self.target[n - 1]
        return self.target[-1] + (n - last) * (self.target[-1] - self.target[last // 2 - 1]) / (last - last // 2)

    def step_ms(self, n_seq: int) -> float:
        """Milliseconds of one draft step of n_seq sequences."""
        return self.step * (1.0 + 0.15 * (n_seq - 1))


def gpu(name: str, n_flat: int, share: float) -> Curve:
    """A target whose passes cost the same up to n_flat rows, then rise; a draft's step takes this share of one."""
    target = tuple(_GPU_MS * (1.0 + max(n - n_flat, 0) * 0.5 / n_flat) for n in range(1, 65))
    return Curve(name, target, _GPU_MS * share, _GPU_MS * share / 8, call_ms=0.7)


GPUS = tuple(gpu(f"flat{n}-1/{part}", n, 1 / part) for n in (8, 16) for part in (10, 20, 40))


def _ms(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


# Qwen2.5-Coder-1.5B after 256 positions, on two AVX-512 cores (AMD EPYC, 2026-11-25): passes of 1 to 24 rows
_Q8_0 = _ms(
    "72.5 115.3 123.3 128.5 208.0 208.8 243.2 203.1 273.3 296.3 308.7 277.7 "
    "341.5 373.9 369.7 318.8 411.9 424.3 445.5 387.5 491.6 483.6 494.8 442.4"
)
_BF16 = _ms(
    "82.9 115.5 132.5 144.7 165.2 162.5 178.8 193.2 200.5 213.5 228.7 234.9 "
    "247.6 252.8 272.7 276.7 290.3 305.2 311.8 327.2 339.9 350.1 357.5 376.9"
)
# On an H100 (2026-11-26), passes of 1 to 33 rows, those of several after one of another size: Q4_K_M, and the same
# model scaled to 14B in BF16 (`scale.py`)
_H100_SMALL = _ms(
    "1.79 3.32 3.32 3.44 3.57 3.81 4.02 4.28 5.41 5.44 5.47 5.50 5.58 5.60 5.62 5.66 5.85 5.90 5.94 5.96 6.01 6.05 "
    "6.06 6.09 6.33 6.36 6.39 6.44 6.46 6.49 6.53 6.55 6.81"
)
_H100_LARGE = _ms(
    "10.80 14.45 14.87 14.91 15.19 15.19 15.45 15.46 15.71 15.69 15.81 15.77 15.99 16.02 16.05 16.10 15.17 15.18 15.17 "
    "15.26 15.27 15.32 15.38 15.47 15.55 15.52 15.77 15.65 15.62 15.95 15.94 15.81 15.93"
)
MEASURED: tuple[Curve, ...] = (
    Curve("bf16", _BF16, step=9.4, read_ms=3.5, draft=_DRAFT),
    Curve("q8_0", _Q8_0, step=9.4, read_ms=3.5, draft=_DRAFT),
    Curve("bf16,fast", _BF16, step=6.0, read_ms=1.2, draft=_DRAFT),
    Curve("q8_0,fast", _Q8_0, step=6.0, read_ms=1.2, draft=_DRAFT),
    Curve("h100-1.5b", _H100_SMALL, step=1.1, read_ms=0.1, loop_ms=0.17, draft=_DRAFT, changes=(0.72, 0.91)),
    Curve("h100-14b", _H100_LARGE, step=1.1, read_ms=0.1, loop_ms=0.17, draft=_DRAFT, changes=(1.0, 1.0)),
    Curve("bf16", _BF16, step=26.0, read_ms=9.0, draft="qwen2.5-coder-0.5b"),
    Curve("q8_0", _Q8_0, step=26.0, read_ms=9.0, draft="qwen2.5-coder-0.5b"),
)


def read_curves(path: Path) -> tuple[Curve, ...]:
    """Curves of a file like `kernels.csv`: a column for each number of rows, the first of one row, between which passes
    lie on straight lines; the draft's step, and what it takes to read an id. Raises OSError or ValueError.
    """
    with path.open(newline="") as file:
        return tuple(map(_curve, csv.DictReader(file)))


def _curve(row: dict[str, str]) -> Curve:
    points = [(int(key), float(ms)) for key, ms in row.items() if key.isdigit()]
    target = tuple(cost_of_rows(points, n) for n in range(1, points[-1][0] + 1))
    return Curve(row["name"], target, float(row["step"]), float(row["read"]), draft=_DRAFT)


def curves(recording: Recording, names: Sequence[str], path: Path = KERNELS) -> Iterator[Curve]:
    """Those of these names, or all that are for this draft; the file's curves are among them."""
    for curve in (*MEASURED, *GPUS, *read_curves(path)):
        if (curve.name in names) if names else (not curve.draft or curve.draft == recording.draft):
            yield curve
