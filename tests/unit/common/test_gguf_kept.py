"""A header that was parsed is not parsed again, whoever learns of further types of weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from uad.base import gguf
from uad.base.gguf import GgufFile

SAMPLE = Path(__file__).parents[3] / "samples" / "draft-zephyr.gguf"


def test_another_who_knows_types_places_tensors_again_and_parses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Path] = []
    parse = gguf._parsed
    monkeypatch.setattr(gguf, "_headers", {})
    monkeypatch.setattr(gguf, "_askable", [])
    monkeypatch.setattr(gguf, "_parsed", lambda path, data: (parsed.append(path), parse(path, data))[1])
    with GgufFile(SAMPLE) as file:
        before = file.tensors
    asked: list[int] = []
    gguf.ask_for_types(lambda kind: asked.append(kind))
    with GgufFile(SAMPLE) as file:
        assert file.tensors == before
    assert asked, "tensors were placed by what is known now"
    assert parsed == [SAMPLE]
