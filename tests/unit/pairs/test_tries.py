"""What a record of a pair holds for: its conditions, its age, and the budget for another try. Arithmetic on values."""

from dataclasses import replace
from pathlib import Path

import pytest

from uad.base.config import load_config
from uad.base.stats import DraftStats
from uad.base.types import Draft, Origin
from uad.pairs.choose import PairView, choices, choose
from uad.pairs.conditions import Conditions, conditions
from uad.pairs.header import HeaderFacts
from uad.pairs.predict import Prediction
from uad.pairs.records import LASTS_S, NO_RECORD, PairRecord, TargetRecord, add_record, record_of

SAMPLES = Path(__file__).parents[3] / "samples"
TARGET, DRAFT = SAMPLES / "target-chatml.gguf", SAMPLES / "draft-zephyr.gguf"
NOW = 1_800_000_000.0
LOST = PairRecord(400, 10.0, 8.0, 100.0, NOW)
"""A pair of 0.8, measured when the target had written for 100 s."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))


# --- age and budget


def test_a_record_holds_until_it_is_old():
    assert LOST.holds(100.0, NOW)
    assert LOST.holds(100.0, NOW + LASTS_S - 1)
    assert not LOST.holds(100.0, NOW + LASTS_S + 1)
    assert not LOST.holds(100.0, NOW - 2 * LASTS_S)  # of a clock that was wrong


def test_the_target_pays_for_another_try_by_writing():
    """400 tokens in 10 s in place of 8 cost 2 s, the load 3 s: a hundredth of 500 s."""
    assert LOST.holds(100.0 + 499.0, NOW)
    assert not LOST.holds(100.0 + 501.0, NOW)


def test_a_larger_model_a_slower_pair_and_a_better_rival_make_a_try_dearer():
    assert not LOST.holds(700.0, NOW)
    assert LOST.holds(700.0, NOW, n_bytes=4_000_000_000)
    assert replace(LOST, seconds=40.0).holds(700.0, NOW)
    assert LOST.holds(700.0, NOW, best=2.0)


def test_tries_take_one_percent_of_the_time_however_bad_a_draft_is():
    """A draft of a tenth of the speed, over an hour of writing: each try costs 72 s of slower answers and the load."""
    bad, lost_s, n_tries = PairRecord(400, 80.0, 8.0, 0.0, NOW), 0.0, 0
    for written_s in range(0, 36_000, 10):
        if not bad.holds(float(written_s), NOW):
            n_tries, lost_s = n_tries + 1, lost_s + 72.0 + 3.0
            bad = replace(bad, at=float(written_s))
    assert n_tries >= 3
    assert lost_s <= 0.01 * 36_000


def test_a_try_begins_a_record_of_its_own():
    record = TargetRecord(1000.0, {"d": LOST})
    tried = record.plus("d", PairRecord(100, 1.0, 2.0), NOW)
    assert tried.drafts["d"] == PairRecord(100, 1.0, 2.0, 1001.0, NOW)
    assert tried.drafts["d"].gain is None  # so it stays until enough was written
    assert tried.plus("d", PairRecord(400, 4.0, 8.0), NOW).drafts["d"].gain == pytest.approx(2.0)


def test_a_pair_that_is_used_is_measured_on_and_on():
    record = TargetRecord()
    for _ in range(50):
        record = record.plus("d", PairRecord(400, 100.0, 150.0), NOW)
    assert record.drafts["d"].gain == pytest.approx(1.5)
    assert record.drafts["d"].tokens > 400


def test_what_is_written_without_a_draft_pays_too():
    record = TargetRecord(100.0, {"d": LOST}).plus(None, PairRecord(0, 600.0, 0.0), NOW)
    assert record.written_s == 700.0
    assert not record.drafts["d"].holds(record.written_s, NOW)


def view(name, predicted, record=NO_RECORD, holds=True):
    facts = HeaderFacts("llama", name, 1, 1, n_vocab=1)
    return PairView(Path(name), facts, Prediction(predicted, 2, 0.7, 1.0, 0.1), record, holds)


def test_where_a_record_holds_no_more_the_prediction_counts():
    assert choose([view("a", 1.5, LOST)]) is None
    assert choose([view("a", 1.5, LOST, holds=False)]).draft.name == "a"
    better = view("b", 1.2, replace(LOST, plain_seconds=18.0))
    assert choose([view("a", 1.5, LOST, holds=False), better]).draft.name == "b"


def test_the_others_that_pay_are_for_where_the_first_one_fails():
    found = choices([view("a", 1.2), view("b", 1.1), view("c", 1.15, LOST), view("d", 1.19)])
    assert [one.draft.name for one in found] == ["a", "b"]


# --- conditions


def of(*words):
    return conditions(load_config(["-m", "t.gguf", "--draft", "auto", *words], {}))


@pytest.mark.parametrize(
    "words",
    [
        *(["--no-kernels"], ["--no-repack"], ["--threads", "1"], ["-ngl", "0"], ["-fa", "off"], ["-ctk", "q8_0"]),
        *(["-ub", "8"], ["--exact"], ["-ot", "exps=CPU"], ["--rpc", "127.0.0.1:1"], ["--device", "none"]),
        *(["--threads-draft", "1"], ["-ctkd", "q8_0"], ["-ngld", "0"]),
    ],
    ids=lambda words: words[0],
)
def test_what_changes_costs_has_records_of_its_own(words):
    assert of(*words) != of()


@pytest.mark.parametrize(
    "words", [["-c", "512"], ["--port", "1"], ["--temp", "0.5"], ["--mlock"], ["--draft-from", "x.gguf"]]
)
def test_what_does_not_has_the_same(words):
    assert of(*words) == of()


def machine(root, model="EPYC", gpus=(), flags="avx2"):
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "dev").mkdir(exist_ok=True)
    text = f"processor : 0\nmodel name\t: {model}\nflags\t\t: {flags}\nbogomips : 1\n\nprocessor : 1\n"
    (root / "proc" / "cpuinfo").write_text(text, encoding="utf-8")
    for gpu in gpus:
        (root / "dev" / gpu).touch()
    return conditions(load_config(["-m", "t.gguf", "--draft", "auto"], {}), root)


def test_another_machine_another_gpu_other_kernels_and_another_llama_cpp_have_records_of_their_own(
    tmp_path, monkeypatch
):
    usual = machine(tmp_path / "a")
    assert machine(tmp_path / "same") == usual
    assert machine(tmp_path / "b", model="Xeon") != usual
    assert machine(tmp_path / "c", flags="avx2 amx_int8") != usual
    assert machine(tmp_path / "d", gpus=("nvidia0",)) != usual
    for name in ("UAD_KERNELS", "CUDA_VISIBLE_DEVICES", "LLAMA_CPP_LIB_PATH"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "something")
            assert machine(tmp_path / "a") != usual, name


def test_a_record_of_other_conditions_says_nothing():
    here, there, slow_draft = Conditions("here", "d"), Conditions("there", "d"), Conditions("here", "slow")
    add_record(TARGET, DRAFT, PairRecord(1000, 1.0, 1.01), here, NOW)
    assert record_of(TARGET, here).of(DRAFT, here).gain == 1.01
    assert record_of(TARGET, there).of(DRAFT, there) == NO_RECORD
    assert record_of(TARGET, slow_draft).of(DRAFT, slow_draft) == NO_RECORD


# --- whose gain it is


def test_rounds_of_look_ups_are_not_the_draft_models():
    counts = DraftStats()
    counts.count(Draft((1, 2), (0.5, 0.5)), 2, 1, 3, 30.0)
    counts.count(Draft((1, 2, 3), (0.5,) * 3, origin=Origin.SUFFIX), 3, 1, 4, 20.0)
    counts.count(Draft((1, 2, 3), (0.5,) * 3, n_tail=1), 3, 1, 4, 25.0)  # the model's guess, and a look-up after it
    counts.count(Draft((1,), (0.5,), origin=Origin.GRAMMAR), 1, 1, 2, 10.0)
    counts.count(Draft(), 0, 5, 5, 50.0)
    assert (counts.n_aided, counts.aided_ms) == (10, 55.0)
