"""`uad serve --models-dir` with real processes: what it costs nobody when one of them ends, a file is replaced, clients
leave or signals come.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kit.models import DRAFTS, HEADS, TARGET, quantized
from kit.opened import answering
from kit.process import Server, uad

from uad.base.config import Config, ModelConfig
from uad.runtime.runtime import Runtime

pytestmark = [pytest.mark.llama, pytest.mark.long]
NAMES = ("chatml", "gemma", "quarter", "zephyr")
FILES = {"chatml": TARGET, "gemma": DRAFTS["gemma"], "zephyr": DRAFTS["zephyr"]}
"""Those of `NAMES` that are bundled. `quarter` is made of the first."""
PROMPTS = ("Count from 1", "Once upon a time", "The river", "def add(a, b):")
N_TOKENS = 12
FLAGS = ("--threads", "1", "--ctx-size", "512", "--models-max", "2")
PATIENCE = 90.0


def ask(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def completion(name: str, prompt: str, **more: Any) -> dict[str, Any]:
    return {"model": name, "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0, **more}


def text_of(url: str, name: str, prompt: str) -> str:
    status, body = ask(url, "POST", "/v1/completions", completion(name, prompt))
    assert status == 200, body
    return str(body["choices"][0]["text"])


def until(done: Callable[[], Any]) -> Any:
    """What `done` returns once it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def states(url: str) -> dict[str, str]:
    return {one["id"]: one["status"]["value"] for one in ask(url, "GET", "/models")[1]["data"]}


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of four models."""
    return {**FILES, "quarter": quantized("q4_0", tmp_path_factory.mktemp("quarter"))}


@pytest.fixture(scope="module")
def alone(files: dict[str, Path]) -> dict[tuple[str, str], str]:
    """What each model says to each prompt, served alone, in this process."""
    said = {}
    for name in NAMES:
        with Runtime.open(Config(ModelConfig(files[name], n_ctx=512, n_threads=1))) as runtime:
            said |= asyncio.run(texts(runtime, name))
    return said


async def texts(runtime: Runtime, name: str) -> dict[tuple[str, str], str]:
    found = {}
    async with answering(runtime) as session:
        for prompt in PROMPTS:
            async with session.post("/v1/completions", json=completion(name, prompt)) as answer:
                found[name, prompt] = str((await answer.json())["choices"][0]["text"])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]) -> Path:
    made = tmp_path_factory.mktemp("models")
    for name, file in files.items():
        shutil.copy(file, made / f"{name}.gguf")
    return made


@pytest.fixture(scope="module")
def router(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Of all tests that leave it running: a start and a model take a second each."""
    with Server(tmp_path_factory.mktemp("router") / "log", ["--models-dir", str(folder), *FLAGS]) as server:
        yield server


@pytest.fixture
def ending(folder: Path, tmp_path: Path) -> Iterator[Server]:
    """One that the test ends."""
    with Server(tmp_path / "log", ["--models-dir", str(folder), *FLAGS]) as server:
        yield server


def put(file: Path, folder: Path, name: str) -> None:
    """Put a file in a model's place, at once."""
    shutil.copy(file, folder / "new")
    (folder / "new").rename(folder / f"{name}.gguf")


def test_a_process_that_is_killed_costs_its_own_requests_and_comes_back(router: Server) -> None:
    assert text_of(router.url, "gemma", "Count")
    (gemma,) = children(router.process.pid)
    assert text_of(router.url, "zephyr", "Count")
    os.kill(gemma, signal.SIGKILL)
    until(lambda: states(router.url)["gemma"] == "unloaded")
    status = ask(router.url, "GET", "/v1/models/gemma")[1]["status"]
    assert (status["failed"], status["exit_code"]) == (True, -9)
    assert states(router.url)["zephyr"] == "loaded"
    until(lambda: ask(router.url, "POST", "/v1/completions", completion("gemma", "Count"))[0] == 200)


def test_no_client_reads_what_a_killed_process_wrote_of_anothers_request(router: Server) -> None:
    """The log's last line names Alice's request; who comes next gets another reason."""
    parts = urlsplit(router.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    body = json.dumps(completion("gemma", "Count"))
    connection.request("POST", "/v1/completions", body, {"X-Request-Id": "alice-private-id"})
    assert connection.getresponse().read()
    connection.close()
    until(lambda: "alice-private-id" in router.log.read_text())
    states_before = states(router.url)
    for pid in children(router.process.pid):
        os.kill(pid, signal.SIGKILL)
    until(lambda: states(router.url)["gemma"] == "unloaded")
    seen = [json.dumps(ask(router.url, "GET", "/models")), json.dumps(ask(router.url, "GET", "/v1/models/gemma"))]
    seen += [json.dumps(ask(router.url, "POST", "/v1/completions", completion("gemma", "Count")))]
    assert states_before["gemma"] == "loaded"
    assert "its process was ended by signal 9 (out of memory?)" in seen[1]
    assert not any("alice" in text for text in seen)
    until(lambda: ask(router.url, "POST", "/v1/completions", completion("gemma", "Count"))[0] == 200)


def test_a_busy_model_makes_room_for_one_that_waits(folder: Path, tmp_path: Path) -> None:
    """Three clients ask for one without pause: a request for another is served all the same, and theirs go on."""
    flags = [*FLAGS[:-1], "1"]
    with Server(tmp_path / "log", ["--models-dir", str(folder), *flags]) as server, ThreadPoolExecutor(4) as threads:
        assert text_of(server.url, "gemma", "Count")
        is_over = threading.Event()

        def without_pause(_: int) -> list[int]:
            codes = []
            while not is_over.is_set():
                codes.append(ask(server.url, "POST", "/v1/completions", completion("gemma", "Count"))[0])
            return codes

        asked = [threads.submit(without_pause, n) for n in range(3)]
        try:
            assert text_of(server.url, "zephyr", "Count")
            assert text_of(server.url, "gemma", "Count")
        finally:
            is_over.set()
        for codes in asked:
            assert set(codes.result()) == {200}


def test_a_file_that_is_replaced_is_another_model(router: Server, folder: Path) -> None:
    before = text_of(router.url, "gemma", PROMPTS[1])
    put(FILES["zephyr"], folder, "gemma")
    try:
        router.process.send_signal(signal.SIGHUP)
        until(lambda: states(router.url)["gemma"] == "unloaded")
        after = text_of(router.url, "gemma", PROMPTS[1])
        assert after == text_of(router.url, "zephyr", PROMPTS[1])
        assert after != before
    finally:
        put(FILES["gemma"], folder, "gemma")
    assert ask(router.url, "GET", "/models?reload=1")[0] == 200
    assert text_of(router.url, "gemma", PROMPTS[1]) == before


def test_a_file_that_cannot_be_loaded_says_why(router: Server, folder: Path) -> None:
    (folder / "cut.gguf").write_bytes(FILES["gemma"].read_bytes()[:5000])
    assert ask(router.url, "GET", "/models?reload=1")[0] == 200
    status, body = ask(router.url, "POST", "/v1/completions", completion("cut", "Count"))
    assert status == 502
    assert "model 'cut' could not be loaded" in body["error"]["message"]
    assert "cut.gguf" in body["error"]["message"]
    status, body = ask(router.url, "POST", "/v1/completions", completion("cut", "Count"))
    assert (status, "loaded again on demand" in body["error"]["message"]) == (503, True)
    (folder / "cut.gguf").unlink()


def test_what_runs_is_answered_when_the_router_is_stopped(ending: Server) -> None:
    assert text_of(ending.url, "gemma", "Count")
    pids = children(ending.process.pid)
    with ThreadPoolExecutor() as threads:
        body = completion("gemma", "Count", max_tokens=200, ignore_eos=True)
        asking = threads.submit(ask, ending.url, "POST", "/v1/completions", body)
        until(lambda: any(slot["is_processing"] for slot in ask_slots(ending.url)) or asking.done())
        code = ending.stop()
        status, answer = asking.result()
    assert (status, code, answer["usage"]["completion_tokens"]) == (200, 0, 200)
    assert not any(map(is_there, pids))


def ask_slots(url: str) -> Any:
    return ask(url, "GET", "/slots?model=gemma")[1]


def test_no_process_outlives_a_router_that_is_killed(ending: Server) -> None:
    assert text_of(ending.url, "gemma", "Count")
    pids = children(ending.process.pid)
    assert pids
    ending.process.kill()
    ending.process.wait()
    until(lambda: not any(map(is_there, pids)))


def test_a_preset_loads_a_model_at_the_start_with_its_options(folder: Path, tmp_path: Path) -> None:
    preset = tmp_path / "p.ini"
    preset.write_text(
        "[*]\nthreads = 1\n[gemma]\nctx-size = 256\nalias = small\nload-on-startup = on\n", encoding="utf-8"
    )
    with Server(tmp_path / "log", ["--models-dir", str(folder), "--models-preset", str(preset)]) as server:
        until(lambda: states(server.url)["gemma"] == "loaded")
        assert ask(server.url, "GET", "/props?model=small")[1]["default_generation_settings"]["n_ctx"] == 256
        assert ask(server.url, "POST", "/api/show", {"model": "small:latest"})[0] == 200


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("[gemma]\nctx-sise = 1\n", "p.ini:2: option 'ctx-sise' is not known; did you mean ctx-size?"),
        ("[nothing]\nctx-size = 1\n", "p.ini:1: [nothing] is no model of the folder"),
    ],
)
def test_a_wrong_preset_ends_the_start(folder: Path, tmp_path: Path, preset: str, words: str) -> None:
    (tmp_path / "p.ini").write_text(preset, encoding="utf-8")
    done = uad("serve", "--models-dir", str(folder), "--models-preset", str(tmp_path / "p.ini"), "--port", "0")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_random_requests_are_answered_by_the_model_they_name_or_refused_clearly(
    router: Server, folder: Path, files: dict[str, Path], alone: dict[tuple[str, str], str]
) -> None:
    """Clients that leave, processes that are killed and files that are replaced by themselves meanwhile."""
    n_requests = int(os.environ.get("UAD_ROUTER_REQUESTS", 70))
    chance = random.Random(n_requests)
    counts = {"same": 0, "left": 0, "refused": 0}
    lock = threading.Lock()

    def one(number: int) -> None:
        name, prompt = plan[number]
        if number % 10 == 3:
            leave(router.url, name, prompt)
            outcome = "left"
        else:
            status, body = ask(router.url, "POST", "/v1/completions", completion(name, prompt))
            if status == 200:
                assert (body["choices"][0]["text"], body["model"]) == (alone[name, prompt], name)
                outcome = "same"
            else:
                assert status in (502, 503), body
                assert name in body["error"]["message"] or "process of the model ended" in body["error"]["message"]
                outcome = "refused"
        with lock:
            counts[outcome] += 1

    # models come in runs, since each change of the two that are loaded starts a process
    runs = [chance.choice(NAMES) for _ in range(max(n_requests // 30, 3))]
    plan = [
        (name if chance.random() < 0.97 else chance.choice(NAMES), chance.choice(PROMPTS))
        for name in runs
        for _ in range(n_requests // len(runs))
    ]
    with ThreadPoolExecutor(4) as threads:
        asked = []
        for number in range(len(plan)):
            asked.append(threads.submit(one, number))
            if number % 40 == 20:
                asked[-1].result()
                disturb(router, folder, files, chance)
        for each in asked:
            each.result()
    assert counts["same"] > 0.5 * len(plan), counts
    assert counts["left"] > 0
    for name in NAMES:
        until(lambda name=name: ask(router.url, "POST", "/v1/completions", completion(name, "Count"))[0] == 200)
    assert len(children(router.process.pid)) <= 2


def leave(url: str, name: str, prompt: str) -> None:
    """Ask for a long stream, and close the connection."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    body = completion(name, prompt, max_tokens=400, ignore_eos=True, stream=True)
    connection.request("POST", "/v1/completions", json.dumps(body))
    time.sleep(0.02)
    connection.close()


def disturb(router: Server, folder: Path, files: dict[str, Path], chance: random.Random) -> None:
    """Kill a process, or put a file in its own place."""
    pids = children(router.process.pid)
    if chance.random() < 0.5 and pids:
        os.kill(chance.choice(pids), signal.SIGKILL)
    else:
        name = chance.choice(NAMES)
        put(files[name], folder, name)
        assert ask(router.url, "GET", "/models?reload=1")[0] == 200


def spoil(folder: Path) -> list[str]:
    """Put what is no model into a folder. Returns the names of the models that cannot be loaded."""
    head = DRAFTS["gemma"].read_bytes()[:4096]
    damaged = {"nothing": b"", "half": head, "cut": head[:20], "text": b"no model", "magic": b"GGUF" + bytes(4096)}
    for name, content in damaged.items():
        (folder / f"{name}.gguf").write_bytes(content)
    (folder / "eagle3-good.gguf").write_bytes(b"no head")  # of the model beside it, by its name
    shutil.copy(HEADS["dflash"], folder / "dflash-later.gguf")  # of another target than the model of that name
    (folder / "folder.gguf").mkdir()
    (folder / "dead.gguf").symlink_to("nowhere.gguf")
    (folder / "loop.gguf").symlink_to("loop.gguf")
    (folder / "round").symlink_to(folder)
    os.mkfifo(folder / "pipe.gguf")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(folder, os.O_PATH)  # names of sockets have 107 bytes at most
        listening.bind(f"/proc/self/fd/{here}/socket.gguf")
        os.close(here)
    (folder / "line\nend.gguf").write_bytes(head)
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.gguf")).write_bytes(head)
    if os.geteuid():  # root reads everything
        (folder / "locked.gguf").write_bytes(head)
        (folder / "locked.gguf").chmod(0)
        return [*damaged, "locked"]
    return [*damaged]


@pytest.mark.parametrize("is_running", [False, True], ids=["before the start", "while it runs"])
def test_a_folder_of_odd_files_serves_its_models(is_running: bool, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(DRAFTS["gemma"], folder / "good.gguf")
    bad = [] if is_running else spoil(folder)
    with Server(tmp_path / "log", ["--models-dir", str(folder), "--draft", "auto", *FLAGS]) as server:
        bad = spoil(folder) if is_running else bad
        assert ask(server.url, "GET", "/models?reload=1")[0] == 200
        assert states(server.url).keys() == {"good", *bad}
        assert text_of(server.url, "good", "Count")
        for name in bad:
            status, answer = ask(server.url, "POST", "/v1/completions", completion(name, "Count"))
            assert status in (400, 502, 503), answer
            assert name in answer["error"]["message"]
        for path in ("/v1/models", "/api/tags", "/v1beta/models", "/health"):
            assert ask(server.url, "GET", path)[0] == 200, path
        (folder / "later.gguf").symlink_to(DRAFTS["gemma"])
        until(lambda: "later" in states(server.url))
        assert text_of(server.url, "good", "Count")
        assert text_of(server.url, "later", "Count")
        log = server.log.read_text("utf-8")
        assert "Traceback" not in log
        for name in ("dead", "loop", "pipe", "socket", "caf"):
            assert (
                log.count(f"{name}.gguf is left out") + log.count(f"{name}\N{REPLACEMENT CHARACTER}.gguf is left out")
                == 1
            )
