"""Whole requests, as a client sees them: time to the first token, total time, and their ratios between running servers.

Every prompt goes to each server in turn, and to the first one twice: as it is, and with drafting off. No prompt is ever
sent twice to a server's cache: each begins with a line of its own. With `--workload` the prompts are those of workloads
(`answers`). Knows HTTP and nothing of models.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import TextIO

from rich.table import Table
from rich.text import Text

from uad.base.config.argv import Parser, typed
from uad.base.config.kinds import integer, number
from uad.base.console import Bar, console_on
from uad.base.errors import UnavailableError
from uad.tools.bench import answers
from uad.tools.bench.client import PLAIN_FIELDS, Client, Server, Stream, server_url
from uad.tools.bench.ratios import coloured
from uad.tools.bench.workloads import WorkloadPrompt, load, load_all

_DESCRIPTION = """Measure whole requests of a running server: time to the first token and in all, with drafts, without,
and on other servers.

Every prompt goes to each in turn, and none is in a cache. The last line is JSON."""
_EPILOG = "example: uad bench requests http://127.0.0.1:8080 --vs http://127.0.0.1:8081"
_SIZES = "32+200,400+200,2000+16,2000+200"
_WORKLOADS = ("long", "edit", "chat")
_WARM = (32, 8)
_CLOSE = 0.02  # of a wanted length
PLAIN = "no draft"


@dataclass(frozen=True, slots=True)
class Size:
    """How many tokens prompt and answer have."""

    n_prompt: int
    n_predict: int

    def __str__(self) -> str:
        return f"{self.n_prompt}+{self.n_predict}"


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One size: medians of each server's requests, in the order of the servers."""

    size: Size
    first_s: tuple[float, ...]
    total_s: tuple[float, ...]


def _parser() -> Parser:
    parser = Parser("uad bench requests", _DESCRIPTION, _EPILOG, "URL")
    add = parser.add_argument
    whole = typed(integer(1))
    add("url", metavar="URL", help="a running `uad serve`")
    add(
        "--vs",
        "--peer",
        dest="peers",
        metavar="URL",
        action="append",
        default=[],
        help="another OpenAI-compatible server; may be repeated",
    )
    add("--key", metavar="KEY", help="API key for all of them")
    add("--sizes", metavar="LIST", type=_sizes, default=_SIZES, help="tokens of prompt + answer (default: %(default)s)")
    add(
        "--workload",
        metavar="NAMES",
        action="append",
        help="the prompts of workloads instead, with commas between them: chat and others by name, all (of these), "
        "categories (twelve), or a .toml file",
    )
    add("--prompts", metavar="N", type=whole, default=4, help="the first N of each workload (default: %(default)s)")
    most = "most tokens of an answer to a workload's prompt (default: %(default)s)"
    add("-n", "--predict", "--n-predict", metavar="N", type=typed(integer(2)), default=96, help=most)
    add("--repeats", metavar="N", type=whole, default=3, help="requests of each size or prompt (default: %(default)s)")
    add(
        "--temperature",
        metavar="T",
        type=typed(number(0.0, 100.0)),
        default=0.0,
        help="temperature (default: %(default)g)",
    )
    add(
        "--thinking",
        choices=("on", "off"),
        help="whether chats may think, for templates that know `enable_thinking` (default: as the server has it)",
    )
    add("--json-only", action="store_true", help="print nothing but the JSON line")
    return parser


def main(argv: Sequence[str], out: TextIO = sys.stdout, err: TextIO = sys.stderr) -> int:
    """Measure as asked on the command line; the last line on stdout is JSON. Raises UadError."""
    args = _parser().parse(argv)
    if args.workload:
        return _answer(args, out, err)
    sizes, repeats, temperature = args.sizes, args.repeats, args.temperature
    servers = list(_servers(args))
    with Bar(err, len(servers) * (1 + len(sizes) * repeats)) as bar:
        rows = measure(servers, sizes, repeats, temperature, bar)
    if not args.json_only:
        console_on(out, width=160).print(table(servers, rows))
    print(json.dumps(summary(servers, rows)), file=out, flush=True)
    return 0


def _answer(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """The prompts of workloads."""
    settings: dict[str, object] = {"max_tokens": args.predict, "temperature": args.temperature, "seed": 1}
    if args.thinking:
        settings["chat_template_kwargs"] = {"enable_thinking": args.thinking == "on"}
    given = [workload.head(args.prompts) for workload in load_all(args.workload)]
    servers = list(_servers(args))
    n_prompts = sum(len(workload.prompts) for workload in given)
    with Bar(err, len(servers) * n_prompts * args.repeats) as bar:
        for server in servers:
            bar.at(f"{server.name}, first request")
            ask(server, "Say hello.", _WARM[1], args.temperature)
        asked = answers.measure(servers, given, args.repeats, settings, bar)
    rows = answers.rows(asked)
    if not args.json_only:
        console_on(out, width=160).print(answers.table(servers, rows, asked))
    print(json.dumps(answers.summary(servers, rows, asked)), file=out, flush=True)
    return 0


def _servers(args: argparse.Namespace) -> Iterator[Server]:
    first = _client(args.url, args.key)
    model = first.first_model()
    yield Server("uad", first, model, {})
    yield Server(PLAIN, first, model, PLAIN_FIELDS)
    for i, url in enumerate(args.peers, 1):
        peer = _client(url, args.key)
        yield Server("peer" if len(args.peers) == 1 else f"peer {i}", peer, peer.first_model(), {})


def _client(url: str, key: str | None) -> Client:
    return Client(server_url(url, "a server"), key)


def measure(
    servers: Sequence[Server], sizes: Sequence[Size], repeats: int, temperature: float, bar: Bar
) -> list[SizeRow]:
    """The servers take turns at every prompt, and another one begins each time. Raises UnavailableError."""
    prompts = PromptMaker(servers[0].client)
    for server in servers:
        bar.at(f"{server.name}, first request")
        ask(server, prompts.of(_WARM[0]), _WARM[1], temperature)
        bar.step()
    rows = []
    for size in sizes:
        streams: list[list[Stream]] = [[] for _ in servers]
        for repeat in range(repeats):
            text = prompts.of(size.n_prompt)
            for i in range(len(servers)):
                place = (i + repeat) % len(servers)
                bar.at(f"{servers[place].name}, {size}")
                streams[place].append(ask(servers[place], f"{servers[place].name} {text}", size.n_predict, temperature))
                bar.step()
        for server, times in zip(servers, streams, strict=True):
            if any(stream.n_predicted != size.n_predict for stream in times):
                counts = ", ".join(str(stream.n_predicted) for stream in times)
                raise UnavailableError(
                    f"{server.name} answered with {counts} tokens where {size.n_predict} were asked for"
                )
        firsts = tuple(median(stream.first_s for stream in times) for times in streams)
        totals = tuple(median(stream.total_s for stream in times) for times in streams)
        rows.append(SizeRow(size, firsts, totals))
    return rows


def ask(server: Server, text: str, n_predict: int, temperature: float) -> Stream:
    """One chat request for an answer of n_predict tokens. Raises UnavailableError."""
    settings = {"max_tokens": n_predict, "temperature": temperature, "seed": 1, "ignore_eos": True}
    return answers.ask(server, WorkloadPrompt("", text, chat=True), settings)


class PromptMaker:
    """Texts of about as many tokens as are wanted, by the first server's tokenizer: parts of the bundled workloads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._texts = [prompt.text for name in _WORKLOADS for prompt in load(name).prompts]
        self._n = 0

    def of(self, n_tokens: int) -> str:
        """Another text each time."""
        self._n += 1
        texts = self._texts[self._n % len(self._texts) :] + self._texts
        whole = f"Request {self._n}.\n" + "\n\n".join(texts)
        while self._length(whole) < n_tokens:
            whole += "\n\n" + "\n\n".join(texts)
        low, high = 1, len(whole)
        while low < high:
            middle = (low + high) // 2
            n = self._length(whole[:middle])
            if abs(n - n_tokens) <= _CLOSE * n_tokens:
                return whole[:middle]
            low, high = (middle + 1, high) if n < n_tokens else (low, middle)
        return whole[:low]

    def _length(self, text: str) -> int:
        tokens = self._client.post("/tokenize", {"content": text}).get("tokens")
        if not isinstance(tokens, list):
            raise UnavailableError(f"{self._client.url}/tokenize tells no tokens; the first server must be `uad serve`")
        return len(tokens)


def table(servers: Sequence[Server], rows: Sequence[SizeRow]) -> Table:
    """A row per size, a column per server; ratios are speeds of the first server over each of the others."""
    others = servers[1:]
    result = Table(
        title="Seconds to the first token and in all, medians; speed relative to the others (more than 1: faster)"
    )
    result.add_column("prompt+answer", no_wrap=True)
    for what in ("first token", "in all"):
        for server in servers:
            result.add_column(f"{server.name}\n{what}", justify="right")
        for server in others:
            result.add_column(f"over {server.name}", justify="right")
    for row in rows:
        cells: list[str | Text] = [str(row.size)]
        for seconds in (row.first_s, row.total_s):
            cells += [f"{second:.2f}" for second in seconds]
            cells += [coloured(second / seconds[0]) for second in seconds[1:]]
        result.add_row(*cells)
    return result


def summary(servers: Sequence[Server], rows: Sequence[SizeRow]) -> dict[str, object]:
    """The JSON line: medians by size and server, and the worst and the mean speed over each other server."""
    cells = [
        {
            "prompt": row.size.n_prompt,
            "predict": row.size.n_predict,
            "first_s": {server.name: round(s, 4) for server, s in zip(servers, row.first_s, strict=True)},
            "total_s": {server.name: round(s, 4) for server, s in zip(servers, row.total_s, strict=True)},
        }
        for row in rows
    ]
    over: dict[str, dict[str, float]] = {}
    for i, server in enumerate(servers[1:], 1):
        firsts, totals = (
            [row.first_s[i] / row.first_s[0] for row in rows],
            [row.total_s[i] / row.total_s[0] for row in rows],
        )
        over[server.name] = {
            "first_worst": round(min(firsts), 4),
            "total_worst": round(min(totals), 4),
            "first_geomean": round(geometric_mean(firsts), 4),
            "total_geomean": round(geometric_mean(totals), 4),
        }
    return {"requests": cells, "over": over}


def _sizes(given: str) -> list[Size]:
    sizes = []
    for word in given.split(","):
        prompt, plus, predict = word.partition("+")
        if (
            not plus
            or not prompt.strip().isdecimal()
            or not predict.strip().isdecimal()
            or not int(prompt)
            or not int(predict)
        ):
            raise argparse.ArgumentTypeError(
                f"write tokens of prompt + answer with commas between them, such as {_SIZES}, not {given!r}"
            )
        sizes.append(Size(int(prompt), int(predict)))
    return sizes
