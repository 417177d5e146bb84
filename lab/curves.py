"""What decodes cost on machines that were measured, and on imagined GPUs. Milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rounds import Recording

_GPU_MS = 20.0


@dataclass(frozen=True, slots=True)
class Curve:
    """target[n - 1]: one pass of n rows; beyond the last one with the slope of the last half. step: a step of the draft model; reading an
    id takes read_ms. call_ms: what a call takes beside its decodes, look_ms a look into the text, loop_ms a round's own work."""

    name: str
    target: tuple[float, ...]
    step: float
    read_ms: float
    call_ms: float = 0.7
    look_ms: float = 0.05
    loop_ms: float = 0.3
    draft: str = ""

    def target_ms(self, n: int) -> float:
        last = len(self.target)
        if n <= last:
            return self.target[n - 1]
        return self.target[-1] + (n - last) * (self.target[-1] - self.target[last // 2 - 1]) / (last - last // 2)

    def step_ms(self, n_seq: int) -> float:
        """One draft step of so many sequences."""
        return self.step * (1.0 + 0.15 * (n_seq - 1))


def gpu(name: str, n_flat: int, share: float) -> Curve:
    """A target whose passes cost the same up to n_flat rows, then rise; a draft's step takes this share of one."""
    target = tuple(_GPU_MS * (1.0 + max(n - n_flat, 0) * 0.5 / n_flat) for n in range(1, 65))
    return Curve(name, target, _GPU_MS * share, _GPU_MS * share / 8, call_ms=0.7)


GPUS = tuple(gpu(f"flat{n}-1/{part}", n, 1 / part) for n in (8, 16) for part in (10, 20, 40))
MEASURED: tuple[Curve, ...] = ()


def curves(recording: Recording, names: Sequence[str]) -> Iterator[Curve]:
    """Those of these names, or all that are for this draft."""
    for curve in (*MEASURED, *GPUS):
        if (curve.name in names) if names else (not curve.draft or curve.draft == recording.draft):
            yield curve
