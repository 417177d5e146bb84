"""What the server costs: `python lab/overhead.py --target T.gguf`.

Plain decoding over HTTP, from a real server process, against a bare loop of `llama_decode` and argmax in this one.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import IO, Self

from rich.console import Console

from uad.bench.client import Client, streaming
from uad.bench.measure import turns
from uad.bench.options import OWN, context_for
from uad.bench.workloads import WorkloadPrompt, load
from uad.cli import run
from uad.config import Config, ModelConfig
from uad.config.argv import Parser, add_group, typed, words_of
from uad.config.flags import CONTEXT, MODEL
from uad.config.kinds import FILE, integer
from uad.config.load import models_from
from uad.console import Bar, set_up_logging
from uad.errors import ConfigError, UnavailableError
from uad.types import Rows

DESCRIPTION = "Measure plain decoding over HTTP against a bare decode loop. The last line of output is JSON."

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
            {
                "overhead": {
                    "http_tps": round(self.http_tps, 4),
                    "bare_tps": round(self.bare_tps, 4),
                    "ratio": round(self.ratio, 4),
                }
            }
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured; repeats: counted runs of max_tokens each."""

    target: ModelConfig
    prompt: WorkloadPrompt
    max_tokens: int
    repeats: int
    json_only: bool


def parse(argv: Sequence[str]) -> Settings:
    """The command line. Raises ConfigError."""
    parser = Parser("lab/overhead.py", DESCRIPTION)
    add = parser.add_argument
    add("-m", "--target", "--model", type=typed(FILE), metavar="GGUF", help="target model")
    add(
        "-n",
        "--max-tokens",
        type=typed(integer(2)),
        default=160,
        metavar="N",
        help="tokens per run (default: %(default)s)",
    )
    add(
        "--repeats",
        type=typed(integer(1)),
        default=3,
        metavar="N",
        help="counted runs of each; the median counts (default: %(default)s)",
    )
    add(
        "-c",
        "--ctx-size",
        type=typed(integer(0)),
        default=0,
        metavar="N",
        help="context in tokens (default: what the prompt needs)",
    )
    add("--json-only", action="store_true", help="print the JSON line only")
    for group in (MODEL, CONTEXT):
        add_group(parser, group, without=OWN)
    args = parser.parse(argv)
    if args.target is None or not args.target.is_file():
        raise ConfigError(
            f"--target: no such file: {args.target}" if args.target else "--target is missing: give a GGUF file"
        )
    prompt = load("code").prompts[0]
    target, _ = models_from(args, os.environ, without=OWN)
    n_ctx = args.ctx_size or context_for([prompt], args.max_tokens)
    return Settings(
        replace(target, path=args.target, n_ctx=n_ctx), prompt, args.max_tokens, args.repeats, args.json_only
    )


def main(argv: Sequence[str]) -> int:
    """Measure and print; the last line on stdout is JSON. Raises UadError."""
    settings = parse(argv)
    set_up_logging()
    with Bar(sys.stderr, 2 * (settings.repeats + 1)) as bar:
        bar.at("starting the server")
        with serving(command(settings.target, free_port())) as client, BareLoop(settings.target) as loop:
            bar.at("plain decoding: over HTTP, and bare")
            result = compare(settings, client, loop.tps, bar.step)
    if not settings.json_only:
        line = (
            f"over HTTP {result.http_tps:.1f} tok/s, bare llama_decode loop {result.bare_tps:.1f} tok/s, ratio "
            f"{result.ratio:.3f}"
        )
        Console().print(line, highlight=False, soft_wrap=True)
    print(result.json_line(), flush=True)
    return 0


def compare(settings: Settings, client: Client, bare: Bare, on_run: Callable[[], None]) -> Overhead:
    """Medians of interleaved runs, never both at once; a short run of each goes first and is not counted. Raises
    UadError.
    """
    prompt = settings.prompt
    ids = _tokenize(client, prompt)
    arms: tuple[Callable[[int], float], ...] = (lambda n: _http_tps(client, prompt, n), lambda n: bare(ids, n))
    rates: list[list[float]] = [[], []]
    for arm in arms:
        arm(_WARM_UP_TOKENS)
        on_run()
    for i in turns(len(arms), settings.repeats):
        rates[i].append(arms[i](settings.max_tokens))
        on_run()
    result = Overhead(median(rates[0]), median(rates[1]))
    if result.http_tps <= 0 or result.bare_tps <= 0:
        raise ConfigError("the answer was too short to be timed; raise --max-tokens")
    return result


def _tokenize(client: Client, prompt: WorkloadPrompt) -> tuple[int, ...]:
    ids = client.post("/tokenize", {"content": prompt.text, "add_special": True, "parse_special": False}).get("tokens")
    if not isinstance(ids, list) or not ids or not all(type(id_) is int for id_ in ids):
        raise UnavailableError(f"{client.url}/tokenize did not answer with a list of ids")
    return tuple(ids)


def _http_tps(client: Client, prompt: WorkloadPrompt, n: int) -> float:
    path, body = streaming("default", prompt.text, prompt.chat)
    return client.stream(path, body | {"temperature": 0, "max_tokens": n, "ignore_eos": True}).client_tps


class BareLoop:
    """A target and nothing around it. It stays loaded between runs, as in a server: freshly mapped weights are read
    faster.
    """

    def __init__(self, target: ModelConfig) -> None:
        from uad.costs.fit import fitted

        from uad.llama.context import Context
        from uad.llama.model import Model

        config = fitted(Config(target=target)).config
        with ExitStack() as stack:
            model = stack.enter_context(Model(config.target, "target"))
            self._context = stack.enter_context(Context(model, config.target, config.n_parallel, "target"))
            self._stack = stack.pop_all()

    def tps(self, prompt_ids: Sequence[int], n: int) -> float:
        """Greedy tokens per second over n decodes of one row each behind the prompt."""
        context = self._context
        context.clear(0)
        for start in range(0, len(prompt_ids), context.n_batch):
            context.decode([Rows(0, start, prompt_ids[start : start + context.n_batch], 1)])
        id_ = int(context.logits()[0].argmax())
        began = time.perf_counter()
        for pos in range(len(prompt_ids), len(prompt_ids) + n):
            context.decode([Rows(0, pos, (id_,), 1)])
            id_ = int(context.logits()[0].argmax())
        return n / (time.perf_counter() - began)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def command(target: ModelConfig, port: int) -> list[str]:
    """The command line of a server without a draft, that loads the target in the same way."""
    return [sys.executable, "-m", "uad", "serve", *words_of(target), "--host", _HOST, "--port", str(port), "-np", "1"]


def free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def serving(arguments: Sequence[str]) -> Iterator[Client]:
    """Run a server (its `--port` is among the arguments) until the block ends; the client is given when it is
    healthy.
    """
    client = Client(f"http://{_HOST}:{arguments[arguments.index('--port') + 1]}")
    # all that is meant is in the arguments
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
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
            raise UnavailableError(
                f"the server ended with code {process.returncode} before it was ready:\n{_tail(log)}"
            )
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


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
