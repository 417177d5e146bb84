"""README's row of an 8B: what drafts gain beside a large target, over llama-server's plain decoding.

    python lab/scale.py SMALL.gguf large-q8_0.gguf --params 8b --type q8_0
    python -c "import sys; sys.path.append('scripts'); from fetch_models import Path, quantize; \\
        quantize(Path('large-q8_0.gguf'), Path('large.gguf'), 15)"                       # 15: Q4_K_M
    python lab/large.py large.gguf SMOLLM2.gguf QWEN-0.5B.gguf --llama-server PROGRAM

One prompt of each category goes to all sides in a shuffled order, greedy. All prompts go round --passes times; medians
count. Both servers are loaded all the time. No earlier answers are looked up, since each side writes the same text.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from overhead import free_port, serving

from uad.base.common.children import python
from uad.base.errors import UadError
from uad.base.types import MODELS
from uad.tools.bench import workloads
from uad.tools.bench.client import Client

PEER, PLAIN = "llama-server", "uad, no draft"
ROUTE = "/v1/chat/completions"


def sides(drafts: Sequence[Path]) -> dict[str, Mapping[str, object]]:
    """The sides that are measured, by name, and what a request says for each."""
    asked: dict[str, Mapping[str, object]] = {PEER: {}, PLAIN: {"speculative": {"enabled": False}}}
    names = list(map(str, MODELS[: len(drafts)]))
    for draft, name in zip(drafts, names, strict=True):
        asked[draft.name] = {"speculative": {"types": [name, "suffix"]}}
    if len(drafts) > 1:
        asked["all drafts"] = {"speculative": {"types": [*names, "suffix"]}}
    return asked


def answer(client: Client, text: str, n: int, asked: Mapping[str, object]) -> tuple[float, str]:
    """Tokens per second after the prompt, and the text."""
    usual = {"messages": [{"role": "user", "content": text}], "max_tokens": n, "temperature": 0, "cache_prompt": False}
    found: Mapping[str, Any] = client.post(ROUTE, {**usual, **asked}, 3600)
    return found["timings"]["predicted_per_second"], found["choices"][0]["message"]["content"]


def main(argv: Sequence[str]) -> int:
    """Print a row for each prompt, and means over llama-server. 1: texts of uad differ. Raises UadError."""
    parser = argparse.ArgumentParser(description="What drafts gain beside a large target.")
    parser.add_argument("target", type=Path)
    parser.add_argument("drafts", type=Path, nargs="+")
    parser.add_argument("--llama-server", metavar="PROGRAM", required=True)
    parser.add_argument("--predict", type=int, default=80)
    parser.add_argument("--passes", type=int, default=1)
    given = parser.parse_args(argv)
    port = str(free_port())
    usual = ["-m", str(given.target), "-c", "4096", "-np", "1"]
    own = [word for draft in given.drafts for word in ("--draft", str(draft))]
    peer = [given.llama_server, *usual, "--host", "127.0.0.1", "--port", port]
    uad = python("uad", "serve", *usual, *own, "--port", "0", "--spec-suffix-store-size", "0")
    names, categories = tuple(sides(given.drafts)), workloads.category_names()
    speeds = {(name, category): list[float]() for name in names for category in categories}
    texts = {category: set[str]() for category in categories}
    with serving(peer, f"http://127.0.0.1:{port}") as of_peer, serving(uad) as of_uad:
        for turn, category in product(range(given.passes), categories):
            prompt = workloads.load(str(workloads.CATEGORY_DIR / f"{category}.toml")).prompts[0]
            asked = list(sides(given.drafts).items())
            random.Random(f"{category}{turn or ''}").shuffle(asked)
            for name, words in asked:
                speed, text = answer(of_peer if name == PEER else of_uad, prompt.text, given.predict, words)
                speeds[name, category].append(speed)
                texts[category] |= {text} if name != PEER else set()
            print(category, *(f"{name} {speeds[name, category][-1]:.1f}" for name in names), sep=", ", flush=True)
    for name in names:
        ratios = [median(speeds[name, of]) / median(speeds[PEER, of]) for of in categories]
        print(f"{name}: {geometric_mean(ratios):.2f}, worst {min(ratios):.2f}, best {max(ratios):.2f}")
    n_different = sum(len(found) > 1 for found in texts.values())
    print(f"texts of uad that differ: {n_different} of {len(categories)}")
    return 1 if n_different else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UadError as error:
        sys.exit(f"large.py: {error}")
