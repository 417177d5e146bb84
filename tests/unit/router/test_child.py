"""Processes of models: a short program stands for `uad serve`."""

import asyncio
import os
import sys

import pytest
from kit.router_kit import folder_model

from uad.base.common.parent import PARENT
from uad.router import child
from uad.router.child import LoadFailedError, ProcessLauncher, command

LISTENS = "import sys; print('listening on http://127.0.0.1:7', flush=True); "


def started(monkeypatch, program, then, environ=os.environ):
    """What `then` finds out about a process with this program, and what it wrote to stderr."""
    monkeypatch.setattr(child, "command", lambda model: [sys.executable, "-c", program])
    lines = []

    async def main():
        async with asyncio.timeout(30):
            return await then(ProcessLauncher(environ, lambda *line: lines.append(line)))

    return asyncio.run(main()), lines


def test_it_is_ready_once_it_listens_and_ends_when_it_is_asked_to(monkeypatch):
    async def then(launcher):
        one = await launcher.start(folder_model("m"))
        await one.stop(20)
        return one.url, await one.wait()

    program = "import sys; print('hello', file=sys.stderr, flush=True); " + LISTENS + "sys.stdin.read()"
    (url, code), lines = started(monkeypatch, program, then)
    assert url == "http://127.0.0.1:7"
    assert code == -15
    assert lines == [("m", "hello")]


def test_one_that_does_not_end_is_ended(monkeypatch):
    async def then(launcher):
        one = await launcher.start(folder_model("m"))
        await one.stop(0.0)
        return await one.wait()

    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + LISTENS + "sys.stdin.read()"
    assert started(monkeypatch, program, then)[0] == -9


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\\nuad: error: no such file\\nb", "no such file"),
        ("a\\nb", "b"),
        ("", "its process ended with code 3"),
        ("' + 'x' * 3_000_000 + '\\nb", "b"),
    ],
)
def test_one_that_ends_before_says_why(monkeypatch, text, reason):
    async def then(launcher):
        with pytest.raises(LoadFailedError) as failed:
            await launcher.start(folder_model("m"))
        return str(failed.value), failed.value.code

    program = f"import sys; sys.stderr.write('{text}'); sys.exit(3)"
    assert started(monkeypatch, program, then)[0] == (reason, 3)


def test_a_start_that_is_given_up_leaves_no_process(monkeypatch):
    said, pids = asyncio.Event(), []
    program = "import os, sys; print(os.getpid(), file=sys.stderr, flush=True); sys.stdin.read()"
    monkeypatch.setattr(child, "command", lambda model: [sys.executable, "-c", program])

    def tell(model, line):
        pids.append(int(line))
        said.set()

    async def main():
        starting = asyncio.create_task(ProcessLauncher(os.environ, tell).start(folder_model("m")))
        await said.wait()
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()

    asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_its_environment_has_a_key_of_its_own_and_no_settings(monkeypatch):
    async def then(launcher):
        one = await launcher.start(folder_model("m", secrets=(("HF_TOKEN", "t"),)))
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
