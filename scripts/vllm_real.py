"""vLLM on the CPU, with drafts of uad and without; runs in the environment of `make vllm`.

vllm_real.py convert FILE.gguf FOLDER     the model as a Hugging Face folder in BF16
vllm_real.py write FOLDER plain|uad       greedy texts of PROMPTS, as one line of JSON
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

PROMPTS = (
    "Write a Python function that reads a CSV file and returns the rows as dictionaries.",
    "List the planets of the solar system as a Markdown table with their order.",
    "Return JSON with name, age and city of three fictional people.",
)
N_TOKENS = 64
DRAFTS = {"method": "custom_class", "model": "uad.vllm.Proposer", "num_speculative_tokens": 8}


def convert(file: Path, folder: Path) -> None:
    """Write the folder, unless it is there."""
    if (folder / "config.json").is_file():
        return
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where, name = str(file.parent), file.name
    model: Any = AutoModelForCausalLM.from_pretrained(where, gguf_file=name, torch_dtype=torch.bfloat16)
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer, model.is_quantized = None, False
    AutoTokenizer.from_pretrained(where, gguf_file=name).save_pretrained(folder)
    model.save_pretrained(folder)


def write(folder: str, how: str) -> dict[str, Any]:
    """ids: of each greedy text; close: for each id of a text, the two likeliest ids with their log-probabilities;
    counts: of vLLM's metrics of drafts; sampled: what these grew by at temperature 0.8, with the mean log-probability
    of what was written.
    """
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    from vllm import LLM, SamplingParams

    drafts = DRAFTS if how == "uad" else None
    engine = LLM(folder, max_model_len=1024, enforce_eager=True, speculative_config=drafts, disable_log_stats=False)
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    params = SamplingParams(temperature=0, max_tokens=N_TOKENS, logprobs=2)
    done = [one.outputs[0] for chat in chats for one in engine.chat([chat], params, use_tqdm=False)]
    done += [one.outputs[0] for one in engine.chat(chats, params, use_tqdm=False)]
    counts = _counts(engine)
    drawn = SamplingParams(temperature=0.8, max_tokens=N_TOKENS, seed=1, logprobs=0)
    written = [one.outputs[0] for one in engine.chat(chats, drawn, use_tqdm=False)]
    logs = [row[id_].logprob for one in written for id_, row in zip(one.token_ids, one.logprobs, strict=True)]
    after = _counts(engine)
    return {
        "sampled": {name: after[name] - counts[name] for name in counts} | {"mean_logprob": sum(logs) / len(logs)},
        "ids": [list(one.token_ids) for one in done],
        "close": [[{id_: top.logprob for id_, top in row.items()} for row in one.logprobs] for one in done],
        "counts": counts,
    }


def _counts(engine: Any) -> dict[str, Any]:
    return {one.name: one.value for one in engine.get_metrics() if "spec_decode" in one.name and hasattr(one, "value")}


def main(words: list[str]) -> None:
    """See the module."""
    match words:
        case ["convert", file, folder]:
            convert(Path(file), Path(folder))
        case ["write", folder, "plain" | "uad" as how]:
            print(json.dumps(write(folder, how)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
