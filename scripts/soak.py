"""Keeps a server busy for minutes with all that holds something back, and prints what the process holds:

    python scripts/soak.py --minutes 15

The server has a tiny random model that sees, a draft, two slots, a disk cache, and sleeps when nobody asks. Each cycle
sends streams, pictures, constrained answers, long prompts, broken requests and clients that leave. Then it waits until
the server sleeps. Memory, open files and threads are read asleep. Exit code 1: an answer was an error of the server, or
what is held went on growing.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kit.picture_files import data_url, in_base64, pixels, written
from kit.process import Server
from kit.tiny_models import make
from kit.tiny_vision import make_projector

Body = dict[str, Any]
TIMEOUT, IDLE_S, N_CLIENTS, N_A_CYCLE = 60.0, 2, 4, 80
GROWTH = 1.1
"""How much the most that is held may grow; memory wavers by a fifth from one sleep to the next."""
LEFT = "client left"


class Held(NamedTuple):
    """Resources that the server's process holds: MiB of memory, open files, threads."""

    mib: float
    files: int
    threads: int


def held(pid: int) -> Held:
    """Of a process, now."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    n_files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Held(int(status["VmRSS"].split()[0]) / 1024, n_files, int(status["Threads"]))


def words(rng: random.Random, n: int) -> str:
    """A text of n words."""
    return " ".join(rng.choice(("one", "two", "river", "naïve", "東京", "x = 1;", "and")) for _ in range(n))


def seen(rng: random.Random) -> str:
    """A picture as a data URL, some of them damaged."""
    data = written(
        pixels(rng.randrange(50), (rng.randrange(4, 300), rng.randrange(4, 300))), rng.choice(("PNG", "JPEG"))
    )
    return data_url(data if rng.random() < 0.9 else data[: rng.randrange(len(data))])


def talk(rng: random.Random, *parts: Body) -> Body:
    """A chat of some length, with parts beside the last text."""
    turns = [
        {"role": role, "content": words(rng, rng.randrange(1, 30))}
        for _ in range(rng.randrange(3))
        for role in ("user", "assistant")
    ]
    last = {"role": "user", "content": [{"type": "text", "text": words(rng, 5)}, *parts]}
    return {"messages": [*turns, last], "max_tokens": rng.randrange(1, 40), "stream": rng.random() < 0.5}


def with_pictures(rng: random.Random) -> tuple[str, Body]:
    """A chat with pictures, or the native form of one."""
    if rng.random() < 0.2:
        prompt = {"prompt_string": "<__media__> is", "multimodal_data": [in_base64(written(pixels(rng.randrange(50))))]}
        return "/completion", {"prompt": prompt, "n_predict": 8}
    parts = ({"type": "image_url", "image_url": {"url": seen(rng)}} for _ in range(rng.randrange(1, 4)))
    return "/v1/chat/completions", talk(rng, *parts)


def plain(rng: random.Random) -> tuple[str, Body]:
    """A chat, Messages, Responses or a completion; several answers now and then."""
    text = words(rng, rng.choice((1, 10, 150)))
    usual: Body = {"max_tokens": rng.randrange(1, 60), "stream": rng.random() < 0.5}
    return rng.choice(
        (
            ("/v1/chat/completions", talk(rng)),
            ("/v1/messages", {**usual, "messages": [{"role": "user", "content": text}]}),
            ("/v1/responses", {"input": text, "max_output_tokens": 20, "stream": usual["stream"]}),
            ("/v1/completions", {**usual, "prompt": text, "n": rng.choice((1, 1, 2))}),
            ("/completion", {"prompt": text, "n_predict": 30, "n_probs": 3, "temperature": 0}),
        )
    )


def constrained(rng: random.Random) -> tuple[str, Body]:
    """An answer of a grammar or schema that was not asked for before."""
    name = f"m{rng.randrange(10**6)}"
    schema = {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]}
    kind: Body = rng.choice(({"json_schema": schema}, {"grammar": f'root ::= "{name}" [a-z]*'}))
    return "/completion", {"prompt": words(rng, 5), "n_predict": 30, **kind}


def refused(rng: random.Random) -> tuple[str, Body]:
    """A request that the server has to refuse."""
    bodies: tuple[Body, ...] = ({"prompt": 5}, {"prompt": "a", "grammar": "root ::="}, {"prompt": words(rng, 5000)})
    return "/completion", rng.choice(bodies)


MAKERS: tuple[Callable[[random.Random], tuple[str, Body]], ...] = (
    with_pictures,
    with_pictures,
    plain,
    plain,
    constrained,
    refused,
)


def send(url: str, seed: int) -> str:
    """Send a request, and read its answer or leave; what came of it."""
    rng = random.Random(seed)
    path, body = rng.choice(MAKERS)(rng)
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=TIMEOUT)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        if rng.random() < 0.15:
            time.sleep(rng.random() / 10)
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
            return LEFT
        answer = connection.getresponse()
        data = answer.read()
        return "error in a stream" if b'data: {"error"' in data else str(answer.status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def is_asleep(url: str) -> bool:
    """Whether the server says so."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/props")
        return json.loads(connection.getresponse().read())["is_sleeping"] is True
    finally:
        connection.close()


def soak(server: Server, minutes: float, seed: int) -> tuple[list[Held], Counter[str]]:
    """Cycles until the time is over; what was held after each, and what answers there were."""
    outcomes, rows, end = Counter[str](), list[Held](), time.monotonic() + 60 * minutes
    with ThreadPoolExecutor(N_CLIENTS) as clients:
        while time.monotonic() < end:
            first = seed + len(rows) * N_A_CYCLE
            outcomes.update(clients.map(lambda n: send(server.url, n), range(first, first + N_A_CYCLE)))
            while not is_asleep(server.url):
                time.sleep(0.5)
            rows.append(held(server.process.pid))
            print(
                f"{len(rows):4}  {rows[-1].mib:7.1f} MiB  {rows[-1].files:3} files  {rows[-1].threads:3} threads",
                flush=True,
            )
    return rows, outcomes


def faults(rows: list[Held], outcomes: Counter[str]) -> list[str]:
    """The faults of a run, one line for each."""
    return [f"{n} times {what}" for what, n in outcomes.items() if what not in ("200", "400", LEFT)] + grown(rows)


def grown(rows: list[Held]) -> list[str]:
    """Figures that went on growing from the second quarter of the time to the last."""
    found = []
    quarter = len(rows) // 4 or 1
    # medians: how many connections are open at one moment is chance
    second, last = (
        [median(column) for column in zip(*some, strict=True)]
        for some in (rows[quarter : 2 * quarter], rows[-quarter:])
    )
    for name, before, after in zip(Held._fields, second, last, strict=False):
        if after > before * GROWTH:
            found.append(
                f"{name} grew from {before:.0f} to {after:.0f}, from the second quarter of the time to the last"
            )
    return found


def main() -> int:
    """1 where something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kept").mkdir()
        model, draft = make("llama", folder), make("llama", folder, seed=1)
        flags = [
            "--target",
            model,
            "--draft",
            draft,
            "--mmproj",
            make_projector("gemma3", folder),
            "-c",
            "2048",
            "-np",
            "2",
        ]
        flags += ["-t", "1", "--cache-disk", folder / "kept", "--sleep-idle-seconds", IDLE_S, "--max-queue", "64"]
        with Server(folder / "log", [str(one) for one in flags]) as server:
            print(f"begin {held(server.process.pid)}")
            rows, outcomes = soak(server, given.minutes, given.seed * 10**6)
            n_kept = len(list((folder / "kept").rglob("*")))
            print(f"end   {held(server.process.pid)}; {n_kept} files in the disk cache; answers {dict(outcomes)}")
            found = faults(rows, outcomes)
            found += [line for line in server.log.read_text().splitlines() if " ERROR " in line or "Traceback" in line][
                :9
            ]
    print(*found, sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
