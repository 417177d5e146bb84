"""The same prompts sent to another OpenAI-compatible server, streamed. Knows HTTP and nothing of our runtime."""

from __future__ import annotations

import http.client
import ipaddress
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from uad.bench.measure import Answer, EngineArm, Job, Pair, Sample, per_second
from uad.errors import UnavailableError
from uad.types import Clock

_TIMEOUT = 600.0
_ERROR_CHARS = 300
_BROKEN = (OSError, http.client.HTTPException, UnicodeDecodeError, json.JSONDecodeError)


@dataclass(slots=True)
class Stream:
    """What came over a stream. `first` and `last` are seconds on the client's clock; numbers that the server does not send are absent."""

    text: list[str] = field(default_factory=list)
    first: float | None = None
    last: float = 0.0
    completion_tokens: float | None = None
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def n_predicted(self) -> int:
        """Tokens of the answer. Raises UnavailableError if the server does not tell."""
        n = self.completion_tokens if self.completion_tokens is not None else self.timings.get("predicted_n")
        if n is None:
            raise UnavailableError(
                "the server sends neither usage.completion_tokens nor timings with its stream: its speed cannot be measured"
            )
        return int(n)

    @property
    def client_tps(self) -> float:
        """Tokens per second between the first and the last piece of text, by the client's clock."""
        n = max(self.n_predicted - 1, 0)
        seconds = self.last - self.first if self.first is not None else 0.0
        return n / seconds if seconds > 0 else 0.0

    @property
    def server_tps(self) -> float | None:
        """The server's own rate, None if it sends none. Over n - 1 tokens, as ours: llama-server's clock starts at the first one."""
        n, milliseconds = self.timings.get("predicted_n"), self.timings.get("predicted_ms")
        if n is not None and milliseconds:
            return 1e3 * max(n - 1, 0) / milliseconds
        return self.timings.get("predicted_per_second")

    def add(self, chunk: Mapping[str, object], now: float) -> None:
        """Take one decoded chunk that arrived at `now`. Raises UnavailableError for an error chunk."""
        if "error" in chunk:
            raise UnavailableError(f"the server failed in mid-stream: {json.dumps(chunk['error'])[:_ERROR_CHARS]}")
        piece = _piece(chunk)
        if piece:
            self.first = now if self.first is None else self.first
            self.last = now
            self.text.append(piece)
        self.completion_tokens = _numbers(chunk.get("usage")).get("completion_tokens", self.completion_tokens)
        self.timings |= _numbers(chunk.get("timings"))


def _numbers(value: object) -> dict[str, float]:
    return {key: n for key, n in value.items() if type(n) in (int, float)} if isinstance(value, dict) else {}


def _piece(chunk: Mapping[str, object]) -> str:
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return ""
    delta = choice.get("delta")
    parts = [delta.get("reasoning_content"), delta.get("content")] if isinstance(delta, dict) else [choice.get("text")]
    return "".join(part for part in parts if isinstance(part, str))


class Client:
    """A blocking client for one server. Raises UnavailableError for whatever goes wrong on the way."""

    def __init__(self, url: str, key: str | None = None, clock: Clock = time.perf_counter) -> None:
        self.url = url
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._opener = urllib.request.build_opener(*_proxies(url))
        self.clock = clock

    def get(self, path: str, timeout: float = _TIMEOUT) -> Mapping[str, object]:
        """GET a JSON object."""
        return self._object(path, None, timeout)

    def post(self, path: str, body: Mapping[str, object], timeout: float = _TIMEOUT) -> Mapping[str, object]:
        """POST a JSON object, get a JSON object."""
        return self._object(path, body, timeout)

    def stream(self, path: str, body: Mapping[str, object]) -> Stream:
        """POST a request whose answer is streamed as server-sent events, and read it to its end."""
        result = Stream()
        with self._open(path, body, _TIMEOUT) as response:
            for line in response:
                data = line.removeprefix(b"data:").strip()
                if not line.startswith(b"data:") or data == b"[DONE]":
                    continue
                now = self.clock()
                chunk = json.loads(data)
                if isinstance(chunk, dict):
                    result.add(chunk, now)
        return result

    def first_model(self) -> str:
        """The name of the first model that the server lists."""
        models = self.get("/v1/models").get("data")
        name = models[0].get("id") if isinstance(models, list) and models and isinstance(models[0], dict) else None
        if not isinstance(name, str):
            raise UnavailableError(f"{self.url}/v1/models lists no model; name one with --peer-model")
        return name

    def _object(self, path: str, body: Mapping[str, object] | None, timeout: float) -> Mapping[str, object]:
        with self._open(path, body, timeout) as response:
            data = json.loads(response.read())
        if not isinstance(data, dict):
            raise UnavailableError(f"{self.url}{path} did not answer with a JSON object")
        return data

    @contextmanager
    def _open(self, path: str, body: Mapping[str, object] | None, timeout: float) -> Iterator[http.client.HTTPResponse]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=self._headers)
        try:
            with self._opener.open(request, timeout=timeout) as response:
                yield response
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")[:_ERROR_CHARS]
            raise UnavailableError(f"{self.url}{path} answered {error.code}: {text}") from error
        except _BROKEN as error:
            raise UnavailableError(f"{self.url}{path} failed: {error}") from error


def _proxies(url: str) -> list[urllib.request.BaseHandler]:
    """A server on this machine is never asked through a proxy."""
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return [urllib.request.ProxyHandler({})] if loopback else []


class PeerArm:
    """Runs jobs on another server, which uses its own chat template and tokenizer."""

    name = "peer"

    def __init__(self, client: Client, model: str, clock: Clock = time.perf_counter) -> None:
        self._client = client
        self._model = model
        self._clock = clock

    def run(self, jobs: Sequence[Job]) -> Sample:
        """Run the jobs at once, one connection each, and wait for all of them. Raises UnavailableError."""
        start = self._clock()
        with ThreadPoolExecutor(len(jobs)) as pool:
            made = list(pool.map(self._answer, jobs))
        seconds, answers = self._clock() - start, tuple(answer for answer, _ in made)
        if len(made) == 1:
            return Sample(answers, made[0][1])
        return Sample(answers, per_second(sum(answer.n_predicted for answer in answers), seconds))

    def beside(self, plain: EngineArm, jobs: Sequence[Job], first: bool) -> Pair:
        """One after the other: two processes would be in each other's way. Raises UadError."""
        if first:
            arm = self.run(jobs)
            return Pair(plain.run(jobs), arm)
        return Pair(plain.run(jobs), self.run(jobs))

    def _answer(self, job: Job) -> tuple[Answer, float]:
        """With its tokens per second."""
        path, prompt = chat_or_raw(job.prompt.text, job.prompt.chat)
        settings: dict[str, object] = {"temperature": job.temperature, "seed": job.seed, "max_tokens": job.max_tokens}
        stream = self._client.stream(path, streaming(self._model) | prompt | settings)
        server_tps = stream.server_tps
        answer = Answer(
            ids=(),
            text="".join(stream.text),
            n_predicted=stream.n_predicted,
            n_drafted=int(stream.timings.get("draft_n", 0)),
            n_accepted=int(stream.timings.get("draft_n_accepted", 0)),
        )
        return answer, stream.client_tps if server_tps is None else server_tps


def chat_or_raw(text: str, chat: bool) -> tuple[str, dict[str, object]]:
    """The endpoint for a prompt, and the field that carries it."""
    if chat:
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}
    return "/v1/completions", {"prompt": text}


def streaming(model: str) -> dict[str, object]:
    """The fields of a body that ask for a stream which tells its token count."""
    return {"model": model, "stream": True, "stream_options": {"include_usage": True}}
