"""What survives and what does not: a failing draft never ends the service; a target that fails for good ends the
process, so that it is started anew.
"""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.models import DRAFTS, TARGET, chat_prompts, chat_requests, config, finish
from kit.process import Server, uad
from kit.runtime_parts import parts_on
from kit.toys import TARGET_VOCAB, Collector, ScriptedModel, make_engine

from uad.base.common.curves import CURVES_VERSION
from uad.base.config import Config
from uad.base.errors import ConfigError, DecodeError, ModelLoadError, UnavailableError
from uad.base.types import Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.lookup.store import StoreFile
from uad.llama.context import Context
from uad.runtime import draft_model, lookups, runtime, timing
from uad.runtime.costs import profile_store
from uad.runtime.runtime import Runtime

BREAKS = """
import sys
import uad.http.server.lifecycle as life
from uad.tools.cli import main
from uad.base.errors import DecodeError
from uad.llama.context import Context

real, make_runner, broken = Context.decode, life.make_runner, []

def decode(self, rows, may_stop=False):
    if self._role == ROLE:
        is_long = len(rows[0].ids) > 20
        broken.extend([True] * is_long)
        if is_long or (broken and FOR_GOOD):
            raise DecodeError(f"{ROLE}: injected")
    return real(self, rows, may_stop)

def listening(*args):
    Context.decode = decode
    return make_runner(*args)

life.make_runner = listening
sys.exit(main(sys.argv[1:]))
"""
"""`uad` whose decodes of a role fail once it listens: those of more than 20 rows, and behind the first of them all
where it is for good.
"""
CHAT = {
    "messages": [{"role": "user", "content": "Write a Python class named Cart. " * 8}],
    "max_tokens": 40,
    "temperature": 0,
}
PAIR = (
    "--target",
    str(TARGET),
    "--draft",
    str(DRAFTS["zephyr"]),
    "-c",
    "2048",
    "-t",
    "1",
    "-td",
    "1",
    "--spec-policy",
    "fixed",
    "--metrics",
)


def breaking(role: str, for_good: bool) -> tuple[str, str]:
    return "-c", f"ROLE, FOR_GOOD = {role!r}, {for_good}\n{BREAKS}"


def post(server: Server, body: object) -> tuple[int, dict]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(server.url + "/v1/chat/completions", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=240) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


# --- a process


@pytest.mark.model
def test_a_target_that_fails_for_good_ends_the_process_with_an_exit_code_when_its_clients_were_told(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path / "log", PAIR, program=breaking("target", for_good=True))
    status, answer = post(server, CHAT)
    code = server.process.wait(120)
    server.stop()
    assert status == 500
    assert "injected" in answer["error"]["message"]
    assert code == 1
    log = server.log.read_text()
    assert "uad: error: target: injected" in log
    assert "Traceback" not in log


@pytest.mark.model
def test_a_decode_that_fails_is_a_500_and_the_service_goes_on(tmp_path: Path) -> None:
    with Server(tmp_path / "log", PAIR, program=breaking("target", for_good=False)) as server:
        assert post(server, CHAT)[0] == 500
        assert post(server, {**CHAT, "messages": [{"role": "user", "content": "Hi"}]})[0] == 200
        assert post(server, CHAT)[0] == 500
        assert server.process.poll() is None


@pytest.mark.model
def test_a_draft_that_fails_for_good_is_a_line_and_a_metric_and_the_text_is_the_targets(tmp_path: Path) -> None:
    with Server(tmp_path / "log", PAIR, program=breaking("draft", for_good=True)) as server:
        answers = [post(server, {**CHAT, "speculative": {"enabled": on}}) for on in (True, True, False)]
        assert [status for status, _ in answers] == [200] * 3
        texts = {answer["choices"][0]["message"]["content"] for _, answer in answers}
        assert len(texts) == 1
        with urllib.request.urlopen(server.url + "/metrics", timeout=240) as answer:
            metrics = answer.read().decode()
        assert 'uad:drafter_failures_total{type="draft-simple"} ' in metrics
        assert 'uad:drafter_failures_total{type="draft-simple"} 0' not in metrics
        assert 'uad:drafter_off{type="draft-simple"} 1' in metrics
        assert server.process.poll() is None
    assert server.log.read_text().count("draft-simple failed (draft: injected) and is left alone for 1 s") == 1


# --- the runtime


def test_who_waits_for_the_end_is_told_once_all_requests_were(monkeypatch: pytest.MonkeyPatch) -> None:
    target = ScriptedModel(TARGET_VOCAB)
    engine = make_engine(target)
    made = parts_on(engine)
    monkeypatch.setattr(runtime, "build", lambda *_: made)
    opened = Runtime.open(Config(target=None))
    monkeypatch.setattr(target, "decode", lambda rows, may_stop=False: (_ for _ in ()).throw(DecodeError("gone")))
    told, sink, over = [], Collector(), threading.Event()
    opened.when_stopped(lambda: told.append(sink.end))
    opened.when_stopped(lambda: 1 / 0)
    opened.when_stopped(over.set)
    opened.submit(Request((1, 2, 3)), sink)
    assert over.wait(120)
    opened.close()
    assert str(sink.failed.error) == "gone"
    assert told == [sink.end]
    assert str(opened.error) == "gone"
    opened.when_stopped(lambda: told.append("late"))
    assert told[1:] == ["late"]
    with pytest.raises(UnavailableError):
        opened.submit(Request((1, 2, 3)), Collector())


# --- at start


def plain_text(opened: Runtime) -> list[str]:
    asked = Request((), SamplingParams(temperature=0), SpeculativeParams(policy=SpecPolicy.FIXED), max_tokens=20)
    return [one.text for one in finish(opened, chat_requests(opened, chat_prompts(2), asked))]


@pytest.mark.model
@pytest.mark.parametrize("where", ["threads", "measuring", "rules", "first decode"])
def test_a_draft_that_fails_at_start_is_left_out_with_one_line(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DecodeError("draft: injected") if where != "rules" else ZeroDivisionError("injected")

    def fails_for_the_draft(real, role_at: int):
        return lambda *args: fail() if args[role_at] == "draft" else real(*args)

    match where:
        case "threads":
            monkeypatch.setattr(Context, "choose_threads", fail)
        case "measuring":
            monkeypatch.setattr(timing, "curve", fails_for_the_draft(timing.curve, 2))
        case "rules":
            monkeypatch.setattr(draft_model, "plan", fail)
        case "first decode":
            real = Context.decode
            monkeypatch.setattr(
                Context, "decode", lambda self, *args: fail() if self._role == "draft" else real(self, *args)
            )
    with Runtime.open(config()) as opened:
        assert opened.info.draft is None
        (line,) = [note for note in opened.info.notes if "injected" in note]
        assert "failed at start" in line
        assert line.endswith("plain decoding")
        failing = plain_text(opened)
    monkeypatch.undo()
    with Runtime.open(config(draft=None)) as plain:
        assert plain_text(plain) == failing


@pytest.mark.model
def test_a_draft_that_cannot_be_loaded_is_the_users_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.gguf").write_bytes(b"no model")
    result = uad("serve", "--target", str(TARGET), "--draft", str(tmp_path / "d.gguf"), "-c", "512", "--port", "0")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    with pytest.raises(ModelLoadError):
        Runtime.open(config(draft=tmp_path / "d.gguf"))


def test_a_drafter_that_cannot_write_its_file_is_named_and_keeps_nothing_else_from_being_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lookups.close_lookup(SimpleNamespace(origin=Origin.SUFFIX, close=lambda: 1 / 0))
    assert "suffix could not write what it has learned (ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "samples", ["[[1, 0, 1" + "0" * 400 + "]]", "[[1, 0, NaN]]", "[[1, 0]]", "{}", "[[[[" * 40_000]
)
def test_a_broken_profile_is_named_and_not_used(samples: str, tmp_path: Path) -> None:
    file = tmp_path / "curve.json"
    file.write_text(f'{{"version": {CURVES_VERSION}, "samples": {samples}}}')
    with pytest.raises(ConfigError, match=r"curve\.json is no cost curve"):
        profile_store.read(file)


@pytest.mark.parametrize("error", [ValueError("bad"), OverflowError("bad"), IndexError("bad")])
def test_a_store_whose_rows_make_no_sense_is_named_and_kept(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky:
        def load(self, rows: object) -> None:
            raise error

    file = StoreFile(tmp_path / "store", "things", 1, "0123")
    with caplog.at_level(logging.WARNING):
        assert not file.fill(Picky())
    assert "store: not used: its rows make no sense (bad)" in caplog.text
    (tmp_path / "store").write_bytes(b"[" * 4000 + b"\n")
    assert file.load() is None
