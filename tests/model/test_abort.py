"""Where llama.cpp gives up, all who listen are told, one line says why, and the process ends with uad's exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from uad.llama.backend import abort

GIVES_UP = """
from uad.llama.backend import abort, ggml, native
native.start()
abort.listen(lambda message: print(f"told: {message}"))
abort.listen(lambda message: 1 / 0)
forgotten = abort.listen(lambda message: print("never"))
forgotten()
ggml.lib._lib.ggml_abort(b"/src/ggml-x.cpp", 12, b"out of wits")
"""


def test_giving_up_tells_the_listeners_and_ends_with_a_code() -> None:
    done = subprocess.run([sys.executable, "-c", GIVES_UP], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == abort.EXIT_CODE == 1
    assert done.stdout == "told: llama.cpp gave up: out of wits (ggml-x.cpp:12)\n"
    assert done.stderr == "uad: error: llama.cpp gave up: out of wits (ggml-x.cpp:12)\n"


def test_a_message_without_a_place_stays() -> None:
    assert abort.message("lost\n") == "llama.cpp gave up: lost"


def test_at_start_the_message_names_what_was_loaded_and_the_code_says_that_it_would_happen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(abort, "_explainers", [])
    with abort.starting():
        assert (abort.message("lost"), abort.exit_code()) == ("llama.cpp gave up: lost", 2)
        with abort.starting("target x.gguf"):
            assert abort.message("/src/a.cpp:3: lost").startswith(
                "llama.cpp gave up over target x.gguf: lost (a.cpp:3); "
            )
        abort.explained_by(str.upper)  # as with workers on other machines, which may be back at the next start
        assert (abort.message("lost"), abort.exit_code()) == ("llama.cpp gave up: LOST", 1)
    assert abort.exit_code() == 1


def test_a_model_that_was_loaded_before_may_load_at_the_next_start() -> None:
    with abort.again(), abort.starting("target x.gguf"):
        assert abort.exit_code() == 1
