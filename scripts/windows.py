"""What a draft loses by reading only the end of a prompt: a table of lab/drafters.md. `python scripts/windows.py TARGET
DRAFT 256,0`

The target writes answers to long prompts made of this project's files. The draft then drafts along them, once for each
window (0: all), beside a target that computes nothing. One line for each window and kind of prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))

from prescribed import Told
from stepper import LabStepper, Stepper

from uad.base.config import load_config
from uad.base.events import Delta, Done, Event
from uad.base.stats import DraftStats
from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams

ROOT = Path(__file__).parent.parent
N_TOKENS, N_CHARS = 100, 9500
PLAIN = SpeculativeParams(enabled=False)
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.5)
EDITS = {
    "uad/engine/decode/prefill.py": "Rename the class Prefill to PromptReader, and write the whole file anew.",
    "uad/drafts/model/recall.py": "Rename _LONGEST to _MOST_COMPARED and write the whole file anew.",
    "uad/engine/policy/calibration.py": (
        "Give every method of this file a type-checked wrapper. Show the whole class Calibration with the change."
    ),
}
SUMMARIES = ("docs/http.md", "docs/drafters.md", "docs/mappings.md")
TALK = {
    "docs/profile.md": "What is a cost curve, and what is it used for?",
    "docs/translation.md": "How does translation between two vocabularies work?",
    "docs/bench.md": "How is the bench run?",
    "README.md": "What is this project?",
}
LAST = (
    "Give me an example in Python for the last thing.",
    "Which of these would you improve first, and why?",
    "Explain the last part to a beginner.",
)
Messages = list[dict[str, str]]


def prompts() -> Iterator[tuple[str, Messages]]:
    """(kind, messages), those of a kind together."""
    for path, task in EDITS.items():
        yield "code editing", [_said(f"{task}\n```python\n{_read(path, N_CHARS)}\n```")]
    for path in SUMMARIES:
        yield "summarizing", [_said(f"Summarize this document in ten sentences.\n\n{_read(path, N_CHARS)}")]
    for i, question in enumerate(LAST):
        turns = list(TALK.items())
        turns = turns[i:] + turns[:i]
        talk = [one for path, asked in turns for one in (_said(asked), _said(_read(path, 2600), "assistant"))]
        yield "chat", [*talk, _said(question)]


def _said(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


def _read(path: str, n: int) -> str:
    return (ROOT / path).read_text(encoding="utf-8")[:n]


def write(stepper: Stepper, request: Request) -> tuple[tuple[int, ...], DraftStats]:
    """The ids of the answer, and what drafting did."""
    events: list[Event] = []
    stepper.submit(request, events.append)
    while not stepper.is_idle:
        stepper.step()
    assert isinstance(events[-1], Done), events[-1]
    return tuple(id_ for event in events if isinstance(event, Delta) for id_ in event.ids), events[-1].timings.draft


def main() -> int:
    target, draft, windows = sys.argv[1:]
    flags = ["--target", target, "--draft", draft, "-c", "6144", "--spec-share", "off"]
    asked: list[tuple[str, Told]] = []
    with Stepper.open(load_config([*flags, "--no-draft"], {})) as stepper:
        for kind, messages in prompts():
            ids = tuple(stepper.text.chat(messages, {}))
            answer, _ = write(stepper, Request(ids, SamplingParams(temperature=0), PLAIN, N_TOKENS))
            asked.append(
                (kind, Told(ids, SamplingParams(temperature=0), FIXED, len(answer), cache_prompt=False, answer=answer))
            )
            print(f"{kind}: {len(ids)} tokens, answered with {len(answer)}", file=sys.stderr, flush=True)
    for window in windows.split(","):
        with LabStepper.load(load_config([*flags, "--spec-draft-window", window], {})) as loaded:
            silent = loaded.recital()
            for kind, group in groupby(asked, lambda one: one[0]):
                stats = [write(silent, request)[1] for _, request in group]
                n_ids = sum(len(request.answer) for one, request in asked if one == kind)
                accepted = sum(one.n_accepted for one in stats) / max(sum(one.n_drafted for one in stats), 1)
                print(
                    f"{window:>6} {kind}: accepted {accepted:.2f}, tokens per pass "
                    f"{n_ids / sum(one.n_rounds for one in stats):.2f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
