"""Code, random words, code again: how soon the automatic policy follows, with real models. Time is counted, so every
run is the same.
"""

import random
import re

import pytest
from bench_options import parse_policy
from counted import Costs
from engines import make_job
from jobs import LabArm, told
from kit.models import DRAFTS, config
from stepper import LabStepper

from uad.engine.policy.cost import CostSample
from uad.tools.bench.workloads import WorkloadPrompt, load

pytestmark = pytest.mark.model
COSTS = Costs(
    # as of a large Q8_0 target without AMX
    target=tuple(CostSample(n, 0, 42.0 if n == 1 else 28.0 + 15.5 * n) for n in range(1, 41)),
    draft=tuple(CostSample(n, 0, 0.5 + 0.02 * n) for n in (1, 16)),
)
CODE = [code for one in load("copy-edit").prompts for code in re.findall(r"```python\n(.*?)\n```", one.text, re.DOTALL)]
FUNCTIONS = [code for code in CODE if len(code) < 260]
WORDS = sorted(set(re.findall(r"[a-z]{3,}", " ".join(one.text for one in load("long").prompts))))


def changing(seed: int) -> tuple[str, str, str]:
    """Three parts of some 200 ids each; in the code a function is repeated, which small drafts are good at."""
    rng = random.Random(seed)
    first, second = (f"{code}\n\n\n" * 4 for code in rng.sample(FUNCTIONS, 2))
    return f"```python\n{first}", " ".join(rng.choices(WORDS, k=80)), f"\n\n```python\n{second}```"


@pytest.mark.parametrize("draft", ["zephyr", "gemma"])
def test_a_change_of_nature_is_followed_within_fifty_ids(draft):
    late, resumed = [], []
    with LabStepper.load(config(draft=DRAFTS[draft]), None, COSTS) as runtime:
        arm = LabArm("auto", runtime, parse_policy("auto").speculative)
        for prompt in load("copy-edit").prompts[:3]:
            arm.run([make_job(runtime, prompt, 0.0, 1, 96)])
        for seed in range(6):
            parts = changing(seed)
            job = make_job(runtime, WorkloadPrompt("changing", "Write a Python function.", True), 0.0, 1, 700)
            arm.run([told(job, runtime.text.tokenize("".join(parts), parse_special=False))])
            words = len(runtime.text.tokenize(parts[0], parse_special=False))
            code = len(runtime.text.tokenize(parts[0] + parts[1], parse_special=False))
            assert words > 90
            assert code - words > 150
            at, drafted = 0, []
            for one in runtime.rounds[job.slot]:
                if one.n_drafted:
                    drafted.append(at)
                at += one.n_ids
            assert sum(n < words for n in drafted) > 10, "the first code is drafted"
            late.append(sum(words + 40 <= n < code for n in drafted))
            resumed.append(next(n - code for n in drafted if n >= code))
    assert sum(late) <= 6 * len(late), (
        "random words are not drafted, but for a guess now and then: in 160 ids six times"
    )
    assert max(resumed) <= 50, "code is drafted again"
