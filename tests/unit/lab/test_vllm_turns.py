"""The tables of uad's drafts inside vLLM (docs/vllm.md)."""

from __future__ import annotations

from vllm_turns import DRAFTED, NGRAM, OWN, OWN_PLAIN, PLAIN, Record, Reply, margin, tables


def reply(n: int, seconds: float, texts: tuple[str, ...], drafted: int = 0, accepted: int = 0, steps: int = 0) -> Reply:
    return Reply(n, seconds, drafted, accepted, steps, texts)


def record(prompts: tuple[str, ...], seconds: dict[str, float], texts: dict[str, tuple[str, ...]]) -> Record:
    """Answers of ten tokens each; uad's drafts are eight, of which six are accepted, in four steps."""
    n = 10 * len(prompts)
    counts = {DRAFTED: (8, 6, 4)}
    replies = {
        name: reply(n, seconds.get(name, 2.0), texts.get(name, ("abc",) * len(prompts)), *counts.get(name, (0, 0, n)))
        for name in (PLAIN, NGRAM, DRAFTED, OWN, OWN_PLAIN)
    }
    return Record(0.0, len(prompts), prompts, replies)


def row(lines: list[str], name: str) -> list[str]:
    found = next(line for line in lines if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_speeds_are_over_vllm_in_the_same_turn_and_the_worst_group_is_named() -> None:
    records = [record(("a",), {DRAFTED: 1.0}, {}), record(("b",), {DRAFTED: 4.0}, {DRAFTED: ("xyz",)})]
    lines = list(tables(records))
    assert row(lines, DRAFTED) == [DRAFTED, "4.0", "1.00", "0.50", "12 of 16", "2.50", "1"]
    assert row(lines, PLAIN) == [PLAIN, "5.0", "1.00", "1.00", "", "1.00", "2"]


def test_it_counts_how_many_texts_of_vllm_alone_change_with_the_number_of_requests() -> None:
    alone = [record((name,), {}, {}) for name in ("a", "b")]
    both = record(("a", "b"), {}, {PLAIN: ("abc", "other")})
    assert list(tables([*alone, both]))[-1].endswith("1 of 2 texts are those that it wrote alone.")


def test_the_margin_is_that_of_the_first_token_that_differs() -> None:
    tokens = [
        {"token": "a", "bytes": [97], "top_logprobs": [{"logprob": -0.1}, {"logprob": -4.0}]},
        {"token": "é", "bytes": [0xC3, 0xA9], "top_logprobs": [{"logprob": -0.7}, {"logprob": -0.75}]},
    ]
    answer = {"choices": [{"logprobs": {"content": tokens}}]}
    assert margin(answer, "ae").startswith("0.050 nats")
    assert "wrote this text too" in margin(answer, "aé")
