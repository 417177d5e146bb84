"""What `uad inspect --measure` makes of answers: ratios, how sure they are, and what it says."""

import io
import json
import math
from dataclasses import replace

import pytest
from kit.bench_kit import PIECES, TIMINGS, USAGE, server

from uad.base.errors import ConfigError
from uad.tools.bench.answers import Asked
from uad.tools.bench.client import Client, Stream
from uad.tools.bench.gain import Gain, bundled_prompts, chunks, gains, interval, measure, prompts_of, verdict
from uad.tools.bench.workloads import Workload, WorkloadPrompt


def reply(seconds, n=11, text="text"):
    return (Stream(0.0, [text], 1.0, 1.0 + seconds, n, {"draft_n": 8, "draft_n_accepted": 6}),)


def test_a_row_for_each_kind_and_one_for_all():
    asked = [
        Asked("chat", "a", (reply(1.0), reply(2.0))),
        Asked("chat", "b", (reply(1.0), reply(8.0))),
        Asked("code", "c", (reply(1.0), reply(1.0, text="other"))),
        Asked("code", "too short", (reply(0.0, 1), reply(1.0))),
    ]
    chat, code, every = gains(asked)
    assert (chat.kind, chat.n_prompts, chat.n_tokens, chat.accept_rate, chat.same_text) == ("chat", 2, 22, 0.75, True)
    assert (chat.ratio, chat.tps, chat.plain_tps) == (pytest.approx(4), pytest.approx(10), pytest.approx(2.5))
    assert (code.ratio, code.low, code.high, code.same_text) == (1, None, None, False)
    assert (every.kind, every.n_prompts, every.ratio) == ("all", 3, pytest.approx(16 ** (1 / 3)))
    assert [one.kind for one in gains(asked[:2])] == ["chat"]


def test_the_interval_is_students_of_the_logarithms():
    low, high = interval([1.0, 4.0])
    reach = 12.71 * math.log(4) / 2
    assert (low, high) == (pytest.approx(2 * math.exp(-reach)), pytest.approx(2 * math.exp(reach)))
    assert interval([2.0]) == (None, None)
    assert interval([2.0, 2.0, 2.0]) == (pytest.approx(2), pytest.approx(2))


@pytest.mark.parametrize(("n", "t"), [(11, 2.228), (12, 2.201), (21, 2.086), (61, 2.000)])
def test_quantiles_beyond_the_table_are_those_of_the_books(n, t):
    ratios = [math.exp(1 if i % 2 else -1) for i in range(n)]
    low, high = interval(ratios)
    logs = [1 if i % 2 else -1 for i in range(n)]
    mean = sum(logs) / n
    error = math.sqrt(sum((one - mean) ** 2 for one in logs) / (n - 1) / n)
    assert math.log(high / low) / 2 / error == pytest.approx(t, abs=3e-3)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.2, 1.8, "1.50 times as fast on this machine (1.20 to 1.80 with 95 % confidence; 12 prompts"),
        (0.9, 1.8, "no difference is sure: with drafts decoding is 1.50 times"),
        (0.7, 0.9, "drafting does not pay on this machine"),
        (None, None, "too few to say how sure"),
    ],
)
def test_the_verdict_says_how_sure_it_is(low, high, words):
    gain = Gain("all", 12, 100, 1.0, 1.5, 1.5, low, high, 0.5, True)
    assert words in verdict(gain)
    assert "1 prompt," in verdict(replace(gain, n_prompts=1))


def test_each_prompt_is_answered_with_drafts_and_without(tmp_path):
    out = io.StringIO()
    given = [Workload("mine", "", (WorkloadPrompt("a", "one", False), WorkloadPrompt("b", "two", False)))]
    with server([*PIECES, TIMINGS, USAGE]) as (url, seen):
        measure(Client(url), given, out, io.StringIO(), as_json=True)
        measure(Client(url), given, out, io.StringIO(), as_json=False)
    bodies = [body for path, body, _ in seen if path == "/v1/completions"]
    counted = [(body["prompt"], body.get("speculative")) for body in bodies if body["max_tokens"] == 64]
    off = {"enabled": False}
    assert counted[:4] == [("one", None), ("one", off), ("two", off), ("two", None)]
    line, *table = out.getvalue().splitlines()
    (gain,) = json.loads(line)["gains"]
    assert (gain["kind"], gain["n_prompts"], gain["same_text"]) == ("mine", 2, True)
    assert any("mine" in row and "25%" in row for row in table)


def test_answers_that_are_too_short_are_an_error():
    with (
        server([*PIECES[:2], {"usage": {"completion_tokens": 1}}]) as (url, _),
        pytest.raises(ConfigError, match="time"),
    ):
        measure(Client(url), [bundled_prompts()[0].head(1)], io.StringIO(), io.StringIO(), as_json=True)


def test_a_text_is_continued_in_pieces(tmp_path):
    path = tmp_path / "text.md"
    path.write_text("words and words\n" * 200)
    (workload,) = prompts_of(path)
    assert len(workload.prompts) == 4
    assert all(300 < len(prompt.text) <= 400 and not prompt.chat for prompt in workload.prompts[:3])
    assert "".join(chunks(path.read_text(), 800, 12)) == path.read_text()
    path.write_text(" \n")
    with pytest.raises(ConfigError, match="holds no text"):
        prompts_of(path)
