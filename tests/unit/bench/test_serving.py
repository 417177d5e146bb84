"""Servers that the bench starts: how they are found, that none is left, and what is said where one does not start."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from uad.base.errors import ConfigError, UnavailableError
from uad.tools.bench import serving as module
from uad.tools.bench.serving import serving

ROOT = Path(__file__).parents[3]
SERVER = """
import sys, time
print("loading", flush=True)
print(__import__("os").getpid(), file=open({pid!r}, "w"), flush=True)
print("listening on http://127.0.0.1:4711", flush=True)
time.sleep(600)
"""


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Lets `uad serve` be another program; returns where that one writes its pid."""

    def put(text):
        path = tmp_path / "program.py"
        path.write_text(text.format(pid=str(tmp_path / "pid")))
        real = subprocess.Popen

        def popen(command, **more):
            assert command[1:5] == ["-P", "-m", "uad", "serve"]
            return real([sys.executable, str(path)], **more)

        monkeypatch.setattr(module.subprocess, "Popen", popen)
        return tmp_path / "pid"

    return put


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, SystemExit, UnavailableError])
def test_a_server_lives_as_long_as_its_block_however_that_ends(program, error):
    pid = program(SERVER)
    try:
        with serving([], os.environ) as client:
            assert client.url == "http://127.0.0.1:4711"
            assert is_running(int(pid.read_text()))
            if error is not None:
                raise error
    except (KeyboardInterrupt, SystemExit, UnavailableError):
        assert error is not None
    assert not is_running(int(pid.read_text()))


@pytest.mark.parametrize(("code", "kind"), [(2, ConfigError), (1, UnavailableError)])
def test_a_server_that_ends_before_it_listens_is_an_error_of_the_same_kind(program, code, kind):
    program(f"import sys; sys.exit({code})")
    with pytest.raises(kind, match=f"ended with code {code} before it was ready"), serving([], os.environ):
        pass


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="POSIX")
@pytest.mark.parametrize("is_in_background", [False, True], ids=["", "in a script's background"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_bench_stops_its_server(tmp_path, number, is_in_background):
    """Also where a shell has it ignore SIGINT: the server does not, so it would be measured no more."""
    server, pid = tmp_path / "server.py", tmp_path / "pid"
    server.write_text(SERVER.format(pid=str(pid)))
    bench = f"""
        import os, signal, subprocess, sys, time
        if {is_in_background}:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        from uad.tools.bench import serving as module
        real = subprocess.Popen
        module.subprocess.Popen = lambda command, **more: real([sys.executable, {str(server)!r}], **more)
        with module.serving([], os.environ):
            print("measuring", flush=True)
            time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(bench)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=environ, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "measuring\n"
        process.send_signal(number)
        assert process.wait(120) != 0
    assert not is_running(int(pid.read_text()))
