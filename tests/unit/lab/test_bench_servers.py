"""lab/bench_servers.py on a scripted server with known times: turns, arithmetic, the JSON line, and what is refused."""

import io
import json
import re
import struct
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import bench_options
import pytest
from bench_cells import GroupResult, Labels, guessed, is_auto, make_cell, print_table, summarize
from bench_measure import Answer, ArmPair, Measured, Sample, groups, turns
from bench_options import PLAIN, Drafters, Lineup, parse_policy
from bench_servers import bench
from kit.bench_kit import MATRIX, FakeClient, drafts, fixed_ms, job, model_words
from rich.console import Console

from uad.base.config import ModelConfig
from uad.base.errors import ConfigError, UnavailableError
from uad.base.stats import DrafterStats
from uad.base.types import Origin, SpecPolicy, SpeculativeParams
from uad.tools.bench.workloads import bundled, load

KEYS = [
    "target",
    "draft",
    "workload",
    "policy",
    "sequences",
    "temperature",
    "plain_tps",
    "tps",
    "ratio",
    "accept_rate",
    "tokens_per_decode",
    "same_text",
]


def options(folder, *flags, draft=True):
    """The checked command line for model files without anything in them, made in `folder`."""
    return bench_options.parse([*model_words(folder, draft), *flags])


def run(settings, client):
    """Run the bench on this server; its JSON line as a value, and all of stdout."""
    out = io.StringIO()

    @contextmanager
    def serving(words, environ):
        yield client

    assert bench(settings, serving, out, io.StringIO()) == 0
    assert out.getvalue().endswith("}\n")
    return json.loads(out.getvalue().splitlines()[-1]), out.getvalue()


def one(tps, ids=(1, 2), text="ab"):
    return Sample((Answer(ids, text, len(ids)),), tps)


def pairs(plain, arm):
    return tuple(ArmPair(one(a), one(b)) for a, b in zip(plain, arm, strict=True))


# order


def test_turns_alternate():
    assert list(turns(2, 4)) == [0, 1, 1, 0, 0, 1, 1, 0]
    assert list(turns(3, 2)) == [0, 1, 2, 2, 1, 0]
    assert list(turns(3, 2, backwards=True)) == [2, 1, 0, 0, 1, 2]


def test_runs_are_interleaved_per_prompt(tmp_path):
    client = FakeClient()
    run(options(tmp_path, "--prompts", "2"), client)
    first = [False, True, True, False, False, True]
    assert [drafts(body) for body in client.counted] == first + first[::-1]
    prompts = [body["messages"][0]["content"] for body in client.counted]
    assert len(set(prompts[:6])) == 1
    assert len(set(prompts[6:])) == 1
    assert prompts[0] != prompts[6]


def test_warm_up_and_priming_are_not_counted(tmp_path):
    client = FakeClient()
    run(options(tmp_path, "--prompts", "2", "--repeats", "1"), client)
    assert [body["max_tokens"] for body in client.bodies] == [32, 32, 1, 1, 160, 160, 1, 1, 160, 160]


def test_groups_are_full_and_distinct():
    jobs = [job(name) for name in "abcde"]
    assert [[one.prompt.name for one in group] for group in groups(jobs, 2, 2)] == [["a", "b"], ["c", "d"], ["e", "a"]]
    assert [[one.prompt.name for one in group] for group in groups(jobs, 5, 5)] == [list("abcde")]


@pytest.mark.parametrize(
    ("size", "slots"), [(1, [[0], [1], [2], [3], [0]]), (2, [[0, 1], [2, 3], [0, 1]]), (3, [[0, 1, 2], [0, 1, 2]])]
)
def test_groups_share_the_slots_there_are(size, slots):
    """Consecutive ones, which llama.cpp computes together."""
    assert [[one.slot for one in group] for group in groups([job(name) for name in "abcde"], size, 4)] == slots


# arithmetic


def test_ratio_is_the_median_of_the_runs_own_ratios_and_the_geometric_mean_over_prompts():
    first = GroupResult(("a",), pairs((10, 30, 20), (40, 60, 10)))
    second = GroupResult(("b",), pairs((10, 10, 90), (80, 1, 900)))
    assert (first.ratio, second.ratio) == (2, 8)
    cell = make_cell(
        Labels("t", "d", "w", "p", 1, 0.0), [Measured(one.names, (one.runs,)) for one in (first, second)], 0
    )
    assert cell.ratio == pytest.approx(4)
    assert cell.plain_tps == pytest.approx((20 * 10) ** 0.5)
    assert cell.tps == pytest.approx((40 * 80) ** 0.5)
    assert (cell.low, cell.high) == (pytest.approx(2), pytest.approx(8))


def test_cell_of_scripted_engine(tmp_path):
    line, _ = run(options(tmp_path, "--prompts", "3"), FakeClient())
    (cell,) = line["cells"]
    assert (cell["plain_tps"], cell["tps"], cell["ratio"]) == (100, 200, 2)
    assert cell["accept_rate"] == 0.75
    assert cell["tokens_per_decode"] == 2.5


def test_outlier_run_does_not_move_the_median(tmp_path):
    client = FakeClient(lambda body: 4000.0 if len(client.bodies) == 6 else fixed_ms(body))
    line, _ = run(options(tmp_path, "--prompts", "1"), client)
    assert drafts(client.counted[1])
    assert line["cells"][0]["ratio"] == 2


def test_answers_too_short_to_be_timed_are_left_out_and_named(tmp_path):
    first = load("chat").prompts[0].text
    client = FakeClient(text=lambda body: "a" if body["messages"][0]["content"] == first else "abcde")
    line, text = run(options(tmp_path, "--prompts", "3"), client)
    assert line["cells"][0]["ratio"] == 2
    assert "1 of 3 answers were too short" in text


def test_nothing_to_time_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="nothing to time"):
        run(options(tmp_path), FakeClient(text=lambda body: "a"))


# the report


def test_json_schema(tmp_path):
    line, _ = run(
        options(tmp_path, "--policy", "fixed,fixed:4", "--workload", "chat,code", "--temperature", "0,0.8"),
        FakeClient(),
    )
    assert list(line) == ["cells", "worst", "geomean", "policies", "best_fixed", "auto_over_best_fixed"]
    assert all(list(cell) == KEYS for cell in line["cells"])
    labels = [(cell["workload"], cell["temperature"], cell["policy"]) for cell in line["cells"]]
    assert labels == [(w, t, p) for w in ("chat", "code") for t in (0, 0.8) for p in ("fixed", "fixed:4")]
    assert {(cell["target"], cell["draft"], cell["sequences"]) for cell in line["cells"]} == {("big", "small", 1)}
    assert line["worst"] == 2
    assert line["geomean"] == pytest.approx(8**0.5, abs=1e-4)


def test_groups_of_names(tmp_path):
    settings = options(tmp_path, "--policy", "plain,matrix", "--workload", "all")
    assert [policy.name for policy in settings.policies] == [
        "plain",
        "fixed:2",
        "fixed:4",
        "fixed:8",
        "fixed:16",
        "auto",
    ]
    assert tuple(workload.name for workload in settings.workloads) == bundled()
    assert [policy.name for policy in options(tmp_path).policies] == ["auto"]
    with pytest.raises(ConfigError, match="--policy: name each of"):
        options(tmp_path, "--policy", "matrix,auto")


def test_every_target_meets_every_draft(tmp_path):
    line, _ = run(options(tmp_path, "--draft", str(tmp_path / "other.gguf"), "--prompts", "1"), FakeClient())
    assert [(cell["target"], cell["draft"]) for cell in line["cells"]] == [("big", "small"), ("big", "other")]


def test_same_text_is_true_when_ids_agree(tmp_path):
    line, text = run(options(tmp_path, "--prompts", "2"), FakeClient())
    assert line["cells"][0]["same_text"] is True
    assert "not the plain one" not in text


@pytest.mark.parametrize(("text", "at"), [("abXde", 2), ("abcd", 4), ("abcdef", 5)])
def test_same_text_is_false_when_one_drafted_run_differs(tmp_path, text, at):
    client = FakeClient(text=lambda body: text if len(client.bodies) == 6 else "abcde")
    line, shown = run(options(tmp_path, "--prompts", "2", "--verbose"), client)
    assert drafts(client.counted[1])
    assert line["cells"][0]["same_text"] is False
    assert "not the plain one" in shown
    assert f"NO, at character {at}" in shown


def test_same_text_needs_equal_ids_where_they_are_known():
    assert GroupResult(("a",), (ArmPair(one(1, (), "ab"), one(1, (), "ab")),)).same_text
    assert not GroupResult(("a",), (ArmPair(one(1, (1, 2), "ab"), one(1, (3,), "ab")),)).same_text


def test_plain_as_a_policy_measures_the_noise(tmp_path):
    line, _ = run(options(tmp_path, "--policy", "plain", "--prompts", "1"), FakeClient())
    (cell,) = line["cells"]
    assert (cell["policy"], cell["ratio"], cell["accept_rate"], cell["tokens_per_decode"]) == ("plain", 1, None, 1)


def test_table_for_people_and_json_only(tmp_path):
    _, text = run(options(tmp_path, "--prompts", "1"), FakeClient())
    assert all(word in text for word in ("small", "chat", "2.00", "75%", "same text"))
    _, text = run(options(tmp_path, "--prompts", "1", "--json-only"), FakeClient())
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(("ms", "colour"), [(42.0, "31"), (40.0, None), (20.0, "32")])
def test_slower_is_red_and_faster_green(tmp_path, ms, colour):
    stream = io.StringIO()
    cells = [make_cell(Labels("t", "d", "w", "auto", 1, 0.0), [Measured(("a",), (pairs([1e3 / 40], [1e3 / ms]),))], 0)]
    print_table(Console(file=stream, force_terminal=True, width=200), cells)
    shown = f"{40 / ms:.2f}"
    assert set(re.findall(rf"\x1b\[(3\d)m{re.escape(shown)}", stream.getvalue())) == ({colour} if colour else set())


def test_lines_under_the_table(tmp_path):
    _, text = run(options(tmp_path, "--policy", "fixed,fixed:4", "--workload", "chat,code"), FakeClient())
    assert "fixed:4: geometric mean 4.00 over 2 cells, worst 4.00 (big, small, chat, 1 at once, temperature 0)" in text


def test_a_line_says_whose_guesses_were_accepted():
    by = (DrafterStats(Origin.MODEL, 1, 1, 10, 5), DrafterStats(Origin.SUFFIX, 1, 1, 4, 4))
    answer = Answer((1,), "a", 1, by=by)
    arm = Sample((answer,), 40.0)
    cell = make_cell(Labels("t", "d", "w", "auto", 1, 0.0), [Measured(("a",), ((ArmPair(arm, arm),),))], 0)
    (line,) = guessed([cell])
    assert line.plain == "auto, guesses accepted: draft model 5 of 10 (50%), look-up 4 of 4 (100%)"


def test_cost_emulation_is_said(tmp_path):
    settings = options(tmp_path, "--prompts", "1")
    assert "cost emulation" not in run(settings, FakeClient())[1]
    key = b"uad.cost_emulation"  # one value: a boolean, as lab/scale.py writes it
    value = struct.pack("<Q", len(key)) + key + struct.pack("<I?", 7, True)
    (tmp_path / "big.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + value)
    assert "big: a cost emulation" in run(settings, FakeClient())[1]


# requests


def test_requests_carry_policy_seed_and_slot(tmp_path):
    client = FakeClient()
    flags = (
        "--policy",
        "fixed:8:0.25",
        "--temperature",
        "0.7",
        "--seed",
        "40",
        "--sequences",
        "2",
        "--prompts",
        "2",
        "--repeats",
        "1",
        "-n",
        "20",
    )
    run(options(tmp_path, *flags), client)
    plain, drafted = client.bodies[-4:-2], client.bodies[-2:]
    assert [body["speculative"] for body in plain] == [{"enabled": False}] * 2
    assert drafted[0]["speculative"] == {"policy": "fixed", "n_max": 8, "p_min": 0.25, "types": ["draft-simple"]}
    assert [(body["seed"], body["temperature"], body["id_slot"], body["max_tokens"]) for body in drafted] == [
        (40, 0.7, 0, 20),
        (41, 0.7, 1, 20),
    ]
    assert all(
        {**one, "speculative": 0} == {**other, "speculative": 0} for one, other in zip(plain, drafted, strict=True)
    )


def test_an_error_of_the_server_ends_the_run(tmp_path):
    client = FakeClient()
    client.streams = lambda requests: (_ for _ in ()).throw(UnavailableError("no"))
    with pytest.raises(UnavailableError):
        run(options(tmp_path), client)


# options


def test_policies():
    assert parse_policy("plain") is PLAIN
    fixed = SpeculativeParams(policy=SpecPolicy.FIXED)
    assert parse_policy("fixed").speculative == fixed
    assert parse_policy("fixed:4").speculative == replace(fixed, n_max=4)
    assert parse_policy("fixed:16:0.5").speculative == replace(fixed, n_max=16, p_min=0.5)
    assert parse_policy("auto").speculative == SpeculativeParams(policy=SpecPolicy.AUTO)
    assert parse_policy("auto:8").speculative == SpeculativeParams(policy=SpecPolicy.AUTO, n_max=8)
    names = ("auto", "auto:3", "fixed:4", "plain")
    assert [is_auto(parse_policy(name).name) for name in names] == [True, True, False, False]
    assert parse_policy("fixed:4").name == "fixed:4"


@pytest.mark.parametrize(
    "text",
    [
        "autos",
        "auto:",
        "auto:0",
        "auto:4:0.5",
        "matrix:1",
        "fixed:",
        "fixed:0",
        "fixed:x",
        "fixed:4:2",
        "fixed:4:nan",
        "fixed:4:0.5:1",
        "plain:1",
        "",
    ],
)
def test_bad_policies(text):
    with pytest.raises(ConfigError, match="policy"):
        parse_policy(text)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--prompts", "0"), "--prompts: expected a whole number of 1 or more, got '0'"),
        (("--prompts", "many"), "--prompts: expected a whole number"),
        (("--max-tokens", "1"), "--max-tokens"),
        (("--repeats", "0"), "--repeats"),
        (("--temperature", "hot"), "--temperature"),
        (("--temperature", "-1"), "--temperature"),
        (("--temperature", "inf"), "--temperature"),
        (("--sequences", "0"), "--sequences"),
        (("--sequences", "1,,2"), "--sequences: expected a whole number from 1 to 256, or several with commas"),
        (("--sequences", "2,2"), "each once, got '2,2'"),
        (("--sequences", "8", "--prompts", "7"), "raise --prompts"),
        (("--seed", "-1"), "--seed"),
        (("--workload", "chat,chat"), "--workload"),
        (("--workload", "chatt"), "did you mean 'chat'.* all .*, categories "),
        (("--policy", "fast"), "unknown policy"),
        (("--threads", "two"), "--threads"),
        (("--flash-attn", "maybe"), "--flash-attn"),
        (("--vs", "localhost:80"), "--vs must be"),
        (("--vs", "http://[x"), "--vs must be"),
        (("--vs", "http://x:port"), "--vs must be"),
        (("--peer-key", "k"), "need --vs"),
        (("--draft", "/none/x.gguf"), "--draft: /none/x.gguf: no such file"),
    ],
)
def test_bad_options(tmp_path, flags, words):
    with pytest.raises(ConfigError, match=words):
        options(tmp_path, *flags)


def test_target_and_draft_are_needed(tmp_path):
    with pytest.raises(ConfigError, match="--target is missing"):
        bench_options.parse([])
    with pytest.raises(ConfigError, match="--draft is missing"):
        options(tmp_path, draft=False)
    assert options(tmp_path, "--peer", "http://127.0.0.1:1/v1/", draft=False).peer.url == "http://127.0.0.1:1"


def test_config_has_room_for_every_prompt_in_every_slot(tmp_path):
    settings = options(
        tmp_path, "--workload", "chat,long", "--sequences", "1,4", "-t", "2", "--exact", "--spec-replace", "a", "b"
    )
    config = settings.config(Path("t"), Lineup(Path("d"), (Drafters(("draft-simple",), Path("d")),)))
    longest = max(prompt.n_bytes for prompt in load("long").prompts)
    assert settings.n_ctx % 256 == 0
    assert settings.n_ctx > longest + 160
    assert config.n_parallel == 4
    assert config.target.n_ctx == config.draft.n_ctx == 4 * settings.n_ctx
    assert (config.target.n_threads, config.drafting.exact, config.templates.replace) == (2, True, (("a", "b"),))
    assert options(tmp_path, "-c", "1000").n_ctx == 1000


def test_models_are_run_by_the_flags_of_the_server(tmp_path):
    settings = options(
        tmp_path, "-fa", "1", "-ngl", "7", "--threads-batch", "3", "-ctkd", "q8_0", "--no-mmap", "-td", "1"
    )
    config = settings.config(Path("t"), Lineup(Path("d"), (Drafters(("draft-simple",), Path("d")),)))
    assert config.target == ModelConfig(
        Path("t"), n_ctx=settings.n_ctx, flash_attn="on", n_gpu_layers=7, n_threads_batch=3, mmap=False
    )
    assert config.draft == ModelConfig(
        Path("d"), n_ctx=settings.n_ctx, flash_attn="on", n_gpu_layers=7, n_threads=1, type_k="q8_0", mmap=False
    )


def test_variables_count_for_the_flags_that_there_are(tmp_path, monkeypatch):
    for name, text in {"THREADS": "3", "BATCH": "1", "CTX_SIZE": "7", "N_PARALLEL": "9", "MODEL": "other.gguf"}.items():
        monkeypatch.setenv(f"LLAMA_ARG_{name}", text)
    settings = options(tmp_path)
    config = settings.config(Path("t"), Lineup(None, (Drafters(("suffix",), None),)))
    assert config.target == ModelConfig(Path("t"), n_ctx=settings.n_ctx, n_threads=3)
    assert (config.n_parallel, settings.targets) == (1, (tmp_path / "big.gguf",))


def test_a_prompt_that_does_not_fit_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"'function-add' of 'chat' needs .* raise --ctx-size"):
        run(options(tmp_path, "-c", "100"), FakeClient(n_ctx=100))


@pytest.mark.parametrize("origin", [Origin.MODEL, Origin.NGRAM_SIMPLE, Origin.SUFFIX, Origin.NGRAM_MOD])
def test_drafters_that_remember_other_runs_are_named(tmp_path, origin):
    line = "100% of the accepted ids came from a drafter that remembers"
    _, text = run(options(tmp_path, "--prompts", "1", "--spec-share", "server"), FakeClient(drafter=origin))
    assert (line in text) is (origin in (Origin.SUFFIX, Origin.NGRAM_MOD))
    assert line not in run(options(tmp_path, "--prompts", "1"), FakeClient(drafter=origin))[1], (
        "each has its own text only"
    )


def test_policies_are_compared_over_a_matrix(tmp_path):
    def ms(body):
        return {2: 30.0, 4: 10.0, 8: 20.0, 16: 50.0}[body["speculative"].get("n_max", 4)] if drafts(body) else 40.0

    line, text = run(options(tmp_path, *MATRIX), FakeClient(ms))
    names = ["fixed:2", "fixed:4", "fixed:8", "fixed:16", "auto"]
    assert [cell["policy"] for cell in line["cells"]] == names * 4
    assert list(line["policies"]) == names
    assert (line["best_fixed"], line["auto_over_best_fixed"]) == ("fixed:4", 1)
    assert line["worst"] == line["policies"]["fixed:16"]["worst"] == min(cell["ratio"] for cell in line["cells"])
    assert "auto is 1.00 times the best fixed policy, fixed:4" in text
    assert "fixed:16: geometric mean" in text


def test_summary_of_nothing():
    total = summarize([])
    assert (total.worst, total.geomean, total.best_fixed, total.auto_over_best_fixed) == (None, None, None, None)


def test_drafters_without_a_model_are_compared_by_their_types(tmp_path):
    both = options(tmp_path, "--spec-type", "suffix", "--spec-type", "suffix,draft-simple", "--spec-type", "draft")
    (lineup,) = both.lineups
    assert [one.label for one in lineup.compared] == ["suffix", "suffix+small", "small"]
    assert [one.model is not None for one in lineup.compared] == [False, True, True]
    assert both.config(Path("t"), lineup).drafting.types == ("suffix", "draft-simple")
    assert both.config(Path("t"), lineup).drafting.lookup.share == "off", "an earlier run of a prompt holds its answer"


def test_flags_of_drafters_without_a_model_are_those_of_the_server(tmp_path):
    given = options(
        tmp_path,
        "--spec-type",
        "ngram-mod",
        "--spec-ngram-mod-n-match",
        "8",
        "--spec-ngram-map-k-size-n",
        "6",
        draft=False,
    )
    lookup = given.config(Path("t"), given.lineups[0]).drafting.lookup
    assert (lookup.mod.n_match, lookup.map_k.size_n, lookup.simple.size_n, lookup.share) == (8, 6, 12, "off")
    with pytest.raises(ConfigError, match=r"--spec-ngram-mod-n-min.*70 is more than --spec-ngram-mod-n-max 64"):
        options(tmp_path, "--spec-ngram-mod-n-min", "70")
    with pytest.raises(ConfigError, match=r"--spec-suffix-store.*needs --spec-share server, which is off"):
        options(tmp_path, "--spec-suffix-store", str(tmp_path / "store"))


def test_lists_without_a_model_run_beside_the_first_one_only(tmp_path):
    (tmp_path / "other.gguf").touch()
    both = options(tmp_path, "--draft", str(tmp_path / "other.gguf"), "--spec-type", "suffix", "--spec-type", "draft")
    assert [[one.label for one in lineup.compared] for lineup in both.lineups] == [["suffix", "small"], ["other"]]
    alone = options(tmp_path, "--spec-type", "suffix", "--spec-type", "ngram-mod", "--spec-type", "suffix")
    assert [(lineup.model, lineup.types) for lineup in alone.lineups] == [(None, ("suffix", "ngram-mod"))]


def test_lists_have_the_order_of_their_engine(tmp_path):
    (lineup,) = options(
        tmp_path,
        "--spec-type",
        "draft,ngram-mod,suffix",
        "--spec-type",
        "suffix,ngram-mod",
        "--spec-type",
        "suffix,ngram-mod,draft",
    ).lineups
    assert [one.label for one in lineup.compared] == ["ngram-mod+suffix+small", "ngram-mod+suffix"]
    assert lineup.types == ("ngram-mod", "suffix", "draft-simple")


def test_lists_of_drafters_take_turns_in_one_engine(tmp_path):
    client = FakeClient(lambda body: 20.0 if body["speculative"].get("types") == ["suffix"] else 40.0)
    flags = (
        "--spec-type",
        "suffix",
        "--spec-type",
        "draft",
        "--prompts",
        "1",
        "--repeats",
        "2",
        "--policy",
        "auto,fixed",
    )
    cells = run(options(tmp_path, *flags), client)[0]["cells"]
    assert [(cell["draft"], cell["policy"], cell["ratio"]) for cell in cells] == [
        ("suffix", "auto", 2.0),
        ("suffix", "fixed", 2.0),
        ("small", "auto", 1.0),
        ("small", "fixed", 1.0),
    ]
    counted = [str(body["speculative"]) for body in client.counted]
    assert len(set(counted)) == 5, "four, and plain decoding"
    assert counted == counted[::-1], "in turns"


def test_lists_of_drafters_are_shown_beside_each_other(tmp_path):
    client = FakeClient(lambda body: 20.0 if body["speculative"].get("types") == ["suffix"] else 40.0)
    lists = ("--spec-type", "suffix", "--spec-type", "draft", "--prompts", "1", "--repeats", "1")
    _, text = run(options(tmp_path, *lists, "--workload", "chat,story"), client)
    grid = [
        line.split()
        for line in text.partition("speed-up over plain decoding")[2].splitlines()
        if "suffix" in line or "small" in line
    ]
    assert [row[-6:-1:2] for row in grid[:2]] == [["2.00", "2.00", "2.00"], ["1.00", "1.00", "1.00"]]
    assert "speed-up over plain" not in run(options(tmp_path, *lists), client)[1], (
        "one column would only repeat the table"
    )


def test_prompts_can_be_named(tmp_path):
    two = options(tmp_path, "--workload", "chat,edit", "--prompt", "function-add,rename-long-source")
    assert [[prompt.name for prompt in workload.prompts] for workload in two.workloads] == [
        ["function-add"],
        ["rename-long-source"],
    ]
    one = options(tmp_path, "--workload", "chat,edit", "--prompt", "function-add")
    assert [workload.name for workload in one.workloads] == ["chat"]
    with pytest.raises(ConfigError, match=r"--prompt: .* has a prompt 'function-ad'; there are function-add,"):
        options(tmp_path, "--prompt", "function-ad")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--spec-type", "sufix"), "--spec-type"),
        (("--spec-type", "none"), "plain"),
        (("--spec-type", "draft-eagle3"), "head"),
        (("--spec-share", "all"), "--spec-share"),
    ],
)
def test_drafters_that_cannot_be_compared(tmp_path, flags, words):
    with pytest.raises(ConfigError, match=words):
        options(tmp_path, *flags)


def test_workers_and_the_check_of_memory_are_as_in_the_server(tmp_path):
    given = options(tmp_path, "--rpc", "10.0.0.2:50052", "--fit", "off", "--device", "RPC0")
    (lineup,) = given.lineups
    config = given.config(given.targets[0], lineup)
    assert (config.rpc, config.fit, config.target.devices) == (("10.0.0.2:50052",), False, ("RPC0",))
    plain = options(tmp_path)
    assert plain.config(plain.targets[0], plain.lineups[0]).fit
    with pytest.raises(ConfigError, match="--cache-ram is a flag of `uad serve`"):
        options(tmp_path, "--cache-ram", "1")
