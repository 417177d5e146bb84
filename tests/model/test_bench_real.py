"""lab/bench.py with the bundled models: what is noted is what the engine counted, and a small matrix with its
report.
"""

import json
from dataclasses import replace

import pytest
from bench import main
from bench_options import PLAIN, parse_policy
from engines import make_job
from jobs import LabArm, told
from kit.models import DRAFTS, TARGET, chat_prompts, config
from oracle import RoundCosts
from recorder import RECORDING, Recorder
from stepper import LabStepper

from uad.base.types import SpeculativeParams
from uad.engine.policy.cost import CostCurve, CostSample
from uad.tools.bench.workloads import WorkloadPrompt

pytestmark = pytest.mark.model


def test_rounds_add_up_to_what_the_engine_counted():
    with LabStepper.load(config()) as runtime:
        jobs = [
            make_job(runtime, WorkloadPrompt(f"p{i}", text, True), 0.0, 1, 48) for i, text in enumerate(chat_prompts(3))
        ]
        plain = [LabArm("plain", runtime, PLAIN.speculative).run([job]).answers[0] for job in jobs]
        for name in ("fixed:4:0", "fixed:16:0.5"):
            arm = LabArm(name, runtime, parse_policy(name).speculative)
            for job, same in zip(jobs, plain, strict=True):
                (answer,) = arm.run([job]).answers
                rounds = runtime.rounds[job.slot]
                assert answer.ids == same.ids
                assert (rounds[0].n_ids, rounds[0].n_drafted) == (1, 0)
                assert sum(one.n_ids for one in rounds) == len(answer.ids) == answer.n_predicted
                assert (len(rounds), sum(one.n_drafted for one in rounds)) == (answer.n_rounds, answer.n_drafted)
                assert 0 < sum(one.n_accepted for one in rounds) <= answer.n_accepted
        assert all(one.n_rounds == one.n_predicted for one in plain)


def test_a_prescribed_answer_is_written_whatever_the_target_thinks():
    """Drafted or not, and at its end the text ends."""
    text = "Nobody taught it to say that: one, two, one, two, one, two, three."
    prompt = WorkloadPrompt("p", chat_prompts(1)[0], True)
    with LabStepper.load(config()) as runtime:
        job = told(make_job(runtime, prompt, 0.0, 1, 100), runtime.text.tokenize(text, parse_special=False))
        for policy in (PLAIN, parse_policy("fixed:8:0")):
            (answer,) = LabArm(policy.name, runtime, policy.speculative).run([job]).answers
            assert answer.text == text
            assert answer.ids[:-1] == job.answer
            assert runtime.text.is_special(answer.ids[-1])
        assert answer.n_accepted < answer.n_drafted


def test_the_recording_of_a_real_pair_gives_an_oracle():
    class WithCosts:
        """The runtime with costs that are known: a pass takes the same time whatever its rows, drafting takes none."""

        def __init__(self, runtime):
            self._runtime = runtime

        def __getattr__(self, name):
            return getattr(self._runtime, name)

        def costs(self):
            return RoundCosts(CostCurve([CostSample(n, 0, 1.0) for n in (1, 64)]), CostCurve([CostSample(1, 0, 1e-9)]))

    with LabStepper.load(config()) as runtime:
        engine = WithCosts(runtime)
        job = make_job(engine, WorkloadPrompt("p", chat_prompts(1)[0], True), 0.0, 1, 48)
        sample = LabArm("plain", engine, PLAIN.speculative).run([job])
        recorded = Recorder(engine, runtime.recital()).record([job], [replace(sample, tps=1e3)])
    (rounds,) = recorded.rounds
    assert RECORDING.n_max == SpeculativeParams().longest
    assert max(one.n_drafted for one in rounds) > 16, "the answer's 48 ids are the only limit"
    assert recorded.oracle > 2
    assert recorded.oracle == pytest.approx((len(sample.answers[0].ids) - 1) / (len(rounds) - 1), rel=1e-3)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_recital_drafts_as_if_the_target_had_computed(temperature):
    """Three sequences at once; nothing is learned, and the target's slots stay as they are."""
    with LabStepper.load(config(slots=3)) as runtime:
        prompts = [WorkloadPrompt(f"p{i}", text, True) for i, text in enumerate(chat_prompts(3))]
        jobs = [replace(make_job(runtime, prompt, temperature, i, 48), slot=i) for i, prompt in enumerate(prompts)]
        written = LabArm("recording", runtime, RECORDING).run(jobs)
        before, rounds = (
            (runtime.calibration(), runtime.snapshot()[:2]),
            dict(runtime.rounds),
        )
        answers = [told(job, answer.ids) for job, answer in zip(jobs, written.answers, strict=True)]
        recital = runtime.recital()
        recited = LabArm("recital", recital, RECORDING).run(answers)
        assert (runtime.calibration(), runtime.snapshot()[:2]) == before
        again = LabArm("plain", runtime, PLAIN.speculative).run(jobs)
    assert (
        [one.ids for one in recited.answers]
        == [one.ids for one in written.answers]
        == [one.ids for one in again.answers]
    )
    assert rounds.keys() == recital.rounds.keys() == {0, 1, 2}
    for slot, theirs in rounds.items():
        ours = recital.rounds[slot]
        assert [replace(one, beliefs=()) for one in ours] == [replace(one, beliefs=()) for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            # prompts take turns by the clock, so the draft reads them in other batches: its last bits differ
            assert one.beliefs == pytest.approx(other.beliefs, abs=2e-3)
    assert any(one.n_accepted > 4 for each in recital.rounds.values() for one in each)


def test_a_small_matrix(tmp_path, capsys):
    flags = [
        "--policy",
        "plain,fixed:4,auto",
        "--workload",
        "chat,story",
        "--prompts",
        "1",
        "--repeats",
        "1",
        "-n",
        "24",
        "-t",
        "1",
    ]
    assert main(["--target", str(TARGET), "--draft", str(DRAFTS["zephyr"]), *flags, "--report", str(tmp_path)]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(cell["workload"], cell["policy"]) for cell in line["cells"]] == [
        (workload, policy) for workload in ("chat", "story") for policy in ("plain", "fixed:4", "auto")
    ]
    assert all(cell["same_text"] for cell in line["cells"])
    assert all(cell["accept_rate"] > 0 for cell in line["cells"] if cell["policy"] == "fixed:4")
    assert (tmp_path / "report.md").read_text().count("| target-chatml | draft-zephyr | ") == 6
    assert (tmp_path / "speed-up.png").stat().st_size > 10_000
