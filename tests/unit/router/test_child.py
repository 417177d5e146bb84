"""Processes of models: a short program stands for `uad serve`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from kit.router_kit import folder_model

from uad.base.common.parent import PARENT
from uad.router import child
from uad.router.child import ProcessFailedError, ProcessLauncher, command


def busy():
    """Whether the process has work."""
    return True


LISTENS = "import sys; print('listening on http://127.0.0.1:7', flush=True); "


def started(monkeypatch, program, then, environ=os.environ, still_s=1000.0):
    """What `then` finds out about a process with this program, and what it wrote to stderr."""
    monkeypatch.setattr(child, "command", lambda model: [sys.executable, "-c", program])
    lines = []

    async def main():
        async with asyncio.timeout(120):
            return await then(ProcessLauncher(environ, lambda *line: lines.append(line), still_s=still_s))

    return asyncio.run(main()), lines


def test_it_is_ready_once_it_listens_and_ends_when_it_is_asked_to(monkeypatch):
    async def then(launcher):
        one = await launcher.start(folder_model("m"), busy)
        await one.stop(20)
        return one.url, await one.wait()

    program = "import sys; print('hello', file=sys.stderr, flush=True); " + LISTENS + "sys.stdin.read()"
    (url, code), lines = started(monkeypatch, program, then)
    assert url == "http://127.0.0.1:7"
    assert code == -15
    assert lines == [("m", "hello")]


def test_the_memory_that_it_is_about_to_take_is_heard_before_it_listens(monkeypatch):
    async def then(launcher):
        planned = []
        one = await launcher.start(folder_model("m"), busy, planned.append)
        await one.stop(20)
        return planned

    program = "print('plans to take 1879048192 bytes'); print('plans to take a nap');" + LISTENS + "sys.stdin.read()"
    assert started(monkeypatch, program, then)[0] == [1879048192]


def test_one_that_does_not_end_is_ended(monkeypatch):
    async def then(launcher):
        one = await launcher.start(folder_model("m"), busy)
        await one.stop(0.0)
        return await one.wait()

    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + LISTENS + "sys.stdin.read()"
    assert started(monkeypatch, program, then)[0] == -9


SECRET = "2026-01-01 INFO  [alice-private-id] request 1: error: prompt 14 tokens"


@pytest.mark.parametrize(
    ("text", "end", "reason", "code"),
    [
        ("a\\nuad: error: no such file\\nb", "sys.exit(2)", "no such file", 2),
        ("uad: error: first\\nuad: error: last", "sys.exit(1)", "last", 1),
        (f"{SECRET}\\nbare words", "sys.exit(3)", "its process ended with code 3", 3),
        ("' + 'x' * 3_000_000 + '\\nuad: error: b", "sys.exit(3)", "b", 3),
        ("", "sys.exit(0)", "its process ended with code 0", 0),
        (SECRET, "os.kill(os.getpid(), 9)", "its process was ended by signal 9 (out of memory?)", -9),
        ("uad: error: long ago", "os.kill(os.getpid(), 9)", "its process was ended by signal 9 (out of memory?)", -9),
        (SECRET, "os.kill(os.getpid(), 11)", "its process was ended by signal 11 (SIGSEGV)", -11),
    ],
)
@pytest.mark.parametrize("listens", [False, True])
def test_the_reason_of_an_end_holds_no_words_of_clients(monkeypatch, text, end, reason, code, listens):
    """Whether the process ends while it loads or afterwards."""

    async def then(launcher):
        if not listens:
            with pytest.raises(ProcessFailedError) as failed:
                await launcher.start(folder_model("m"), busy)
            return str(failed.value), failed.value.code
        one = await launcher.start(folder_model("m"), busy)
        assert one.reason == ""
        one._process.stdin.close()
        found = await one.wait()
        return one.reason, found

    waits = f"{LISTENS} sys.stdin.read(); " if listens else ""
    program = f"import os, sys; {waits}sys.stderr.write('{text}\\n'); sys.stderr.flush(); {end}"
    assert started(monkeypatch, program, then)[0] == (reason, code)


FORKS = "import os, subprocess, sys; one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "


@pytest.mark.parametrize("is_seen_late", [False, True])
@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_what_a_process_has_started_ends_with_it(monkeypatch, end, is_seen_late):
    """It holds the pipes open: without that the end would never be seen. is_seen_late: the process has ended before
    anybody waits for it, as on a busy machine.
    """
    if is_seen_late:
        monkeypatch.setattr(child.asyncio, "create_subprocess_exec", ended_process)

    async def then(launcher):
        with pytest.raises(ProcessFailedError):
            await launcher.start(folder_model("m"), busy)

    _, lines = started(monkeypatch, f"{FORKS}print(one.pid, file=sys.stderr, flush=True); {end}", then)
    while not is_gone(int(lines[0][1])):
        os.sched_yield()


START = asyncio.create_subprocess_exec


async def ended_process(*words, **options):
    process = await START(*words, **options)
    while process.returncode is None:
        await asyncio.sleep(0.01)
    return process


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


STOPS = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"


def test_a_load_that_stands_still_is_ended_and_says_so(monkeypatch, caplog):
    async def then(launcher):
        with pytest.raises(ProcessFailedError, match="did nothing for minutes") as failed:
            await launcher.start(folder_model("m"), busy)
        return failed.value.stood_still

    assert started(monkeypatch, STOPS, then, still_s=0.5)[0]
    assert "look whether a disk, a network or a device that it needs stands still" in caplog.text


@pytest.mark.parametrize(
    "works", ["import time; [print(n, file=sys.stderr) or time.sleep(0.05) for n in range(52)]", ""]
)
def test_a_load_that_writes_lines_or_computes_does_not_stand_still(monkeypatch, works):
    async def then(launcher):
        one = await launcher.start(folder_model("m"), busy)
        await one.stop(20)

    computes = "import time; end = time.monotonic() + 2.6\nwhile time.monotonic() < end: pass\n"
    started(monkeypatch, f"import sys\n{works or computes}\n{LISTENS}sys.stdin.read()", then, still_s=2.0)


@pytest.mark.parametrize("has_work", [True, False])
def test_a_loaded_process_stands_still_only_where_it_has_work(monkeypatch, has_work):
    async def then(launcher):
        one = await launcher.start(folder_model("m"), lambda: has_work or not one_started)
        one_started.append(1)
        os.kill(one.pid, signal.SIGSTOP)
        if has_work:
            assert await one.wait() == -9
            return one.reason
        await asyncio.sleep(1.0)
        os.kill(one.pid, signal.SIGCONT)
        await one.stop(20)
        return one.reason

    one_started = []
    reason, _ = started(monkeypatch, f"{LISTENS}sys.stdin.read()", then, still_s=0.4)
    assert ("did nothing" in reason) is has_work


def test_a_killed_process_that_does_not_end_is_given_up(monkeypatch, caplog):
    """A disk may hold it: its place is needed."""

    async def then(launcher):
        one = await launcher.start(folder_model("m"), busy)
        with monkeypatch.context() as patched:
            patched.setattr(one, "_kill_group", lambda: None)
            one.kill()
            assert await one.wait() == -9
        one._kill_group()
        await one._process.wait()

    monkeypatch.setattr(child, "_GONE_S", 0.05)
    started(monkeypatch, f"{LISTENS}sys.stdin.read()", then)
    assert "does not end though it was killed" in caplog.text


def test_a_start_that_is_given_up_leaves_no_process(monkeypatch):
    said, pids = asyncio.Event(), []
    program = "import os, sys; print(os.getpid(), file=sys.stderr, flush=True); sys.stdin.read()"
    monkeypatch.setattr(child, "command", lambda model: [sys.executable, "-c", program])

    def tell(model, line):
        pids.append(int(line))
        said.set()

    async def main():
        starting = asyncio.create_task(ProcessLauncher(os.environ, tell).start(folder_model("m"), busy))
        await said.wait()
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()

    asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_its_environment_has_a_key_of_its_own_and_no_settings(monkeypatch):
    async def then(launcher):
        one = await launcher.start(folder_model("m", secrets=(("HF_TOKEN", "t"),)), busy)
        await one.stop(20)
        return one.key

    shown = "import os, sys; [print(f'{k}={v}', file=sys.stderr, flush=True) for k, v in os.environ.items()]; "
    program = shown + LISTENS + "sys.stdin.read()"
    environ = {**os.environ, "LLAMA_ARG_PORT": "1", "LLAMA_API_KEY": "of the router", "OPENAI_API_KEY": "mine"}
    key, lines = started(monkeypatch, program, then, environ)
    found = dict(line.split("=", 1) for _, line in lines if "=" in line)
    assert found["LLAMA_API_KEY"] == key != "of the router"
    assert (found["HF_TOKEN"], found[PARENT]) == ("t", "1")
    assert not {"LLAMA_ARG_PORT", "OPENAI_API_KEY"} & set(found)


def test_what_is_run_is_on_loopback_and_names_the_model():
    words = command(folder_model("m", aliases=("b", "a")))
    assert words[:5] == [sys.executable, "-P", "-m", "uad", "serve"]
    assert words[5:] == [
        "--model=/models/m.gguf", "--host=127.0.0.1", "--port=0", "--no-ui", "--metrics",
        "--no-log-timestamps", "--log-prefix", "--log-colors=off", "--alias=a,b,m"
    ]  # fmt: skip
