"""The `uad` command: exit codes, one-line errors, streaming to the terminal. No model: the runtime is a stand-in."""

from __future__ import annotations

import io
import re
import socket
import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import pytest
from kit.process import ENV
from rich.console import Console

from uad.base.config import ServerConfig
from uad.base.config.argv import Parser, add_flags
from uad.base.config.flags import GROUPS
from uad.base.config.load import folder_from
from uad.base.console import progress
from uad.base.errors import ModelLoadError, NoKvRoomError, UadError
from uad.base.events import Delta, Done, Failed, ModelInfo, RuntimeInfo
from uad.base.stats import DraftStats, Timings, Usage
from uad.base.types import Finish, Origin, StopKind
from uad.tools.cli import generate, inspect, main, serve

PIECES = {8: b"<think>", 1: b"On", 2: b"ce \xf0\x9f", 3: b"\xa6\x8a", 9: b"<eos>"}


class FakeRuntime:
    """Answers every request with the events it was given."""

    def __init__(self, events, template="{{ messages }}"):
        target = ModelInfo("t.gguf", "toy", 1, 1, 64, 16, 8, 1, 1, template)
        self.info = RuntimeInfo(target, None, 64, 1, "test", ("family: chatml",))
        self.events, self.requests, self.cancelled, self.closed = events, [], [], False
        self.config = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.closed = True

    @property
    def text(self):
        return self

    def chat(self, messages, kwargs, prefill=""):
        return [7, len(messages[0]["content"]), *([len(prefill)] if prefill else [])]

    def check_length(self, text):
        pass

    def tokenize(self, text, add_special=False):
        return [int(add_special), len(text)]

    def piece(self, id_):
        return PIECES[id_]

    def is_special(self, id_):
        return id_ in (8, 9)

    def submit(self, request, sink):
        self.requests.append(request)
        for event in self.events:
            sink(event)
        return 5

    def cancel(self, request, why=""):
        self.cancelled.append(request)


DELTAS = (
    Delta(5, (8, 1), (Origin.TARGET, Origin.TARGET), "On"),
    Delta(5, (2, 3, 9), (Origin.MODEL, Origin.TARGET, Origin.MODEL), "ce \N{FOX FACE}"),
)
DONE = Done(
    5,
    Finish.STOP,
    StopKind.EOS,
    Usage(2, 0, 4),
    Timings(1.0, 1500.0, 2, 0, 4, DraftStats(n_drafts=1, n_drafted=4, n_accepted=2)),
    text="!",
)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `uad` with a runtime that gives these events; returns (exit code, stdout, stderr, runtime)."""

    def run(*argv, events=(*DELTAS, DONE), error=None, template="{{ messages }}"):
        runtime = FakeRuntime(events, template)

        class Runtime:
            @staticmethod
            def open(config, report, planned):
                runtime.config = config
                report("loading target", 0.5)
                report("loading target", 1.0)
                if error is not None:
                    raise error
                return runtime

        module = ModuleType("uad.runtime.runtime")
        module.Runtime = Runtime
        monkeypatch.setitem(sys.modules, "uad.runtime.runtime", module)
        code = main(list(argv))
        out, err = capsys.readouterr()
        return code, out, err, runtime

    return run


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_names_every_command(words, capsys):
    assert main(words) == 0
    out = capsys.readouterr().out
    assert [
        name
        for name in ("serve", "generate", "inspect", "trim", "bench")
        if not re.search(rf"^  {name} ", out, re.MULTILINE)
    ] == []


def test_no_command_is_wrong_usage(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "commands:" in err


def test_version_names_both(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(
        r"uad \d+\.\d+\.\d+\S* \(llama-cpp-python (\d+\.\d+\.\d+\S*|not installed)\)\n", capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["srve"], ["'srve'", "did you mean serve?"]),
        (["serve", "--porrt", "1"], ["--porrt", "did you mean --port?"]),
        (["serve", "-m", "x", "--port", "x"], ["--port", "'x'"]),
        (["serve"], ["no target model; name its GGUF file with --model FILE"]),
        (["check"], ["no target model; give its GGUF file: uad check TARGET ("]),
        (["inspect"], ["uad inspect TARGET ("]),
        (["profile"], ["uad profile TARGET ("]),
        (["generate", "-m", "x"], ["no prompt", "-p TEXT"]),
        (["generate", "-m", "x", "-p", ""], ["prompt is empty"]),
        (["generate", "-m", "x", "-p", "a", "-f", "b"], ["-f", "not allowed with"]),
        (["generate", "-m", "x", "-p", "a", "--port", "1"], ["--port is a flag of `uad serve`"]),
        (["generate", "-m", "x", "-f", "/nowhere.txt"], ["/nowhere.txt"]),
        (["inspect", "x"], ["--hf-repo-draft"]),
        (["bench", "--target", "x"], ["--target", "uad bench requests URL", "uad inspect TARGET DRAFT --measure"]),
        (["bench"], ["URL"]),
        (["bench", "http://x", "--nope"], ["--nope"]),
        (["bench", "requests"], ["URL"]),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(words, parts, capsys, monkeypatch):
    monkeypatch.setattr("os.environ", {})
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("uad: error: ")
    assert err.count("\n") == 1
    assert all(part in err for part in parts), err


@pytest.mark.parametrize("command", [["serve"], ["generate"], ["inspect"], ["trim"], ["bench"], ["bench", "requests"]])
def test_each_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([*command, "--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: uad {' '.join(command)}")


def test_a_model_that_does_not_load_is_one_line_and_exit_code_2(run):
    code, out, err, _ = run("generate", "-m", "x", "-p", "Hi", error=ModelLoadError("x is not a GGUF file"))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "uad: error: x is not a GGUF file"


def test_generate_streams_text_and_ends_with_numbers(run):
    code, out, err, runtime = run("generate", "-m", "x", "-p", "Hi", "-n", "4", "--seed", "3", "-np", "4")
    assert (code, out) == (0, "Once \N{FOX FACE}!\n")
    assert "uad: family: chatml\n" in err
    assert err.splitlines()[-1] == "uad: 4 tokens, 2.0 tokens/s, 2 of 4 guesses accepted (50%)"
    (request,) = runtime.requests
    assert (request.prompt, request.max_tokens, request.sampling.seed) == ((7, 2), 4, 3)
    assert runtime.closed
    assert runtime.config.n_parallel == 1


def test_generate_goes_on_behind_the_beginning_of_an_answer(run):
    code, _, _, runtime = run("generate", "-m", "x", "-p", "Hi", "--prefill", "Once")
    assert (code, runtime.requests[0].prompt) == (0, (7, 2, 4))
    code, _, err, _ = run("generate", "-m", "x", "-p", "Hi", "--no-chat", "--prefill", "Once")
    assert code == 2
    assert "--prefill" in err.splitlines()[-1]


def test_generate_colours_accepted_draft_tokens_and_waits_for_whole_characters(run):
    _, out, _, _ = run("generate", "-m", "x", "-p", "Hi", "--color", "on")
    assert out == "On\x1b[4;38;5;32mce \x1b[0m\N{FOX FACE}\n"


@pytest.mark.parametrize(
    ("words", "template", "prompt"),
    [([], "{{ x }}", (7, 2)), ([], None, (1, 2)), (["--no-chat"], "{{ x }}", (1, 2)), (["--chat"], None, (7, 2))],
)
def test_generate_takes_a_template_where_there_is_one(run, words, template, prompt):
    _, _, _, runtime = run("generate", "-m", "x", "-p", "Hi", *words, template=template)
    assert runtime.requests[0].prompt == prompt


def test_generate_reads_a_file(run, tmp_path):
    (tmp_path / "prompt").write_text("Hello", encoding="utf-8")
    _, _, _, runtime = run("generate", "-m", "x", "-f", str(tmp_path / "prompt"))
    assert runtime.requests[0].prompt == (7, 5)


def test_a_prompt_that_is_no_text_is_refused(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xff"), "utf-8"))
    code, _, err, _ = run("generate", "-m", "x", "-f", "-")
    assert (code, "-f -: stdin: not UTF-8 text (byte 1)" in err) == (2, True)


def test_generate_tells_a_failure(run):
    code, out, err, _ = run("generate", "-m", "x", "-p", "Hi", events=(DELTAS[0], Failed(5, NoKvRoomError("no room"))))
    assert (code, out) == (1, "On")
    assert err.splitlines()[-1] == "uad: error: no room"


def test_a_failure_of_the_program_itself_is_no_wrong_usage(run):
    code, _, err, _ = run("generate", "-m", "x", "-p", "Hi", events=(Failed(5, UadError("internal error: broken")),))
    assert (code, err.splitlines()[-1]) == (1, "uad: error: internal error: broken")


def test_an_interrupt_cancels_the_request(run, monkeypatch):
    def interrupt(self, delta):
        raise KeyboardInterrupt

    monkeypatch.setattr(generate.TerminalWriter, "write", interrupt)
    code, _, err, runtime = run("generate", "-m", "x", "-p", "Hi")
    assert (code, runtime.cancelled, runtime.closed) == (130, [5], True)
    assert err.endswith("uad: interrupted\n")


def test_summary_without_a_draft():
    done = Done(5, Finish.STOP, StopKind.EOS, Usage(2, 0, 3), Timings(1.0, 1000.0, 2, 0, 3))
    assert generate.summary(done) == "3 tokens, 2.0 tokens/s, nothing drafted"


def test_summary_has_the_words_of_the_page():
    stats = DraftStats(n_rounds=4, n_drafts=4, n_drafted=10, n_accepted=7)
    done = Done(5, Finish.STOP, StopKind.EOS, Usage(2, 0, 11), Timings(1.0, 1000.0, 2, 0, 11, stats))
    words = "11 tokens, 10.0 tokens/s, 7 of 10 guesses accepted (70%), 2.8 tokens per target pass"
    assert generate.summary(done) == words


def test_the_server_says_where_the_page_is_unless_there_is_none():
    config = ServerConfig(host="0.0.0.0", api_prefix="/llm")
    *_, last = serve.greeting("http://0.0.0.0:8080/llm", config, can_chat=True)
    assert last.endswith(" http://127.0.0.1:8080/llm/")
    assert len(list(serve.greeting("http://0.0.0.0:8080", replace(config, ui=False), can_chat=True))) == 2


def test_a_port_in_use_is_said_before_anything_is_loaded(run):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        code, _, err, runtime = run("serve", "-m", "x", "--port", port)
    assert code == 2
    assert err.splitlines()[-1].startswith(f"uad: error: port {port} on 127.0.0.1 is already in use")
    assert runtime.config is None


def test_what_is_wrong_with_files_is_said_at_once_and_of_all_of_them(run, tmp_path):
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes(4))
    (tmp_path / "text.gguf").write_text("no model")
    files = {"-m": "none.gguf", "-md": "cut.gguf", "--mmproj": "text.gguf", "--lora": "none.lora"}
    words = [word for flag, name in files.items() for word in (flag, str(tmp_path / name))]
    words += ["--target-tokenizer", "none.json"]
    expected = [
        *("none.gguf: no such", "none.lora: no such", "cut.gguf: damaged", "text.gguf: not a GGUF"),
        "--target-tokenizer none.json: no such",
    ]
    for command in (["serve"], ["generate", "-p", "Hi"]):
        code, _, err, runtime = run(*command, *words)
        assert (code, runtime.config) == (2, None)
        for line, part in zip(err.splitlines(), expected, strict=True):
            assert part in line


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (["-m", "llama3.2"], "a model of Hugging Face is named with --hf-repo USER/REPO"),
        (["-m", "user/repo"], "a model of Hugging Face is named with --hf-repo user/repo"),
        (["-m", "user/repo:Q8_0"], "--hf-repo user/repo:Q8_0"),
        (["-m", "x", "-md", "user/small"], "is named with --hf-repo-draft user/small"),
        (["-m", "."], "a folder; `uad serve --models-dir .` serves all models in it"),
        (["-m", "x", "-md", "."], "draft .: not a file"),
    ],
)
def test_a_name_that_is_no_file_has_a_way_out(run, words, way_out):
    for command in ("serve", "inspect", "check"):
        code, _, err, _ = run(command, *words)
        assert code == 2
        assert way_out in err.splitlines()[-1]


def test_a_dead_link_says_where_it_leads(run, tmp_path):
    (tmp_path / "dead.gguf").symlink_to("gone.gguf")
    (tmp_path / "gone.gguff").touch()
    assert "it is a link to gone.gguf, which is not there" in run("serve", "-m", "dead.gguf")[2]
    assert "did you mean" not in run("serve", "-m", "deed.gguf")[2]


def test_an_address_that_is_not_ours_is_named(run):
    code, _, err, _ = run("serve", "-m", "x", "--host", "no.such.host.invalid")
    assert code == 2
    assert "no.such.host.invalid" in err


@pytest.mark.parametrize(
    ("url", "host"),
    [("http://0.0.0.0:80/v", "127.0.0.1:80/v"), ("http://[::]:80", "[::1]:80"), ("http://10.0.0.1:8", "10.0.0.1:8")],
)
def test_the_curl_line_reaches_this_machine(url, host):
    line = serve.curl(url, ServerConfig(), can_chat=True)
    assert line.startswith(f"curl http://{host}/v1/chat/completions -H ")
    assert "Authorization" not in line


def test_the_curl_line_shows_no_key():
    line = serve.curl("http://x", ServerConfig(api_keys=("secret",)), can_chat=False)
    assert "secret" not in line
    assert '"Authorization: Bearer $LLAMA_API_KEY"' in line
    assert "/v1/completions" in line


def test_the_report_is_printed_as_it_is():
    out = io.StringIO()
    inspect.print_sections([("target", [("special", "[bold]<|im_end|>[/]")])], Console(file=out, width=80))
    assert re.search(r"target\s+special\s+\[bold\]<\|im_end\|>\[/\]", out.getvalue())


def test_progress_off_a_terminal_is_two_lines_per_step():
    err = io.StringIO()
    with progress(err) as report:
        for share in (0.0, 0.5, 1.0, 1.0):
            report("loading", share)
    assert re.fullmatch(r"uad: loading …\nuad: loading: done in \d+\.\d s\n", err.getvalue())


@pytest.mark.parametrize("words", [["--help"], ["serve", "--help"]])
def test_a_reader_that_leaves_is_no_traceback(words):
    command = [sys.executable, "-m", "uad", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (0, 1)  # argparse keeps quiet about it itself


@pytest.mark.parametrize(
    ("words", "ways"),
    [
        (["run", "llama3"], ["uad serve -hf USER/REPO", "--models-dir FOLDER"]),
        (["run", "m.gguf"], ["`uad serve m.gguf` serves it", "`uad generate m.gguf PROMPT`"]),
        (["m.gguf"], ["`uad serve m.gguf` serves it"]),
        (["a folder"], ["`uad serve 'a folder'` serves it"]),
        (["pull", "llama3"], ["uad serve -hf USER/REPO", "hf download"]),
        (["list"], ["--models-dir FOLDER", "GET /v1/models", "uad inspect --all FOLDER"]),
        (["chat"], ["uad serve -hf USER/REPO"]),
        (["ps"], ["GET /v1/models"]),
        (["show", "llama3"], ["uad inspect TARGET DRAFT"]),
        (["rm", "llama3"], ["models are files"]),
        (["stop", "llama3"], ["/models/unload", "Ctrl+C"]),
        (["create", "x", "-f", "Modelfile"], ["--models-preset"]),
        (["RUN", "llama3"], ["-hf USER/REPO"]),
        (["srve"], ["did you mean serve?"]),
    ],
)
def test_a_command_of_another_program_says_the_way_here(words, ways, tmp_path, capsys):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "a folder").mkdir()
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"uad: error: unknown command {words[0]!r}; ")
    assert all(way in err for way in ways), err


@pytest.mark.parametrize(
    ("words", "target", "prompt"),
    [
        (["x", "Hi"], "x", 2),
        (["x", "-n", "4", "Hello"], "x", 5),
        (["-n", "4", "x", "Hello"], "x", 5),
        (["-m", "x", "Hello"], "x", 5),
        (["Hello", "-m", "x"], "x", 5),
        (["x", "-p", "Hi"], "x", 2),
        (["x", "-p", "Hi", "--draft", "x"], "x", 2),
    ],
)
def test_generate_takes_a_file_and_a_prompt_without_flags(run, words, target, prompt):
    code, _, err, runtime = run("generate", *words)
    assert code == 0, err
    assert (str(runtime.config.target.path), runtime.requests[0].prompt) == (target, (7, prompt))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["x", "d.gguf"], "a draft model is given with --draft d.gguf"),
        (["x", "Hi", "-p", "Hello"], "the prompt is given twice"),
        (["x", "Hi", "there"], "unexpected argument 'there'"),
        (["Hi"], "no target model"),
        (["llama3.2", "Hi"], "--hf-repo USER/REPO"),
        (["llama3.2", "-p", "Hi"], "--hf-repo USER/REPO"),
    ],
)
def test_words_of_generate_that_mean_nothing_are_refused(run, words, problem):
    code, _, err, _ = run("generate", *words)
    assert code == 2
    assert problem in err


@pytest.mark.parametrize(
    "words",
    [
        *(["x"], ["x", "y"], ["--temp", "0", "x", "y"], ["x", "--temp", "0", "y"], ["x", "--draft", "y"]),
        *(["--target", "x"], ["x", "y", "--temp", "0"]),
    ],
)
def test_serve_takes_target_and_draft_without_flags(run, monkeypatch, tmp_path, words):
    (tmp_path / "y").write_bytes((tmp_path / "x").read_bytes())
    seen = []
    monkeypatch.setattr(serve, "_serve_one", lambda config, *_: seen.append(config))
    assert run("serve", *words)[0] == 0
    (config,) = seen
    assert str(config.target.path) == "x"
    assert (config.draft is not None) == ("y" in words)


def test_serve_takes_a_folder_without_a_flag(run, monkeypatch):
    seen = []
    monkeypatch.setattr(serve, "_serve_folder", seen.append)
    assert run("serve", ".", "--draft", "auto")[0] == 0
    assert str(seen[0].router.models_dir) == "."
    assert run("serve", ".", "--target", "x")[0] == 2
    assert "unexpected argument 'z'" in run("serve", "x", "x", "z")[2]


def test_inspect_takes_files_after_flags_too(run):
    assert "TARGET" in run("inspect", "--json")[2]
    assert "--json: only measurements" in run("inspect", "--json", "x", "x")[2]


@pytest.mark.parametrize(
    ("words", "is_said"),
    [
        ([], True),
        (["--draft", "x"], False),
        (["--no-draft"], False),
        (["--spec-type", "suffix"], False),
        (["--spec-default"], False),
        (["--draft", "auto"], False),
    ],
)
def test_without_a_draft_a_line_says_what_would_draft(run, words, is_said):
    _, _, err, _ = run("generate", "x", "Hi", *words)
    lines = [line for line in err.splitlines() if "--draft auto chooses" in line and "--spec-type suffix" in line]
    assert len(lines) == is_said


def test_a_draft_that_was_looked_for_in_vain_leads_to_look_ups(run):
    err = run("generate", "x", "Hi", "--draft", "auto")[2]
    assert "is expected to pay; --spec-type suffix drafts from the text itself" in err


def folder_lines(*words, names=()):
    parser = Parser("uad serve", "")
    add_flags(parser, tuple(GROUPS))
    return list(serve._folder_lines(names, folder_from(parser.parse(words), {})))


def test_a_folder_says_how_many_models_there_are_and_what_would_draft(tmp_path):
    (tmp_path / "p.ini").touch()
    first, second = folder_lines("--models-dir", ".", names=["a", "b"])
    assert first == "2 models, loaded on demand: a, b"
    assert "--draft auto" in second
    assert folder_lines("--models-dir", ".", "--draft", "auto") == [
        "no model yet: put GGUF files into ., into folders of it, or into theirs"
    ]
    assert folder_lines("--models-preset", "p.ini") == [
        "no model yet: p.ini has no section with `model` or `hf-repo`, and no --models-dir is given"
    ]
