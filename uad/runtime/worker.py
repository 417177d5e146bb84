"""`uad rpc-worker`'s part: this machine's devices, served to another machine's llama.cpp."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from dataclasses import dataclass

from platformdirs import user_cache_path

from uad.backend.devices import Device, every, named
from uad.common.files import path_of, size_text
from uad.errors import ConfigError, UadError
from uad.llama import rpc
from uad.llama.context import physical_cores


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """devices: names, empty for the GPUs, or the CPU where there is none; n_threads: 0 for the physical cores; cache:
    weights that were sent are kept in a folder; allow_network: addresses other than loopback are taken."""

    host: str = "127.0.0.1"
    port: int = 50052
    devices: tuple[str, ...] = ()
    n_threads: int = 0
    cache: bool = False
    allow_network: bool = False


class Worker:
    """A worker that is ready to serve. Raises ConfigError where it cannot: RPC backend, address, device or port."""

    def __init__(self, config: WorkerConfig) -> None:
        if not rpc.is_built():
            raise ConfigError(NO_BACKEND)
        self._config = config
        self._host = _address(config)
        self._devices = _chosen(config.devices)
        self._cache = str(_cache_folder()) if config.cache else None
        _check_port(self._host, config.port)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for people: what is served where, and what to beware of."""
        config = self._config
        shown = ", ".join(f"{one.name} ({one.description}, {size_text(one.free)} free)" for one in self._devices)
        lines = [f"serving {shown} on {self._host}:{config.port}, one client at a time"]
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
        n_threads = self._config.n_threads or physical_cores()
        handles = [one.handle for one in self._devices]
        arguments = (self._host, self._config.port, handles, n_threads, self._cache)
        thread = threading.Thread(target=rpc.start_server, args=arguments, name="uad-rpc", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.5)
        raise UadError(
            f"the worker cannot serve on {self._host}:{self._config.port} any more (llama.cpp says why above)"
        )


NO_BACKEND = f"rpc-worker: {rpc.NEEDS_BUILD}"


def device_lines() -> tuple[str, ...]:
    """This machine's devices, one a line: name, description, free memory."""
    return tuple(f"{one.name}: {one.description} ({size_text(one.free)} free)" for one in every())


def _chosen(names: tuple[str, ...]) -> tuple[Device, ...]:
    if names:
        return named(names)
    return tuple(one for one in every() if one.takes_layers) or named(("CPU",))


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
    given = os.environ.get("UAD_CACHE_DIR")
    folder = (path_of(given) if given else user_cache_path("uad", appauthor=False)) / "rpc"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--cache: {folder} cannot be made ({error.strerror}); set UAD_CACHE_DIR") from None
    return str(folder)
