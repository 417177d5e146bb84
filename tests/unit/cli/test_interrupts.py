"""Ctrl-C while a command starts: one line and code 130, at whichever module it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit.process import ENV

SAMPLE = Path(__file__).parents[3] / "samples" / "draft-gemma.gguf"
SERVE = ("serve", "--models-dir", ".", "--port", "0")
# SIGINT comes while the module of this name is looked for
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
wanted, *sys.argv[1:] = sys.argv[1:]
import uad.__main__
sys.meta_path.insert(0, Interrupting())
sys.exit(uad.__main__.main())
"""


def run(module: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, module, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=ENV, check=False, cwd=folder)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("uad.tools.cli", SERVE),
        ("rich.console", SERVE),
        ("rapidfuzz", SERVE),
        ("uad.router.serving", SERVE),
        ("aiohttp", SERVE),
        ("uad.http.server.lifecycle", ("serve", "-m", str(SAMPLE), "--no-draft", "--port", "0")),
        *(
            pytest.param(module, words, marks=pytest.mark.llama)
            for module, words in (
                ("uad.llama.backend.rpc", ("rpc-worker",)),
                ("llama_cpp", ("rpc-worker",)),
                ("uad.runtime.check", ("check", "--target", str(SAMPLE))),
                ("llama_cpp", ("check", "--target", str(SAMPLE))),
                ("uad.runtime.plan", ("plan", str(SAMPLE))),
                ("llama_cpp", ("plan", str(SAMPLE))),
            )
        ),
        ("uad.tools.bench.requests", ("bench", "http://127.0.0.1:9")),
        ("uad.tools.bench.client", ("bench", "requests", "http://127.0.0.1:9")),
    ],
)
def test_an_interrupt_while_modules_are_imported_is_one_line(
    module: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(module, *words, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nuad: interrupted\n")


def test_commands_that_scripts_start_in_their_background_are_not_interrupted() -> None:
    program = PROGRAM.replace("signal.default_int_handler)", "signal.SIG_IGN)")
    command = [sys.executable, "-c", program, "rich.console", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=ENV, check=False)
    assert done.returncode == 0, done.stderr


def test_the_first_process_of_a_container_ends_while_it_starts(tmp_path: Path) -> None:
    # the system keeps SIGTERM from process 1 unless it has a handler: `docker stop` would wait, and kill
    program = PROGRAM.replace("os.kill(os.getpid(), signal.SIGINT)", "signal.raise_signal(signal.SIGTERM)")
    program = program.replace("import os,", "import os; os.getpid = lambda: 1\nimport")
    done = subprocess.run([sys.executable, "-c", program, "rich.console", *SERVE], cwd=tmp_path, env=ENV, check=False)
    assert done.returncode == 128 + signal.SIGTERM


def test_outside_of_imports_what_is_open_can_be_closed() -> None:
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from uad.base.common import interrupts; interrupts.catch()\n"
        "try: signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt: print('closed')\n"
        "interrupts.leave_at_once(); print('left', flush=True); signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENV, check=False)
    assert (done.returncode, done.stdout) == (130, "closed\nleft\n")
