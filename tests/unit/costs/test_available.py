"""Memory that is left: the machine's, nested control groups of both versions, containers, the process's own limits, on
made-up trees.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from uad.base.common.available import available

GIB = 1 << 30
MEMINFO = f"MemTotal: {16 * GIB // 1024} kB\nMemFree: 1000 kB\nMemAvailable: {8 * GIB // 1024} kB\n"
V2 = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1 = (
    "33 23 0:29 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n34 23 0:30 / /sys/fs/cgroup/cpu rw - "
    "cgroup cgroup rw,cpu\n"
)


def tree(root: Path, **files: object) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def left(root: Path) -> list[int]:
    return [limit.n_bytes for limit in available(root)]


def proc(cgroup: str, mount: str) -> dict[str, object]:
    return {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup, "proc/self/mountinfo": mount}


def v2(folder: str, **values: object) -> dict[str, object]:
    return {f"sys/fs/cgroup/{folder}memory.{name}": value for name, value in values.items()}


def v1(folder: str, limit: int, usage: int, stat: str = "") -> dict[str, object]:
    start = f"sys/fs/cgroup/memory/{folder}memory."
    return {f"{start}limit_in_bytes": limit, f"{start}usage_in_bytes": usage, f"{start}stat": stat}


def test_without_groups_it_is_the_machine(tmp_path):
    assert left(tree(tmp_path, **{"proc/meminfo": MEMINFO})) == [8 * GIB]


def test_without_proc_it_is_what_the_machine_has(tmp_path):
    assert left(tmp_path)[0] > 0


def test_every_group_above_counts_and_caches_of_files_do_not(tmp_path):
    files = {
        **proc("0::/a/b", V2.format(root="/")),
        **v2("a/b/", max=4 * GIB, current=3 * GIB, stat=f"anon {GIB}\ninactive_file {GIB}\nactive_file {GIB // 2}"),
        **v2("a/", max="max", high=2 * GIB, current=GIB, stat="inactive_file 0"),
    }
    assert left(tree(tmp_path, **files)) == [8 * GIB, 4 * GIB - 3 * GIB + GIB + GIB // 2, GIB]


@pytest.mark.parametrize("mounted", ["/", "/docker/x"])
def test_a_container_sees_its_group_as_the_root(tmp_path, mounted):
    files = {
        **proc("0::/" if mounted == "/" else "0::/docker/x", V2.format(root=mounted)),
        **v2("", max=GIB, current=0),
    }
    assert left(tree(tmp_path, **files)) == [8 * GIB, GIB]


def test_a_path_that_is_not_mounted_is_the_group_that_is(tmp_path):
    files = {**proc("4:memory:/docker/abc\n0::/", V1.format(root="/docker/abc")), **v1("", GIB, 0)}
    assert left(tree(tmp_path, **files)) == [8 * GIB, GIB]


def test_version_1_nested_and_without_a_limit(tmp_path):
    files = {
        **proc("9:cpu:/\n4:memory:/a/b", V1.format(root="/")),
        **v1("a/b/", 2 * GIB, GIB, f"cache 1\ninactive_file 1\ntotal_inactive_file {GIB // 2}\ntotal_active_file 0"),
        **v1("a/", 9223372036854771712, GIB),
        **v1("", 9223372036854771712, GIB),
    }
    assert left(tree(tmp_path, **files)) == [8 * GIB, 2 * GIB - GIB + GIB // 2]


def test_a_group_that_is_over_its_limit_leaves_nothing(tmp_path):
    assert left(tree(tmp_path, **proc("0::/", V2.format(root="/")), **v2("", max=GIB, current=2 * GIB))) == [8 * GIB, 0]


def test_the_process_has_limits_of_its_own(tmp_path):
    limits = (
        f"Limit Soft Hard Units\nMax data size  {GIB}  unlimited  bytes\nMax address space  {2 * GIB}  unlimited "
        " bytes\n"
    )
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/limits": limits,
        "proc/self/status": f"VmSize: {GIB // 1024} kB\nVmData: {GIB // 2048} kB",
    }
    found = available(tree(tmp_path, **files))
    assert [(limit.n_bytes, limit.counts_mapped) for limit in found] == [
        (8 * GIB, False),
        (GIB // 2, False),
        (GIB, True),
    ]


@pytest.mark.parametrize("damage", ["", "x", "0::", "::::", "\0"])
def test_damaged_files_are_no_limits(tmp_path, damage):
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": damage,
        "proc/self/mountinfo": damage,
        "proc/self/limits": damage,
    }
    assert left(tree(tmp_path, **files)) == [8 * GIB]
