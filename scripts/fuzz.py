"""Fuzz a real server: random texts, bodies, disconnects and failing drafters. `python scripts/fuzz.py --minutes 10
--seed 1`

Sessions follow each other. Each starts `uad serve` (through fuzz_server.py) with settings of its own: policy, drafters,
pre-tokenizers patched into copies of the models, failures injected into drafters. Batches of requests go there, and
after each batch the server must be alive, healthy, idle and silent about exceptions, and drafted text must equal plain
text. The requests are a pure function of (seed, session, batch); how many of them there are depends on time.
Everything stays on loopback. Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzz_apis
from aiohttp import ClientError, ClientSession, ClientTimeout
from fuzz_cases import CHAT, FIELDS, Case, body_case, encoded, smaller, text, text_case, valid
from fuzz_setup import ROOT, Server, Setup
from yarl import URL

ANSWER_S, IDLE_S = 120, 30
N_CASES, LONGEST, LONG_EVERY = 10, 2**17, 5
ROOM_MIB = 64  # how much memory may grow in a session after its first third


class ServerDiedError(Exception):
    """The server's process has ended."""


@dataclass
class Finding:
    """An error that was found, where first, and how to see it again."""

    what: str
    setup: str
    repeat: str
    case: Case | None
    n: int = 1


# --- one request


def _judged(case: Case, status: int, headers: Any, data: bytes) -> str:
    """The fault of an answer, empty if it has none."""
    kind = headers.get("Content-Type", "")
    if b"Traceback (most" in data or b'File \\"/' in data:
        return f"{status} with a traceback: {data[:200]!r}"
    if status >= 500 and status != 501 and not (status == 503 and "Retry-After" in headers):
        return f"undocumented {status}: {re.sub(rb'[0-9]+', b'N', data[:160]).decode(errors='replace')}"
    if case.method == "HEAD" or (case.method == "OPTIONS" and not data):
        return ""
    if status < 400 and kind.startswith("text/plain"):
        return "" if "/metrics" in case.path else f"plain text from {case.path}"
    if kind.startswith("text/event-stream"):
        return _judged_stream(case, data)
    if kind.startswith("application/x-ndjson"):
        return fuzz_apis.judged_lines(data)
    try:
        value = json.loads(data)
    except ValueError:
        return f"{status} without JSON: {data[:24]!r}"
    if status < 400:
        return ""
    if case.path in fuzz_apis.OLLAMA:
        return fuzz_apis.judged_text(value)
    return fuzz_apis.judged_error(value) if case.path in fuzz_apis.MESSAGES else _judged_error(status, value)


def _judged_error(status: int, value: Any) -> str:
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict) or not {"code", "message", "type", "param"} <= error.keys():
        return f"{status} without OpenAI's error body: {value!r:.120}"
    return "" if error["code"] == status and error["message"] else f"{status} whose body says {error['code']!r}"


def _judged_stream(case: Case, data: bytes) -> str:
    frames = [frame for frame in data.split(b"\n\n") if frame and not frame.startswith(b":")]
    if case.path in fuzz_apis.PATHS:
        return fuzz_apis.judged_stream(case.path, frames)
    for frame in frames:
        if frame == b"data: [DONE]":
            continue
        try:
            value = json.loads(frame.removeprefix(b"data: "))
        except ValueError:
            return f"a stream's event is no JSON: {frame[:80]!r}"
        if "error" in value:
            return f"a stream ends with an error: {re.sub('[0-9]+', 'N', json.dumps(value))[:160]}"
    return "" if not case.path.startswith("/v1") or frames[-1:] == [b"data: [DONE]"] else "a stream without [DONE]"


class Session:
    """One server and what is sent to it."""

    def __init__(self, server: Server, client: ClientSession, statuses: Counter[str]) -> None:
        self.server = server
        self._client = client
        self._statuses = statuses

    async def send(self, case: Case) -> tuple[int, bytes, str]:
        """(status, body, what is wrong). Raises ServerDiedError."""
        url = URL(self.server.url + case.path, encoded=True)
        try:
            headers = {"Content-Type": "application/json"}
            async with self._client.request(case.method, url, data=case.body or None, headers=headers) as answer:
                data = await answer.read()
        except TimeoutError:
            return 0, b"", f"no answer from {case.path} in {ANSWER_S} s"
        except (ClientError, OSError, ValueError) as error:
            await asyncio.sleep(0.5)
            self.check_alive()
            return 0, b"", f"{type(error).__name__} instead of an answer from {case.path}"
        self._statuses[f"{case.kind.split(':')[0]} {answer.status}"] += 1
        return answer.status, data, _judged(case, answer.status, answer.headers, data)

    def check_alive(self) -> None:
        if self.server.process.poll() is not None:
            raise ServerDiedError(f"the process ended with code {self.server.process.returncode}")

    async def check(self) -> list[str]:
        """Faults of the server between batches."""
        wrong = []
        status, _, _ = await self.send(Case("GET", "/health", kind="check"))
        if status != 200:
            wrong.append(f"/health says {status}")
        deadline = time.monotonic() + IDLE_S
        busy: Any = True
        while busy and time.monotonic() < deadline:
            _, data, _ = await self.send(Case("GET", "/slots", kind="check"))
            busy = [slot for slot in json.loads(data or b"[]") if slot["is_processing"]]
            await asyncio.sleep(0.02 if not busy else 0.2)
        if busy:
            wrong.append(f"slots stay busy: {len(busy)}")
        news = self.server.news()
        for trace in news.split("Traceback (most recent call last)")[1:]:
            raised = next((line for line in trace.splitlines()[1:] if line and line[0] != " "), "?")
            if "injected" not in raised:  # the first failure of a kind comes with its traceback
                wrong.append(f"traceback in the log: {re.sub('[0-9]+', 'N', raised)[:160]}")
        self.server.measure()
        return wrong

    async def disconnect(self, case: Case, draw: random.Random) -> None:
        """A client that leaves at some point of the request or of its answer."""
        host, port = self.server.url.removeprefix("http://").rsplit(":", 1)
        head = (
            f"POST {case.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
            f"{len(case.body)}\r\n\r\n"
        )
        whole = head.encode() + case.body
        n = draw.choice((0, draw.randrange(len(head)), draw.randrange(len(whole)), len(whole), len(whole)))
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return self.check_alive()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            writer.write(whole[:n])
            await asyncio.wait_for(writer.drain(), 2)
            if n == len(whole):
                await asyncio.wait_for(reader.read(draw.choice((1, 300, 1000))), draw.choice((0.01, 0.1, 1.0)))
            if draw.random() < 0.5:  # a reset instead of a farewell
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await asyncio.sleep(draw.choice((0, 0.05)))
        writer.close()
        return None

    async def compare(self, draw: random.Random) -> tuple[Case, str]:
        """The same request plain, drafted, and drafted and streamed: one text, where batches of any size compute the
        same bits.
        """
        body: dict[str, Any] = {
            "prompt": text(draw, 512)[1],
            "seed": draw.randrange(2**31),
            "n_predict": draw.randint(1, 48),
        }
        if draw.random() < 0.7:
            said = draw.choice(
                (text(draw, 64)[1], "Count from 1 to 20.", "Write a Python class named Cart.", "Repeat: a b c d")
            )
            body["prompt"] = f"<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n"
        body["temperature"] = draw.choice((0, 0.8, 1.2))
        names = [
            name
            for name in sorted(FIELDS)
            if name not in ("n", "temperature", "seed", "response_format", "n_probs", "t_max_predict_ms")
            and not name.startswith("speculative")
        ]
        body |= {name: FIELDS[name](draw) for name in draw.sample(names, draw.randint(0, 3))}
        cases = [
            Case("POST", "/completion", encoded({**body, **more}, random.Random(0)), "compared")
            for more in ({"speculative": {"enabled": False}}, {}, {"stream": True})
        ]
        texts = []
        for case in cases:
            status, data, wrong = await self.send(case)
            if wrong:
                return case, wrong
            texts.append((status, _said(data, case.is_stream)) if status == 200 else (status, ""))
        if not self.server.setup.exact:
            return cases[0], ""
        if texts[0] != texts[1]:
            return cases[1], f"drafted text is not the plain text ({self.server.setup.policy})"
        return cases[2], "" if texts[1] == texts[2] else "streamed text is not the whole text"


def _said(data: bytes, is_stream: bool) -> str:
    frames = (
        [frame.removeprefix(b"data: ") for frame in data.split(b"\n\n") if frame.startswith(b"data: {")]
        if is_stream
        else [data]
    )
    return "".join(json.loads(frame)["content"] for frame in frames)


# --- sessions


class Fuzz:
    """All sessions, what they found, and how much they sent."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._end = time.monotonic() + 60 * options.minutes
        self.findings: dict[str, Finding] = {}
        self.statuses: Counter[str] = Counter()
        self.n_batches = 0

    async def run(self) -> None:
        first, only = self._options.only or (0, None)
        number = first
        while time.monotonic() < self._end:
            await self._session(Setup.of(self._options.seed, number), only)
            number += 1
            if only is not None:
                return

    async def _session(self, setup: Setup, only: int | None) -> None:
        server = self._server(setup)
        if refused := server.start():
            if "unknown pre-tokenizer" not in refused and "unknown pre-tokenizer" not in server._text():
                self._found(f"the server does not start: {refused[-200:]}", server, -1, None)
            return
        found, n = len(self.findings), self.n_batches
        try:
            async with ClientSession(timeout=ClientTimeout(ANSWER_S)) as client:
                await self._batches(Session(server, client, self.statuses), only)
        finally:
            server.stop()
        self._check_memory(server)
        n_rss = len(server.rss)
        thirds = [server.rss[i * (n_rss - 1) // 3] for i in range(4)] if n_rss else []
        memory = f"{', '.join(f'{one:.0f}' for one in thirds)} MiB" if thirds else "memory unknown"
        print(
            f"session {setup.number} ({setup}): {self.n_batches - n} batches, {memory}, {len(self.findings) - found} "
            "new findings",
            flush=True,
        )

    def _server(self, setup: Setup) -> Server:
        folder = self._folder / f"session-{setup.number}"
        folder.mkdir(exist_ok=True)
        return Server(setup, self._options, folder)

    async def _batches(self, session: Session, only: int | None) -> None:
        number = session.server.setup.number
        seconds = self._options.session_seconds * (LONG_EVERY if number % LONG_EVERY == LONG_EVERY - 1 else 1)
        end, batch = min(self._end, time.monotonic() + seconds), 0 if only is None else only
        while time.monotonic() < end or only is not None:
            draw = random.Random(f"{self._options.seed}/{number}/{batch}")
            kind = draw.choice(("texts", "texts", "bodies", "bodies", "disconnects", "compare"))
            case: Case | None = None
            try:
                for _ in range(N_CASES):
                    case = text_case(draw, LONGEST) if kind == "texts" else body_case(draw, 2048)
                    await self._one(session, kind, case, draw, batch)
                for wrong in await session.check():
                    self._found(f"{wrong} after {kind}", session.server, batch, None)
            except ServerDiedError as died:
                await self._died(session, str(died), batch, case)
                return
            self.n_batches += 1
            batch += 1
            if only is not None:
                return

    async def _one(self, session: Session, kind: str, case: Case, draw: random.Random, batch: int) -> None:
        wrong = ""
        if kind == "disconnects":
            case = Case(
                "POST",
                CHAT,
                encoded({**valid(draw, CHAT, 4096), "max_tokens": 64, "stream": draw.random() < 0.6}, draw),
            )
            await session.disconnect(case, draw)
        elif kind == "compare":
            case, wrong = await session.compare(draw)
        else:
            _, _, wrong = await session.send(case)
        if wrong and self._found(wrong, session.server, batch, case):
            self.findings[wrong].case = await self._smallest(session, case, wrong)

    async def _smallest(self, session: Session, case: Case, wrong: str) -> Case:
        """The smallest case found that shows the same; the comparisons of texts are repeated by their seed only."""
        n_left = 40 if case.kind != "compared" and not wrong.startswith("no answer") else 0
        is_smaller = True
        while is_smaller and n_left > 0:
            is_smaller = False
            for less in smaller(case):
                n_left -= 1
                if n_left < 0:
                    break
                if (await session.send(less))[2] == wrong:
                    case, is_smaller = less, True
                    break
        return case

    async def _died(self, session: Session, died: str, batch: int, case: Case | None) -> None:
        """Which request ended the process, and the smallest one that does; each try needs a server of its own."""
        last = session.server.news().strip().splitlines()[-1:] or [""]
        kind = case.kind if case is not None else "?"
        what = f"CRASH: {died} ({kind}, {case.path if case else ''}) {last[0][:120]}"
        if not self._found(what, session.server, batch, case) or case is None:
            return
        for _ in range(8):
            for less in smaller(case):
                if await self._dies(session.server.setup, less):
                    case = less
                    break
            else:
                break
            if time.monotonic() > self._end:
                break
        self.findings[what].case = case

    async def _dies(self, setup: Setup, case: Case) -> bool:
        server = self._server(setup)
        if time.monotonic() > self._end or server.start():
            return False
        try:
            async with ClientSession(timeout=ClientTimeout(ANSWER_S)) as client:
                await Session(server, client, Counter()).send(case)
                return False
        except ServerDiedError:
            return True
        finally:
            server.stop()

    def _check_memory(self, server: Server) -> None:
        rss = server.rss
        if len(rss) >= 12 and min(rss[-3:]) > max(rss[: len(rss) // 3]) + ROOM_MIB:
            self._found(f"memory grows by more than {ROOM_MIB} MiB in a session", server, -1, None)

    def _found(self, what: str, server: Server, batch: int, case: Case | None) -> bool:
        """Notes it; whether it is new."""
        if what in self.findings:
            self.findings[what].n += 1
            return False
        repeat = (
            f"--seed {self._options.seed} --only {server.setup.number}/{batch}"
            if batch >= 0
            else f"session {server.setup.number}"
        )
        self.findings[what] = Finding(what, str(server.setup), repeat, case)
        print(f"  found: {what}", flush=True)
        return True

    def report(self) -> None:
        """The table of what was sent, and the findings."""
        print(f"\n{self.n_batches} batches\n\n| request | status | times |\n|---|---|---|")
        for name, n in sorted(self.statuses.items()):
            kind, status = name.rsplit(" ", 1)
            print(f"| {kind} | {status} | {n} |")
        print(f"\n{len(self.findings)} findings")
        for i, one in enumerate(self.findings.values(), 1):
            print(f"\n{i}. {one.what} ({one.n} times)\n   server: {one.setup}\n   again: {one.repeat}")
            if one.case is not None:
                path = self._folder / f"finding-{i}.body"
                path.write_bytes(one.case.body)
                print(
                    f"   {one.case.method} {one.case.path} {len(one.case.body)} bytes, in {path}: "
                    f"{one.case.body[:160]!r}"
                )


def _only(value: str) -> tuple[int, int]:
    session, batch = value.split("/")
    return int(session), int(batch)


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz a real server on loopback.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=Path, default=ROOT / "samples" / "target-chatml.gguf")
    parser.add_argument("--draft", type=Path, default=ROOT / "samples" / "draft-zephyr.gguf")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument(
        "--session-seconds", type=float, default=25, help="how long one server is asked; every fifth five times as long"
    )
    parser.add_argument("--only", type=_only, metavar="SESSION/BATCH", help="repeat one batch")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    options = parsed(argv)
    options.target, options.draft = options.target.resolve(), options.draft.resolve()
    folder = Path(tempfile.mkdtemp(prefix="uad-fuzz-"))
    fuzz = Fuzz(options, folder)
    asyncio.run(fuzz.run())
    fuzz.report()
    return 1 if fuzz.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
