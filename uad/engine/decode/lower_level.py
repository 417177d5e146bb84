"""The prompt cache's interface to its level on a disk. Knows no files: `uad.runtime.slots.disk` has them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from uad.base.events import CacheCounts

S = TypeVar("S")


@dataclass(slots=True)
class StoredText(Generic[S]):
    """A text that left its slot. n_bytes: of its copy. from_disk: it came from there, in read_s seconds, and was not
    used yet.
    """

    ids: list[int]
    state: S
    n_bytes: int = field(default=0)
    from_disk: bool = False
    read_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text of the lower level that a prompt can go on from after n ids. rate: ids per second at which such a text was
    read when it was written; 0: not known.
    """

    name: str
    n: int
    n_bytes: int
    rate: float


class LowerLevel(Protocol[S]):
    """Texts on a disk. On the model thread; nothing waits for the disk unless it says so."""

    def find(self, prompt: Sequence[int]) -> FoundText | None:
        """The text that the prompt can go on from furthest."""
        ...

    def is_quicker(self, n_bytes: int, seconds: float) -> bool:
        """Whether reading n_bytes bytes is expected to take less than `seconds`."""
        ...

    def read(self, name: str, seconds: float) -> Future[StoredText[S] | None]:
        """The text, None where it is gone, damaged, or not read within `seconds`."""
        ...

    def wants(self, ids: Sequence[int], n_bytes: int, rate: float) -> bool:
        """Whether a text is worth a file, and no text there begins with it."""
        ...

    def write(self, text: StoredText[S], rate: float, *, waits: bool = False) -> None:
        """Write a text beside this thread, if it is wanted. waits: for room where too much waits already; else the text
        is left out then.
        """
        ...

    def counts(self) -> CacheCounts:
        """Counts of its texts, and of what it did. From any thread."""
        ...
