"""`uad bench` with the bundled models: what the collector counts is what the engine counted, and a small matrix with its report."""

import json
from dataclasses import replace

import pytest
from models import DRAFTS, TARGET, chat_prompts, config

from uad.bench.measure import EngineArm, Measured, Pair, make_job
from uad.bench.options import PLAIN, RECORDING, parse_policy
from uad.bench.recording import Recorder
from uad.bench.workloads import Prompt
from uad.cli.bench import main
from uad.policy.cost import CostCurve, CostSample
from uad.policy.machine import RoundCosts
from uad.runtime import Stepper
from uad.types import Origin, SpeculativeParams

pytestmark = pytest.mark.model


def test_rounds_add_up_to_what_the_engine_counted():
    with Stepper.open(config()) as runtime:
        jobs = [make_job(runtime, Prompt(f"p{i}", text, True), 0.0, 1, 48) for i, text in enumerate(chat_prompts(3))]
        plain = [EngineArm("plain", runtime, PLAIN.speculative).run([job]).answers[0] for job in jobs]
        for name in ("fixed:4:0", "fixed:16:0.5"):
            arm = EngineArm(name, runtime, parse_policy(name).speculative)
            for job, same in zip(jobs, plain, strict=True):
                (answer,) = arm.run([job]).answers
                rounds = answer.rounds
                assert answer.ids == same.ids
                assert (rounds[0].n_ids, rounds[0].n_drafted) == (1, 0)
                assert sum(one.n_ids for one in rounds) == len(answer.ids) == answer.n_predicted
                assert (len(rounds), sum(one.n_drafted for one in rounds)) == (answer.n_rounds, answer.n_drafted)
                assert 0 < sum(one.n_accepted for one in rounds) <= answer.n_accepted
                assert {one.origin for one in rounds} == {Origin.TARGET, Origin.MODEL}
        assert all(one.n_rounds == one.n_predicted for one in plain)


def test_a_prescribed_answer_is_written_whatever_the_target_thinks():
    """Drafted or not, and at its end the text ends."""
    prompt = Prompt("p", chat_prompts(1)[0], True, answer="Nobody taught it to say that: one, two, one, two, one, two, three.")
    with Stepper.open(config()) as runtime:
        job = make_job(runtime, prompt, 0.0, 1, 100)
        for policy in (PLAIN, parse_policy("fixed:8:0")):
            (answer,) = EngineArm(policy.name, runtime, policy.speculative).run([job]).answers
            assert answer.text == prompt.answer
            assert answer.ids[:-1] == job.answer
            assert runtime.is_special(answer.ids[-1])
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

    with Stepper.open(config()) as runtime:
        engine = WithCosts(runtime)
        job = make_job(engine, Prompt("p", chat_prompts(1)[0], True), 0.0, 1, 48)
        recorder = Recorder.of(engine, runtime.recital())
        sample = EngineArm("plain", engine, PLAIN.speculative).run([job])
        plain = replace(sample, tps=1e3)
        measured = recorder.add([job], Measured(("p",), ((Pair(plain, plain),),)))
    (answer,) = measured.recorded.answers
    n_rounds = len(answer.rounds) - 1
    assert RECORDING.speculative.n_max == SpeculativeParams().longest
    assert max(one.n_drafted for one in answer.rounds) > 16, "the answer's 48 ids are the only limit"
    assert measured.oracle > 2
    assert measured.oracle == pytest.approx((len(answer.ids) - 1) / n_rounds, rel=1e-3)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_recital_drafts_as_if_the_target_had_computed(temperature):
    """Three sequences at once; nothing is learned, and the target's slots stay as they are."""
    with Stepper.open(config(slots=3)) as runtime:
        prompts = [Prompt(f"p{i}", text, True) for i, text in enumerate(chat_prompts(3))]
        jobs = [replace(make_job(runtime, prompt, temperature, i, 48), slot=i) for i, prompt in enumerate(prompts)]
        written = EngineArm("recording", runtime, RECORDING.speculative).run(jobs)
        before = runtime.calibration(), runtime.slots(), runtime.totals()
        told = [replace(job, answer=answer.ids) for job, answer in zip(jobs, written.answers, strict=True)]
        recited = EngineArm("recital", runtime.recital(), RECORDING.speculative).run(told)
        assert (runtime.calibration(), runtime.slots(), runtime.totals()) == before
        again = EngineArm("plain", runtime, PLAIN.speculative).run(jobs)
    assert [one.ids for one in recited.answers] == [one.ids for one in written.answers] == [one.ids for one in again.answers]
    for ours, theirs in zip(recited.answers, written.answers, strict=True):
        assert [replace(one, beliefs=()) for one in ours.rounds] == [replace(one, beliefs=()) for one in theirs.rounds]
        for one, other in zip(ours.rounds, theirs.rounds, strict=True):
            # prompts take turns by the clock, so the draft reads them in other batches: its last bits differ
            assert one.beliefs == pytest.approx(other.beliefs, abs=2e-3)
    assert any(one.n_accepted > 4 for answer in recited.answers for one in answer.rounds)


def test_a_small_matrix(tmp_path, capsys):
    flags = ["--policy", "plain,fixed:4,auto", "--workload", "chat,story", "--prompts", "1", "--repeats", "1", "-n", "24", "-t", "1"]
    assert main(["--target", str(TARGET), "--draft", str(DRAFTS["zephyr"]), *flags, "--report", str(tmp_path)]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(cell["workload"], cell["policy"]) for cell in line["cells"]] == [
        (workload, policy) for workload in ("chat", "story") for policy in ("plain", "fixed:4", "auto")
    ]
    assert all(cell["same_text"] for cell in line["cells"])
    assert all(cell["accept_rate"] > 0 for cell in line["cells"] if cell["policy"] == "fixed:4")
    assert (tmp_path / "report.md").read_text().count("| target-chatml | draft-zephyr | ") == 6
    assert (tmp_path / "speed-up.png").stat().st_size > 10_000
