"""HTTPS with a key and a certificate of one's own, and what is said of files that are none."""

from __future__ import annotations

import asyncio
import os
import ssl

import pytest
from aiohttp import ClientSession
from kit.fake_runtime import FakeRuntime
from kit.listening import base_url, listen
from kit.tls import CERTIFICATE, KEY, LOCKED_KEY, OTHER_KEY

from uad.base.config import ServerConfig
from uad.base.errors import ConfigError
from uad.http.edge.listener import tls_context
from uad.http.server import make_app, make_runner


@pytest.fixture
def config(tmp_path):
    def write(key=KEY, certificate=CERTIFICATE):
        (tmp_path / "k.pem").write_text(key)
        (tmp_path / "c.pem").write_text(certificate)
        return ServerConfig(port=0, ssl_key=tmp_path / "k.pem", ssl_cert=tmp_path / "c.pem")

    return write


def test_clients_that_know_the_certificate_are_answered_and_plain_ones_are_not(config):
    async def run():
        own = config()
        runner = make_runner(make_app(FakeRuntime(), own))
        await runner.setup()
        try:
            await listen(runner, own)
            url = base_url(runner, own)
            known = ssl.create_default_context(cadata=CERTIFICATE)
            async with ClientSession() as session:
                async with session.get(f"{url}/health", ssl=known) as answer:
                    status = answer.status
                with pytest.raises(Exception, match=r"disconnected|reset|Bad status|Expected HTTP"):
                    await session.get(f"{url.replace('https', 'http')}/health")
                origin = {"Origin": url.replace("127.0.0.1", "localhost")}
                async with session.get(f"{url}/v1/models", ssl=known, headers=origin) as answer:
                    return url, status, answer.status
        finally:
            await runner.cleanup()

    url, *statuses = asyncio.run(run())
    assert url.startswith("https://127.0.0.1:")
    assert statuses == [200, 200]


@pytest.mark.parametrize(
    ("key", "certificate", "words"),
    [
        (OTHER_KEY, CERTIFICATE, "is not the key of the certificate"),
        (LOCKED_KEY, CERTIFICATE, "passphrase"),
        ("rubbish", CERTIFICATE, "--ssl-key-file: "),
        (KEY, "rubbish", "--ssl-cert-file: "),
        (KEY, KEY, "holds no certificate"),
        (CERTIFICATE, CERTIFICATE, "holds no private key"),
    ],
)
def test_files_that_do_not_serve_are_named(config, key, certificate, words):
    with pytest.raises(ConfigError) as caught:
        tls_context(config(key, certificate))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pipe_that_nobody_writes_to_is_refused_at_once(config):
    own = config()
    os.remove(own.ssl_key)
    os.mkfifo(own.ssl_key)
    with pytest.raises(ConfigError, match=r"--ssl-key-file: .*: a folder, a pipe or a device; a file is wanted"):
        tls_context(own)


def test_files_that_cannot_be_read_are_named(config):
    own = config()
    os.remove(own.ssl_cert)
    with pytest.raises(ConfigError, match=r"--ssl-cert-file: .*c\.pem: no such file"):
        tls_context(own)


def test_without_keys_the_server_speaks_plain_http():
    assert tls_context(ServerConfig()) is None
