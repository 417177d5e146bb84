"""Which draft a target gets, by what is predicted and then by what was measured."""

from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGUFWriter
from kit.headers import finish

from uad.pairs import predict
from uad.pairs.choose import PairView, choose, recorded, views
from uad.pairs.conditions import Conditions
from uad.pairs.files import find_models
from uad.pairs.header import HeaderFacts, facts, stamp
from uad.pairs.predict import Prediction, coverage, predicted
from uad.pairs.records import ENOUGH_TOKENS, PairRecord
from uad.pairs.records import add_record as add
from uad.pairs.records import record_of as record_of_target

BIG = HeaderFacts("llama", "big", 1_500_000_000, 1_600_000_000, "Q8_0", 4096, 64, 1000, "{{ x }}")
SMALL = replace(BIG, name="small", n_params=135_000_000, size=100_000_000)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))


UNDER = Conditions("machine", "draft")
NOW = 1_800_000_000.0


def add_record(target, draft, more, under=UNDER, now=NOW):
    return add(target, draft, more, under, now)


def record_of(target, draft, under=UNDER):
    return record_of_target(target, under).of(draft, under)


def known(target, files, under=UNDER, now=NOW):
    return recorded(target, views(target, files), under, now)


def write(path, words, rows=1, arch="llama", kind=None):
    writer = GGUFWriter(path, arch)
    writer.add_token_list(words)
    if kind is not None:
        writer.add_string("general.type", kind)
    finish(writer, rows)
    return path


def test_a_smaller_draft_of_the_same_words_gains():
    one = predicted(BIG, SMALL, 1.0)
    assert 1.2 < one.gain < 2.5
    assert one.n >= 1


@pytest.mark.parametrize(
    "worse",
    [
        lambda: predicted(BIG, SMALL, 0.2),
        lambda: predicted(BIG, replace(SMALL, size=700_000_000), 1.0),
        lambda: predicted(BIG, replace(SMALL, n_params=1_000_000), 1.0),
    ],
    ids=["other words", "as slow", "too small"],
)
def test_what_makes_a_draft_worse(worse):
    assert worse().gain < predicted(BIG, SMALL, 1.0).gain


def test_a_draft_as_slow_as_its_target_is_used_for_nothing():
    one = predicted(SMALL, replace(SMALL, n_params=SMALL.n_params // 8), 0.0)
    assert (one.gain, one.n) == (1.0, 0)


def test_common_words_count_more(tmp_path):
    target = write(tmp_path / "t.gguf", ["▁the", "b", "c"])
    same = write(tmp_path / "s.gguf", ["Ġthe", "b", "c"])
    rare = write(tmp_path / "r.gguf", ["x"] * 500 + ["b"] * 500)
    common = write(tmp_path / "c.gguf", ["b"] * 500 + ["x"] * 500)
    found = [coverage(target, stamp(target), one, stamp(one)) for one in (same, rare, common)]
    assert found[0] == 1.0
    assert found[1] < 0.5 < found[2] < 1


def test_candidates_are_models_that_are_smaller(tmp_path):
    target = write(tmp_path / "t.gguf", ["a", "b"], rows=64)
    files = [
        target,
        write(tmp_path / "small.gguf", ["a", "b"]),
        write(tmp_path / "same.gguf", ["a", "b"], rows=60),
        write(tmp_path / "adapter.gguf", ["a", "b"], kind="adapter"),
        tmp_path / "gone.gguf",
    ]
    assert [one.draft.name for one in views(target, files)] == ["small.gguf"]


def view(name, gain, measured=None, tokens=ENOUGH_TOKENS):
    record = PairRecord() if measured is None else PairRecord(tokens, 1.0, measured)
    return PairView(Path(name), SMALL, Prediction(gain, 2, 0.7, 1.0, 0.1), record)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([view("a", 1.5), view("b", 1.3)], "a"),
        ([view("a", 1.5, 1.4), view("b", 1.3)], "a"),
        ([view("a", 1.5, 1.2), view("b", 1.3)], "b"),
        ([view("a", 1.5, 1.2), view("b", 1.3, 1.1)], "a"),
        ([view("a", 1.5, 1.2, tokens=ENOUGH_TOKENS - 1), view("b", 1.4)], "a"),
        ([view("a", 1.5, 0.9), view("b", 1.3, 1.0)], None),
        ([view("a", 1.01)], None),
        ([view("a", 1.4, 1.0), view("b", 1.3, 1.0), view("c", 1.2, 1.0), view("d", 1.1)], None),
        ([], None),
    ],
)
def test_the_best_by_what_is_known(found, expected):
    chosen = choose(found)
    assert (None if chosen is None else chosen.draft.name) == expected


def test_records_add_up_and_outlast_the_process(tmp_path):
    target, draft = write(tmp_path / "t.gguf", ["a"]), write(tmp_path / "d.gguf", ["b"])
    assert record_of(target, draft).gain is None
    add_record(target, draft, PairRecord(300, 2.0, 3.0))
    assert record_of(target, draft).gain is None
    assert add_record(target, draft, PairRecord(300, 2.0, 3.0)).gain == 1.5
    assert record_of(target, draft) == PairRecord(600, 4.0, 6.0, 4.0, NOW)
    assert record_of(draft, target) == PairRecord()
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(target.read_bytes())
    assert record_of(copy, draft).gain == 1.5


def test_a_target_that_was_trained_further_has_a_record_of_its_own(tmp_path):
    """It has the header of the other one, and its size: only weights differ."""
    target, other, draft = (tmp_path / f"{name}.gguf" for name in ("target", "other", "draft"))
    for path in (target, other, draft):
        write(path, ["a", "b"], rows=600)
    with other.open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\x01\x02\x03\x04")
    add_record(target, draft, PairRecord(ENOUGH_TOKENS, 2.0, 3.0))
    assert record_of(target, draft).gain == 1.5
    assert record_of(other, draft).gain is None


def test_old_tokens_count_less():
    old = PairRecord(20_000, 100.0, 200.0)
    assert old.plus(PairRecord(10_000, 100.0, 100.0, 7.0, 9.0)) == PairRecord(20_000, 150.0, 200.0, 7.0, 9.0)


def test_a_broken_record_is_none(tmp_path):
    target, draft = write(tmp_path / "t.gguf", ["a"]), write(tmp_path / "d.gguf", ["b"])
    add_record(target, draft, PairRecord(300, 2.0, 3.0))
    (file,) = (tmp_path / "cache" / "pairs").iterdir()
    file.write_text("{", encoding="utf-8")
    assert record_of(target, draft) == PairRecord()


def test_a_measured_pair_is_chosen_by_its_gain(tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "_STEP_DECODES", 0.0)  # of files this small it is all that counts
    target = write(tmp_path / "t.gguf", ["a"], rows=64)
    first, second = write(tmp_path / "a.gguf", ["a"], rows=4), write(tmp_path / "b.gguf", ["c"], rows=4)
    before = choose(known(target, (first, second)))
    assert before is not None
    assert before.draft == first
    add_record(target, first, PairRecord(1000, 10.0, 10.1))
    after = choose(known(target, (first, second)))
    assert after is not None
    assert after.draft == second


def test_facts_of_a_header_are_those_of_the_file(tmp_path):
    one = write(tmp_path / "t.gguf", ["a", "b"], rows=3)
    assert (facts(one, stamp(one)).n_params, facts(one, stamp(one)).n_vocab) == (3 * 1024, 2)


def test_links_are_models_as_files_are(tmp_path):
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "models"
    elsewhere.mkdir()
    folder.mkdir()
    target, draft = write(elsewhere / "blob-1", ["a", "b"], rows=64), write(elsewhere / "blob-2", ["a", "b"])
    (folder / "big.gguf").symlink_to(target)
    (folder / "small").mkdir()
    (folder / "small" / "any.gguf").symlink_to(draft)
    (folder / "gone.gguf").symlink_to(elsewhere / "nothing")
    files = {name: one.path for name, one in find_models(folder).items()}
    assert sorted(files) == ["big", "small"]
    assert [one.draft for one in views(files["big"], files.values())] == [files["small"]]
