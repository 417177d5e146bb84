"""The process of one model: `uad serve` on a port of loopback, with a key that only the router has."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from uad.base.common.children import python
from uad.base.common.parent import PARENT, PLANNED
from uad.base.config.flags import VARIABLE
from uad.base.config.kinds import AUTO
from uad.router.drafts import FolderDrafts
from uad.router.folder import FolderModel

_LISTENING = re.compile(r"listening on (http://\S+)")
_LOG_WORDS = ("--no-log-timestamps", "--log-prefix", "--log-colors=off")  # the router's log has its own
_WORDS = ("--host=127.0.0.1", "--port=0", "--no-ui", "--metrics", *_LOG_WORDS)
_KEY = "LLAMA_API_KEY"
_NOT_FOR_MODELS = re.compile(f"^{VARIABLE}|API_KEY")
_LONGEST_LINE_BYTES = 1 << 20
_ERROR = re.compile(r"uad: error: (.*)")
"""The beginning of the line that a process prints when it ends by itself. Lines of its log begin with a date, a level
or an id, and hold words of clients.
"""
_STILL_S, _UNSEEN_S = 300.0, 1800.0
"""How long a process that has work may do nothing: write no line, take no computing time; and the same where the system
does not show computing time.
"""
_CHOOSING_S = 60.0
"""For the choice of a draft, which reads the headers of files."""
_GONE_S = 10.0
"""How long a killed process may take to end; one that waits for a disk may never do."""
LineSink = Callable[[str], None]
Planned = Callable[[int], None]
_log = logging.getLogger("uad")


class ProcessFailedError(Exception):
    """The process of a model ended by itself, or could not be started. The text says why, in no client's words."""

    def __init__(self, reason: str, code: int, stood_still: bool = False) -> None:
        """stood_still: whether it was ended because it did nothing."""
        super().__init__(reason)
        self.code, self.stood_still = code, stood_still


class Child(Protocol):
    """A loaded model. `url` is where it listens, `key` what it asks for."""

    url: str
    key: str

    async def wait(self) -> int:
        """The exit code, once it has ended."""

    async def stop(self, seconds: float) -> None:
        """Ask it to end, wait for so long, and end it then."""

    @property
    def reason(self) -> str:
        """Why it ended, in no client's words; empty while it runs."""

    @property
    def pid(self) -> int:
        """The process's number in the system."""


class Launcher(Protocol):
    """Starts processes."""

    async def start(self, model: FolderModel, has_work: Callable[[], bool], planned: Planned = lambda n: None) -> Child:
        """The process of a model, once it answers. has_work: whether it should be doing something now; one that does
        nothing for minutes then is ended. planned: gets the bytes that it is about to take. Raises
        ProcessFailedError; cancelled, it leaves no process.
        """


class ChildProcess:
    """A process in a session of its own, and what it says: stderr goes to `tell`, line by line."""

    def __init__(
        self,
        process: Process,
        key: str,
        tell: LineSink,
        planned: Planned,
        has_work: Callable[[], bool],
        still_s: float,
    ) -> None:
        """planned: gets the bytes that it is about to take. still_s: see `_STILL_S`."""
        self.url, self.key, self.pid = "", key, process.pid
        self._process, self._tell, self._planned = process, tell, planned
        self._n_lines, self._error, self._stood_still = 0, "", False
        self._loop = asyncio.get_running_loop()
        self._is_ready = asyncio.Event()
        self._code: asyncio.Future[int] = self._loop.create_future()
        assert process.stdout is not None
        assert process.stderr is not None
        self._reading = [
            asyncio.create_task(self._read(process.stdout, self._announced)),
            asyncio.create_task(self._read(process.stderr, self._logged)),
        ]
        self._following = asyncio.create_task(self._follow())
        self._watching = asyncio.create_task(self._watch(has_work, still_s))

    async def ready(self) -> None:
        """Wait until it listens. Raises ProcessFailedError where it ends before."""
        listening = asyncio.create_task(self._is_ready.wait())
        try:
            await asyncio.wait((listening, self._code), return_when=asyncio.FIRST_COMPLETED)
        finally:
            listening.cancel()
        if not self._is_ready.is_set():
            raise ProcessFailedError(self.reason, self._code.result(), self._stood_still)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    async def stop(self, seconds: float) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()
        if not (await asyncio.wait((self._code,), timeout=seconds))[0]:
            self.kill()
        await self.wait()

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        if self._code.done():
            return
        self._kill_group()
        self._loop.call_later(_GONE_S, self._give_up)

    @property
    def reason(self) -> str:
        if not self._code.done():
            return ""
        if self._stood_still:
            return "its process did nothing for minutes, and was ended"
        code = self._code.result()
        return self._error if self._error and code > 0 else ended(code)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _give_up(self) -> None:
        if not self._code.done():
            _log.error("process %d does not end though it was killed; a disk or a driver may hold it", self.pid)
            self._code.set_result(-9)

    async def _follow(self) -> None:
        """Until it has ended, and all of it was read."""
        waiting = asyncio.create_task(self._process.wait())
        while not (await asyncio.wait((waiting,), timeout=1.0))[0]:
            if self._process.returncode is not None:
                self._kill_group()  # what it has started holds its pipes open
        code = waiting.result()
        if (await asyncio.wait(self._reading, timeout=1.0))[1]:  # it had ended before it was waited for
            self._kill_group()
            await asyncio.wait(self._reading, timeout=_GONE_S)
        self._watching.cancel()
        if not self._code.done():
            self._code.set_result(code)

    async def _watch(self, has_work: Callable[[], bool], still_s: float) -> None:
        """End it once it has stood still for too long."""
        before, since = None, self._loop.time()
        while True:
            await asyncio.sleep(still_s / 10)
            ticks = await asyncio.to_thread(computing_ticks, self.pid)
            now, state = self._loop.time(), (ticks, self._n_lines)
            if state != before or not has_work():
                before, since = state, now
            elif now - since >= (still_s if ticks is not None else max(still_s, _UNSEEN_S)):
                _log.error(
                    "process %d has done nothing for %.0f s and is ended: look whether a disk, a network or a device "
                    "that it needs stands still; the next request starts it again",
                    *(self.pid, now - since),
                )
                self._stood_still = True
                self.kill()
                return

    async def _read(self, stream: asyncio.StreamReader, take: LineSink) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the limit, and dropped
                continue
            if not line:
                return
            self._n_lines += 1
            take(line.decode(errors="replace").rstrip())

    def _announced(self, line: str) -> None:
        if planned := PLANNED.fullmatch(line):
            self._planned(int(planned[1]))
        elif (listening := _LISTENING.search(line)) and not self._is_ready.is_set():
            self.url = listening[1]
            self._is_ready.set()

    def _logged(self, line: str) -> None:
        if error := _ERROR.match(line):
            self._error = error[1]
        if line:
            self._tell(line)


class ProcessLauncher:
    """Starts `uad serve`."""

    def __init__(
        self,
        environ: Mapping[str, str],
        tell: Callable[[str, str], None],
        drafts: FolderDrafts | None = None,
        still_s: float = _STILL_S,
    ) -> None:
        """environ: of the router. tell: gets a model's name and a line that its process wrote. drafts: choose. still_s:
        how long a process may do nothing.
        """
        # what the router read there is in the words of each model; a hub's token is left, keys of other servers are not
        self._environ = {name: text for name, text in environ.items() if not _NOT_FOR_MODELS.search(name)}
        self._tell, self._drafts, self._still_s = tell, drafts or FolderDrafts(), still_s

    async def start(
        self, model: FolderModel, has_work: Callable[[], bool], planned: Planned = lambda n: None
    ) -> ChildProcess:
        drafts = (*([] if model.head is None else [model.head]), *(await self._chosen(model) if model.drafts else ()))
        chosen = (f"--draft={AUTO}", *(f"--draft-from={path}" for path in drafts)) if drafts else ()
        bare = replace(model, words=tuple(word for word in model.words if word != f"--mmproj={AUTO}"))
        try:
            return await self._start(replace(model, words=(*model.words, *chosen)), has_work, planned)
        except ProcessFailedError as error:
            if error.code >= 0 or error.stood_still or (bare.words == model.words and not chosen):
                raise
            text = (
                "%s: its process ended by signal %d, and is started again without the draft and projector nobody named"
            )
            _log.warning(text, model.name, -error.code)
            return await self._start(bare, has_work, planned)

    async def _chosen(self, model: FolderModel) -> Sequence[Path]:
        """Files that may draft for it, the best first; none where a disk stands still."""
        try:
            async with asyncio.timeout(_CHOOSING_S):
                return await asyncio.to_thread(self._drafts.choose, model)
        except TimeoutError:
            _log.warning("%s: no draft was chosen within %g s; it is loaded without one", model.name, _CHOOSING_S)
            return ()

    async def _start(self, model: FolderModel, has_work: Callable[[], bool], planned: Planned) -> ChildProcess:
        key = secrets.token_urlsafe(32)
        process = await asyncio.create_subprocess_exec(
            *command(model),
            stdin=PIPE,  # closed by the system when the router ends, however it does
            stdout=PIPE,
            stderr=PIPE,
            env={**self._environ, **dict(model.secrets), _KEY: key, PARENT: "1", "PYTHONUNBUFFERED": "1"},
            limit=_LONGEST_LINE_BYTES,
            start_new_session=True,  # Ctrl-C is for the router, which stops the others itself
        )
        child = ChildProcess(process, key, lambda line: self._tell(model.name, line), planned, has_work, self._still_s)
        try:
            await child.ready()
        except BaseException:
            child.kill()
            await child.wait()
            raise
        return child


def ended(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"its process ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown here"
    return f"its process was ended by signal {-code} ({'out of memory?' if code == -9 else name})"


def computing_ticks(session: int) -> int | None:
    """Computing time of all processes of a session, in ticks of the system; None where it does not show them."""
    ticks, is_shown = 0, False
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # after the name in brackets: state, parent, group, session; the 12th to 15th are computing times
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks, is_shown = ticks + sum(map(int, fields[11:15])), True
    return ticks if is_shown else None


def command(model: FolderModel) -> list[str]:
    """The command that runs a model."""
    return python("uad", "serve", *model.words, *_WORDS, f"--alias={','.join(sorted(model.names))}")
