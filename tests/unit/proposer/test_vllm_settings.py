"""What variables and a file say of drafting inside vLLM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from uad.base.errors import ConfigError
from uad.vllm.settings import USUAL_SLOTS, read_settings


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    path = tmp_path / "draft.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_variable_names_the_draft_and_the_text_drafts_beside_it(draft: Path) -> None:
    settings = read_settings("some/model", {"UAD_DRAFT": str(draft)})
    config = settings.config
    assert config.draft is not None
    assert config.draft.path == draft
    assert config.draft.n_seq == config.n_parallel == USUAL_SLOTS
    assert config.drafting.types == ("draft-simple", "suffix")
    assert settings.ahead is None
    assert not settings.allow_untried


def test_a_file_may_say_all_that_uad_serve_reads(tmp_path: Path, draft: Path) -> None:
    file = tmp_path / "uad.yaml"
    file.write_text("draft: draft.gguf\nparallel: 3\nspec-type: suffix,draft-simple\nspec-draft-n-max: 5\n")
    config = read_settings("some/model", {"UAD_VLLM_CONFIG": str(file)}).config
    assert config.draft is not None
    assert config.draft.path == draft
    assert (config.n_parallel, config.drafting.defaults.n_max) == (3, 5)
    assert config.drafting.types == ("suffix", "draft-simple")


def test_variables_of_uad_serve_count() -> None:
    config = read_settings("m", {"LLAMA_ARG_SPEC_TYPE": "suffix", "LLAMA_ARG_N_PARALLEL": "5"}).config
    assert (config.drafting.types, config.n_parallel, config.draft) == (("suffix",), 5, None)


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"LLAMA_ARG_SPEC_TYPE": "draft-mtp"}, "vLLM drafts with itself"),
        ({"UAD_VLLM_AHEAD": "perhaps"}, "UAD_VLLM_AHEAD: expected on or off"),
        ({"UAD_VLLM_CONFIG": "/nowhere/uad.yaml"}, "/nowhere/uad.yaml"),
        ({"LLAMA_ARG_SPEC_DRAFT_HF_REPO": "a/b"}, "must be a file"),
    ],
)
def test_what_cannot_be_is_said(environ: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_settings("m", environ)


@pytest.mark.parametrize(("text", "value"), [("on", True), ("0", False), ("", None)])
def test_drafting_ahead_is_switched(text: str, value: bool | None) -> None:
    assert read_settings("m", {"UAD_VLLM_AHEAD": text}).ahead is value


def test_the_package_loads_neither_vllm_nor_llama_cpp() -> None:
    program = "import sys, uad.vllm\nprint(*(name for name in ('vllm', 'llama_cpp', 'numpy') if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_uad_itself_loads_nothing_of_it() -> None:
    program = "import sys, uad, uad.tools.cli\nprint('uad.vllm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
