"""The worth of template rules: acceptance on the bundled chat prompts, for both bundled drafts, greedy and sampled.

    .venv/bin/python docs/effect_matrix.py

With the families' rules, with the same pair's markers given by hand as --spec-replace (and no families), and without
any rule.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass, replace
from pathlib import Path

from uad.base.config import Config, ModelConfig, TemplateConfig
from uad.base.events import Done, Failed
from uad.base.stats import DraftStats
from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.runtime.runtime import Runtime
from uad.tools.bench.workloads import WorkloadPrompt, load

SAMPLES = Path(__file__).parent.parent / "samples"
MAX_TOKENS = 160
NONE = TemplateConfig(target_family="plain", draft_family="plain")
HAND = {
    "draft-gemma": (
        ("<|im_start|>user\n", "<start_of_turn>user\n"),
        ("<|im_start|>assistant\n", "<start_of_turn>model\n"),
        ("<|im_end|>\n", "<end_of_turn>\n"),
        ("<|im_end|>", "<end_of_turn>"),
    ),
    "draft-zephyr": (
        ("<|im_start|>user\n", "<|user|>\n"),
        ("<|im_start|>assistant\n", "<|assistant|>\n"),
        ("<|im_end|>\n", "<|endoftext|>\n"),
        ("<|im_end|>", "<|endoftext|>"),
    ),
}


@dataclass(frozen=True)
class Row:
    """Sums over all prompts. `n` are the ids of all answers."""

    n: int
    n_rounds: int
    n_drafted: int
    n_accepted: int

    def text(self) -> str:
        return f"{100 * self.n_accepted / max(self.n_drafted, 1):.1f} % | {self.n / max(self.n_rounds, 1):.2f}"


def answer(opened: Runtime, prompt: WorkloadPrompt, temperature: float) -> tuple[int, DraftStats]:
    events: queue.SimpleQueue[object] = queue.SimpleQueue()
    ids = opened.text.chat([{"role": "user", "content": prompt.text}], {})
    sampling = SamplingParams(temperature=temperature, seed=1)
    opened.submit(
        Request(
            tuple(ids),
            sampling=sampling,
            speculative=SpeculativeParams(n_max=8, p_min=0.0, policy=SpecPolicy.FIXED),
            max_tokens=MAX_TOKENS,
        ),
        events.put,
    )
    while True:
        event = events.get()
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Done):
            return event.usage.n_predicted, event.timings.draft


def measure(draft: str, templates: TemplateConfig, temperature: float, prompts: tuple[WorkloadPrompt, ...]) -> Row:
    config = Config(
        ModelConfig(SAMPLES / "target-chatml.gguf"), ModelConfig(SAMPLES / f"{draft}.gguf"), templates=templates
    )
    with Runtime.open(config) as opened:
        found = [answer(opened, prompt, temperature) for prompt in prompts]
    return Row(
        sum(n for n, _ in found),
        sum(stats.n_rounds for _, stats in found),
        sum(stats.n_drafted for _, stats in found),
        sum(stats.n_accepted for _, stats in found),
    )


def main() -> None:
    prompts = load("chat").prompts
    print(f"{len(prompts)} chat prompts, up to {MAX_TOKENS} tokens each, drafts of 8\n")
    print("| draft | temperature | rules | acceptance | tokens per round |\n|---|---|---|---|---|")
    for draft, temperature in ((draft, temperature) for draft in HAND for temperature in (0.0, 0.8)):
        for name, templates in (
            ("families", TemplateConfig()),
            ("by hand", replace(NONE, replace=HAND[draft])),
            ("none", NONE),
        ):
            print(
                f"| {draft} | {temperature} | {name} | {measure(draft, templates, temperature, prompts).text()} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
