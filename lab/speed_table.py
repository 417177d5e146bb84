"""README's table of speeds, measured here with one command: `make table`, or `make table ARGS=--quick`.

Fetches the models, builds llama-server from the sources of the installed llama-cpp-python, and asks uad with the draft
and without, llama-server, llama-server with its own draft types, and ik_llama.cpp where there is a build of it
(`ik_server.py`), in turns. Prints the machine, the versions and the tables in Markdown; a document for each processor
is kept in lab/speed, and `--readme` renders README's section and that of docs/bench.md from them. Groups of prompts
that are finished are kept, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any, TextIO

import ik_server
import overhead
from platformdirs import user_cache_path
from serving import context_for
from speed_cells import (
    BYTES_PER_TOKEN,
    DRAFT,
    FIRST_TOKEN,
    FIRST_TOKEN_PREDICT,
    IK,
    PLAIN,
    RIVALS,
    SERVER,
    UAD,
    WEIGHTS,
    Cell,
    Document,
    Kept,
    Machine,
    Record,
    Settings,
    Versions,
    digest,
    read,
    reply,
    rival,
)
from speed_text import details, report, section, short, with_section

import uad
from uad.base.config import ModelConfig
from uad.base.config.argv import Parser, typed
from uad.base.config.kinds import integer
from uad.base.console import Bar, say, set_up_logging
from uad.base.errors import ConfigError, UnavailableError
from uad.tools.bench.client import PLAIN_FIELDS, Client, Server
from uad.tools.bench.serving import serving
from uad.tools.bench.workloads import WorkloadPrompt
from uad.tools.cli import run

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts"))

import fetch_models  # noqa: E402
import llama_server  # noqa: E402

DESCRIPTION = """Measure README's table of speeds on this machine, and print it in Markdown.

Finished cells are kept: run it again to go on. --quick takes half an hour on two cores, the whole a night; --plan says
what it would do, and how long that takes."""
DOCUMENTS = ROOT / "lab" / "speed"
QUICK = Settings(rivals=("ngram-simple", "ngram-mod"), prompts=1, passes=1, predict=48, lengths=(400, 2000))
_ASKED = {"cache_prompt": False, "temperature": 0.0, "seed": 1}
_HELLO = WorkloadPrompt("hello", "Say hello.", chat=True)
_MEMORY_PER_BYTE = 1.15
"""Of a server, for each byte of its weights."""
_DOWNLOAD_BYTES_S = 10e6
# about what two AVX-512 cores do: tokens per second of answers, and of prompts
_ASSUMED = {"BF16": (10.0, 90.0), "Q8_0": (15.0, 70.0), "Q4_K_M": (27.0, 95.0)}
_ASSUMED_CORES, _MOST_CORES = 2, 8
_ASSUMED_TOGETHER = 1.6
"""How much sooner four requests are answered at once than one after the other."""
_TEMPLATE_TOKENS = 30

Start = Callable[[Path, Path, int, int, Sequence[str]], AbstractContextManager[list[Server]]]
"""(target, draft, slots, context of a slot, draft types) -> all servers, uad first; they end with the block."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line. minutes: once they are over, no group is begun any more."""

    settings: Settings
    is_quick: bool
    minutes: int
    fresh: bool
    program: Path | None
    ik: Path | None
    out: Path | None


def _parser() -> Parser:
    parser = Parser("lab/speed_table.py", DESCRIPTION, "example: make table ARGS='--quick --weights Q4_K_M'")
    add = parser.add_argument
    whole = typed(integer(1))
    add("--quick", action="store_true", help="one prompt of each category, short answers, one pass, two draft types")
    add("--weights", metavar="LIST", help=f"types of weights (default: {','.join(WEIGHTS)})")
    add("--slots", metavar="LIST", help="how many requests at once (default: 1,4)")
    add("--rivals", metavar="LIST", help=f"llama-server's draft types, or none (default: {','.join(RIVALS)})")
    add("--prompts", metavar="N", type=whole, help="prompts of each category (default: 2)")
    add("--passes", metavar="N", type=whole, help="how often all is measured; medians count (default: 3)")
    add("--predict", metavar="N", type=typed(integer(8)), help="most tokens of an answer (default: 96)")
    add("--lengths", metavar="LIST", help="tokens of prompts whose first token is timed (default: 32,400,2000,8000)")
    add("--minutes", metavar="N", type=whole, default=720, help="measure no longer than this (default: %(default)s)")
    add("--fresh", action="store_true", help="measure again; what was measured is set aside, not deleted")
    add("--llama-server", metavar="PATH", dest="program", help="a llama-server that is there, instead of a new build")
    add("--ik", metavar="PATH", help="a llama-server of ik_llama.cpp to measure beside (lab/ik_server.py builds one)")
    add("--out", metavar="FILE", help="where the document goes (default: lab/speed; with --quick the work folder)")
    add("--plan", action="store_true", help="say what would be done and how long it takes, and do nothing")
    add("--show", action="store_true", help="print what is measured so far, and measure nothing")
    add("--readme", action="store_true", help="render README's section from lab/speed, and measure nothing")
    return parser


def settings_of(given: Mapping[str, Any]) -> Settings:
    """The settings by the flags, on top of the whole or the quick measurement. Raises ConfigError."""
    settings = QUICK if given["quick"] else Settings()
    settings = replace(
        settings,
        prompts=given["prompts"] or settings.prompts,
        passes=given["passes"] or settings.passes,
        predict=given["predict"] or settings.predict,
    )
    if given["weights"]:
        settings = replace(settings, weights=_words("--weights", str(given["weights"]), tuple(WEIGHTS)))
    if given["rivals"]:
        words = str(given["rivals"])
        settings = replace(settings, rivals=() if words == "none" else _words("--rivals", words, RIVALS))
    if given["slots"]:
        settings = replace(settings, slots=_numbers("--slots", str(given["slots"]), 99))
    if given["lengths"]:
        settings = replace(settings, lengths=_numbers("--lengths", str(given["lengths"]), 99_999))
    return settings


def _numbers(flag: str, given: str, most: int) -> tuple[int, ...]:
    """Of a list with commas, each from 1 to `most`. Raises ConfigError."""
    words = given.split(",")
    if not all(re.fullmatch(r"[1-9]\d*", word) and int(word) <= most for word in words):
        raise ConfigError(
            f"{flag}: write numbers from 1 to {most} with commas between them, such as 1,4, not {given!r}"
        )
    return tuple(dict.fromkeys(map(int, words)))


def _words(flag: str, given: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in given.split(",")))
    if unknown := [word for word in words if word not in known]:
        raise ConfigError(f"{flag}: {unknown[0]!r} is not one of {', '.join(known)}")
    return words


def main(argv: Sequence[str]) -> int:
    """Measure, and print Markdown on stdout. Raises UadError, which says what is missing."""
    set_up_logging()
    args = _parser().parse(argv)
    if args.readme:
        return write_pages(ROOT, DOCUMENTS)
    program, ik = (Path(one).expanduser() if one else None for one in (args.program, args.ik))
    for flag, path in (("--llama-server", program), ("--ik", ik)):
        if path is not None and not os.access(path, os.X_OK):
            raise ConfigError(f"{flag}: no program: {path}")
    out = Path(args.out).expanduser() if args.out else None
    wanted = Wanted(settings_of(vars(args)), args.quick, args.minutes, args.fresh, program, ik, out)
    say(sys.stderr, "\n".join(plan(wanted)))
    if args.plan:
        return 0
    if args.show:
        return show(wanted, sys.stdout)
    prepare(wanted)
    start = started_servers(wanted.program or llama_server.program(), wanted.ik)
    return measure_all(wanted, start, sys.stdout, sys.stderr)


def write_pages(root: Path, folder: Path) -> int:
    """Render the sections of README and docs/bench.md again from all documents. Raises ConfigError."""
    documents = read(list(folder.glob("*.json")))
    if not documents:
        raise ConfigError(f"there are no documents in {folder}; make table writes one")
    for page, made in ((root / "README.md", section(documents)), (root / "docs" / "bench.md", details(documents))):
        page.write_text(with_section(page.read_text(encoding="utf-8"), made), encoding="utf-8")
    say(sys.stderr, f"uad: the tables are those of {', '.join(short(one.machine) for one in documents)}")
    return 0


# --- what it takes


def plan(wanted: Wanted) -> Iterator[str]:
    """The work ahead, and how long it takes: models, build, measuring."""
    settings = wanted.settings
    names = [name for name in (*(WEIGHTS[one] for one in settings.weights), DRAFT) if not fetch_models.is_there(name)]
    missing = dict.fromkeys([fetch_models.WRITTEN[n].source if n in fetch_models.WRITTEN else n for n in names])
    fetched = sum(fetch_models.FETCHED[name].n_bytes for name in missing if not fetch_models.is_there(name))
    written = sum(fetch_models.WRITTEN[name].n_bytes for name in names if name in fetch_models.WRITTEN)
    if names:
        minutes = (fetched / _DOWNLOAD_BYTES_S + written / 50e6) / 60
        yield (
            f"uad: models: {fetched / 1e9:.1f} GB to fetch and {written / 1e9:.1f} GB to write, about "
            f"{max(minutes, 1):.0f} minutes at {_DOWNLOAD_BYTES_S / 1e6:.0f} MB/s"
        )
    else:
        yield "uad: models: all are there"
    yield f"uad: {llama_server.plan()}" if wanted.program is None else f"uad: llama-server: {wanted.program}"
    every = [(cell.weights, group) for cell in settings.cells() for group in settings.groups(cell.n_slots)]
    seconds = sum(expected_s(settings, weights, group) for weights, group in every) * n_servers(wanted)
    n = sum(len(one.prompts) for one in settings.workloads())
    yield (
        f"uad: measuring: {n} prompts, {', '.join(settings.weights)}, {' and '.join(map(str, settings.slots))} at "
        f"once, {n_servers(wanted)} servers in turns, passes: {settings.passes}: about {spoken(seconds)}, no "
        f"more than {spoken(60 * wanted.minutes)} in one sitting (--minutes); an interrupted run goes on where it was"
    )


def n_servers(wanted: Wanted) -> int:
    """How many answer in turns: uad with a draft and without, llama-server and the rivals."""
    return 3 + len(wanted.settings.rivals) + (wanted.ik is not None)


def predict_of(settings: Settings, category: str) -> int:
    """Most tokens of an answer to a prompt of this category."""
    return FIRST_TOKEN_PREDICT if category == FIRST_TOKEN else settings.predict


def spoken(seconds: float) -> str:
    """A time as one says it."""
    if seconds < 90 * 60:
        return f"{max(round(seconds / 60), 1)} min"
    return f"{seconds / 3600:.1f} h"


Group = tuple[tuple[str, WorkloadPrompt], ...]


def expected_s(settings: Settings, weights: str, group: Group) -> float:
    """About how long one server takes for a group, before anything is measured: from what two cores do."""
    answers, prompts = _ASSUMED[weights]
    faster = min(os.cpu_count() or 1, _MOST_CORES) / _ASSUMED_CORES
    one = sum(
        predict_of(settings, category) / answers + (_TEMPLATE_TOKENS + prompt.n_bytes / BYTES_PER_TOKEN) / prompts
        for category, prompt in group
    )
    return one / faster / (1.0 if len(group) == 1 else _ASSUMED_TOGETHER)


def seconds_of(record: Record) -> float:
    """How long a group took: all servers one after the other, each as long as its slowest answer."""
    return sum(max(total for _, _, total, _ in some) for some in record.replies.values())


def left_s(settings: Settings, records: Sequence[Record]) -> float:
    """About how long the rest takes: from groups like it where there are any, else as expected, scaled by how wrong
    that was so far. Groups of several requests are alike, and each long prompt is like itself only.
    """
    Kind = tuple[str, int, str]

    def kind(weights: str, n_slots: int, category: str, name: str) -> Kind:
        return weights, n_slots, name if category == FIRST_TOKEN else ""

    expected: dict[Kind, list[float]] = {}
    for weights in settings.weights:
        for n in settings.slots:
            for group in settings.groups(n):
                category, prompt = group[0]
                times = expected.setdefault(kind(weights, n, category, prompt.name), [])
                times += [expected_s(settings, weights, group)] * settings.passes
    done: dict[Kind, list[float]] = {}
    for one in records:
        done.setdefault(kind(one.cell.weights, one.cell.n_slots, *one.prompts[0]), []).append(seconds_of(one))
    taken = sum(map(sum, done.values()))
    wrong = taken / sum(mean(expected[key]) * len(some) for key, some in done.items()) if taken else 1.0
    return sum(
        (len(times) - len(done.get(key, ()))) * (mean(done[key]) if key in done else wrong * mean(times))
        for key, times in expected.items()
    )


# --- before measuring


def prepare(wanted: Wanted) -> None:
    """Fetch models and build llama-server, where they are missing. Raises UnavailableError."""
    with redirect_stdout(sys.stderr):  # stdout is the table's
        try:
            fetch_models.get([*(WEIGHTS[one] for one in wanted.settings.weights), DRAFT])
        except fetch_models.FetchError as error:
            raise UnavailableError(str(error)) from error
        if wanted.program is None:
            llama_server.ensure()
    check_memory(wanted.settings, n_servers(wanted) - 1)


def check_memory(settings: Settings, n_servers: int) -> None:
    """Raises UnavailableError where the servers of one cell do not fit into memory together."""
    from uad.base.common.available import available

    sizes = {one: fetch_models.path_of(WEIGHTS[one]).stat().st_size for one in settings.weights}
    draft = fetch_models.path_of(DRAFT).stat().st_size
    name, size = max(sizes.items(), key=lambda one: one[1])
    # BF16 is mapped from the file, once for all; the other types may be rearranged in memory, in every server
    needs = max(
        (1 if one == "BF16" else n_servers) * _MEMORY_PER_BYTE * (n_bytes + draft) for one, n_bytes in sizes.items()
    )
    free = min(one.n_bytes for one in available())
    if free < needs:
        raise UnavailableError(
            f"{n_servers} servers at once need {needs / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free; "
            f"choose fewer with --rivals, or leave out {name} ({size / 1e9:.1f} GB) with --weights"
        )


def machine() -> Machine:
    """This one."""
    from uad.llama.backend.devices import devices

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9 if hasattr(os, "sysconf") else 0.0
    return Machine(_processor(), os.cpu_count() or 1, kernels(devices()[-1]), round(memory, 1), platform.system())


def _processor() -> str:
    """Its name as the system tells it, without marks and clock."""
    found = ""
    if (info := Path("/proc/cpuinfo")).exists():
        match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        found = match[1] if match else ""
    elif sys.platform == "darwin":
        found = _said(["sysctl", "-n", "machdep.cpu.brand_string"])
    name = re.sub(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|@.*$", "", found or platform.processor() or platform.machine())
    return " ".join(name.split())


def kernels(features: str) -> tuple[str, ...]:
    """The features that are on in llama.cpp's line on them: `CPU : AVX2 = 1 | AMX_INT8 = 1 | REPACK = 1`."""
    return tuple(re.findall(r"(\w+) = [1-9]\d*\b", features))


def kernels_of(program: Path) -> tuple[str, ...]:
    """The same of a llama-server; empty where it does not tell."""
    words = [str(program), "-m", os.devnull, "--port", "0", "--log-verbosity", "5"]
    found = re.search(r"system_info: [^|]*\|(.*)$", _said(words), re.MULTILINE)
    return kernels(found[1]) if found else ()


def _said(command: Sequence[str]) -> str:
    """All that a short command says; nothing where it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def versions(wanted: Wanted) -> Versions:
    """Of all that takes part."""
    program = wanted.program or llama_server.program()
    server = _version(program) + (", built here" if wanted.program is None else ", given by its path")
    git = ["git", "-C", str(ROOT)]
    head = _said([*git, "rev-parse", "--short", "HEAD"]).strip()
    commit = head if re.fullmatch(r"[0-9a-f]{6,40}", head) else ""
    edited = "+" if commit and _said([*git, "status", "--porcelain", "--", "uad", "mappings"]).strip() else ""
    binding = version(llama_server.PACKAGE)
    # a build of ours has no version: its sources need no .git
    ik = "" if wanted.ik is None else ik_server.COMMIT[:9] if wanted.ik == ik_server.program() else _version(wanted.ik)
    return Versions(uad.__version__, commit + edited, binding, server, platform.python_version(), ik)


def _version(program: Path) -> str:
    match = re.search(r"^version: (.*)$", _said([str(program), "--version"]), re.MULTILINE)
    return match[1] if match else "version not known"


def sources() -> str:
    """A mark of uad's own code and mappings: figures of other code are never mixed."""
    files = [path for name in ("uad", "mappings") for path in (ROOT / name).rglob("*") if path.is_file()]
    marks = [
        (path.relative_to(ROOT).as_posix(), path.read_bytes()) for path in files if "__pycache__" not in path.parts
    ]
    return digest([(name, hashlib.sha256(data).hexdigest()) for name, data in sorted(marks)])


# --- measuring


def kept_for(settings: Settings, here: Machine, those: Versions) -> Kept:
    """The work folder of these conditions. The commit is not one of them: uad's sources are."""
    conditions = {
        "machine": asdict(here),
        "versions": asdict(replace(those, commit="")),
        "settings": asdict(settings),
        "sources": sources(),
    }
    return Kept(user_cache_path("uad") / "table" / digest(conditions))


@dataclass(frozen=True, slots=True)
class Told:
    """The content of a work folder beside its records."""

    sittings: int = 0
    left_out: Mapping[str, str] | None = None

    @classmethod
    def of(cls, kept: Kept) -> Told:
        """The content that was written last, or nothing yet."""
        path = kept.folder / "told.json"
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()

    def keep(self, kept: Kept) -> None:
        """Write it."""
        kept.folder.mkdir(parents=True, exist_ok=True)
        (kept.folder / "told.json").write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")


def show(wanted: Wanted, out: TextIO) -> int:
    """Print the measurements so far, as Markdown."""
    here, those = machine(), versions(wanted)
    kept = kept_for(wanted.settings, here, those)
    told = Told.of(kept)
    records = tuple(kept.records())
    document = Document(here, those, wanted.settings, today(), told.sittings, records, told.left_out or {})
    print(report(document), file=out)
    return 0


def today() -> str:
    """The date of a document."""
    return date.today().isoformat()


def measure_all(
    wanted: Wanted,
    start: Start,
    out: TextIO,
    err: TextIO,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Measure what is missing, within the time; write the document, print the report. Raises UadError."""
    program, settings = wanted.program or llama_server.program(), wanted.settings
    here, those = machine(), versions(wanted)
    theirs = kernels_of(program)
    if theirs and theirs != here.kernels:
        raise ConfigError(
            f"no fair comparison: {program} was built for {', '.join(theirs)}, and uad's llama.cpp for "
            f"{', '.join(here.kernels)}; build both with the same CMAKE_ARGS"
        )
    kept = kept_for(settings, here, those)
    if wanted.fresh and (aside := kept.set_aside()):
        say(err, f"uad: what was measured is now {aside}")
        Told().keep(kept)
    told, records = Told.of(kept), kept.records()
    said = "nothing is measured yet" if not records else f"{len(records)} groups are measured already, none is repeated"
    say(err, f"uad: work folder: {kept.folder}; {said}")
    missing = [one for one in settings.cells() if missing_groups(settings, one, records)]
    if missing and told.left_out is None:
        told = replace(told, left_out=unusable(settings, start, err))
        told.keep(kept)
    left_out = told.left_out or {}
    used = replace(settings, rivals=tuple(one for one in settings.rivals if one not in left_out))
    if missing:
        told = replace(told, sittings=told.sittings + 1)
        told.keep(kept)
        Run(used, start, kept, records, err, clock, clock() + 60 * wanted.minutes).all()
    document = Document(here, those, settings, today(), told.sittings, tuple(kept.records()), left_out)
    print(report(document), file=out, flush=True)
    write(document, wanted, kept, err)
    return 0


def write(document: Document, wanted: Wanted, kept: Kept, err: TextIO) -> None:
    """The document: where it was asked for, else in lab/speed where it is whole, else in the work folder."""
    name = re.sub(r"[^a-z0-9]+", "-", short(document.machine).lower()).strip("-")
    is_kept = document.is_whole and not wanted.is_quick
    path = wanted.out or (DOCUMENTS / f"{name}.json" if is_kept else kept.folder / "document.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document.dumps(), encoding="utf-8")
    say(err, f"uad: written: {path}")
    if not document.is_whole:
        say(err, "uad: not all is measured yet; run it again to go on")
    elif path.parent == DOCUMENTS:
        say(err, "uad: python lab/speed_table.py --readme renders README's table from all documents in lab/speed")


def missing_groups(settings: Settings, cell: Cell, records: Sequence[Record]) -> list[int]:
    """Which groups of a cell are not finished."""
    done = {one.group for one in records if one.cell == cell}
    return [i for i in range(len(settings.groups(cell.n_slots))) if i not in done]


def unusable(settings: Settings, start: Start, err: TextIO) -> dict[str, str]:
    """Draft types with which llama-server does not draft for this pair, each tried once, and why."""
    found = {}
    smallest = WEIGHTS[settings.weights[-1]]
    for one in settings.rivals:
        say(err, f"uad: trying llama-server with {one}")
        try:
            with start(fetch_models.path_of(smallest), fetch_models.path_of(DRAFT), 1, 512, [one]) as servers:
                if not drafts(servers[-1].client.url):
                    needs = ", as it takes no draft of another vocabulary" if one == "draft-simple" else ""
                    found[one] = f"it starts, but does not draft for this pair{needs}"
        except UnavailableError as error:
            found[one] = f"it does not start ({str(error).splitlines()[0]})"
    for one, why in found.items():
        say(err, f"uad: {one} is left out: {why}")
    return found


def drafts(url: str) -> bool:
    """Whether a llama-server says that it drafts."""
    try:
        with urllib.request.urlopen(f"{url}/slots", timeout=60) as response:
            slots = json.load(response)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"{url}/slots failed: {error}") from error
    return bool(slots and slots[0].get("speculative"))


class Run:
    """One sitting. ends: on the clock; no group is begun after it."""

    def __init__(
        self,
        settings: Settings,
        start: Start,
        kept: Kept,
        records: Sequence[Record],
        err: TextIO,
        clock: Callable[[], float],
        ends: float,
    ) -> None:
        self._settings, self._start, self._kept, self._err = settings, start, kept, err
        self._records, self._clock, self._ends = list(records), clock, ends

    def all(self) -> None:
        """Every cell that is not finished, as far as the time goes. Raises UnavailableError."""
        n_left = sum(len(missing_groups(self._settings, one, self._records)) for one in self._settings.cells())
        with Bar(self._err, n_left) as bar:
            for cell in self._settings.cells():
                groups = missing_groups(self._settings, cell, self._records)
                if groups and not self._is_late():
                    self._cell(cell, groups, bar)
        if self._is_late() and any(
            missing_groups(self._settings, one, self._records) for one in self._settings.cells()
        ):
            say(self._err, "uad: the time is over (--minutes)")

    def _is_late(self) -> bool:
        return self._clock() >= self._ends

    def _cell(self, cell: Cell, groups: Sequence[int], bar: Bar) -> None:
        """Start the servers, and ask them group by group."""
        settings = self._settings
        every = [prompt for group in settings.groups(cell.n_slots) for _, prompt in group]
        target, draft = (fetch_models.path_of(name) for name in (WEIGHTS[cell.weights], DRAFT))
        what = f"{cell.weights}, {cell.n_slots} at once, pass {cell.number + 1} of {settings.passes}"
        bar.at(f"{what}: loading")
        n_ctx = context_for(every, settings.predict)
        with self._start(target, draft, cell.n_slots, n_ctx, settings.rivals) as servers:
            for server in servers:
                server.client.stream(*server.request(_HELLO, {**_ASKED, "max_tokens": 8}))
            for group in groups:
                if self._is_late():
                    return
                bar.at(what)
                record = ask(servers, settings, cell, group)
                self._kept.add(record)
                self._records.append(record)
                bar.step()
                if not self._err.isatty():
                    left = spoken(left_s(settings, self._records))
                    say(self._err, f"uad: {what}: group {group + 1} is measured; about {left} to go")


def ask(servers: Sequence[Server], settings: Settings, cell: Cell, group: int) -> Record:
    """A group of prompts at once, from each server in turn; another one begins with each group. Raises
    UnavailableError.
    """
    prompts = settings.groups(cell.n_slots)[group]
    asked = {**_ASKED, "max_tokens": predict_of(settings, prompts[0][0])}
    found = {}
    for i in range(len(servers)):
        server = servers[(i + group + cell.number) % len(servers)]
        streams = server.client.streams([server.request(prompt, asked) for _, prompt in prompts])
        found[server.name] = tuple(map(reply, streams))
    ordered = {server.name: found[server.name] for server in servers}
    return Record(cell, group, tuple((category, prompt.name) for category, prompt in prompts), ordered)


def started_servers(program: Path, ik: Path | None) -> Start:
    """A function that starts real servers: `uad serve`, a llama-server for plain decoding and for each draft type, and
    ik_llama.cpp's where there is one.
    """

    @contextmanager
    def start(target: Path, draft: Path, n_slots: int, n_ctx: int, rivals: Sequence[str]) -> Iterator[list[Server]]:
        # all that is meant is in the flags
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG")}
        words = ["--target", str(target), "--draft", str(draft), "-np", str(n_slots), "-c", str(n_ctx * n_slots)]
        with ExitStack() as stack:
            own = stack.enter_context(serving([*words, "--spec-share", "off"], environ))
            found = [_server(UAD, own), _server(PLAIN, own, PLAIN_FIELDS)]
            for name, more in peers(draft, rivals):
                command = overhead.peer_command(program, ModelConfig(target, n_ctx=n_ctx), n_slots)
                found.append(_server(name, stack.enter_context(overhead.serving([*command, *more]))))
                if ik is not None and name == SERVER:
                    command, url = ik_server.command(ik, target, n_slots, n_ctx * n_slots)
                    found.append(_server(IK, stack.enter_context(overhead.serving(command, url))))
            yield found

    return start


def peers(draft: Path, rivals: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """llama-servers by name, each with its further flags."""
    yield SERVER, []
    for one in rivals:
        yield rival(one), ["--spec-type", one, *(["-md", str(draft)] if one.startswith("draft-") else [])]


def _server(name: str, client: Client, fields: Mapping[str, object] | None = None) -> Server:
    return Server(name, client, client.first_model(), fields or {})


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
