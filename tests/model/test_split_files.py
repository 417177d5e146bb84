"""Models in several files: loaded by the first, with the same text; what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.models import config, finish
from kit.tiny_models import make, split

from uad.base.config import ModelConfig
from uad.base.errors import ModelLoadError
from uad.base.types import GREEDY, Request, SpeculativeParams
from uad.llama.model import Model
from uad.runtime.runtime import Runtime


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("split")
    return split(make("llama", folder), folder, 3)


def ids(path: Path) -> list[int]:
    with Runtime.open(config(path, None, n_ctx=256)) as runtime:
        asked = Request(tuple(range(40, 60)), GREEDY, SpeculativeParams(enabled=False), max_tokens=12)
        return finish(runtime, [asked])[0].ids


def test_parts_give_the_text_of_the_whole(parts: list[Path]) -> None:
    assert ids(parts[0]) == ids(parts[0].with_name("llama-0.gguf"))


def test_another_part_names_the_first(parts: list[Path]) -> None:
    with pytest.raises(ModelLoadError, match=r"part 2 of 3; give the first, llama-0-00001-of-00003\.gguf"):
        Model(ModelConfig(parts[1]), "target")


def test_missing_parts_are_named(parts: list[Path], tmp_path: Path) -> None:
    first = tmp_path / parts[0].name
    first.write_bytes(parts[0].read_bytes())
    with pytest.raises(ModelLoadError, match=r"missing.*00002-of-00003\.gguf, .*00003-of-00003\.gguf"):
        Model(ModelConfig(first), "target")
