"""Keeps a router of eight tiny models busy for minutes, two of them loaded at a time, and disturbs it:

    python scripts/soak_router.py --minutes 10

Twenty clients ask without pause, stream, leave, and ask for models that are not there. Meanwhile files are replaced,
damaged, removed and put back, and processes of models are killed. Exit code 1: a text was another model's, an answer an
error that docs/router.md does not name, somebody waited longer than --longest, or something went on growing.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from kit.models import DRAFTS, TARGET
from kit.process import Server
from kit.tiny_models import make
from soak import Held, grown, held

NAMES = tuple(f"m{n}" for n in range(8))
PROMPTS = ("Count from 1", "Once upon a time", "The river", "def add(a, b):")
N_TOKENS, N_CLIENTS, MOST = 12, 20, 2
FLAGS = ("--threads", "1", "--ctx-size", "512")
EXPECTED = {
    404: r"model '.*' not found",
    502: r"could not be loaded|the process of the model ended",
    503: r"failed and is loaded again on demand|requests wait for models to be loaded|could not be loaded",
}
"""Errors that the router's page names."""
PATIENCE_S, SAMPLE_S, DISTURBED_S = 300.0, 5.0, 4.0
GONE, DAMAGED = "gone", "damaged"
Texts = dict[str, dict[str, str]]
"""Of each file, by prompts."""


def body_of(name: str, prompt: str, **more: Any) -> dict[str, Any]:
    """A greedy completion."""
    return {"model": name, "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0, **more}


def ask(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
    """Status and text of an answer; of a stream the status of an error in it."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def completed(url: str, name: str, prompt: str, streams: bool = False) -> tuple[int, str]:
    """Status, and the text that was written or the error's."""
    status, text = ask(url, "POST", "/v1/completions", body_of(name, prompt, stream=streams))
    if not streams or status != 200:
        parsed = json.loads(text)
        return status, parsed["choices"][0]["text"] if status == 200 else parsed["error"]["message"]
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    if failed := [event["error"] for event in events if "error" in event]:
        return int(failed[0]["code"]), failed[0]["message"]
    return status, "".join(event["choices"][0]["text"] for event in events if event["choices"])


def children(pid: int) -> list[int]:
    """Processes that this one has started and that are there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


@dataclass
class Soak:
    """Facts that all threads share. held_by: each name's files, since when, and which of `texts` they are."""

    url: str
    pid: int
    folder: Path
    files: dict[str, Path]
    texts: Texts
    end: float
    most: int
    held_by: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    outcomes: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    disturbed: Counter[str] = field(default_factory=Counter)

    def is_over(self) -> bool:
        """Whether time or requests have been used up."""
        return time.monotonic() > self.end or self.outcomes.total() >= self.most

    def may_be(self, name: str, since: float) -> set[str]:
        """The files of this name from then on; a file counts until the router has taken the next."""
        with self.lock:
            rows = self.held_by[name]
        last = max((n for n, (time_of, _) in enumerate(rows) if time_of <= since), default=0)
        return {what for _, what in rows[last:]}

    def client(self, seed: int) -> None:
        """Ask until it is over."""
        chance = random.Random(seed)
        while not self.is_over():
            name = NAMES[chance.randrange(2)] if chance.random() < 0.5 else chance.choice(NAMES)
            prompt, began = chance.choice(PROMPTS), time.monotonic()
            try:
                if chance.random() < 0.05:
                    outcome = self._leave(name, prompt, chance)
                elif chance.random() < 0.03:
                    status, _ = completed(self.url, "nobody", prompt)
                    outcome = "404" if status == 404 else self._fault(f"an unknown model: {status}")
                else:
                    outcome = self._served(name, prompt, chance.random() < 0.5, began)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                outcome = self._fault(f"{name}: {error!r}")
            with self.lock:
                self.outcomes[outcome] += 1
            if outcome.startswith(("502", "503", "404")):
                time.sleep(0.2)

    def _served(self, name: str, prompt: str, streams: bool, began: float) -> str:
        status, text = completed(self.url, name, prompt, streams)
        possible = self.may_be(name, began)
        with self.lock:
            self.waits.append(time.monotonic() - began)
        if status == 200:
            right = {self.texts[file][prompt] for file in possible if file in self.texts}
            return "200" if text in right else self._fault(f"{name}: {text!r} is not of {sorted(possible)}")
        is_named = re.search(EXPECTED.get(status, "^$"), text) is not None
        if not is_named or (status == 404 and GONE not in possible):
            return self._fault(f"{name}: {status} {text}")
        reason = re.sub(r"'.*?'|[0-9]+", "…", text)
        return f"{status} {reason[:70]}"

    def _leave(self, name: str, prompt: str, chance: random.Random) -> str:
        at = urlsplit(self.url)
        connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=PATIENCE_S)
        body = body_of(name, prompt, max_tokens=400, ignore_eos=True, stream=True)
        connection.request("POST", "/v1/completions", json.dumps(body))
        time.sleep(chance.random() / 2)
        connection.close()
        return "left"

    def _fault(self, text: str) -> str:
        with self.lock:
            self.faults.append(text)
        return "fault"

    def disturb(self, seed: int) -> None:
        """Kill processes, and change files, until it is over."""
        chance = random.Random(seed)
        while not self.is_over():
            time.sleep(DISTURBED_S)
            what = chance.choice(("kill", "replace", "damage", "remove", "restore", "restore"))
            name = chance.choice(NAMES)
            if what == "kill":
                if pids := children(self.pid):
                    os.kill(chance.choice(pids), signal.SIGKILL)
            elif what == "remove":
                self.put(name, None, GONE)
            elif what == "damage":
                self.put(name, self.files[name].read_bytes()[:5000], DAMAGED)
            else:
                source = name if what == "restore" else chance.choice(NAMES)
                self.put(name, self.files[source].read_bytes(), source)
            self.disturbed[what] += 1

    def put(self, name: str, data: bytes | None, what: str) -> None:
        """A name's file from now on; the one before counts until the router has taken this one."""
        with self.lock:
            self.held_by[name].append((float("inf"), what))
        path = self.folder / f"{name}.gguf"
        if data is None:
            path.unlink(missing_ok=True)
        else:
            (self.folder / "new").write_bytes(data)
            (self.folder / "new").rename(path)
        status, text = ask(self.url, "GET", "/models?reload=1")
        if status != 200:
            self._fault(f"reload: {status} {text}")
        with self.lock:
            self.held_by[name][-1] = (time.monotonic(), what)


def texts_of(files: dict[str, Path], folder: Path) -> Texts:
    """The text of each model, served alone."""
    texts = {}
    for name, file in files.items():
        with Server(folder / f"{name}.log", ["--model", str(file), *FLAGS]) as server:
            texts[name] = {prompt: completed(server.url, name, prompt)[1] for prompt in PROMPTS}
    assert all(len({texts[name][prompt] for name in NAMES}) == len(NAMES) for prompt in PROMPTS), "texts are alike"
    return texts


def sampled(soak: Soak) -> list[Held]:
    """The memory that the router holds, now and then, until the soak is over."""
    rows = []
    while not soak.is_over():
        time.sleep(SAMPLE_S)
        rows.append(held(soak.pid))
        n = len(children(soak.pid))
        if n > MOST:
            soak.faults.append(f"{n} processes of models")
        longest = max(soak.waits, default=0.0)
        print(
            f"{rows[-1].mib:6.1f} MiB {rows[-1].files:4} files {n} processes {soak.outcomes.total():6} requests, "
            f"longest wait {longest:5.1f} s",
            flush=True,
        )
    return rows


def run(server: Server, soak: Soak, seed: int, longest: float) -> None:
    """All of it; faults go to the soak."""
    threads = [threading.Thread(target=soak.client, args=(seed + n,)) for n in range(N_CLIENTS)]
    threads.append(threading.Thread(target=soak.disturb, args=(seed - 1,)))
    for thread in threads:
        thread.start()
    rows = sampled(soak)
    for thread in threads:
        thread.join()
    for name in NAMES:
        soak.put(name, soak.files[name].read_bytes(), name)
    for name in NAMES:  # a model that failed pauses for a minute at most
        deadline = time.monotonic() + 90
        while (answer := completed(server.url, name, PROMPTS[0]))[0] != 200 and time.monotonic() < deadline:
            time.sleep(1)
        if answer != (200, soak.texts[name][PROMPTS[0]]):
            soak.faults.append(f"at the end {name}: {answer}")
    _, metrics = ask(server.url, "GET", "/metrics")
    if "uad:router_waiting 0\n" not in metrics:
        soak.faults.append("somebody still waits")
    soak.faults += grown(rows)
    soak.faults += [line for line in server.log.read_text().splitlines() if "Traceback" in line][:9]
    waits = sorted(soak.waits)
    print(f"disturbed {dict(soak.disturbed)}\nanswers {dict(soak.outcomes.most_common())}")
    median, late, last = waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1]
    print(f"waits: median {median:.2f} s, 99 % {late:.1f} s, longest {last:.1f} s")
    if waits[-1] > longest:
        soak.faults.append(f"somebody waited {waits[-1]:.1f} s")


def main() -> int:
    """1 where something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--requests", type=int, default=100_000, help="most requests")
    parser.add_argument("--longest", type=float, default=180, help="most seconds that a request may take")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        made, folder = Path(name) / "made", Path(name) / "models"
        made.mkdir()
        folder.mkdir()
        sources = [TARGET, DRAFTS["gemma"], DRAFTS["zephyr"], *(make("llama", made, seed=n) for n in range(5))]
        files = dict(zip(NAMES, sources, strict=True))
        texts = texts_of(files, Path(name))
        for each, file in files.items():
            shutil.copy(file, folder / f"{each}.gguf")
        flags = ["--models-dir", str(folder), "--models-max", str(MOST), "--metrics", *FLAGS]
        with Server(Path(name) / "log", flags) as server:
            began = time.monotonic()
            held_by = {each: [(began, each)] for each in NAMES}
            end = began + 60 * given.minutes
            soak = Soak(server.url, server.process.pid, folder, files, texts, end, given.requests, held_by)
            run(server, soak, given.seed * 1000, given.longest)
    print(*soak.faults[:40], sep="\n")
    return bool(soak.faults)


if __name__ == "__main__":
    sys.exit(main())
