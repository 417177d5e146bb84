"""Run real clients against `uad serve` with a real model, and print what works: `make clients`.

    python scripts/clients.py                      all of them
    python scripts/clients.py openai ai_sdk        only these files of scripts/client_checks
    python scripts/clients.py --url URL            against a server that runs already
    python scripts/clients.py --scripted           against answers that are written in advance: no model, forms only
    python scripts/clients.py --peer LLAMA_SERVER  what failed is repeated there; what fails there, too, is the model's

The clients are installed into a folder of their own, in the versions of scripts/client_checks/requirements.txt and
package-lock.json. Prints two tables in Markdown, of clients and of checks. Exit code 1: something failed. Clients that
could not be installed are listed as not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fetch_models import folder as models_folder
from platformdirs import user_cache_path

ROOT = Path(__file__).parent.parent
CHECKS = Path(__file__).parent / "client_checks"
AGENTS, EMBEDDINGS = "agents_cli", "embeddings"
NODE = ("ai_sdk", "ollama_js")
SCRIPTED = (sys.executable, "-P", "-m", "kit.scripted_server")
CONTEXT = "32768"  # tokens: coding agents begin with some ten thousand
TARGET, DRAFT = "qwen2.5-coder-1.5b-q8_0", "smollm2-135m"
INSTALL_S, CHECK_S, START_S = 600, 900, 300
LISTENING = re.compile(r"listening on (http://\S+)\s")  # uad says it, the scripted server and llama-server
OK, MODEL, FAILED, NOT_RUN = "ok", "model", "failed", "not run"


@dataclass(frozen=True)
class Result:
    """The result of a check. verdict: one of OK, MODEL, FAILED, NOT_RUN; error: why it is not OK."""

    client: str
    version: str
    what: str
    verdict: str
    error: str = ""


def read(output: str) -> list[Result]:
    """The results among the lines that a file of checks printed."""
    found = [json.loads(line) for line in output.splitlines() if line.startswith('{"client"')]
    return [
        Result(one["client"], one["version"], one["what"], FAILED if one["error"] else OK, one["error"])
        for one in found
    ]


def judged(results: Sequence[Result], peers: Sequence[Result]) -> list[Result]:
    """The results, where those that failed on the peer as well are the model's. peers: what the same checks gave
    there.
    """
    also = {(one.client, one.what) for one in peers if one.verdict == FAILED}
    return [
        Result(one.client, one.version, one.what, MODEL, one.error)
        if one.verdict == FAILED and (one.client, one.what) in also
        else one
        for one in results
    ]


def table(results: Sequence[Result]) -> str:
    """In Markdown, one line for each check."""
    rows = ["| client | version | what | result |", "|---|---|---|---|"]
    for one in results:
        error = " ".join(one.error.split()).replace("|", "\\|")
        rows.append(f"| {one.client} | {one.version} | {one.what} | {one.verdict}{f': {error}' if error else ''} |")
    return "\n".join(rows)


def summary(results: Sequence[Result]) -> str:
    """The same with one line for each client, as docs/clients.md has it: how much is ok, and what is not."""
    rows = ["| client | version | checks | what fails |", "|---|---|---|---|"]
    for client, version in dict.fromkeys((one.client, one.version) for one in results):
        own = [one for one in results if (one.client, one.version) == (client, version)]
        bad = [f"{one.what} ({one.verdict})".replace("|", "\\|") for one in own if one.verdict != OK]
        counted = f"{len(own) - len(bad)} of {len(own)} {OK}"
        rows.append(f"| {client} | {version} | {counted} | {'; '.join(bad)} |")
    return "\n".join(rows)


def python_environment(folder: Path) -> Path:
    """The interpreter that has the clients; installed where the folder has not these versions yet. Raises
    SubprocessError.
    """
    wanted = CHECKS / "requirements.txt"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()[:16]
    home = folder / f"python-{digest}"
    python, done = home / "bin" / "python", home / ".installed"
    if not done.exists():
        print(f"installing Python clients into {home}", file=sys.stderr)
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-P", "-m", "venv", home], check=True, timeout=INSTALL_S)
        install: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "-r",
            wanted,
        ]
        subprocess.run(install, check=True, timeout=INSTALL_S)
        done.touch()
    return python


def node_environment(home: Path, files: Path, *checks: str) -> Path:
    """The folder `home` with the clients for Node that `files` names, and these checks beside them.

    Raises SubprocessError, or OSError without npm.
    """
    home.mkdir(parents=True, exist_ok=True)
    for path in (files / "package.json", files / "package-lock.json", *(CHECKS / name for name in checks)):
        shutil.copy(path, home)
    subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=home, check=True, timeout=INSTALL_S)
    return home


def command_of(name: str, folder: Path) -> list[str | Path]:
    """The command that runs a file of checks; installs what it needs."""
    if name in NODE:
        return ["node", node_environment(folder / "node", CHECKS, f"{name}.mjs") / f"{name}.mjs"]
    if name == "coding_agents":
        node_environment(folder / AGENTS, CHECKS / AGENTS)
        return [sys.executable, CHECKS / "coding_agents.py"]
    if name == "recorded":
        return [sys.executable, CHECKS / "recorded.py"]
    return [python_environment(folder), CHECKS / f"with_{name}.py"]


def names() -> list[str]:
    """The files of checks, without what all of their names have."""
    python = sorted(path.stem.removeprefix("with_") for path in CHECKS.glob("with_*.py"))
    return [*python, *NODE, "coding_agents", "recorded"]


def results_of(name: str, url: str, folder: Path) -> list[Result]:
    """Results of a file of checks on a server. Where it cannot be run, or ends before its end, the last result says
    why.
    """
    try:
        command = command_of(name, folder)
    except (OSError, subprocess.SubprocessError) as error:
        return [Result(name, "", "all", NOT_RUN, str(error))]
    own = {"UAD_CLIENTS_URL": url, "UAD_CLIENTS_AGENTS": str(folder / AGENTS)}
    env = {**os.environ, **own, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": ""}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=CHECK_S)
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return [*read(said), Result(name, "", "the rest", FAILED, f"not done after {CHECK_S} s")]
    found = read(done.stdout)
    if done.returncode:
        found.append(Result(name, "", "the rest", FAILED, done.stderr.strip()[-300:]))
    return found


def all_results(wanted: Sequence[str], url: str, folder: Path) -> list[Result]:
    """Of several files, printed on stderr as they come."""
    out: list[Result] = []
    for name in wanted:
        if name == EMBEDDINGS:
            with served(embedding_command(folder), folder / "embeddings.log") as own:
                found = results_of(name, own, folder)
        else:
            found = results_of(name, url, folder)
        print(f"{name}: {sum(one.verdict == OK for one in found)} of {len(found)} ok", file=sys.stderr)
        out += found
    return out


@contextmanager
def served(command: Sequence[str | Path], log: Path) -> Iterator[str]:
    """A server on loopback until the end of the block; its address, once it is healthy. Raises RuntimeError where it
    does not start.
    """
    paths = (os.environ.get("PYTHONPATH", ""), str(ROOT), str(ROOT / "tests"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", "0"], stdout=out, stderr=out, cwd=ROOT, env=env
        )
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(60)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = LISTENING.search(log.read_text(encoding="utf-8", errors="replace"))
        if found and _is_healthy(found[1]):
            return found[1]
        time.sleep(0.5)
    raise RuntimeError(f"the server did not start:\n{log.read_text(encoding='utf-8', errors='replace')[-2000:]}")


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except OSError:
        return False


def uad_command(words: Sequence[str]) -> list[str | Path]:
    """`uad serve` with the real pair. Prompts are not cached: an answer must not depend on the checks before it. words:
    further flags.
    """
    models = [models_folder() / f"{name}.gguf" for name in (TARGET, DRAFT)]
    pair: list[str | Path] = ["--target", models[0], "--draft", models[1], "-c", CONTEXT, "--no-cache-prompt"]
    return [sys.executable, "-P", "-m", "uad", "serve", *pair, *words]


def embedding_command(folder: Path) -> list[str | Path]:
    """`uad serve` with a folder of tiny models: one embeds, one ranks."""
    sys.path.append(str(ROOT / "tests"))
    from kit.embedding_models import make

    models = folder / "embedding-models"
    models.mkdir(exist_ok=True)
    for pooling in ("cls", "rank"):
        make("bert", models, pooling)
    return [sys.executable, "-P", "-m", "uad", "serve", models]


def peer_command(program: str, words: Sequence[str]) -> list[str | Path]:
    """llama-server with the same target."""
    target: list[str | Path] = ["-m", models_folder() / f"{TARGET}.gguf", "-c", CONTEXT]
    return [program, *target, "-np", "1", "--jinja", "--no-cache-prompt", *words]


def arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="Run real clients against uad serve.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(names())}; without one, all")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--scripted", action="store_true", help="a server without a model: only the forms are checked")
    parser.add_argument("--peer", metavar="PROGRAM", help="a llama-server on which failed checks are repeated")
    parser.add_argument("--threads", default="", metavar="N", help="threads of the servers")
    given = parser.parse_args()
    if unknown := set(given.names) - set(names()):
        parser.error(f"no checks are called {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    return given


def main() -> int:
    """0 where all that ran is ok, or the model's fault."""
    given = arguments()
    wanted, folder = given.names or names(), user_cache_path("uad") / "clients"
    folder.mkdir(parents=True, exist_ok=True)
    words = ["-t", given.threads] if given.threads else []
    if given.url:
        results = all_results(wanted, re.sub(r"/(v1/?)?$", "", given.url), folder)
    else:
        with served(SCRIPTED if given.scripted else uad_command(words), folder / "uad.log") as url:
            results = all_results(wanted, url, folder)
    if given.peer and any(one.verdict == FAILED for one in results):
        with served(peer_command(given.peer, words), folder / "peer.log") as url:
            results = judged(results, all_results(wanted, url, folder))
    print(summary(results), table(results), sep="\n\n")
    return int(any(one.verdict == FAILED for one in results))


if __name__ == "__main__":
    sys.exit(main())
