"""The binding's own API, which is imported when somebody asks for it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from uad.llama.backend import native
log = native.start()
assert "llama_cpp.llama" not in sys.modules
from llama_cpp import Llama
assert "llama_cpp.llama" in sys.modules
from llama_cpp.llama_cpp import llama_model_load_from_file, llama_model_default_params
assert not llama_model_load_from_file(b"/nowhere.gguf", llama_model_default_params())
print(log.reason())
"""


def test_it_comes_late_and_takes_no_line_of_the_log() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "/nowhere.gguf" in done.stdout, done.stderr
