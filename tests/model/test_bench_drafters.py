"""lab/drafters.py: the table, the last line, the scripted target, and complaints. And building drafters from
configuration.
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import drafters
import pytest
from drafters import TYPES, WORKLOADS, measure, rounds
from kit.drafter_kit import Slot
from kit.toys import TARGET_VOCAB

from uad.base.config import DraftingConfig, LookupConfig
from uad.base.config.drafter_types import NgramCacheConfig, NgramConfig, SuffixConfig
from uad.base.types import Origin
from uad.drafts.lookup import ngram_map
from uad.drafts.lookup.build import build_one
from uad.drafts.lookup.store import fingerprint
from uad.runtime.lookups import build_lookups, lookup_notes
from uad.tools.cli import run


def test_table_and_last_line(capsys):
    assert drafters.main(["--history", "256,1024", "--rounds", "8", "--repeats", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [(c["n_seq"], c["n_ids"]) for c in json.loads(lines[-1])["policy"]] == [
        (n, k) for n in (1, 4) for k in (0, 4, 8, 16)
    ]
    cells = json.loads(lines[-1])["types"]
    assert [(c["type"], c["workload"], c["n_history"]) for c in cells] == [
        (t, w, n) for t in TYPES for w in WORKLOADS for n in (256, 1024)
    ]
    for cell in cells:
        assert 0 < cell["us_per_round"] <= cell["worst_us"]
        assert cell["memory_mb"] > 0
        assert cell["n_ids"] >= 1
    copied = {cell["type"]: cell["n_ids"] for cell in cells if cell["workload"] == "copy" and cell["n_history"] == 1024}
    assert copied["suffix"] > 4
    assert all(cell["n_ids"] < 1.5 for cell in cells if cell["workload"] == "random")
    assert any("longest / shortest" in line.replace("\n", " ") or "longest /" in line for line in lines)


def test_types_can_be_chosen(capsys):
    assert drafters.main(["--types", "suffix,ngram-mod", "--history", "256", "--rounds", "2", "--repeats", "1"]) == 0
    cells = json.loads(capsys.readouterr().out.splitlines()[-1])["types"]
    assert {cell["type"] for cell in cells} == {"suffix", "ngram-mod"}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("workload", ["copy", "zipf"])
def test_a_round_does_not_scan_the_history(name, workload):
    """32 times the history: a scan would cost 32 times as much. The bound is wide, so that a busy machine does not
    matter.
    """
    args = argparse.Namespace(rounds=40, repeats=3, n_max=16)
    short, long = (
        measure(partial(build_one, Origin(name), LookupConfig(), "", 1), workload, n, args) for n in (1024, 32768)
    )
    assert long.us_per_round < 8 * short.us_per_round


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--types", "suffix,magic"], "--types: 'magic' is not one of"),
        (["--types", "draft-simple"], "'draft-simple' is not one of"),
        (["--history", "1k"], "whole numbers"),
        (["--history", "8"], "at least 256"),
        (["--rounds", "0"], "--rounds"),
        (["--n-max", "0"], "--n-max"),
    ],
)
def test_complaints(words, message, capsys):
    assert run(drafters.main, words) == 2
    assert message in capsys.readouterr().err


def test_the_scripted_target_writes_its_text():
    text = [*range(40), *range(40), *range(40)]
    drafter = ngram_map.simple_drafter(2, 8)
    slot = Slot(drafter, text[:42])
    committed = [n for _, n in rounds(drafter, text, 42, 5, 6)]
    assert committed == [7] * 5
    assert slot.lookup.index.ids == text[: 42 + 35]


def test_drafters_are_built_in_the_order_of_the_types():
    config = DraftingConfig(types=("suffix", "draft-simple", *(name for name in TYPES if name != "suffix")))
    built = build_lookups(config, TARGET_VOCAB, 2)
    assert [str(drafter.origin) for drafter in built] == [name for name in config.types if name != "draft-simple"]
    assert "suffix, ngram-simple" in lookup_notes(built, config.lookup)[0]
    assert build_lookups(DraftingConfig(), TARGET_VOCAB, 2) == ()
    assert lookup_notes((), config.lookup) == ()


def test_options_reach_the_drafters(tmp_path):
    lookup = LookupConfig(
        simple=NgramConfig(2, 3, 1),
        map_k4v=NgramConfig(2, 2, 2),
        cache=NgramCacheConfig(dynamic=tmp_path / "d"),
        suffix=SuffixConfig(n_match=3, n_max=2, store=tmp_path / "s"),
    )
    simple, four, cache, suffix = build_lookups(
        DraftingConfig(types=("ngram-simple", "ngram-map-k4v", "ngram-cache", "suffix"), lookup=lookup), TARGET_VOCAB, 1
    )
    prompt = [1, 2, 3, 4, 5, 6, 1, 2]
    assert Slot(simple, prompt).draft().ids == (3, 4, 5)
    assert Slot(four, prompt).draft().ids == ()
    assert Slot(four, [1, 2, 3, 4, *prompt]).draft().ids == (3, 4)
    assert Slot(suffix, prompt).draft().ids == ()
    assert Slot(suffix, [*prompt, 3]).draft().ids == (4, 5)
    for drafter in (cache, suffix):
        Slot(drafter, [1]).write([2, 3]).end()
        drafter.close()
    for name in ("d", "s"):
        assert json.loads((tmp_path / name).read_bytes().split(b"\n")[0])["vocabulary"] == fingerprint(TARGET_VOCAB)


def test_the_draft_model_is_not_built_here():
    with pytest.raises(ValueError, match="draft-simple"):
        build_one(Origin.MODEL, LookupConfig(), "", 1)


def test_a_drafter_that_cannot_be_made_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("uad.drafts.lookup.suffix.drafter", lambda *_: 1 / 0)
    built = build_lookups(DraftingConfig(types=(Origin.SUFFIX, Origin.NGRAM_SIMPLE)), TARGET_VOCAB, 1)
    assert [one.origin for one in built] == [Origin.NGRAM_SIMPLE]
    assert "suffix failed at start (ZeroDivisionError" in caplog.text
