"""Recorded answers of real pairs: at every position of an answer, what each drafter would have proposed there, and how
much was right.

One JSON file, gzipped, for each pair and temperature. `lab/record.py` writes them, `lab/replay.py` runs policies on
them. Knows no model.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Guess:
    """A drafter's proposal after `t` ids of an answer.

    `ids` and `p` are target ids and the drafter's beliefs in them. `written` has the draft model's own beliefs, one for
    each of its steps (empty for a drafter that looks texts up). The first `n_right` ids are those of the answer.
    """

    ids: tuple[int, ...] = ()
    p: tuple[float, ...] = ()
    written: tuple[float, ...] = ()
    n_right: int = 0
    kind: str = ""

    def n_after(self, n_steps: int) -> int:
        """How many target ids the draft model's first n_steps make."""
        return len(self.ids) if n_steps >= len(self.written) else n_steps * len(self.ids) // len(self.written)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its prompt's category, name and length, its ids, and what each drafter proposes after the first t of
    them, by t.
    """

    category: str
    name: str
    n_prompt: int
    ids: tuple[int, ...]
    guesses: dict[str, tuple[Guess, ...]]


@dataclass(frozen=True, slots=True)
class Recording:
    """All answers of one pair at one temperature."""

    target: str
    draft: str
    temperature: float
    answers: tuple[Answer, ...]


def write(recording: Recording, path: Path) -> None:
    """Beliefs keep four digits."""
    data = json.dumps(asdict(recording, dict_factory=_short), separators=(",", ":"))
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(data.encode())


def _short(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {key: [round(one, 4) for one in value] if key in ("p", "written") else value for key, value in pairs}


def read(path: Path) -> Recording:
    """The recording in a file. Raises OSError or ValueError for a file that is not ours."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        data = json.load(file)
    answers = tuple(
        Answer(
            one["category"],
            one["name"],
            one["n_prompt"],
            tuple(one["ids"]),
            {origin: tuple(map(_guess, guesses)) for origin, guesses in one["guesses"].items()},
        )
        for one in data["answers"]
    )
    return Recording(data["target"], data["draft"], data["temperature"], answers)


def _guess(one: dict[str, Any]) -> Guess:
    return Guess(tuple(one["ids"]), tuple(one["p"]), tuple(one["written"]), one["n_right"], one["kind"])
