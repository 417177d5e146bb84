"""scripts/vocabs.py: what is taken out of the archive, in one step, and what happens where there is none."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from kit.vocab_kit import vocabs

ROOT = "llama_cpp_python-9.9"
FILES = {
    f"{ROOT}/vendor/llama.cpp/models/ggml-vocab-x.gguf": b"one",
    f"{ROOT}/vendor/llama.cpp/models/ggml-vocab-x.gguf.inp": b"two",
    f"{ROOT}/vendor/llama.cpp/models/templates/a.jinja": b"three",
    f"{ROOT}/vendor/llama.cpp/models/templates/README.md": b"no",
    f"{ROOT}/vendor/llama.cpp/models/.editorconfig": b"no",
    f"{ROOT}/vendor/llama.cpp/models/templates/deep/../../../../../../evil.jinja": b"no",
    f"{ROOT}/README.md": b"no",
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "sdist.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, data in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo(f"{ROOT}/vendor/llama.cpp/models/ggml-vocab-link.gguf")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return path


def test_unpacks_what_is_wanted_and_replaces_what_was_there(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "cache" / "vocabs"
    target.mkdir(parents=True)
    (target / "stale").write_text("x")
    assert vocabs.install(archive, target, "9.9") == 3
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert found == ["complete", "ggml-vocab-x.gguf", "ggml-vocab-x.gguf.inp", "templates/a.jinja"]
    assert vocabs.is_complete(target, "9.9")
    assert not vocabs.is_complete(target, "9.8")
    assert [path.name for path in target.parent.iterdir()] == ["vocabs"]


def test_a_damaged_archive_leaves_things_as_they_were(tmp_path: Path) -> None:
    target = tmp_path / "vocabs"
    target.mkdir()
    (target / "old").write_text("x")
    bad = tmp_path / "bad.tar.gz"
    bad.write_bytes(b"nonsense")
    with pytest.raises(tarfile.TarError):
        vocabs.install(bad, target, "9.9")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar.gz", "vocabs"]
    assert (target / "old").exists()


def test_says_so_where_pip_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UAD_VOCABS", str(tmp_path / "v"))
    monkeypatch.setattr(vocabs, "download", lambda version, scratch: None)
    assert vocabs.main() == 1
    assert "tests that need its vocabularies will skip" in capsys.readouterr().err
    assert not (tmp_path / "v").exists()


def test_does_nothing_where_all_is_there(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UAD_VOCABS", str(tmp_path / "v"))
    monkeypatch.setattr(vocabs.importlib.metadata, "version", lambda name: "9.9")
    monkeypatch.setattr(vocabs, "download", lambda version, scratch: archive)
    assert vocabs.main() == 0
    monkeypatch.setattr(vocabs, "download", None)
    assert vocabs.main() == 0


def test_only_names_of_the_models_folder() -> None:
    assert vocabs.wanted(PurePosixPath("x/vendor/llama.cpp/models/ggml-vocab-a.gguf.out")) == "ggml-vocab-a.gguf.out"
    assert vocabs.wanted(PurePosixPath("x/vendor/llama.cpp/models/templates/a.jinja")) == "templates/a.jinja"
    assert vocabs.wanted(PurePosixPath("vendor/llama.cpp/models/ggml-vocab-a.gguf")) is None
