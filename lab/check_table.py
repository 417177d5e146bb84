"""The table of docs/same-text.md, made of what `uad check … --json` said.

    uad check TARGET.gguf DRAFT.gguf --json > found.json
    python lab/check_table.py found.json …      keeps the sums in lab/checks.jsonl, and renders the table
    python lab/check_table.py                   only renders it

A target that is there already, with the same weights on the same processor, is replaced.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Self

from speed_text import short
from speed_text import with_section as between

from uad.base.errors import ConfigError
from uad.tools.cli import run

ROOT = Path(__file__).parents[1]
CHECKS, PAGE = ROOT / "lab" / "checks.jsonl", ROOT / "docs" / "same-text.md"
BEGIN = "<!-- made of lab/checks.jsonl by lab/check_table.py -->"
END = "<!-- the end of what lab/check_table.py made -->"


@dataclass(frozen=True, slots=True)
class Sums:
    """One way, without `--exact` or with it: how many rows, rows after prompts, and texts were compared, and how many
    of them differ; most: of a logit of a row.
    """

    promised: bool
    rows: int
    rows_other: int
    most: float
    prompts: int
    prompts_other: int
    texts: int
    texts_other: int

    @classmethod
    def of(cls, way: Mapping[str, Any]) -> Self:
        """Of a way in the JSON of `uad check`. Prompts that no promise is about are left out: those read in passes of
        fewer than 64 ids without `--exact` and uad's kernels.
        """
        rows, texts = way["rows"], way["texts"]
        prompts = [one for one in way["prompts"] if way["any_batch"] or not one["is_small"]]
        return cls(
            bool(way["promised"]),
            sum(one["n_ids"] for one in rows),
            sum(one["n_other"] for one in rows),
            max((one["most"] for one in rows), default=0.0),
            sum(one["n_ids"] for one in prompts),
            sum(one["n_other"] for one in prompts),
            sum(one["n_texts"] for one in texts),
            sum(one["n_texts"] - one["n_same"] for one in texts),
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """One target on one processor. exact: None where `--exact` changes nothing."""

    target: str
    draft: str
    weights: str
    processor: str
    date: str
    plain: Sums
    exact: Sums | None
    holds: bool

    @classmethod
    def of(cls, found: Mapping[str, Any], processor: str, day: str) -> Self:
        """From the JSON of `uad check`. Raises ConfigError where it is not that."""
        try:
            plain, exact = [Sums.of(way) for way in found["ways"]] + [None] * (2 - len(found["ways"]))
            assert plain is not None
            weights = ", ".join(f"{n} {kind}" for kind, n in found["weights"].items())
            draft = found["draft"] or "look-ups"
            return cls(found["target"], draft, weights, processor, day, plain, exact, found["holds"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"this is no answer of uad check --json: {error!r}") from error

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of a row: a newer one with the same key replaces it."""
        return self.target, self.weights, self.processor


def read(path: Path) -> list[Kept]:
    """All that is kept; nothing where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [
        Kept(**one | {"plain": Sums(**one["plain"]), "exact": one["exact"] and Sums(**one["exact"])})
        for one in map(json.loads, lines)
    ]


def write(kept: Iterable[Kept], path: Path) -> None:
    """A line of JSON for each."""
    path.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in kept), encoding="utf-8")


def with_new(kept: Sequence[Kept], new: Iterable[Kept]) -> list[Kept]:
    """Those that are new in the places of those with the same key, else at the end."""
    found = {one.key: one for one in kept}
    return list((found | {one.key: one for one in new}).values())


def table(kept: Sequence[Kept]) -> str:
    """Markdown: a row for each target, and a line for each processor; nothing where nothing is kept."""
    if not kept:
        return ""
    heads = ["target", "drafts", "weights (matrices)"]
    heads += [f"{way}: {what}" for way in ("plain", "`--exact`") for what in ("rows", "prompts", "texts")]
    lines = [_row([*heads, "holds"]), "|" + "---|" * (len(heads) + 1)]
    for one in kept:
        cells = [cell for sums in (one.plain, one.exact) for cell in _cells(sums)]
        lines.append(_row([one.target, one.draft, one.weights, *cells, "yes" if one.holds else "**no**"]))
    days: dict[str, list[str]] = {}
    for one in kept:
        days.setdefault(one.processor, []).append(one.date)
    lines += [
        "",
        "The numbers are compared rows, prompts and texts, and how many of them differ. Promised ones are bold.",
    ]
    lines += [f"Checked on {name}, {_span(some)}." for name, some in days.items()]
    return "\n".join(lines)


def _cells(sums: Sums | None) -> list[str]:
    if sums is None:
        return ["as plain"] * 3
    pairs = ((sums.rows, sums.rows_other), (sums.prompts, sums.prompts_other), (sums.texts, sums.texts_other))
    return [_cell(n, n_other, sums.promised) for n, n_other in pairs]


def _cell(n: int, n_other: int, is_promised: bool) -> str:
    if not n:
        return "not reached"
    said = f"{n_other:,} of {n:,} differ" if n_other else f"{n:,} equal"
    return f"**{said}**" if is_promised else said


def _span(days: Sequence[str]) -> str:
    first, last = min(days), max(days)
    return first if first == last else f"{first} to {last}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str]) -> int:
    """Keep what the files say, and render the table. Raises ConfigError."""
    if argv:
        new = [_found(Path(name)) for name in argv]
        write(with_new(read(CHECKS), new), CHECKS)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(between(page, table(read(CHECKS)), BEGIN, END), encoding="utf-8")
    return 0


def _found(path: Path) -> Kept:
    from speed_table import machine

    try:
        found = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, IndexError, ValueError) as error:
        raise ConfigError(f"{path} holds no answer of uad check --json: {error}") from error
    return Kept.of(found, short(machine()), date.today().isoformat())


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
