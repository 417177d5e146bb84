"""What the bench measures in tests: `uad serve` and an engine with known times, and a scripted server on loopback."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self, TextIO, TypeVar

from engines import EngineJob, EngineText

from uad.base.events import Delta, Done, Event, ModelInfo, RuntimeInfo, Sink
from uad.base.stats import DrafterStats, DraftStats, Timings, Usage
from uad.base.types import Finish, Origin, Request, StopKind
from uad.tools.bench.client import Stream
from uad.tools.bench.workloads import WorkloadPrompt

MATRIX = (
    *("--policy", "matrix", "--workload", "chat,code"),
    *("--temperature", "0,1", "--prompts", "2", "--repeats", "1"),
)
"""Flags of a bench of five policies, in four cells each."""

PIECES: list[dict[str, Any]] = [
    {"choices": [{"delta": {"role": "assistant", "content": None}}]},
    *({"choices": [{"delta": {"content": c}}]} for c in "abcde."),
]
USAGE: dict[str, Any] = {"choices": [], "usage": {"completion_tokens": 5}}
TIMINGS: dict[str, Any] = {
    "choices": [{"delta": {}}],
    "timings": {
        "predicted_n": 5,
        "predicted_ms": 40.0,
        "predicted_per_second": 125.0,
        "draft_n": 8,
        "draft_n_accepted": 2,
    },
}
"""What the scripted server streams: its text in pieces, its counts, llama-server's times."""

EMPTY_GGUF = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
"""A file without tensors and values."""

Round = tuple[float, list[Event]]
"""Milliseconds, and what is told at their end."""

Options = TypeVar("Options")
Opened = TypeVar("Opened")


def fixed_speed(request: Request) -> float:
    """4 ids after the first: plain 100 per second, drafted 200, or 400 with n_max 4."""
    if not request.speculative.enabled:
        return 40.0
    return 10.0 if request.speculative.n_max == 4 else 20.0


class FakeClient:
    """A `uad serve` whose answers take known times: the first token at once, the others in `ms(body)` milliseconds.
    Notes every body in the order of the requests. drafter: who accepted guesses are from.
    """

    url = "http://scripted"

    def __init__(
        self,
        ms: Callable[[dict[str, Any]], float] | None = None,
        text: Callable[[dict[str, Any]], str] = lambda body: "abcde",
        n_ctx: int = 1 << 20,
        drafter: str = "draft-simple",
    ) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._ms, self._text, self._n_ctx, self._drafter = ms or fixed_ms, text, n_ctx, drafter

    def first_model(self) -> str:
        return "scripted"

    def get(self, path: str) -> Mapping[str, object]:
        assert path == "/props"
        return {"default_generation_settings": {"n_ctx": self._n_ctx}, "total_slots": 4}

    def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, object]:
        if path == "/apply-template":
            return {"prompt": f"<{body['messages'][0]['content']}>"}
        assert path == "/tokenize"
        return {"tokens": list(str(body["content"]).encode())}

    def streams(self, requests: Sequence[tuple[str, dict[str, Any]]]) -> list[Stream]:
        return [self._stream(body) for _, body in requests]

    def _stream(self, body: dict[str, Any]) -> Stream:
        self.bodies.append(body)
        text = self._text(body)[: body["max_tokens"]]
        stream = Stream(0.0, list(text), 1.0, 1.0 + (self._ms(body) / 1e3 if len(text) > 1 else 0.0), len(text))
        rounds = len(text)
        if drafts(body):
            stream.timings |= {"draft_n": 8, "draft_n_accepted": 6}
            rounds = 2
        counts = {"drafts": 2, "draft_n": 8, "draft_n_accepted": 6}
        stream.uad = {"rounds": rounds, "drafters": {self._drafter: counts} if drafts(body) else {}}
        return stream

    @property
    def counted(self) -> list[dict[str, Any]]:
        """The bodies of counted runs (all of an answer is asked for)."""
        return [body for body in self.bodies if body["max_tokens"] == 160]


def drafts(body: Mapping[str, Any]) -> bool:
    """Whether a body lets anything draft."""
    return bool(body["speculative"].get("enabled", True))


def fixed_ms(body: Mapping[str, Any]) -> float:
    """4 tokens after the first: plain 100 per second, drafted 200, or 400 with n_max 4."""
    if not drafts(body):
        return 40.0
    return 10.0 if body["speculative"].get("n_max") == 4 else 20.0


def info(desc: str = "tiny", n_ctx: int = 4096) -> RuntimeInfo:
    model = ModelInfo("t.gguf", desc, 1, 1, 4096, 256, 8, 2, "F16", None)
    return RuntimeInfo(model, model, n_ctx, 4, "b0")


class FakeEngine:
    """A round of a request is a step of a known time: its first id at once, the others after `speed(request)`
    milliseconds. Notes every request, also those of its twin, and who made which step.
    """

    def __init__(
        self,
        speed: Callable[[Request], float] = fixed_speed,
        ids: Callable[[Request], tuple[int, ...]] = lambda request: (1, 2, 3, 4, 5),
        desc: str = "tiny",
        n_ctx: int = 4096,
        origin: Origin = Origin.MODEL,
    ) -> None:
        self.info = info(desc, n_ctx)
        self.requests: list[Request] = []
        self.cancelled: list[int] = []
        self.steps: list[str] = []
        self._speed = speed
        self._ids = ids
        self.origin = origin
        self._reset("drafted")

    def _reset(self, name: str) -> None:
        self.name = name
        self.now = 0.0
        self._queue: dict[int, tuple[Sink, list[Round]]] = {}

    def twin(self, name: str) -> Self:
        """Another one that notes its requests and steps in the same lists."""
        twin = copy(self)
        twin._reset(name)
        return twin

    def clock(self) -> float:
        return self.now

    @property
    def is_idle(self) -> bool:
        return not self._queue

    def submit(self, request: Request, sink: Sink) -> int:
        self.requests.append(request)
        number = len(self.requests)
        self._queue[number] = sink, self.script(number, request)
        return number

    def script(self, number: int, request: Request) -> list[Round]:
        """All rounds of a request."""
        ids, drafted = self._ids(request)[: request.max_tokens], request.speculative.enabled
        by = {self.origin: DrafterStats(self.origin, n_drafted=8, n_accepted=6)}
        stats = (
            DraftStats(n_rounds=2, n_drafts=2, n_drafted=8, n_accepted=6, by=by)
            if drafted
            else DraftStats(n_rounds=len(ids))
        )
        timings = Timings(1.0, 1.0, len(request.prompt), 0, len(ids), stats)
        done = Done(number, Finish.STOP, StopKind.EOS, Usage(len(request.prompt), 0, len(ids)), timings, text=".")
        parts = [(1.0, ids[:1], Origin.TARGET), (self._speed(request), ids[1:], self.origin)]
        rounds: list[Round] = [
            (ms, [Delta(number, part, (origin,) * len(part), "".join(chr(96 + i) for i in part))])
            for ms, part, origin in parts
            if part
        ]
        rounds[-1][1].append(done)
        return rounds

    def step(self) -> None:
        self.steps.append(self.name)
        made = [(sink, left.pop(0)) for sink, left in self._queue.values()]
        self._queue = {number: one for number, one in self._queue.items() if one[1]}
        self.now += max(ms for _, (ms, _) in made) / 1e3
        for sink, (_, events) in made:
            for event in events:
                sink(event)

    def cancel(self, request: int, why: str = "cancelled") -> None:
        self.cancelled.append(request)

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = True) -> list[int]:
        assert add_special
        assert not parse_special
        return list(text.encode())

    @property
    def text(self) -> EngineText:
        return self

    def chat(self, messages: Sequence[Mapping[str, object]], kwargs: Mapping[str, object]) -> list[int]:
        return [0, *str(messages[0]["content"]).encode(), 1]

    @property
    def counted(self) -> list[bool]:
        """Whether each counted run (all 5 ids asked for) was drafted."""
        return [request.speculative.enabled for request in self.requests if request.max_tokens == 160]


def job(name: str = "p", ids: tuple[int, ...] = (9,), max_tokens: int = 160) -> EngineJob:
    return EngineJob(WorkloadPrompt(name, name, False), 0.0, 1, max_tokens, ids=ids)


def model_words(folder: Path, draft: bool = True) -> list[str]:
    """Flags for a pair of model files with nothing in them, which are made in `folder` beside another one."""
    for name in ("big.gguf", "small.gguf", "other.gguf"):
        (folder / name).write_bytes(EMPTY_GGUF)
    return ["--target", str(folder / "big.gguf"), *(["--draft", str(folder / "small.gguf")] if draft else [])]


def printed(
    bench: Callable[[Options, Callable[..., AbstractContextManager[Opened]], TextIO, TextIO], int],
    options: Options,
    engines: Opened,
) -> tuple[Any, str]:
    """Run a bench on these engines; its JSON line as a value, and all of stdout."""
    out = io.StringIO()
    assert bench(options, lambda config, progress: nullcontext(engines), out, io.StringIO()) == 0
    assert out.getvalue().endswith("}\n")
    return json.loads(out.getvalue().splitlines()[-1]), out.getvalue()


Seen = list[tuple[str, Any, str | None]]
"""Of each request to the scripted server: path, body, Authorization."""


@contextmanager
def server(
    chunks: Sequence[Mapping[str, Any]], status: int = 200, answer: bytes | None = None
) -> Iterator[tuple[str, Seen]]:
    """A server that streams `chunks` for every completion, and remembers the requests. answer: sent instead."""
    seen: Seen = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _send(self, data: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            seen.append((self.path, None, self.headers["Authorization"]))
            self._send(json.dumps({"data": [{"id": "their-model"}]}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, body, self.headers["Authorization"]))
            if self.path == "/tokenize":
                self._send(json.dumps({"tokens": list(body["content"].encode())}).encode())
                return
            lines = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
            stream = "".join(f": ping\n\ndata: {line}\n\n" for line in lines).encode()
            self._send(stream if answer is None else answer, "text/event-stream")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_address[1]}", seen
        finally:
            httpd.shutdown()
            thread.join()
