"""Check what is about to be released: the version, its section of CHANGELOG.md, and all files of wheel and sdist.

Usage: python scripts/release.py [--tag v0.1.0] [--notes FILE] [--kernels DIST] [DIST]. DIST is a folder with one wheel
and one sdist; that of the kernels has a wheel for each processor.
Prints one line for each thing that is wrong, and ends with 1 then. --notes writes the section of the changelog.
Standard library only.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
KERNELS_METADATA = ("METADATA", "RECORD", "WHEEL")
KERNELS_LIBRARY = "uad_kernels/libuad_kernels.so"
KERNELS_MACHINES = ("x86_64", "aarch64")
NOT_SOURCE = {"__pycache__", "build"}
ADDED_TO_SDIST = {"PKG-INFO", ".gitignore", "pyproject.toml"}
"""Files that the builder puts there by itself."""


def main(argv: list[str] | None = None) -> int:
    """Exit code 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="Check what is about to be released.")
    parser.add_argument("dist", metavar="DIST", nargs="?", type=Path, help="folder with the wheel and the sdist")
    parser.add_argument("--kernels", metavar="DIST", type=Path, help="folder with wheels and sdist of the kernels")
    parser.add_argument("--tag", help="the tag of the release")
    parser.add_argument("--notes", metavar="FILE", type=Path, help="write the version's section of the changelog")
    args = parser.parse_args(argv)
    found = version()
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong = [*wrong_tag(args.tag, found, text)] if args.tag else []
    wrong += [*wrong_dist(args.dist, found)] if args.dist else []
    wrong += [*wrong_kernels(args.kernels, kernels_version())] if args.kernels else []
    for line in wrong:
        print(f"release: {line}", file=sys.stderr)
    if args.notes and not wrong:
        args.notes.write_text(notes(text, found), encoding="utf-8")
    return 1 if wrong else 0


def version() -> str:
    """That of the package."""
    text = (ROOT / "uad" / "__init__.py").read_text(encoding="utf-8")
    return str(re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0])


def kernels_version() -> str:
    """That of the kernels' package."""
    project = tomllib.loads((ROOT / "kernels" / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def notes(changelog: str, version: str) -> str:
    """The text of a version's dated section, "" without one."""
    found = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return found[1].strip() + "\n" if found else ""


def wrong_tag(tag: str, version: str, changelog: str) -> Iterator[str]:
    """Reasons against releasing this version under this tag."""
    if tag != f"v{version}":
        yield f"the tag is {tag}, the package is {version}"
    if not notes(changelog, version).strip():
        yield f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD' with a text"


def wrong_dist(dist: Path, version: str) -> Iterator[str]:
    """Files that a release lacks, and files that do not belong there."""
    wheel, sdist = dist / f"uad-{version}-py3-none-any.whl", dist / f"uad-{version}.tar.gz"
    others = {path.name for path in dist.iterdir()} - {wheel.name, sdist.name}
    yield from (f"{name} does not belong into {dist}" for name in sorted(others))
    for path, check in ((wheel, wrong_wheel), (sdist, wrong_sdist)):
        yield from check(path) if path.exists() else [f"{path} is missing"]


def wrong_wheel(path: Path) -> Iterator[str]:
    """A wheel holds all files of uad/, those of mappings/ as uad/_mappings/, its metadata, and nothing else."""
    with zipfile.ZipFile(path) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
    needed = files_of("uad") | {f"uad/_{name}" for name in files_of("mappings")}
    metadata = {f"{'-'.join(path.name.split('-')[:2])}.dist-info/{name}" for name in METADATA}
    yield from _different(path.name, needed | metadata, held)


def wrong_sdist(path: Path) -> Iterator[str]:
    """An sdist holds all files that pyproject.toml includes."""
    with tarfile.open(path) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    needed = {name for one in included for name in files_of(one.strip("/"))}
    yield from _different(path.name, needed, held - ADDED_TO_SDIST)


def wrong_kernels(dist: Path, version: str) -> Iterator[str]:
    """Faults in the files of the kernels, which are an sdist, and a wheel for each processor that holds the package,
    the library and its metadata: files that are missing, and files that do not belong there.
    """
    sdist, held = dist / f"uad_kernels-{version}.tar.gz", {path.name for path in dist.iterdir()}
    wheels = {
        name for name in held if re.fullmatch(rf"uad_kernels-{re.escape(version)}-py3-none-manylinux\w+\.whl", name)
    }
    yield from (f"{name} does not belong into {dist}" for name in sorted(held - wheels - {sdist.name}))
    yield from [] if sdist.exists() else [f"{sdist} is missing"]
    if sdist.exists():
        with tarfile.open(sdist) as archive:
            files = {member.name.partition("/")[2] for member in archive if member.isfile()}
        needed = {name.removeprefix("kernels/") for name in files_of("kernels")}
        yield from (f"{sdist.name} lacks {name}" for name in sorted(needed - files))
    for machine in KERNELS_MACHINES:
        found = sorted(name for name in wheels if name.endswith(f"_{machine}.whl"))
        yield from [] if len(found) == 1 else [f"{dist} has {len(found)} wheels of the kernels for {machine}"]
        for name in found:
            yield from _wrong_kernels_wheel(dist / name, version)


def _wrong_kernels_wheel(path: Path, version: str) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
    needed = {name.removeprefix("kernels/") for name in files_of("kernels/uad_kernels")} | {KERNELS_LIBRARY}
    needed |= {f"uad_kernels-{version}.dist-info/{name}" for name in KERNELS_METADATA}
    yield from _different(path.name, needed, held)


def files_of(name: str) -> set[str]:
    """A file, or all below a folder, relative to the root; not what was compiled."""
    top = ROOT / name
    found = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
    return {path.relative_to(ROOT).as_posix() for path in found if not NOT_SOURCE & {*path.parts}}


def _different(where: str, needed: set[str], held: set[str]) -> Iterator[str]:
    yield from (f"{where} lacks {name}" for name in sorted(needed - held))
    yield from (f"{where} holds {name}, which does not belong there" for name in sorted(held - needed))


if __name__ == "__main__":
    sys.exit(main())
