"""Models in types of few bits: written by ggml, and compared with the same weights as F16."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from low_bits import compare, main, quantized, write

from uad.base.errors import ConfigError

pytestmark = pytest.mark.model
TARGET = Path(__file__).parents[2] / "samples" / "target-chatml.gguf"


def test_a_model_is_written_in_another_type_and_near_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(TARGET, path := tmp_path / "iq3_s.gguf", "iq3_s")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(path).tensors}
    assert kinds.pop("token_embd.weight") == "Q6_K"
    assert {kind for name, kind in kinds.items() if "norm" not in name} == {"IQ3_S"}
    compare(path)
    theirs, ours = (float(kl) for kl in re.findall(r"KL ([\d.-]+)", capsys.readouterr().out))
    assert 0 < min(theirs, ours) <= max(theirs, ours) < 0.01


def test_rows_have_whole_blocks_and_a_file_has_a_type(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Q2_K has blocks of 256, which do not divide rows of 96"):
        quantized(np.zeros((2, 96), np.float32), GGMLQuantizationType.Q2_K)
    with pytest.raises(ConfigError, match="OUT and --type belong together"):
        main([str(TARGET), str(tmp_path / "out.gguf")])
