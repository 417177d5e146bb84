"""Policy and drafters are compiled where the machine can: to the same decisions and drafts, never from other sources than lie there."""

from __future__ import annotations

import importlib.metadata
import shutil
import sysconfig
from pathlib import Path

import as_written
import pytest

from uad.compiled import ROOMS, is_compiled

DECIDE = """
import json
from simulator import BAD, FLAT, GOOD, MEMORY_BOUND, MIXED, Simulation, jagged, text
from policy import Script
from uad.compiled import is_compiled

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


DRAFT = """
import json, random
from drafter_kit import Slot
from drafters import WORKLOADS
from uad.compiled import is_compiled
from uad.config import LookupConfig
from uad.runtime.drafters import build_one
from uad.types import Origin
from uad.vocab.prefix import common_prefix

seen = {"compiled": is_compiled(), "drafts": []}
for name in ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "suffix"):
    for write in WORKLOADS.values():
        text = write(random.Random(7), 600, 4000)
        drafter = build_one(Origin(name), LookupConfig(), "", 1)
        slot = Slot(drafter, text[:600])
        for _ in range(120):
            at, draft = len(slot.ids), slot.draft(40)
            seen["drafts"].append([draft.ids, [round(p, 12) for p in draft.p], draft.kind])
            slot.write(text[at : at + common_prefix(draft.ids, text[at:]) + 1], draft)
        draft = slot.end().begin(slot.ids[:-50]).draft(40)
        seen["drafts"].append([draft.ids, draft.kind, drafter.memory])
print(json.dumps(seen))
"""


def test_this_machine_can_compile_it():
    """Where Python's headers and a C compiler are, `make` has compiled it: or these tests would compare it with itself."""
    if not (shutil.which("cc") and Path(sysconfig.get_paths()["include"], "Python.h").exists()):
        pytest.skip("no C compiler, or no headers of Python")
    try:
        importlib.metadata.distribution("uad")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("uad runs from its sources here, and is not installed")
    assert is_compiled(), "run make"


@pytest.mark.parametrize("program", [pytest.param(DECIDE, id="decisions"), pytest.param(DRAFT, id="drafts", marks=pytest.mark.llama)])
def test_compiled_and_as_written_do_the_same(tmp_path, program):
    folder = as_written.copy_to(tmp_path)
    written, here = as_written.run(folder, program), as_written.run(as_written.ROOT.parent, program)
    assert written.returncode == here.returncode == 0, written.stderr + here.stderr
    assert '"compiled": false' in written.stdout
    assert written.stdout == here.stdout.replace('"compiled": true', '"compiled": false')


@pytest.mark.parametrize("room", ROOMS)
def test_other_sources_than_it_was_compiled_from_are_refused(tmp_path, room):
    folder = as_written.copy_to(tmp_path)
    assert as_written.run(folder, f"import uad.{room}.protocol").returncode == 0
    made_from = folder / f"uad/{room}/sources.sha256"
    digest = as_written.run(folder, f"import pathlib, uad.compiled; print(uad.compiled.digest(pathlib.Path('uad/{room}')))").stdout.strip()
    made_from.write_text(digest, encoding="utf-8")
    assert as_written.run(folder, f"import uad.{room}.protocol").returncode == 0
    with (folder / f"uad/{room}/protocol.py").open("a", encoding="utf-8") as file:
        file.write("\n")
    stale = as_written.run(folder, f"import uad.{room}.protocol")
    assert stale.returncode == 1
    assert "changed since it was compiled: run make" in stale.stderr
