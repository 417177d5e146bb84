"""`uad bench requests` against scripted servers: turns, medians, prompts of wanted lengths, errors."""

import io
import json

import pytest
from kit.bench_kit import PIECES, TIMINGS, USAGE, server

from uad.base.errors import ConfigError, UnavailableError
from uad.tools.bench.answers import Asked, rows
from uad.tools.bench.client import Client, Stream
from uad.tools.bench.requests import PLAIN, PromptMaker, Size, SizeRow, main, summary, table

CHUNKS = [*PIECES, TIMINGS, USAGE]


def run(url, *argv):
    out = io.StringIO()
    assert main([url, *argv], out, io.StringIO()) == 0
    return out.getvalue()


def asked(seen):
    return [body for path, body, _ in seen if path == "/v1/chat/completions"]


def test_every_prompt_goes_to_each_server_in_turn_and_to_ours_without_drafts_too():
    with server(CHUNKS) as (url, seen), server(CHUNKS) as (other, others):
        line = json.loads(run(url, "--vs", other, "--sizes", "200+5,900+5", "--repeats", "3").splitlines()[-1])
    mine, theirs = asked(seen), asked(others)
    assert [len(mine), len(theirs)] == [14, 7]
    assert all(
        body["max_tokens"] in (5, 8) and body["ignore_eos"] and not body["cache_prompt"] for body in mine + theirs
    )
    texts = [body["messages"][0]["content"] for body in mine + theirs]
    assert len(set(texts)) == len(texts), "none may be in a cache"
    for text in [one for body in mine[2:] if (one := body["messages"][0]["content"])]:
        n = len(text.partition(" ")[2].removeprefix("draft ").encode())
        assert min(abs(n - 200) / 200, abs(n - 900) / 900) <= 0.02
    assert sum("speculative" in body for body in mine) == 7
    assert line["over"].keys() == {PLAIN, "peer"}
    assert [(cell["prompt"], cell["predict"]) for cell in line["requests"]] == [(200, 5), (900, 5)]
    assert all(cell["first_s"]["uad"] <= cell["total_s"]["uad"] for cell in line["requests"])


def test_an_answer_of_another_length_is_no_measurement():
    with (
        server(CHUNKS) as (url, _),
        pytest.raises(UnavailableError, match="answered with 5 tokens where 6 were asked for"),
    ):
        run(url, "--sizes", "200+6", "--repeats", "1")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["http://127.0.0.1:1", "--sizes", "12"], "--sizes: write tokens .*, not '12'"),
        (["http://127.0.0.1:1", "--sizes", "0+4"], "--sizes"),
        (["http://127.0.0.1:1", "--repeats", "0"], "--repeats"),
        (["http://127.0.0.1:1", "--temperature", "hot"], "--temperature"),
        (["ftp://x"], "http:// or https://"),
    ],
)
def test_wrong_flags_are_named(argv, message):
    with pytest.raises(ConfigError, match=message.replace("+", "[+]")):
        run(*argv)


def test_ratios_are_speeds_over_the_others():
    servers = [type("S", (), {"name": name})() for name in ("uad", PLAIN, "peer")]
    rows = [
        SizeRow(Size(32, 200), (1.0, 1.0, 2.0), (2.0, 3.0, 1.0)),
        SizeRow(Size(400, 16), (1.0, 0.5, 0.5), (4.0, 4.0, 4.0)),
    ]
    over = summary(servers, rows)["over"]
    assert over["peer"] == {
        "first_worst": 0.5,
        "total_worst": 0.5,
        "first_geomean": 1.0,
        "total_geomean": pytest.approx(0.7071),
    }
    assert over[PLAIN]["total_geomean"] == pytest.approx(1.2247)
    assert len(table(servers, rows).columns) == 11


@pytest.mark.parametrize("n_tokens", [32, 700, 90_000])
def test_prompts_have_the_wanted_length_and_differ(n_tokens):
    with server(CHUNKS) as (url, _):
        prompts = PromptMaker(Client(url))
        one, other = prompts.of(n_tokens), prompts.of(n_tokens)
    assert one != other
    assert abs(len(one.encode()) - n_tokens) <= 0.02 * n_tokens + 1


def test_prompts_of_workloads_go_to_each_server_in_turn():
    with server(CHUNKS) as (url, seen), server(CHUNKS) as (other, others):
        text = run(
            url,
            "--vs",
            other,
            "--workload",
            "coding,qa",
            "--prompts",
            "2",
            "-n",
            "7",
            "--repeats",
            "2",
            "--thinking",
            "off",
        )
    line = json.loads(text.splitlines()[-1])
    mine, theirs = asked(seen), asked(others)
    assert [len(mine), len(theirs)] == [2 * (1 + 2 * 2 * 2), 1 + 2 * 2 * 2]
    assert all(body["max_tokens"] == 7 and not body["cache_prompt"] for body in theirs[1:])
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in theirs[1:])
    prompts = [body["messages"][0]["content"] for body in theirs[1:]]
    assert prompts[:4] == prompts[4:], "each repeat asks for all of them once"
    assert sum("speculative" in body for body in mine) == len(mine) // 2
    assert list(line["workloads"]) == ["coding", "qa", "first answers", "all"]
    assert line["workloads"]["qa"]["tps"].keys() == {"uad", PLAIN, "peer"}
    assert [(one["workload"], one["same_text"]) for one in line["prompts"]] == [
        (name, {PLAIN: True, "peer": True}) for name in ("coding", "qa", "coding", "qa")
    ]
    assert "with the same text as uad: no draft 4, peer 4" in " ".join(text.split())


def test_answers_are_rated_by_their_medians_and_the_worst_prompt_is_named():
    def replies(*seconds):
        return tuple(Stream(0.0, ["text"], 1.0, 1.0 + one, 11) for one in seconds)

    asked = [
        Asked("qa", "first", (replies(1.0, 5.0, 1.0), replies(2.0, 2.0, 9.0))),
        Asked("qa", "second", (replies(2.0), replies(1.0))),
        Asked("math", "third", (replies(1.0), replies(4.0))),
        Asked("math", "of one token", (replies(0.0), replies(1.0))),
    ]
    qa, math, first, every = rows(asked)
    assert qa.decoding == pytest.approx((1.0,)), "one prompt twice as fast, one half"
    assert qa.worst == (0.5,)
    assert math.decoding == (4.0,)
    assert first.decoding == pytest.approx((1.0,)), "the first two prompts, and their first replies"
    assert every.decoding[0] == pytest.approx(4 ** (1 / 3))
    assert every.whole[0] == pytest.approx((3 / 2 * 2 / 3 * 5 / 2) ** (1 / 3))
