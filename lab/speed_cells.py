"""Measurements of `make table`, and how they are kept: groups of prompts that every server answered in the same turn.

A work folder holds one line of JSON for each finished group, so that an interrupted run goes on with the next one. The
document that is made of it, one for each processor, is what README's table is rendered from (`speed_text`). Knows no
server and no clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Self

from uad.base.errors import ConfigError
from uad.tools.bench.answers import Asked
from uad.tools.bench.client import Stream
from uad.tools.bench.workloads import Workload, WorkloadPrompt, load_all

FORMAT = 1
UAD, PLAIN, SERVER, IK = "uad", "uad, no draft", "llama-server", "ik_llama.cpp"
WEIGHTS = {
    "BF16": "qwen2.5-coder-1.5b-bf16",
    "Q8_0": "qwen2.5-coder-1.5b-q8_0",
    "Q4_K_M": "qwen2.5-coder-1.5b",
}
"""The target in each type of weights, by the names of scripts/fetch_models.py."""
DRAFT = "smollm2-135m"
RIVALS = ("draft-simple", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
"""llama-server's `--spec-type`s that need no model trained for them."""
FIRST_TOKEN = "first token"
"""The category of prompts of whose answers only the first token is timed."""
FIRST_TOKEN_PREDICT = 4
"""Tokens of the answers to such prompts."""
BYTES_PER_TOKEN = 4.2
"""Of the bundled prompts, in Qwen's vocabulary."""


@cache
def _categories() -> tuple[Workload, ...]:
    return tuple(load_all(["categories"]))


def rival(spec_type: str) -> str:
    """The name in documents of llama-server with drafts of this type."""
    return f"{SERVER}, {spec_type}"


def prompt_of(n_tokens: int) -> WorkloadPrompt:
    """A prompt of about n_tokens: the bundled prompts one after the other, cut at that length, and again from the
    beginning where they end.
    """
    whole = "\n\n".join(prompt.text for workload in _categories() for prompt in workload.prompts)
    n_bytes = int(n_tokens * BYTES_PER_TOKEN)
    text = whole * (1 + n_bytes // len(whole))
    return WorkloadPrompt(f"{n_tokens:,} tokens", text[:n_bytes], chat=True)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. prompts: of each category; passes: how often all of it is, each time with servers that have
    just started; lengths: tokens of the prompts whose first token is timed.
    """

    weights: tuple[str, ...] = tuple(WEIGHTS)
    slots: tuple[int, ...] = (1, 4)
    rivals: tuple[str, ...] = RIVALS
    prompts: int = 2
    passes: int = 3
    predict: int = 96
    lengths: tuple[int, ...] = (32, 400, 2000, 8000)

    def workloads(self) -> list[Workload]:
        """The twelve categories, as many prompts of each as are wanted."""
        return [one.head(self.prompts) for one in _categories()]

    def groups(self, n_slots: int) -> list[tuple[tuple[str, WorkloadPrompt], ...]]:
        """Prompts that are asked at once, each with its category: the first of each category, then the second of each.
        The last group has fewer where they do not come out even. Where one is asked at a time, those of `lengths`
        follow.
        """
        workloads = self.workloads()
        order = [(one.name, prompt) for i in range(self.prompts) for one in workloads for prompt in one.prompts[i:][:1]]
        groups = [tuple(order[i : i + n_slots]) for i in range(0, len(order), n_slots)]
        return groups + [((FIRST_TOKEN, prompt_of(n)),) for n in self.lengths if n_slots == 1]

    def cells(self) -> Iterator[Cell]:
        """All that is measured, pass by pass: so a run that is cut short has measured a part of everything."""
        for number in range(self.passes):
            for weights in self.weights:
                for n_slots in self.slots:
                    yield Cell(number, weights, n_slots)


@dataclass(frozen=True, slots=True)
class Cell:
    """One pass over all prompts, with one type of weights, n_slots requests at once."""

    number: int
    weights: str
    n_slots: int


Reply = tuple[int, float, float, str]
"""Tokens of an answer, seconds to its first one and in all, and a mark of its text."""


def reply(stream: Stream) -> Reply:
    """The part of an answer that is kept."""
    text = "".join(stream.text)
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    return stream.n_predicted, round(stream.first_s, 4), round(stream.total_s, 4), mark


@dataclass(frozen=True, slots=True)
class Record:
    """A finished group: its prompts as (category, name), and the replies of each server to them, in their order."""

    cell: Cell
    group: int
    prompts: tuple[tuple[str, str], ...]
    replies: Mapping[str, tuple[Reply, ...]]

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "pass": self.cell.number,
            "weights": self.cell.weights,
            "slots": self.cell.n_slots,
            "group": self.group,
            "prompts": self.prompts,
            "replies": dict(self.replies),
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """From plain values. Raises KeyError, TypeError or ValueError where they are not those of a record."""
        replies = {
            name: tuple((int(n), float(first), float(total), str(mark)) for n, first, total, mark in some)
            for name, some in data["replies"].items()
        }
        prompts = tuple((str(category), str(name)) for category, name in data["prompts"])
        cell = Cell(int(data["pass"]), str(data["weights"]), int(data["slots"]))
        return cls(cell, int(data["group"]), prompts, replies)


def digest(conditions: object) -> str:
    """A short name of what a measurement depends on."""
    return hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()[:12]


class Kept:
    """The finished groups of one set of conditions, in a folder of its own. Every group is measured once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "records.jsonl"

    def records(self) -> list[Record]:
        """All that is finished, in the order in which it was measured. A last line that was cut is left out, and
        removed. Raises ConfigError for a line that is no record.
        """
        if not self._path.exists():
            return []
        text = self._path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self._path.write_text(whole, encoding="utf-8")
        try:
            return [Record.of(json.loads(line)) for line in whole.splitlines()]
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self._path} is damaged ({error!r}); --fresh sets it aside and starts again") from error

    def add(self, record: Record) -> None:
        """One more."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record.as_json()) + "\n")

    def set_aside(self) -> Path | None:
        """Start again; what was measured stays beside, under another name, which is returned."""
        if not self._path.exists():
            return None
        n = 1 + sum(1 for _ in self.folder.glob("records-*.jsonl"))
        return self._path.rename(self.folder / f"records-{n}.jsonl")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that the figures depend on. kernels: units of the processor that llama.cpp was built for and uses."""

    processor: str
    cores: int
    kernels: tuple[str, ...]
    memory_gb: float
    system: str


@dataclass(frozen=True, slots=True)
class Versions:
    """Of all that was measured. commit: of uad's sources, or empty; `+` at its end where they were edited since;
    ik_llama_cpp: empty where it was not measured.
    """

    uad: str
    commit: str
    llama_cpp_python: str
    llama_server: str
    python: str
    ik_llama_cpp: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """All of one run on one machine. sittings: how often it was begun, or gone on with; left_out: draft types of
    llama-server that do not work for this pair, each with what it said.
    """

    machine: Machine
    versions: Versions
    settings: Settings
    date: str
    sittings: int
    records: tuple[Record, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def rivals(self) -> tuple[str, ...]:
        """llama-server with each draft type that was measured."""
        return tuple(rival(one) for one in self.settings.rivals if one not in self.left_out)

    @property
    def is_whole(self) -> bool:
        """Whether each type of weights and number of requests was measured in one pass at least."""
        found = {(one.cell, one.group) for one in self.records}
        first = [Cell(0, weights, n) for weights in self.settings.weights for n in self.settings.slots]
        return all((cell, i) in found for cell in first for i in range(len(self.settings.groups(cell.n_slots))))

    def servers(self) -> tuple[str, ...]:
        """All that were measured, uad first."""
        return (UAD, PLAIN, SERVER, *([IK] if self.versions.ik_llama_cpp else []), *self.rivals)

    def asked(self, weights: str, n_slots: int) -> list[Asked]:
        """Every prompt of the categories with all its replies of each of `servers()`, one for each pass so far."""
        return [one for one in self._all(weights, n_slots) if one.workload != FIRST_TOKEN]

    def first_tokens(self, weights: str) -> dict[str, dict[str, float]]:
        """Seconds to the first token: by prompt of `lengths`, by server; medians over the passes."""
        timed = [one for one in self._all(weights, 1) if one.workload == FIRST_TOKEN]
        return {
            one.name: {
                name: median(reply.first_s for reply in replies)
                for name, replies in zip(self.servers(), one.replies, strict=True)
            }
            for one in timed
        }

    def _all(self, weights: str, n_slots: int) -> list[Asked]:
        found: dict[tuple[str, str], list[list[Stream]]] = {}
        for record in self.records:
            if (record.cell.weights, record.cell.n_slots) != (weights, n_slots):
                continue
            for i, prompt in enumerate(record.prompts):
                lists = found.setdefault(prompt, [[] for _ in self.servers()])
                for name, some in zip(self.servers(), lists, strict=True):
                    n, first, total, mark = record.replies[name][i]
                    some.append(Stream(0.0, [mark], first, total, n))
        return [Asked(category, name, tuple(map(tuple, lists))) for (category, name), lists in found.items()]

    def dumps(self) -> str:
        """JSON, with a line for each group."""
        head = {
            "format": FORMAT,
            "machine": asdict(self.machine),
            "versions": asdict(self.versions),
            "settings": asdict(self.settings),
            "date": self.date,
            "sittings": self.sittings,
            "left_out": dict(self.left_out),
        }
        lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        records = ",\n".join(f"  {json.dumps(one.as_json())}" for one in self.records)
        return "\n".join(["{", *lines, ' "records": [', records, " ]", "}", ""])

    @classmethod
    def loads(cls, text: str, name: str) -> Self:
        """From JSON; `name`: of the file. Raises ConfigError."""
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ConfigError(f"{name} has format {data['format']}, and this program reads format {FORMAT}")
            machine, settings = data["machine"], data["settings"]
            return cls(
                Machine(**machine | {"kernels": tuple(machine["kernels"])}),
                Versions(**data["versions"]),
                Settings(**settings | {key: tuple(settings[key]) for key in ("weights", "slots", "rivals", "lengths")}),
                data["date"],
                data["sittings"],
                tuple(map(Record.of, data["records"])),
                data["left_out"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{name} is no document of `make table`: {error!r}") from error


def read(paths: Sequence[Path]) -> list[Document]:
    """Documents of files, in the order of their names. Raises ConfigError."""
    return [Document.loads(path.read_text(encoding="utf-8"), path.name) for path in sorted(paths)]
