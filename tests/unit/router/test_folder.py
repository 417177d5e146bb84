"""Which models a folder and a preset file hold, and the flags of their processes."""

import logging
import shutil
from pathlib import Path

import pytest

from uad.base.config import load_config
from uad.base.config.argv import Parser, add_flags
from uad.base.config.flags import GROUPS
from uad.base.config.load import folder_from
from uad.base.errors import ConfigError
from uad.base.gguf import GgufFile
from uad.pairs.files import find_models
from uad.router.child import command
from uad.router.folder import read_folder

SAMPLES = Path(__file__).parents[3] / "samples"


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(b"GGUF")


def config_of(*words, environ=()):
    parser = Parser("uad serve", "")
    add_flags(parser, tuple(GROUPS))
    return folder_from(parser.parse(words), dict(environ))


def read(tmp_path, *words, preset=None, environ=()):
    if preset is not None:
        (tmp_path / "p.ini").write_text(preset, encoding="utf-8")
        words = ("--models-preset", str(tmp_path / "p.ini"), *words)
    return read_folder(config_of("--models-dir", str(tmp_path), *words, environ=environ))


@pytest.fixture
def folder(tmp_path):
    for name in ("draft-gemma", "draft-zephyr"):
        shutil.copy(SAMPLES / f"{name}.gguf", tmp_path)
    return tmp_path


def found(folder):
    return {
        name: (str(one.path.relative_to(folder)), one.projector and one.projector.name)
        for name, one in find_models(folder).items()
    }


def test_files_folders_parts_and_projectors(tmp_path):
    touch(
        tmp_path,
        *("a.gguf", "B.GGUF", "notes.txt", "mmproj-c-4b-it-F16.gguf", "c-4b-it-Q4_K_M.gguf"),
        *("flat-00001-of-00002.gguf", "flat-00002-of-00002.gguf"),
        *("kimi/kimi-Q1-00001-of-00002.gguf", "kimi/kimi-Q1-00002-of-00002.gguf"),
        *("sees/model.gguf", "sees/mmproj-F16.gguf", "two/x.gguf", "two/y.gguf", "empty/readme.md", "x,y.gguf"),
    )
    assert found(tmp_path) == {
        "a": ("a.gguf", None),
        "B": ("B.GGUF", None),
        "c-4b-it-Q4_K_M": ("c-4b-it-Q4_K_M.gguf", "mmproj-c-4b-it-F16.gguf"),
        "flat": ("flat-00001-of-00002.gguf", None),
        "kimi": ("kimi/kimi-Q1-00001-of-00002.gguf", None),
        "sees": ("sees/model.gguf", "mmproj-F16.gguf"),
        "x": ("two/x.gguf", None),
        "y": ("two/y.gguf", None),
        "x_y": ("x,y.gguf", None),
    }


def test_a_second_model_of_a_name_is_left_out_and_named(tmp_path, caplog):
    touch(tmp_path, "a.gguf", "a/a.gguf")
    with caplog.at_level(logging.WARNING):
        assert found(tmp_path) == {"a": ("a.gguf", None)}
    assert "a/a.gguf is left out: there is a model a already" in caplog.text


def test_a_model_is_described_by_its_header(folder):
    facts = read(folder)["draft-gemma"].facts
    with GgufFile(folder / "draft-gemma.gguf") as file:
        assert facts.n_vocab == len(file.texts("tokenizer.ggml.tokens"))
    assert (facts.arch, facts.ftype, facts.n_ctx_train) == ("llama", "F16", 32768)
    assert facts.size == (folder / "draft-gemma.gguf").stat().st_size


def test_a_damaged_file_is_listed_so_that_its_load_can_say_why(folder):
    (folder / "cut.gguf").write_bytes((folder / "draft-gemma.gguf").read_bytes()[:5000])
    models = read(folder)
    assert "damaged or truncated" in models["cut"].facts.problem
    assert len(models) == 3


def test_another_file_of_the_same_name_is_another_model(folder):
    before = read(folder)
    assert read(folder) == before
    shutil.copy(folder / "draft-zephyr.gguf", folder / "draft-gemma.gguf")
    after = read(folder)
    assert after["draft-gemma"] != before["draft-gemma"]
    assert after["draft-zephyr"] == before["draft-zephyr"]


def test_the_line_wins_over_the_section_that_over_all_models_and_that_over_variables(folder):
    models = read(
        folder,
        *("--threads", "1"),
        preset="[*]\nctx-size = 1\nthreads = 9\nseed = 1\n[draft-gemma]\nc = 2\n",
        environ={"LLAMA_ARG_CTX_SIZE": "3", "LLAMA_ARG_BATCH": "77"},
    )
    assert given(models["draft-gemma"]) == {"--ctx-size=2", "--threads=1", "--seed=1", "--batch-size=77"}
    assert given(models["draft-zephyr"]) == {"--ctx-size=1", "--threads=1", "--seed=1", "--batch-size=77"}


def given(model):
    return set(model.words) - {f"--model={model.path}"}


def test_what_is_the_routers_does_not_reach_a_model(folder):
    words = ("--port", "1", "--host", "0.0.0.0", "--api-key", "k", "--alias", "z", "--metrics", "--models-max", "3")
    assert given(read(folder, *words, preset="[*]\nport = 4\n[draft-gemma]\nhost = 1.2.3.4\n")["draft-gemma"]) == set()


def test_a_token_of_a_hub_is_no_word(folder):
    one = read(folder, "--hf-token", "hf_abc")["draft-gemma"]
    assert not any("hf_abc" in word for word in command(one))
    assert one.secrets == (("HF_TOKEN", "hf_abc"),)


def test_a_projector_is_a_flag(folder):
    (folder / "sees").mkdir()
    shutil.copy(folder / "draft-gemma.gguf", folder / "sees" / "m.gguf")
    touch(folder, "sees/mmproj.gguf")
    assert read(folder)["sees"].sees
    assert "--mmproj=auto" in read(folder)["sees"].words  # found by its process, which answers without it, too
    assert str(folder / "sees" / "mmproj.gguf") in [name for name, *_ in read(folder)["sees"].files]


def test_a_section_may_be_a_model_of_its_own(folder):
    path = folder / "draft-gemma.gguf"
    models = read(folder, preset=f"[mine]\nmodel = {path}\nalias = a,b\ntags = t\n[far]\nhf-repo = u/r:Q8_0\n")
    assert list(models) == ["draft-gemma", "draft-zephyr", "far", "mine"]
    assert models["mine"].path == path
    assert (models["mine"].names, models["mine"].tags, models["mine"].source) == (("mine", "a", "b"), ("t",), "preset")
    assert models["far"].path is None
    assert "--hf-repo=u/r:Q8_0" in models["far"].words


def test_a_section_without_a_file_is_refused(folder):
    with pytest.raises(ConfigError, match=r"p\.ini:1: \[nothing\] is no model of the folder; name its file"):
        read(folder, preset="[nothing]\nc = 1\n")


def test_a_name_means_one_model(folder):
    with pytest.raises(ConfigError, match="draft-gemma and draft-zephyr are both called draft-gemma"):
        read(folder, preset="[draft-zephyr]\nalias = draft-gemma\n")


def test_a_draft_for_all_does_not_draft_for_itself(folder):
    draft = folder / "draft-gemma.gguf"
    models = read(folder, "--draft", str(draft))
    assert given(models["draft-zephyr"]) == {f"--model-draft={draft}"}
    assert given(models["draft-gemma"]) == set()


def test_the_words_mean_to_a_process_what_they_meant_to_the_router(folder):
    words = ["--spec-replace", "a", "b", "--spec-replace", "c", "d", "--load-mode", "none", "--mlock", "-fa", "on"]
    config = load_config([*read(folder, *words)["draft-gemma"].words], {})
    alone = load_config(["-m", str(folder / "draft-gemma.gguf"), *words], {})
    assert config == alone


def test_target_and_folder_exclude_each_other(tmp_path):
    with pytest.raises(ConfigError, match="--models-dir serves several models, --target one; leave one of them out"):
        config_of("--models-dir", str(tmp_path), "--target", "x.gguf")
    assert config_of("--target", "x.gguf") is None
    with pytest.raises(ConfigError, match="--ssl-key-file: needs --ssl-cert-file"):
        config_of("--models-dir", str(tmp_path), "--ssl-key-file", "k")
