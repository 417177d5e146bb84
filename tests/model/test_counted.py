"""Counted time: decodes take what a curve says; a bench with it gives the same numbers in every run."""

import json
import re

import numpy as np
import pytest
from bench import main
from counted import Costs, Counting
from kit.models import DRAFTS, TARGET

from uad.base.errors import ConfigError
from uad.base.types import Ask, Draft, Origin, Rows
from uad.engine.policy.cost import CostSample

TARGET_COSTS = tuple(CostSample(n, depth, 10.0 + n + depth / 100) for n in (1, 2, 4, 8, 16) for depth in (0, 1000))


class Silent:
    """A context that only notes what it decodes."""

    n_seq, n_ctx, n_batch, n_ubatch, n_alike, vocab = 4, 100, 64, 8, 8, None
    can_take_back, can_stop, n_free, keep_ms, tail = True, True, 1 << 30, 0.0, 0

    def __init__(self):
        self.decoded = []

    def decode(self, rows, may_stop=False):
        self.decoded.append(rows)

    def interrupt(self, wanted=True): ...

    def logits(self):
        return np.zeros((1, 1), np.float32)

    def rows(self):
        return self.logits()

    def want_likeliest(self, seq, n): ...
    def see(self, seq, placed, n_done): ...
    def take_back(self, seq, n): ...
    def reach(self, seq, n): ...
    def prepare(self, rows): ...
    def mark(self, seq, is_last): ...
    def clear(self, seq): ...


class Once:
    """A drafter of some origin that proposes nothing."""

    def __init__(self, origin):
        self.origin = origin

    def propose(self, asks, pace=None):
        return [Draft() for _ in asks]


def test_a_decode_spends_what_its_passes_cost():
    counting, context = Counting(Costs(TARGET_COSTS)), Silent()
    counted = counting.target(context)
    counted.decode([Rows(0, 0, (1, 2, 3, 4), 1)])
    assert counting.clock() == pytest.approx(0.014)
    counted.decode([Rows(0, 500, (1,), 1), Rows(1, 500, (1,), 1)])
    assert counting.clock() == pytest.approx(0.014 + 0.017), "two sequences share a pass"
    counted.decode([Rows(0, 0, tuple(range(10)), 1)])
    assert counting.clock() == pytest.approx(0.031 + 0.018 + 0.012), "ten rows are a pass of eight and one of two"
    assert len(context.decoded) == 3


def test_who_reads_a_prompt_is_not_as_deep_as_who_writes_beside_it():
    counting = Counting(Costs(TARGET_COSTS))
    counting.target(Silent()).decode([Rows(0, 0, tuple(range(7)), 1), Rows(1, 800, (1,), 1)])
    assert counting.clock() == pytest.approx(1e-3 * (17 + 1 + 11 + 1)), (
        "passes of seven and of one, behind 100 on average of all ids"
    )


def test_calls_of_drafters_take_their_time():
    counting = Counting(Costs(TARGET_COSTS))
    for origin in (Origin.MODEL, Origin.SUFFIX):
        before = counting.clock()
        assert counting.drafter(Once(origin)).propose([Ask(0, 4)]) == [Draft()]
        assert 0 < counting.clock() - before < 0.002


def test_the_draft_models_costs_must_be_given():
    with pytest.raises(ConfigError, match="--costs has no curve of the draft model"):
        Counting(Costs(TARGET_COSTS)).draft(Silent())


def curve_file(path, costs):
    path.write_text(json.dumps({"version": 1, "facts": {}, "samples": [[one.n, one.depth, one.ms] for one in costs]}))
    return path


def bench(capsys, *flags):
    assert main(["--target", str(TARGET), *map(str, flags), "--prompts", "2", "-n", "24", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    return out, json.loads(out.splitlines()[-1])["cells"]


@pytest.mark.model
def test_a_counted_bench_is_the_same_every_time(tmp_path, capsys):
    target = curve_file(tmp_path / "big.json", TARGET_COSTS)
    draft = curve_file(tmp_path / "small.json", [CostSample(n, 0, 0.3 + 0.02 * n) for n in (1, 16)])
    runs = [
        bench(
            capsys,
            "--draft",
            DRAFTS["zephyr"],
            "--costs",
            f"{target},{draft}",
            "--workload",
            "copy-edit",
            "--policy",
            "plain,auto",
        )
        for _ in range(2)
    ]
    assert runs[0][1] == runs[1][1]
    plain, auto = runs[0][1]
    assert plain["ratio"] == pytest.approx(1.0)
    assert 80 < plain["tps"] < 91, "11 ms and a little for the depth"
    assert auto["ratio"] > 1.2
    assert "time is counted, not measured: decodes take what big.json and small.json says" in runs[0][0]


@pytest.mark.model
def test_costs_that_cannot_be_used_are_named(tmp_path):
    good = curve_file(tmp_path / "big.json", TARGET_COSTS)
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    for flags, reason in (
        (("--costs", tmp_path / "none.json"), "--costs: no such file"),
        (("--costs", bad), "bad.json is no cost curve as `uad profile` writes them"),
        (("--costs", f"{good},{good},{good}"), "give the target's file, and behind a comma the draft model's"),
        (("--costs", good), "--costs has no curve of the draft model"),
        (("--costs", good, "--vs", "http://127.0.0.1:9"), "cannot be combined with --vs"),
    ):
        with pytest.raises(ConfigError, match=re.escape(reason)):
            main(["--target", str(TARGET), "--draft", str(DRAFTS["zephyr"]), *map(str, flags)])
