"""`uad check`: on every tiny memory what is promised holds; a target that breaks it is named, with the width."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit.head_models import make_with_head
from kit.models import DRAFTS, TARGET
from kit.tiny_models import NAMES, make

from uad.base.config import Config, ModelConfig
from uad.base.types import Rows
from uad.engine.decode.layout import Least
from uad.llama.context import Context
from uad.llama.kernels import use as kernels
from uad.llama.model import Model
from uad.runtime import check as checking
from uad.runtime.check import QUICK, Checked, CheckPlan, check, weight_types
from uad.runtime.check_rows import Passes, RowsCompared, differences, stretches, telling_first
from uad.tools.cli import main
from uad.tools.cli.check import bundled_text

SMALL = CheckPlan(seconds=600.0, n_ids=8, n_max=6, depths=(0, 40), n_prompt=80, n_text=12)
DOCTORED = 13
"""Rows of a pass that no look at start tries, neither by itself nor in several slots."""

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "QUICK", SMALL)


@pytest.fixture
def doctored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of 13 rows have other bits."""
    real = Context.logits

    def logits(self: Context):
        found = real(self)
        if self._batch.n == DOCTORED:
            found = found.copy()
            found[:, 3] += np.float32(0.125)
        return found

    monkeypatch.setattr(Context, "logits", logits)


def checked(path: Path, plan: CheckPlan = SMALL, draft: Path | None = None, kernels_on: bool = True) -> Checked:
    target = ModelConfig(path, n_threads=1, kernels=kernels_on)
    own = Config(target=target, draft=None if draft is None else ModelConfig(draft, n_threads=1))
    return check(own, bundled_text(), plan, lambda what, share: None)


ARE_OURS = kernels.keep_rows(ModelConfig(Path("any.gguf")))
"""Whether uad's kernels compute these models, F16, on this machine: then texts are the same by default."""


@pytest.mark.parametrize("name", NAMES)
def test_what_is_promised_holds_on_every_memory(name: str, folder: Path) -> None:
    found = checked(make(name, folder))
    plain, exact = found.ways[0], found.ways[-1]
    assert plain.promised == ARE_OURS
    assert exact.promised
    assert exact.any_batch
    assert len(found.ways) == (1 if ARE_OURS else 2), "--exact changes nothing where the kernels compute all"
    assert found.broken == ()
    assert {(row.n_slots, row.width) for row in exact.rows} == {(n, width) for n in (1, 2) for width in range(1, 8)}
    assert all(row.n_ids >= SMALL.n_ids and not row.n_other for row in exact.rows)
    assert all(text.n_same == text.n_texts for text in exact.texts)
    assert sum(text.n_drafted for text in exact.texts) > 0


@pytest.mark.parametrize("family", ["qwen35", "deepseek2"])
def test_what_is_promised_holds_for_a_model_with_a_head(family: str, folder: Path) -> None:
    assert checked(make_with_head(family, folder)).broken == ()


def test_a_width_whose_rows_have_other_bits_is_named_and_the_exit_code_is_1(
    folder: Path, small: None, doctored: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", str(make("llama", folder)), "-t", "1", "--draft-max", "13", "--no-kernels"]
    assert main([*words, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    exact = found["ways"][1]
    assert {row["width"] for row in exact["rows"] if row["n_other"] and row["n_slots"] == 1} == {DOCTORED}
    assert not found["holds"]
    assert any(f"with --exact: passes of {DOCTORED} rows, 1 slot" in line for line in found["broken"])
    assert not any(line.startswith("without --exact") for line in found["broken"]), "F16 promises nothing there"
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert f"passes of {DOCTORED} rows" in shown
    assert "what is promised holds" not in shown


def test_json_has_every_width_and_a_draft_model_is_used(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", str(TARGET), str(DRAFTS["zephyr"]), "-t", "1", "-np", "3", "--json"]
    assert main([*words, "--no-kernels"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["holds"]
    assert found["n_slots"] == 3
    assert found["draft"]
    assert found["weights"] == weight_types(ModelConfig(TARGET))
    assert [way["exact"] for way in found["ways"]] == [False, True]
    for way in found["ways"]:
        assert set(way) == {"exact", "promised", "any_batch", "notes", "rows", "prompts", "texts"}
        assert set(way["rows"][0]) == {"n_slots", "width", "n_ids", "n_other", "most"}
        assert len(way["rows"]) == 2 * (SMALL.n_max + 1)
        assert sum(text["n_accepted"] for text in way["texts"]) > 0


def test_when_time_is_up_widths_are_left_out_and_that_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "QUICK", replace(SMALL, seconds=0.0))
    assert main(["check", str(make("llama", folder)), "-t", "1"]) == 0
    shown = capsys.readouterr().out
    assert "not reached" in shown
    assert "not all widths were reached" in shown


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "no target model"),
        (["MODEL", "--seconds", "0"], "--seconds"),
        (["MODEL", "--text", "/nowhere/x"], "/nowhere/x"),
        (["MODEL", "--ful"], "--full"),
        (["/nowhere/x.gguf"], "/nowhere/x.gguf"),
        (["MODEL", "--text", "EMPTY"], "too few tokens"),
    ],
)
def test_wrong_words_are_an_error_of_usage(
    words: list[str], named: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").write_text("a")
    stand = {"MODEL": str(make("llama", folder)), "EMPTY": str(folder / "empty")}
    assert main(["check", *(stand.get(word, word) for word in words)]) == 2
    assert named in capsys.readouterr().err


# --- parts


def test_a_row_is_different_where_one_bit_is() -> None:
    rows = np.ones((3, 5), np.float32)
    other = rows.copy()
    other[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    other[2, 0] = 3.0
    assert differences(other, rows) == (3, 2, 2.0)
    signed = np.zeros((1, 2), np.float32)
    assert differences(-signed, signed) == (1, 1, 0.0)
    compared = RowsCompared(1, 4)
    compared.add(other[:2], rows)
    compared.add(rows, rows)
    assert (compared.n_ids, compared.n_other) == (5, 1)
    with pytest.raises(ValueError, match="compared"):
        differences(rows, rows[:2])


def test_texts_begin_elsewhere_and_go_round() -> None:
    assert stretches([0, 1, 2], 2, 4, 2) == [(2, 0, 1, 2), (0, 1, 2, 0)]
    assert telling_first(range(1, 7)) == [1, 2, 6, 4, 3, 5]


def test_passes_are_padded_and_their_rows_are_those_of_plain_ones(folder: Path) -> None:
    """Of a state that has no positions, too: what goes back too far is decoded again."""
    own = ModelConfig(make("mamba", folder), n_ctx=512, n_threads=1)
    ids = stretches(range(300), 5, 60, 1)[0]
    with Model(own) as model, Context(model, own, 1) as context:
        context.decode([Rows(0, 0, ids, 60)])
        wanted = context.logits().copy()
        context.clear(0)
        passes = Passes(context, Least(4))
        for width in (1, 3, 4):
            found = passes.rows([ids], 20, 12, width)[0]
            assert np.array_equal(found, wanted[20:32]), width
        sizes: list[int] = []
        real = context.decode
        context.decode = lambda rows, may_stop=False: (sizes.append(len(rows[0].ids)), real(rows))[1]  # type: ignore[method-assign]
        passes.rows([ids], 20, 3, 1)
        assert min(sizes) >= 4


def test_the_usual_plan_is_of_several_depths_and_all_lengths_of_fixed_drafts() -> None:
    assert len(QUICK.depths) > 1
    assert QUICK.n_max == 16
