"""A server whose RPC worker is lost while nothing is decoded says so, refuses requests, and ends once it is back."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from uad.llama.backend import rpc
from uad.runtime.commands import Commands
from uad.runtime.worker_watch import WorkerWatch

WAIT_S = 120.0


def test_a_connection_that_the_worker_ended_is_found_without_reading_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as worker:
        host, port = worker.getsockname()
        monkeypatch.setattr(rpc, "_added", [f"{host}:{port}"])
        with socket.create_connection((host, port)) as mine:
            theirs, _ = worker.accept()
            assert rpc.lost() == ()
            theirs.send(b"x")
            assert rpc.lost() == ()
            assert mine.recv(1) == b"x"
            theirs.close()
            assert rpc.lost() == (f"{host}:{port}",)
            assert rpc.are_back()
        assert rpc.lost() == ()
    assert not rpc.are_back()


def test_requests_are_refused_until_the_process_ends_for_a_new_start(caplog: pytest.LogCaptureFixture) -> None:
    commands, lost, are_back, stopped, looked = Commands(), threading.Event(), threading.Event(), threading.Event(), []
    commands.when_stopped(stopped.set)

    def missing() -> tuple[str, ...]:
        looked.append(None)
        return ("far:1",) if lost.is_set() else ()

    watch = WorkerWatch(commands, missing, are_back.is_set, pause=0.0)
    with caplog.at_level(logging.INFO, "uad"):
        while len(looked) < 3:
            pass
        assert commands.error is None
        lost.set()
        while commands.error is None:
            pass
        assert str(commands.error) == "the RPC worker far:1 was lost; start it again, then uad"
        assert not stopped.is_set()
        are_back.set()
        assert stopped.wait(WAIT_S)
    assert watch.close()
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_a_server_that_is_closed_looks_no_more() -> None:
    commands = Commands()
    watch = WorkerWatch(commands, lambda: ("far:1",), lambda: False, pause=WAIT_S)
    assert not watch.close()
    assert commands.error is None
