"""uad's drafters inside a real vLLM on the CPU (`make vllm`), with a real pair of two vocabularies."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit.real_models import real_model
from kit.source_imports import ROOT

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.llama]
PYTHON = Path(os.environ.get("UAD_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))
SCRIPT = ROOT / "scripts" / "vllm_real.py"
A_TIE = 0.2
"""Log-probabilities that differ by less change places with the number of rows of a pass, in BF16."""


def run(*words: str, **variables: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive", **variables}
    done = subprocess.run(
        [str(PYTHON), str(SCRIPT), *words], capture_output=True, text=True, env=environ, cwd=ROOT, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_texts_are_those_of_vllm_alone_and_vllm_counts_accepted_drafts(tmp_path: Path) -> None:
    if not PYTHON.is_file():
        pytest.skip(f"no vLLM in {PYTHON}: make vllm (3.5 GB)")
    folder = str(tmp_path / "target")
    run("convert", str(real_model("qwen2.5-coder-0.5b")), folder)
    texts: dict[str, dict[str, Any]] = {}
    for how in ("plain", "uad"):
        out = run("write", folder, how, UAD_DRAFT=str(real_model("smollm2-135m")))
        texts[how] = json.loads(out.splitlines()[-1])
    for ids, drafted, close in zip(texts["plain"]["ids"], texts["uad"]["ids"], texts["plain"]["close"], strict=True):
        at = next((i for i, (one, other) in enumerate(zip(ids, drafted, strict=False)) if one != other), None)
        if at is not None:  # the plain engine itself hardly knew
            first, second = sorted(close[at].values(), reverse=True)[:2]
            assert first - second < A_TIE
            assert str(drafted[at]) in close[at]
    assert texts["uad"]["counts"]["vllm:spec_decode_num_accepted_tokens"] > 0
    assert not texts["plain"]["counts"]
    # drawn with the request's own temperature: as likely as plain texts, and guesses are accepted
    plain, drafted = texts["plain"]["sampled"], texts["uad"]["sampled"]
    assert drafted["mean_logprob"] > plain["mean_logprob"] - 1
    assert drafted["vllm:spec_decode_num_accepted_tokens"] > 0
