"""The command line as a user meets it: answers, and errors that name the thing and the way out (exit code 2, no
traceback).
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from kit.models import DRAFTS, TARGET
from kit.process import ENV, uad

pytestmark = pytest.mark.model
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import release  # noqa: E402

PAIR = ("--target", str(TARGET), "--draft", str(DRAFTS["gemma"]))


def refused(*args: str) -> str:
    result = uad(*args)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]


def test_generate_streams_the_same_text_with_and_without_a_draft() -> None:
    ask = (
        "-p",
        "Make a numbered list of: river, stone, lantern.",
        "-n",
        "40",
        "--temp",
        "0",
        "-c",
        "1024",
        "--exact",
        "--spec-policy",
        "fixed",
    )
    drafted, plain = uad("generate", *PAIR, *ask), uad("generate", *PAIR, *ask, "--no-draft")
    assert drafted.returncode == plain.returncode == 0, drafted.stderr
    assert drafted.stdout == plain.stdout
    assert "1. river\n2. stone\n3. lantern" in drafted.stdout
    assert "accepted" in drafted.stderr


def test_generate_colours_accepted_draft_tokens() -> None:
    ask = ("-p", "Count from 2 to 20 in steps of 2.", "-n", "40", "--temp", "0", "-c", "1024", "--spec-policy", "fixed")
    coloured, plain = uad("generate", *PAIR, *ask, "--color", "on"), uad("generate", *PAIR, *ask, "--color", "off")
    assert "\x1b[" in coloured.stdout
    assert "\x1b[" not in plain.stdout


def test_inspect_says_what_applies() -> None:
    result = uad("inspect", str(TARGET), str(DRAFTS["gemma"]))
    assert result.returncode == 0, result.stderr
    for words in ("4,096 tokens", "2,048 tokens", "chatml", "gemma", "<start_of_turn>", "one to one", "never sees"):
        assert words in result.stdout


def test_a_plan_is_all_that_is_printed() -> None:
    done = uad("plan", str(TARGET), str(DRAFTS["zephyr"]), "-c", "4096")
    assert done.returncode == 0
    assert "target weights" in done.stdout
    assert done.stderr == ""


def test_a_missing_file() -> None:
    line = refused("serve", "--target", "/nowhere/model.gguf")
    assert "/nowhere/model.gguf" in line
    assert "no such file" in line


def test_not_a_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04 a zip file" * 100)
    assert "not a GGUF" in refused("serve", "--target", str(path))
    assert f"draft {path}" in refused("serve", "--target", str(TARGET), "--draft", str(path))


@pytest.mark.parametrize("share", [0.001, 0.2, 0.9])
def test_a_truncated_gguf(tmp_path: Path, share: float) -> None:
    path = tmp_path / "cut.gguf"
    data = TARGET.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    line = refused("serve", "--target", str(path))
    assert str(path) in line
    assert "complete" in line


def test_an_encoder_as_draft(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "encoder.gguf"
    writer = gguf.GGUFWriter(str(path), "bert")
    for add, value in [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", 8),
        ("feed_forward_length", 8),
        ("head_count", 1),
    ]:
        getattr(writer, f"add_{add}")(value)
    writer.add_layer_norm_eps(1e-5)
    writer.add_causal_attention(False)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    writer.add_token_types([3, 2, 3, 3, 3, 1, 1])
    writer.add_token_scores([0.0] * 7)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    line = refused("serve", "--target", str(TARGET), "--draft", str(path))
    assert "encoder" in line
    assert "bert" in line


def test_a_mapping_that_does_not_parse_or_has_unknown_keys(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    path = tmp_path / "families" / "mine.yaml"
    good = (ROOT / "mappings" / "families" / "zephyr.yaml").read_text()
    path.write_text("name: [broken\n")
    line = refused("serve", *PAIR, "--mappings", str(tmp_path))
    assert "mine.yaml:2:1" in line
    assert "expected" in line
    path.write_text(good + "rolez: {}\n")
    line = refused("serve", *PAIR, "--mappings", str(tmp_path))
    assert "rolez" in line
    assert "roles" in line


def test_a_rule_with_a_special_that_the_vocabulary_lacks() -> None:
    line = refused("serve", *PAIR, "--spec-replace", "<|im_end|>", "<|end_of_turn|>")
    assert "<|end_of_turn|>" in line
    assert "<end_of_turn>" in line


def test_an_unknown_flag_names_its_nearest() -> None:
    assert "--spec-draft-n-max" in refused("serve", *PAIR, "--spec-draft-nmax", "4")


def test_a_wheel_has_every_file_and_works_in_an_environment_of_its_own_in_another_directory(tmp_path: Path) -> None:
    """The dependencies are lent from this environment; uad itself is not."""
    env = {name: value for name, value in ENV.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT], check=True, env=env)
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / "env" / "lib" / version / "site-packages"
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (wheel,) = tmp_path.glob("uad-*-py3-none-any.whl")
    assert [*release.wrong_wheel(wheel)] == []
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel], check=True, env=env
    )
    result = subprocess.run(
        [python, "-m", "uad", "inspect", TARGET, DRAFTS["gemma"]],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "families chatml -> gemma" in result.stdout
    where = subprocess.run(
        [python, "-c", "import uad; print(uad.__file__)"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path) in where.stdout
