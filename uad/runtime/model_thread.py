"""The work of the model thread: rounds, and between them what other threads ask for, until it is closed or breaks."""

from __future__ import annotations

import logging
import queue
import threading
from pathlib import Path

from uad.base.errors import UadError, UnavailableError
from uad.base.stats import DrafterStats
from uad.engine.decode.guard import logged
from uad.runtime.commands import Commands
from uad.runtime.open import Parts
from uad.runtime.pacing import Remeasurement
from uad.runtime.sleep import Sleeper
from uad.runtime.slots.actions import SlotActions

_log = logging.getLogger("uad")


class ModelThread:
    """Runs the engine of these parts. folder: of slots in files; None: none are saved. between_rounds: set while no
    round runs.
    """

    def __init__(self, parts: Parts, folder: Path | None, commands: Commands) -> None:
        self.parts, self._commands = parts, commands
        self._engine, self._turns = parts.engine, parts.turns
        self.between_rounds = threading.Event()
        self.between_rounds.set()
        self.slots: SlotActions | None = None
        if parts.keeper is not None and folder is not None:
            self.slots = SlotActions(parts.keeper, folder, commands.post, parts.timing.clock)
        chosen = parts.drafts.by_origin if parts.config.draft_from else {}
        text = parts.text if parts.config.vision.is_found else None
        clock = parts.timing.clock
        self.sleeper = Sleeper(parts.engine, parts.contexts, clock, self.slots, commands, chosen, text)
        if parts.disk is not None:
            parts.disk.wake = lambda: commands.post(lambda: None)  # have it look whether there is something to do

    def run(self) -> None:
        """Make rounds until it is closed; then store what is worth it, and end all requests."""
        engine = self._engine
        try:
            while self._obey():
                self.between_rounds.clear()
                engine.step(self._commands.is_empty)
                self.between_rounds.set()
            for stats in engine.drafters():
                if stats.n_calls:
                    _log.info("%s", statistics(stats))
            with logged("what slots held could not be stored"):
                engine.texts.store()  # before requests end: those that fail leave nothing in their slots
            self._fail_all(UnavailableError("the server is shutting down"))
            if not self.sleeper.is_unloaded:
                with logged("what slots held could not be cleared away"):
                    engine.leave()
        except Exception as error:
            self._commands.refuse(error, self._fail_all)
        finally:
            self.between_rounds.set()

    def _fail_all(self, error: UadError) -> None:
        if self.slots is not None:
            self.slots.fail_all(error)
        self._turns.fail_all(error)

    def _obey(self) -> bool:
        """Carry out what other threads asked for; waits while there is nothing to do, and measures costs again where
        that is due. False: stop.
        """
        engine, commands = self._engine, self._commands
        self._turns.settle()
        if self.slots is not None:
            self.slots.settle()
        while engine.is_idle and commands.is_empty() and not self.sleeper.is_unloaded and engine.texts.rest():
            pass
        while True:
            wait, due = engine.requests.is_stuck, self._due(self.parts.again)
            try:
                command = commands.get(block=wait, timeout=due.wait if due is not None else None)
            except queue.Empty:
                if engine.is_idle and due is not None:
                    self._measure(due)
                    continue
                # A command and its interruption come as one, under the lock. So an interruption that is there after
                # this belongs to a command that waits, never to one of those that the next round is made for.
                with commands.lock:
                    if commands.is_empty():
                        engine.interrupt(False)
                        return True
                continue
            if command is None:
                return False
            command()

    def _due(self, again: Remeasurement | None) -> Remeasurement | None:
        return None if self.sleeper.is_unloaded or self.sleeper.lacks_draft else again

    def _measure(self, again: Remeasurement) -> None:
        """Measure costs again, until there is other work: that puts a command first, and then sets `hurry`."""
        self._commands.hurry.clear()
        if self._commands.is_empty():
            try:
                again(self._engine.texts.spare(), self._commands.hurry.is_set)
            except Exception as error:
                _log.warning("costs could not be measured again: %s", error)
                self._engine.texts.forget()  # what the slots hold may have been written over


def statistics(stats: DrafterStats) -> str:
    """A drafter's work since start, in one line with llama-server's words."""
    return (
        f"statistics {stats.origin}: #calls = {stats.n_calls}, #drafts = {stats.n_drafts}, #gen tokens = "
        f"{stats.n_drafted}, "
        f"#acc tokens = {stats.n_accepted}, dur = {stats.ms:.1f} ms"
    )
