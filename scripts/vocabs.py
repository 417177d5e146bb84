"""Fetch what the tests of real vocabularies and real chat templates read: `make vocabs`.

llama-cpp-python's source distribution carries llama.cpp's models/: ggml-vocab-*.gguf (with .inp and .out) and
templates/*.jinja. pip downloads it at the installed version, and they are unpacked into one folder: ggml-vocab-*.gguf*
directly in it, the templates in templates/. The folder is $UAD_VOCABS, or "vocabs" in this user's cache folder of uad
(Linux: ~/.cache/uad/vocabs). Nothing is done where it is already complete.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from platformdirs import user_cache_path

PACKAGE = "llama-cpp-python"
MODELS = ("vendor", "llama.cpp", "models")
DONE = "complete"
"""File that says which version the folder was unpacked from."""


def folder() -> Path:
    """Where vocabularies and templates lie, or would lie."""
    given = os.environ.get("UAD_VOCABS")
    return Path(given).expanduser() if given else user_cache_path("uad") / "vocabs"


def is_complete(target: Path, version: str | None = None) -> bool:
    """Whether everything is there (of this version, if one is named)."""
    try:
        found = (target / DONE).read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return version in (None, found)


def main() -> int:
    """Fetch and unpack; 0 done or already there, 1 where pip could not download (said in one line)."""
    target = folder()
    version = importlib.metadata.version(PACKAGE)
    if is_complete(target, version):
        print(f"uad: vocabularies are in {target}")
        return 0
    print(
        f"uad: fetching the source distribution of {PACKAGE} {version} (about 77 MB) for its vocabularies", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="uad-vocabs-") as scratch:
        archive = download(version, Path(scratch))
        if archive is None:
            print(
                f"uad: error: pip could not download {PACKAGE} {version}; the tests that need its vocabularies will "
                "skip",
                file=sys.stderr,
            )
            return 1
        n = install(archive, target, version)
    print(f"uad: {n} files are in {target}")
    return 0


def download(version: str, scratch: Path) -> Path | None:
    """The source distribution; None if pip failed (it has said why)."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-binary",
        PACKAGE,
        "--dest",
        str(scratch),
    ]
    command += [
        "--no-input",
        "--disable-pip-version-check",
        "--retries",
        "1",
        "--timeout",
        "20",
        f"{PACKAGE}=={version}",
    ]
    if subprocess.run(command, check=False).returncode:
        return None
    return next(scratch.glob("*.tar.gz"), None)


def install(archive: Path, target: Path, version: str) -> int:
    """Unpack beside the target and put it in place at once; returns how many files there are."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    try:
        n = unpack(archive, part)
        (part / DONE).write_text(version + "\n", encoding="utf-8")
        part.chmod(0o755)
        if target.exists():
            old = part / "old"
            target.rename(old)
        part.rename(target)
        shutil.rmtree(target / "old", ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return n


def unpack(archive: Path, part: Path) -> int:
    """Copies the wanted files out of the archive, by name and content only; shows a count on a terminal."""
    n = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            name = wanted(PurePosixPath(member.name))
            source = tar.extractfile(member) if name and member.isfile() else None
            if name is None or source is None:
                continue
            path = part / name
            path.parent.mkdir(exist_ok=True)
            with source, path.open("wb") as out:
                shutil.copyfileobj(source, out)
            n += 1
            if sys.stdout.isatty():
                print(f"\r\x1b[K  {n} {name}", end="", flush=True)
    if sys.stdout.isatty():
        print("\r\x1b[K", end="", flush=True)
    return n


def wanted(path: PurePosixPath) -> str | None:
    """The file's name in the folder, None for what is not needed."""
    if path.parts[1:4] != MODELS:
        return None
    rest = path.parts[4:]
    if len(rest) == 1 and rest[0].startswith("ggml-vocab-"):
        return rest[0]
    return "/".join(rest) if len(rest) == 2 and rest[0] == "templates" and rest[1].endswith(".jinja") else None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
