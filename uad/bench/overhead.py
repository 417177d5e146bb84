"""`uad bench --overhead`: plain decoding over HTTP from a real server process, against a bare decode loop in this one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import IO

from rich.console import Console

from uad.bench.bar import Bar
from uad.bench.measure import turns
from uad.bench.options import Lineup, Options
from uad.bench.peer import Client, chat_or_raw, streaming
from uad.bench.workloads import Prompt, load
from uad.config.argv import words_of
from uad.errors import ConfigError, UnavailableError

Bare = Callable[[Sequence[int], int], float]
"""(prompt ids, n) -> tokens per second of n greedy decodes of one token each, with nothing around them."""

_HOST = "127.0.0.1"
_START_SECONDS = 600.0
_STOP_SECONDS = 20.0
_WARM_UP_TOKENS = 8
_LOG_TAIL = 2000


@dataclass(frozen=True, slots=True)
class Overhead:
    """Median rates in tokens per second."""

    http_tps: float
    bare_tps: float

    @property
    def ratio(self) -> float:
        return self.http_tps / self.bare_tps

    def json_line(self) -> str:
        """The last line of the output."""
        return json.dumps(
            {"overhead": {"http_tps": round(self.http_tps, 4), "bare_tps": round(self.bare_tps, 4), "ratio": round(self.ratio, 4)}}
        )


def main(options: Options) -> int:
    """Measure and print; the last line on stdout is JSON. Raises UadError."""
    from uad.runtime import BareLoop

    if len(options.targets) > 1:
        raise ConfigError("--overhead takes one --target")
    workload = load("code").head(1)
    options, prompt = replace(options, workloads=(workload,), sequences=(1,)), workload.prompts[0]
    with Bar(sys.stderr, 2 * (options.repeats + 1)) as bar:
        bar.at("starting the server")
        with serving(command(options, free_port())) as client, BareLoop(options.config(options.targets[0], Lineup(None, ()))) as loop:
            bar.at("plain decoding: over HTTP, and bare")
            result = compare(options, prompt, client, loop.tps, bar.step)
    if not options.json_only:
        line = f"over HTTP {result.http_tps:.1f} tok/s, bare llama_decode loop {result.bare_tps:.1f} tok/s, ratio {result.ratio:.3f}"
        Console().print(line, highlight=False, soft_wrap=True)
    print(result.json_line(), flush=True)
    return 0


def compare(options: Options, prompt: Prompt, client: Client, bare: Bare, on_run: Callable[[], None]) -> Overhead:
    """Medians of interleaved runs, never both at once; a short run of each goes first and is not counted. Raises UadError."""
    ids = _tokenize(client, prompt)
    arms: tuple[Callable[[int], float], ...] = (lambda n: _http_tps(client, prompt, n), lambda n: bare(ids, n))
    rates: list[list[float]] = [[], []]
    for arm in arms:
        arm(_WARM_UP_TOKENS)
        on_run()
    for i in turns(len(arms), options.repeats):
        rates[i].append(arms[i](options.max_tokens))
        on_run()
    result = Overhead(median(rates[0]), median(rates[1]))
    if result.http_tps <= 0 or result.bare_tps <= 0:
        raise ConfigError("the answer was too short to be timed; raise --max-tokens")
    return result


def _tokenize(client: Client, prompt: Prompt) -> tuple[int, ...]:
    ids = client.post("/tokenize", {"content": prompt.text, "add_special": True, "parse_special": False}).get("tokens")
    if not isinstance(ids, list) or not ids or not all(type(id_) is int for id_ in ids):
        raise UnavailableError(f"{client.url}/tokenize did not answer with a list of ids")
    return tuple(ids)


def _http_tps(client: Client, prompt: Prompt, n: int) -> float:
    path, field = chat_or_raw(prompt.text, prompt.chat)
    body: dict[str, object] = {"temperature": 0, "max_tokens": n, "ignore_eos": True}
    return client.stream(path, streaming("default") | field | body).client_tps


def command(options: Options, port: int) -> list[str]:
    """The command line of a server without a draft, loaded as the bench loads its models."""
    target = replace(options.target, path=options.targets[0], n_ctx=options.n_ctx)
    return [sys.executable, "-m", "uad", "serve", *words_of(target), "--host", _HOST, "--port", str(port), "-np", "1"]


def free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def serving(arguments: Sequence[str]) -> Iterator[Client]:
    """Run a server (its `--port` is among the arguments) until the block ends; the client is given when it is healthy."""
    client = Client(f"http://{_HOST}:{arguments[arguments.index('--port') + 1]}")
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}  # all that is meant is in the arguments
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env) as process,
    ):
        try:
            _wait_until_healthy(client, process, log)
            yield client
        finally:
            _stop(process)


def _wait_until_healthy(client: Client, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UnavailableError(f"the server ended with code {process.returncode} before it was ready:\n{_tail(log)}")
        try:
            client.get("/health", timeout=5.0)
        except UnavailableError:
            time.sleep(0.2)
        else:
            return
    raise UnavailableError(f"the server was not ready after {_START_SECONDS:.0f} seconds:\n{_tail(log)}")


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read()[-_LOG_TAIL:].decode(errors="replace").strip()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS)
