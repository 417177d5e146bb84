"""`uad rpc-worker`: let another machine's uad or llama.cpp compute on this one's devices."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from uad.base.common.cache import cache_folder
from uad.base.common.cores import usable_cores
from uad.base.common.files import size_text
from uad.base.config.argv import Parser, typed
from uad.base.config.kinds import DEVICES, ONE_NAME, THREADS, integer
from uad.base.console import heed_interrupts, note
from uad.base.errors import ConfigError, UadError
from uad.base.log_writer import never_wait

if TYPE_CHECKING:
    from uad.llama.backend.devices import Device

_DESCRIPTION = """Serve this machine's devices over llama.cpp's RPC backend, for `uad serve --rpc HOST:PORT` elsewhere.

RPC has no encryption and no keys: addresses other than loopback need --allow-network."""
_EPILOG = "example: uad rpc-worker --host 192.168.1.20 --allow-network"


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted. Raises UadError."""
    parser = Parser("uad rpc-worker", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("-H", "--host", type=typed(ONE_NAME), default="127.0.0.1", metavar="HOST", help="address (default: 127.0.0.1)")
    add("-p", "--port", type=typed(integer(1, 65535)), default=50052, metavar="PORT", help="port (default: 50052)")
    add(
        "-d",
        "--device",
        type=typed(DEVICES),
        default=(),
        metavar="NAMES",
        help="devices (default: the GPUs, else the CPU)",
    )
    add(
        "-t",
        "--threads",
        type=typed(THREADS),
        default=0,
        metavar="N",
        help="CPU threads (default: physical cores, within the CPU quota)",
    )
    add(
        "-c",
        "--cache",
        action="store_true",
        help="keep weights that are sent, so that the next start need not send them",
    )
    add("--no-kernels", action="store_true", help="leave all to llama.cpp's own kernels")
    add("--allow-network", action="store_true", help="listen on other addresses than loopback, unencrypted as it is")
    add("--list-devices", action="store_true", help="print this machine's devices and leave")
    args = parser.parse(argv)

    if args.list_devices:
        print("\n".join(device_lines()))
        return 0
    never_wait()
    config = WorkerConfig(args.host, args.port, args.device, args.threads, args.cache, args.allow_network)
    worker = Worker(replace(config, kernels=not args.no_kernels))
    for line in worker.notes:
        note(line)
    worker.serve()
    return 0


# --- the work


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """devices: names, empty for the GPUs, or the CPU where there is no GPU; n_threads: 0 for the usable cores; cache:
    weights that were sent are kept in a folder; allow_network: addresses other than loopback are taken; kernels:
    attention runs in those of uad, where they are proven.
    """

    host: str = "127.0.0.1"
    port: int = 50052
    devices: tuple[str, ...] = ()
    n_threads: int = 0
    cache: bool = False
    allow_network: bool = False
    kernels: bool = True


class Worker:
    """A worker that is ready to serve. Raises ConfigError where it cannot: RPC backend, address, device or port."""

    def __init__(self, config: WorkerConfig) -> None:
        from uad.llama.backend import rpc

        if not rpc.is_built():
            raise ConfigError(f"rpc-worker: {rpc.NEEDS_BUILD}")
        self._config = config
        self._host = _address(config)
        self._devices = _chosen(config.devices)
        self._cache = str(_cache_folder()) if config.cache else None
        self._kernels = _kernels_note(config)
        _check_port(self._host, config.port)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for people: what is served where, and what to beware of."""
        config = self._config
        shown = ", ".join(
            f"{device.name} ({device.description}, {size_text(device.free)} free)" for device in self._devices
        )
        lines = [f"serving {shown} on {self._host}:{config.port}, one client at a time"]
        lines += self._kernels
        if self._cache is not None:
            lines.append(f"weights that are sent are kept in {self._cache}")
        if not ipaddress.ip_address(self._host).is_loopback:
            lines.append(
                "warning: RPC has no encryption and no keys: whoever reaches this port can read and overwrite this "
                "process's memory; let only trusted machines reach it"
            )
        return tuple(lines)

    def serve(self) -> None:
        """Serve for ever, on another thread, since signals reach only the main one. Raises UadError where that ends."""
        from uad.llama.backend import rpc

        heed_interrupts()
        _log_stdout()
        n_threads = self._config.n_threads or usable_cores()
        handles = [device.handle for device in self._devices]
        arguments = (self._host, self._config.port, handles, n_threads, self._cache)
        thread = threading.Thread(target=rpc.start_server, args=arguments, name="uad-rpc", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.5)
        raise UadError(
            f"the worker cannot serve on {self._host}:{self._config.port} any more (llama.cpp says why above)"
        )


def _log_stdout() -> None:
    """Send llama.cpp's lines about each client to the log, through a pipe that is always read."""
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing)

    def read() -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                note(line.rstrip())

    threading.Thread(target=read, name="uad-rpc-log", daemon=True).start()


def device_lines() -> tuple[str, ...]:
    """This machine's devices, one a line: name, description, free memory."""
    from uad.llama.backend.devices import every

    return tuple(f"{device.name}: {device.description} ({size_text(device.free)} free)" for device in every())


def _kernels_note(config: WorkerConfig) -> list[str]:
    """The line about attention, whose kernels are registered here. Clients put weights into plain memory, and the
    protocol does not say what is a weight.
    """
    if not config.kernels:
        return []
    from uad.llama.kernels import use
    from uad.llama.kernels.library import ATTENTION

    kernels = use.started()
    if kernels.library is None:
        return [kernels.note()] if kernels.wrong else []
    return [f"{kernels.note('no weights', of_passes=(ATTENTION,))}; the weights of clients run in llama.cpp's own"]


def _chosen(names: tuple[str, ...]) -> tuple[Device, ...]:
    from uad.llama.backend.devices import every, named

    if names:
        return named(names)
    return tuple(device for device in every() if device.takes_layers) or named(("CPU",))


def _address(config: WorkerConfig) -> str:
    """The IPv4 address to listen on. Raises ConfigError."""
    try:
        address = str(socket.getaddrinfo(config.host, None, socket.AF_INET)[0][4][0])
    except (OSError, UnicodeError):
        raise ConfigError(f"--host: {config.host!r} is no IPv4 address or name of this machine") from None
    if not ipaddress.ip_address(address).is_loopback and not config.allow_network:
        raise ConfigError(
            f"--host {config.host} lets other machines in, and RPC has no encryption and no keys; give --allow-network "
            "where only trusted machines can reach the port (docs/rpc.md)"
        )
    return address


def _check_port(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(f"--host, --port: cannot listen on {host}:{port} ({error.strerror})") from None


def _cache_folder() -> str:
    folder = cache_folder() / "rpc"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--cache: {folder} cannot be made ({error.strerror}); set UAD_CACHE_DIR") from None
    return str(folder)
