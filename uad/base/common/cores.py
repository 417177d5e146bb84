"""Cores that this process may use: its affinity, hyper-threads counted once, and the quota of its control groups.

A container with "2 CPUs" sees all processors of its machine; what it has is a share of their time. More threads than
that share wait for each other while the group is held back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def usable_cores(root: Path = _ROOT) -> int:
    """Threads that compute well at the same time: physical cores, or whole processors of the quota if those are fewer;
    1 at least. root: where the system's files are.
    """
    cores = physical_cores(root)
    quota = cpu_quota(root)
    return cores if quota is None else max(1, min(cores, int(quota)))


def physical_cores(root: Path = _ROOT) -> int:
    """Cores without hyper-threads that this process may run on: decoding is bound by memory, siblings only get in each
    other's way.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    # cores with two threads each list both: "0,4" for cpu0 and for cpu4 is one core
    siblings = set()
    for cpu in allowed:
        lines = _lines(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings.add(lines[0] if lines else str(cpu))
    return max(1, len(siblings))


def cpu_quota(root: Path = _ROOT) -> float | None:
    """Processors whose time the control groups of this process may use, those around them included; None without a
    quota.
    """
    return min((quota for folder in _folders(root) if (quota := _quota(folder)) is not None), default=None)


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted tree of control groups. `group` is the one that is seen at `folder`; version 1 has trees by what they
    control.
    """

    group: PurePosixPath
    folder: Path
    is_v2: bool

    def around(self, group: PurePosixPath) -> Iterator[Path]:
        """Folders of this group and of those around it, as far as they are seen here."""
        if ".." not in group.parts and group.is_relative_to(self.group):
            inner = self.folder / group.relative_to(self.group)
            yield from (inner, *(parent for parent in inner.parents if parent.is_relative_to(self.folder)))


def _folders(root: Path) -> Iterator[Path]:
    """Folders of all groups whose quota counts for this process."""
    groups = list(_groups(_lines(root / "proc/self/cgroup")))
    mounts = list(_mounts(_lines(root / "proc/self/mountinfo"), root))
    for is_v2, group in groups:
        mine = [mount for mount in mounts if mount.is_v2 == is_v2]
        seen = [folder for mount in mine for folder in mount.around(group)]
        # where a container has a view of its own, the group's name may be that of the machine's view ("/docker/1f2e")
        # or lie outside ("/../.."): what is mounted is the container's group then
        yield from seen or (mount.folder for mount in mine)


def _groups(lines: Iterable[str]) -> Iterator[tuple[bool, PurePosixPath]]:
    """The groups of /proc/self/cgroup that may have a quota: "0::/a/b" is of version 2, "4:cpu,cpuacct:/a" of 1."""
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        is_v2 = number == "0" and not controllers
        if is_v2 or "cpu" in controllers.split(","):
            yield is_v2, PurePosixPath(name)


def _mounts(lines: Iterable[str], root: Path) -> Iterator[_Mount]:
    """Trees of /proc/self/mountinfo that may hold quotas."""
    for line in lines:
        place, _, kind = line.partition(" - ")
        fields, what = place.split(" "), kind.split(" ")
        is_v2 = what[0] == "cgroup2"
        if len(fields) > 4 and (is_v2 or (what[0] == "cgroup" and "cpu" in what[-1].split(","))):
            group, folder = (_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), field) for field in fields[3:5])
            yield _Mount(PurePosixPath(group), root / folder.lstrip("/"), is_v2)


def _quota(folder: Path) -> float | None:
    """Processors whose time a group may use; None where it has no quota: "max", or -1."""
    v2 = " ".join(_lines(folder / "cpu.max")).split()
    v1 = [line for name in ("quota", "period") for line in _lines(folder / f"cpu.cfs_{name}_us")]
    for words in (v2, v1):
        with suppress(ValueError):
            quota, period = map(int, words)
            if quota > 0 and period > 0:
                return quota / period
    return None


def _lines(path: Path) -> list[str]:
    """The lines of a file of the system; none where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (OSError, ValueError):
        return []
