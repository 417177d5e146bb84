"""Pictures at addresses: fetched only where the flag says so, only from the public internet, and within bounds."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from kit.fake_runtime import FakeRuntime
from kit.picture_files import pixels, png
from kit.server_kit import CHAT, post

from uad.base.config import ServerConfig, load_config
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.types import Image
from uad.http.apis.problems import BusyError
from uad.http.requests.pictures import PictureSource
from uad.http.server import media
from uad.http.server.media import Media, is_public

FETCHING = ServerConfig(port=0, media_url=True)
NAME = "pictures.example"


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.8.9.1",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.1.1",
        ),
        *("169.254.169.254", "100.64.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("198.18.0.1", "198.51.100.1", "203.0.113.1", "0.1.2.3", "192.0.0.8"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1"),
        *(
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
        ),
        *("2002:7f00:1::1", "2002:a00:1::", "2001::1", "100::1", "3fff::1", "5f00::1"),
    ],
)
def test_addresses_of_inner_networks_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::1"]
)
def test_others_are(address):
    assert is_public(address)


class Direct:
    """Threads that are none."""

    async def run(self, work: Callable[[], Any]) -> Any:
        return work()


class Book(AbstractResolver):
    """Every name has these addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[ResolveResult]:
        self.asked.append(host)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=0,
            )
            for address in self.addresses
        ]

    async def close(self) -> None:
        pass


class Site:
    """A web server on this machine, which notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self.never = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        self.headers.append(dict(request.headers))
        match request.path:
            case "/a.png" | "/b.png":
                return web.Response(body=png(int(request.path == "/b.png")), content_type="text/plain")
            case "/hop":
                return web.Response(status=302, headers={"Location": "/a.png"})
            case "/round":
                return web.Response(status=302, headers={"Location": "/round"})
            case "/inwards":
                return web.Response(status=302, headers={"Location": f"http://127.0.0.1:{self.port}/a.png"})
            case "/file":
                return web.Response(status=302, headers={"Location": "file:///etc/passwd"})
            case "/large":
                return web.Response(body=bytes(media.MAX_FETCHED_BYTES + 1))
            case "/gzip":
                return web.Response(body=gzip.compress(bytes(1 << 20)), headers={"Content-Encoding": "gzip"})
            case "/html":
                return web.Response(text="<html>", content_type="text/html")
            case "/slow":
                response = web.StreamResponse()
                await response.prepare(request)
                await response.write(png()[:20])
                await self.never.wait()
                return response
        return web.Response(status=404)


def with_site(test: Callable[[Site], Awaitable[None]]) -> None:
    async def run() -> None:
        site = Site()
        app = web.Application()
        app.router.add_get("/{path:.*}", site.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            sites = web.TCPSite(runner, "127.0.0.1", 0)
            await sites.start()
            site.port = runner.addresses[0][1]
            async with asyncio.timeout(120):
                await test(site)
        finally:
            site.never.set()
            await runner.cleanup()

    asyncio.run(run())


def fetching(*addresses: str, is_open: Callable[[str], bool] = is_public, **more: Any) -> Media:
    return Media(FETCHING, Direct(), is_open=is_open, resolver=Book(*addresses) if addresses else None, **more)


async def images(one: Media, *urls: str) -> list[Image]:
    async with one.images([PictureSource(url, f"here.{i}") for i, url in enumerate(urls)]) as found:
        assert one.n_held == sum(len(image.rgb) for image in found)  # the files are not needed any more
        return found


async def why_not(one: Media, *urls: str) -> str:
    with pytest.raises((InvalidRequestError, NotSupportedError)) as caught:
        await images(one, *urls)
    assert one.n_held == 0
    return str(caught.value)


def image(seed: int) -> Image:
    picture = pixels(seed)
    return Image.of(picture.width, picture.height, picture.tobytes())


HEADERS = {"Host", "Accept", "Accept-Encoding", "User-Agent", "Connection"}
REFUSAL = "here.0: its address cannot be reached, or is not one of the public internet"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"],
)
def test_this_machine_is_never_asked_however_it_is_spelled(host):
    async def test(site: Site) -> None:
        assert await why_not(fetching(), f"http://{host}:{site.port}/a.png") == REFUSAL
        assert site.asked == []

    with_site(test)


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "fe80::1"])
def test_a_name_that_means_an_inner_address_is_refused(address):
    async def test(site: Site) -> None:
        assert await why_not(fetching(address), f"http://{NAME}:{site.port}/a.png") == REFUSAL
        assert site.asked == []

    with_site(test)


def test_of_several_addresses_only_open_ones_are_tried():
    async def test(site: Site) -> None:
        one = fetching("127.0.0.2", "127.0.0.1", is_open=lambda address: address == "127.0.0.1")
        assert await images(one, f"http://{NAME}:{site.port}/a.png") == [image(0)]

    with_site(test)


def test_pictures_are_fetched_where_the_address_is_open():
    async def test(site: Site) -> None:
        tried: list[str] = []
        one = fetching("127.0.0.1", is_open=lambda address: not tried.append(address))
        url = f"http://{NAME}:{site.port}"
        assert await images(one, f"{url}/a.png", f"{url}/b.png", f"{url}/hop") == [image(0), image(1), image(0)]
        assert set(tried) == {"127.0.0.1"}
        assert one.n_held == 0
        assert {name for sent in site.headers for name in sent} <= HEADERS

    with_site(test)


def test_a_redirect_does_not_lead_into_an_inner_network():
    """The first address stands for a public one."""

    async def test(site: Site) -> None:
        tried: list[str] = []

        def first_only(address: str) -> bool:
            tried.append(address)
            return len(tried) == 1

        one = fetching("127.0.0.1", is_open=first_only)
        assert await why_not(one, f"http://{NAME}:{site.port}/inwards") == REFUSAL
        assert site.asked == ["/inwards"]
        assert (
            await why_not(fetching("127.0.0.1", is_open=lambda _: True), f"http://{NAME}:{site.port}/file") == REFUSAL
        )
        one = fetching("127.0.0.1", is_open=lambda _: True)
        site.asked.clear()
        assert await why_not(one, f"http://{NAME}:{site.port}/round") == REFUSAL
        assert len(site.asked) <= media.MAX_REDIRECTS + 1

    with_site(test)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/large", "here.0: at its address are more than 10485760 bytes"),
        ("/nowhere", "here.0: its address answers 404"),
        ("/html", "here.0: is a file of the kind HTML"),
        ("/gzip", "here.0: is a file of the kind gzip"),  # and it was not inflated
    ],
)
def test_what_is_there_is_bounded_and_has_to_be_a_picture(path, why):
    async def test(site: Site) -> None:
        one = fetching("127.0.0.1", is_open=lambda _: True)
        assert (await why_not(one, f"http://{NAME}:{site.port}{path}")).startswith(why)

    with_site(test)


def test_the_bytes_and_the_time_of_a_request_are_bounded(monkeypatch):
    async def test(site: Site) -> None:
        one, url = fetching("127.0.0.1", is_open=lambda _: True), f"http://{NAME}:{site.port}"
        monkeypatch.setattr(media, "FETCH_SECONDS", 0)
        assert await why_not(one, f"{url}/slow") == "here.0: its address answers too slowly"
        monkeypatch.undo()
        monkeypatch.setattr(media, "ALL_SECONDS", 0)
        assert await why_not(one, f"{url}/slow") == "here.0: the images were not there after 0 seconds"
        monkeypatch.undo()
        monkeypatch.setattr(media, "MAX_ALL_FETCHED_BYTES", 1)
        assert "more than 1 bytes of images are fetched" in await why_not(one, f"{url}/a.png")

    with_site(test)


def test_what_all_requests_hold_is_bounded_while_it_arrives():
    async def test(site: Site) -> None:
        one = fetching("127.0.0.1", is_open=lambda _: True, limit=50)
        with pytest.raises(BusyError):
            await images(one, f"http://{NAME}:{site.port}/a.png")
        assert one.n_held == 0

    with_site(test)


def test_a_client_that_leaves_ends_what_is_fetched_for_it():
    async def test(site: Site) -> None:
        one = fetching("127.0.0.1", is_open=lambda _: True)
        task = asyncio.create_task(images(one, f"http://{NAME}:{site.port}/slow"))
        while not site.asked:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert one.n_held == 0

    with_site(test)


@pytest.mark.parametrize(
    "url", ["http://", "http:///a", "https://[::1", "http://a:99999999/", "http://a b/", f"http://a/{'b' * 9000}"]
)
def test_what_is_no_address_is_an_error_of_the_request(url):
    async def run() -> None:
        assert (await why_not(fetching("127.0.0.1"), url)).startswith("here.0: ")

    asyncio.run(run())


def test_without_the_flag_nothing_is_fetched_and_with_it_not_from_here():
    def body(port: int) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": f"http://127.0.0.1:{port}/a.png"}}
        return {"messages": [{"role": "user", "content": [part]}]}

    status, answer = post(CHAT, body(1), FakeRuntime(sees_images=True))
    assert (status, answer["error"]["message"]) == (
        400,
        "messages.0.content.0: images at addresses are not fetched; send base64, or start the server with --media-url",
    )
    status, answer = post(CHAT, body(1), FakeRuntime(sees_images=True), FETCHING)
    assert (status, answer["error"]["message"]) == (400, REFUSAL.replace("here.0", "messages.0.content.0"))


def test_both_flags_are_read(tmp_path):
    argv = ["-m", "a.gguf", "--media-url", "--media-path", str(tmp_path)]
    server = load_config(argv, {}).server
    assert (server.media_url, server.media_path) == (True, tmp_path)
