"""The progress bar of the bench, on stderr. Knows nothing of what is measured."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bar:
    """Counts runs; use it as a context manager. On a stream that is no terminal it draws nothing."""

    def __init__(self, stream: TextIO, n_runs: int) -> None:
        columns = (
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        console = Console(file=stream)
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("starting", total=n_runs)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def loading(self, what: str, share: float) -> None:
        """Say what is being loaded (share from 0 to 1); called from any thread."""
        self.at(f"{what} {share:.0%}")

    def at(self, what: str) -> None:
        """Say what is being measured."""
        self._progress.update(self._task, description=what)

    def step(self) -> None:
        """One run is done."""
        self._progress.advance(self._task)
