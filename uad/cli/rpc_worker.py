"""`uad rpc-worker`: let another machine's uad or llama.cpp compute on this one's devices."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from uad.config.argv import Parser, typed
from uad.config.kinds import DEVICES, ONE_NAME, THREADS, integer
from uad.console import note

if TYPE_CHECKING:
    from uad.commands.worker import WorkerConfig

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
    add("-t", "--threads", type=typed(THREADS), default=0, metavar="N", help="CPU threads (default: physical cores)")
    add(
        "-c",
        "--cache",
        action="store_true",
        help="keep weights that are sent, so that the next start need not send them",
    )
    add("--allow-network", action="store_true", help="listen on other addresses than loopback, unencrypted as it is")
    add("--list-devices", action="store_true", help="print this machine's devices and leave")
    args = parser.parse(argv)
    if args.list_devices:
        from uad.commands.worker import device_lines

        print("\n".join(device_lines()))
        return 0
    _serve(_config(args))
    return 0


def _config(args: argparse.Namespace) -> WorkerConfig:
    from uad.commands.worker import WorkerConfig

    return WorkerConfig(args.host, args.port, args.device, args.threads, args.cache, args.allow_network)


def _serve(config: WorkerConfig) -> None:
    from uad.commands.worker import Worker

    worker = Worker(config)
    for line in worker.notes:
        note(line)
    worker.serve()
