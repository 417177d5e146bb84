"""What no layer of the server takes: each refusal is JSON in the form of its API, with a request id."""

import asyncio
import gzip
import json
import logging
import os
import random
import zlib
from contextlib import suppress

import pytest
from kit.bombs import gzip_bomb
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, CONFIG, serving, with_server

from uad.base.console import LogLines

CHATS, MESSAGES = b"/v1/chat/completions", b"/v1/messages"


def asks(line, *headers, body=b"", host=True):
    lines = [line + b" HTTP/1.1", *([b"Host: localhost"] if host else []), *headers]
    return b"".join(one + b"\r\n" for one in lines) + b"\r\n" + body


def post(path, *headers, body=b"{}"):
    return asks(b"POST " + path, *headers, b"Content-Length: %d" % len(body), body=body)


def chunked(path, body):
    return asks(b"POST " + path, b"Transfer-Encoding: chunked", body=body)


REFUSED = {
    "zstd": (415, lambda path: post(path, b"Content-Encoding: zstd")),
    "brotli": (415, lambda path: post(path, b"Content-Encoding: br")),
    "an unknown encoding": (415, lambda path: post(path, b"Content-Encoding: rot13")),
    "gzip in gzip": (415, lambda path: post(path, b"Content-Encoding: gzip, gzip")),
    "two encodings": (415, lambda path: post(path, b"Content-Encoding: gzip", b"Content-Encoding: deflate")),
    "no gzip": (400, lambda path: post(path, b"Content-Encoding: gzip")),
    "half of gzip": (400, lambda path: post(path, b"Content-Encoding: gzip", body=gzip.compress(b"{}")[:15])),
    "gzip and more": (400, lambda path: post(path, b"Content-Encoding: gzip", body=gzip.compress(b"{}") + b"more")),
    "no deflate": (400, lambda path: post(path, b"Content-Encoding: deflate")),
    "a gzip bomb": (413, lambda path: post(path, b"Content-Encoding: gzip", body=BOMB)),
    "a transfer coding": (
        501,
        lambda path: asks(b"POST " + path, b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    ),
    "an unknown transfer coding": (
        400,
        lambda path: asks(b"POST " + path, b"Transfer-Encoding: foo", body=b"0\r\n\r\n"),
    ),
    "a size that is no number": (400, lambda path: asks(b"POST " + path, b"Content-Length: many")),
    "a negative size": (400, lambda path: asks(b"POST " + path, b"Content-Length: -1")),
    "a size without an end": (400, lambda path: asks(b"POST " + path, b"Content-Length: " + b"9" * 30)),
    "two sizes": (400, lambda path: asks(b"POST " + path, b"Content-Length: 1", b"Content-Length: 2", body=b"{}")),
    "a size and chunks": (400, lambda path: asks(b"POST " + path, b"Content-Length: 5", b"Transfer-Encoding: chunked")),
    "a size that is too large": (413, lambda path: asks(b"POST " + path, b"Content-Length: 199999999", body=b"{")),
    "a chunk without a size": (400, lambda path: chunked(path, b"zz\r\n{}\r\n0\r\n\r\n")),
    "a chunk that is too long": (400, lambda path: chunked(path, b"1\r\n{}\r\n0\r\n\r\n")),
    "a header line of 9 KiB": (431, lambda path: post(path, b"X-Long: " + b"a" * 9000)),
    "a cookie of 40 KiB": (431, lambda path: post(path, b"Cookie: " + b"a" * 40_000)),
    "200 headers": (431, lambda path: post(path, *(b"X-%d: a" % i for i in range(200)))),
    "a header without a name": (400, lambda path: post(path, b": a")),
    "a header with a blank in its name": (400, lambda path: post(path, b"X y: a")),
    "a header with a zero byte": (400, lambda path: post(path, b"X: a\x00b")),
    "a folded header": (400, lambda path: post(path, b"X: a\r\n b")),
    "no host": (400, lambda path: asks(b"POST " + path, host=False)),
    "two hosts": (400, lambda path: asks(b"POST " + path, b"Host: localhost")),
    "an empty host": (403, lambda path: asks(b"POST " + path, b"Host: ", host=False)),
    "two types": (400, lambda path: post(path, b"Content-Type: a/b", b"Content-Type: c/d")),
    "a version that does not exist": (400, lambda path: b"POST %s HTTP/9.9\r\nHost: a\r\n\r\n" % path),
    "lines that end in LF": (400, lambda path: b"POST %s HTTP/1.1\nHost: a\n\n" % path),
    "an unknown method": (400, lambda path: asks(b"BREW " + path)),
    "a wrong method": (405, lambda path: asks(b"PUT " + path, b"Content-Length: 0")),
    "a websocket": (
        405,
        lambda path: asks(
            b"GET " + path,
            b"Upgrade: websocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ),
    ),
    "an old websocket": (400, lambda path: asks(b"GET " + path, b"Sec-WebSocket-Key1: a")),
    "an unknown path": (404, lambda path: asks(b"GET %s/nowhere" % path)),
    "an expectation": (417, lambda path: post(path, b"Expect: a miracle")),
    "bytes that are no path": (400, lambda path: asks(b"GET %s/\xff\xfe" % path)),
    "half of an address": (400, lambda path: asks(b"GET http:" + path)),
}
BOMB = gzip_bomb(129, b" ")
NO_REQUESTS = {
    "nothing known": b"\x00\xff\x01\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50) + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a URL of 9 KiB": asks(b"GET /" + b"a" * 9000),
    "a proxy": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


async def answers(session, pieces):
    """All that comes back until the server closes or is silent once it has said something: heads and bodies."""
    reader, writer = await asyncio.open_connection(session._base_url.host, session._base_url.port)
    for i, piece in enumerate(pieces):
        if i:
            await asyncio.sleep(0.02)  # another segment, and another call of the parser
        writer.write(piece)
    said = []
    try:
        async with asyncio.timeout(120):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1"):
                if head.startswith("HTTP/1.1 100"):
                    continue
                lines = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
                said.append((int(head.split()[1]), lines, await reader.readexactly(int(lines["content-length"]))))
                writer.write_eof()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()
    return said


def one_answer(*pieces):
    said = with_server(lambda session: answers(session, pieces))
    assert len(said) == 1, said
    return said[0]


@pytest.mark.parametrize("path", [CHATS, MESSAGES], ids=["OpenAI", "Anthropic"])
@pytest.mark.parametrize("name", [*REFUSED])
def test_each_refusal_has_the_form_of_its_api_and_a_request_id(name, path):
    expected, make = REFUSED[name]
    status, headers, body = one_answer(make(path))
    assert status == expected
    assert headers["content-type"] == "application/json; charset=utf-8"
    told = json.loads(body)
    if path == MESSAGES:
        assert set(told) == {"type", "error", "request_id"}
        assert told["type"] == "error"
        assert set(told["error"]) == {"type", "message"}
        assert told["request_id"] == headers["x-request-id"] == headers["request-id"]
    else:
        assert set(told) == {"error"}
        assert set(told["error"]) == {"code", "message", "type", "param"}
        assert told["error"]["code"] == status
        assert headers["x-request-id"].startswith("req_")
    assert len(told["error"]["message"]) > 10


@pytest.mark.parametrize("name", [*NO_REQUESTS])
def test_what_is_no_request_gets_the_same_form(name):
    status, headers, body = one_answer(NO_REQUESTS[name])
    assert 400 <= status < 500
    assert json.loads(body)["error"]["code"] == status
    assert "x-request-id" in headers


def test_an_encoding_that_is_not_known_comes_with_those_that_are():
    _, headers, body = one_answer(REFUSED["zstd"][1](CHATS))
    assert headers["accept-encoding"] == "gzip, deflate"
    assert json.loads(body)["error"]["message"] == (
        "Content-Encoding 'zstd' is not supported; send one of gzip, deflate, or none"
    )


@pytest.mark.parametrize("path", [CHATS, MESSAGES], ids=["OpenAI", "Anthropic"])
@pytest.mark.parametrize("rest", [b"zz\r\n", b"3\r\n{}xyz\r\n", b"1\n"])
def test_chunks_that_break_in_the_middle_end_the_request(path, rest):
    """The head was read and the handler waits for the body: it used to wait for ever."""
    status, headers, body = one_answer(chunked(path, b"2\r\n{}\r\n"), rest)
    assert status == 400
    assert "Transfer-Encoding" in json.loads(body)["error"]["message"]
    assert "x-request-id" in headers


ROUTES = (
    b"/v1/chat/completions /v1/chat/completions/input_tokens /v1/completions /v1/responses /v1/messages "
    b"/v1/messages/count_tokens /completion /infill /tokenize /detokenize /apply-template /lora-adapters"
).split()


TEXT_ROUTES = (b"/infill", b"/tokenize", b"/detokenize", b"/lora-adapters")


@pytest.mark.parametrize("path", ROUTES)
def test_no_route_inflates_more_than_a_body_may_have(path, monkeypatch):
    if path not in TEXT_ROUTES:
        monkeypatch.setattr("uad.http.server.app.MAX_BODY", 1 << 25)
    status, _, body = one_answer(post(path, b"Content-Encoding: gzip", body=BOMB))
    assert (status, "33554432 bytes" in body.decode()) == (413, True)


@pytest.mark.parametrize("path", ROUTES)
def test_bodies_may_be_larger_where_they_may_hold_pictures(path):
    most = (32 if path in TEXT_ROUTES else 128) << 20
    status, _, body = one_answer(asks(b"POST " + path, b"Content-Length: %d" % (most + 1), body=b"{"))
    assert (status, f"{most} bytes" in body.decode()) == (413, True)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_bodies_are_read(encoding):
    data = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding](
        json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}).encode()
    )
    status, _, body = one_answer(post(CHATS, b"Content-Encoding: " + encoding.encode(), body=data))
    assert status == 200
    assert json.loads(body)["object"] == "chat.completion"


def damaged(draw):
    """A request with a few bytes changed, put in or left out, in a few segments."""
    path = draw.choice(ROUTES)
    known = [make(path) for _, make in REFUSED.values()] + [post(path, body=b'{"prompt": "a", "max_tokens": 1}')] * 20
    data = bytearray(draw.choice(known)[:4000])
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(data))
        data[at : at + draw.randrange(3)] = draw.choice(
            [
                b"",
                b"\r\n",
                b"\n",
                b"\x00",
                b"\xff",
                b":",
                b" ",
                b"9",
                b"\r\n\r\n",
                b"chunked",
                bytes([draw.randrange(256)]),
            ]
        )
    cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randrange(3)))
    return [bytes(data[low:high]) for low, high in zip([0, *cuts], [*cuts, len(data)], strict=True)]


async def first_answer(session, pieces):
    """The status, headers and body of the first answer; None where the server waited for more."""
    reader, writer = await asyncio.open_connection(session._base_url.host, session._base_url.port)
    try:
        async with asyncio.timeout(120):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.005)
            with suppress(OSError):  # the server has closed it
                writer.write_eof()
            head = b"HTTP/1.1 100"
            while head.startswith(b"HTTP/1.1 100"):
                head = await reader.readuntil(b"\r\n\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head.decode().splitlines()[1:] if line)
            return int(head.split()[1]), headers, await reader.readexactly(int(headers.get("content-length", 0)))
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        return None
    finally:
        writer.close()


def test_damaged_requests_get_json_or_nothing(caplog):
    draw = random.Random(os.environ.get("UAD_SEED", "1"))

    async def test(session):
        n = int(os.environ.get("UAD_EXAMPLES", "100"))
        cases = [damaged(draw) for _ in range(n)]
        return [
            (case, answer)
            for low in range(0, n, 50)
            for case, answer in zip(
                cases[low : low + 50],
                await asyncio.gather(*(first_answer(session, case) for case in cases[low : low + 50])),
                strict=True,
            )
        ]

    answers = with_server(test, FakeRuntime(n_slots=50))
    refused = [(case, answer) for case, answer in answers if answer is not None and answer[0] >= 400]
    assert len(refused) > len(answers) / 4
    for case, (status, headers, body) in refused:
        told = json.loads(body)
        assert told["error"]["message"], case
        assert set(told) in ({"error"}, {"type", "error", "request_id"}), case
        assert "x-request-id" in headers, case
        assert status != 500, case
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def ask(session, **headers):
    async with session.post(CHAT, json={"messages": "x"}, headers=headers) as answer:
        return answer.headers["x-request-id"]


@pytest.mark.parametrize("name", ["a", "8c6a3ec8-9d4f-4f8e", "Root=1-67891233-abcdef", "x" * 128])
def test_a_request_keeps_the_name_that_its_client_gives(name):
    assert with_server(lambda session: ask(session, **{"X-Request-ID": name})) == name


@pytest.mark.parametrize("name", ["", "x" * 129, "two words", 'say "x"', "naïve", "[31m", "a;b", "<b>"])
def test_a_name_that_could_be_something_else_in_a_log_is_not_taken(name):
    assert with_server(lambda session: ask(session, **{"X-Request-ID": name})).startswith("req_")


def test_every_kind_of_answer_has_a_request_id():
    async def test(session):
        seen = {}
        for path in ("/health", "/v1/models", "/", "/props", "/nowhere"):
            async with session.get(path) as answer:
                seen[path] = answer.headers["x-request-id"]
        for stream in (False, True):
            body = {"messages": [{"role": "user", "content": "a"}], "stream": stream}
            async with session.post(CHAT, json=body, headers={"x-request-id": f"mine-{stream}"}) as answer:
                seen[stream] = answer.headers["x-request-id"]
        return seen

    seen = with_server(test)
    assert (seen[False], seen[True]) == ("mine-False", "mine-True")
    assert len(set(seen.values())) == 7


def test_a_request_that_nothing_can_read_is_one_line_in_the_log(caplog):
    with caplog.at_level(logging.WARNING, "uad.http"):
        one_answer(REFUSED["a header line of 9 KiB"][1](CHATS))
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage() == "from 127.0.0.1: the URL or a header is longer than 8190 bytes"


def test_the_line_of_a_refusal_has_the_name_of_its_request(caplog):
    caplog.handler.setFormatter(LogLines(is_dated=False))
    with caplog.at_level(logging.INFO, "uad.http"):
        with_server(lambda session: ask(session, **{"X-Request-ID": "mine"}))
    assert caplog.text == f"INFO  [mine] POST {CHAT}: 400, messages: input should be a valid list\n"


def test_the_name_of_a_request_goes_with_it_to_the_model():
    fake = FakeRuntime()

    async def test(session):
        for name in ("one", "two"):
            async with session.post("/completion", json={"prompt": "a"}, headers={"x-request-id": name}) as answer:
                assert answer.status == 200

    with_server(test, fake)
    assert [request.name for request in fake.requests] == ["one", "two"]


def test_a_bug_in_a_handler_is_logged_with_the_name_of_its_request(caplog):
    def breaks(request):
        raise ZeroDivisionError("secret")

    async def test(session):
        async with session.post("/completion", json={"prompt": "a"}, headers={"x-request-id": "mine"}) as answer:
            return answer.status

    caplog.handler.setFormatter(LogLines(is_dated=False))
    assert with_server(test, FakeRuntime(script=breaks)) == 500
    assert caplog.text.startswith("ERROR [mine] unexpected error in the HTTP server\nTraceback")


def test_memory_that_is_full_of_bodies_is_503_with_a_time_to_wait(monkeypatch):
    monkeypatch.setattr("uad.http.edge.bodies.Bodies.__init__.__defaults__", (1000,))

    async def test():
        async with serving(FakeRuntime(), CONFIG) as session:
            async with session.post("/completion", json={"prompt": "x" * 2000}) as answer:
                refused = answer.status, answer.headers["Retry-After"], (await answer.json())["error"]["type"]
            async with session.post("/completion", json={"prompt": "x" * 500, "n_predict": 1}) as answer:
                return refused, answer.status

    assert asyncio.run(test()) == ((503, "1", "unavailable_error"), 200)
