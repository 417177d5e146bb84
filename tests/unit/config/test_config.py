"""load_config: words, variables and files to one Config, and what it says when they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from uad.base.config import load_config
from uad.base.errors import ConfigError

MODELS = ("-m", "t.gguf", "-md", "d.gguf")


def load(*words, env=None):
    return load_config((*MODELS, *words), env or {})


def complaint(*words, env=None):
    with pytest.raises(ConfigError) as caught:
        load(*words, env=env)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def yaml_file(tmp_path, text):
    path = tmp_path / "uad.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_defaults_are_those_of_the_slices():
    config = load_config(["-m", "t.gguf"], {})
    assert config.target.path == Path("t.gguf")
    assert config.draft is None
    assert (config.server.host, config.server.port, config.n_parallel, config.notes) == ("127.0.0.1", 8080, 1, ())


@pytest.mark.parametrize("name", ["-m", "--model", "--target"])
@pytest.mark.parametrize("draft", ["-md", "--model-draft", "--draft", "--spec-draft-model"])
def test_model_aliases(name, draft):
    config = load_config([name, "a", draft, "b"], {})
    assert (config.target.path, config.draft.path) == (Path("a"), Path("b"))


@pytest.mark.parametrize(
    ("words", "read", "value"),
    [
        (["-c", "4096"], lambda c: c.target.n_ctx, 4096),
        (["--ctx-size=4096"], lambda c: c.target.n_ctx, 4096),
        (["-cd", "512"], lambda c: c.draft.n_ctx, 512),
        (["-n", "-1"], lambda c: c.n_predict, -1),
        (["--predict", "7"], lambda c: c.n_predict, 7),
        (["-b", "64"], lambda c: (c.target.n_batch, c.target.n_ubatch), (64, 64)),
        (["-b", "64", "-ub", "32"], lambda c: (c.target.n_batch, c.target.n_ubatch), (64, 32)),
        (["-np", "4"], lambda c: c.n_parallel, 4),
        (["-t", "-1"], lambda c: c.target.n_threads, 0),
        (["-ngl", "all"], lambda c: c.target.n_gpu_layers, -1),
        (["--gpu-layers", "12"], lambda c: c.target.n_gpu_layers, 12),
        (["-fa"], lambda c: c.target.flash_attn, "on"),
        (["-fa", "1"], lambda c: c.target.flash_attn, "on"),
        (["-fa", "true"], lambda c: c.target.flash_attn, "on"),
        (["-fa", "0"], lambda c: c.target.flash_attn, "off"),
        (["-fa", "-1"], lambda c: c.target.flash_attn, "auto"),
        (["--repeat-last-n", "-1", "--top-k", "-1"], lambda c: (c.sampling.repeat_last_n, c.sampling.top_k), (-1, -1)),
        (["-np", "-1"], lambda c: c.n_parallel, 1),
        (["--swa-full"], lambda c: c.target.swa_full, True),
        (["-ctxcp", "3"], lambda c: c.target.n_checkpoints, 3),
        (["--checkpoint-min-step", "100"], lambda c: c.target.checkpoint_step, 100),
        (["-fa", "off"], lambda c: c.target.flash_attn, "off"),
        (["--kernels"], lambda c: c.target.kernels, True),
        (["--kernels", "off"], lambda c: c.target.kernels, False),
        (["--kernels", "fastest"], lambda c: (c.target.kernels, c.draft.kernels), ("fastest", "fastest")),
        (["--kernels", "--no-kernels"], lambda c: c.target.kernels, False),
        (["-fa", "--mlock"], lambda c: (c.target.flash_attn, c.target.mlock), ("on", True)),
        (
            ["-ctk", "q8_0", "-ctvd", "q4_0"],
            lambda c: (c.target.type_k, c.draft.type_v, c.draft.type_k),
            ("q8_0", "q4_0", "f16"),
        ),
        (["--no-mmap"], lambda c: (c.target.mmap, c.draft.mmap), (False, False)),
        (["-lm", "mmap+mlock"], lambda c: (c.target.mmap, c.target.mlock), (True, True)),
        (["--no-slots", "--slots"], lambda c: c.server.slots, True),
        (["--port", "1", "--port", "2"], lambda c: c.server.port, 2),
        (["--draft-max", "8"], lambda c: c.drafting.defaults.n_max, 8),
        (["--draft-n", "8", "--draft-n-min", "2", "--draft-p-min", "0"], lambda c: c.drafting.defaults.p_min, 0.0),
        (["--spec-type", "none"], lambda c: (c.draft, c.drafting.defaults.enabled), (None, False)),
        (["--spec-type", "suffix,draft, suffix"], lambda c: c.drafting.types, ("suffix", "draft-simple")),
        (["--spec-type", "ngram-mod", "-md", "d.gguf"], lambda c: (c.draft, c.drafting.defaults.enabled), (None, True)),
        ([], lambda c: c.drafting.types, ("draft-simple", "suffix")),
        (["--spec-type", "draft-simple"], lambda c: c.drafting.types, ("draft-simple",)),
        ([], lambda c: c.drafting.weighed, ("suffix",)),
        (["--spec-type", "suffix,draft"], lambda c: c.drafting.weighed, ()),
        (["--spec-default"], lambda c: c.drafting.types, ("draft-simple", "suffix", "ngram-mod")),
        (
            ["--spec-type", "none", "--spec-default"],
            lambda c: (c.drafting.types, c.drafting.defaults.enabled),
            (("ngram-mod",), True),
        ),
        (
            ["--spec-ngram-map-k4v-size-n", "8"],
            lambda c: (c.drafting.lookup.map_k4v.size_n, c.drafting.lookup.map_k.size_n),
            (8, 12),
        ),
        (["--api-key", "a"], lambda c: c.drafting.lookup.share, "server"),
        (["--api-key", "a,b"], lambda c: c.drafting.lookup.share, "slot"),
        (["--api-key", "a,b", "--spec-share", "server"], lambda c: c.drafting.lookup.share, "server"),
        (["--no-draft"], lambda c: (c.draft, c.drafting.defaults.enabled), (None, False)),
        (["--exact"], lambda c: c.drafting.exact, True),
        (
            ["--spec-replace", "<|a|>", "</s>", "--spec-replace", "x", ""],
            lambda c: c.templates.replace,
            (("<|a|>", "</s>"), ("x", "")),
        ),
        (["--api-key", "a, b", "--api-key", "c"], lambda c: c.server.api_keys, ("a", "b", "c")),
        (["--seed", "-1"], lambda c: c.sampling.seed, None),
        (
            ["--seed", "0", "--temp", "0", "--typical-p", "0.5"],
            lambda c: (c.sampling.seed, c.sampling.typical_p),
            (0, 0.5),
        ),
        (["-l", "5-inf", "-l", "6+1.5"], lambda c: c.sampling.logit_bias, ((5, float("-inf")), (6, 1.5))),
        (["--sse-ping-interval", "0"], lambda c: c.server.sse_ping_interval, 0.0),
        (["--sse-ping-interval", "-1"], lambda c: c.server.sse_ping_interval, -1.0),
        (["--chat-template", "{{ messages }}"], lambda c: c.templates.chat_template, "{{ messages }}"),
    ],
)
def test_flags(words, read, value):
    assert read(load(*words)) == value


def test_without_a_draft_model_nothing_drafts_unless_asked():
    """Who names no draft gets plain decoding, to the bit."""
    config = load_config(("-m", "t.gguf"), {})
    assert (config.draft, config.drafting.types) == (None, ("draft-simple",))


def test_the_draft_inherits_the_machine_but_not_the_cache():
    draft = load("-t", "3", "-tb", "5", "-ngl", "7", "-fa", "off", "-ctk", "q8_0", "-c", "99").draft
    assert (draft.n_threads, draft.n_threads_batch, draft.n_gpu_layers, draft.flash_attn) == (3, 5, 7, "off")
    assert (draft.type_k, draft.n_ctx) == ("f16", 0)
    own = load("-t", "3", "-tb", "5", "-td", "1", "-ngld", "0").draft
    assert (own.n_threads, own.n_threads_batch, own.n_gpu_layers) == (1, 0, 0)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--portt", "1"], ["--portt", "did you mean --port?"]),
        (["--ctx-sise", "1"], ["--ctx-sise", "--ctx-size"]),
        (["--no-heal"], ["--no-heal is gone", "leave the flag out"]),
        (["-ctx", "1"], ["unknown flag -ctx", "did you mean -ct"]),
        (["--spec-draft-nmax=4"], ["--spec-draft-nmax;", "--spec-draft-n-max"]),
        (["--mod", "x"], ["unknown flag --mod", "--model"]),
        (["--mmproj-url", "x.gguf"], ["--mmproj-url", "known to llama-server, not supported by uad", "--mmproj"]),
        (["-mu", "http://a/b.gguf"], ["-mu", "not supported by uad", "--hf-repo"]),
        (["--control-vector", "x"], ["--control-vector", "not supported by uad"]),
        (["--spec-type", "magic"], ["--spec-type", "draft-simple, draft-mtp", "or none", "'magic'"]),
        (["--spec-type", "none,suffix"], ["--spec-type", "none stands alone"]),
        (["--spec-ngram-mod-n-min", "70"], ["--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max 64"]),
        (["-lcs", "/nowhere/static"], ["-lcs", "/nowhere/static: no such file; there is no folder /nowhere"]),
        (["-lcd", "/nowhere/dynamic"], ["-lcd", "no such folder: /nowhere"]),
        (["--spec-suffix-store", "s", "--spec-share", "slot"], ["--spec-suffix-store", "needs --spec-share server"]),
        (["-lcd", "d", "--api-key", "a,b"], ["-lcd", "needs --spec-share server"]),
        (["--spec-share", "all"], ["--spec-share", "off, slot, server"]),
        (["--spec-ngram-size-n", "8"], ["--spec-ngram-size-n", "--spec-ngram-simple-size-n"]),
        (["--draft", "16"], ["--draft", "--spec-draft-n-max 16"]),
        (["--port", "65536"], ["--port", "0 to 65535", "'65536'"]),
        (["--port", "-1"], ["--port", "0 to 65535"]),
        (["--port", "9" * 5000], ["--port", "0 to 65535"]),
        (["--port", "http"], ["--port", "'http'"]),
        (["--port"], ["--port", "expected one argument"]),
        (["-np", "0"], ["-np", "1 to 1024"]),
        (["-c", "-1"], ["-c", "0 or more"]),
        (["-c", str(2**31)], ["-c", "0 or more"]),
        (["-c", "3", "-np", "4"], ["-c", "4 slots"]),
        (["-b", "1"], ["-b", "2 or more"]),
        (["-b", "3", "-np", "4"], ["-b", "4 slots", "4 or more"]),
        (["-ub", "4096"], ["-ub", "--batch-size 2048"]),
        (["-b", "8", "--spec-policy", "fixed"], ["--spec-draft-n-max", "--ubatch-size 17"]),
        (["--draft-min", "5", "--draft-max", "4"], ["--draft-min", "--spec-draft-n-max 4"]),
        (["--draft-p-min", "1.1"], ["--draft-p-min", "0 to 1"]),
        (["--temp", "nan"], ["--temp", "'nan'"]),
        (["--temp", "1e999"], ["--temp"]),
        (["--top-p", "-0.1"], ["--top-p", "0 to 1"]),
        (["-ctk", "q3_k"], ["-ctk", "q8_0", "'q3_k'"]),
        (["-fa", "maybe"], ["-fa", "on, off, auto"]),
        (["--kernels", "maybe"], ["--kernels", "on, off, fastest"]),
        (["--no-kernels", "a.gguf"], ["unexpected argument 'a.gguf'"]),
        (["-lm", "dio"], ["-lm", "dio"]),
        (["--seed", "-2"], ["--seed"]),
        (["--sse-ping-interval", "1e-6"], ["--sse-ping-interval", "1 or more"]),
        (["-l", "5"], ["-l", "ID+BIAS"]),
        (["-l", "5+nan"], ["-l", "ID+BIAS"]),
        (["--api-prefix", "llm/"], ["--api-prefix", "/llm"]),
        (["--api-key", " , "], ["--api-key"]),
        (["--api-key-file", "/nowhere/keys"], ["--api-key-file", "/nowhere/keys"]),
        (["--chat-template", "chatml"], ["--chat-template", "Jinja", "--chat-template-file"]),
        (["draft.gguf"], ["unexpected argument 'draft.gguf'", "--target FILE", "--draft FILE"]),
        (["--chat-template-file", "/nowhere.jinja"], ["--chat-template-file", "/nowhere.jinja"]),
        (["--mappings", "/nowhere"], ["--mappings", "/nowhere", "not a directory"]),
        (["--spec-replace", "x"], ["--spec-replace", "expected 2 arguments"]),
        (["--host", "a,,b"], ["--host", "an address"]),
        (["--model", ""], ["--model", "a file name"]),
        (["--config", "/nowhere.yaml"], ["/nowhere.yaml"]),
        (["stray"], ["'stray'"]),
    ],
)
def test_wrong_words_are_named(words, named):
    message = complaint(*words)
    assert all(part in message for part in named), message


def test_no_model_names_the_ways_to_give_one():
    with pytest.raises(ConfigError, match=r"--model FILE.*LLAMA_ARG_MODEL.*--config"):
        load_config([], {})


def test_harmless_flags_of_llama_server_are_ignored_in_one_line():
    words = [
        "--jinja",
        "--offline",
        "-cb",
        "--log-jsonl",
        "-dt",
        "3",
        "-kvu",
        "--jinja",
    ]
    (line,) = load(*words, "--port", "9").notes
    assert line.endswith(": --jinja, -cb, --log-jsonl, -dt, -kvu")


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (("-np", "1", "--parallel", "2"), "-np and --parallel set the same; the last one counts"),
        (("--port", "1", "--port", "2"), "--port is given twice; the last one counts"),
        (("--port", "1", "--port", "1"), None),
        (("--api-key", "a", "--api-key", "b"), None),
    ],
)
def test_what_is_set_twice_is_said(words, note):
    assert load(*words).notes == (() if note is None else (note,))


@pytest.mark.parametrize("flag", ["--kv-unified", "-kvu"])
def test_one_context_for_several_slots_would_be_missed(flag):
    with pytest.raises(ConfigError, match=f"{flag} is known .* give 3 times as much"):
        load(flag, "-np", "3")


def test_a_context_that_moves_on_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match=r"--context-shift is known .* give more of it with --ctx-size"):
        load("--context-shift")


def test_environment_has_llama_server_names_and_words():
    env = {
        "LLAMA_ARG_MODEL": "t.gguf",
        "LLAMA_ARG_SPEC_DRAFT_MODEL": "d.gguf",
        "LLAMA_ARG_CTX_SIZE": "1024",
        "LLAMA_ARG_N_PARALLEL": "2",
        "LLAMA_ARG_HOST": "0.0.0.0",
        "LLAMA_ARG_PORT": "81",
        "LLAMA_ARG_ENDPOINT_METRICS": "enabled",
        "LLAMA_ARG_ENDPOINT_SLOTS": "0",
        "LLAMA_ARG_FLASH_ATTN": "1",
        "LLAMA_ARG_NO_MMAP": "1",
        "LLAMA_API_KEY": "a,b",
        "LLAMA_ARG_THREADS": "",
        "UNRELATED": "x",
    }
    config = load_config([], env)
    assert config.draft.path == Path("d.gguf")
    assert (config.target.n_ctx, config.n_parallel, config.target.mmap, config.target.n_threads) == (1024, 2, False, 0)
    assert config.target.flash_attn == "on"
    server = config.server
    assert (server.host, server.port, server.metrics, server.slots, server.api_keys) == (
        "0.0.0.0",
        81,
        True,
        False,
        ("a", "b"),
    )
    assert config.notes == ()


def test_environment_complaints_name_the_variable():
    assert complaint(env={"LLAMA_ARG_PORT": "x"}).startswith("LLAMA_ARG_PORT: expected a whole number")
    assert complaint(env={"LLAMA_ARG_ENDPOINT_METRICS": "perhaps"}).startswith(
        "LLAMA_ARG_ENDPOINT_METRICS: expected on or off"
    )
    assert load(env={"LLAMA_ARG_TAGS": "x", "LLAMA_ARG_CACHE_REUSE": "1"}).notes == (
        "ignored, without effect in uad: LLAMA_ARG_CACHE_REUSE, LLAMA_ARG_TAGS",
    )


def test_what_is_refused_on_the_command_line_is_refused_in_the_environment():
    for name, reason in (
        ("MODEL_URL", "--hf-repo"),
        ("SPLIT_MODE", "--tensor-split"),
    ):
        message = complaint(env={f"LLAMA_ARG_{name}": "1"})
        assert message.startswith(f"LLAMA_ARG_{name} is known to llama-server, not supported by uad: ")
        assert reason in message
    assert load(env={"LLAMA_ARG_SPLIT_MODE": "0", "LLAMA_ARG_SSL_KEY_FILE": ""}) == load(
        env={"LLAMA_ARG_SPLIT_MODE": "0"}
    )


def test_command_line_over_environment_over_file_over_defaults(tmp_path):
    path = yaml_file(tmp_path, "port: 1\nctx-size: 1\nparallel: 1\napi-key: [f]\n")
    env = {"LLAMA_ARG_PORT": "2", "LLAMA_ARG_CTX_SIZE": "2", "LLAMA_API_KEY": "e"}
    config = load("--config", path, "--port", "3", env=env)
    assert (config.server.port, config.target.n_ctx, config.n_parallel, config.server.api_keys) == (3, 2, 1, ("e",))
    assert config.server.host == "127.0.0.1"


def test_yaml_takes_every_kind_of_value(tmp_path):
    (tmp_path / "rules").mkdir()
    (tmp_path / "keys").write_text("# mine\nk1\n\nk2\n", encoding="utf-8")
    text = """
        model: models/t.gguf          # relative to this file
        draft: /abs/d.gguf
        spec_draft_n_max: 4
        draft-p-min: 0
        flash-attn: on
        gpu-layers: all
        no-mmap: true
        temp: 1
        top-p: 0.5
        slots: off
        spec-share: off
        mappings: [rules]
        spec-replace: [["<|a|>", "</s>"], [b, c]]
        api-key-file: keys
        seed: 5
        webui: false
        perf: true
    """
    config = load_config(["--config", yaml_file(tmp_path, text)], {})
    assert (config.target.path, config.draft.path) == (tmp_path / "models/t.gguf", Path("/abs/d.gguf"))
    assert (config.drafting.defaults.n_max, config.drafting.defaults.p_min) == (4, 0.0)
    assert (config.target.flash_attn, config.target.n_gpu_layers, config.target.mmap) == ("on", -1, False)
    assert (config.sampling.temperature, config.sampling.top_p, config.sampling.seed) == (1.0, 0.5, 5)
    assert config.templates.mappings == (tmp_path / "rules",)
    assert config.templates.replace == (("<|a|>", "</s>"), ("b", "c"))
    assert (config.server.slots, config.server.api_keys, config.drafting.lookup.share) == (False, ("k1", "k2"), "off")
    assert config.notes == ("ignored, without effect in uad: perf",)

    assert not config.server.ui


def test_one_pair_may_stand_without_a_list(tmp_path):
    assert load("--config", yaml_file(tmp_path, "spec-replace: [a, b]")).templates.replace == (("a", "b"),)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("port: 1\nhost: [1, 2\n", [":3:1", "not valid YAML"]),
        ("port: 1\n  host: x\n", [":2:", "not valid YAML"]),
        ("port: 1\nctx-sise: 4\n", [":2: ctx-sise", "did you mean ctx-size?"]),
        ("porrt: 1", [":1: porrt", "did you mean port?"]),
        ("mmproj-url: x", [":1: mmproj-url", "not supported by uad"]),
        ("config: other.yaml", [":1: config", "not a known key"]),
        ("port: '1'", [":1: port", "a whole number", "got a text"]),
        ("port: 1.5", [":1: port", "got a number"]),
        ("port: true", [":1: port", "got true or false"]),
        ("port: 70000", [":1: port", "0 to 65535", "'70000'"]),
        ("port:", [":1: port", "got nothing"]),
        ("host: [a]", [":1: host", "got a list"]),
        ("alias: 12", [":1: alias", "a whole number", "quotes"]),
        ("metrics: 1", [":1: metrics", "on or off"]),
        ("temp: 2025-01-01", [":1: temp", "got a date"]),
        ("alias: !!python/object:os.system x", [":1: alias", "YAML cannot read"]),
        ("spec-replace: [a]", [":1: spec-replace", "two texts"]),
        ("spec-replace: [[a, b, c]]", [":1: spec-replace", "two texts"]),
        ("port: 1\nport: 2", [":2: port", "line 1"]),
        ("spec_type: none\nspec-type: none", [":2: spec-type", "line 1"]),
        ("- port", [":1", "port: 8080"]),
        ("just text", [":1", "port: 8080"]),
        ("? [a]\n: 1", [":1:"]),
        ("[" * 3000, ["not valid YAML"]),
        ("a: \x00", ["not valid YAML"]),
    ],
)
def test_yaml_complaints_name_file_and_line(tmp_path, text, named):
    path = yaml_file(tmp_path, text)
    message = complaint("--config", path)
    assert message.startswith(path)
    assert all(part in message for part in named), message


def test_yaml_must_be_small_text(tmp_path):
    path = tmp_path / "uad.yaml"
    path.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in complaint("--config", str(path))
    path.write_bytes(b"#" * (1 << 20) + b"#")
    assert "more than 1048576 bytes" in complaint("--config", str(path))
    assert "cannot be read" in complaint("--config", str(tmp_path))


def test_empty_yaml_changes_nothing(tmp_path):
    assert load("--config", yaml_file(tmp_path, "# nothing\n")) == load()


def test_a_key_file_without_keys_does_not_open_the_server(tmp_path):
    (tmp_path / "keys").write_text("# none\n", encoding="utf-8")
    assert "holds no key" in complaint("--api-key-file", str(tmp_path / "keys"))


def test_several_drafts(tmp_path):
    """From each source: flags add up, a later source wins whole, and a single value works as ever."""
    text = yaml_file(tmp_path, "draft: [a.gguf, b.gguf]\nthreads-draft: 3\n")
    for words, env, names in (
        (["--draft", "x.gguf", "-md", "y.gguf", "-hfd", "a/b"], {}, ["x.gguf", "y.gguf", "a/b"]),
        (["--config", text], {}, [f"{tmp_path}/a.gguf", f"{tmp_path}/b.gguf"]),
        (["--config", text, "--draft", "x.gguf"], {}, ["x.gguf"]),
        ([], {"LLAMA_ARG_MODEL_DRAFT": "x.gguf"}, ["x.gguf"]),
        ([], {}, []),
    ):
        config = load_config(["-m", "t.gguf", *words], env)
        assert [str(draft.path) for draft in config.drafts] == names
        assert {draft.n_threads for draft in config.drafts} <= {3 if "--config" in words else 0}
        assert config.drafting.weighed == ("suffix", "draft-simple-2", "draft-simple-3")[: len(names)]


@pytest.mark.parametrize(
    ("drafts", "said"),
    [
        (("a", "a"), "a is named twice"),
        (("auto", "a"), "auto chooses the drafts, and stands alone"),
        (tuple("abcde"), "5 draft models are named; 4 can be used"),
    ],
)
def test_drafts_that_cannot_be_beside_each_other(drafts, said):
    with pytest.raises(ConfigError, match=f"^--draft: {said}"):
        load_config(["-m", "t.gguf", *(word for name in drafts for word in ("--draft", name))], {})
