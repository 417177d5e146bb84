"""The servers that `scripts/fuzz.py` starts: random settings, models with other pre-tokenizers, the process and what it
prints.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
START_S = 120
LONGER = re.compile(rb"(tokenizer\.ggml\.pre\x08\0\0\0)(.{8})", re.S)
FILLER = re.compile(rb"(general\.name\x08\0\0\0)(.{8})", re.S)
TYPES = ("draft-simple", "suffix", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
PRES = [
    "default",
    "llama-bpe",
    "llama3",
    "llama-v3",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "youtu",
    "falcon",
    "mpt",
    "starcoder",
    "gpt-2",
    "phi-2",
    "jina-es",
    "jina-de",
    "gigachat",
    "jina-v2-es",
    "jina-v2-de",
    "a.x-4.0",
    "mellum",
    "modern-bert",
    "jais-2",
    "gemma4",
    "glm5",
    "hy_v4",
    "granite-embed-multi-311m",
    "sarvam-moe",
    "jina-v1-en",
    "jina-v2-code",
    "roberta-bpe",
    "whitespace",
    "refact",
    "command-r",
    "qwen2",
    "deepseek-r1-qwen",
    "kormo",
    "f2llmv2",
    "qwen35",
    "stablelm2",
    "olmo",
    "dbrx",
    "smaug-bpe",
    "poro-chat",
    "glm4",
    "chatglm-bpe",
    "viking",
    "jais",
    "tekken",
    "smollm",
    "codeshell",
    "bloom",
    "gpt3-finnish",
    "exaone",
    "exaone4",
    "exaone-moe",
    "chameleon",
    "minerva-7b",
    "megrez",
    "gpt-4o",
    "llama4",
    "kanana2",
    "talkie",
    "granite-embed-multi-97m",
    "tiny_aya",
    "cohere2moe",
    "superbpe",
    "trillion",
    "granite-docling",
    "bailingmoe",
    "bailingmoe2",
    "llada-moe",
    "seed-coder",
    "hunyuan",
    "hunyuan-dense",
    "joyai-llm",
    "kimi-k2",
    "grok-2",
    "afmoe",
    "laguna",
    "minimax-m2",
    "solar-open",
    "mellum2",
    "minicpm5",
    "spark2_5",
    "ufakzeka",
]


def with_pre(path: Path, pre: str, out: Path) -> Path:
    """A copy of a GGUF file with another name of a pre-tokenizer. Another text is made longer too, so that the data
    stays aligned.
    """
    data = path.read_bytes()
    old, name = LONGER.search(data), FILLER.search(data)
    if old is None or name is None:
        return path
    n_old, n_name = (int.from_bytes(one[2], "little") for one in (old, name))
    n_filler = (n_old - len(pre)) % 32
    parts = [(old.start(2), 8 + n_old, len(pre).to_bytes(8, "little") + pre.encode())]
    text_ = data[name.end() : name.end() + n_name] + b"-" * n_filler
    parts.append((name.start(2), 8 + n_name, len(text_).to_bytes(8, "little") + text_))
    for at, n, new in sorted(parts, reverse=True):
        data = data[:at] + new + data[at + n :]
    out.write_bytes(data)
    return out


@dataclass(frozen=True)
class Setup:
    """The setup of one session's server."""

    number: int
    policy: str
    types: tuple[str, ...]
    target_pre: str
    draft_pre: str
    fail: str
    exact: bool

    @classmethod
    def of(cls, seed: int, number: int) -> Setup:
        """In turn all pre-tokenizers, beside the files' own; the rest at random."""
        order, draw = random.Random(f"{seed}/order").sample(PRES, len(PRES)), random.Random(f"{seed}/{number}")
        pres = "", order[number % len(order)], order[-number % len(order)]
        target_pre, draft_pre = draw.choice(((pres[1], ""), ("", pres[1]), (pres[1], pres[2])))
        fail = (
            f"{draw.randrange(10**6)}:{draw.choice((0.01, 0.2, 1.0))}:{draw.choice(('drafters', 'context'))}"
            if number % 3 == 2
            else ""
        )
        types = tuple(draw.sample(TYPES, draw.randint(1, 4))) if draw.random() < 0.6 else ()
        if fail.endswith("context") and types:
            types = ("draft-simple", *(one for one in types if one != "draft-simple"))
        policy = draw.choice(("auto", "fixed", "fixed", "fixed") if fail else ("auto", "fixed"))
        return cls(number, policy, types, "" if fail else target_pre, "" if fail else draft_pre, fail, number % 4 != 3)

    def __str__(self) -> str:
        words = [self.policy, *(["exact"] if self.exact else []), ",".join(self.types) or "default drafters"]
        words += [f"{role} {pre}" for role, pre in (("target", self.target_pre), ("draft", self.draft_pre)) if pre]
        return "; ".join([*words, f"failing {self.fail}"] if self.fail else words)


@dataclass
class Server:
    """One `uad serve` process. `log` is all that it prints."""

    setup: Setup
    options: argparse.Namespace
    folder: Path
    url: str = ""
    n_read: int = 0
    rss: list[float] = field(default_factory=list)

    def start(self) -> str:
        """Returns why it does not start, empty where it does."""
        setup, options = self.setup, self.options
        models = [("--target", options.target, setup.target_pre), ("--draft", options.draft, setup.draft_pre)]
        args = [
            str(ROOT / "scripts" / "fuzz_server.py"),
            "serve",
            "-t",
            "1",
            "-td",
            "1",
            "-np",
            "2",
            "-c",
            "4096",
            "-n",
            "64",
            "--cache-ram",
            "32",
            "--metrics",
        ]
        args += ["--port", str(options.port), "--spec-policy", setup.policy]
        for flag, path, pre in models:
            args += [flag, str(with_pre(path, pre, self.folder / f"{flag[2:]}.gguf") if pre else path)]
        args += ["--exact"] if setup.exact else []
        args += ["--spec-type", ",".join(setup.types)] if setup.types else []
        env = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
        env |= {
            "UAD_CACHE_DIR": str(self.folder.parent / "cache"),
            "UAD_FUZZ_FAIL": setup.fail,
            "PYTHONPATH": str(ROOT),
        }
        self.log = self.folder / "log"
        self.n_read, self.url = 0, ""
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, *args], stdout=file, stderr=subprocess.STDOUT, env=env, cwd=self.folder
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(r"listening on (http://\S+)", self._text()):
                self.url = found[1]
                return ""
            time.sleep(0.05)
        self.stop()
        return self._text()[-600:] or f"exit code {self.process.returncode}"

    def _text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def news(self) -> str:
        """The lines that it printed since the last call."""
        said = self._text()
        news, self.n_read = said[self.n_read :], len(said)
        return news

    def measure(self) -> None:
        """Notes how much memory it holds, in MiB; nothing where the system does not say."""
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            if found := re.search(r"VmRSS:\s+(\d+) kB", status):
                self.rss.append(int(found[1]) / 1024)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
