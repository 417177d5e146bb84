"""The server's cost per token: `python lab/overhead.py --target T.gguf [--vs llama-server]`.

Plain decoding over HTTP, from real server processes, against a bare loop of `llama_decode` and argmax in this one. Each
cell of the table is a number of requests at once, greedy or at 0.8, sent whole or streamed. All sides of a cell take
turns, each request goes on a cached prompt, and medians count.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Self

from rich import box
from rich.console import Console
from rich.table import Table
from serving import OWN, context_for, served_environ, turns
from words import words_of

from uad.base.config import Config, ModelConfig, load_config
from uad.base.config.argv import Parser, add_group, typed
from uad.base.config.flags import CONTEXT, MODEL
from uad.base.config.kinds import FILE, integer
from uad.base.console import Bar, set_up_logging
from uad.base.errors import ConfigError, UnavailableError
from uad.base.types import Rows
from uad.tools.bench.client import Client
from uad.tools.bench.workloads import WorkloadPrompt, load
from uad.tools.cli import run

DESCRIPTION = "Measure plain decoding over HTTP against a bare decode loop. The last line of output is JSON."

_LISTENING = re.compile(r"listening on (http://\S+)")
_START_SECONDS = 600.0
_STOP_SECONDS = 20.0
_LOG_TAIL = 2000
_TEMPERATURES = (0.0, 0.8)
BARE, UAD, VS = "bare", "uad", "vs"


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to ask: n_requests at once, at a temperature, sent whole or streamed."""

    n_requests: int
    temperature: float
    streamed: bool

    @property
    def name(self) -> str:
        kind = "streamed" if self.streamed else "whole"
        return f"{self.n_requests} at once, {self.temperature or 'greedy'}, {kind}"


Run = Callable[[Cell, int], float]
"""(cell, tokens of each request) -> microseconds per token, all requests together."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings; repeats: counted runs of max_tokens for each request. vs: a llama-server to compare with."""

    target: ModelConfig
    prompt: WorkloadPrompt
    max_tokens: int
    repeats: int
    slots: tuple[int, ...]
    vs: Path | None
    json_only: bool

    @property
    def cells(self) -> list[Cell]:
        return [Cell(n, t, streamed) for n in self.slots for t in _TEMPERATURES for streamed in (False, True)]


def parse(argv: Sequence[str]) -> Settings:
    """The command line. Raises ConfigError."""
    parser = Parser("lab/overhead.py", DESCRIPTION)
    add = parser.add_argument
    add("-m", "--target", "--model", type=typed(FILE), metavar="GGUF", help="target model")
    add("--vs", type=typed(FILE), metavar="FILE", help="llama-server's executable, to measure it in turns")
    add(
        "-n",
        "--max-tokens",
        type=typed(integer(2)),
        default=160,
        metavar="N",
        help="tokens of a request (default: %(default)s)",
    )
    add(
        "--repeats",
        type=typed(integer(1)),
        default=5,
        metavar="N",
        help="counted runs of each; the median counts (default: %(default)s)",
    )
    add(
        "--slots",
        type=typed(integer(1)),
        nargs="+",
        default=[1],
        metavar="N",
        help="how many requests at once (default: 1)",
    )
    add(
        "-c",
        "--ctx-size",
        type=typed(integer(0)),
        default=0,
        metavar="N",
        help="context of a slot in tokens (default: what the prompt needs)",
    )
    add("--json-only", action="store_true", help="print the JSON line only")
    # what the parser does not know yet says how the target is loaded
    served = parser.split(argv)[1] if not {"-h", "--help"} & set(argv) else []
    for group in (MODEL, CONTEXT):
        add_group(parser, group, without=OWN)
    args = parser.parse(argv)
    if args.target is None or not args.target.is_file():
        raise ConfigError(
            f"--target: no such file: {args.target}" if args.target else "--target is missing: give a GGUF file"
        )
    if args.vs is not None and not args.vs.is_file():
        raise ConfigError(f"--vs: no such file: {args.vs}")
    prompt = load("code").prompts[0]
    target = load_config(["--model", str(args.target), *served], served_environ(os.environ)).target
    n_ctx = args.ctx_size or context_for([prompt], args.max_tokens)
    return Settings(
        replace(target, path=args.target, n_ctx=n_ctx),
        prompt,
        args.max_tokens,
        args.repeats,
        tuple(args.slots),
        args.vs,
        args.json_only,
    )


def main(argv: Sequence[str]) -> int:
    """Measure and print; the last line on stdout is JSON. Raises UadError."""
    settings = parse(argv)
    set_up_logging()
    most = max(settings.slots)
    n_sides = 2 + (settings.vs is not None)
    with Bar(sys.stderr, len(settings.cells) * n_sides * (settings.repeats + 1)) as bar, ExitStack() as stack:
        bar.at("starting")
        sides: dict[str, Run] = {}
        loop = stack.enter_context(BareLoop(settings.target))
        ids = loop.tokenize(settings.prompt.text)
        sides[BARE] = lambda cell, n: loop.us(ids, n)
        sides[UAD] = over_http(stack.enter_context(serving(command(settings.target, most))), settings.prompt)
        if settings.vs is not None:
            words = peer_command(settings.vs, settings.target, most)
            sides[VS] = over_http(stack.enter_context(serving(words)), settings.prompt)
        results = {cell: compare(settings, cell, sides, bar.step) for cell in settings.cells}
    if not settings.json_only:
        Console().print(table(results))
    print(json_line(results), flush=True)
    return 0


def compare(settings: Settings, cell: Cell, sides: Mapping[str, Run], on_run: Callable[[], None]) -> dict[str, float]:
    """Microseconds per token of each side: medians of interleaved runs, never two at once. A run of each goes first and
    is not counted. The bare loop writes one text greedily and is left out elsewhere. Raises UadError.
    """
    used = {name: run for name, run in sides.items() if name != BARE or (cell.n_requests == 1 and not cell.temperature)}
    names = list(used)
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        used[name](cell, settings.max_tokens)
        on_run()
    for i in turns(len(names), settings.repeats):
        times[names[i]].append(used[names[i]](cell, settings.max_tokens))
        on_run()
    return {name: median(values) for name, values in times.items()}


def table(results: Mapping[Cell, Mapping[str, float]]) -> Table:
    """Microseconds per token, and how fast uad is in terms of the other server."""
    out = Table("requests", "bare", "uad", "over bare", "vs", "uad's speed over vs", box=box.MARKDOWN)
    for cell, us in results.items():
        bare, own, other = us.get(BARE), us[UAD], us.get(VS)
        out.add_row(
            cell.name,
            f"{bare:.0f} µs" if bare else "",
            f"{own:.0f} µs",
            f"+{own - bare:.0f} µs" if bare else "",
            f"{other:.0f} µs" if other else "",
            f"{other / own:.2f}" if other else "",
        )
    return out


def json_line(results: Mapping[Cell, Mapping[str, float]]) -> str:
    """The last line of the output."""
    return json.dumps(
        {"overhead": {cell.name: {side: round(us, 1) for side, us in sides.items()} for cell, sides in results.items()}}
    )


def over_http(client: Client, prompt: WorkloadPrompt) -> Run:
    """Requests to a server, each on a thread and a connection of its own. The client reads bytes and parses nothing but
    the end, as it runs on the same cores.
    """
    address = urllib.parse.urlsplit(client.url)

    def one(cell: Cell, n: int, seed: int) -> None:
        body = {"prompt": prompt.text, "n_predict": n, "temperature": cell.temperature, "seed": seed}
        body |= {"ignore_eos": True, "stream": cell.streamed, "cache_prompt": True, "id_slot": seed}
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_START_SECONDS)
        try:
            connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
        except OSError as error:
            raise UnavailableError(f"{client.url} failed: {error}") from error
        finally:
            connection.close()
        if response.status != 200 or f'"tokens_predicted":{n}'.encode() not in data.replace(b" ", b""):
            raise UnavailableError(f"{client.url} did not write {n} tokens: {data[:200].decode(errors='replace')}")

    def run(cell: Cell, n: int) -> float:
        with ThreadPoolExecutor(cell.n_requests) as threads:
            began = time.perf_counter()
            for answer in [threads.submit(one, cell, n, seed) for seed in range(cell.n_requests)]:
                answer.result()
            return 1e6 * (time.perf_counter() - began) / (n * cell.n_requests)

    return run


class BareLoop:
    """A target and nothing around it. It stays loaded between runs, as in a server: freshly mapped weights are read
    faster.
    """

    def __init__(self, target: ModelConfig) -> None:
        from uad.llama.context import Context
        from uad.llama.model import Model
        from uad.runtime.plan import plan

        config = plan(Config(target=target)).config
        with ExitStack() as stack:
            model = stack.enter_context(Model(config.target, "target"))
            self._context = stack.enter_context(Context(model, config.target, config.n_parallel, "target"))
            self._context.choose_threads(config.target)
            self._stack = stack.pop_all()

    def tokenize(self, text: str) -> list[int]:
        """The target's ids of a text."""
        return self._context.vocab.tokenize(text.encode())

    def us(self, prompt_ids: Sequence[int], n: int) -> float:
        """Microseconds per token of n greedy decodes of one row each after the prompt."""
        context = self._context
        context.clear(0)
        for start in range(0, len(prompt_ids), context.n_batch):
            context.decode([Rows(0, start, prompt_ids[start : start + context.n_batch], 1)])
        id_ = int(context.logits()[0].argmax())
        began = time.perf_counter()
        for pos in range(len(prompt_ids), len(prompt_ids) + n):
            context.decode([Rows(0, pos, (id_,), 1)])
            id_ = int(context.logits()[0].argmax())
        return 1e6 * (time.perf_counter() - began) / n

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def command(target: ModelConfig, n_slots: int) -> list[str]:
    """The command line of a server without a draft, that loads the target in the same way, on any free port."""
    words = words_of(replace(target, n_ctx=target.n_ctx * n_slots))
    return [
        sys.executable,
        "-P",
        "-m",
        "uad",
        "serve",
        *words,
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "-np",
        str(n_slots),
    ]


def peer_command(program: Path, target: ModelConfig, n_slots: int) -> list[str]:
    """The same of a llama-server, which picks no free port: the one that the system gives now."""
    words = words_of(replace(target, n_ctx=target.n_ctx * n_slots))
    words += ["--host", "127.0.0.1", "--port", str(free_port()), "-np", str(n_slots), "--no-webui", "--fit", "off"]
    return [str(program), *words]


def free_port() -> int:
    """A port that is free at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def serving(arguments: Sequence[str], url: str | None = None) -> Iterator[Client]:
    """Run a server until the block ends; the client is given once it is healthy. url: where it listens; without it, it
    prints that.
    """
    # all that is meant is in the arguments
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(folder, "log").open("wb") as log,
        subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env) as process,
    ):
        try:
            yield Client(_address(process, Path(log.name), url))
        finally:
            _stop(process)


def _address(process: subprocess.Popen[bytes], log: Path, url: str | None) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        code = process.poll()
        if url is None and (match := _LISTENING.search(log.read_text(errors="replace"))):
            url = match[1]
        if url is not None and _is_healthy(url):
            return url
        if code is not None:
            raise UnavailableError(f"the server ended with code {code} before it was ready:\n{_tail(log)}")
        time.sleep(0.2)
    raise UnavailableError(f"the server was not ready after {_START_SECONDS:.0f} seconds:\n{_tail(log)}")


def _is_healthy(url: str) -> bool:
    """Whether it has loaded its models: llama-server listens before it has."""
    try:
        Client(url).get("/health")
    except UnavailableError:
        return False
    return True


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-_LOG_TAIL:].strip()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS)


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
