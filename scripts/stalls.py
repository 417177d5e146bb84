"""The effect of a large request on all others: gaps of a stream, and waits for /health and a chat "hi", beside each of
many bodies.

    python scripts/stalls.py http://127.0.0.1:8080 --mib 20 [--only tokenize]

The server needs two slots at least. Prints one line per body.
"""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

Make = Callable[[int], bytes]
HI = json.dumps({"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}).encode()
STREAM = json.dumps(
    {"prompt": "Once", "n_predict": 1_000_000, "stream": True, "ignore_eos": True, "temperature": 1}
).encode()
TURN = '{"role":"user","content":"a"},{"role":"assistant","content":"b"}'
ENGLISH = "The quick brown fox jumps over the lazy dog, and then it sleeps.\\n"


def units(head: str, unit: str, tail: str, glue: str = ",", most: int = 1 << 30) -> Make:
    """A maker of bodies of a given size: head, unit after unit, `most` of them at most, tail."""

    def make(size: int) -> bytes:
        n = (size - len(head) - len(tail)) // len((unit + glue).encode())
        return (head + glue.join([unit] * min(n, most)) + tail).encode()

    return make


def members(head: str, value: str, tail: str, most: int = 1 << 30) -> Make:
    """The same with members of an object, each of another name."""

    def make(size: int) -> bytes:
        n = min(size // len(f'"{10**6}":{value},'), most)
        return (head + ",".join(f'"{i}":{value}' for i in range(n)) + tail).encode()

    return make


COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
ONE, MANY = '{"max_tokens":1,"prompt":', '{"max_tokens":1,"messages":['
SHAPES: dict[str, tuple[str, Make]] = {
    "prompt of empty texts": (COMPLETE, units(ONE + "[", '""', "]}")),
    "prompt of ids": (COMPLETE, units(ONE + "[", "1", "]}")),
    "prompt of numbers of 4,000 digits": (COMPLETE, units(ONE + "[", "9" * 4000, "]}")),
    "prompt of floats": (COMPLETE, units(ONE + "[", "1.5", "]}")),
    "prompt of texts and ids": (COMPLETE, units(ONE + "[", '"a",1', "]}")),
    "prompt of lists": (COMPLETE, units(ONE + "[", "[1]", "]}")),
    "prompt of English": (COMPLETE, units(ONE + '"', ENGLISH, '"}', "")),
    "prompt of escapes": (COMPLETE, units(ONE + '"', "\\n", '"}', "")),
    "prompt of surrogate pairs": (COMPLETE, units(ONE + '"', "\\ud83d\\ude42", '"}', "")),
    "prompt of Chinese": (COMPLETE, units(ONE + '"', "東京", '"}', "")),
    "100,000 brackets": (COMPLETE, units(ONE + '"a","b":', "[" * 1000, "}", "")),
    "unknown member": (COMPLETE, units(ONE + '"a","b":[', '{"a":[]}', "]}")),
    "unknown members": (COMPLETE, members(ONE + '"a",', "1", "}")),
    "blanks": (COMPLETE, units(ONE + '"a"', " ", "}", "")),
    "no JSON": (COMPLETE, units(ONE + '"a"', "}", "", "")),
    "one long name": (COMPLETE, units(ONE + '"a","', "b", '":1}', "")),
    "one long number": (COMPLETE, units(ONE + '"a","seed":', "9", "}", "")),
    "stop": (COMPLETE, units(ONE + '"a","stop":[', '"x"', "]}")),
    "stop_token_ids": (COMPLETE, units(ONE + '"a","stop_token_ids":[', "1", "]}")),
    "samplers": (COMPLETE, units(ONE + '"a","samplers":[', '"top_k"', "]}")),
    "logit_bias object": (COMPLETE, members(ONE + '"a","logit_bias":{', "1", "}}")),
    "logit_bias list": (COMPLETE, units(ONE + '"a","logit_bias":[', "[1,1]", "]}")),
    "speculative": (COMPLETE, members(ONE + '"a","speculative":{', "1", "}}")),
    "chat_template_kwargs": (
        CHAT,
        members(MANY + '{"role":"user","content":"a"}],"chat_template_kwargs":{', "1", "}}"),
    ),
    "one message of parts": (CHAT, units(MANY + '{"role":"user","content":[', '{"type":"text","text":"a"}', "]}]}")),
    "messages": (CHAT, units(MANY, TURN, ',{"role":"user","content":"a"}]}')),
    "messages of 2,000 characters": (
        CHAT,
        units(MANY, TURN.replace('"a"', '"' + ENGLISH * 30 + '"'), ',{"role":"user","content":"a"}]}'),
    ),
    "chat of English": (CHAT, units(MANY + '{"role":"user","content":"', ENGLISH, '"}]}', "")),
    "tools": (
        CHAT,
        units(MANY + '{"role":"user","content":"a"}],"tools":[', '{"type":"function","function":{"name":"f"}}', "]}"),
    ),
    "/apply-template of English": ("/apply-template", units(MANY + '{"role":"user","content":"', ENGLISH, '"}]}', "")),
    "/tokenize of texts": ("/tokenize", units('{"content":[', '"a"', "]}")),
    "/tokenize of English": ("/tokenize", units('{"content":"', ENGLISH, '"}', "")),
    "/tokenize with pieces": ("/tokenize", units('{"with_pieces":true,"content":"', ENGLISH, '"}', "")),
    "/tokenize of one letter": ("/tokenize", units('{"content":"', "a", '"}', "")),
    "/tokenize of marker names": ("/tokenize", units('{"content":"', "<|im_end|>", '"}', "")),
    "/detokenize of ids": ("/detokenize", units('{"tokens":[', "65", "]}")),
    "/detokenize of lists": ("/detokenize", units('{"tokens":[', "[]", "]}")),
    # just below the limits of what is read
    "262,000 empty texts": (COMPLETE, units(ONE + "[", '""', "]}", most=262_000)),
    "262,000 ids": (COMPLETE, units(ONE + "[", "1", "]}", most=262_000)),
    "131,000 texts and ids": (COMPLETE, units(ONE + "[", '"a",1', "]}", most=131_000)),
    "65,000 lists": (COMPLETE, units(ONE + "[", "[1]", "]}", most=65_000)),
    "262,000 unknown members": (COMPLETE, members(ONE + '"a",', "1", "}", most=262_000)),
    "32,000 objects with lists": (COMPLETE, units(ONE + '"a","b":[', '{"a":[]}', "]}", most=32_000)),
    "262,000 biases": (COMPLETE, members(ONE + '"a","logit_bias":{', "1", "}}", most=262_000)),
    "262,000 members of chat_template_kwargs": (
        CHAT,
        members(MANY + '{"role":"user","content":"a"}],"chat_template_kwargs":{', "1", "}}", 262_000),
    ),
    "8,000 messages": (CHAT, units(MANY, TURN, ',{"role":"user","content":"a"}]}', most=4000)),
    "65,000 messages": (CHAT, units(MANY, TURN, ',{"role":"user","content":"a"}]}', most=32_500)),
    "60,000 parts": (
        CHAT,
        units(
            MANY, '{"role":"user","content":[' + ",".join(['{"type":"text","text":"a"}'] * 4000) + "]}", "]}", most=15
        ),
    ),
    "one message of 65,000 parts": (
        CHAT,
        units(MANY + '{"role":"user","content":[', '{"type":"text","text":"a"}', "]}]}", most=65_000),
    ),
    "chat of 3.9 million characters": (
        CHAT,
        units(MANY + '{"role":"user","content":"', ENGLISH, '"}]}', "", most=60_000),
    ),
    "/apply-template of 3.9 million characters": (
        "/apply-template",
        units(MANY + '{"role":"user","content":"', ENGLISH, '"}]}', "", most=60_000),
    ),
    "/tokenize of 262,000 texts": ("/tokenize", units('{"content":[', '"a"', "]}", most=262_000)),
    "/tokenize of a million letters": ("/tokenize", units('{"content":"', "a", '"}', "", most=1_000_000)),
    "/detokenize of 262,000 ids": ("/detokenize", units('{"tokens":[', "65", "]}", most=262_000)),
}


@dataclass
class Waits:
    """The longest waits in seconds: between two pieces of a stream, for /health, and for the answer to a chat "hi"."""

    stream: float = 0.0
    health: float = 0.0
    hi: float = 0.0
    errors: list[str] = field(default_factory=list)


@dataclass
class Seen:
    """The answer to a large body, and how long others waited during that."""

    status: str
    seconds: float
    waits: Waits


class Site:
    """A running server."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc

    def seen_beside(self, path: str, body: bytes, timeout: float = 120) -> Seen:
        """Send the body while a stream runs and others knock at the door."""
        with self._watched() as waits:
            time.sleep(0.3)
            began = time.perf_counter()
            status = self._ask(path, body, timeout)
            seconds = time.perf_counter() - began
            time.sleep(0.2)
        return Seen(status, seconds, waits)

    @contextmanager
    def _watched(self) -> Iterator[Waits]:
        waits, stop = Waits(), threading.Event()
        threads = [
            threading.Thread(target=self._guarded, args=(work, waits, stop))
            for work in (self._stream, self._health, self._hi)
        ]
        for thread in threads:
            thread.start()
        try:
            yield waits
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _guarded(self, work: Callable[[Waits, threading.Event], None], waits: Waits, stop: threading.Event) -> None:
        try:
            work(waits, stop)
        except Exception as error:
            waits.errors.append(f"{work.__name__}: {error!r}")

    def _stream(self, waits: Waits, stop: threading.Event) -> None:
        while not stop.is_set():
            connection = self._connect(60)
            connection.request("POST", "/completion", STREAM, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            last = time.perf_counter()
            while not stop.is_set() and answer.read1(1 << 16):
                now = time.perf_counter()
                waits.stream, last = max(waits.stream, now - last), now
            connection.close()

    def _health(self, waits: Waits, stop: threading.Event) -> None:
        while not stop.wait(0.05):
            waits.health = max(waits.health, self._timed("GET", "/health", None))

    def _hi(self, waits: Waits, stop: threading.Event) -> None:
        while not stop.wait(0.25):
            waits.hi = max(waits.hi, self._timed("POST", CHAT, HI))

    def _timed(self, method: str, path: str, body: bytes | None) -> float:
        began = time.perf_counter()
        connection = self._connect(60)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        status = connection.getresponse().status
        connection.close()
        if status != 200:
            raise RuntimeError(f"{path}: status {status}")
        return time.perf_counter() - began

    def _ask(self, path: str, body: bytes, timeout: float) -> str:
        connection = self._connect(timeout)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        except TimeoutError:
            return "no answer"
        finally:
            connection.close()
        return (
            str(answer.status)
            if answer.status == 200
            else f"{answer.status} {json.loads(text)['error']['message'][:60]}"
        )

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address, timeout=timeout)


def main() -> None:
    """Measure all shapes, or those whose names contain a text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--mib", type=float, default=20.0, help="size of each body")
    parser.add_argument("--only", default="", help="bodies whose names contain this")
    args = parser.parse_args()
    site = Site(args.url)
    print("| body | answer | stream gap | /health | hi |\n|---|---|---|---|---|")
    for name, (path, make) in SHAPES.items():
        if args.only in name:
            seen = site.seen_beside(path, make(int(args.mib * 2**20)))
            waits = " | ".join(
                f"{1000 * wait:.0f} ms" for wait in (seen.waits.stream, seen.waits.health, seen.waits.hi)
            )
            print(
                f"| {name} | {seen.status} ({seen.seconds:.1f} s) | {waits} | {' '.join(seen.waits.errors)}", flush=True
            )


if __name__ == "__main__":
    main()
