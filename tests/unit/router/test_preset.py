"""Preset files: which lines mean what, and which are refused where."""

import pytest

from uad.base.errors import ConfigError
from uad.router.preset import loads_at_start, read_presets, stop_seconds


def presets(tmp_path, text):
    path = tmp_path / "p.ini"
    path.write_text(text, encoding="utf-8")
    return read_presets(path)


def words(tmp_path, line):
    (preset,) = presets(tmp_path, f"[m]\n{line}\n").values()
    return [word for one in preset.given for word in one.words]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("c = 8192", ["--ctx-size=8192"]),
        ("ctx-size=8192", ["--ctx-size=8192"]),
        ("n-gpu-layers = 123 ; all", ["--gpu-layers=123"]),
        ("ngl = 99 # all", ["--gpu-layers=99"]),
        ("LLAMA_ARG_CACHE_RAM = 0", ["--cache-ram=0"]),
        ("mmap = off", ["--no-mmap"]),
        ("no-mmap = true", ["--no-mmap"]),
        ("no-mmap = false", ["--mmap"]),
        ("model = /m/a b.gguf", ["--model=/m/a b.gguf"]),
        ("model-draft = ./d.gguf", ["--model-draft=./d.gguf"]),
        ("version = 1", []),
        ("jinja = true", []),
    ],
)
def test_a_key_is_a_flag(tmp_path, line, expected):
    assert words(tmp_path, line) == expected


def test_the_words_of_a_switch_are_its_long_name(tmp_path):
    assert words(tmp_path, "mlock = on") == ["--mlock"]
    assert words(tmp_path, "mlock = off") == ["--no-mlock"]
    assert words(tmp_path, "ignore-eos = off") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[m]\nctx-sise = 1", r"p\.ini:2: option 'ctx-sise' is not known; did you mean ctx-size\?"),
        ("[m]\nsplit-mode = row", r"p\.ini:2: split-mode is known to llama-server, not supported by uad"),
        ("c = 1\n[m]", r"p\.ini:1: c stands before any \[MODEL\]"),
        ("[m]\n[m]", r"p\.ini:2: section \[m\] is there twice"),
        ("[]", r"p\.ini:1: section \[\] has no name"),
        ("[m]\nnonsense", r"p\.ini:2: expected \[MODEL\], or a line such as"),
        ("[m]\nc = many", r"p\.ini:2: c: expected a whole number"),
    ],
)
def test_what_is_wrong_has_a_line(tmp_path, text, problem):
    with pytest.raises(ConfigError, match=problem):
        presets(tmp_path, text)


def test_comments_and_blank_lines_are_left_out(tmp_path):
    found = presets(tmp_path, "; one\n\n# two\nversion = 1\n[ a/b:Q8_0 ] ; three\r\nc = 1\n[*]\n")
    assert list(found) == ["a/b:Q8_0", "*"]


def test_a_model_may_be_there_from_the_start_and_take_its_time_to_end(tmp_path):
    (one,) = presets(tmp_path, "[m]\nload-on-startup = true\nstop-timeout = 3\ndedup-cache-models = 1").values()
    assert (loads_at_start(one), stop_seconds(one)) == (True, 3)
    (other,) = presets(tmp_path, "[m]").values()
    assert (loads_at_start(other), stop_seconds(other)) == (False, 10)


@pytest.mark.parametrize("line", ["load-on-startup = perhaps", "stop-timeout = -1", "stop-timeout = soon"])
def test_wrong_values_of_these_are_refused(tmp_path, line):
    (one,) = presets(tmp_path, f"[m]\n{line}").values()
    name = line.partition(" ")[0]
    with pytest.raises(ConfigError, match=name):
        {"load-on-startup": loads_at_start, "stop-timeout": stop_seconds}[name](one)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("samplers = top_k;top_p;temperature", ["--samplers=top_k;top_p;temperature"]),
        ("samplers = top_k; top_p # usual", ["--samplers=top_k; top_p"]),
        ("samplers = top_k;top_p\t; usual", None),
        ("samplers = top_k ; top_p", None),
        ("ot = blk\\.[0-9]+\\.ffn_.*=CPU", ["--override-tensor=blk\\.[0-9]+\\.ffn_.*=CPU"]),
        ("model = /m/a#1;b.gguf ; mine", ["--model=/m/a#1;b.gguf"]),
        ("model = '/m/a.gguf'", None),
        ('alias = "mine"', None),
        ('dry-sequence-breaker = "', ['--dry-sequence-breaker="']),
        ("dry-sequence-breaker = a;b", ["--dry-sequence-breaker=a;b"]),
        ("dry-sequence-breaker = ;", None),
        ("chat-template = {{ a }}{# b #}", ["--chat-template={{ a }}{# b #}"]),
        ('chat-template-kwargs = {"a": "b=c;d"}', ['--chat-template-kwargs={"a": "b=c;d"}']),
        ('chat-template-kwargs = {"a": "b #c"}', None),
        ("alias = a=b \t ", ["--alias=a=b"]),
        ("alias = a\u2028b", ["--alias=a\u2028b"]),
        ("alias = a\x1b[2Jb", None),
        ("temp = 0.7;0.8", None),
    ],
)
def test_a_comment_begins_after_a_blank_and_what_is_doubtful_is_refused(tmp_path, line, expected):
    if expected is not None:
        assert words(tmp_path, line) == expected
    else:
        with pytest.raises(ConfigError, match=r"p\.ini:2: "):
            words(tmp_path, line)


def test_a_value_that_is_wrong_since_a_comment_cut_it_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"""a JSON object, .*got '\{"a": "b' \('#c"\}' is a comment\)"""):
        words(tmp_path, 'chat-template-kwargs = {"a": "b #c"}')
