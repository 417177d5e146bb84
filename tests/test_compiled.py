"""The policy is compiled where the machine can: to the same decisions, never from other sources than those that lie there."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import as_written
import pytest

from uad.policy import is_compiled

DECIDE = """
import json
from simulator import BAD, FLAT, GOOD, MEMORY_BOUND, MIXED, Simulation, jagged, text
from uad.bench.policy import Script
from uad.policy import is_compiled

seen = {"compiled": is_compiled(), "simulated": [], "scripted": []}
noise = lambda rng, at: rng.lognormvariate(0, 0.1)
for cost in (FLAT, MEMORY_BOUND, jagged):
    for states in (GOOD, MIXED, BAD):
        one = Simulation(cost, text(1500, states), noise=noise).run(n_texts=3)
        kinds = {kind: [c.n, c.accepted, c.slope, c.shift] for kind, c in one.policy.calibrations.items()}
        seen["simulated"].append([one.lengths, one.rows, one.asked, one.ms, kinds])
for n_seq in (1, 3):
    seen["scripted"].append([n for _, n in Script(n_seq, 8).run(200)])
print(json.dumps(seen))
"""


def test_this_machine_can_compile_it():
    """Where Python's headers and a C compiler are, `make` has compiled it: or these tests would compare it with itself."""
    if not (shutil.which("cc") and Path(sysconfig.get_paths()["include"], "Python.h").exists()):
        pytest.skip("no C compiler, or no headers of Python")
    assert is_compiled(), "run make"


def test_compiled_and_as_written_decide_alike(tmp_path):
    folder = as_written.copy_to(tmp_path)
    written, here = as_written.run(folder, DECIDE), as_written.run(as_written.ROOT.parent, DECIDE)
    assert written.returncode == here.returncode == 0, written.stderr + here.stderr
    assert '"compiled": false' in written.stdout
    assert written.stdout == here.stdout.replace('"compiled": true', '"compiled": false')


def test_other_sources_than_it_was_compiled_from_are_refused(tmp_path):
    folder = as_written.copy_to(tmp_path)
    assert as_written.run(folder, "import uad.policy.auto").returncode == 0
    made_from = folder / "uad/policy/sources.sha256"
    digest = as_written.run(folder, "import pathlib, uad.policy; print(uad.policy.digest(pathlib.Path('uad/policy')))").stdout.strip()
    made_from.write_text(digest, encoding="utf-8")
    assert as_written.run(folder, "import uad.policy.auto").returncode == 0
    with (folder / "uad/policy/text.py").open("a", encoding="utf-8") as file:
        file.write("\n")
    stale = as_written.run(folder, "import uad.policy.auto")
    assert stale.returncode == 1
    assert "changed since it was compiled: run make" in stale.stderr
