"""How many rounds an answer takes that was predicted, by what it changes: `python lab/predictions.py MODEL`. Reads the
model's vocabulary and runs no model.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

from rich.table import Table

from uad.base.common.files import path_of
from uad.base.common.sequences import common_prefix
from uad.base.config.argv import Parser, typed
from uad.base.config.kinds import integer
from uad.base.console import console_on
from uad.base.types import Ask, Commit
from uad.drafts.lookup import prediction
from uad.text.vocab.encode import Encoder
from uad.tools.bench.workloads import PROMPT_DIR
from uad.tools.cli import run

_TEXTS = ("code", "mixed")
_SIZE = 6000  # bytes of a text
DESCRIPTION = """Count the rounds of answers that differ from their predictions, where every round submits what is
drafted.

Each kind of difference is made in two texts. Without drafts a round brings one token."""

Lines = list[str]
Change = Callable[[Lines], Lines]


class Count(NamedTuple):
    """Of one answer: its ids, the rounds that it took, ids drafted in vain, and the drafter's seconds of computing."""

    n_ids: int
    n_rounds: int
    n_wrong: int
    seconds: float


def _renamed(lines: Lines, every: int = 1) -> Lines:
    """Its most frequent longer words, `every` of them, have other names throughout."""
    text = "".join(lines)
    words = re.findall(r"[A-Za-z_]{4,}", text)
    for i, word in enumerate(sorted(set(words), key=lambda word: (-words.count(word), word))[:every]):
        text = re.sub(rf"\b{word}\b", f"renamed_{i}", text)
    return text.splitlines(keepends=True)


def _edited(lines: Lines) -> Lines:
    """Eight lines are put in, left out, replaced, or have another word, at random."""
    rng, lines = random.Random(1), list(lines)
    for k in range(8):
        at = rng.randrange(1, len(lines) - 2)
        words = lines[at].split(" ")
        words[rng.randrange(max(len(words) - 1, 1))] = "changed"
        new: tuple[Lines, ...] = (
            [f"put in, number {at}\n", lines[at]],
            [],
            [f"result = compute(everything, {at})\n"],
            [" ".join(words)],
        )
        lines[at : at + 1] = new[k % 4]
    return lines


CHANGES: dict[str, Change] = {
    "nothing": list,
    "a word renamed throughout": _renamed,
    "three words renamed throughout": lambda lines: _renamed(lines, 3),
    "eight lines changed": _edited,
    "the middle half left out": lambda lines: lines[: len(lines) // 4] + lines[-len(lines) // 4 :],
    "parts in another order": lambda lines: [*lines[:20], *lines[40:60], *lines[20:40], *lines[60:]],
    "words before it": lambda lines: ["Here it is:\n", "```\n", *lines],
    "all lines indented": lambda lines: ["    " + line for line in lines],
    "another text": lambda lines: [line[::-1] for line in lines],
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line. Raises ConfigError."""
    parser = Parser("lab/predictions.py", DESCRIPTION)
    parser.add_argument("model", metavar="MODEL", type=path_of, help="a GGUF file, of which the vocabulary is read")
    most = "most tokens per draft (default: %(default)s)"
    parser.add_argument("--n-max", metavar="N", type=typed(integer(1)), default=58, help=most)
    return parser.parse(argv)


def main(argv: Sequence[str]) -> int:
    """Count and print. Raises ConfigError."""
    from uad.llama.vocab import load_vocab

    args = parse(argv)
    encoder = Encoder(load_vocab(args.model))
    table = Table("the answer changes", "tokens", "rounds", "tokens per round", "drafted in vain", "µs per round")
    for name, change in CHANGES.items():
        counts = [count(encoder, text, change, args.n_max) for text in _texts()]
        n_ids, n_rounds, n_wrong, seconds = map(sum, zip(*counts, strict=True))
        per_round = (f"{n_ids / n_rounds:.1f}", f"{n_wrong}", f"{1e6 * seconds / n_rounds:.0f}")
        table.add_row(name, f"{n_ids}", f"{n_rounds}", *per_round)
    console_on(width=120).print(table)
    return 0


def _texts() -> Iterator[Lines]:
    for name in _TEXTS:
        path: Path = PROMPT_DIR.parent / "texts" / f"{name}.txt"
        yield path.read_text(encoding="utf-8")[:_SIZE].splitlines(keepends=True)


def count(encoder: Encoder, lines: Lines, change: Change, n_max: int) -> Count:
    """Play the rounds of one answer."""
    drafter, target = prediction.drafter(encoder), encoder.encode("".join(change(lines)).encode())
    drafter.begin(0, encoder.encode(b"Write it again.\n"))
    drafter.predict(0, "".join(lines).encode())
    at = n_rounds = n_wrong = 0
    began = process_time()
    while at < len(target):
        (draft,) = drafter.propose([Ask(0, n_max)])
        n = common_prefix(draft.ids, target[at:])
        drafter.observe(Commit(0, tuple(target[at : at + n + 1]), len(draft.ids), n))
        at, n_rounds, n_wrong = at + n + 1, n_rounds + 1, n_wrong + len(draft.ids) - n
    return Count(len(target), n_rounds, n_wrong, process_time() - began)


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
