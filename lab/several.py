"""Two draft models beside each other, by replay: `python lab/several.py A.json.gz B.json.gz --costs NAMES`.

Both recordings have the same answers. Each draft alone and both together, with `suffix`, on curves of the target and on
the same with a target of which every pass takes several times as long (--times). Rows have the speed over plain
decoding, the worst category, and tokens a pass in coding.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean, mean

from curves import MEASURED, Curve, curves
from replay import Score, automatic, score
from rounds import Answer, Recording, read

from uad.base.types import MODELS, Origin, SpeculativeParams

_OTHER = "qwen2.5-coder-0.5b"
_STEP, _READ = 26.0 / 9.4, 9.0 / 3.5  # its costs over those of SmolLM2-135M, as measured on `bf16`


def joined(recordings: Sequence[Recording]) -> Recording:
    """The answers of the first with what the drafts of all propose. Raises ValueError where they are not the same."""
    answers = []
    for same in zip(*(recording.answers for recording in recordings), strict=True):
        if len({one.ids for one in same}) > 1:
            raise ValueError(f"{same[0].name} is another answer in these recordings")
        writers = zip(MODELS, (one.guesses[str(Origin.MODEL)] for one in same), strict=False)
        answers.append(replace(same[0], guesses={**same[0].guesses, **{str(origin): own for origin, own in writers}}))
    return replace(recordings[0], answers=tuple[Answer, ...](answers))


def priced(base: Curve, draft: str) -> Curve:
    """The same machine with the costs of this draft: as measured there, else in proportion."""
    for curve in MEASURED:
        if (curve.name, curve.draft) == (base.name, draft):
            return replace(base, step=curve.step, read_ms=curve.read_ms, draft=draft)
    more = draft == _OTHER
    step, read_ms = (_STEP * base.step, _READ * base.read_ms) if more else (base.step, base.read_ms)
    return replace(base, step=step, read_ms=read_ms, draft=draft)


def row(recording: Recording, curve: Curve, seeds: int, n_seq: int) -> tuple[float, float, float]:
    """Speed over plain decoding, that of the worst category, and tokens a pass in coding."""
    origins = [str(Origin.SUFFIX), *map(str, MODELS[: 1 + len(curve.beside)])]
    scores = [score(recording, curve, automatic, SpeculativeParams(), seed, n_seq, origins) for seed in range(seeds)]
    categories = [one.by_category() for one in scores]
    worst = min(geometric_mean([one[key] for one in categories]) for key in categories[0])
    return geometric_mean([one.mean for one in scores]), worst, mean(map(_in_coding, scores))


def _in_coding(one: Score) -> float:
    texts = [text for text in one.texts if text.answer.category == "coding"]
    return sum(len(text.answer.ids) - 1 for text in texts) / sum(text.n_passes for text in texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--costs", default="bf16,q8_0,avx512-q4_k_m,avx512-q8_0,avx2-q4_k_m,flat8-1/10")
    parser.add_argument("--times", default="1,5", help="how many times as long passes of the target take")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--sequences", type=int, default=1)
    args = parser.parse_args()
    recordings = [read(path) for path in args.recordings]
    both = joined(recordings)
    for base in curves(recordings[0], args.costs.split(",")):
        if base.draft not in ("", recordings[0].draft):
            continue
        for times in map(float, args.times.split(",")):
            target = replace(base, target=tuple(times * ms for ms in base.target))
            own = [priced(target, recording.draft) for recording in recordings]
            rows = [row(one, curve, args.seeds, args.sequences) for one, curve in zip(recordings, own, strict=True)]
            rows.append(row(both, replace(own[0], beside=tuple(own[1:])), args.seeds, args.sequences))
            better = max(speed for speed, _, _ in rows[:-1])
            cells = "  ".join(f"{speed:.3f} ({worst:.3f}, {tokens:.2f})" for speed, worst, tokens in rows)
            print(f"{base.name:>16} x{times:g}: {cells}  {100 * (rows[-1][0] / better - 1):+.1f} %", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
