"""Tokens per pass with the bundled heads, over HTTP, in uad and in llama-server: `python lab/head_passes.py
[--llama-server PROGRAM]`.

Chats that the heads were not trained on, one slot, drafts of a fixed length. A pass yields its accepted ids and one.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from overhead import free_port, serving

from uad.base.common.children import python
from uad.base.errors import UadError
from uad.tools.bench.client import Client

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "samples"
sys.path.append(str(SAMPLES / "train"))
DRAFTS: Mapping[str, Sequence[str]] = {
    "no draft": (),
    "suffix": ("--spec-type", "suffix", "--spec-suffix-store-size", "0"),
    "draft-zephyr.gguf": ("-md", str(SAMPLES / "draft-zephyr.gguf"), "--spec-type", "draft-simple"),
    "EAGLE-3 head": ("-md", str(SAMPLES / "heads" / "eagle3-target-chatml.gguf"), "--spec-type", "draft-eagle3"),
    "DFlash head": ("-md", str(SAMPLES / "heads" / "dflash-target-chatml.gguf"), "--spec-type", "draft-dflash"),
}
N_CHATS, N_PREDICT, SEED = 40, 160, 1234


def prompts() -> Iterator[str]:
    """Chats up to the answer, of another seed than that of the training."""
    from tasks import conversation

    rng = random.Random(SEED)
    for _ in range(N_CHATS):
        yield f"<|im_start|>user\n{conversation(rng)[0].question}<|im_end|>\n<|im_start|>assistant\n"


def measured(client: Client, temperature: float) -> tuple[str, int]:
    """Tokens per pass, share accepted and tokens per second, in words; and a number that stands for the texts."""
    n = n_accepted = n_drafted = 0
    ms, texts = 0.0, list[str]()
    for prompt in prompts():
        body = {"prompt": prompt, "n_predict": N_PREDICT, "temperature": temperature, "seed": 1, "cache_prompt": False}
        answer: Mapping[str, Any] = client.post("/completion", body)
        timings = answer["timings"]
        n, ms = n + timings["predicted_n"], ms + timings["predicted_ms"]
        n_drafted, n_accepted = n_drafted + timings.get("draft_n", 0), n_accepted + timings.get("draft_n_accepted", 0)
        texts.append(answer["content"])
    share = f", {n_accepted} of {n_drafted} accepted" if n_drafted else ""
    return f"{n / (n - n_accepted):.2f} tokens per pass{share}, {1e3 * n / ms:,.0f} tok/s", hash(tuple(texts))


def commands(program: str | None, n_max: int) -> Iterator[tuple[str, list[str], str | None]]:
    """Servers to measure: a name, a command, and the address of one that does not print it."""
    usual = ["-m", str(SAMPLES / "target-chatml.gguf"), "-c", "2048", "-np", "1", "-t", "1", "--host", "127.0.0.1"]
    length = ["--spec-draft-n-max", str(n_max), "--spec-draft-p-min", "0"]
    for name, words in DRAFTS.items():
        yield (
            f"uad, {name}",
            python("uad", "serve", *usual, "--port", "0", *words, *length, "--spec-policy", "fixed"),
            None,
        )
        if program is not None and name != "suffix":
            port = str(free_port())
            yield (
                f"llama-server, {name}",
                [program, *usual, "--port", port, *words, *(length if words else ())],
                f"http://127.0.0.1:{port}",
            )


def main(argv: Sequence[str]) -> int:
    """Print a line for each server, draft, length and temperature. Raises UadError."""
    parser = argparse.ArgumentParser(description="Tokens per pass with the bundled heads.")
    parser.add_argument("--llama-server", metavar="PROGRAM")
    given = parser.parse_args(argv)
    for n_max in (4, 7):
        for name, command, url in commands(given.llama_server, n_max):
            with serving(command, url) as client:
                for temperature in (0.0, 0.8):
                    words, texts = measured(client, temperature)
                    print(f"{n_max} ids, temperature {temperature}: {name}: {words}, texts {texts % 1000}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UadError as error:
        sys.exit(f"head_passes.py: {error}")
