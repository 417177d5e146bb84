"""Cost curves: stored and found again, drawn; and `uad profile` on the bundled models."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from kit.models import DRAFTS, TARGET

from uad.base.common.once import warn_once
from uad.base.config import ModelConfig, load_config
from uad.base.errors import ConfigError, ModelLoadError
from uad.base.model_files import fingerprint
from uad.engine.policy.cost import CostSample
from uad.llama.backend.devices import devices
from uad.runtime.costs import profile_store
from uad.tools.cli import cost_plot, main
from uad.tools.cli.cost_plot import MeasuredCurve

SAMPLES = (CostSample(1, 0, 2.5), CostSample(2, 0, 3.0), CostSample(1, 512, 2.75))


# --- stored


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "profiles"


CONFIG = ModelConfig(TARGET, n_threads=2)


def test_a_curve_comes_back_as_it_was(cache):
    key = profile_store.key(CONFIG, "target")
    assert profile_store.load(key) is None
    file = profile_store.save(key, SAMPLES)
    assert file.parent == cache
    assert profile_store.load(key) == SAMPLES
    assert json.loads(file.read_text())["facts"]["threads"] == 2
    profile_store.save(key, SAMPLES[:1])
    assert profile_store.load(key) == SAMPLES[:1]
    assert list(cache.iterdir()) == [file]


def curve(*times: float) -> list[CostSample]:
    """Five measurements of each size, of these mean times."""
    return [CostSample(n, 0, ms * (1 + i / 100)) for n, ms in enumerate(times, 1) for i in range(-2, 3)]


def test_a_better_curve_is_not_replaced_by_a_worse_one(cache: Path) -> None:
    key = profile_store.key(CONFIG, "target")
    slow, disturbed = curve(6.8, 13.0), [CostSample(1, 0, ms) for ms in (0.6, 0.9, 1.4, 0.6, 1.9)]
    assert profile_store.why_worse(key, slow) == profile_store.why_worse(key, disturbed) == ""
    file = profile_store.save(key, (CostSample(1, 0, 0.6), CostSample(2, 0, 1.2)))
    assert profile_store.why_worse(key, slow) == (
        "passes took 11 times as long as in the stored curve, which is kept; if this machine is slower now, remove "
        f"{file} and measure again"
    )
    assert "1.5 times" in profile_store.why_worse(key, disturbed)
    assert profile_store.why_worse(key, curve(0.64, 1.25)) == ""  # as noise has it
    assert profile_store.why_worse(key, curve(0.3, 0.5)) == ""
    assert profile_store.why_worse(key, [CostSample(1, 512, 9.0)]) == ""  # nothing to compare with


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        '{"version": 0, "samples": [[1, 0, 2.5]]}',
        '{"version": 1}',
        '{"version": 1, "samples": []}',
        '{"version": 1, "samples": [[1, 0]]}',
        '{"version": 1, "samples": [[0, 0, 1.0]]}',
        '{"version": 1, "samples": [[1, 0, -1.0]]}',
        '{"version": 1, "samples": [[1, 0, NaN]]}',
        '{"version": 1, "samples": [["1", 0, 1.0]]}',
        '{"version": 1, "samples": 7}',
        "[" * 100_000,
        "\udcff",
    ],
)
def test_a_damaged_file_is_named_and_not_used(cache, caplog, content):
    key = profile_store.key(CONFIG, "target")
    file = profile_store.save(key, SAMPLES)
    file.write_text(content, errors="surrogateescape")
    with caplog.at_level(logging.WARNING, "uad"):
        assert profile_store.load(key) is None
    assert [str(file) in record.getMessage() for record in caplog.records] == [True]


def names_by_quota(monkeypatch, config: ModelConfig) -> dict[float | None, str]:
    """The curve's file for each quota of a group on a machine with two cores."""
    found = {}
    for quota in (None, 4.0, 2.0, 1.0, 0.5):
        monkeypatch.setattr(profile_store, "cpu_quota", lambda quota=quota: quota)
        monkeypatch.setattr(profile_store, "usable_cores", lambda quota=quota: max(1, int(min(2.0, quota or 2.0))))
        found[quota] = profile_store.key(config, "target").name
    return found


def test_a_quota_that_holds_threads_back_has_curves_of_its_own(monkeypatch):
    auto = names_by_quota(monkeypatch, ModelConfig(TARGET))
    assert auto[None] == auto[4.0] == auto[2.0]
    assert len({auto[quota] for quota in (None, 1.0, 0.5)}) == 3, "fewer threads; and one that waits"
    two = names_by_quota(monkeypatch, CONFIG)
    assert two[None] == two[4.0] == two[2.0]
    assert len({two[quota] for quota in (None, 1.0, 0.5)}) == 3, "two threads that wait"
    batch = names_by_quota(monkeypatch, replace(CONFIG, n_threads=1, n_threads_batch=3))
    assert batch[None] == batch[4.0] != batch[2.0], "prompts are read by three threads"


@pytest.fixture
def said():
    """What was said before is said again."""
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


def test_without_a_home_nothing_is_remembered_and_one_line_says_so(said, monkeypatch, caplog):
    def fail(*_: object, **__: object) -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("UAD_CACHE_DIR", raising=False)
    monkeypatch.setattr("uad.base.common.cache.user_cache_path", fail)
    with caplog.at_level(logging.WARNING, "uad"):
        for role in ("target", "draft"):
            assert profile_store.load(profile_store.key(CONFIG, role)) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("costs are not remembered")
    assert "no home directory; set UAD_CACHE_DIR" in line
    with pytest.raises(ConfigError, match="no home directory; set UAD_CACHE_DIR"):
        profile_store.check_folder()


def test_a_home_that_may_not_be_looked_at_is_one_line_too(said, monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / ("x" * 300)))  # for root, too, as another user's for others
    with caplog.at_level(logging.WARNING, "uad"):
        for role in ("target", "draft"):
            assert profile_store.load(profile_store.key(CONFIG, role)) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert "File name too long" in line
    with pytest.raises(ConfigError, match="cannot be stored"):
        profile_store.save(profile_store.key(CONFIG, "target"), SAMPLES)


def test_a_curve_that_cannot_be_put_in_its_place_leaves_nothing_behind(cache):
    key = profile_store.key(CONFIG, "target")
    profile_store.path(key).mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be stored"):
        profile_store.save(key, SAMPLES)
    assert [file.name for file in profile_store.path(key).parent.iterdir()] == [profile_store.path(key).name]


def test_the_key_follows_what_changes_the_cost_and_nothing_else():
    base = profile_store.key(CONFIG, "target").name
    assert base.startswith("target-chatml-")
    costly = [
        replace(CONFIG, n_threads=1),
        replace(CONFIG, n_threads=0),
        replace(CONFIG, n_threads_batch=1),
        replace(CONFIG, flash_attn="off"),
        replace(CONFIG, type_k="q8_0"),
        replace(CONFIG, type_v="q8_0"),
        replace(CONFIG, n_ubatch=8),
        replace(CONFIG, repack=False),
        replace(CONFIG, path=DRAFTS["zephyr"]),
    ]
    names = {profile_store.key(config, "target").name for config in costly} | {
        profile_store.key(CONFIG, "draft").name,
        base,
    }
    assert len(names) == len(costly) + 2
    assert {
        profile_store.key(config, "target").name
        for config in (CONFIG, replace(CONFIG, n_ctx=64), replace(CONFIG, mlock=True))
    } == {base}


def test_devices_are_named_with_their_kernels():
    found = devices()
    assert found == devices()
    assert any(line.startswith("CPU: ") for line in found)
    assert all(line.strip() == line != "" for line in found)


def test_the_fingerprint_tells_files_of_one_size_apart(tmp_path):
    for name, ends in (("a", (b"x", b"y")), ("b", (b"z", b"y")), ("c", (b"x", b"z"))):
        (tmp_path / name).write_bytes(ends[0] + bytes(3 << 20) + ends[1])
    assert len({fingerprint(tmp_path / name) for name in "abc"}) == 3
    with pytest.raises(ModelLoadError, match="nowhere"):
        profile_store.key(ModelConfig(Path("/nowhere/m.gguf")), "target")


def test_a_place_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="UAD_CACHE_DIR"):
        profile_store.save(profile_store.key(CONFIG, "target"), SAMPLES)


# --- drawn


@pytest.mark.parametrize(("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("p.pdf", b"%PDF")])
def test_curves_are_drawn(tmp_path, name, magic):
    cost_plot.draw(
        [
            MeasuredCurve("target", "toy", SAMPLES, tmp_path, 1.0),
            MeasuredCurve("draft", "$_^$ toy", SAMPLES[:1], tmp_path, 1.0),
        ],
        tmp_path / name,
    )
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_plot_that_cannot_be_drawn_is_refused_before_measuring(tmp_path):
    (tmp_path / "folder.png").mkdir()
    for path in (tmp_path / "p.bmp", tmp_path / "none" / "p.png", tmp_path / "folder.png"):
        with pytest.raises(ConfigError, match="--plot"):
            cost_plot.check(path)


# --- the command


def test_a_folder_that_cannot_be_written_is_named_before_any_model_is_opened(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "file"))
    assert main(["profile", str(TARGET)]) == 2
    error = capsys.readouterr().err
    assert "cannot be stored in" in error
    assert "UAD_CACHE_DIR" in error


@pytest.mark.model
def test_the_server_finds_what_the_command_stored(cache, capsys, tmp_path):
    flags = ["-c", "1024", "-t", "1", "-td", "1", "-ctk", "q8_0"]
    plot = tmp_path / "cost.svg"
    words = [
        "profile",
        str(TARGET),
        str(DRAFTS["gemma"]),
        *flags,
        "--n-max",
        "3",
        "--depths",
        "0,64",
        "--json",
        "--plot",
        str(plot),
    ]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    served = load_config(["-m", str(TARGET), "-md", str(DRAFTS["gemma"]), *flags, "--parallel", "4"], {})
    for one, model in zip(told["profiles"], (served.target, served.draft), strict=True):
        found = profile_store.load(profile_store.key(model, one["role"]))
        assert [(sample.n, sample.depth) for sample in found] == [(n, depth) for depth in (0, 64) for n in (1, 2, 3)]
        assert [sample["ms"] for sample in one["samples"]] == [sample.ms for sample in found]
    assert plot.read_bytes().startswith(b"<?xml")


@pytest.mark.model
def test_people_get_a_table_and_the_place(cache, capsys):
    assert main(["profile", str(TARGET), "-c", "256", "-t", "1", "--n-max", "2"]) == 0
    out = capsys.readouterr().out
    assert "T(n)/T(1)" in out
    assert "1.00" in out
    (file,) = cache.iterdir()
    assert out.splitlines()[-1] == f"stored: {file}"


@pytest.mark.model
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--n-max", "0"], "--n-max"),
        (["--n-max", "61", "--no-kernels"], "--n-max up to 60"),
        (["--depths", "0,x"], "--depths"),
        (["--depths", "255"], "--depths: 255"),
        (["--plot", "x.jpeg"], "--plot"),
        (["--nmax", "3"], "--n-max"),
        (["--spec-type", "draft-mtp"], "no head for multi-token prediction"),
    ],
)
def test_wrong_words_are_named(cache, capsys, words, named):
    assert main(["profile", str(TARGET), "-c", "256", *words]) == 2
    assert named in capsys.readouterr().err
    assert not cache.exists()
