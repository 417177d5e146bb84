"""The sockets of a server with several addresses: all on one port, or none."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from uad.base.config import ServerConfig
from uad.base.errors import ConfigError
from uad.http.edge.listener import Listener

HOSTS = ["127.0.0.1,127.0.0.2", "127.0.0.1,::1"]


@pytest.fixture(params=HOSTS)
def hosts(request: pytest.FixtureRequest) -> str:
    for host in request.param.split(","):
        try:
            socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
        except OSError:
            pytest.skip(f"no {host} here")
    return str(request.param)


async def opened(hosts: str, port: int = 0) -> tuple[str, list[tuple[str, int]]]:
    with await Listener.open(ServerConfig(host=hosts, port=port)) as listener:
        return listener.url, [one.getsockname()[:2] for one in listener._sockets]


def test_all_addresses_have_the_free_port_of_the_first(hosts: str) -> None:
    url, names = asyncio.run(opened(hosts))
    port = names[0][1]
    assert names == [(host, port) for host in hosts.split(",")]
    assert url == f"http://127.0.0.1:{port}"


def test_an_address_that_is_taken_is_named_and_the_others_are_free_again(hosts: str) -> None:
    first, second = hosts.split(",")
    with socket.create_server((second, 0), family=socket.AF_INET6 if ":" in second else socket.AF_INET) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on {second} is already in use"):
            asyncio.run(opened(hosts, port))
        assert asyncio.run(opened(first, port))[1] == [(first, port)]


@pytest.mark.skipif(sys.platform == "win32", reason="names of machines are looked up otherwise")
def test_a_name_that_nobody_has_is_named() -> None:
    with pytest.raises(ConfigError, match=r"host 'no such machine\.invalid' is unknown"):
        asyncio.run(opened("127.0.0.1,no such machine.invalid"))
