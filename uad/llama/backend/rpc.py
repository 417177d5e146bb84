"""Devices of other machines, through llama.cpp's RPC backend: those that are used from here, and what a worker does.

A worker has one client at a time, and llama.cpp ends the process where one does not answer as expected. So a worker is
tried in a process of its own first. Knows no model.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ctypes import c_void_p
from typing import Any

from uad.base.common import children
from uad.base.errors import ConfigError
from uad.llama.backend import abort, ggml, native
from uad.llama.backend.symbols import VERSIONS

NEEDS_BUILD = (
    "llama.cpp was built without its RPC backend; `make clean serve` builds it with, or "
    f"CMAKE_ARGS=-DGGML_RPC=on pip install --force-reinstall --no-cache-dir 'llama-cpp-python{VERSIONS}'"
)
TRIAL_S = 20.0  # that a worker may take to answer
_CONNECT_S = 5.0
_LOOKS, _LOOK_S = 5, 0.2  # for the port that a lost worker had
_GONE_MS = 30_000  # a machine that has not answered the system for so long is gone
_IDLE_S, _PROBE_S, _PROBES = 10, 5, 4
_added: list[str] = []


def is_built() -> bool:
    """Whether this llama.cpp has the RPC backend."""
    native.start()
    return _registry() is not None


def connect(endpoints: Sequence[str]) -> None:
    """Make the devices of these workers (host:port) devices of this process; each worker is added once.

    Raises ConfigError that names the worker that cannot be used.
    """
    if not is_built():
        raise ConfigError(f"--rpc: {NEEDS_BUILD}")
    new = [endpoint for endpoint in endpoints if endpoint not in _added]
    for endpoint in new:
        _reach(endpoint)
    trials = {}
    try:
        for endpoint in new:  # all work at once
            trials[endpoint] = subprocess.Popen(
                children.python(__name__, endpoint),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=children.environment(),
                start_new_session=True,
            )
        for endpoint, trial in trials.items():
            _judge(endpoint, trial)
    finally:
        for trial in trials.values():
            trial.kill()
            trial.communicate()
    for endpoint in new:
        _add(endpoint)
        _added.append(endpoint)
    abort.explained_by(_explained)


def connected() -> tuple[str, ...]:
    """The workers that were added."""
    return tuple(_added)


def _explained(text: str) -> str:
    """llama.cpp's message, with the worker's name where a worker is gone."""
    if "RPC" not in text:
        return text
    # the lost one is that whose port is closed, which may be a moment after the connection was. Where all are open
    # again, each of them may have been it
    lost: Sequence[str] = ()
    for _ in range(_LOOKS):
        if lost := [endpoint for endpoint in _added if not _is_open(endpoint)]:
            break
        time.sleep(_LOOK_S)
    return f"the RPC worker {' or '.join(lost or _added)} was lost; start it again, then uad ({text})"


def _is_open(endpoint: str) -> bool:
    try:
        _reach(endpoint, 1.0)
    except ConfigError:
        return False
    return True


def watch() -> int:
    """Have the system end connections to workers whose machine is gone, where it can; returns to how many. llama.cpp
    waits for an answer for ever.
    """
    n = 0
    for connection, _ in _connections():
        with suppress(OSError):
            _keep_alive(connection)
            n += 1
    return n


def lost() -> tuple[str, ...]:
    """The workers whose connections have ended: their process or machine is gone."""
    return tuple({endpoint: None for connection, endpoint in _connections() if _has_ended(connection)})


def are_back() -> bool:
    """Whether all workers can be reached."""
    return all(_is_open(endpoint) for endpoint in _added)


def _connections() -> Iterator[tuple[socket.socket, str]]:
    """Copies of this process's connections to workers, and to which."""
    peers = {}
    with suppress(OSError):  # a name that cannot be looked up any more
        peers = {_address(endpoint): endpoint for endpoint in _added}
    files: list[str] = []
    if peers:
        with suppress(OSError):  # where the system does not list the open files of a process
            files = os.listdir("/dev/fd")
    for name in filter(str.isdecimal, files):
        with suppress(OSError):  # closed by now, or not connected
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    if connection.family == socket.AF_INET and (peer := connection.getpeername()) in peers:
                        yield connection, peers[peer]


def start_server(host: str, port: int, devices: Sequence[int], n_threads: int, cache: str | None) -> None:
    """Serve devices, by their handles, to one client after another; host: an IPv4 address. Returns only where it fails.

    A program that reaches the port can use and overwrite this process's memory: the protocol has neither encryption nor
    keys.
    """
    start = _proc("ggml_backend_rpc_start_server")
    array = (c_void_p * len(devices))(*devices)
    start(f"{host}:{port}".encode(), cache.encode() if cache else None, n_threads, len(devices), array)


# --- trying a worker


def _reach(endpoint: str, seconds: float = _CONNECT_S) -> None:
    """Raises ConfigError unless the port is open."""
    host, port = split(endpoint)
    try:
        _address(endpoint)
        socket.create_connection((host, port), seconds).close()
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"--rpc {endpoint}: {host!r} is no name or IPv4 address of a machine") from None
    except OSError as error:
        reason = error.strerror or "it does not answer"
        start = f"uad rpc-worker --host {host} --port {port}"
        raise ConfigError(f"--rpc {endpoint}: no worker can be reached ({reason}); start one there: {start}") from None


def _judge(endpoint: str, trial: subprocess.Popen[str]) -> None:
    """Raises ConfigError where the trial failed."""
    try:
        _, errors = trial.communicate(timeout=TRIAL_S)
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"--rpc {endpoint}: the port is open, but nobody answered for {TRIAL_S:.0f} s; a worker serves one client "
            "at a time: stop the other one, or start another worker on another port"
        ) from None
    if trial.returncode:
        raise ConfigError(f"--rpc {endpoint}: {_complaint(errors)}")


def _complaint(errors: str) -> str:
    """The meaning of a trial that failed; errors: its lines."""
    same = f"install the same llama-cpp-python ({native.build_info()}) on both machines"
    if "version mismatch" in errors:
        version = errors.partition("version mismatch")[2].strip(" :").split()[0]
        return f"the worker's RPC protocol {version} is not this machine's; {same}"
    if "malformed" in errors or "handshake" in errors:
        return f"what listens there is no RPC worker of this llama.cpp; if it is one of another version, {same}"
    return errors.strip().rpartition("\n")[2].removeprefix("uad: error: ") or "the worker was not accepted"


def main() -> int:
    """Add the worker that the command line names, in a process that may end by it; prints its devices as JSON."""
    native.start().verbose = True
    _add(sys.argv[1])
    from uad.llama.backend.devices import every

    print(json.dumps([f"{device.name}: {device.description}" for device in every()]))
    return 0


# --- ggml's side


def _registry() -> int | None:
    if not ggml.has("ggml_backend_reg_by_name", "ggml_backend_reg_get_proc_address"):
        return None
    registry: int | None = ggml.function("ggml_backend_reg_by_name")(b"RPC")
    return registry


def _proc(name: str) -> Any:
    """A function of the RPC backend, which only its registry knows."""
    if (address := ggml.registered(_registry(), name)) is None:
        raise ConfigError(f"this llama.cpp's RPC backend has no {name}; {NEEDS_BUILD}")
    return address


def _add(endpoint: str) -> None:
    registry = _proc("ggml_backend_rpc_add_server")(endpoint.encode())
    if not registry:
        raise ConfigError(f"--rpc {endpoint}: the worker has no devices")
    ggml.function("ggml_backend_register")(registry)


# --- sockets


def split(endpoint: str) -> tuple[str, int]:
    """Host and port of host:port. Raises ValueError for anything else."""
    host, _, port = endpoint.rpartition(":")
    if not host or ":" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(endpoint)
    return host, int(port)


def _address(endpoint: str) -> tuple[str, int]:
    """The IPv4 address of an endpoint, which is all that llama.cpp looks for. Raises OSError."""
    host, port = split(endpoint)
    return str(socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]), port


def _has_ended(connection: socket.socket) -> bool:
    """Without taking anything from it."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", _PROBE_S),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", _GONE_MS),
    ):
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


if __name__ == "__main__":
    sys.exit(main())
