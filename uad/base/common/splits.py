"""Names of GGUF files that are split into parts, as llama.cpp writes them: NAME-00001-of-00003.gguf and so on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_PART = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})(?P<end>\.gguf)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One part of a split file. `index` counts from 1; `stem` is the name without numbers and ending."""

    stem: str
    index: int
    count: int
    end: str

    def names(self) -> tuple[str, ...]:
        """The names of all parts, in order: llama.cpp loads them by the first."""
        return tuple(f"{self.stem}-{i:05d}-of-{self.count:05d}{self.end}" for i in range(1, self.count + 1))


def part_of(name: str) -> SplitPart | None:
    """What a file's name says about the parts it belongs to; None for a file that is whole."""
    found = _PART.fullmatch(name)
    return SplitPart(found["stem"], int(found["index"]), int(found["count"]), found["end"]) if found else None


def files_of(path: Path) -> tuple[Path, ...]:
    """All parts of the file that this path belongs to, in order; the path alone where the file is whole."""
    part = part_of(path.name)
    return tuple(path.with_name(name) for name in part.names()) if part else (path,)
