"""Which models a folder and a preset file hold, and the flags of their processes."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from uad.base.config import load_config
from uad.base.config.argv import Parser, add_flags
from uad.base.config.flags import GROUPS
from uad.base.config.load import folder_from
from uad.base.errors import ConfigError
from uad.base.gguf import GgufFile
from uad.pairs.files import find_models
from uad.pairs.header import stamp
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


def test_heads_lie_beside_their_models_and_are_none(tmp_path):
    touch(
        tmp_path,
        *("eagle3-a-8b.gguf", "a-8b-Q4_K_M.gguf", "b.gguf", "dflash-other.gguf"),
        *("alone/x.gguf", "alone/dspark-any-Q8_0.gguf", "alone/mmproj-F16.gguf", "qwen-mtp-Q4_0.gguf"),
    )
    heads = {name: one.head and one.head.name for name, one in find_models(tmp_path).items()}
    assert heads == {
        "a-8b-Q4_K_M": "eagle3-a-8b.gguf",
        "b": None,
        "alone": "dspark-any-Q8_0.gguf",
        "qwen-mtp-Q4_0": None,
    }


@pytest.mark.parametrize(
    ("words", "preset", "drafts"),
    [
        ((), None, ["eagle3-t.gguf"]),
        (("--draft", "auto"), None, ["eagle3-t.gguf"]),
        (("--draft", "d.gguf"), None, ["d.gguf"]),
        ((), "[t]\nmodel-draft = e.gguf\n", ["e.gguf"]),
    ],
)
def test_a_head_beside_a_model_drafts_unless_another_draft_is_named(tmp_path, words, preset, drafts):
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(SAMPLES / "draft-zephyr.gguf", folder / "t.gguf")
    touch(folder, "eagle3-t.gguf")
    if preset is not None:
        (tmp_path / "p.ini").write_text(preset, encoding="utf-8")
        words = ("--models-preset", str(tmp_path / "p.ini"))
    model = read_folder(config_of("--models-dir", str(folder), *words))["t"]
    named = [Path(word.partition("=")[2]) for word in model.words if word.startswith("--model-draft=")]
    assert [path.name for path in (*named, *([] if model.head is None else [model.head]))] == drafts
    assert (model.head is None) is bool(named)


def test_publishers_repositories_and_files_as_lm_studio_keeps_them(tmp_path, caplog):
    touch(
        tmp_path,
        *("bartowski/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf", "lm/Qwen3-8B-GGUF/Qwen3-8B-Q8_0.gguf"),
        *("lm/sees/m-Q4_K_M.gguf", "lm/sees/mmproj-F16.gguf", "lm/two/x.gguf", "lm/two/y.gguf", "lm/own/a/b/c.gguf"),
    )
    assert found(tmp_path) == {
        "Qwen3-8B-GGUF": ("bartowski/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf", None),
        "lm/Qwen3-8B-GGUF": ("lm/Qwen3-8B-GGUF/Qwen3-8B-Q8_0.gguf", None),
        "sees": ("lm/sees/m-Q4_K_M.gguf", "mmproj-F16.gguf"),
        "x": ("lm/two/x.gguf", None),
        "y": ("lm/two/y.gguf", None),
    }
    assert len(caplog.messages) == 1
    assert "lm/Qwen3-8B-GGUF/Qwen3-8B-Q8_0.gguf is called lm/Qwen3-8B-GGUF: there is a model" in caplog.text


SAME_NAMES = {
    ("a.gguf", "a/a.gguf"): {"a": "a.gguf", "{}/a": "a/a.gguf"},
    ("a,b.gguf", "a_b.gguf"): {"a_b": "a,b.gguf", "{}/a_b": "a_b.gguf"},
    ("a.GGUF", "a.gguf"): {"a": "a.GGUF", "{}/a": "a.gguf"},
    ("a-00001-of-00001.gguf", "a.gguf"): {"a": "a-00001-of-00001.gguf", "{}/a": "a.gguf"},
    ("x/a.gguf", "x/b.gguf", "y/a.gguf", "y/c.gguf"): {
        "a": "x/a.gguf",
        "b": "x/b.gguf",
        "y/a": "y/a.gguf",
        "c": "y/c.gguf",
    },
}


@pytest.mark.parametrize("names", SAME_NAMES)
def test_a_second_model_of_a_name_has_its_folder_in_front(tmp_path, caplog, names):
    touch(tmp_path, *names)
    expected = {name.format(tmp_path.name): path for name, path in SAME_NAMES[names].items()}
    assert {name: path for name, (path, _) in found(tmp_path).items()} == expected
    assert len(caplog.messages) == 1


def test_a_third_model_of_a_name_is_left_out_and_named(tmp_path, caplog):
    touch(tmp_path, "a.GGUF", "a.Gguf", "a.gguf")
    assert len(found(tmp_path)) == 2
    assert f"{tmp_path}/a.gguf is left out: there is a model a already, {tmp_path}/a.GGUF" in caplog.messages


def test_hidden_files_and_folders_are_no_models(tmp_path, caplog):
    touch(
        tmp_path,
        *("vl/vl.gguf", "vl/mmproj-F16.gguf", "vl/._mmproj-F16.gguf", "vl/._vl.gguf", "._a.gguf", ".b.gguf"),
        *(".cache/c.gguf", "__MACOSX/._d.gguf", ".Trash/x/e.gguf"),
    )
    assert found(tmp_path) == {"vl": ("vl/vl.gguf", "mmproj-F16.gguf")}
    assert not caplog.messages


def test_what_cannot_be_read_or_named_has_a_line_of_its_own(tmp_path, monkeypatch, caplog):
    touch(tmp_path, "good.gguf", "b\nad.gguf", "b\x1b[2Jad.gguf", "part-00002-of-00002.gguf")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.gguf")).write_bytes(b"GGUF")
    (tmp_path / "dead.gguf").symlink_to("nowhere.gguf")
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    (tmp_path / "round").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.gguf")
    os.mkfifo(tmp_path / "mmproj-good.gguf")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # names of sockets have 107 bytes at most
        listening.bind("socket.gguf")
    (tmp_path / "folder.gguf").mkdir()
    assert found(tmp_path) == {"good": ("good.gguf", None)}
    reasons = {Path(line.partition(" is left out: ")[0]).name: line for line in caplog.messages}
    for name, reason in {
        "dead.gguf": "it is a link to nowhere.gguf, which is not there",
        "loop.gguf": "it cannot be looked at (Too many levels of symbolic links)",
        "pipe.gguf": "it is not a file",
        "mmproj-good.gguf": "it is not a file",
        "socket.gguf": "it is not a file",
        "b\nad.gguf": "its name has control characters or is not UTF-8; rename it",
        "b\x1b[2Jad.gguf": "its name has control characters or is not UTF-8; rename it",
        "caf\ufffd.gguf": "its name has control characters or is not UTF-8; rename it",
        "part-00002-of-00002.gguf": "the first part, part-00001-of-00002.gguf, is missing",
    }.items():
        assert reasons.pop(name).endswith(f" is left out: {reason}")
    assert not reasons


@pytest.mark.parametrize(
    "name",
    [
        *("a b.gguf", "a'b.gguf", 'a"b.gguf', "C:\\models\\a.gguf", "a;b#c.gguf", "~a.gguf", "-m.gguf", "=.gguf"),
        *("%41.gguf", "$HOME.gguf", "ünï模型😀.gguf", "a:latest.gguf", "*.gguf", "a\u3000b.gguf", "a.gguf.gguf"),
    ],
)
def test_any_other_name_is_that_of_a_model(folder, monkeypatch, name):
    shutil.copy(folder / "draft-gemma.gguf", folder / name)
    monkeypatch.chdir(folder)
    models = read_folder(config_of("--models-dir", "."))
    model = models[name.removesuffix(".gguf")]
    assert load_config(model.words, {}).target.path == folder / name
    assert len(models) == 3


def test_a_model_whose_reading_fails_in_a_way_that_nobody_thought_of_is_left_out(folder, monkeypatch, caplog):
    def stumbling(path):
        if path.name == "draft-gemma.gguf":
            raise ZeroDivisionError("in stamp")
        return stamp(path)

    monkeypatch.setattr("uad.router.folder.stamp", stumbling)
    assert list(read(folder)) == ["draft-zephyr"]
    assert caplog.messages == ["draft-gemma is left out: it cannot be read (ZeroDivisionError('in stamp'))"]


def test_a_file_that_may_be_read_later_is_another_one_then(folder, monkeypatch):
    path = folder / "draft-gemma.gguf"
    allowed = stamp(path)
    config = config_of("--models-dir", str(folder))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert stamp(path) != allowed
    before = read_folder(config)
    monkeypatch.undo()
    assert read_folder(config)["draft-gemma"] != before["draft-gemma"]


def test_a_file_that_is_gone_before_it_is_read_is_told(folder, monkeypatch):
    def vanishing(path):
        found = stamp(path)
        if path.name == "draft-gemma.gguf":
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr("uad.router.folder.stamp", vanishing)
    assert "no such file" in read(folder)["draft-gemma"].facts.problem


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


def test_a_name_means_one_model(folder, caplog):
    with pytest.raises(ConfigError, match="draft-gemma and draft-zephyr are both called draft-gemma"):
        read(folder, preset="[draft-zephyr]\nalias = draft-gemma\n[draft-gemma]\n")
    assert list(read(folder, preset="[draft-zephyr]\nalias = draft-gemma\n")) == ["draft-zephyr"]
    assert "draft-gemma.gguf is left out: the models draft-zephyr and draft-gemma are both called" in caplog.text


def test_once_it_serves_a_section_whose_file_is_gone_costs_itself(folder, caplog):
    preset = "[gone]\nc = 1\n[draft-gemma]\nc = 2\n"
    (folder / "p.ini").write_text(preset)
    config = config_of("--models-dir", str(folder), "--models-preset", str(folder / "p.ini"))
    assert list(read_folder(config, is_start=False)) == ["draft-gemma", "draft-zephyr"]
    assert "p.ini:1: [gone] is no model of the folder" in caplog.text


def context(folder, *words, preset=None, environ=()):
    """The context of draft-gemma, which was trained for 32,768 tokens."""
    words = read(folder, *words, preset=preset, environ=environ)["draft-gemma"].words
    return load_config(words, {}).target.n_ctx


@pytest.mark.parametrize(
    ("words", "preset", "n_ctx"),
    [
        (["-c", "100000"], None, 32768),
        (["-c", "4096"], None, 4096),
        (["-c", "0"], None, 0),
        (["-c", "100000", "-np", "2"], None, 65536),
        (["-c", "100000", "-np", "4"], None, 100000),
        ([], "[*]\nc = 100000\n", 32768),
        ([], "[draft-gemma]\nc = 100000\n", 100000),
        ([], "[*]\nc = 90000\n[draft-gemma]\nc = 100000\n", 100000),
        (["-c", "90000"], "[draft-gemma]\nc = 100000\n", 32768),
        (["-c", "100000", "--rope-scaling", "yarn", "--rope-scale", "4"], None, 100000),
        (["-c", "100000", "--override-kv", "llama.context_length=int:100000"], None, 100000),
    ],
)
def test_a_context_for_all_models_is_bounded_by_what_each_was_trained_for(folder, caplog, words, preset, n_ctx):
    assert context(folder, *words, preset=preset) == n_ctx
    assert ("draft-gemma 32768" in caplog.text) == (n_ctx == 32768)


def test_a_context_of_the_environment_is_bounded_too(folder):
    assert context(folder, environ={"LLAMA_ARG_CTX_SIZE": "100000"}) == 32768


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
