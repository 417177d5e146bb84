"""A router's routes over small applications in place of processes. What llama-server's own tests of its router ask
for is in `test_router_like_llama_server.py`.
"""

import asyncio
import gzip
import io
import json
from dataclasses import replace

import pytest
from aiohttp import ClientSession, web
from kit.router_kit import KEY, SECRET, Clock, FakeLauncher, echoing, folder_config, folder_model, folder_of, routed

from uad.base.config import ServerConfig
from uad.http.edge.edge import EDGE
from uad.http.server.app import GET_ROUTES, POST_ROUTES
from uad.router.app import OWN_GETS, OWN_POSTS
from uad.router.child import ended
from uad.router.connections import PassedBody

CHAT = "/v1/chat/completions"
GEMINI = "/v1beta/models/a:streamGenerateContent"
PASSED_POSTS = sorted(POST_ROUTES.keys() - OWN_POSTS.keys() - {"/lora-adapters"})


def filled(path, model):
    return path.replace("{id}", "3").replace("{model:.+}", model)


@pytest.mark.parametrize("path", PASSED_POSTS)
def test_every_post_of_a_model_goes_there_as_it_is(path):
    body = b'{ "model" : "b",\n "x": [1, 2.50] }'

    async def test(one):
        return await one.ask("POST", filled(path, "b") + "?action=save", body)

    status, got = routed(test)
    assert status == 200
    assert (got["by"], got["method"], got["body"]) == ("b", "POST", body.decode())
    assert got["path"] == filled(path, "b") + "?action=save"


@pytest.mark.parametrize("path", [*sorted(GET_ROUTES.keys() - OWN_GETS.keys() - {"/live"}), "/props"])
def test_every_get_of_a_model_goes_where_the_query_says(path):
    status, got = routed(lambda one: one.ask("GET", f"{filled(path, 'c')}?model=c"))
    assert (status, got["by"], got["path"]) == (200, "c", f"{filled(path, 'c')}?model=c")


def test_a_path_may_name_the_model():
    status, got = routed(lambda one: one.ask("POST", "/v1beta/models/c:generateContent", {"contents": []}))
    assert (status, got["by"]) == (200, "c")
    status, got = routed(lambda one: one.ask("POST", "/v1beta/models/cc:generateContent", {"contents": []}))
    assert (status, got["error"]["status"]) == (404, "NOT_FOUND")
    body = {"contents": [], "model": "models/gemini-pro"}
    status, got = routed(lambda one: one.ask("POST", "/v1beta/models/c:generateContent?model=a", body))
    assert (status, got["by"]) == (200, "c")


GOOGLE = {"x-goog-api-key": SECRET}


@pytest.mark.parametrize(("path", "headers"), [("/v1beta/models", {}), ("/v1/models", GOOGLE)])
def test_googles_clients_list_and_describe_all_models_and_load_none(path, headers):
    async def test(one):
        listed = await one.ask("GET", f"{path}?pageSize=1", headers=headers)
        shown = await one.ask("GET", f"{path}/b", headers=headers)
        missing = await one.ask("GET", f"{path}/bb", headers=headers)
        return listed, shown, missing, [pooled.state for pooled in one.pool.models.values()]

    (_, listed), (status, shown), (missing, error), states = routed(test)
    assert [model["name"] for model in listed["models"]] == ["models/a", "models/b", "models/c"]
    assert (status, shown) == (200, listed["models"][1])
    assert (shown["inputTokenLimit"], shown["thinking"]) == (4096, True)
    assert "streamGenerateContent" in shown["supportedGenerationMethods"]
    assert (missing, error["error"]["status"]) == (404, "NOT_FOUND")
    assert set(states) == {"unloaded"}


def test_a_loaded_model_says_itself_what_it_takes():
    def make(name):
        async def models(request):
            own = {"name": "models/local", "inputTokenLimit": 512, "temperature": 0.5}
            return web.json_response({"models": [own]})

        app = web.Application()
        app.router.add_get("/v1beta/models", models)
        return app

    async def test(one):
        one.pool.load(one.pool.find("a"))
        await one.until("a", "loaded")
        return await one.ask("GET", "/v1beta/models")

    _, listed = routed(test, make=make)
    a, b = listed["models"][:2]
    assert (a["name"], a["inputTokenLimit"], a["temperature"]) == ("models/a", 512, 0.5)
    assert (b["name"], b["inputTokenLimit"]) == ("models/b", 4096)


def test_a_router_with_a_key_takes_googles_and_refuses_in_its_words():
    server = ServerConfig(port=0, api_keys=(SECRET,))

    async def test(one):
        return [
            await one.ask("GET", path, headers=headers)
            for path, headers in (
                ("/v1/models", GOOGLE),
                ("/v1beta/models", GOOGLE),
                ("/v1/models", {"x-goog-api-key": "no"}),
                ("/v1beta/models", {}),
            )
        ]

    answers = routed(test, config=folder_config(server=server))
    assert [status for status, _ in answers] == [200, 200, 401, 401]
    assert {answer["error"]["status"] for _, answer in answers[2:]} == {"UNAUTHENTICATED"}


def test_who_only_looks_loads_no_model_and_keeps_none():
    streaming = Streaming()

    async def test(one):
        before = await one.ask("GET", "/live?model=a")
        one.pool.load(one.pool.find("a"))
        await one.until("a", "loaded")
        streaming.pieces.put_nowait(b"data: 1\n\n")
        async with one.session.get("/live?model=a") as answer:
            assert await answer.content.readany() == b"data: 1\n\n"
            n_busy = one.pool.models["a"].running.n_busy
            streaming.pieces.put_nowait(None)
            await answer.read()
        return before, n_busy

    (status, text), n_busy = routed(test, make=streaming)
    assert (status, n_busy) == (200, 0)
    assert "model 'a' is not loaded" in json.loads(text.removeprefix("data: "))["error"]["message"]


def test_a_list_of_adapters_goes_where_the_query_says():
    status, got = routed(lambda one: one.ask("POST", "/lora-adapters?model=a", [{"id": 0, "scale": 1}]))
    assert (status, got["by"], json.loads(got["body"])) == (200, "a", [{"id": 0, "scale": 1}])


def test_status_and_headers_come_back():
    async def test(one):
        headers = {"X-Status": "418", "X-Request-Id": "mine"}
        async with one.session.post(CHAT, data=b'{"model": "a"}', headers=headers) as answer:
            return answer.status, answer.headers, await answer.json()

    status, headers, got = routed(test)
    assert (status, headers["X-Of"], headers["X-Request-Id"]) == (418, "a", "mine")
    assert len(headers.getall("X-Request-Id")) == 1
    assert got["headers"]["x-request-id"] == "mine"


def test_keys_and_origins_of_clients_end_at_the_router():
    headers = {
        "Authorization": f"Bearer {SECRET}",
        "X-Api-Key": SECRET,
        "Origin": "http://page.example",
        "Cookie": "c=1",
    }
    server = ServerConfig(port=0, api_keys=(SECRET,))

    async def test(one):
        async with one.session.post(CHAT, data=b'{"model": "a"}', headers=headers) as answer:
            return answer.headers, await answer.json()

    sent, got = routed(test, config=folder_config(server=server))
    assert got["headers"]["authorization"] == f"Bearer {KEY}"
    assert got["headers"].keys().isdisjoint({"x-api-key", "origin", "cookie"})
    assert sent["Access-Control-Allow-Origin"] == "http://page.example"


def test_without_the_key_nothing_is_answered_but_health():
    async def test(one):
        paths = ("/health", "/v1/models", "/api/tags", "/models/sse", "/metrics")
        return [(await one.ask("GET", path))[0] for path in paths]

    server = ServerConfig(port=0, api_keys=(SECRET,), metrics=True)
    assert routed(test, config=folder_config(server=server)) == [200, 401, 401, 401, 401]


def test_a_compressed_body_is_sent_on_inflated():
    body = gzip.compress(b'{"model": "a"}')
    _, got = routed(lambda one: one.ask("POST", CHAT, body, headers={"Content-Encoding": "gzip"}))
    assert got["body"] == '{"model": "a"}'
    assert "content-encoding" not in got["headers"]


def test_a_long_body_is_read_off_the_loop_and_arrives_whole():
    body = json.dumps({"messages": ["x" * 3_000_000], "model": "c"}).encode()
    _, got = routed(lambda one: one.ask("POST", CHAT, io.BytesIO(body)))
    assert (got["by"], len(got["body"])) == ("c", len(body))


def test_below_a_prefix_the_model_sees_none():
    server = ServerConfig(port=0, api_prefix="/llm")
    _, got = routed(
        lambda one: one.ask("POST", "/llm/v1/completions", {"model": "a"}), config=folder_config(server=server)
    )
    assert got["path"] == "/v1/completions"


# --- names


def test_the_only_model_needs_no_name():
    assert routed(lambda one: one.ask("POST", CHAT, {}), folder_of("a"))[1]["by"] == "a"
    assert routed(lambda one: one.ask("GET", "/slots"), folder_of("a"))[1]["by"] == "a"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 400, "model name is missing from the request; this server has a, b, c"),
        ({"model": ""}, 400, "model name is missing"),
        ({"model": "bb"}, 404, "model 'bb' not found; did you mean 'b'?"),
        ({"model": 7}, 400, "model: must be a text"),
        (b"{", 400, "the body is not valid JSON"),
        (b"[]", 400, "the body must be a JSON object"),
    ],
)
def test_what_names_no_model_says_why(body, status, words):
    got, answer = routed(lambda one: one.ask("POST", CHAT, body))
    assert got == status
    assert words in answer["error"]["message"]


@pytest.mark.parametrize(
    ("path", "find"),
    [
        ("/v1/messages", lambda body: body["error"]["message"]),
        ("/api/chat", lambda body: body["error"]),
        ("/v1/responses", lambda body: body["error"]["message"]),
    ],
)
def test_errors_have_the_form_of_their_api(path, find):
    status, body = routed(lambda one: one.ask("POST", path, {"model": "x"}))
    assert status == 404
    assert "model 'x' not found" in find(body)


@pytest.mark.parametrize(("text", "status"), [("false", 400), ("0", 400), ("true", 200), ("maybe", 400)])
def test_a_request_may_say_whether_it_loads(text, status):
    async def test(one):
        return await one.ask("POST", f"{CHAT}?autoload={text}", {"model": "a"})

    got, answer = routed(test)
    assert got == status
    assert status == 200 or "load" in answer["error"]["message"]


# --- streams


class Streaming:
    """A model that streams pieces as the test gives them, and tells when its client has left."""

    def __init__(self, content_type="text/event-stream", length=None):
        self.pieces: asyncio.Queue = asyncio.Queue()
        self.left = asyncio.Event()
        self._headers = {"Content-Type": content_type, **({"Content-Length": str(length)} if length else {})}

    def __call__(self, name):
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/{path:.*}", self.answer)
        app.router.add_get("/live", self.answer)
        return app

    async def answer(self, request):
        await request.read()
        response = web.StreamResponse(headers=self._headers)
        await response.prepare(request)
        try:
            while (piece := await self.pieces.get()) is not None:
                if piece == "die":
                    request.transport.abort()
                    return response
                await response.write(piece)
        except asyncio.CancelledError:
            self.left.set()
            raise
        return response


def test_pieces_arrive_one_by_one():
    async def test(one):
        streaming.pieces.put_nowait(b"data: 1\n\n")
        async with one.session.post(CHAT, data=b'{"model": "a", "stream": true}') as answer:
            assert await answer.content.readany() == b"data: 1\n\n"
            streaming.pieces.put_nowait(b"data: 2\n\n")
            assert await answer.content.readany() == b"data: 2\n\n"
            streaming.pieces.put_nowait(None)
            assert await answer.content.readany() == b""
            assert answer.content_type == "text/event-stream"

    streaming = Streaming()
    routed(test, make=streaming)


def test_a_client_that_leaves_is_gone_for_the_model_too():
    async def test(one):
        streaming.pieces.put_nowait(b"data: 1\n\n")
        async with ClientSession(one.session._base_url) as session, session.post(CHAT, data=b'{"model":"a"}') as answer:
            await answer.content.readany()
        await streaming.left.wait()
        while one.pool.models["a"].running.n_busy:
            await asyncio.sleep(0)

    streaming = Streaming()
    routed(test, make=streaming)


@pytest.mark.parametrize(
    ("path", "content_type", "last"),
    [
        (CHAT, "text/event-stream", b'data: {"error":{"code":502,"message":"the process of the model ended'),
        ("/v1/messages", "text/event-stream", b'event: error\ndata: {"type":"error","error":{"type":"invalid'),
        ("/v1/responses", "text/event-stream", b'event: error\ndata: {"type":"error","code":"502","message":"the proc'),
        ("/api/chat", "application/x-ndjson", b'{"error":"the process of the model ended'),
        (f"{GEMINI}?alt=sse", "text/event-stream", b'data: {"error":{"code":502,"message":"the process of the model'),
    ],
)
def test_a_stream_whose_process_dies_ends_with_the_reason(path, content_type, last):
    async def test(one):
        streaming.pieces.put_nowait(b"x\n\n")
        async with one.session.post(path, data=b'{"model": "a"}') as answer:
            await answer.content.readany()
            streaming.pieces.put_nowait("die")
            return await answer.read()

    streaming = Streaming(content_type)
    assert last in routed(test, make=streaming)


@pytest.mark.parametrize(("path", "length"), [(CHAT, 100), (GEMINI, None)])
def test_an_answer_in_which_no_error_fits_is_a_lost_connection_where_it_breaks_off(path, length):
    async def test(one):
        streaming.pieces.put_nowait(b"x")
        async with one.session.post(path, data=b'{"model": "a"}') as answer:
            await answer.content.readany()
            streaming.pieces.put_nowait("die")
            with pytest.raises(Exception, match=r"payload|closed|reset|[Dd]isconnected"):
                await answer.read()

    streaming = Streaming("application/json", length)
    routed(test, make=streaming)


def test_a_process_that_dies_before_it_answers_is_502_and_then_a_pause():
    async def gone(request):
        request.transport.abort()
        return web.Response()

    def make(name):
        app = web.Application()
        app.router.add_post("/{path:.*}", gone)
        return app

    async def test(one):
        first = await one.ask("POST", CHAT, {"model": "a"})
        one.launcher.started[0].die(-9, "")
        while one.pool.models["a"].failure is None:
            await asyncio.sleep(0)
        async with one.session.post(CHAT, data=b'{"model": "a"}') as answer:
            return first, answer.status, answer.headers["Retry-After"], await answer.json()

    (status, first), then, wait, second = routed(test, make=make, clock=Clock())
    assert (status, then, wait) == (502, 503, "1")
    assert "the process of the model ended" in first["error"]["message"]
    assert "its process was ended by signal 9 (out of memory?)" in second["error"]["message"]


def test_a_stream_that_waits_for_its_model_gets_pings_and_then_the_answer():
    launcher = FakeLauncher(Streaming())
    launcher.gates["a"] = asyncio.Event()
    launcher._make.pieces.put_nowait(b"data: 1\n\n")
    launcher._make.pieces.put_nowait(None)

    async def test(one):
        async with one.session.post(CHAT, data=b'{"model": "a", "stream": true}') as answer:
            assert (answer.status, await answer.content.readexactly(6)) == (200, b":\n\n:\n\n")
            launcher.gates["a"].set()
            return await answer.read()

    server = ServerConfig(port=0, sse_ping_interval=0.001)
    assert routed(test, config=folder_config(server=server), launcher=launcher).endswith(b"data: 1\n\n")


def test_a_stream_that_has_waited_ends_with_the_error_of_its_model():
    launcher = FakeLauncher(echoing)
    launcher.gates["a"], launcher.fails["a"] = asyncio.Event(), ("no memory", 1)

    async def test(one):
        async with one.session.post(CHAT, data=b'{"model": "a", "stream": true}') as answer:
            await answer.content.readexactly(3)
            launcher.gates["a"].set()
            return await answer.read()

    server = ServerConfig(port=0, sse_ping_interval=0.001)
    assert b"could not be loaded: no memory" in routed(test, config=folder_config(server=server), launcher=launcher)


def test_other_answers_wait_without_pings():
    launcher = FakeLauncher(echoing)
    launcher.gates["a"] = asyncio.Event()

    async def test(one):
        asking = asyncio.create_task(one.ask("POST", "/api/chat", {"model": "a", "stream": True}))
        while not one.pool.n_waiting:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        launcher.gates["a"].set()
        return await asking

    server = ServerConfig(port=0, sse_ping_interval=0.001)
    assert routed(test, config=folder_config(server=server), launcher=launcher)[0] == 200


# --- lists


def test_the_list_has_what_the_files_say_and_what_loaded_models_say():
    async def test(one):
        await one.ask("POST", CHAT, {"model": "b"})
        return [(await one.ask("GET", path))[1] for path in ("/v1/models", "/models", "/v1/models/b")]

    models = folder_of("a") | {"b": folder_model("b", aliases=("two",), tags=("t",), sees=True)}
    listed, same, one = routed(test, models)
    first, second = listed["data"]
    assert listed == same
    assert (listed["object"], one) == ("list", second)
    assert first["status"] == {"value": "unloaded", "args": ["uad", "serve", "--model=/models/a.gguf"]}
    assert (first["id"], first["path"], first["source"]) == ("a", "/models/a.gguf", "models_dir")
    assert first["meta"]["n_params"] == 1_500_000
    assert (first["type"], first["display_name"], first["created_at"][-1]) == ("model", "a", "Z")
    assert (second["id"], second["aliases"], second["tags"]) == ("b", ["two"], ["t"])
    assert second["status"]["value"] == "loaded"
    assert second["meta"] == {"n_ctx": 7}
    assert second["architecture"]["input_modalities"] == ["text", "image"]


def test_a_model_whose_process_unloaded_it_sleeps():
    def make(name):
        async def answer(request):
            return web.json_response({"models": []})

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        return app

    async def test(one):
        await one.ask("POST", CHAT, {"model": "a"})
        return await one.status("a"), (await one.ask("GET", "/api/ps"))[1]

    assert routed(test, make=make) == ("sleeping", {"models": []})


def test_a_model_that_failed_says_so():
    async def test(one):
        one.launcher.fails["a"] = ("no memory", 7)
        await one.ask("POST", CHAT, {"model": "a"})
        return (await one.ask("GET", "/v1/models/a"))[1]["status"]

    status = routed(test)
    assert status["value"] == "unloaded"
    assert (status["failed"], status["exit_code"], status["reason"]) == (True, 7, "no memory")


def test_ollamas_lists():
    async def test(one):
        await one.ask("POST", "/api/chat", {"model": "b"})
        return [(await one.ask("GET", path))[1] for path in ("/api/tags", "/api/ps", "/api/version")]

    tags, running, version = routed(test)
    assert [one["name"] for one in tags["models"]] == ["a:latest", "b:latest", "c:latest"]
    assert tags["models"][0]["size"] == 3_000_000
    assert tags["models"][0]["details"]["parameter_size"] == "1.5M"
    assert len({one["digest"] for one in tags["models"]}) == 3
    assert [(one["name"], one["context_length"]) for one in running["models"]] == [("b:latest", 7)]
    assert set(version) == {"version"}


def test_showing_a_model_does_not_load_it():
    async def test(one):
        return await one.ask("POST", "/api/show", {"model": "A:latest"}), one.launcher.names

    (status, shown), started = routed(test)
    assert (status, started) == (200, [])
    assert shown["model_info"]["general.architecture"] == "llama"
    assert shown["capabilities"] == ["completion", "tools", "insert", "thinking"]
    assert shown["template"].endswith("{# .Suffix #}")
    assert routed(lambda one: one.ask("POST", "/api/show", {"model": "zz"}))[0] == 404


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/models"), ("DELETE", "/models"), ("POST", "/api/pull"), ("POST", "/api/push")]
)
def test_what_a_router_does_not_do_is_501(method, path):
    assert routed(lambda one: one.ask(method, path, {"model": "a"}))[0] == 501


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embedding", "/v2/rerank", "/api/embed"])
def test_routes_that_embed_or_rank_reach_the_model_that_is_named(path):
    assert routed(lambda one: one.ask("POST", path, {"model": "a", "input": "x"}))[0] == 200


def test_metrics_have_the_model_as_a_label():
    async def test(one):
        await one.ask("POST", CHAT, {"model": "b"})
        await one.ask("POST", CHAT, {"model": "a"})
        return (await one.ask("GET", "/metrics"))[1]

    text = routed(test, config=folder_config(server=ServerConfig(port=0, metrics=True)))
    assert 'a_total{model="a"} 1.0\na_total{model="a",b="c"} 2.0\na_total{model="b"} 1.0' in text
    assert text.count("# TYPE a_total counter") == text.count("# HELP a_total A") == 1
    assert 'uad:router_models{state="loaded"} 2\n' in text
    assert 'uad:router_requests_total{model="b"} 1\n' in text
    assert routed(lambda one: one.ask("GET", "/metrics"))[0] == 501


def test_events_tell_what_becomes_of_models():
    async def test(one):
        async with one.session.get("/models/sse") as answer:
            await one.ask("POST", CHAT, {"model": "a"})
            await one.ask("GET", "/models?reload=1")
            read = b""
            while b"models_reload" not in read:
                read += await answer.content.readany()
            return [json.loads(part.removeprefix("data: ")) for part in read.decode().strip().split("\n\n")]

    assert routed(test) == [
        {"model": "a", "event": "model_status", "data": {"status": "loading"}},
        {"model": "a", "event": "model_status", "data": {"status": "loaded"}},
        {"model": "*", "event": "models_reload"},
    ]


def test_the_page_is_there_and_without_it_ollamas_words():
    assert "<html" in routed(lambda one: one.ask("GET", "/"))[1]
    bare = folder_config(server=ServerConfig(port=0, ui=False))
    assert routed(lambda one: one.ask("GET", "/"), config=bare) == (200, "Ollama is running")


def test_a_model_that_changes_is_answered_to_its_end():
    async def test(one):
        streaming.pieces.put_nowait(b"data: 1\n\n")
        async with one.session.post(CHAT, data=b'{"model": "a"}') as answer:
            await answer.content.readany()
            one.pool.reload({"a": replace(folder_model("a"), words=("--other",))})
            streaming.pieces.put_nowait(b"data: 2\n\n")
            streaming.pieces.put_nowait(None)
            return await answer.read()

    streaming = Streaming()
    assert routed(test, make=streaming) == b"data: 2\n\n"


# --- nothing stays


def test_a_listener_that_leaves_or_a_router_that_stops_leaves_no_task():
    async def test(one):
        before = asyncio.all_tasks()
        async with ClientSession(one.session._base_url) as session, session.get("/models/sse") as answer:
            one.state.events.tell("a", "model_status", {})
            await answer.content.readany()
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0)
        assert not one.state.events._listeners
        async with one.session.get("/models/sse") as answer:
            one.state.events.close()
            assert await answer.read() == b""

    routed(test)


def test_one_who_does_not_read_events_is_left_out():
    async def test(one):
        async with one.session.get("/models/sse"):
            (queue,) = one.state.events._listeners
            while not queue.full():
                queue.put_nowait(b"")
            one.state.events.tell("a", "model_status", {})
            assert not one.state.events._listeners

    routed(test)


PICTURES = json.dumps({"model": "a", "stream": True, "x": "y" * 300_000}).encode()


def test_a_body_counts_until_it_was_handed_on_and_not_until_the_answer_ends():
    """Nine answers to 30 MB of pictures each would keep all others out."""
    end = asyncio.Event()

    def make(name):
        async def answer(request):
            await request.read()
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b"data: 1\n\n")
            await end.wait()
            return response

        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/{path:.*}", answer)
        return app

    async def test(one):
        bodies, answers = one.app[EDGE].bodies, []
        bodies._limit = 1 << 20
        for n in range(8):
            answers.append(await one.session.post(CHAT, data=PICTURES))
            assert (answers[-1].status, bodies.n_bytes) == (200, 0), n
        end.set()
        for answer in answers:
            await answer.read()

    routed(test, make=make)


@pytest.mark.parametrize("end", ["served", "left", "failed", "unloaded", "unknown"])
def test_a_body_is_let_go_however_its_request_ends(end):
    """Its bytes, too: not by the next collection of garbage."""
    launcher = FakeLauncher(echoing)
    launcher.gates["a"] = asyncio.Event()
    released = []

    class Body(PassedBody):
        def release(self):
            super().release()
            released.append(self)

    async def test(one):
        bodies = one.app[EDGE].bodies
        name = "zz" if end == "unknown" else "a"
        body = json.dumps({"model": name, "x": "y" * 300_000}).encode()
        asking = asyncio.create_task(one.ask("POST", CHAT, body))
        while not (one.pool.n_waiting or asking.done()):
            await asyncio.sleep(0)
        assert bodies.n_bytes == (0 if asking.done() else len(body))
        if end == "left":
            asking.cancel()
        elif end == "failed":
            launcher.fails["a"] = ("no", 1)
        elif end == "unloaded":
            one.pool.unload(one.pool.find("a"))
        launcher.gates["a"].set()
        await asyncio.wait([asking])
        while bodies.n_bytes:
            await asyncio.sleep(0)
        assert {len(body.data) for body in released} == {0}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("uad.router.routing.PassedBody", Body)
        routed(test, launcher=launcher)


def test_no_client_reads_a_word_of_anothers():
    """Neither who waits nor who lists, listens or counts, when a process ends in the middle of somebody's request."""
    word = "alice-private-id"
    streaming = Streaming()

    async def test(one):
        async with one.session.get("/models/sse") as events:
            streaming.pieces.put_nowait(b"data: 1\n\n")
            alice = await one.session.post(CHAT, data=PICTURES, headers={"X-Request-Id": word})
            await alice.content.readany()
            child = one.launcher.started[0]
            streaming.pieces.put_nowait("die")
            await alice.read()
            child.die(-9, ended(-9))
            while one.pool.models["a"].failure is None:
                await asyncio.sleep(0)
            seen = [str(await one.ask("POST", CHAT, {"model": "a"}))]
            seen += [str(await one.ask("GET", path)) for path in ("/models", "/v1/models/a", "/metrics", "/api/ps")]
            seen.append((await events.content.read(1000)).decode())
            return seen

    server = ServerConfig(port=0, metrics=True)
    seen = routed(test, make=streaming, clock=Clock(), config=folder_config(server=server))
    assert "signal 9 (out of memory?)" in seen[0]
    assert "signal 9 (out of memory?)" in seen[1]
    assert not any(word in text for text in seen)
