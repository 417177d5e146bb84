"""The gain of drafting on this machine, in short, for `uad inspect --measure`: one server, a few prompts, each answered
with drafts and without, and how sure the result is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist, fmean, geometric_mean, stdev
from typing import TextIO

from rich.table import Table
from rich.text import Text

from uad.base.common.files import read_text
from uad.base.console import Bar, console_on
from uad.base.errors import ConfigError
from uad.tools.bench import answers
from uad.tools.bench.answers import Asked
from uad.tools.bench.client import PLAIN_FIELDS, Client, Server
from uad.tools.bench.ratios import coloured, rounded, share
from uad.tools.bench.workloads import Workload, WorkloadPrompt, load

WORKLOADS, PER_WORKLOAD = ("chat", "code", "copy-edit", "story"), 3
PIECE, _PIECES = 800, 12
_MOST_CHARS = 10_000_000
_N_TOKENS, _N_WARM = 64, 8
_ALL = "all"
_T_95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for 95 %, both sides, with 1 to 10 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Gain:
    """One kind of text: geometric means over its prompts of tokens per second, and the speed over plain decoding.

    `low` and `high` are a 95 % interval of that ratio for other prompts of this kind; None for a single prompt.
    """

    kind: str
    n_prompts: int
    n_tokens: int
    plain_tps: float
    tps: float
    ratio: float
    low: float | None
    high: float | None
    accept_rate: float | None
    same_text: bool


def measure(client: Client, workloads: Sequence[Workload], out: TextIO, err: TextIO, as_json: bool) -> None:
    """Ask the server for all answers and print what came of it to `out`. Raises UnavailableError; ConfigError where
    every answer is too short.
    """
    model = client.first_model()
    servers = [Server("drafted", client, model, {}), Server("plain", client, model, PLAIN_FIELDS)]
    settings = {"max_tokens": _N_TOKENS, "temperature": 0, "seed": 1}
    n_prompts = sum(len(workload.prompts) for workload in workloads)
    with Bar(err, len(servers) * n_prompts) as bar:
        for server in servers:  # a first request pays for what is made at first use
            answers.ask(server, WorkloadPrompt("warm-up", "Say hello.", chat=False), settings | {"max_tokens": _N_WARM})
        asked = answers.measure(servers, workloads, 1, settings, bar)
    measured = gains(asked)
    if not measured:
        raise ConfigError("no answer had two tokens or more, so there is nothing to time; try another --text")
    if as_json:
        print(json.dumps({"gains": [_json(gain) for gain in measured]}), file=out, flush=True)
        return
    console = console_on(out)
    console.print(_table(measured))
    console.print(Text(verdict(measured[-1])), soft_wrap=True)


def gains(asked: Sequence[Asked]) -> list[Gain]:
    """One for each kind of text and, where there are several, one for all prompts together."""
    timed = [answer for answer in asked if answer.is_timed]
    kinds = list(dict.fromkeys(answer.workload for answer in timed))
    by_kind = [_gain(kind, [answer for answer in timed if answer.workload == kind]) for kind in kinds]
    return [*by_kind, _gain(_ALL, timed)] if len(kinds) > 1 else by_kind


def _gain(kind: str, asked: Sequence[Asked]) -> Gain:
    ratios = [answer.tps(0) / answer.tps(1) for answer in asked]
    low, high = interval(ratios)
    n_drafted, n_accepted = (
        int(sum(stream.timings.get(name, 0) for answer in asked for stream in answer.replies[0]))
        for name in ("draft_n", "draft_n_accepted")
    )
    return Gain(
        kind,
        n_prompts=len(asked),
        n_tokens=sum(stream.n_predicted for answer in asked for stream in answer.replies[0]),
        plain_tps=geometric_mean(answer.tps(1) for answer in asked),
        tps=geometric_mean(answer.tps(0) for answer in asked),
        ratio=geometric_mean(ratios),
        low=low,
        high=high,
        accept_rate=share(n_accepted, n_drafted),
        same_text=all(answer.same(1) for answer in asked),
    )


def interval(ratios: Sequence[float]) -> tuple[float | None, float | None]:
    """A 95 % interval of the geometric mean of such ratios, by Student's t of their logarithms; None for a single one.

    Ratios of 1 and 4: logarithms 0 and 1.39, mean 0.69, standard error 0.69. With one degree of freedom t is 12.71, so
    two prompts say hardly anything: 0.0003 to 13,000.
    """
    n = len(ratios)
    if n < 2:
        return None, None
    logs = [math.log(ratio) for ratio in ratios]
    reach = _t_95(n - 1) * stdev(logs) / math.sqrt(n)
    return math.exp(fmean(logs) - reach), math.exp(fmean(logs) + reach)


def _t_95(degrees: int) -> float:
    if degrees <= len(_T_95):
        return _T_95[degrees - 1]
    z = NormalDist().inv_cdf(0.975)
    # the first terms of its series around the normal distribution: right to 0.003 from 11 degrees on
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def verdict(all_: Gain) -> str:
    """The meaning of the numbers, in a sentence."""
    how = f"{all_.n_prompts} prompt{'s' if all_.n_prompts > 1 else ''}, greedy, one at a time"
    if all_.low is None or all_.high is None:
        return f"with drafts decoding is {all_.ratio:.2f} times as fast ({how}: too few to say how sure that is)"
    sure = f"{all_.low:.2f} to {all_.high:.2f} with 95 % confidence; {how}"
    if all_.high < 1.0:
        return f"drafting does not pay on this machine: {all_.ratio:.2f} times the speed of plain decoding ({sure})"
    if all_.low <= 1.0:
        return f"no difference is sure: with drafts decoding is {all_.ratio:.2f} times as fast ({sure})"
    return f"with drafts decoding is {all_.ratio:.2f} times as fast on this machine ({sure})"


def _table(gains: Sequence[Gain]) -> Table:
    table = Table(title="decoding with drafts and without", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("text", style="cyan")
    for name in ("prompts", "tokens", "plain tok/s", "tok/s", "speed-up", "95 %", "accepted", "same text"):
        table.add_column(name, justify="right")
    for gain in gains:
        table.add_row(
            Text(gain.kind),
            str(gain.n_prompts),
            f"{gain.n_tokens:,}",
            f"{gain.plain_tps:.1f}",
            f"{gain.tps:.1f}",
            coloured(gain.ratio),
            "" if gain.low is None or gain.high is None else f"{gain.low:.2f} to {gain.high:.2f}",
            "" if gain.accept_rate is None else f"{gain.accept_rate:.0%}",
            "yes" if gain.same_text else "NO",
        )
    return table


def _json(gain: Gain) -> Mapping[str, object]:
    return {name: rounded(value) if isinstance(value, float) else value for name, value in asdict(gain).items()}


def bundled_prompts() -> list[Workload]:
    """A few prompts of several of the bench's workloads."""
    return [load(name).head(PER_WORKLOAD) for name in WORKLOADS]


def prompts_of(path: Path) -> list[Workload]:
    """A file in pieces, the first half of each to be continued. Raises ConfigError where it holds no text."""
    halves = [piece[: max(len(piece) // 2, 1)] for piece in pieces_of(path)]
    prompts = tuple(WorkloadPrompt(f"piece-{i}", half, chat=False) for i, half in enumerate(halves, 1))
    return [Workload("text, continued", str(path), prompts)]


def pieces_of(path: Path) -> list[str]:
    """The first pieces of a file that hold text. Raises ConfigError where no piece does."""
    pieces = [piece for piece in chunks(read_text(path, _MOST_CHARS), PIECE, _PIECES) if piece.strip()]
    if not pieces:
        raise ConfigError(f"--text {path}: holds no text")
    return pieces


def chunks(text: str, size: int, most: int) -> Iterator[str]:
    """A long text in pieces of about `size` characters that end with a line where one ends near; at most `most`
    pieces.
    """
    at = 0
    for _ in range(most):
        if at >= len(text):
            return
        end = text.rfind("\n", at + size // 2, at + size) + 1 or at + size
        yield text[at:end]
        at = end
