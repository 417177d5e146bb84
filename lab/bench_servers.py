"""Every cell of targets x drafts x workloads x policies, measured on servers that it starts, and reported: `python
lab/bench_servers.py --target T.gguf --draft D.gguf`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from bench_cells import PEER, Cell, Labels, make_cell, notes, print_prompts, print_table, summary
from bench_measure import Arm, BenchJob, Measured, ServerArm, groups, measure, n_prompt_tokens
from bench_options import PLAIN, BenchOptions, Drafters, Lineup, Peer, PolicyOption, parse

from uad.base.console import Bar, console_on, set_up_logging
from uad.base.errors import ConfigError, UnavailableError
from uad.base.gguf import GgufFile
from uad.tools.bench.client import Client, Server
from uad.tools.bench.serving import serving
from uad.tools.bench.workloads import Workload, WorkloadPrompt
from uad.tools.cli import run as run_command

_WARM_UP_TOKENS = 32
_EMULATION = "uad.cost_emulation"
"""In the header of files that lab/scale.py wrote."""

Serving = Callable[[Sequence[str], Mapping[str, str]], AbstractContextManager[Client]]
"""Runs `uad serve` with these flags and this environment."""


def main(argv: Sequence[str]) -> int:
    """Run the bench as asked on the command line; the last line on stdout is JSON. Raises UadError."""
    set_up_logging(logging.WARNING)
    return bench(parse(argv), serving, sys.stdout, sys.stderr)


def bench(options: BenchOptions, serving: Serving, out: TextIO, err: TextIO) -> int:
    """Measure every cell and print the report to `out`; the progress bar goes to `err`. Raises UadError."""
    findings = Findings(options.share != "off")

    @contextmanager
    def opened(target: Path, lineup: Lineup, bar: Bar) -> Iterator[Pairing]:
        bar.at(f"loading {target.stem}")
        with serving(options.words(target, lineup), options.environ) as client:
            yield ServerPairing(client, options, target, lineup, bar, findings)

    measure_all(options, opened, ServerPairing, findings, err)
    show(options, findings, out, err)
    print(json.dumps(summary(findings.cells)), file=out, flush=True)
    return 0


def measure_all(
    options: BenchOptions,
    opened: Callable[[Path, Lineup, Bar], AbstractContextManager[Pairing]],
    kind: type[Pairing],
    findings: Findings,
    err: TextIO,
) -> None:
    """Fill the findings, one target and what drafts for it after the other. Raises UadError."""
    lineups = [(target, lineup) for target in options.targets for lineup in options.lineups]
    with Bar(err, sum(kind.n_runs(options, lineup) for _, lineup in lineups)) as bar:
        for target, lineup in lineups:
            with opened(target, lineup, bar) as pairing:
                pairing.run()
    if not findings.cells:
        raise ConfigError("no answer had two tokens or more, so there is nothing to time; choose another --workload")


@dataclass(slots=True)
class Findings:
    """What the report is made of; notes are lines for the reader. shares: whether drafters may remember earlier
    answers.
    """

    shares: bool
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """All notes, each once."""
        return list(dict.fromkeys(self.notes + notes(self.cells, self.shares)))


def show(options: BenchOptions, findings: Findings, out: TextIO, err: TextIO) -> None:
    """Print the table, the prompts if they are wanted, and the notes."""
    console = console_on(err if options.json_only else out, width=180)
    if not options.json_only:
        print_table(console, findings.cells)
    for cell in findings.cells if options.verbose else ():
        print_prompts(console, cell)
    for line in findings.lines():
        console.print(line, markup=False, highlight=False, soft_wrap=True)


class Pairing:
    """The measurement of one target with all that drafts for it. `whose[i]` are the drafters of arm i; the peer has its
    own. n_ctx: tokens of context of each of n_slots.
    """

    def __init__(
        self,
        options: BenchOptions,
        target: Path,
        lineup: Lineup,
        bar: Bar,
        findings: Findings,
        plain: Arm,
        drafted: Callable[[PolicyOption], Arm],
        n_ctx: int,
        n_slots: int,
    ) -> None:
        self.options, self.lineup, self.bar, self.findings = options, lineup, bar, findings
        self.target, self._path = target.stem, target
        self.plain, self.n_ctx, self.n_slots = plain, n_ctx, n_slots
        both = [(drafters, policy) for drafters in lineup.compared for policy in options.policies]
        self.arms: list[Arm] = [drafted(drafters.policy(policy)) for drafters, policy in both]
        self.whose: list[Drafters | None] = [drafters for drafters, _ in both]
        if options.peer is not None:
            self.arms.append(_peer_arm(options.peer))
            self.whose.append(None)

    @classmethod
    def n_runs(cls, options: BenchOptions, lineup: Lineup) -> int:
        """Runs on one target, the uncounted ones too: a warm-up of a row, and of each group a start and the repeats."""
        n_arms = 1 + len(options.policies) * len(lineup.compared) + (options.peer is not None)
        return sum(n_arms * (1 + n + n * options.repeats) for n in options.n_groups)

    def run(self) -> None:
        """Measure every workload, temperature and number of sequences."""
        if _is_emulated(self._path):
            note = (
                "a cost emulation: a small model padded to the cost of a large one; the speed is real, the text "
                "is the small model's"
            )
            self.findings.notes.append(f"{self.target}: {note}")
        for workload in self.options.workloads:
            for temperature in self.options.temperatures:
                jobs = self._jobs(workload, temperature)
                for sequences in self.options.sequences:
                    self.measure_cells(workload.name, temperature, groups(jobs, sequences, self.n_slots))

    def job(self, prompt: WorkloadPrompt, temperature: float, seed: int) -> BenchJob:
        """What is asked for with this prompt."""
        return BenchJob(prompt, temperature, seed, self.options.max_tokens)

    def n_prompt_tokens(self, job: BenchJob) -> int:
        """Tokens of its prompt."""
        raise NotImplementedError

    def _jobs(self, workload: Workload, temperature: float) -> list[BenchJob]:
        jobs = [self.job(prompt, temperature, self.options.seed + i) for i, prompt in enumerate(workload.prompts)]
        for job in jobs:
            need = self.n_prompt_tokens(job) + self.options.max_tokens
            if need > self.n_ctx:
                name = f"{job.prompt.name!r} of {workload.name!r}"
                raise ConfigError(
                    f"prompt {name} needs {need} tokens of context and a sequence has {self.n_ctx}; raise --ctx-size"
                )
        return jobs

    def measure_cells(self, workload: str, temperature: float, jobs: Sequence[tuple[BenchJob, ...]]) -> None:
        """One cell for each arm, over these groups."""
        self.bar.at(Labels(self.target, None, workload, PLAIN.name, len(jobs[0]), temperature).line)
        self._uncounted(jobs[0], min(_WARM_UP_TOKENS, self.options.max_tokens))
        measured = [self.measure(group, backwards=i % 2 == 1) for i, group in enumerate(jobs)]
        for i, (arm, whose) in enumerate(zip(self.arms, self.whose, strict=True)):
            labels = Labels(self.target, whose.label if whose else None, workload, arm.name, len(jobs[0]), temperature)
            cell = make_cell(labels, measured, i)
            if cell is None:
                self.findings.notes.append(f"{labels.line}: no answer was long enough to be timed, so there is no row")
            else:
                self.findings.cells.append(cell)

    def measure(self, jobs: tuple[BenchJob, ...], backwards: bool) -> Measured:
        """One group: one token first, so that every counted run finds its prompt in the cache."""
        self._uncounted(jobs, 1)
        return self.counted(jobs, backwards)

    def counted(self, jobs: tuple[BenchJob, ...], backwards: bool) -> Measured:
        """The counted runs of one group."""
        return measure(jobs, self.plain, self.arms, self.options.repeats, self.bar.step, backwards)

    def _uncounted(self, jobs: tuple[BenchJob, ...], max_tokens: int) -> None:
        short = [replace(job, max_tokens=max_tokens) for job in jobs]
        for arm in (self.plain, *self.arms):
            arm.run(short)
            self.bar.step()


class ServerPairing(Pairing):
    """On a server, which drafts for some requests and not for others."""

    def __init__(
        self, client: Client, options: BenchOptions, target: Path, lineup: Lineup, bar: Bar, findings: Findings
    ) -> None:
        self._client, model = client, client.first_model()
        props = client.get("/props")
        settings, n_slots = props.get("default_generation_settings"), props.get("total_slots")
        n_ctx = settings.get("n_ctx") if isinstance(settings, dict) else None
        if not isinstance(n_ctx, int) or not isinstance(n_slots, int):
            raise UnavailableError(f"{client.url}/props tells no context and slots")

        def arm(policy: PolicyOption) -> Arm:
            return ServerArm(Server(policy.name, client, model, policy.fields), has_slots=True)

        super().__init__(options, target, lineup, bar, findings, arm(PLAIN), arm, n_ctx, n_slots)

    def n_prompt_tokens(self, job: BenchJob) -> int:
        """Tokens as the server counts them. Raises UnavailableError."""
        return n_prompt_tokens(self._client, job.prompt)


def _is_emulated(path: Path) -> bool:
    with GgufFile(path) as file:
        return _EMULATION in file.values


def _peer_arm(peer: Peer) -> Arm:
    client = Client(peer.url, peer.key)
    return ServerArm(Server(PEER, client, peer.model or client.first_model(), {}), has_slots=False)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
