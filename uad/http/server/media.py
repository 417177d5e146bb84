"""The pictures of requests are fetched, read and decoded, within bounds. Lives on the event loop's thread.

A picture at an address of the web is fetched only with --media-url, and from public addresses only. The
address that a socket is made for is checked, so neither a name nor a redirect leads into an inner network. A picture in
a file is read only from below --media-path.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote

import aiohttp
from aiohttp.abc import AbstractResolver

from uad.base.config import ServerConfig
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.types import Image
from uad.http.apis.problems import BusyError
from uad.http.requests import decoding
from uad.http.requests.decoding import OpenedPicture
from uad.http.requests.pictures import PictureSource, bytes_in

T = TypeVar("T")
MAX_FETCHED_BYTES: Final = 10 * 1024**2
"""Bytes of one picture from elsewhere, as in llama-server."""
MAX_ALL_FETCHED_BYTES: Final = 64 * 1024**2
"""Bytes of all files that one request names."""
MAX_HELD_BYTES: Final = 1 << 30
"""Bytes of the pictures of all requests."""
LARGE_BYTES: Final = 1 << 27
"""Bytes that decoding one picture takes, past which they are decoded one after another."""
FETCH_SECONDS: Final = 10.0
ALL_SECONDS: Final = 30.0
MAX_REDIRECTS: Final = 3
AT_ONCE: Final = 4
"""Connections of one request."""
MAX_URL: Final = 8190
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_UNICAST: Final = ipaddress.ip_network("2000::/3")
_CLOSED: Final = (ipaddress.ip_network("192.0.0.0/24"), ipaddress.ip_network("3fff::/20"))
"""Networks that older versions of Python take for public."""
_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)
_HEADERS: Final = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "uad"}


def is_public(address: str) -> bool:
    """Whether an IP address is one of the open internet: no loopback, private, link-local, multicast or reserved one,
    nor one that stands for such a one.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is not None:
            return is_public(str(inner))
        return ip in _UNICAST and ip.is_global and not any(ip in network for network in _CLOSED)
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _CLOSED)


class Threads(Protocol):
    """Threads."""

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`."""


@dataclass(eq=False, slots=True)
class Held:
    """Memory that one request holds for its pictures: files, decoding, and pixels until they are freed."""

    media: Media
    n_files: int = 0
    images: list[Image] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        """All of it."""
        return self.n_files + sum(image.pixels.n_bytes for image in self.images)

    def take(self, n: int) -> None:
        """More of them. Raises BusyError where all requests hold too many."""
        if self.media.n_held + n > self.media.limit:
            raise BusyError("the images of all requests take too much memory now; try again later")
        self.n_files += n

    def give_back(self, n: int) -> None:
        """Some are not needed any more."""
        self.n_files -= n

    def free(self) -> None:
        """The request is over: nobody needs any of them, whoever still knows its pictures."""
        self.n_files = 0
        for image in self.images:
            image.pixels.free()


@dataclass(slots=True)
class Media:
    """The pictures of all requests of one application."""

    config: ServerConfig
    pool: Threads
    limit: int = MAX_HELD_BYTES
    is_open: Callable[[str], bool] = is_public
    """Whether a socket may be made for an IP address."""
    resolver: AbstractResolver | None = None
    """How names become addresses; None: as the system does it."""
    _all: set[Held] = field(default_factory=set)
    _large: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a picture is decoded that takes much."""

    @property
    def n_held(self) -> int:
        """Bytes of the pictures of all requests."""
        return sum(held.n_bytes for held in self._all)

    @asynccontextmanager
    async def images(self, sources: list[PictureSource]) -> AsyncIterator[list[Image]]:
        """The pictures of a request, in order, which count as held inside the block until their pixels are freed. The
        list is empty then: what it held of files is let go. Raises InvalidRequestError or NotSupportedError with a
        picture's place, or BusyError.
        """
        if not sources:
            yield []
            return
        with self._holding() as held:
            images = await self._decoded(sources, held)
            sources.clear()
            yield images

    @contextmanager
    def _holding(self) -> Iterator[Held]:
        held = Held(self)
        self._all.add(held)
        try:
            yield held
        finally:
            held.free()
            self._all.discard(held)

    async def _decoded(self, sources: Sequence[PictureSource], held: Held) -> list[Image]:
        """The size of all is known before one is decoded."""
        files = await self._files(sources, held)
        opened = []
        for source, data in zip(sources, files, strict=True):
            if data is None:
                held.take(len(source.url))  # base64 is longer than what it says
            opened.append(await self.pool.run(partial(_opened, source, data)))
        del files
        most = decoding.most_pixels(opened)
        shown = [min(picture.n_pixels, most) * decoding.BYTES_PER_PIXEL for picture in opened]
        held.take(sum(shown))
        for picture, n in zip(opened, shown, strict=True):
            held.images.append(await self._decode(picture, most, held))
            held.give_back(n)  # its pixels count by themselves
        held.n_files = 0
        return [*held.images]

    async def _decode(self, picture: OpenedPicture, most: int, held: Held) -> Image:
        """A picture's pixels. Of those that take much to decode, there is one at a time."""
        n = picture.n_decoding(most)
        async with self._large if n > LARGE_BYTES else nullcontext():
            held.take(n)
            try:
                return await self.pool.run(partial(decoding.decoded, picture, most))
            finally:
                held.give_back(n)

    async def _files(self, sources: Sequence[PictureSource], held: Held) -> list[bytes | None]:
        """Files that are fetched or read from elsewhere; None for those that the request itself holds."""
        for source in sources:
            self._check(source)
        if not any(source.scheme in ("http", "https", "file") for source in sources):
            return [None] * len(sources)
        connector = aiohttp.TCPConnector(
            limit=AT_ONCE, force_close=True, socket_factory=self._socket, resolver=self.resolver
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            auto_decompress=False,  # a bomb stays as small as it was sent, and is no picture
        )
        async with session:
            fetch = _Fetch(session, held)
            try:
                async with asyncio.timeout(ALL_SECONDS), asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._file(source, fetch)) for source in sources]
            except TimeoutError:
                raise InvalidRequestError.at(
                    sources[0].where, f"the images were not there after {ALL_SECONDS:g} seconds"
                ) from None
            except BaseExceptionGroup as group_error:
                raise group_error.exceptions[0] from None
        return [task.result() for task in tasks]

    def _check(self, source: PictureSource) -> None:
        """Raises NotSupportedError for an address that the server does not go to, InvalidRequestError for none."""
        if source.scheme in ("http", "https", "file") and len(source.url) > MAX_URL:
            raise InvalidRequestError.at(source.where, f"a URL has at most {MAX_URL} characters")
        if source.scheme in ("http", "https") and not self.config.media_url:
            raise NotSupportedError.at(
                source.where, "images at addresses are not fetched; send base64, or start the server with --media-url"
            )
        if source.scheme == "file" and self.config.media_path is None:
            raise NotSupportedError.at(
                source.where, "files are not read; send base64, or start the server with --media-path DIR"
            )

    async def _file(self, source: PictureSource, fetch: _Fetch) -> bytes | None:
        match source.scheme:
            case "http" | "https":
                return await fetch.get(source)
            case "file":
                assert self.config.media_path is not None
                folder = self.config.media_path
                data = await self.pool.run(lambda: read_below(folder, source))
                fetch.held.take(len(data))
                return data
            case _:
                return None

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket for what `getaddrinfo` says of an address. Raises PermissionError for one that is not open."""
        family, kind, protocol, _, where = address
        if family not in (socket.AF_INET, socket.AF_INET6) or not self.is_open(where[0]):
            raise PermissionError("no public address")
        return socket.socket(family, kind, protocol)


def _opened(source: PictureSource, data: bytes | None) -> OpenedPicture:
    return decoding.opened(bytes_in(source) if data is None else data, source.where)


def read_below(folder: Path, source: PictureSource) -> bytes:
    """The file of a `file:` URL, whose path is relative to the folder, as in llama-server. Raises InvalidRequestError
    for one that is elsewhere, also by way of a link, or no regular file, or too large.
    """
    name = unquote(source.url.strip()[len("file:") :]).removeprefix("//")
    root = folder.resolve()
    try:
        path = (root / name.lstrip("/")).resolve()
        if "\0" in name or not path.is_relative_to(root) or not path.is_file():
            raise FileNotFoundError
        with path.open("rb") as file:
            data = file.read(MAX_FETCHED_BYTES + 1)
    except (OSError, ValueError, RuntimeError):
        raise InvalidRequestError.at(source.where, "there is no such file below --media-path") from None
    if len(data) > MAX_FETCHED_BYTES:
        raise InvalidRequestError.at(source.where, f"the file has more than {MAX_FETCHED_BYTES} bytes")
    return data


@dataclass(slots=True)
class _Fetch:
    """The fetches of one request."""

    session: aiohttp.ClientSession
    held: Held
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    n_fetched: int = 0

    async def get(self, source: PictureSource) -> bytes:
        """The file at an address. Raises InvalidRequestError, in words that say nothing of inner networks."""
        try:
            async with (
                self.turns,
                asyncio.timeout(FETCH_SECONDS),
                self.session.get(source.url.strip(), max_redirects=MAX_REDIRECTS, timeout=_NO_TIMEOUT) as answer,
            ):
                if answer.status != 200:
                    raise InvalidRequestError.at(source.where, f"its address answers {answer.status}")
                return await self._body(source, answer)
        except TimeoutError:
            raise InvalidRequestError.at(source.where, "its address answers too slowly") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise InvalidRequestError.at(
                source.where, "its address cannot be reached, or is not one of the public internet"
            ) from None

    async def _body(self, source: PictureSource, answer: aiohttp.ClientResponse) -> bytes:
        data = bytearray()
        async for piece in answer.content.iter_any():
            data += piece
            self.n_fetched += len(piece)
            if len(data) > MAX_FETCHED_BYTES:
                raise InvalidRequestError.at(source.where, f"at its address are more than {MAX_FETCHED_BYTES} bytes")
            if self.n_fetched > MAX_ALL_FETCHED_BYTES:
                raise InvalidRequestError.at(
                    source.where, f"more than {MAX_ALL_FETCHED_BYTES} bytes of images are fetched"
                )
            self.held.take(len(piece))
        return bytes(data)
