"""How much memory this process may still take: the machine's, that of its control groups, and its own limits. Only
reads files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from uad.base.common.files import is_folder
from uad.base.common.once import warn_once

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_CACHES = ("inactive_file", "active_file", "total_inactive_file", "total_active_file")
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Limit:
    """Bytes that are left and what sets them. counts_mapped: mapped files count, whether they are in memory or not."""

    n_bytes: int
    name: str
    counts_mapped: bool = False


def available(root: Path = Path("/")) -> tuple[Limit, ...]:
    """All limits that are known, the machine's first. `root` holds proc and what proc says is mounted.

    A control group's cache of files counts as free: the system drops it for a process that needs memory. Swap does not
    count. None are known where looking fails, with a line in the log.
    """
    try:
        return _available(root)
    except Exception as error:
        warn_once(f"how much memory is left cannot be seen ({type(error).__name__}: {error}); nothing is bounded by it")
        return ()


def _available(root: Path) -> tuple[Limit, ...]:
    left = _table(root / "proc/meminfo").get("MemAvailable:")
    machine = () if left is None else (Limit(left * 1024, "available in this machine"),)
    if limits := (*machine, *_groups(root), *_own(root)):
        return limits
    try:
        return (Limit(os.sysconf("SC_PHYS_PAGES") * _PAGE, "in this machine"),)
    except (AttributeError, ValueError, OSError):
        return ()


def _groups(root: Path) -> Iterator[Limit]:
    """The limits of the control group and of all above it, as far as they are mounted, of version 1 and 2."""
    own = {
        kinds: path
        for _, kinds, path in (line.split(":", 2) for line in _lines(root / "proc/self/cgroup") if line.count(":") >= 2)
    }
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" and "" in own:
            yield from _walk(root, fields[3], fields[4], own[""], _limit_v2)
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            path = next((path for kinds, path in own.items() if "memory" in kinds.split(",")), None)
            if path is not None:
                yield from _walk(root, fields[3], fields[4], path, _limit_v1)


def _walk(root: Path, mounted: str, at: str, path: str, read: Callable[[Path], int | None]) -> Iterator[Limit]:
    """From the group at `path` up to the one that is mounted; a container may see only itself, under another name."""
    # mounted /docker/ab at /sys/fs/cgroup, and this process in /docker/ab/job: the folders job, then its parent
    top = root / at.lstrip("/")
    relative = path.removeprefix(mounted.rstrip("/")) if (path + "/").startswith(mounted.rstrip("/") + "/") else ""
    folder = top / relative.lstrip("/")
    folder = folder if is_folder(folder) else top
    while True:
        limit = read(folder)
        if limit is not None:
            name = str(folder.relative_to(top))
            yield Limit(max(limit, 0), "left in the control group" + ("" if name == "." else f" {name}"))
        if folder == top:
            return
        folder = folder.parent


def _limit_v2(folder: Path) -> int | None:
    # above memory.high the group is slowed down, above memory.max it is ended
    limits = [value for name in ("memory.max", "memory.high") if (value := _number(folder / name)) is not None]
    return _left(folder, min(limits), "memory.current") if limits else None


def _limit_v1(folder: Path) -> int | None:
    limit = _number(folder / "memory.limit_in_bytes")
    return None if limit is None else _left(folder, limit, "memory.usage_in_bytes")


def _left(folder: Path, limit: int, usage: str) -> int | None:
    if limit >= _UNLIMITED_BYTES:
        return None
    # a limit of 8 GB with 7 in use, of which 5 are cached files: 8 - (7 - 5) = 6 are left
    stat = _table(folder / "memory.stat")
    names = _CACHES[2:] if _CACHES[2] in stat else _CACHES[:2]
    return limit - max((_number(folder / usage) or 0) - sum(stat.get(name, 0) for name in names), 0)


def _own(root: Path) -> Iterator[Limit]:
    """The memory that ulimit -v and -d leave, in bytes."""
    used = _table(root / "proc/self/status")
    for line in _lines(root / "proc/self/limits"):
        for start, field, name, counts in (
            ("Max address space", "VmSize:", "left of the address space (ulimit -v)", True),
            ("Max data size", "VmData:", "left of the data size (ulimit -d)", False),
        ):
            soft = line.removeprefix(start).split()[:1]
            if line.startswith(start) and soft and soft[0].isdigit():
                yield Limit(max(int(soft[0]) - used.get(field, 0) * 1024, 0), name, counts)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _table(path: Path) -> dict[str, int]:
    """The first number after each word that begins a line."""
    words = (line.split() for line in _lines(path))
    return {row[0]: int(row[1]) for row in words if len(row) > 1 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    """The number in a file; None for `max`, or if the file has no number."""
    text = "".join(_lines(path)[:1]).strip()
    return int(text) if text.isdigit() else None
