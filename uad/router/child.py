"""The process of one model: `uad serve` on a port of loopback, with a key that only the router has."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from uad.base.common.children import python
from uad.base.common.parent import PARENT
from uad.base.config.flags import VARIABLE
from uad.base.config.kinds import AUTO
from uad.router.drafts import FolderDrafts
from uad.router.folder import FolderModel

_log = logging.getLogger("uad")
_LISTENING = re.compile(r"listening on (http://\S+)")
_LOG_WORDS = ("--no-log-timestamps", "--log-prefix", "--log-colors=off")  # the router's log has its own
_WORDS = ("--host=127.0.0.1", "--port=0", "--no-ui", "--metrics", *_LOG_WORDS)
_KEY = "LLAMA_API_KEY"
_NOT_FOR_MODELS = re.compile(f"^{VARIABLE}|API_KEY")
_LONGEST_LINE_BYTES = 1 << 20
_LAST_LINES = 20
_ERROR = re.compile(r"(?:^|\s)error: ")
Tell = Callable[[str], None]


class LoadFailedError(Exception):
    """The process of a model ended before it was ready. The text is the last that it said of it."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


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
        """The last that it said."""

    @property
    def pid(self) -> int:
        """The process's number in the system."""


class Launcher(Protocol):
    """What starts processes."""

    async def start(self, model: FolderModel) -> Child:
        """The process of a model, once it answers. Raises LoadFailedError; cancelled, it leaves no process."""


class ChildProcess:
    """A process, and what it says: stderr goes to `tell`, line by line."""

    def __init__(self, process: Process, key: str, tell: Tell) -> None:
        self.url, self.key, self.pid = "", key, process.pid
        self._process, self._tell = process, tell
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._is_ready = asyncio.Event()
        assert process.stdout is not None
        assert process.stderr is not None
        self._reading = [
            asyncio.create_task(self._read(process.stdout, self._announced)),
            asyncio.create_task(self._read(process.stderr, self._logged)),
        ]

    async def ready(self) -> None:
        """Wait until it listens. Raises LoadFailedError where it ends before."""
        waited = [asyncio.create_task(self._is_ready.wait()), asyncio.create_task(self.wait())]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waited:
                task.cancel()
        if not self._is_ready.is_set():
            code = await self.wait()
            raise LoadFailedError(self.reason or f"its process ended with code {code}", code)

    async def wait(self) -> int:
        code = await self._process.wait()
        await asyncio.wait(self._reading)  # to the last line
        return code

    async def stop(self, seconds: float) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            self.kill()
        await self.wait()

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)

    @property
    def reason(self) -> str:
        errors = [line for line in self._lines if _ERROR.search(line)]
        last = (errors or list(self._lines) or [""])[-1]
        return _ERROR.split(last)[-1].strip()

    async def _read(self, stream: asyncio.StreamReader, take: Tell) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the limit, and dropped
                continue
            if not line:
                return
            take(line.decode(errors="replace").rstrip())

    def _announced(self, line: str) -> None:
        if (listening := _LISTENING.search(line)) and not self._is_ready.is_set():
            self.url = listening[1]
            self._is_ready.set()

    def _logged(self, line: str) -> None:
        if line:
            self._lines.append(line)
            self._tell(line)


class ProcessLauncher:
    """Starts `uad serve`."""

    def __init__(
        self, environ: Mapping[str, str], tell: Callable[[str, str], None], drafts: FolderDrafts | None = None
    ) -> None:
        """environ: of the router. tell: gets a model's name and a line that its process wrote. drafts: choose."""
        # what the router read there is in the words of each model; a hub's token is left, keys of other servers are not
        self._environ = {name: text for name, text in environ.items() if not _NOT_FOR_MODELS.search(name)}
        self._tell, self._drafts = tell, drafts or FolderDrafts()

    async def start(self, model: FolderModel) -> ChildProcess:
        drafts = await asyncio.to_thread(self._drafts.choose, model) if model.drafts else ()
        chosen = (f"--draft={AUTO}", *(f"--draft-from={path}" for path in drafts)) if drafts else ()
        bare = replace(model, words=tuple(word for word in model.words if word != f"--mmproj={AUTO}"))
        try:
            return await self._start(replace(model, words=(*model.words, *chosen)))
        except LoadFailedError as error:
            if error.code >= 0 or (bare.words == model.words and not chosen):
                raise
            text = (
                "%s: its process ended by signal %d, and is started again without the draft and projector nobody named"
            )
            _log.warning(text, model.name, -error.code)
            return await self._start(bare)

    async def _start(self, model: FolderModel) -> ChildProcess:
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
        child = ChildProcess(process, key, lambda line: self._tell(model.name, line))
        try:
            await child.ready()
        except BaseException:
            child.kill()
            await child.wait()
            raise
        return child


def command(model: FolderModel) -> list[str]:
    """What is run for a model."""
    return python("uad", "serve", *model.words, *_WORDS, f"--alias={','.join(sorted(model.names))}")
