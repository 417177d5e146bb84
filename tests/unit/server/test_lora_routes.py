"""/lora-adapters and `lora` of a request: what is listed, what is set, what is refused."""

import pytest
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, HELLO, get, post

PATH = "/lora-adapters"


def test_adapters_are_listed_as_llama_server_does():
    assert get(PATH) == (200, [])
    status, body = get(PATH, FakeRuntime(scales=(1.0, 0.5)))
    assert status == 200
    assert body[1] == {"id": 1, "path": "1.gguf", "scale": 0.5, "task_name": "task", "prompt_prefix": ""}


def test_scales_are_set_and_what_is_not_named_is_off():
    fake = FakeRuntime(scales=(1.0, 0.5))
    assert post(PATH, [{"id": 1, "scale": 0.25}], fake) == (200, {"success": True})
    assert fake.scales == (0.0, 0.25)


@pytest.mark.parametrize("path", [CHAT, "/completion", "/v1/completions"])
def test_a_request_may_have_adapters_of_its_own(path):
    fake = FakeRuntime(scales=(1.0, 0.5))
    body = {"prompt": "x", "messages": HELLO, "max_tokens": 2}
    assert post(path, body | {"lora": [{"id": 0, "scale": 2}]}, fake)[0] == 200
    assert [request.adapters for request in fake.requests] == [(2.0, 0.0)]


@pytest.mark.parametrize("value", [None, []])
def test_no_adapters_named_are_those_of_the_server(value):
    fake = FakeRuntime(scales=(1.0,))
    assert post(CHAT, {"messages": HELLO, "max_tokens": 2, "lora": value}, fake)[0] == 200
    assert fake.requests[0].adapters is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"id": 0}, "list"),
        ([{"id": 1, "scale": 1}], "0 to 0"),
        ([{"id": -1}], "0 to 0"),
        ([{"id": True}], "0 to 0"),
        (["x"], "0 to 0"),
        ([{"id": 0, "scale": "1"}], "scale must be a number"),
        *(([{"id": 0, "scale": scale}], "up to 100") for scale in (100.5, -101, 1e30, -1e30, 1e38, 1e300)),
        ([{"id": 0, "scale": 10**400}], "scale must be a number"),
    ],
)
def test_what_makes_no_sense_is_refused(value, words):
    fake = FakeRuntime(scales=(1.0,))
    for status, body in (
        post(PATH, value, fake),
        post(CHAT, {"messages": HELLO, "lora": value}, FakeRuntime(scales=(1.0,))),
    ):
        assert (status, body["error"]["type"]) == (400, "invalid_request_error")
        assert words in body["error"]["message"]
    assert fake.scales == (1.0,)


def test_a_server_without_adapters_says_how_to_have_one():
    status, body = post(CHAT, {"messages": HELLO, "lora": [{"id": 0, "scale": 1}]})
    assert status == 400
    assert "--lora" in body["error"]["message"]


def test_a_body_that_is_no_json_is_refused():
    assert post(PATH, b"nonsense")[0] == 400
    assert post(PATH, b"[" * 100_000)[0] == 400
