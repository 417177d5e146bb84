"""What `scripts/clients.py` makes of the results of clients. Runs none."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import clients  # noqa: E402


def line(what: str, error: str = "") -> str:
    return json.dumps({"client": "c", "version": "1", "what": what, "error": error})


def test_results_are_read_among_other_lines() -> None:
    found = clients.read(f"hello\n{line('one')}\n{line('two', 'E: no')}\n{{}}\n")
    assert [(one.what, one.verdict, one.error) for one in found] == [
        ("one", clients.OK, ""),
        ("two", clients.FAILED, "E: no"),
    ]


def test_only_what_fails_on_the_peer_too_is_the_models() -> None:
    ours = clients.read("\n".join([line("both", "E"), line("ours", "E"), line("none")]))
    peers = clients.read("\n".join([line("both", "F"), line("ours"), line("none", "F")]))
    assert [one.verdict for one in clients.judged(ours, peers)] == [clients.MODEL, clients.FAILED, clients.OK]


def test_an_error_stays_in_its_line_of_the_table() -> None:
    assert clients.table(clients.read(line("one", "E: a | b\nc"))).splitlines()[2:] == [
        "| c | 1 | one | failed: E: a \\| b c |"
    ]


def test_a_client_has_one_row_with_what_fails() -> None:
    other = json.dumps({"client": "d", "version": "recorded", "what": "x", "error": ""})
    found = clients.read("\n".join([line("one"), line("a|b", "E"), other, line("two"), line("c", "E")]))
    assert clients.summary(found).splitlines()[2:] == [
        "| c | 1 | 2 of 4 ok | a\\|b (failed); c (failed) |",
        "| d | recorded | 1 of 1 ok |  |",
    ]


def test_a_client_that_cannot_be_installed_is_told_as_not_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no npm
    for name in ("ai_sdk", "coding_agents"):
        (one,) = clients.results_of(name, "http://127.0.0.1:9", tmp_path)
        assert one.verdict == clients.NOT_RUN
        assert "npm" in one.error


def test_the_table_in_the_docs_has_the_versions_that_are_installed() -> None:
    pinned = dict(
        re.findall(r"^(\S+)==(\S+)$", (clients.CHECKS / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    lock = json.loads((clients.CHECKS / "package-lock.json").read_text(encoding="utf-8"))
    pinned["ai"] = lock["packages"]["node_modules/ai"]["version"]
    pinned["ollama-js"] = lock["packages"]["node_modules/ollama"]["version"]
    agents = json.loads((clients.CHECKS / clients.AGENTS / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    pinned["codex"] = agents["node_modules/@openai/codex"]["version"]
    pinned["claude-code"] = agents["node_modules/@anthropic-ai/claude-code"]["version"]
    pinned["opencode"] = agents["node_modules/opencode-ai"]["version"]
    rows = re.findall(
        r"^\| (\S+) \| (\d+\.\d\S*) \|", (ROOT / "docs" / "clients.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) == len(dict(rows)) == 17
    assert all(pinned[name] == version for name, version in rows)
