"""How many threads compute: quotas of control groups, of version 1 and 2, in made-up trees of the system's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from uad.base.common.cores import cpu_quota, physical_cores, usable_cores

V2 = "30 23 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate"
V1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"
V1_BOTH = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"
HYBRID = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"


class Machine:
    """The system's files below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")

    def has(self, groups: str, *mounts: str) -> None:
        """The process is in these groups, and sees these trees."""
        self.write("/proc/self/cgroup", groups)
        self.write("/proc/self/mountinfo", "\n".join(("23 1 8:1 / / rw - ext4 /dev/sda rw", *mounts)))

    def v1(self, folder: str, quota: int, period: int = 100_000) -> None:
        self.write(f"{folder}/cpu.cfs_quota_us", str(quota))
        self.write(f"{folder}/cpu.cfs_period_us", str(period))

    def v2(self, folder: str, line: str) -> None:
        self.write(f"{folder}/cpu.max", line)


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    """A machine of eight cores without hyper-threads."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [
        (100_000, 100_000, 1),
        (300_000, 100_000, 3),
        (250_000, 100_000, 2),
        (25_000, 100_000, 1),
        (10_000, 5_000, 2),
        (-1, 100_000, 8),
        (0, 100_000, 8),
        (100_000, 0, 8),
        (9_900_000, 100_000, 8),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_threads_follow_the_quota_rounded_down_to_at_least_one(machine, version, quota, period, cores) -> None:
    if version == 1:
        machine.has("4:cpu:/jobs/a", V1)
        machine.v1("/sys/fs/cgroup/cpu/jobs/a", quota, period)
    else:
        machine.has("0::/jobs/a", V2)
        machine.v2("/sys/fs/cgroup/jobs/a", f"{quota if quota > 0 else 'max'} {period}")
    assert usable_cores(machine.root) == cores


def test_the_smallest_quota_of_a_group_and_of_those_around_it_counts(machine) -> None:
    machine.has("0::/slice/pod/box", V2)
    machine.v2("/sys/fs/cgroup/slice/pod/box", "max 100000")
    machine.v2("/sys/fs/cgroup/slice/pod", "400000 100000")
    assert usable_cores(machine.root) == 4
    machine.v2("/sys/fs/cgroup/slice", "150000 100000")
    assert (cpu_quota(machine.root), usable_cores(machine.root)) == (1.5, 1)


def test_of_version_one_too_the_groups_around_count(machine) -> None:
    machine.has("9:name=systemd:/x\n4:cpu,cpuacct:/docker/1f2e", V1_BOTH)
    machine.v1("/sys/fs/cgroup/cpu,cpuacct/docker/1f2e", -1)
    machine.v1("/sys/fs/cgroup/cpu,cpuacct/docker", 200_000)
    machine.v1("/sys/fs/cgroup/cpu,cpuacct", -1)
    assert usable_cores(machine.root) == 2


def test_other_controllers_of_version_one_say_nothing(machine) -> None:
    machine.has(
        "4:cpuset:/a\n2:cpuacct:/a\n1:cpu:/", V1, "33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct"
    )
    machine.v1("/sys/fs/cgroup/cpuacct/a", 100_000)
    machine.v1("/sys/fs/cgroup/cpu/a", 100_000)
    assert cpu_quota(machine.root) is None


def test_where_both_versions_are_mounted_the_one_with_a_quota_counts(machine) -> None:
    machine.has("1:cpu:/a\n0::/a", V1, HYBRID)
    machine.v1("/sys/fs/cgroup/cpu/a", 300_000)
    machine.v2("/sys/fs/cgroup/unified", "max 100000")
    assert usable_cores(machine.root) == 3


@pytest.mark.parametrize("group", ["/docker/1f2e", "/docker/1f2e/inner"])
def test_a_container_that_sees_its_own_group_only_finds_it_at_the_top_of_the_mount(machine, group) -> None:
    machine.has(f"4:cpu:{group}", "32 31 0:29 /docker/1f2e /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
    machine.v1("/sys/fs/cgroup/cpu", 200_000)
    machine.v1("/sys/fs/cgroup/cpu/inner", -1)
    assert usable_cores(machine.root) == 2


@pytest.mark.parametrize("group", ["/", "/../..", "/kubepods/pod1/4c5d"])
def test_a_group_whose_name_is_not_seen_is_the_mounted_one(machine, group) -> None:
    machine.has(f"0::{group}", "30 23 0:26 /kubepods/pod2/9a9a /sys/fs/cgroup ro - cgroup2 cgroup ro")
    machine.v2("/sys/fs/cgroup", "200000 100000")
    assert usable_cores(machine.root) == 2


def test_a_mount_with_a_blank_in_its_name_is_read(machine) -> None:
    machine.has("0::/a", r"30 23 0:26 / /mnt/control\040groups rw shared:3 - cgroup2 none rw")
    machine.v2("/mnt/control groups/a", "100000 100000")
    assert usable_cores(machine.root) == 1


@pytest.mark.parametrize("line", ["", "max", "1", "x y", "1 2 3"])
def test_what_cannot_be_read_is_no_quota(machine, line) -> None:
    machine.has("0::/\nnonsense\n", V2, "nonsense", " - cgroup2")
    machine.v2("/sys/fs/cgroup", line)
    assert cpu_quota(machine.root) is None


def test_without_the_systems_files_the_affinity_counts(machine) -> None:
    assert (usable_cores(machine.root), cpu_quota(machine.root)) == (8, None)


def test_siblings_are_one_core_and_the_quota_counts_beside_them(machine) -> None:
    for cpu in range(8):
        machine.write(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}")
    assert physical_cores(machine.root) == usable_cores(machine.root) == 4
    machine.has("0::/", V2)
    machine.v2("/sys/fs/cgroup", "600000 100000")
    assert usable_cores(machine.root) == 4
    machine.v2("/sys/fs/cgroup", "300000 100000")
    assert usable_cores(machine.root) == 3
