"""What is rendered of the documents of `make table`, and of `uad check`: README's section, docs/same-text.md."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import check_table
import pytest
from check_table import Kept, Sums, with_new
from speed_cells import (
    FIRST_TOKEN,
    IK,
    PLAIN,
    SERVER,
    UAD,
    Cell,
    Document,
    Machine,
    Record,
    Settings,
    Versions,
    read,
    rival,
)
from speed_text import END, details, lines, report, section, summary, verdict, with_section

from uad.base.errors import ConfigError

ROOT = Path(__file__).parents[3]
MOD, CACHE = rival("ngram-mod"), rival("ngram-cache")
EPYC = Machine("AMD EPYC", 2, ("AVX2", "AVX512", "AVX512_BF16", "REPACK"), 25.3, "Linux")
XEON = Machine("Intel Xeon Platinum", 8, ("AVX2", "AVX512", "AMX_INT8"), 64.0, "Linux")
VERSIONS = Versions("0.1.0", "abc1234", "0.3.36", "0.5.0 (build 1), built here", "3.12.1")
PROMPTS = (("coding", "one"), ("editing", "two"))


def record(number: int, weights: str, slots: int, seconds: dict[str, tuple[float, float]], group: int = 0) -> Record:
    """Of each server the seconds that its two answers of 11 tokens took from the first token on; the first takes 1 s.
    All texts are the same but that of llama-server with drafts.
    """
    replies = {
        name: tuple((11, 1.0, 1.0 + one, "other" if "," in name and name != PLAIN else "text") for one in both)
        for name, both in seconds.items()
    }
    return Record(Cell(number, weights, slots), group, PROMPTS, replies)


def measured(uad: float, server: float = 1.0, mod: float = 1.0) -> dict[str, tuple[float, float]]:
    """uad twice as slow with the first prompt as with the second."""
    return {UAD: (2 * uad, uad), PLAIN: (1.0, 1.0), SERVER: (server, server), MOD: (mod, mod), CACHE: (2.0, 2.0)}


def first_token(servers: Iterable[str], seconds: float) -> Record:
    """A long prompt, of whose answer only the first token is timed: llama-server's takes twice as long."""
    replies = {name: ((4, seconds * (1 + (name == SERVER)), 9.0, "text"),) for name in servers}
    return Record(Cell(0, "BF16", 1), 1, ((FIRST_TOKEN, "2,000 tokens"),), replies)


def document(records: tuple[Record, ...], machine: Machine = EPYC, passes: int = 1) -> Document:
    weights = tuple(dict.fromkeys(one.cell.weights for one in records))
    slots = tuple(dict.fromkeys(one.cell.n_slots for one in records))
    settings = Settings(weights, slots, ("ngram-mod", "ngram-cache", "draft-simple"), 1, passes, 11)
    return Document(machine, VERSIONS, settings, "2026-11-26", 1, records, {"draft-simple": "another vocabulary"})


def test_the_pages_have_the_tables_that_are_made_of_the_documents() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = section(read(list((ROOT / "lab" / "speed").glob("*.json"))))
    assert with_section(text, made) == text, "python lab/speed_table.py --readme makes it anew"
    page = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    made = details(read(list((ROOT / "lab" / "speed").glob("*.json"))))
    assert with_section(page, made) == page, "python lab/speed_table.py --readme makes it anew"


def test_the_page_on_the_same_text_has_the_table_that_is_made_of_what_was_checked() -> None:
    text = check_table.PAGE.read_text(encoding="utf-8")
    made = check_table.table(check_table.read(check_table.CHECKS))
    assert with_section(text, made, check_table.BEGIN, check_table.END) == text, "python lab/check_table.py makes it"


def test_ratios_are_those_of_the_speeds_beside_them() -> None:
    (line,) = lines(document((record(0, "BF16", 1, measured(uad=0.5)),)))
    assert line.tps[UAD] == pytest.approx((10 * 20) ** 0.5)
    assert line.tps[SERVER] == pytest.approx(10.0)
    assert line.over == pytest.approx(line.tps[UAD] / line.tps[SERVER])
    assert line.whole == pytest.approx((2 / 2 * 2 / 1.5) ** 0.5), "with the second to the first token"
    assert line.categories == pytest.approx({"coding": 1.0, "editing": 2.0})
    assert line.worst_category == ("coding", pytest.approx(1.0))
    assert line.worst_prompt == ("coding, one", pytest.approx(1.0))
    assert line.best is not None
    assert line.best == (MOD, pytest.approx(line.tps[UAD] / line.tps[MOD])), "the fastest of llama-server's own"
    assert (line.n_same, line.n_prompts) == (2, 2), "llama-server's texts do not count"


def test_several_requests_at_once_count_from_the_request_on_not_from_the_first_token() -> None:
    one, four = (lines(document((record(0, "Q8_0", n, measured(0.5)),)))[0] for n in (1, 4))
    assert one.over == pytest.approx(2**0.5)  # 1.0 and 0.5 s for ten tokens, against 1.0
    assert four.over == four.whole == one.whole == pytest.approx((2 / 1.5) ** 0.5)
    assert four.tps[SERVER] == pytest.approx(11 / 2)
    assert four.worst_prompt == ("coding, one", 1.0)


def test_each_server_counts_with_the_median_of_its_passes() -> None:
    passes = (measured(uad=0.5), measured(uad=5.0), measured(uad=0.5))
    (line,) = lines(document(tuple(record(i, "BF16", 1, one) for i, one in enumerate(passes)), passes=3))
    assert line.over == pytest.approx(2**0.5)


def test_the_section_has_a_row_for_each_cell_and_tells_the_conditions_of_each_processor() -> None:
    epyc = document((record(0, "BF16", 1, measured(0.5)), record(0, "Q8_0", 1, measured(0.72))))
    xeon = document((record(0, "BF16", 4, measured(0.4)),), XEON, passes=3)
    text = section([epyc, xeon])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[2] == (
        "| AMD EPYC, 2 cores, AVX-512 | BF16 | 1 | 10.0 | 10.0 | 14.1 | **1.41** | 1.00 (coding) | 2.00 (editing) |"
    )
    assert rows[3].startswith("|  | Q8_0 | 1 |")
    assert rows[4].startswith("| Intel Xeon Platinum, 8 cores, AMX | BF16 | 4 |")
    assert len(rows) == 5
    assert len({row.count("|") for row in rows}) == 1
    assert "- AMD EPYC, 2 cores, AVX-512: 25 GB, Linux. 12 prompts in twelve categories, greedy, answers of" in text
    assert "one pass. uad 0.1.0 (abc1234), llama.cpp of llama-cpp-python 0.3.36, 2026-11-26." in text
    assert "medians of 3 passes" in text


def test_a_server_that_was_not_measured_leaves_its_cells_empty() -> None:
    seconds = {name: both for name, both in measured(0.5).items() if name not in (MOD, CACHE)}
    found = document((record(0, "BF16", 1, seconds),))
    alone = replace(found, settings=replace(found.settings, rivals=()))
    assert "| 10.0 |  | 10.0 | 14.1 | **1.41** |" in summary([(alone, lines(alone))])


def test_ik_llama_cpp_has_a_column_where_it_was_measured() -> None:
    seconds = measured(0.5) | {IK: (0.8, 0.8)}
    found = document((record(0, "BF16", 1, seconds), first_token(seconds, 3.0)))
    found = replace(found, versions=replace(VERSIONS, ik_llama_cpp="4567 (abc)"))
    assert "| BF16 | 1 | 10.0 | 12.5 | 10.0 | 14.1 | **1.41** |" in section([found])
    assert "llama-cpp-python 0.3.36, ik_llama.cpp 4567 (abc), 2026-11-26." in section([found])
    assert (
        "| weights | prompt | uad | uad, no draft | llama-server | ik_llama.cpp | llama-server over uad |"
        in details([found])
    )
    assert "| BF16 | 2,000 tokens | 3.00 | 3.00 | 6.00 | 3.00 | **2.00** |" in details([found])
    assert "first token" not in section([found]), "no category"


def test_documents_of_one_processor_have_headings_of_their_own() -> None:
    one, other = (document((record(0, weights, 1, measured(0.5)),)) for weights in ("BF16", "Q8_0"))
    heads = [line for line in details([one, other]).splitlines() if line.startswith("### ")]
    assert heads == ["### AMD EPYC, 2 cores, AVX-512, BF16", "### AMD EPYC, 2 cores, AVX-512, Q8_0"]


def test_it_says_in_plain_words_for_whom_it_pays() -> None:
    cells = {("BF16", 1): 0.5, ("Q8_0", 1): 0.6, ("BF16", 4): 0.7, ("Q4_K_M", 1): 0.72, ("Q4_K_M", 4): 0.9}
    records = tuple(record(0, weights, n, measured(uad)) for (weights, n), uad in cells.items())
    assert verdict(EPYC, lines(document(records))) == (
        "**AMD EPYC, 2 cores, AVX-512**: it pays for BF16 and Q8_0, one request at a time; most in editing. "
        "It changes little for Q4_K_M, one request at a time; for BF16, 4 requests at once. "
        "It costs speed for Q4_K_M, 4 requests at once. "
        "llama-server's best draft type is faster for Q4_K_M, 4 requests at once."
    )


def test_where_nothing_is_gained_it_says_so() -> None:
    found = lines(document((record(0, "BF16", 1, measured(0.72, mod=0.5)),)))
    assert verdict(EPYC, found) == (
        "**AMD EPYC, 2 cores, AVX-512**: it pays for nothing that was measured. It changes little for BF16, one "
        "request at a time. llama-server's best draft type is faster for BF16, one request at a time."
    )


def test_no_sentence_of_it_is_too_long_for_the_readme() -> None:
    records = tuple(
        record(0, weights, n, measured(uad)) for uad in (0.5,) for weights in ("BF16", "Q8_0", "Q4_K_M") for n in (1, 4)
    )
    text = section([document(records), document(records, XEON)])
    prose = " ".join(line for line in text.splitlines() if not line.startswith("|"))
    assert max(len(one.split()) for one in re.split(r"[.:;] ", prose)) <= 30


def test_a_document_is_read_as_it_was_written() -> None:
    found = document((record(0, "BF16", 1, measured(0.5)), record(0, "Q8_0", 4, measured(0.6))))
    assert Document.loads(found.dumps(), "it") == found
    assert found.dumps().count("\n") == 13, "a line for each group: what changed is seen"


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is no document"), ('{"format": 1}', "is no document"), ('{"format": 9}', "has format 9")],
)
def test_what_is_no_document_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"it.json {message}"):
        Document.loads(text, "it.json")


def test_a_page_without_the_marks_is_left_alone() -> None:
    with pytest.raises(ConfigError, match="write the lines"):
        with_section("# uad\n", "a table")
    with pytest.raises(ConfigError, match="write the lines"):
        with_section(f"# uad\n{END}\n", "a table")


def test_the_report_has_every_server_every_category_and_what_was_left_out() -> None:
    text = report(document((record(0, "BF16", 1, measured(0.5)),)))
    assert "- draft-simple of llama-server is left out: another vocabulary" in text
    assert "| coding | 1.00 (1.00) |" in text
    assert "| worst prompt | 1.00, coding, one |" in text
    assert "| texts as without drafts | 2 of 2 |" in text
    assert "| llama-server, ngram-cache | 5.0 |" in text
    assert "uad 0.1.0, commit abc1234; Python 3.12.1" in text
    assert "Nothing is measured yet." in report(document(()))


# --- uad check

WAY = {
    "exact": False,
    "promised": False,
    "any_batch": False,
    "rows": [{"n_ids": 100, "n_other": 0, "most": 0.0}, {"n_ids": 900, "n_other": 300, "most": 0.25}],
    "prompts": [{"n_ids": 8, "n_other": 0, "is_small": False}, {"n_ids": 8, "n_other": 8, "is_small": True}],
    "texts": [{"n_texts": 2, "n_same": 1}],
}
EXACT = {
    "exact": True,
    "promised": True,
    "any_batch": True,
    "rows": [{"n_ids": 1000, "n_other": 0, "most": 0.0}],
    "prompts": [{"n_ids": 0, "n_other": 0, "is_small": True}],
    "texts": [{"n_texts": 4, "n_same": 4}],
}
FOUND = {"target": "tiny", "draft": None, "weights": {"F16": 43, "F32": 1}, "ways": [WAY, EXACT], "holds": True}


def test_what_was_checked_is_a_row_with_promises_in_bold() -> None:
    kept = Kept.of(FOUND, "AMD EPYC, 2 cores, AVX-512", "2026-11-26")
    assert kept.plain == Sums(False, 1000, 300, 0.25, 8, 0, 2, 1), "prompts that nothing is promised of do not count"
    text = check_table.table([kept, replace(kept, target="broken", holds=False, date="2026-11-28")])
    assert (
        "| tiny | look-ups | 43 F16, 1 F32 | 300 of 1,000 differ | 8 equal | 1 of 2 differ | **1,000 equal** | "
        "not reached | **4 equal** | yes |"
    ) in text
    assert "| **no** |" in text
    assert text.endswith("Checked on AMD EPYC, 2 cores, AVX-512, 2026-11-26 to 2026-11-28.")
    assert check_table.table([]) == ""


def test_where_exact_changes_nothing_the_plain_way_is_the_only_one(tmp_path: Path) -> None:
    plain = WAY | {"promised": True, "any_batch": True}
    kept = Kept.of(FOUND | {"ways": [plain]}, "AMD EPYC", "2026-11-28")
    assert kept.plain.prompts == 16, "small parts of prompts are promised, too"
    assert "| as plain | as plain | as plain | yes |" in check_table.table([kept])
    check_table.write([kept], tmp_path / "checks.jsonl")
    assert check_table.read(tmp_path / "checks.jsonl") == [kept]


def test_a_target_that_is_checked_again_takes_its_old_place(tmp_path: Path) -> None:
    one = Kept.of(FOUND, "A", "2026-11-26")
    kept = [one, replace(one, target="other")]
    again = replace(one, date="2026-11-27")
    path = tmp_path / "checks.jsonl"
    check_table.write(with_new(kept, [again, replace(one, processor="B")]), path)
    assert check_table.read(path) == [again, kept[1], replace(one, processor="B")]


@pytest.mark.parametrize("found", [{}, {"ways": [WAY]}, {"ways": [WAY, EXACT]}])
def test_what_is_no_answer_of_uad_check_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="no answer of uad check"):
        Kept.of(found, "A", "2026-11-26")
