"""Which parts of the library are proven on this machine: tried in another process (`proof.py`), and remembered in a
file.

The file's name is made of all that the result depends on: the library, llama.cpp's, the processor, and the kind.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp

from uad.base.common import children
from uad.base.common.cache import cache_folder
from uad.base.common.files import SMALL_BYTES, is_file, read_text, write_atomically
from uad.base.errors import ConfigError, UadError
from uad.llama.backend import native
from uad.llama.kernels.library import Library

CHILD = "uad.llama.kernels.proof"
_VERSION = 1
_SECONDS = 120.0
_MOST_CRASHES = 4
_REGISTER = "register"
_CPUINFO = Path("/proc/cpuinfo")
_OF_PROCESSOR = ("model name", "flags", "Features", "CPU implementer", "CPU part", "microcode")


@dataclass(frozen=True, slots=True)
class Proven:
    """parts: what may be used; wrong: why the others may not, by part; reason: why nothing may, "" else. lasts: the
    same would be found again.
    """

    parts: tuple[str, ...] = ()
    wrong: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    lasts: bool = True


def proven(library: Library, kind: str) -> Proven:
    """What is remembered, else what another process finds out, which takes seconds, once."""
    facts = facts_of(library, kind)
    try:
        file = _file(facts)
    except ConfigError:  # a user without a home: nothing is remembered
        return tried(library, kind)
    if (known := _read(file, library.parts)) is not None:
        return known
    known = tried(library, kind)
    if known.lasts:
        with suppress(OSError):  # a folder that cannot be written: it is tried again next time
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, _text(facts, known).encode())
    return known


def facts_of(library: Library, kind: str) -> dict[str, object]:
    """What the result depends on."""
    folder = Path(llama_cpp.__file__).parent / "lib"
    return {
        "version": _VERSION,
        "library": hashlib.sha256(library.path.read_bytes()).hexdigest(),
        "parts": list(library.parts),
        "kind": kind,
        "llama_cpp": native.build_info(),
        "ggml": sorted(
            [file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in folder.glob("*ggml*") if is_file(file)
        ),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> list[str]:
    """Model and flags, as Linux lists them for the first core."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return [platform.machine(), platform.processor()]
    return [platform.machine(), *(line for line in lines if line.partition("\t")[0].strip(" :") in _OF_PROCESSOR)]


# --- trying


def tried(library: Library, kind: str) -> Proven:
    """What other processes find out. One that ends early names the part at which it did; another tries those after."""
    left, done, wrong = list(library.parts), list[str](), dict[str, str]()
    lasts = True
    for _ in range(_MOST_CRASHES):
        run = _run(library, kind, left)
        for name, why in run.ended.items():
            if name == _REGISTER:
                if why:
                    return Proven(wrong=wrong, reason=why)
            elif why:
                wrong[name] = why
            else:
                done.append(name)
        left = [part for part in left if part not in run.ended]
        if not run.end:
            break
        if run.at in ("", _REGISTER):
            return Proven(reason=f"trying them failed: {run.end}", lasts=run.lasts and bool(run.at))
        lasts &= run.lasts
        wrong[run.at] = run.end
        left.remove(run.at)
        if not left:
            break
    wrong |= dict.fromkeys(left, "it was not tried, since others failed too often")
    parts = tuple(part for part in library.parts if part in done)
    reason = "" if parts else "none of them was right: " + next(iter(wrong.values()), "there are none")
    return Proven(parts, wrong, reason, lasts)


@dataclass(frozen=True, slots=True)
class _Run:
    """What one process printed: steps that ended and what was wrong in each, the one at which it ended, and how ("":
    as it should). lasts: it would end so again.
    """

    ended: dict[str, str]
    at: str
    end: str
    lasts: bool = True


def _run(library: Library, kind: str, parts: Sequence[str]) -> _Run:
    task = json.dumps({"library": str(library.path), "kind": kind, "parts": list(parts)})
    environment = children.environment() | {"OMP_WAIT_POLICY": "passive"}  # spinning threads slow those that compute
    try:
        done = subprocess.run(
            children.python(CHILD),
            input=task,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            start_new_session=True,  # Ctrl-C would look like a part that ends the process
        )
    except subprocess.TimeoutExpired as error:
        out = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        ended, at = _steps(out)
        return _Run(ended, at, f"it took more than {_SECONDS:.0f} s", lasts=False)
    except OSError as error:
        return _Run({}, "", f"no process could be started ({error.strerror or error})", lasts=False)
    ended, at = _steps(done.stdout)
    return _Run(ended, at, _end(done.returncode, done.stderr))


def _steps(out: str) -> tuple[dict[str, str], str]:
    ended, at = dict[str, str](), ""
    for line in out.splitlines():
        with suppress(ValueError, KeyError, TypeError):  # half a line, where the process ended
            step = json.loads(line)
            at = str(step["step"])
            if "why" in step:
                ended[at] = str(step["why"])
                at = ""
    return ended, at


def _end(code: int, errors: str) -> str:
    """How a process ended, "" where it did as it should."""
    if not code:
        return ""
    lines = [line for line in errors.strip().splitlines() if line.startswith("uad: ")]
    last = lines[-1].removeprefix("uad: error: ") if lines else (errors.strip().splitlines() or [""])[-1][:200]
    how = f"the process that tried it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
    return f"{how} ({last})" if last else how


# --- remembering


def _file(facts: dict[str, object]) -> Path:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "kernels" / f"{digest[:32]}.json"


def _text(facts: dict[str, object], result: Proven) -> str:
    return json.dumps({"facts": facts, "parts": result.parts, "wrong": result.wrong, "reason": result.reason}, indent=1)


def _read(file: Path, known: Sequence[str]) -> Proven | None:
    """What the file says; None where there is none, and for one that is damaged or says something else."""
    try:
        data: Any = json.loads(read_text(file, SMALL_BYTES))
        result = Proven(tuple(data["parts"]), dict(data["wrong"]), data["reason"])
    except (UadError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return result if set(_all(result, known)) == {True} else None


def _all(result: Proven, known: Sequence[str]) -> Iterator[bool]:
    """Whether it is such a result: parts of this library, and each once."""
    yield isinstance(result.reason, str)
    yield all(isinstance(part, str) for part in (*result.parts, *result.wrong, *result.wrong.values()))
    yield len(set(result.parts)) == len(result.parts) and set(result.parts) <= set(known)
    yield bool(result.reason) or {*result.parts, *result.wrong} == set(known)
    yield bool(result.parts) != bool(result.reason)
