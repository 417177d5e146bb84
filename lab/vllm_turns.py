"""uad's drafts inside vLLM by the clock: `python lab/vllm_turns.py FOLDER TARGET.gguf DRAFT.gguf`.

Real servers of one target on this machine: vLLM alone, with its own `ngram` drafts, and with uad's; `uad serve` with
the same pair and without a draft. Prompts of twelve categories go to each in turn, and another one begins each time.
Servers that are not asked are stopped meanwhile, since vLLM's processes look for work all the time. Every group that
was measured is a line of a file; the tables of docs/vllm.md are made of it. FOLDER is the target as vLLM reads it
(`scripts/vllm_real.py convert`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from serving import context_for

from uad.base.config.argv import Parser, typed
from uad.base.config.kinds import choice, integer, number, several
from uad.base.console import say, set_up_logging
from uad.base.errors import ConfigError, UnavailableError
from uad.tools.bench.client import PLAIN_FIELDS, Client, Server, Stream
from uad.tools.bench.serving import ended_by_signals
from uad.tools.bench.workloads import WorkloadPrompt, load_all
from uad.tools.cli import run

DESCRIPTION = "Measure uad's drafts inside vLLM against vLLM alone, its ngram method and uad's own server, in turns."
PLAIN, NGRAM, DRAFTED, SUFFIX = "vLLM", "vLLM, ngram", "vLLM, uad", "vLLM, uad's suffix"
OWN, OWN_PLAIN = "uad serve", "uad serve, no draft"
_PROPOSER = {"method": "custom_class", "model": "uad.vllm.Proposer", "num_speculative_tokens": 8}
METHODS: Mapping[str, Mapping[str, object] | None] = {
    PLAIN: None,
    NGRAM: {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
    DRAFTED: _PROPOSER,
    SUFFIX: _PROPOSER,  # without a draft model
}
_SHORT = {"plain": PLAIN, "ngram": NGRAM, "uad": DRAFTED, "suffix": SUFFIX, "own": OWN}
_USUAL = "plain,ngram,uad,own"
_ROOT = Path(__file__).parents[1]
_START_S, _STOP_S = 300.0, 20.0
_HELLO = WorkloadPrompt("hello", "Count from one to forty in words.", chat=True)
_COUNTERS = {
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
    "steps": "vllm:iteration_tokens_total_count",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's reply to one group: tokens of all its answers, seconds until the last one ended, and texts. steps:
    passes of the target; 0 where the server does not say.
    """

    n: int
    seconds: float
    drafted: int
    accepted: int
    steps: int
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One group of prompts, asked at once."""

    temperature: float
    at_once: int
    prompts: tuple[str, ...]
    replies: Mapping[str, Reply]


class Place:
    """A server in a process group of its own, stopped while others are asked. Several names may share a process."""

    def __init__(self, process: subprocess.Popen[bytes], server: Server) -> None:
        self.process, self.server = process, server

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Goes on for as long as the block runs."""
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGSTOP)

    def ask(self, prompts: Sequence[WorkloadPrompt], settings: Mapping[str, object]) -> Reply:
        """All prompts at once. Raises UnavailableError."""
        with self.awake():
            before = self._counts()
            streams = self.server.client.streams([self.server.request(one, settings) for one in prompts])
            after = self._counts()
        seconds = max(one.ended for one in streams) - min(one.began for one in streams)
        counts = {name: after[name] - before[name] for name in after} or _own_counts(streams)
        return Reply(
            sum(one.n_predicted for one in streams),
            round(seconds, 4),
            **counts,
            texts=tuple("".join(one.text) for one in streams),
        )

    def _counts(self) -> dict[str, int]:
        """vLLM's counters; nothing where it is another server."""
        if self.server.name not in METHODS:
            return {}
        with urllib.request.urlopen(f"{self.server.client.url}/metrics", timeout=60) as response:
            lines = response.read().decode().splitlines()
        return {
            key: round(sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"{name}[{{ ]", line)))
            for key, name in _COUNTERS.items()
        }


def _own_counts(streams: Sequence[Stream]) -> dict[str, int]:
    return {
        "drafted": round(sum(one.timings.get("draft_n", 0) for one in streams)),
        "accepted": round(sum(one.timings.get("draft_n_accepted", 0) for one in streams)),
        "steps": sum(int(one.uad.get("rounds", 0)) for one in streams),
    }


# --- servers


@contextmanager
def started(
    name: str, command: Sequence[str], environ: Mapping[str, str], log: Path, fields: Mapping[str, object] | None = None
) -> Iterator[Place]:
    """A server on a free port that is ready, and stopped for now; it ends with the block. Raises UnavailableError."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=out,
            stderr=out,
            env={**os.environ, **environ, "PYTHONPATH": str(_ROOT)},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_S
        while not _is_ready(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise UnavailableError(f"{name} did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.5)
        client = Client(url)
        place = Place(process, Server(name, client, client.first_model(), fields or {}))
        os.killpg(process.pid, signal.SIGSTOP)
        yield place
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too


def _is_ready(url: str) -> bool:
    """By the status alone: vLLM's answer has no body."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def places(args: Any, most: int, n_ctx: int, logs: Path) -> Iterator[dict[str, Place]]:
    """All servers by name, in the order of the tables."""
    vllm = [args.vllm, "-m", "vllm.entrypoints.openai.api_server", "--model", args.folder, "--dtype", "bfloat16"]
    vllm += ["--max-model-len", str(n_ctx), "--max-num-seqs", str(most), "--enforce-eager"]
    vllm += ["--no-enable-prefix-caching"]
    # a request with a seed whose prompt is read in pieces ends vLLM 0.32.0 on a CPU (its ngram method, 32 at once)
    vllm += ["--max-num-batched-tokens", "8192"]
    environ = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": args.bind, "VLLM_NO_USAGE_STATS": "1"}
    environ |= {"TOKENIZERS_PARALLELISM": "false"}
    drafts = {DRAFTED: f"draft: {json.dumps(str(args.draft))}\n", SUFFIX: "spec-type: suffix\n"}
    found: dict[str, Place] = {}
    with ExitStack() as stack:
        for i, name in enumerate(one for one in args.servers if one in METHODS):
            say(sys.stderr, f"uad: starting {name}")
            method = METHODS[name]
            words = [*vllm, *(["--speculative-config", json.dumps(method)] if method else [])]
            settings = logs / f"drafts-{i}.yaml"
            settings.write_text(f"{drafts.get(name, '')}spec-share: 'off'\nparallel: {args.slots}\n")
            own_environ = {**environ, "UAD_VLLM_CONFIG": str(settings)}
            found[name] = stack.enter_context(started(name, words, own_environ, logs / f"vllm-{i}.log"))
        if OWN not in args.servers:
            yield found
            return
        say(sys.stderr, f"uad: starting {OWN}")
        words = [sys.executable, "-P", "-m", "uad", "serve", "--target", args.target, "--draft", args.draft, "--no-ui"]
        words += ["-np", str(most), "-c", str(n_ctx * most), "--spec-share", "off"]
        fields = {"cache_prompt": False}
        own = found[OWN] = stack.enter_context(started(OWN, words, {}, logs / "own.log", fields))
        plain = replace(own.server, name=OWN_PLAIN, fields={**fields, **PLAIN_FIELDS})
        found[OWN_PLAIN] = Place(own.process, plain)
        yield found


# --- measuring


def measure(found: Mapping[str, Place], args: Any, prompts: Sequence[WorkloadPrompt]) -> Iterator[Record]:
    """Group by group; every server in its turn."""
    names, turn = list(found), 0
    for name in names:  # the first steps of drafts only show what steps cost
        found[name].ask([_HELLO], {"max_tokens": 64, "temperature": 0.0})
    for at_once in args.at_once:
        for temperature in args.temperatures:
            settings = {"max_tokens": args.predict, "temperature": temperature, "seed": 1}
            n_groups = min(args.groups, max(len(prompts) // at_once, 1))
            some = prompts[: at_once * n_groups] if at_once > 1 else prompts[: args.alone]
            for begin in range(0, len(some), at_once):
                group = some[begin : begin + at_once]
                order = [names[(i + turn) % len(names)] for i in range(len(names))]
                replies = {name: found[name].ask(group, settings) for name in order}
                turn += 1
                say(sys.stderr, f"uad: {at_once} at once, {temperature}: {begin + len(group)} of {len(some)}")
                yield Record(temperature, at_once, tuple(one.name for one in group), {n: replies[n] for n in names})


def margins(place: Place, records: Sequence[Record], prompts: Mapping[str, WorkloadPrompt], n: int) -> list[str]:
    """For each greedy text alone that is not plain vLLM's: how much likelier its first other token was there."""
    lines = []
    for one in records:
        for name in (name for name in one.replies if name in METHODS and name != PLAIN):
            plain, other = one.replies[PLAIN].texts[0], one.replies[name].texts[0]
            if one.at_once > 1 or one.temperature or plain == other:
                continue
            path, body = place.server.request(prompts[one.prompts[0]], {"max_tokens": n, "temperature": 0.0})
            body = {k: v for k, v in body.items() if k != "stream_options"} | {"stream": False}
            with place.awake():
                answer = place.server.client.post(path, {**body, "logprobs": True, "top_logprobs": 5})
            lines.append(f"{name}, {one.prompts[0]}: {margin(answer, other)}")
    return lines


def margin(answer: Mapping[str, Any], other: str) -> str:
    written = b""
    for token in answer["choices"][0]["logprobs"]["content"]:
        written += bytes(token["bytes"] or token["token"].encode())
        if not other.encode().startswith(written):
            best, second = (top["logprob"] for top in token["top_logprobs"][:2])
            return f"{best - second:.3f} nats between the two likeliest at the first difference"
    return "plain vLLM, asked again, wrote this text too"


# --- tables


def tables(records: Sequence[Record]) -> Iterator[str]:
    """Markdown: each way of asking is a table with a row for each server."""
    alone = {(one.temperature, one.prompts[0]): one.replies[PLAIN].texts[0] for one in records if one.at_once == 1}
    for at_once, temperature in dict.fromkeys((one.at_once, one.temperature) for one in records):
        some = [one for one in records if (one.at_once, one.temperature) == (at_once, temperature)]
        n = sum(len(one.prompts) for one in some)
        yield f"\n{at_once} at once, {temperature or 'greedy'}, {n} requests:\n"
        yield "| server | tokens/s | over vLLM | worst group | accepted | tokens a step | texts of vLLM |"
        yield "|---|---|---|---|---|---|---|"
        for name in some[0].replies:
            of, plain = [one.replies[name] for one in some], [one.replies[PLAIN] for one in some]
            ratios = [(b.seconds / b.n) / (a.seconds / a.n) for a, b in zip(of, plain, strict=True)]
            drafted, steps = sum(one.drafted for one in of), sum(one.steps for one in of)
            cells = [
                name,
                f"{sum(one.n for one in of) / sum(one.seconds for one in of):.1f}",
                f"{geometric_mean(ratios):.2f}",
                f"{min(ratios):.2f}",
                f"{sum(one.accepted for one in of)} of {drafted}" if drafted else "",
                f"{sum(one.n for one in of) / steps:.2f}" if steps else "",
                f"{sum(x == y for a, b in zip(of, plain, strict=True) for x, y in zip(a.texts, b.texts, strict=True))}",
            ]
            yield f"| {' | '.join(cells)} |"
        if at_once > 1 and not temperature:
            both = [
                (alone[0.0, prompt], text)
                for one in some
                for prompt, text in zip(one.prompts, one.replies[PLAIN].texts, strict=True)
                if (0.0, prompt) in alone
            ]
            same = sum(first == second for first, second in both)
            yield f"\nvLLM without drafts: {same} of {len(both)} texts are those that it wrote alone."


def main(argv: Sequence[str]) -> int:
    """Raises UadError."""
    set_up_logging()
    parser = Parser("lab/vllm_turns.py", DESCRIPTION)
    add = parser.add_argument
    add("folder"), add("target"), add("draft")
    add("--vllm", metavar="PYTHON", default=str(_ROOT / ".venv-vllm" / "bin" / "python"), help="vLLM's environment")
    add("--alone", type=typed(integer(1)), default=24, help="prompts asked one at a time (default: %(default)s)")
    add("--groups", type=typed(integer(1)), default=48, help="most groups of several at once (default: %(default)s)")
    add("--predict", type=typed(integer(8)), default=64, help="most tokens of an answer (default: %(default)s)")
    sizes, temperatures = typed(several(integer(1))), typed(several(number(0.0)))
    add("--at-once", type=sizes, default="1,8,32", help="requests at once (default: %(default)s)")
    servers = typed(several(choice(*_SHORT)))
    add("--servers", type=servers, default=_USUAL, help=f"of {','.join(_SHORT)}, plain first (default: %(default)s)")
    add("--temperatures", type=temperatures, default="0,0.8", help="temperatures (default: %(default)s)")
    add(
        "--slots", type=typed(integer(1)), default=8, help="requests that uad drafts for in vLLM (default: %(default)s)"
    )
    add("--bind", default="nobind", help="VLLM_CPU_OMP_THREADS_BIND (default: %(default)s)")
    add("--out", required=True, metavar="FOLDER", help="where records and logs go")
    args = parser.parse(argv)
    if not Path(args.vllm).is_file():
        raise ConfigError(f"no vLLM in {args.vllm}: make vllm")
    args.servers = [_SHORT[word] for word in args.servers]
    if args.servers[0] != PLAIN:
        raise ConfigError("--servers: plain comes first, the others are compared with it")
    workloads = load_all(["categories"])
    prompts = [one for i in range(4) for workload in workloads for one in workload.prompts[i : i + 1]]
    most = max(args.at_once)
    logs = Path(args.out)
    logs.mkdir(parents=True, exist_ok=True)
    records = []
    with (
        ended_by_signals(),
        places(args, most, context_for(prompts, args.predict), logs) as found,
        (logs / "records.jsonl").open("a") as file,
    ):
        for record in measure(found, args, prompts):
            records.append(record)
            file.write(json.dumps(asdict(record)) + "\n")
            file.flush()
        close = margins(found[PLAIN], records, {one.name: one for one in prompts}, args.predict)
    print("\n".join([*tables(records), "", *close]))
    return 0


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
