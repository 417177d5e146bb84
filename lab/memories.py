"""Which models draft with the same text, by how their memory takes ids back: `python lab/memories.py MODEL.gguf ...`.

For each file: how drafts are taken back, how many ids were drafted and accepted, and how many texts are those of the
target alone. Greedy and at temperature 0.8, one and four sequences; with itself as draft, with a draft of another
vocabulary, and with suffix. Then the same with --exact, where every text must be the same.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uad.base.config import Config, DraftingConfig, ModelConfig
from uad.base.events import Delta, Done, Event, Failed
from uad.base.types import Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.llama.memory import Way
from uad.runtime.runtime import Runtime

FOREIGN = Path(__file__).parent.parent / "samples" / "draft-zephyr.gguf"
PROMPTS = (
    "Repeat: the river and the stone, the river and the lantern, the river and the",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n",
    "Once upon a time in Oslo",
    '{"name": "walnut", "price": 12}, {"name": "garden", "price": 7}, {"name": "',
)
LENGTHS = (3, 12)
N_IDS = 40


@dataclass
class Tally:
    """Of one way to draft: texts, those that are the target's own, ids drafted and accepted."""

    n: int = 0
    n_same: int = 0
    n_drafted: int = 0
    n_accepted: int = 0

    def __str__(self) -> str:
        return f"{self.n_same}/{self.n} {self.n_accepted}/{self.n_drafted}"


class Answer:
    """A sink that waits for the end."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.done: Done | None = None
        self.error = ""
        self._over = threading.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Delta):
            self.ids += event.ids
            return
        if isinstance(event, Failed):
            self.error = str(event.error)
        elif isinstance(event, Done):
            self.done = event
        self._over.set()

    def wait(self) -> None:
        if not self._over.wait(300):
            raise TimeoutError("no answer in five minutes")
        if self.error:
            raise RuntimeError(self.error)


def answers(runtime: Runtime, temperature: float, speculative: SpeculativeParams) -> list[Answer]:
    """Every prompt, as many side by side as there are slots."""
    out = []
    for prompt in PROMPTS:
        ids = tuple(runtime.text.tokenize(prompt))
        out.append(answer := Answer())
        sampling = SamplingParams(temperature=temperature, seed=7)
        runtime.submit(Request(ids, sampling, speculative, max_tokens=N_IDS, cache_prompt=False), answer)
    for answer in out:
        answer.wait()
    return out


def config(target: Path, draft: Path | None, slots: int, exact: bool, types: tuple[Origin, ...]) -> Config:
    return Config(
        target=ModelConfig(target, n_ctx=512 * slots, n_threads=1),
        draft=ModelConfig(draft, n_threads=1) if draft is not None else None,
        n_parallel=slots,
        drafting=DraftingConfig(exact=exact, types=types),
    )


def measure(path: Path, exact: bool) -> tuple[str, dict[str, Tally]]:
    """How the memory takes ids back, and the tallies by way to draft."""
    off = SpeculativeParams(enabled=False)
    temperatures = (0.0, 0.8)
    with Runtime.open(config(path, None, 1, exact, (Origin.MODEL,))) as runtime:
        plain = {t: [one.ids for one in answers(runtime, t, off)] for t in temperatures}
    tallies: dict[str, Tally] = {}
    way = ""
    kinds = (
        ("itself", path, (Origin.MODEL,)),
        ("foreign", FOREIGN, (Origin.MODEL,)),
        ("suffix", None, (Origin.SUFFIX,)),
    )
    for name, draft, types in kinds:
        tally = tallies[name] = Tally()
        for slots in (1, 4):
            with Runtime.open(config(path, draft, slots, exact, types)) as runtime:
                way = next((note for note in runtime.info.notes if note.startswith("memory:")), str(Way.POSITIONS))
                for temperature in temperatures:
                    for n_max in LENGTHS:
                        one = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=n_max, p_min=0.0)
                        for found, expected in zip(answers(runtime, temperature, one), plain[temperature], strict=True):
                            tally.n += 1
                            tally.n_same += found.ids == expected
                            assert found.done is not None
                            tally.n_drafted += found.done.timings.draft.n_drafted
                            tally.n_accepted += found.done.timings.draft.n_accepted
    return way, tallies


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    args = parser.parse_args(argv)
    print("| model | | memory | itself: same, accepted | foreign | suffix |\n|---|---|---|---|---|---|")
    wrong = 0
    for path in args.models:
        for exact in (False, True):
            way, tallies = measure(path, exact)
            print(
                f"| {path.stem} | {'exact' if exact else ''} | {way} | "
                + " | ".join(map(str, tallies.values()))
                + " |",
                flush=True,
            )
            wrong += sum(one.n - one.n_same for one in tallies.values()) if exact else 0
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
