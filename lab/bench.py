"""The bench in one process, with bounds, plots, counted time and prescribed answers: `python lab/bench.py --target
T.gguf --draft D.gguf`.

Takes the flags of `bench_servers.py` and prints what it prints, but decodes plainly beside each policy, round by round.
Beside that: how far automatic lengths are from the oracle, which knows which ids are right, and from foresight,
which knows how often.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from bench_cells import Cell, is_auto
from bench_measure import Arm, BenchJob, Measured
from bench_options import PLAIN, BenchOptions, Drafters, Lineup, PolicyOption, parse_with
from bench_servers import Findings, Pairing, measure_all, show
from bounded import Bounded, mean_of_all, print_bounds, summary
from engines import make_job, measure_beside, n_prompt
from facts import PairFacts, Run, collect
from jobs import KnownEngine, LabArm, renamed, told, widened
from oracle import Round
from recorder import Recorded, Recorder
from report import write_report

from uad.base.common.files import path_of
from uad.base.config import MODEL_TYPE, Config
from uad.base.config.argv import Parser
from uad.base.console import Bar, Report, console_on, set_up_logging
from uad.base.errors import ConfigError
from uad.tools.bench.workloads import WorkloadPrompt
from uad.tools.cli import run as run_command

DESCRIPTION = """The bench in one process, with bounds, plots, counted time and prescribed answers. The last line of
output is JSON."""


@dataclass(frozen=True, slots=True)
class LabOptions(BenchOptions):
    """What only the lab's bench gets. costs: files of cost curves, the target's and the draft model's. rename: (old,
    new).
    """

    oracle: bool = True
    report: Path | None = None
    costs: tuple[Path, ...] = ()
    rename: tuple[str, str] | None = None

    def has_oracle(self, drafters: Drafters) -> bool:
        """True if automatic lengths are to be compared with the best possible ones: the draft model's alone are known
        beforehand.
        """
        return self.oracle and drafters.types == (MODEL_TYPE,) and any(is_auto(policy.name) for policy in self.policies)


def add_arguments(parser: Parser) -> None:
    """Declare the lab's flags, which are added to those of `bench_servers.py`."""
    add = parser.add_argument_group("the laboratory").add_argument
    add(
        "--no-oracle",
        action="store_true",
        help="leave out the run that the oracle is told by; with a bad draft it takes longer than others",
    )
    add("--report", metavar="DIR", help="write report.md with plots into this folder")
    costs = (
        "count time instead of measuring it: decodes take what the target's cost curve (and the draft model's) says, "
        "files that "
        "`uad profile` wrote, of this machine or another; a small target then stands for a large one"
    )
    add("--costs", metavar="FILE[,FILE]", help=costs)
    rename = "prescribe the answers to prompts with OLD in fenced code: that code with NEW, whatever the target thinks"
    add("--rename", nargs=2, metavar=("OLD", "NEW"), help=rename)


def parse(argv: Sequence[str]) -> LabOptions:
    """Check a command line. Raises ConfigError that names the flag."""
    options, args = parse_with(argv, Parser("lab/bench.py", DESCRIPTION), add_arguments)
    costs = _costs(args.costs)
    if costs and options.peer is not None:
        raise ConfigError("--costs counts the time of our own decodes: it cannot be combined with --vs")
    rename = (args.rename[0], args.rename[1]) if args.rename else None
    prompts = [prompt for workload in options.workloads for prompt in workload.prompts]
    if rename and not any(renamed(prompt, *rename) for prompt in prompts):
        raise ConfigError(
            f"--rename: no prompt that is measured has {rename[0]!r} in a part fenced by ```; choose with --workload, "
            "--prompt"
        )
    report = _report_folder(args.report)
    return widened(LabOptions, options, oracle=not args.no_oracle, report=report, costs=costs, rename=rename)


def _costs(text: str | None) -> tuple[Path, ...]:
    files = tuple(map(path_of, text.split(","))) if text else ()
    for file in files:
        if not file.is_file():
            raise ConfigError(f"--costs: no such file: {file}")
    if len(files) > 2:
        raise ConfigError(f"--costs {text}: give the target's file, and behind a comma the draft model's")
    return files


def _report_folder(text: str | None) -> Path | None:
    """The folder, made if it is missing; found out before anything is measured, as is matplotlib."""
    if text is None:
        return None
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--report needs matplotlib: pip install 'uad[lab]'")
    folder = path_of(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--report {text}: cannot make this folder: {error.strerror or error}") from None
    return folder


@dataclass(frozen=True, slots=True)
class LabEngines:
    """One target three times, on the same weights: with what drafts, alone, and with what drafts beside a target that
    computes nothing.
    """

    drafted: KnownEngine
    alone: KnownEngine
    recital: KnownEngine


Opener = Callable[[Config, Report], AbstractContextManager[LabEngines]]


def opener(costs: Sequence[Path]) -> Opener:
    """Opens engines that measure time, or count it by these files. Raises ConfigError."""
    from counted import Costs
    from stepper import LabStepper

    counted = Costs.read(*costs) if costs else None

    @contextmanager
    def opened(config: Config, report: Report) -> Iterator[LabEngines]:
        with (
            LabStepper.load(config, report, counted) as drafted,
            drafted.alone() as alone,
            drafted.recital() as recital,
        ):
            yield LabEngines(drafted, alone, recital)

    return opened


@dataclass(slots=True)
class LabFindings(Findings):
    """With what the plots need; all cells are bounded."""

    pairs: list[PairFacts] = field(default_factory=list)

    @property
    def bounded(self) -> list[Bounded]:
        return [cell for cell in self.cells if isinstance(cell, Bounded)]


def main(argv: Sequence[str]) -> int:
    """Run the bench as asked on the command line; the last line on stdout is JSON. Raises UadError."""
    set_up_logging()
    options = parse(argv)
    return bench(options, opener(options.costs), sys.stdout, sys.stderr)


def bench(options: LabOptions, opener: Opener, out: TextIO, err: TextIO) -> int:
    """Measure every cell and print the report to `out`; the progress bar goes to `err`. Raises UadError."""
    findings = LabFindings(options.share != "off")

    @contextmanager
    def opened(target: Path, lineup: Lineup, bar: Bar) -> Iterator[Pairing]:
        with opener(options.config(target, lineup), bar.report) as engines:
            yield LabPairing(engines, options, target, lineup, bar, findings)

    measure_all(options, opened, LabPairing, findings, err)
    if options.report:
        write_report(options.report, findings.bounded, findings.pairs, findings.lines())
    show(options, findings, out, err)
    if not options.json_only:
        print_bounds(console_on(out, width=180), findings.bounded)
    print(json.dumps(summary(findings.bounded)), file=out, flush=True)
    return 0


class LabPairing(Pairing):
    """The measurement of one target with all that drafts for it, in this process: policies beside plain decoding, round
    by round, with recordings for the oracle and notes for the plots.
    """

    def __init__(
        self,
        engines: LabEngines,
        options: LabOptions,
        target: Path,
        lineup: Lineup,
        bar: Bar,
        findings: LabFindings,
    ) -> None:
        self._engine, self._lab, self._findings = engines.drafted, options, findings
        self._alone = LabArm(PLAIN.name, engines.alone, PLAIN.speculative)

        def drafted(policy: PolicyOption) -> Arm:
            return LabArm(policy.name, engines.drafted, policy.speculative)

        info = engines.drafted.info
        super().__init__(
            options, target, lineup, bar, findings, self._alone, drafted, n_ctx=info.n_ctx, n_slots=info.n_slots
        )
        self._wants_oracle = any(map(options.has_oracle, lineup.compared))
        self._recorder = (
            Recorder(engines.drafted, engines.recital)
            if self._wants_oracle and engines.drafted.costs() is not None
            else None
        )
        self._recorded: list[Recorded] = []
        self._runs: dict[Drafters, list[Run]] = {one: [] for one in lineup.compared}

    @classmethod
    def n_runs(cls, options: BenchOptions, lineup: Lineup) -> int:
        assert isinstance(options, LabOptions)
        n_arms = len(options.policies) * len(lineup.compared) + (options.peer is not None)
        has_oracle = any(map(options.has_oracle, lineup.compared))
        return sum((1 + n_arms) * (1 + n) + n * n_arms * options.repeats + n * has_oracle for n in options.n_groups)

    def run(self) -> None:
        notes, costs = self.findings.notes, self._lab.costs
        if costs:
            notes.append(
                f"time is counted, not measured: decodes take what {' and '.join(file.name for file in costs)} says"
            )
        super().run()
        if self._wants_oracle and self._recorder is None:
            notes.append(f"{self.target}: nothing drafts, so no costs are known and there is no oracle")
        for drafters, runs in self._runs.items():
            known = self._engine
            self._findings.pairs.append(
                collect(self.target, drafters.label, drafters.types, known.costs(), known.calibration(), runs)
            )

    def job(self, prompt: WorkloadPrompt, temperature: float, seed: int) -> BenchJob:
        job = make_job(self._engine, prompt, temperature, seed, self.options.max_tokens)
        answer = renamed(prompt, *self._lab.rename) if self._lab.rename else ""
        return told(job, self._engine.text.tokenize(answer, parse_special=False)) if answer else job

    def n_prompt_tokens(self, job: BenchJob) -> int:
        return n_prompt(job)

    def counted(self, jobs: tuple[BenchJob, ...], backwards: bool) -> Measured:
        measured = measure_beside(jobs, self._alone, self.arms, self.options.repeats, self.bar.step, backwards)
        if self._recorder is not None:
            self._recorded.append(self._recorder.record(jobs, [pair.plain for runs in measured.runs for pair in runs]))
            self.bar.step()
        return measured

    def measure_cells(self, workload: str, temperature: float, jobs: Sequence[tuple[BenchJob, ...]]) -> None:
        self._recorded, before = [], len(self.findings.cells)
        super().measure_cells(workload, temperature, jobs)
        recorded = self._recorder.foresee(jobs, self._recorded) if self._recorder is not None else []
        rounds = [one for group in recorded for each in group.rounds for one in each[1:]]
        with_oracle = {one.label for one in self.lineup.compared if self._lab.has_oracle(one)}
        cells = self.findings.cells
        cells[before:] = [
            _bounded(cell, recorded if cell.labels.draft in with_oracle else []) for cell in cells[before:]
        ]
        for drafters, runs in self._runs.items():
            runs.append(Run(workload, self._take_chosen(drafters), rounds if self._lab.has_oracle(drafters) else []))

    def _take_chosen(self, drafters: Drafters) -> list[Round]:
        """The rounds that automatic policies made with these drafters since the last call."""
        chosen: list[Round] = []
        for arm, whose in zip(self.arms, self.whose, strict=True):
            if whose is drafters and isinstance(arm, LabArm):
                chosen += arm.chosen
                arm.chosen = []
        return chosen


def _bounded(cell: Cell, recorded: Sequence[Recorded]) -> Bounded:
    """With the bounds over the groups that have a speed."""
    timed = [one for one, group in zip(recorded, cell.groups, strict=False) if group.timed]
    oracle, foresight = mean_of_all([one.oracle for one in timed]), mean_of_all([one.foresight for one in timed])
    return widened(Bounded, cell, oracle=oracle, foresight=foresight)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
