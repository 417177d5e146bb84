"""Which parts of the library are proven on this machine: tried in another process (`proof.py`), and remembered in a
file.

The file's name is made of all that the result depends on: the library, llama.cpp's files that this process has loaded,
the processor, the kind, and the proof itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any

from uad.base.common import children
from uad.base.common.cache import cache_folder
from uad.base.common.cores import usable_cores
from uad.base.common.files import SMALL_BYTES, read_text, write_atomically
from uad.base.errors import ConfigError, UadError
from uad.llama.backend import ggml, native
from uad.llama.kernels.library import Library

CHILD = "uad.llama.kernels.proof"
SECONDS = 120.0
"""All processes together may take as long."""
_PATIENCE = 15.0  # seconds until a warning says what start waits for
_MOST_CRASHES = 4
_REGISTER = "register"
_CPUINFO = Path("/proc/cpuinfo")
_OF_PROCESSOR = ("model name", "flags", "Features", "CPU implementer", "CPU part", "microcode")
_OF_PROOF = ("proof.py", "graphs.py", "library.py", "speed.py")
_MOST_BYTES = 1 << 26  # of a file that are read; a libllama that holds everything may have gigabytes for a GPU
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = logging.getLogger("uad.llama")


@dataclass(frozen=True, slots=True)
class Proven:
    """parts: what may be used; wrong: why the others may not, by part; reason: why nothing may, "" else; pending: those
    of the wrong parts that the next start tries again; times: of types of weights, the library's over llama.cpp's for
    each of `speed.ROWS`.
    """

    parts: tuple[str, ...] = ()
    wrong: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    pending: tuple[str, ...] = ()
    times: dict[str, tuple[float, ...]] = field(default_factory=dict)


def prove_once(library: Library, kind: str) -> Proven:
    """The remembered result, else that of another process, which takes seconds, once."""
    try:
        facts = facts_of(library, kind)
        file = _file(facts)
    except (ConfigError, OSError):  # a user without a home, or files that cannot be read: nothing is remembered
        return try_parts(library, kind, library.parts)
    before = _read(file, library.parts)
    if before is not None and not before.pending:
        return before
    result = try_parts(library, kind, before.pending if before else library.parts)
    if before is not None:
        result = _joined(library, before, result)
    if len(result.pending) < len(library.parts):
        with suppress(OSError):  # a folder that cannot be written: all is tried again next time
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, _text(facts, result).encode())
    return result


def _joined(library: Library, before: Proven, after: Proven) -> Proven:
    """The results of an earlier start, and of this one for the parts that were pending."""
    failed = after.wrong if after.parts or after.wrong else dict.fromkeys(before.pending, after.reason)
    wrong = {part: why for part, why in before.wrong.items() if part not in before.pending} | failed
    parts = tuple(part for part in library.parts if part in (*before.parts, *after.parts))
    return Proven(parts, wrong, _reason(parts, wrong), after.pending, before.times | after.times)


def facts_of(library: Library, kind: str) -> dict[str, object]:
    """Facts that the result depends on. Raises OSError where a file cannot be read."""
    folder = Path(__file__).parent
    return {
        "proof": [_digest(folder / name) for name in _OF_PROOF],
        "library": _digest(library.path),
        "parts": list(library.parts),
        "kind": kind,
        "llama_cpp": native.build_info(),
        "files": [
            [file.name, file.stat().st_size, file.stat().st_mtime_ns, _digest(file)]
            for file in ggml.loaded_files(*library.needed)
        ],
        "processor": _processor(),
        "cores": usable_cores(),
    }


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.sha256(opened.read(_MOST_BYTES)).hexdigest()


def _processor() -> list[str]:
    """Models and flags of all cores, as Linux lists them: some processors have cores of several kinds."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return [platform.machine(), platform.processor()]
    return [platform.machine(), *sorted({line for line in lines if line.partition(":")[0].strip() in _OF_PROCESSOR})]


# --- trying


def try_parts(library: Library, kind: str, parts: Sequence[str]) -> Proven:
    """The results of other processes that try these parts. A process that ends early names the part at which it did;
    another one tries those after it.
    """
    _log.info("trying the %s kernels in another process, once for this machine: some seconds", kind)
    late = Timer(_PATIENCE, _log.warning, ("still trying the %s kernels, for %.0f s at most", kind, SECONDS))
    late.daemon = True
    late.start()
    try:
        return _try_in_turn(library, kind, parts)
    finally:
        late.cancel()


def _try_in_turn(library: Library, kind: str, parts: Sequence[str]) -> Proven:
    left, right, wrong, pending = list(parts), list[str](), dict[str, str](), list[str]()
    times = dict[str, tuple[float, ...]]()
    until = monotonic() + SECONDS
    why_left = "it was not tried, since others failed too often"
    for _ in range(_MOST_CRASHES):
        run = _run(library, kind, left, until - monotonic())
        if why := run.ended.pop(_REGISTER, ""):
            return Proven(wrong=wrong, reason=why)
        wrong |= {part: why for part, why in run.ended.items() if why}
        right += [part for part, why in run.ended.items() if not why]
        times |= run.times
        left = [part for part in left if part not in run.ended]
        if not left or not run.end:  # how a process ends after its last part says nothing about the parts
            break
        if run.at in ("", _REGISTER):
            if right or wrong:  # it ended between two parts
                continue
            again = () if run.at and not run.is_from_outside else tuple(parts)
            return Proven(reason=f"trying them failed: {run.end}", pending=again)
        # time that earlier parts have used up says nothing about this one
        if run.is_from_outside and not (run.is_late and run.at == parts[0]):
            pending.append(run.at)
        wrong[run.at] = run.end
        left.remove(run.at)
        if run.is_late:
            why_left = f"it was not tried within {SECONDS:.0f} s"
            pending += left
            break
    wrong |= dict.fromkeys(left, why_left)
    tried = tuple(part for part in library.parts if part in right)
    return Proven(tried, wrong, _reason(tried, wrong), tuple(pending), times)


def _reason(parts: Sequence[str], wrong: dict[str, str]) -> str:
    return "" if parts else "none of them was right: " + next(iter(wrong.values()), "there are none")


@dataclass(frozen=True, slots=True)
class _Run:
    """The output of one process: steps that ended and what was wrong in each, the one at which it ended, and how ("":
    as it should). is_late: its time was up; is_from_outside: that, or somebody ended it; times: as `Proven` has them.
    """

    ended: dict[str, str]
    at: str
    end: str
    is_late: bool = False
    is_from_outside: bool = False
    times: dict[str, tuple[float, ...]] = field(default_factory=dict)


def _run(library: Library, kind: str, parts: Sequence[str], seconds: float) -> _Run:
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
            timeout=max(seconds, 0),
            start_new_session=True,  # Ctrl-C would look like a part that ends the process
        )
    except subprocess.TimeoutExpired as error:
        out = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        ended, at, times = _steps(out)
        late = f"it took more than {SECONDS:.0f} s"
        return _Run(ended, at, late, is_late=True, is_from_outside=True, times=times)
    except OSError as error:
        return _Run({}, "", f"no process could be started ({error.strerror or error})", is_from_outside=True)
    ended, at, times = _steps(done.stdout)
    is_from_outside = -done.returncode in _FROM_OUTSIDE
    return _Run(ended, at, _end(done.returncode, done.stderr), is_from_outside=is_from_outside, times=times)


def _steps(out: str) -> tuple[dict[str, str], str, dict[str, tuple[float, ...]]]:
    """The members of `_Run` that a process's lines say: ended, at, times."""
    ended, at, times = dict[str, str](), "", dict[str, tuple[float, ...]]()
    for line in out.splitlines():
        with suppress(ValueError, KeyError, TypeError):  # half a line, where the process ended
            step = json.loads(line)
            if "times" in step:
                times[str(step["step"])] = _ratios(step["times"])
                continue
            at = str(step["step"])
            if "why" in step:
                ended[at] = str(step["why"])
                at = ""
    return ended, at, times


def _ratios(numbers: Sequence[Any]) -> tuple[float, ...]:
    return tuple(map(float, numbers))


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
    return json.dumps({"facts": facts} | asdict(result), indent=1)


def _read(file: Path, parts: Sequence[str]) -> Proven | None:
    """The file's result; None where there is no file, and for one that is damaged or says something else."""
    try:
        data: Any = json.loads(read_text(file, SMALL_BYTES))
        times = {str(name): _ratios(each) for name, each in data["times"].items()}
        result = Proven(tuple(data["parts"]), dict(data["wrong"]), data["reason"], tuple(data["pending"]), times)
    except (UadError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return result if all(_checks(result, parts)) else None


def _checks(result: Proven, parts: Sequence[str]) -> Iterator[bool]:
    """Whether it is such a result: parts of this library, and each once."""
    yield isinstance(result.reason, str)
    yield all(0 < ratio < inf for times in result.times.values() for ratio in times)
    yield all(isinstance(part, str) for part in (*result.parts, *result.wrong, *result.wrong.values()))
    yield len(set(result.parts)) == len(result.parts) and set(result.parts) <= set(parts)
    yield bool(result.reason) or {*result.parts, *result.wrong} == set(parts)
    yield bool(result.parts) != bool(result.reason)
    yield len(set(result.pending)) == len(result.pending) and set(result.pending) <= set(result.wrong)
