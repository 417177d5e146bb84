"""The oracle's arithmetic against brute force, and the bench around it on a scripted engine with known costs: no real
time anywhere.
"""

import itertools
from dataclasses import dataclass

import pytest
from bench import LabEngines, bench, parse
from bench_options import parse_policy
from facts import Bin, collect
from foresight import hindsight_of
from foresight import speed_up as foreseen
from hypothesis import given
from hypothesis import strategies as st
from jobs import LabArm, renamed
from kit.bench_kit import MATRIX, FakeEngine, job, model_words, printed
from oracle import Round, RoundCosts, passes, speed_up
from prescribed import Told
from report import write_report

from uad.base.errors import ConfigError
from uad.base.events import Delta, Done
from uad.base.stats import DraftStats, Timings, Usage
from uad.base.types import Finish, Origin, SpecPolicy, StopKind
from uad.engine.policy.cost import CostCurve, CostSample
from uad.tools.bench.workloads import WorkloadPrompt, load


@dataclass(frozen=True)
class Table:
    """Costs from a function of rows; a draft costs the same for every id."""

    of_rows: object
    per_id: float = 0.0

    def target_ms(self, n, depth):
        return self.of_rows(n)

    def draft_ms(self, n, n_seq=1):
        return self.per_id * n


FLAT = Table(lambda n: 10.0)


def options(folder, *flags):
    """The checked command line for empty model files made in `folder`."""
    return parse([*model_words(folder), *flags])


def run(settings, engine):
    """Run the bench; its JSON line as a value, and all of stdout."""
    return printed(bench, settings, LabEngines(engine, engine.twin("alone"), engine.twin("recital")))


def lines(rng, n):
    """A table of costs that never falls, with steps."""
    ms = list(itertools.accumulate(rng.choice([0.0, 0.1, 3.0]) for _ in range(n)))
    return Table(lambda rows: 5.0 + ms[rows], rng.choice([0.0, 0.2, 4.0]))


# arithmetic


def test_flat_costs_make_every_accepted_id_free():
    assert speed_up([[4, 1, 3]], 0, FLAT, plain_ms=80) == pytest.approx(8 / 3)


def test_costs_in_proportion_to_rows_gain_nothing():
    assert speed_up([[4, 1, 3]], 0, Table(lambda n: 10.0 * n), plain_ms=80) == 1


def test_the_draft_is_paid_for():
    assert speed_up([[3]], 0, Table(lambda n: 10.0, per_id=2.5), plain_ms=30) == pytest.approx(30 / 15)


def test_a_draft_that_costs_too_much_is_not_written():
    assert speed_up([[3, 5]], 0, Table(lambda n: 10.0, per_id=100.0), plain_ms=80) == 1


def test_a_step_in_the_curve_is_avoided():
    step = Table(lambda n: 10.0 if n <= 4 else 50.0)
    assert speed_up([[8]], 0, step, plain_ms=80) == pytest.approx(80 / 20)


def test_what_costs_do_not_explain_is_overhead_of_every_round():
    assert speed_up([[4, 4]], 0, FLAT, plain_ms=8 * 12.0) == pytest.approx(96 / (2 * 12.0))


def test_single_rows_that_were_quicker_say_nothing_of_passes_with_more():
    step = Table(lambda n: 20.0 if n == 1 else 30.0)
    assert speed_up([[4]], 0, step, plain_ms=40) == pytest.approx(40 / 30)
    assert speed_up([[1, 1, 4]], 0, step, plain_ms=60) == pytest.approx(60 / (10 + 10 + 30))
    dear = Table(lambda n: 20.0 if n == 1 else 70.0)
    assert speed_up([[4]], 0, dear, plain_ms=40) == 1


def test_costs_follow_the_depth():
    class Deep(Table):
        def target_ms(self, n, depth):
            return float(depth + n)

    assert speed_up([[1, 1]], 100, Deep(None), plain_ms=101 + 102) == 1
    assert speed_up([[2, 2]], 100, Deep(None), plain_ms=101 + 102 + 103 + 104) == pytest.approx(410 / (102 + 104))


@pytest.mark.parametrize(("runs", "plain_ms"), [([[]], 10), ([[1]], 0)])
def test_nothing_to_replay_is_refused(runs, plain_ms):
    with pytest.raises(ValueError, match="oracle"):
        speed_up(runs, 0, FLAT, plain_ms)


def compositions(n):
    """All ways to write n as a sum, in order."""
    return [[]] if n == 0 else [[k, *rest] for k in range(1, n + 1) for rest in compositions(n - k)]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_one_sequence_is_cut_in_the_best_of_all_ways(run, rng):
    costs = lines(rng, 9)
    plain = sum(run) * costs.target_ms(1, 0)
    best = sum(
        min(sum(costs.target_ms(k, 0) + costs.draft_ms(k - 1) for k in parts) for parts in compositions(n)) for n in run
    )
    assert speed_up([run], 0, costs, plain) == pytest.approx(plain / min(best, plain))


@given(
    st.lists(st.lists(st.integers(1, 17), min_size=1, max_size=12), min_size=2, max_size=4),
    st.randoms(use_true_random=False),
)
def test_several_sequences_are_never_slower_than_plain_or_full_drafts(runs, rng):
    costs = lines(rng, 81)
    left = [sum(one) for one in runs]
    plain = sum(costs.target_ms(sum(n > t for n in left), 0) for t in range(max(left)))
    assert speed_up(runs, 0, costs, plain) >= 1
    full = sum(costs.target_ms(len(ids) * max(ids), 0) + costs.draft_ms(max(ids) - 1) for ids in lockstep(runs))
    if costs.target_ms(80, 0) == costs.target_ms(1, 0):  # flat: nothing beats full drafts
        assert speed_up(runs, 0, costs, plain) >= plain / full - 1e-9


def lockstep(runs):
    return [[one for one in ids if one] for ids in itertools.zip_longest(*runs, fillvalue=0)]


def test_equal_parts_of_several_sequences_are_one_pass():
    assert list(passes([3, 3])) == [6]
    assert list(passes([1, 4, 2])) == [3, 2, 2]
    steep = Table(lambda n: 10.0 if n <= 4 else 100.0)
    assert speed_up([[2, 2], [2, 2]], 0, steep, plain_ms=40) == pytest.approx(2)


def curve(ms_per_row):
    return CostCurve([CostSample(n, 0, ms_per_row * n) for n in range(1, 5)])


def test_curves_of_the_engine_become_costs():
    costs = RoundCosts(curve(10), curve(2))
    assert (costs.target_ms(3, 0), costs.draft_ms(0)) == (pytest.approx(30), 0)
    assert (costs.draft_ms(4), costs.draft_ms(4, 3)) == (pytest.approx(8), pytest.approx(24))
    assert RoundCosts(curve(10), None).draft_ms(4) == 0


def test_a_call_of_the_draft_has_a_price_of_its_own():
    costs = RoundCosts(curve(10), curve(2), call_ms=5.0)
    assert [costs.draft_ms(n) for n in (0, 1, 2, 4)] == pytest.approx([0, 5, 7, 11])


# a scripted engine with costs


class Known(FakeEngine):
    """Notes its rounds; its costs are not known."""

    def _reset(self, name):
        super()._reset(name)
        self.rounds = {}

    def costs(self):
        return None

    def calibration(self):
        return []

    def script(self, number, request):
        self.rounds[request.slot] = [Round(1)]
        return super().script(number, request)


class Scripted(Known):
    """Writes ids 1..n. The draft is right but at every `wrong`-th id; time follows `costs`. auto drafts what `chosen`
    says.
    """

    def __init__(self, wrong=5, length=41, chosen=4):
        super().__init__()
        self.table = Table(lambda n: 10.0 + 0.5 * (n - 1), per_id=0.25)
        self.wrong, self.length, self.chosen = wrong, length, chosen

    def costs(self):
        return self.table

    def calibration(self):
        return [Bin("draft-simple", 0.9, 0.8, 40), Bin("draft-simple", 0.3, 0.35, 10)]

    def beliefs(self, right, n):
        return (0.9,) * right + (0.3,) * (n - right)

    def script(self, number, request):
        speculative = request.speculative
        n = min(self.length, request.max_tokens)
        wanted = (
            speculative.longest if speculative.policy is SpecPolicy.FIXED else min(self.chosen, speculative.longest)
        )
        at, drafted, accepted = 1, 0, 0
        self.rounds[request.slot] = notes = [Round(1)]
        rounds = [(0.0, [Delta(number, (1,), (Origin.TARGET,), "a")])]
        while at < n:
            k = min(wanted, n - at - 1) if speculative.enabled else 0
            right = min(k, self.wrong - 1 - at % self.wrong)
            ids, origins = tuple(range(at + 1, at + right + 2)), (Origin.MODEL,) * right + (Origin.TARGET,)
            ms = self.table.target_ms(k + 1, at) + self.table.draft_ms(k)
            rounds.append((ms, [Delta(number, ids, origins, "a" * (right + 1))]))
            notes.append(Round(right + 1, self.beliefs(right, k), right))
            at, drafted, accepted = at + right + 1, drafted + k, accepted + right
        timings = Timings(
            1.0, 1.0, len(request.prompt), 0, n, DraftStats(len(rounds), len(rounds) - 1, drafted, accepted)
        )
        rounds[-1][1].append(Done(number, Finish.STOP, StopKind.EOS, Usage(len(request.prompt), 0, n), timings))
        return rounds


def test_rounds_are_collected():
    arm, alone = LabArm("auto", Scripted(length=7), parse_policy("auto").speculative), Scripted(length=7)
    arm.beside(LabArm("plain", alone, parse_policy("plain").speculative), [job()], first=True)
    assert arm.chosen == [Round(4, (0.9, 0.9, 0.9, 0.3), 3), Round(2, (0.9,), 1)], "without the prompt's"


def test_share_of_the_oracle_of_a_perfect_and_of_a_short_choice(tmp_path):
    line, _ = run(options(tmp_path, "--prompts", "2"), Scripted(wrong=5, chosen=4))
    (cell,) = line["cells"]
    assert cell["policy"] == "auto"
    # rounds of 5 ids: 10 + 4 * 0.5 + 4 * 0.25 ms instead of 50 ms; the first and the last round are shorter
    assert cell["oracle_ratio"] == pytest.approx(400 / (7 * 13 + 12.25 + 10), rel=1e-3)
    assert 0.97 < cell["oracle_share"] <= 1
    short, _ = run(options(tmp_path, "--prompts", "2"), Scripted(wrong=5, chosen=1))
    assert short["cells"][0]["oracle_ratio"] == cell["oracle_ratio"]
    assert short["oracle_share"] == short["cells"][0]["oracle_share"] < 0.65


def test_beliefs_that_tell_right_from_wrong_allow_what_the_oracle_reaches(tmp_path):
    line, text = run(options(tmp_path, "--prompts", "2"), Scripted(wrong=5, chosen=4))
    (cell,) = line["cells"]
    assert cell["foresight_ratio"] == pytest.approx(cell["oracle_ratio"], rel=1e-3)
    assert (
        cell["foresight_share"]
        == line["foresight_share"]
        == pytest.approx(cell["ratio"] / cell["foresight_ratio"], rel=1e-3)
    )
    assert f"one sequence: {cell['foresight_share']:.0%} of what the beliefs of these drafts allow" in text


def test_beliefs_that_tell_nothing_allow_the_best_fixed_length(tmp_path):
    class Blind(Scripted):
        def beliefs(self, right, n):
            return (0.8,) * n

    line, _ = run(options(tmp_path, "--prompts", "2", "--policy", "auto"), Blind(wrong=5, chosen=4))
    (cell,) = line["cells"]
    assert 1 < cell["foresight_ratio"] < 0.97 * cell["oracle_ratio"]


@given(st.lists(st.tuples(st.lists(st.floats(0, 1), max_size=6), st.integers(0, 6)), min_size=1, max_size=6))
def test_foresight_never_beats_the_oracle(drafts):
    """On the same rounds and costs; and never loses to plain decoding, which it may choose for the whole text."""
    table = Table(lambda n: 10.0 + 2.0 * (n - 1), per_id=0.25)
    rounds = [
        Round(min(right, len(beliefs)) + 1, tuple(beliefs), min(right, len(beliefs))) for beliefs, right in drafts
    ]
    plain_ms = 10.0 * sum(one.n_ids for one in rounds)
    reached = foreseen(rounds, 10, table, plain_ms, hindsight_of(rounds))
    assert 1 <= reached <= speed_up([[one.n_ids for one in rounds]], 10, table, plain_ms) + 1e-9


def test_hindsight_counts_equal_beliefs_together():
    known = hindsight_of([Round(3, (0.9, 0.9, 0.2), 2)] * 20)
    assert known.share(0.9) == known.share(1.0) == pytest.approx(40.5 / 41)
    assert known.share(0.2) == known.share(0.0) == known.share(0.5) == pytest.approx(0.5 / 21)


def test_oracle_of_several_sequences(tmp_path):
    line, _ = run(options(tmp_path, "--prompts", "2", "--sequences", "1,2"), Scripted())
    assert [cell["sequences"] for cell in line["cells"]] == [1, 2]
    assert all(cell["oracle_ratio"] >= 1 for cell in line["cells"])


def test_matrix_in_one_run(tmp_path):
    line, text = run(options(tmp_path, *MATRIX), Scripted())
    assert list(line)[-2:] == ["oracle_share", "foresight_share"]
    names = ["fixed:2", "fixed:4", "fixed:8", "fixed:16", "auto"]
    assert [cell["policy"] for cell in line["cells"]] == names * 4
    assert all(("oracle_share" in cell) == (cell["policy"] == "auto") for cell in line["cells"])
    assert list(line["policies"]) == names
    assert line["best_fixed"] == "fixed:4"
    assert line["auto_over_best_fixed"] == 1
    assert line["worst"] == line["policies"]["fixed:2"]["worst"] == min(cell["ratio"] for cell in line["cells"])
    assert line["policies"]["fixed:4"]["geomean"] > line["policies"]["fixed:16"]["geomean"] > line["worst"]
    assert "auto is 1.00 times the best fixed policy, fixed:4" in text
    assert "fixed:16: geometric mean" in text


def test_the_recording_runs_last_and_once(tmp_path):
    """On the engine whose target computes nothing, along the ids that plain decoding wrote."""
    engine = Scripted(length=41)
    run(options(tmp_path, "--prompts", "2", "--repeats", "2"), engine)
    counted = [request for request in engine.requests if request.max_tokens == 160 or isinstance(request, Told)]
    kinds = [(request.speculative.enabled, request.speculative.policy is SpecPolicy.FIXED) for request in counted]
    assert {request.answer for request in counted if isinstance(request, Told)} == {tuple(range(1, 42))}
    assert {request.max_tokens for request in counted} == {160}
    plain, auto, recording = (False, False), (True, False), (True, True)
    assert kinds == [plain, auto, auto, plain, recording, auto, plain, plain, auto, recording]
    assert {
        (r.speculative.n_max, r.speculative.p_min) for r in engine.requests if r.speculative.policy is SpecPolicy.FIXED
    } == {(48, 0.0)}


def test_without_costs_there_is_no_oracle_and_a_line_says_so(tmp_path):
    line, text = run(options(tmp_path, "--prompts", "1"), Known(lambda request: 20.0))
    assert line["cells"][0]["oracle_share"] is line["oracle_share"] is None
    assert "big: nothing drafts, so no costs are known and there is no oracle" in text


def test_fixed_policies_alone_record_nothing(tmp_path):
    engine = Scripted()
    line, text = run(options(tmp_path, "--policy", "fixed:4", "--prompts", "1"), engine)
    assert {
        request.speculative.n_max for request in engine.requests if request.speculative.policy is SpecPolicy.FIXED
    } == {4}
    assert (line["oracle_share"], line["best_fixed"], line["auto_over_best_fixed"]) == (None, "fixed:4", None)
    assert "oracle" not in text.rpartition('{"cells"')[0]


def test_without_an_oracle_nothing_is_recorded(tmp_path):
    engine = Scripted()
    line, _ = run(options(tmp_path, "--no-oracle", "--prompts", "1"), engine)
    assert line["oracle_share"] is None
    assert not any(isinstance(request, Told) for request in engine.requests)


def test_lists_with_drafters_that_need_no_model_have_no_oracle(tmp_path):
    flags = ("--spec-type", "suffix", "--spec-type", "suffix,draft-simple", "--spec-type", "draft", "--prompts", "1")
    line, _ = run(options(tmp_path, *flags), Scripted())
    assert [(cell["draft"], cell["oracle_ratio"] is not None) for cell in line["cells"]] == [
        ("suffix", False),
        ("suffix+small", False),
        ("small", True),
    ]


def test_answers_can_be_prescribed(tmp_path):
    """The prompt's code with another name, in every counted run."""
    engine = Scripted()
    engine.tokenize = lambda text, add_special=False, parse_special=True: list(text.encode())
    flags = (
        "--workload",
        "edit",
        "--prompt",
        "rename-function",
        "--rename",
        "largest_price",
        "highest_price",
        "--no-oracle",
    )
    run(options(tmp_path, *flags), engine)
    (answer,) = {request.answer for request in engine.requests}
    (prompt,) = load("edit").named(["rename-function"]).prompts
    assert bytes(answer).decode() == prompt.text.partition("\n")[2].replace("largest_price", "highest_price")


def test_names_to_be_replaced_must_be_in_the_code_of_a_prompt(tmp_path):
    assert [
        renamed(WorkloadPrompt("a", text, True), "old", "new") for text in ("old", "old ```x```", "an ```old one```")
    ] == [
        "",
        "",
        "```new one```",
    ]
    with pytest.raises(ConfigError, match=r"--rename: no prompt that is measured has 'old' in a part fenced by ```"):
        options(tmp_path, "--rename", "old", "new")


# the report


def test_report_files(tmp_path):
    folder = tmp_path / "new" / "report"
    run(options(tmp_path, *MATRIX, "--report", str(folder)), Scripted())
    assert sorted(path.name for path in folder.iterdir()) == [
        "accepted.png",
        "costs.png",
        "reliability.png",
        "report.md",
        "speed-up.png",
    ]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in folder.glob("*.png"))
    text = (folder / "report.md").read_text()
    assert all(f"({name}.png)" in text for name in ("accepted", "costs", "reliability", "speed-up"))
    assert "| fixed:4 | 4 | **" in text
    assert "Auto is 1.00 times the best fixed policy, fixed:4." in text
    assert text.count("| big | small | ") == 20
    assert "No plot" not in text


def test_report_says_which_plots_are_missing(tmp_path):
    run(options(tmp_path, "--prompts", "1", "--report", str(tmp_path)), Known(lambda request: 20.0))
    text = (tmp_path / "report.md").read_text()
    for why in (
        "nothing drafts, so there are no costs",
        "nothing was recorded for the oracle",
        "so there is no calibration",
    ):
        assert f"{why}." in text
    assert text.count("No plot: ") == 3
    assert not (tmp_path / "costs.png").exists()


def test_report_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--report"):
        options(tmp_path, "--report", str(tmp_path / "file"))
    (tmp_path / "report.md").mkdir()
    with pytest.raises(ConfigError, match=r"cannot write .*report\.md"):
        write_report(tmp_path, [], [], [])


def test_a_list_gets_the_bins_of_its_own_drafters():
    known = Scripted()
    found = {
        types: collect("t", "d", types, known.costs(), known.calibration(), []).bins
        for types in (("suffix",), ("suffix", "draft-simple"))
    }
    assert {types: [one.kind for one in bins] for types, bins in found.items()} == {
        ("suffix",): [],
        ("suffix", "draft-simple"): ["draft-simple", "draft-simple"],
    }
