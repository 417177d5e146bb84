"""A client of OpenAI-compatible servers that waits for its answers: requests, and streams by the clock. Knows HTTP and
no model.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
import urllib.parse
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from uad.base.errors import ConfigError, UnavailableError
from uad.base.types import Clock
from uad.tools.bench.workloads import WorkloadPrompt

PLAIN_FIELDS: Mapping[str, object] = {"speculative": {"enabled": False}}
"""Fields of a request to `uad serve` so that nothing drafts for it."""
_TIMEOUT_S = 600.0
_ERROR_CHARS = 300
_LINE_BYTES = 1 << 22
_BROKEN = (OSError, aiohttp.ClientError, ValueError)  # ValueError: no JSON, no UTF-8, a line without an end


@dataclass(slots=True)
class Stream:
    """An answer that came over a stream. Times are seconds on the client's clock; numbers that the server does not send
    are absent.
    """

    began: float = 0.0
    text: list[str] = field(default_factory=list)
    first: float | None = None
    ended: float = 0.0
    completion_tokens: float | None = None
    timings: dict[str, float] = field(default_factory=dict)
    uad: Mapping[str, Any] = field(default_factory=dict)
    """Fields that uad alone sends about its drafts, in its last chunk; empty from other servers."""

    @property
    def n_predicted(self) -> int:
        """Tokens of the answer. Raises UnavailableError if the server does not say."""
        n = self.completion_tokens if self.completion_tokens is not None else self.timings.get("predicted_n")
        if n is None:
            raise UnavailableError(
                "the server sends neither usage.completion_tokens nor timings with its stream: its speed cannot be "
                "measured"
            )
        return int(n)

    @property
    def first_s(self) -> float:
        """Seconds from the request to the first piece of text, or to the end where there was none."""
        return (self.ended if self.first is None else self.first) - self.began

    @property
    def total_s(self) -> float:
        """Seconds from the request to the end of the stream."""
        return self.ended - self.began

    @property
    def tps(self) -> float:
        """Tokens per second from the first one on; 0 where there are fewer than two. The first comes out of the
        prompt's decode, so n tokens took n - 1 steps. Raises UnavailableError.
        """
        return per_second(self.n_predicted - 1, self.total_s - self.first_s)

    def add(self, chunk: Mapping[str, object], now: float) -> None:
        """Take one decoded chunk that arrived at `now`. Raises UnavailableError for an error chunk."""
        if "error" in chunk:
            raise UnavailableError(f"the server failed in mid-stream: {json.dumps(chunk['error'])[:_ERROR_CHARS]}")
        piece = _piece(chunk)
        if piece:
            self.first = now if self.first is None else self.first
            self.text.append(piece)
        self.completion_tokens = _numbers(chunk.get("usage")).get("completion_tokens", self.completion_tokens)
        self.timings |= _numbers(chunk.get("timings"))
        if isinstance(own := chunk.get("uad"), dict):
            self.uad = own


def per_second(n: int, seconds: float) -> float:
    """A rate; 0 where nothing was timed."""
    return n / seconds if n > 0 and seconds > 0 else 0.0


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


SentBody = Mapping[str, object]


class Client:
    """One server. Every request has a connection of its own. Raises UnavailableError for whatever goes wrong on the
    way.
    """

    def __init__(self, url: str, key: str | None = None, clock: Clock = time.perf_counter) -> None:
        self.url = url
        self.clock = clock
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def get(self, path: str, timeout: float = _TIMEOUT_S) -> Mapping[str, object]:
        """GET a JSON object. timeout: seconds without a byte."""
        return asyncio.run(self._object("GET", path, None, timeout))

    def post(self, path: str, body: SentBody, timeout: float = _TIMEOUT_S) -> Mapping[str, object]:
        """POST a JSON object, get a JSON object."""
        return asyncio.run(self._object("POST", path, body, timeout))

    def stream(self, path: str, body: SentBody) -> Stream:
        """POST a request whose answer is streamed as server-sent events, and read it to its end."""
        return self.streams([(path, body)])[0]

    def streams(self, requests: Sequence[tuple[str, SentBody]]) -> list[Stream]:
        """Several (path, body) at once; all of them are over where one fails."""
        return asyncio.run(self._streams(requests))

    def first_model(self) -> str:
        """The name of the first model that the server lists."""
        models = self.get("/v1/models").get("data")
        name = models[0].get("id") if isinstance(models, list) and models and isinstance(models[0], dict) else None
        if not isinstance(name, str):
            raise UnavailableError(f"{self.url}/v1/models lists no model; name one with --peer-model")
        return name

    async def _object(self, method: str, path: str, body: SentBody | None, timeout: float) -> Mapping[str, object]:
        async with self._open(method, path, body, timeout) as response:
            data = json.loads(await response.read())
        if not isinstance(data, dict):
            raise UnavailableError(f"{self.url}{path} did not answer with a JSON object")
        return data

    async def _streams(self, requests: Sequence[tuple[str, SentBody]]) -> list[Stream]:
        tasks = [asyncio.ensure_future(self._stream(path, body)) for path, body in requests]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _stream(self, path: str, body: SentBody) -> Stream:
        result = Stream(began=self.clock())
        async with self._open("POST", path, body, _TIMEOUT_S) as response:
            async for line in response.content:
                data = line.removeprefix(b"data:").strip()
                if not line.startswith(b"data:") or data == b"[DONE]":
                    continue
                now = self.clock()
                chunk = json.loads(data)
                if isinstance(chunk, dict):
                    result.add(chunk, now)
        result.ended = self.clock()
        return result

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: SentBody | None, timeout: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout)
        through_proxy = not _is_loopback(self.url)
        try:
            async with (
                aiohttp.ClientSession(
                    headers=self._headers, timeout=limits, trust_env=through_proxy, read_bufsize=_LINE_BYTES
                ) as session,
                session.request(method, self.url + path, json=body) as response,
            ):
                if response.status >= 400:
                    text = (await response.read()).decode(errors="replace")[:_ERROR_CHARS]
                    raise UnavailableError(f"{self.url}{path} answered {response.status}: {text}")
                yield response
        except aiohttp.ClientConnectorError as error:
            raise UnavailableError(f"{self.url}{path} failed: {error}; does a server run there?") from error
        except _BROKEN as error:
            raise UnavailableError(f"{self.url}{path} failed: {error or type(error).__name__}") from error


def _is_loopback(url: str) -> bool:
    """Whether the server is on this machine, where it is never asked through a proxy."""
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_url(given: str, what: str) -> str:
    """The URL of a server, without /v1. Raises ConfigError."""
    url = given.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")) or not _has_host(url):
        raise ConfigError(f"{what} must be an http:// or https:// URL, not {given!r}")
    return url


def _has_host(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, and how it is asked: `fields` are added to every body."""

    name: str
    client: Client
    model: str
    fields: Mapping[str, object]

    def request(self, prompt: WorkloadPrompt, settings: SentBody) -> tuple[str, SentBody]:
        """The endpoint for a prompt, and the body that asks for a stream with its token count."""
        body: dict[str, object] = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}}
        body |= {**settings, **self.fields}
        if prompt.chat:
            return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": prompt.text}]}
        return "/v1/completions", body | {"prompt": prompt.text}
