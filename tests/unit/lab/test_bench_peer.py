"""The HTTP side of the bench, against a scripted server on loopback: the client, and peers."""

import itertools

import pytest
from bench_measure import BenchJob, ServerArm
from kit.bench_kit import PIECES, TIMINGS, USAGE, FakeClient, job, server
from test_bench_servers import options, run

from uad.base.errors import UnavailableError
from uad.tools.bench.client import Client, Server, Stream
from uad.tools.bench.workloads import WorkloadPrompt


def peer_arm(client, model):
    return ServerArm(Server("peer", client, model, {}), has_slots=False)


def test_a_stream_is_timed_from_its_first_piece_to_its_end():
    stream = Stream(began=0.5)
    for now, chunk in enumerate([*PIECES, USAGE]):
        stream.add(chunk, float(now))
    stream.ended = 9.0
    assert "".join(stream.text) == "abcde."
    assert (stream.first_s, stream.total_s, stream.n_predicted) == (0.5, 8.5, 5)
    assert stream.tps == 4 / 8


def test_a_stream_of_one_token_or_none_has_no_speed():
    stream = Stream(began=1.0, ended=3.0, completion_tokens=1)
    assert (stream.first_s, stream.total_s, stream.tps) == (2.0, 2.0, 0.0)


def test_what_uad_says_of_its_drafts_is_kept():
    stream = Stream()
    for chunk in (PIECES[1], {**TIMINGS, "uad": {"rounds": 3}}, USAGE):
        stream.add(chunk, 1.0)
    assert stream.uad == {"rounds": 3}


def test_a_server_that_tells_no_count_is_refused():
    stream = Stream()
    for chunk in PIECES:
        stream.add(chunk, 1.0)
    with pytest.raises(UnavailableError, match="completion_tokens"):
        _ = stream.tps


@pytest.mark.parametrize(
    "chunk",
    [{}, {"choices": None}, {"choices": [None]}, {"choices": [{"delta": None}]}, {"usage": None, "timings": None}],
)
def test_odd_chunks_are_passed_over(chunk):
    stream = Stream()
    stream.add(chunk, 1.0)
    assert stream.first is None
    assert stream.text == []


def test_peer_sends_the_prompt_by_its_kind():
    with server([*PIECES, TIMINGS]) as (url, seen):
        client = Client(url, "secret")
        arm = peer_arm(client, client.first_model())
        arm.run([BenchJob(WorkloadPrompt("a", "hello", True), 0.5, 7, 20)])
        arm.run([BenchJob(WorkloadPrompt("b", "def f", False), 0.5, 7, 20)])
    assert seen[0] == ("/v1/models", None, "Bearer secret")
    (chat, chat_body, key), (raw, raw_body, _) = seen[1:]
    assert (chat, raw, key) == ("/v1/chat/completions", "/v1/completions", "Bearer secret")
    assert chat_body.pop("messages") == [{"role": "user", "content": "hello"}]
    assert raw_body.pop("prompt") == "def f"
    assert chat_body == raw_body
    assert chat_body == {
        "model": "their-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "seed": 7,
        "max_tokens": 20,
    }


def test_several_jobs_share_the_wall_time():
    times = itertools.count(1.0)
    with server([*PIECES, USAGE]) as (url, _):
        result = peer_arm(Client(url, clock=lambda: next(times)), "m").run([job("a"), job("b"), job("c")])
    n_times = 3 * (2 + len(PIECES) + 1)  # of each the beginning, its chunks and the end
    assert result.tps == 15 / (n_times - 1)
    assert [answer.text for answer in result.answers] == ["abcde."] * 3


def test_peer_rows(tmp_path):
    with server([*PIECES, TIMINGS]) as (url, _):
        line, _ = run(options(tmp_path, "--vs", url, "--prompts", "2", "--temperature", "0,1"), FakeClient())
    rows = [(cell["policy"], cell["draft"], cell["temperature"], cell["same_text"]) for cell in line["cells"]]
    assert rows == [
        ("auto", "small", 0, True),
        ("peer", None, 0, False),
        ("auto", "small", 1, True),
        ("peer", None, 1, None),
    ]
    peer = line["cells"][1]
    assert (peer["target"], peer["accept_rate"], peer["tokens_per_decode"]) == ("big", 0.25, None)
    assert (line["worst"], line["geomean"]) == (2, 2)


def test_peer_with_another_text_is_not_the_same(tmp_path):
    with server([{"choices": [{"delta": {"content": "xyz"}}]}, TIMINGS]) as (url, _):
        line, text = run(options(tmp_path, "--peer", url, "--prompts", "1", draft=False), FakeClient())
    assert [(cell["policy"], cell["same_text"]) for cell in line["cells"]] == [("peer", False)]
    assert (line["worst"], line["geomean"]) == (None, None)
    assert "--exact" not in text


def test_peer_errors_name_the_address():
    with server([], status=401) as (url, _), pytest.raises(UnavailableError, match=r"/v1/models answered 401"):
        Client(url).first_model()
    with (
        server([{"error": {"message": "out of luck"}}]) as (url, _),
        pytest.raises(UnavailableError, match="out of luck"),
    ):
        Client(url).stream("/v1/completions", {})
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1/v1/models .*; does a server run there\?"):
        Client("http://127.0.0.1:1").first_model()


def test_a_long_line_is_one_chunk_and_what_is_no_json_is_said():
    long = {"choices": [{"delta": {"content": "x" * 300_000}}]}
    with server([long, USAGE]) as (url, _):
        assert len("".join(Client(url).stream("/v1/completions", {}).text)) == 300_000
    with (
        server([], answer=b"data: {\n\n") as (url, _),
        pytest.raises(UnavailableError, match=r"/v1/completions failed: "),
    ):
        Client(url).stream("/v1/completions", {})


def test_one_of_several_requests_that_fails_ends_them_all():
    with (
        server([{"error": {"message": "out of luck"}}]) as (url, _),
        pytest.raises(UnavailableError, match="out of luck"),
    ):
        Client(url).streams([("/v1/completions", {})] * 3)
