"""Speed of embeddings: texts of 20 to 400 tokens from one and from several clients, to `uad serve` and to llama-server,
in turns on one machine. The model has random weights of a shape that people use; times do not depend on values.

    python lab/embeddings.py bert-33m /tmp/models --texts 200 --llama-server PATH

Prints a row for each server and number of clients, in Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from gguf import GGMLQuantizationType
from kit.embedding_models import Shape, make
from kit.tiny_models import WORDS

from uad.base.common.children import python

SHAPES = {
    "bert-33m": ("bert", Shape(384, 12, 1536, 12, 30522)),
    "bert-110m": ("bert", Shape(768, 12, 3072, 12, 30522)),
    "qwen3-0.6b": ("qwen3", Shape(1024, 8, 3072, 28, 30522, 4096)),
}
"""Qwen3's vocabulary is left small: an embedding is looked up, so it takes memory and no time."""
SHORTEST, LONGEST = 20, 400
START_S = 300
_LISTENING = re.compile(r"(?:listening on|server is listening on) (http://[\w.:]+)")


@contextmanager
def served(command: Sequence[str]) -> Iterator[str]:
    """The address of a server, until the end of the block. Raises RuntimeError where it does not start."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_S
            while not (listening := _LISTENING.search(Path(log.name).read_text(errors="replace"))):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(Path(log.name).read_text(errors="replace")[-2000:])
                time.sleep(0.2)
            yield listening[1]
        finally:
            process.terminate()
            process.wait(60)


async def embedded(url: str, texts: Sequence[str], n_clients: int, at_once: int) -> tuple[float, int]:
    """Seconds and tokens of all texts, from n_clients that each send `at_once` in a request."""
    bodies = iter([texts[start : start + at_once] for start in range(0, len(texts), at_once)])
    n_tokens = 0
    async with ClientSession(url, timeout=ClientTimeout(3600)) as session:

        async def client() -> None:
            nonlocal n_tokens
            for body in bodies:
                request = {"input": body, "encoding_format": "base64"}
                async with session.post("/v1/embeddings", json=request) as answer:
                    answer.raise_for_status()
                    n_tokens += (await answer.json())["usage"]["total_tokens"]

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(n_clients)))
        return time.perf_counter() - began, n_tokens


def main() -> int:
    """Make the model, and measure both servers in turns."""
    parser = argparse.ArgumentParser(description="Speed of embeddings beside llama-server.")
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=Path, help="where the model is made, unless it is there")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=16, help="texts of a request")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--type", default="Q8_0", choices=[kind.name for kind in GGMLQuantizationType])
    parser.add_argument("--llama-server", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    name, shape = SHAPES[given.shape]
    folder = given.folder / f"{given.shape}-{given.type}"
    folder.mkdir(parents=True, exist_ok=True)
    model = str(make(name, folder, shape=shape, ftype=GGMLQuantizationType[given.type]))
    rng, words = random.Random(1), WORDS.split()
    lengths = [rng.randint(SHORTEST, LONGEST) - 2 for _ in range(given.texts)]
    texts = [" ".join(rng.choice(words) for _ in range(n)) for n in lengths]
    uad = python("uad", "serve", model, "--port", "0", "--no-ui")
    servers = {"uad": uad, "uad --no-kernels": [*uad, "--no-kernels"]}
    if given.llama_server:
        peer = [given.llama_server, "-m", model, "--embedding", "--port", "18917", "-c", "8192"]
        servers |= {"llama-server": peer, "llama-server -ub 2048": [*peer, "-ub", "2048", "-b", "2048"]}
    print("| server | clients | texts/s | tokens/s |\n|---|---|---|---|")
    for _ in range(given.rounds):
        for title, command in servers.items():
            with served(command) as url:
                asyncio.run(embedded(url, texts[:8], 1, 8))
                for n in given.clients:
                    seconds, n_tokens = asyncio.run(embedded(url, texts, n, given.at_once))
                    print(f"| {title} | {n} | {len(texts) / seconds:.1f} | {n_tokens / seconds:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
