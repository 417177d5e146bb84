"""A model file x for commands whose runtime is a stand-in."""

import pytest


@pytest.fixture(autouse=True)
def in_a_folder_with_a_model_x(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_bytes(b"GGUF\3" + bytes(19))
