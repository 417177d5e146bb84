"""Random requests to a server with drafts, four at a time and with its caches, and to one without, each alone:

    python scripts/same_texts.py --target qwen.gguf --draft smollm2.gguf

Prints the requests whose texts differ. Exit code 1: there are any. Conversations share beginnings, and have second
turns whose first answer was the other server's. So slots, prompt caches and neighbours change from request to request.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kit.process import Server

Body = dict[str, Any]
AT_ONCE = 4
TIMEOUT_S = 900
SYSTEMS = (
    "You are a helpful assistant. Answer briefly.",
    "You write Python. Give code first, then one sentence about it. Names are short, and every function has its types.",
    "Du antwortest auf Deutsch, in ganzen Sätzen.",
)
ASKED = (
    "Write a function that {verb} a list of {noun}.",
    "Name five {noun} and say what each is good for.",
    "Explain to a child how {noun} are {verb}.",
    'Turn this into JSON: name {noun}, action "{verb}", count 3.',
    "Repeat this exactly: def f(x):\n    return [{noun} for {noun} in x if {verb}({noun})]\n",
)
NOUNS = ("apples", "numbers", "rivers", "files", "prime factors", "Häuser", "東京の駅", "words")
VERBS = ("sorts", "counts", "reverses", "joins", "measured", "filters")
ENDED = "The river was high that spring, and the bridge, which nobody had mended since the war, "


def conversation(rng: random.Random) -> list[Body]:
    """A system prompt, now and then, and one question."""
    system = [{"role": "system", "content": rng.choice(SYSTEMS)}] if rng.random() < 0.7 else []
    asked = rng.choice(ASKED).format(noun=rng.choice(NOUNS), verb=rng.choice(VERBS))
    return [*system, {"role": "user", "content": asked}]


def usual(rng: random.Random, most: int) -> Body:
    """Settings of a request: a temperature and its seed, a length, sometimes a stop or a filter."""
    body: Body = {"temperature": rng.choice((0, 0, 0.8, 1.2)), "seed": rng.randrange(10**6)}
    body["max_tokens"] = rng.randrange(4, most)
    if rng.random() < 0.2:
        body["stop"] = ["\n\n"]
    if rng.random() < 0.2:
        body["top_k"] = 5
    if rng.random() < 0.1:
        body["repeat_penalty"] = 1.1
    return body


def asked(rng: random.Random, most: int) -> list[tuple[str, Body]]:
    """A request, or a conversation of two whose second holds a place for the first answer."""
    if rng.random() < 0.25:
        return [("/v1/completions", {**usual(rng, most), "prompt": ENDED[: rng.randrange(20, len(ENDED))]})]
    first = {**usual(rng, most), "messages": conversation(rng)}
    if rng.random() < 0.7:
        return [("/v1/chat/completions", first)]
    again = {"role": "user", "content": rng.choice(("And shorter?", "Why?", "Now in French, please."))}
    answer = {"role": "assistant", "content": None}
    return [
        ("/v1/chat/completions", first),
        ("/v1/chat/completions", {**usual(rng, most), "messages": [*first["messages"], answer, again]}),
    ]


def send(url: str, path: str, body: Body) -> tuple[str, str]:
    """The text of the answer, and why it ended."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        choice = json.load(response)["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"] or "", choice["finish_reason"]


def filled(body: Body, answers: Sequence[tuple[str, str]]) -> Body:
    """A second turn with the first answer in it."""
    messages = [
        {**message, "content": answers[0][0]} if message["content"] is None else message
        for message in body.get("messages", ())
    ]
    return {**body, "messages": messages} if messages else body


def show(name: str, n: int, of: int, began: float) -> None:
    print(f"\r{name}: {n} of {of}, {time.monotonic() - began:.0f} s", end="", flush=True)


def alone(url: str, jobs: Sequence[list[tuple[str, Body]]]) -> list[list[tuple[str, str]]]:
    """The answers of all jobs, one request after the other."""
    began, answers = time.monotonic(), []
    for job in jobs:
        found: list[tuple[str, str]] = []
        for path, body in job:
            found.append(send(url, path, filled(body, found)))
        answers.append(found)
        show("without drafts", len(answers), len(jobs), began)
    print()
    return answers


def beside(url: str, jobs: Sequence[list[tuple[str, Body]]], known: Sequence[list[tuple[str, str]]]) -> list[Any]:
    """The same at random times beside each other, second turns last; conversations go on from the known answers."""
    began, done = time.monotonic(), 0
    parts = [(i, turn) for i, job in enumerate(jobs) for turn in range(len(job))]
    random.Random(len(parts)).shuffle(parts)
    parts.sort(key=lambda part: part[1])

    def answered(part: tuple[int, int]) -> tuple[tuple[int, int], tuple[str, str]]:
        nonlocal done
        i, turn = part
        path, body = jobs[i][turn]
        text = send(url, path, filled(body, known[i]))
        done += 1
        show("with drafts", done, len(parts), began)
        return part, text

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(answered, parts))
    print()
    return found


def drafted(url: str) -> str:
    """Counts of drafted and accepted tokens, from the server's metrics."""
    with urllib.request.urlopen(url + "/metrics", timeout=TIMEOUT_S) as response:
        lines = response.read().decode().splitlines()
    return ", ".join(line for line in lines if not line.startswith("#") and "draft" in line and "{" not in line)


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True, action="append", help="again for a second one")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--most", type=int, default=40, help="ids of the longest answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spec-policy", choices=("auto", "fixed"), default="auto", help="fixed drafts all the time")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    jobs: list[list[tuple[str, Body]]] = []
    while sum(len(job) for job in jobs) < args.requests:
        jobs.append(asked(rng, args.most))

    folder = Path(tempfile.mkdtemp(prefix="same-texts-"))
    common = ["--target", args.target, "--host", "127.0.0.1", "-c", "8192"]

    def with_server(name: str, extra: Sequence[str], use: Callable[[str], Any]) -> Any:
        with Server(folder / f"{name}.log", [*common, *extra], timeout=600) as server:
            return use(server.url.rstrip("/"))

    known = with_server("plain", ["--no-draft", "-np", "1", "--no-cache-prompt"], lambda url: alone(url, jobs))
    named = [word for draft in args.draft for word in ("--draft", draft)]
    drafts = [*named, "-np", str(AT_ONCE), "--metrics", "--spec-policy", args.spec_policy]
    found, counts = with_server("drafted", drafts, lambda url: (beside(url, jobs, known), drafted(url)))
    differing = [(part, text) for part, text in found if text != known[part[0]][part[1]]]
    for (i, turn), text in differing:
        print(json.dumps({"body": jobs[i][turn][1], "alone": known[i][turn], "drafted": text}, ensure_ascii=False))
    print(f"{len(found) - len(differing)} of {len(found)} texts are the same. {counts}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
