"""Record what drafters propose along real answers: `python lab/record.py TARGET DRAFT OUT.json.gz [--temperature T]
[--prompts N]`.

The target writes an answer to each prompt of the twelve categories, alone. Then each drafter is asked after every id
of it. Drafts have up to 20 ids and end where hardly anything is left of their probability. With --answers the texts are
those of an earlier recording. Takes minutes for a small pair on two cores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rounds import Answer, Guess, Recording, read, write
from stepper import alone

from uad.base.config import load_config
from uad.base.events import Delta, Done, Event
from uad.base.types import Ask, Commit, Origin, Request, SamplingParams, SpeculativeParams
from uad.engine.drafter import Drafter
from uad.runtime.lookups import build_lookups
from uad.runtime.open import Parts, build
from uad.tools.bench.workloads import WorkloadPrompt, category_names, load

N_DRAFT, LEAST = 20, 0.003
PLAIN = SpeculativeParams(enabled=False)


class Notes:
    """A draft model's belief in each of its steps, and when it may stop."""

    def __init__(self) -> None:
        self.written: list[float] = []
        self._p = 1.0

    def wrote(self, seq: int, p: float) -> None:
        self.written.append(p)
        self._p *= p

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        return [self._p >= LEAST] * len(seqs)

    def stepped(self, n_seq: int, seconds: float) -> None:
        """Time is not recorded."""


def answer_of(parts: Parts, request: Request) -> tuple[int, ...]:
    """The ids that the target writes alone."""
    events: list[Event] = []
    parts.engine.submit(1, request, events.append)
    while not parts.engine.is_idle:
        parts.engine.step()
    assert isinstance(events[-1], Done), events[-1]
    return tuple(id_ for event in events if isinstance(event, Delta) for id_ in event.ids)


def guesses_along(
    drafter: Drafter, prompt: Sequence[int], answer: Sequence[int], sampling: SamplingParams
) -> Iterator[Guess]:
    """The drafts that it proposes after 0, 1, 2 … ids of the answer. After none nothing is asked: the first id comes
    out of the prompt's decode.
    """
    drafter.begin(0, prompt, sampling)
    yield Guess()
    for t in range(1, len(answer)):
        drafter.observe(Commit(0, (answer[t - 1],)))
        notes = Notes()
        draft = drafter.propose([Ask(0, N_DRAFT)], notes)[0]
        rest = answer[t:]
        right = [one == two for one, two in zip(draft.ids, rest, strict=False)]
        n_right = right.index(False) if False in right else len(right)
        yield Guess(draft.ids, draft.p, tuple(notes.written), n_right, draft.kind)
    drafter.end(0)


def record(
    parts: Parts,
    prompts: Sequence[tuple[str, WorkloadPrompt]],
    sampling: SamplingParams,
    n: int,
    known: Mapping[str, tuple[int, ...]],
) -> Iterator[Answer]:
    """One answer after the other, with a line on stderr for each. known: answers that need not be written again, by
    prompt.
    """
    vocab = parts.target.model.vocab
    plain = alone(parts)
    with plain.stack:
        for i, (category, prompt) in enumerate(prompts, 1):
            ids = tuple(parts.text.chat([{"role": "user", "content": prompt.text}], {}))
            written = known.get(prompt.name) or answer_of(plain, Request(ids, sampling, PLAIN, n))
            asked: list[Drafter] = [
                *build_lookups(parts.config.drafting, vocab, 1),
                *parts.drafts.drafters,
            ]
            guesses = {str(one.origin): tuple(guesses_along(one, ids, written, sampling)) for one in asked}
            right = sum(one.n_right for one in guesses.get(Origin.MODEL, ())) / max(len(written), 1)
            print(
                f"{i} of {len(prompts)}: {category}, {prompt.name}, {len(written)} ids, {right:.2f} right after each",
                file=sys.stderr,
                flush=True,
            )
            yield Answer(category, prompt.name, len(ids), written, guesses)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("out", type=Path)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--prompts", type=int, default=4, help="of each category (default: 4)")
    parser.add_argument("--answers", type=Path, help="a recording of the same target and temperature")
    parser.add_argument("-n", type=int, default=96, help="most ids of an answer (default: 96)")
    args = parser.parse_args()
    config = load_config(["--target", args.target, "--draft", args.draft, "-c", "4096", "--spec-share", "off"], {})
    prompts = [
        (one.name, prompt)
        for i in range(args.prompts)
        for one in map(load, category_names())
        for prompt in one.prompts[i : i + 1]
    ]
    known = {one.name: one.ids for one in read(args.answers).answers} if args.answers else {}
    parts = build(config, lambda what, share: None)
    with parts.stack:
        answers = tuple(record(parts, prompts, SamplingParams(temperature=args.temperature, seed=1), args.n, known))
        info = parts.info
        write(Recording(Path(info.target.path).stem, Path(args.draft).stem, args.temperature, answers), args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
