"""The prompts of workloads, answered by running servers: tokens per second of each, by workload and by prompt.

Every prompt goes to each server in turn before the next one does, and another server begins each time. Knows HTTP and
nothing of models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median

from rich.table import Table
from rich.text import Text

from uad.base.console import Bar
from uad.tools.bench.client import Server, Stream
from uad.tools.bench.ratios import coloured
from uad.tools.bench.workloads import Workload, WorkloadPrompt

FIRST, ALL = "first answers", "all"


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt: of each server, in their order, its answers, one for each repeat."""

    workload: str
    name: str
    replies: tuple[tuple[Stream, ...], ...]

    def tps(self, server: int) -> float:
        """The median over the repeats."""
        return median(reply.tps for reply in self.replies[server])

    def seconds(self, server: int) -> float:
        """Seconds of whole requests for each token, as answers may differ in length; the median over the repeats."""
        return median(reply.total_s / max(reply.n_predicted, 1) for reply in self.replies[server])

    @property
    def is_timed(self) -> bool:
        """Whether each server wrote enough to have a speed."""
        return all(reply.tps > 0 for replies in self.replies for reply in replies)

    def same(self, server: int) -> bool:
        """Whether the first server's texts are this one's."""
        return {"".join(reply.text) for reply in self.replies[0]} == {
            "".join(reply.text) for reply in self.replies[server]
        }


def measure(
    servers: Sequence[Server], workloads: Sequence[Workload], repeats: int, settings: Mapping[str, object], bar: Bar
) -> list[Asked]:
    """Prompts of all workloads in turns: the first of each, then the second of each. Raises UnavailableError."""
    longest = max(len(workload.prompts) for workload in workloads)
    order = [
        (workload, prompt) for i in range(longest) for workload in workloads for prompt in workload.prompts[i : i + 1]
    ]
    by_prompt: dict[tuple[str, str], list[list[Stream]]] = {
        (workload.name, prompt.name): [[] for _ in servers] for workload, prompt in order
    }
    turn = 0
    for _ in range(repeats):
        for workload, prompt in order:
            for i in range(len(servers)):
                place = (i + turn) % len(servers)
                bar.at(f"{servers[place].name}, {workload.name}, {prompt.name}")
                by_prompt[workload.name, prompt.name][place].append(ask(servers[place], prompt, settings))
                bar.step()
            turn += 1
    return [Asked(workload, name, tuple(map(tuple, replies))) for (workload, name), replies in by_prompt.items()]


def ask(server: Server, prompt: WorkloadPrompt, settings: Mapping[str, object]) -> Stream:
    """One request; no server may use what it keeps of an earlier one. Raises UnavailableError."""
    return server.client.stream(*server.request(prompt, {"cache_prompt": False, **settings}))


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A workload, or all of them: the servers' tokens per second, and the first server's speed over each other one
    (geometric means over the prompts): of decoding, of whole requests, and of the prompt with the least speed.
    """

    name: str
    tps: tuple[float, ...]
    decoding: tuple[float, ...]
    whole: tuple[float, ...]
    worst: tuple[float, ...]


def rows(asked: Sequence[Asked]) -> list[AnswerRow]:
    """One for each workload; that of the prompts that were asked first, one of each workload, and their first replies;
    that of all.
    """
    timed = [answer for answer in asked if answer.is_timed]
    names = dict.fromkeys(answer.workload for answer in timed)
    by_name = [_row(name, [answer for answer in timed if answer.workload == name]) for name in names]
    n_workloads = len(dict.fromkeys(answer.workload for answer in asked))
    first = [
        replace(answer, replies=tuple(replies[:1] for replies in answer.replies)) for answer in asked[:n_workloads]
    ]
    early = [answer for answer in first if answer.is_timed]
    return [*by_name, *([_row(FIRST, early)] if early else []), _row(ALL, timed)] if timed else []


def _row(name: str, asked: Sequence[Asked]) -> AnswerRow:
    servers = range(len(asked[0].replies))
    decoding = [[answer.tps(0) / answer.tps(i) for answer in asked] for i in servers[1:]]
    whole = [[answer.seconds(i) / answer.seconds(0) for answer in asked] for i in servers[1:]]
    return AnswerRow(
        name,
        tuple(geometric_mean([answer.tps(i) for answer in asked]) for i in servers),
        tuple(map(geometric_mean, decoding)),
        tuple(map(geometric_mean, whole)),
        tuple(map(min, decoding)),
    )


def table(servers: Sequence[Server], rows: Sequence[AnswerRow], asked: Sequence[Asked]) -> Table:
    """A row per workload; ratios are speeds of the first server over each of the others."""
    result = Table(
        title="Tokens per second, geometric means over prompts; speed relative to the others (more than 1: faster)"
    )
    result.add_column("prompts", no_wrap=True)
    for server in servers:
        result.add_column(server.name, justify="right")
    for server in servers[1:]:
        for what in ("decoding", "worst prompt", "whole request"):
            result.add_column(f"over {server.name}\n{what}", justify="right")
    for row in rows:
        cells: list[str | Text] = [row.name, *(f"{rate:.1f}" for rate in row.tps)]
        for ratios in zip(row.decoding, row.worst, row.whole, strict=True):
            cells += map(coloured, ratios)
        result.add_row(*cells)
    same = ", ".join(
        f"{server.name} {sum(answer.same(i) for answer in asked)}" for i, server in enumerate(servers[1:], 1)
    )
    result.caption = f"prompts {len(asked)}; with the same text as {servers[0].name}: {same}"
    return result


def summary(servers: Sequence[Server], rows: Sequence[AnswerRow], asked: Sequence[Asked]) -> dict[str, object]:
    """The JSON line: each workload's tokens per second and ratios, and every prompt's."""
    names, others = [server.name for server in servers], [server.name for server in servers[1:]]
    return {
        "workloads": {
            row.name: {
                "tps": _named(names, row.tps),
                "decoding": _named(others, row.decoding),
                "worst_prompt": _named(others, row.worst),
                "whole": _named(others, row.whole),
            }
            for row in rows
        },
        "prompts": [
            {
                "workload": answer.workload,
                "name": answer.name,
                "n": answer.replies[0][0].n_predicted,
                "tps": _named(names, [answer.tps(i) for i in range(len(names))]),
                "same_text": dict(zip(others, [answer.same(i) for i in range(1, len(names))], strict=True)),
            }
            for answer in asked
        ],
    }


def _named(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in zip(names, values, strict=True)}
