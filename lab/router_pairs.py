"""Which draft a folder's router chooses by itself, request by request, and how fast that is: then the same requests in
turns, with each candidate fixed and without any. Run it on a machine at rest.

    python lab/router_pairs.py ~/models --target qwen2.5-coder-1.5b
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from serving import turns

from uad.base.errors import ConfigError
from uad.pairs.choose import N_TRIED, views
from uad.pairs.files import find_models
from uad.tools.bench.client import Client
from uad.tools.bench.serving import serving

_ASKED = {
    "code": "Write a Python function that {}. Code only.",
    "prose": "Explain in one paragraph of plain prose how one {}.",
    "list": "Give a numbered list of ten short steps: one {}.",
}
_TOPICS = (
    "reads a CSV file and sums its second column",
    "finds the longest word of a text",
    "merges two sorted lists",
    "counts how often each letter occurs",
    "checks whether a year is a leap year",
    "turns a Roman numeral into a number",
    "removes duplicates and keeps the order",
    "looks for a file below a folder",
    "rotates a picture by ninety degrees",
    "draws cards from a shuffled deck",
    "tells the time in another zone",
    "plans the shortest way through a maze",
    "balances the brackets of a formula",
    "computes the median of a stream of numbers",
    "writes a log file that never gets too long",
    "splits a bill between friends",
    "sorts books by author and title",
    "tests whether a password is strong",
    "finds the two closest points on a map",
    "converts between units of temperature",
    "backs up a folder every night",
    "compresses a text by its repeats",
    "plays tic-tac-toe without losing",
    "schedules meetings that do not overlap",
    "draws a bar chart of monthly sales",
    "translates a text into Morse code",
    "validates an address of e-mail",
    "simulates a queue at a counter",
    "spells a number in words",
)
_AUTO, _NONE = "auto", "none"


@dataclass
class Arm:
    """A server, and what it has written: tokens after the first of each answer, and their seconds."""

    name: str
    client: Client
    model: str
    tokens: int = 0
    seconds: float = 0.0
    drafts: list[str] = field(default_factory=list)

    def ask(self, number: int, n_tokens: int) -> float:
        """Tokens per second of the answer to a prompt."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt(number)[1]}],
            "max_tokens": n_tokens,
            "temperature": 0,
        }
        timings = self.client.post("/v1/chat/completions", body)["timings"]
        assert isinstance(timings, dict)
        tokens, seconds = max(int(timings["predicted_n"]) - 1, 0), float(timings["predicted_ms"]) / 1e3
        self.tokens += tokens
        self.seconds += seconds
        return tokens / seconds if seconds else 0.0

    @property
    def speed(self) -> float:
        """Tokens per second of all that was asked."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def forget(self) -> None:
        """Measure again."""
        self.tokens, self.seconds = 0, 0.0

    def chosen(self) -> str:
        """The draft that the next request has."""
        status = self.client.get(f"/v1/models/{quote(self.model)}")["status"]
        assert isinstance(status, dict)
        drafts = [Path(word.partition("=")[2]).stem for word in status["args"] if word.startswith("--model-draft=")]
        return drafts[0] if drafts else _NONE


def prompt(number: int) -> tuple[str, str]:
    """Kind and text of a question; kinds take turns, and none comes twice among the first 87."""
    kind = list(_ASKED)[number % len(_ASKED)]
    return kind, _ASKED[kind].format(_TOPICS[number % len(_TOPICS)])


@contextmanager
def fixed_arms(folder: Path, name: str, words: Sequence[str], cache: Path) -> Iterator[list[Arm]]:
    """Servers of the target without a draft, and with each candidate. Raises ConfigError."""
    files = {key: model.path for key, model in find_models(folder).items()}
    if name not in files:
        raise ConfigError(f"there is no model {name} in {folder}; it has {', '.join(sorted(files))}")
    candidates = [pair.draft for pair in views(files[name], files.values())][:N_TRIED]
    with ExitStack() as stack:
        made = []
        for draft in (None, *candidates):
            drafted = [] if draft is None else ["--draft", str(draft)]
            client = stack.enter_context(serving(["--target", str(files[name]), *drafted, *words], _environ(cache)))
            made.append(Arm(_NONE if draft is None else draft.stem, client, name))
        yield made


def _environ(cache: Path) -> dict[str, str]:
    """Of a server that knows nothing of pairs yet."""
    return {**os.environ, "UAD_CACHE_DIR": str(cache)}


def choose(auto: Arm, n: int, n_tokens: int, until: float) -> int:
    """Ask the router alone, and print what it chooses; how many it was asked."""
    for number in range(n):
        if time.monotonic() > until:
            return number
        before = auto.chosen()
        speed = auto.ask(number, n_tokens)
        print(
            f"{number + 1:3}  {prompt(number)[0]:5}  {speed:6.1f} tok/s with {before:24} then {auto.chosen()}",
            flush=True,
        )
    return n


def compare(auto: Arm, fixed: Sequence[Arm], begin: int, n: int, n_tokens: int, until: float) -> int:
    """The same requests for all, in turns; how many all were asked."""
    every = [auto, *fixed]
    for arm in every:
        arm.forget()
    for done in range(n):
        for at in turns(len(every), 1, backwards=done % 2 == 1):
            if every[at] is auto:
                auto.drafts.append(auto.chosen())
            every[at].ask(begin + done, n_tokens)
        if time.monotonic() > until:
            return done + 1
    return n


def main(argv: Sequence[str] | None = None) -> None:
    """Print the choice after each request, then speeds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", required=True, help="name of the model that is asked")
    parser.add_argument("--first", type=int, default=25, help="requests to the router alone (%(default)s)")
    parser.add_argument("-n", type=int, default=60, help="requests to all in turns (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=30, help="the most it takes (%(default)s)")
    parser.add_argument("words", nargs="*", help="flags of `uad serve` for all, after -- (--ctx-size 4096)")
    args = parser.parse_args(argv)
    until = time.monotonic() + 60 * args.minutes
    words = args.words or ["--ctx-size", "4096"]
    with tempfile.TemporaryDirectory() as cache, ExitStack() as stack:
        own = _environ(Path(cache, "auto"))
        client = stack.enter_context(serving(["--models-dir", str(args.folder), "--draft", "auto", *words], own))
        auto = Arm(_AUTO, client, args.target)
        asked = choose(auto, args.first, args.max_tokens, until)
        subprocess.run([sys.executable, "-P", "-m", "uad", "inspect", "--all", str(args.folder)], env=own, check=False)
        fixed = stack.enter_context(fixed_arms(args.folder, args.target, words, Path(cache, "fixed")))
        done = compare(auto, fixed, asked, args.n, args.max_tokens, until)
        print(f"\n{done} requests in turns:")
        for arm in (auto, *fixed):
            print(f"{arm.speed:6.1f} tok/s  {arm.name}")
        best = max(fixed, key=lambda arm: arm.speed)
        n_best = auto.drafts.count(best.name)
        print(f"auto is {auto.speed / best.speed:.3f} of the best, {best.name}, which it used in {n_best} of {done}")


if __name__ == "__main__":
    main()
