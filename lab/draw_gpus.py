"""Draws lab/gpus.png: what recorded answers would gain on cost curves like a GPU's. `python lab/draw_gpus.py` (a
minute).
"""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from curves import GPUS, Curve
from replay import automatic, calibrated_ms, hindsight_of, oracle_ms, score
from rounds import Recording, read

from uad.base.types import SpeculativeParams

HERE = Path(__file__).parent
DRAFTS = {"smollm2": "SmolLM2-135M, other vocabulary", "qwen0.5b": "Qwen2.5-Coder-0.5B, same vocabulary"}
COLOURS = {"policy": "#0072b2", "calibrated": "#e69f00", "oracle": "#999999"}


def speeds(recording: Recording, curve: Curve) -> dict[str, float]:
    """Over plain decoding: the policy, one that knows how often beliefs are right, one that knows which are."""
    answers = [one for one in recording.answers if len(one.ids) > 2]
    known = hindsight_of(recording.answers)
    plain = [(len(one.ids) - 1) * (curve.target_ms(1) + curve.loop_ms) for one in answers]
    runs = [
        score(recording, curve, automatic, SpeculativeParams(), seed, 1, list(answers[0].guesses)) for seed in range(4)
    ]
    return {
        "policy": geometric_mean([run.mean for run in runs]),
        "calibrated": geometric_mean(
            [ms / calibrated_ms(one, curve, known) for one, ms in zip(answers, plain, strict=True)]
        ),
        "oracle": geometric_mean([ms / oracle_ms(one, curve) for one, ms in zip(answers, plain, strict=True)]),
    }


def main() -> None:
    figure, axes = plt.subplots(1, len(DRAFTS), figsize=(11, 4), sharey=True)
    for axis, (name, title) in zip(axes, DRAFTS.items(), strict=True):
        recording = read(HERE / "recordings" / f"{name}.json.gz")
        for place, curve in enumerate(GPUS):
            found = speeds(recording, curve)
            print(name, curve.name, " ".join(f"{what} {speed:.2f}" for what, speed in found.items()), flush=True)
            for shift, (what, speed) in enumerate(found.items()):
                axis.bar(
                    place + 0.27 * (shift - 1), speed, 0.25, color=COLOURS[what], label=what if not place else None
                )
        axis.set_xticks(range(len(GPUS)), [curve.name.replace("-", "\n") for curve in GPUS], fontsize=8)
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_title(title, fontsize=10)
    axes[0].set_ylabel("times plain decoding (counted)")
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(HERE / "gpus.png", dpi=110)


if __name__ == "__main__":
    main()
