"""Pictures in requests of every API: what the runtime gets of them, and what is refused in the request's own words."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kit.fake_runtime import FakeRuntime
from kit.picture_files import data_url, hostile, in_base64, pixels, png, raw_png, written
from kit.server_kit import CHAT, CONFIG, get, post, serving, with_server

from uad.base.config import ServerConfig
from uad.base.types import IMAGE_PLACE as PLACE
from uad.base.types import Image
from uad.http.requests import decoding
from uad.http.requests.pictures import MAX_PICTURES, OLD_MARKER
from uad.http.requests.pictures import MEDIA_MARKER as MARKER
from uad.http.server import state

RESPONSES, MESSAGES, TALK, GENERATE = "/v1/responses", "/v1/messages", "/api/chat", "/api/generate"
NATIVE, COMPLETIONS = "/completion", "/v1/completions"


def seeing(**more: Any) -> FakeRuntime:
    return FakeRuntime(sees_images=True, script=lambda request: b"seen", **more)


def image(seed: int = 0) -> Image:
    picture = pixels(seed)
    return Image.of(picture.width, picture.height, picture.tobytes())


def part(seed: int = 0) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(png(seed)), "detail": "high"}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def block(seed: int = 0) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": in_base64(png(seed))}}


def input_image(seed: int = 0) -> dict[str, Any]:
    return {"type": "input_image", "image_url": data_url(png(seed)), "detail": "auto"}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def prompt_of(fake: FakeRuntime) -> str:
    """The text of the only request's prompt."""
    (request,) = fake.requests
    return bytes(id_ for id_ in request.prompt if 0 <= id_ < 256).decode()


def asked(path: str, body: dict[str, Any], config: ServerConfig = CONFIG) -> FakeRuntime:
    """The runtime after a request that was answered."""
    fake = seeing()
    status, answer = post(path, {"stream": False, "max_tokens": 3, **body}, fake, config)
    assert status == 200, answer
    return fake


def refused(path: str, body: dict[str, Any], fake: FakeRuntime | None = None, config: ServerConfig = CONFIG) -> str:
    status, answer = post(path, {"max_tokens": 3, **body}, fake or seeing(), config)
    assert status == 400, answer
    error = answer["error"]
    return error if isinstance(error, str) else error["message"]


def name_of(value: object) -> str | None:
    """What a test is called after a parameter: in all processes the same, without what is drawn at each start."""
    return value.replace(PLACE, "PLACE").replace(MARKER, "MARKER") if isinstance(value, str) else None


TWO = [image(0), image(1)]
CALLED = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("path", "body", "prompt"),
    [
        (
            CHAT,
            {"messages": [user(said("a"), part(0), said("b"), said("c"), part(1))]},
            f"user:a{PLACE}b\nc{PLACE}\nassistant:",
        ),
        (CHAT, {"messages": [user(part(0)), user(part(1), said("?"))]}, f"user:{PLACE}\nuser:{PLACE}?\nassistant:"),
        (
            CHAT,
            {
                "messages": [
                    user(said("look")),
                    {"role": "assistant", "tool_calls": [CALLED]},
                    {"role": "tool", "tool_call_id": "call_1", "content": [said("here"), part(0), part(1)]},
                ]
            },
            f"user:look\nassistant:\ntool:here{PLACE}{PLACE}\nassistant:",
        ),
        (
            RESPONSES,
            {
                "input": [
                    user({"type": "input_text", "text": "a"}, input_image(0)),
                    {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
                    {
                        "type": "function_call_output",
                        "call_id": "call_1",
                        "output": [{"type": "input_text", "text": "b"}, input_image(1)],
                    },
                ]
            },
            f"user:a{PLACE}\nassistant:\ntool:b{PLACE}\nassistant:",
        ),
        (
            MESSAGES,
            {
                "messages": [
                    user(said("a"), block(0)),
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "call_1", "name": "look", "input": {}}],
                    },
                    user(
                        said("b"),
                        {"type": "tool_result", "tool_use_id": "call_1", "content": [said("c"), block(1)]},
                    ),
                ]
            },
            f"user:a{PLACE}\nassistant:\ntool:c{PLACE}\nuser:b\nassistant:",
        ),
        (
            MESSAGES,
            {
                "messages": [
                    user(block(1), {"type": "tool_result", "tool_use_id": "x", "is_error": True, "content": [block(0)]})
                ]
            },
            f"tool:Error: {PLACE}\nuser:{PLACE}\nassistant:",
        ),
        (
            TALK,
            {"messages": [{"role": "user", "content": "a", "images": [in_base64(png(0)), in_base64(png(1))]}]},
            f"user:{PLACE}{PLACE}a\nassistant:",
        ),
        (
            GENERATE,
            {"prompt": "a", "images": [in_base64(png(0)), data_url(png(1))]},
            f"user:{PLACE}{PLACE}a\nassistant:",
        ),
        (
            NATIVE,
            {
                "prompt": {
                    "prompt_string": f"a{MARKER}b{MARKER}",
                    "multimodal_data": [in_base64(png(0)), in_base64(png(1))],
                }
            },
            f"a{PLACE}b{PLACE}",
        ),
        (
            COMPLETIONS,
            {
                "prompt": [
                    {"prompt_string": f"{MARKER}{MARKER}", "multimodal_data": [data_url(png(0)), data_url(png(1))]}
                ]
            },
            f"{PLACE}{PLACE}",
        ),
    ],
    ids=name_of,
)
def test_the_runtime_gets_the_pictures_in_order_and_a_marker_for_each(path, body, prompt):
    fake = asked(path, body)
    assert [*fake.requests[0].images] == TWO
    text = prompt_of(fake)
    # the double writes calls as nothing; a content that is None is written as such
    assert text.replace("assistant:None", "assistant:") == prompt


SPELLED = (
    f"data:;base64,{in_base64(png())}",
    f"data:image/png; base64,{in_base64(png())}",
    f" DATA:image/png;base64,{in_base64(png())}",
    in_base64(png()).rstrip("="),
)


@pytest.mark.parametrize("url", SPELLED)
def test_every_api_reads_data_urls_in_any_spelling(url):
    for path, body in {
        CHAT: {"messages": [user({"type": "image_url", "image_url": url})]},
        "/chat/completions": {"messages": [user({"type": "image_url", "image_url": {"url": url}})]},
        RESPONSES: {"input": [user({"type": "input_image", "image_url": {"url": url}})]},
        "/responses": {"input": [user({"type": "input_image", "image_url": url})]},
        MESSAGES: {"messages": [user({"type": "image", "source": {"type": "base64", "data": url}})]},
        TALK: {"messages": [{"role": "user", "content": "a", "images": [url]}]},
        GENERATE: {"prompt": "a", "images": [url]},
        NATIVE: {"prompt": {"prompt_string": MARKER, "multimodal_data": [url]}},
        COMPLETIONS: {"prompt": {"prompt_string": MARKER, "multimodal_data": [url]}},
    }.items():
        assert [*asked(path, body).requests[0].images] == [image()], path
    source = {"type": "url", "url": url}
    assert [*asked(MESSAGES, {"messages": [user({"type": "image", "source": source})]}).requests[0].images] == [image()]


def test_each_choice_and_each_prompt_has_its_own_pictures():
    two = [
        {"prompt_string": f"a{MARKER}", "multimodal_data": [in_base64(png(0))]},
        "no picture",
        {"prompt_string": f"{MARKER}b{MARKER}", "multimodal_data": [in_base64(png(1)), in_base64(png(0))]},
    ]
    fake = asked(NATIVE, {"prompt": two}, ServerConfig(port=0, max_queue=8))
    assert [[*request.images] for request in fake.requests] == [[image(0)], [], [image(1), image(0)]]
    fake = asked(CHAT, {"messages": [user(part(0))], "n": 2})
    assert [[*request.images] for request in fake.requests] == [[image(0)]] * 2


def test_other_prompts_have_no_pictures_and_a_marker_is_text_there():
    fake = asked(CHAT, {"messages": [user(said(f"what is {MARKER}?"))]})
    assert fake.requests[0].images == ()
    assert f"what is {MARKER}?" in prompt_of(fake)
    fake = asked(NATIVE, {"prompt": MARKER})
    assert fake.requests[0].images == ()
    fake = asked(NATIVE, {"prompt": {"prompt_string": MARKER, "multimodal_data": []}})
    assert fake.requests[0].images == ()


WITH_PICTURE: dict[str, tuple[dict[str, Any], str]] = {
    CHAT: ({"messages": [user(said("a"), part())]}, "messages.0.content.1"),
    RESPONSES: ({"input": [user(said("a"), input_image())]}, "input.0.content.1"),
    MESSAGES: ({"messages": [user(said("a"), block())]}, "messages.0.content.1"),
    TALK: ({"messages": [{"role": "user", "content": "a", "images": [in_base64(png())]}]}, "messages.0.images.0"),
    GENERATE: ({"prompt": "a", "images": [in_base64(png())]}, "images.0"),
    NATIVE: (
        {"prompt": {"prompt_string": MARKER, "multimodal_data": [in_base64(png())]}},
        "prompt.multimodal_data.0",
    ),
    "/v1/chat/completions/input_tokens": ({"messages": [user(said("a"), part())]}, "messages.0.content.1"),
    "/v1/messages/count_tokens": ({"messages": [user(said("a"), block())]}, "messages.0.content.1"),
    "/v1/responses/input_tokens": ({"input": [user(said("a"), input_image())]}, "input.0.content.1"),
    "/apply-template": ({"messages": [user(said("a"), part())]}, "messages.0.content.1"),
}


@pytest.mark.parametrize("path", WITH_PICTURE)
def test_a_server_that_sees_nothing_refuses_pictures_and_names_the_flag(path):
    body, where = WITH_PICTURE[path]
    fake = FakeRuntime()
    assert refused(path, body, fake).startswith(
        f"{where}: image input is not supported: start the server with --mmproj"
    )
    assert fake.requests == []


def test_prompts_are_counted_with_their_pictures():
    body, _ = WITH_PICTURE[CHAT]
    status, answer = post("/v1/chat/completions/input_tokens", body, seeing())
    assert (status, answer["input_tokens"]) == (200, len(f"<user:a{PLACE}?\nassistant:"))  # < is BOS, ? the image
    for path in ("/v1/messages/count_tokens", "/v1/responses/input_tokens"):
        status, other = post(path, WITH_PICTURE[path][0], seeing())
        assert (status, other["input_tokens"]) == (200, answer["input_tokens"])


def test_the_template_is_applied_to_markers_and_nothing_is_decoded():
    body = {"messages": [user(said("a"), {"type": "image_url", "image_url": {"url": "https://nowhere.example/a.png"}})]}
    status, answer = post("/apply-template", body, seeing())
    assert (status, answer["prompt"]) == (200, f"user:a{MARKER}\nassistant:")


def corrupted(body: Any, data: bytes) -> Any:
    """The body with this file in place of its picture."""
    if isinstance(body, dict):
        return {name: corrupted(member, data) for name, member in body.items()}
    if isinstance(body, list):
        return [corrupted(one, data) for one in body]
    whole = in_base64(png())
    return body.replace(whole, in_base64(data)) if isinstance(body, str) else body


@pytest.mark.parametrize("path", [path for path in WITH_PICTURE if path != "/apply-template"])
@pytest.mark.parametrize("data", [b"no picture", png()[:40], raw_png(0, 0), raw_png(60000, 60000)])
def test_what_is_no_picture_is_refused_with_its_place(path, data):
    body, where = WITH_PICTURE[path]
    fake = seeing()
    assert refused(path, corrupted(body, data), fake).startswith(f"{where}: ")
    assert fake.requests == []


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (CHAT, {"messages": [user({"type": "image_url"})]}, "messages.0.content.0.image_url.url: field required"),
        (CHAT, {"messages": [user({"type": "image_url", "image_url": "x"})]}, "messages.0.content.0: is no base64"),
        (CHAT, {"messages": [user({"type": "image_url", "image_url": ["x"]})]}, "messages.0.content.0.image_url: "),
        (
            CHAT,
            {"messages": [user({"type": "image_url", "image_url": {"url": 3}})]},
            "messages.0.content.0.image_url.url",
        ),
        (CHAT, {"messages": [user({"type": "input_audio"})]}, "messages.0.content: this server reads text and images"),
        (CHAT, {"messages": [user({"type": "image_url", "image_url": {"url": ""}})]}, "messages.0.content.0: is empty"),
        (
            CHAT,
            {"messages": [user(said("a")), {"role": "assistant", "content": [part()]}]},
            "messages: the last assistant message is continued, and can hold no images",
        ),
        (CHAT, {"messages": [user(*[part()] * (MAX_PICTURES + 1))]}, "messages: at most 256 images"),
        (RESPONSES, {"input": [user({"type": "input_image"})]}, "input.0.content.0.image_url: must be a string"),
        (
            RESPONSES,
            {"input": [user({"type": "input_image", "file_id": "file-1"})]},
            "input.0.content.0.file_id: this server keeps no files",
        ),
        (RESPONSES, {"input": [user({"type": "input_file"})]}, "input.0.content.0: this server reads texts and images"),
        (MESSAGES, {"messages": [user({"type": "image"})]}, "messages.0.content.0.source: field required"),
        (
            MESSAGES,
            {"messages": [user({"type": "image", "source": {"type": "file", "file_id": "x"}})]},
            "messages.0.content.0.source.type: ",
        ),
        (
            MESSAGES,
            {"messages": [user({"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}})]},
            "messages.0.content.0: images at addresses are not fetched",
        ),
        (TALK, {"messages": [{"role": "user", "content": "a", "images": "x"}]}, "messages.0.images: must be a list"),
        (GENERATE, {"prompt": "a", "images": [3]}, "images: must be a list of images in base64"),
        (GENERATE, {"prompt": "a", "raw": True, "images": [in_base64(png())]}, "images: raw prompts"),
        (GENERATE, {"prompt": "a", "suffix": "b", "images": [in_base64(png())]}, "images: raw prompts"),
        (
            NATIVE,
            {"prompt": {"prompt_string": MARKER, "multimodal_data": "x"}},
            "prompt.multimodal_data: must be a list",
        ),
        (
            NATIVE,
            {"prompt": {"prompt_string": "none", "multimodal_data": [in_base64(png())]}},
            f"prompt.prompt_string: must hold {MARKER!r} (media_marker of /props) once for each of the 1 images in "
            "multimodal_data; it holds 0",
        ),
        (
            NATIVE,
            {"prompt": {"prompt_string": MARKER * 2, "multimodal_data": [in_base64(png())]}},
            "prompt.prompt_string: must hold",
        ),
        (
            NATIVE,
            {"prompt": {"prompt_string": [1, MARKER], "multimodal_data": [in_base64(png())]}},
            "prompt.prompt_string: must be a string",
        ),
        (
            NATIVE,
            {"prompt": ["a", {"prompt_string": MARKER, "multimodal_data": ["malformed"]}]},
            "prompt.1.multimodal_data.0: is no",
        ),
        (
            COMPLETIONS,
            {"prompt": {"prompt_string": MARKER, "multimodal_data": [in_base64(png())]}, "suffix": "b"},
            "suffix: a prompt with images has none",
        ),
        (
            COMPLETIONS,
            {"prompt": {"prompt_string": MARKER, "multimodal_data": [in_base64(png())]}, "echo": True, "logprobs": 1},
            "echo: with logprobs a prompt can hold no images",
        ),
        (
            "/tokenize",
            {"content": {"prompt_string": "a", "multimodal_data": ["x"]}},
            "content: this is read as text only",
        ),
    ],
    ids=name_of,
)
def test_what_is_wrong_with_a_picture_is_said_of_its_place(path, body, why):
    assert refused(path, body).startswith(why)


TYPED = f"{OLD_MARKER} and {MARKER}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [user(said(f"a {TYPED}"), part())]}),
        (CHAT, {"messages": [{"role": "system", "content": f"The marker is {TYPED}."}, user(part())]}),
        (
            CHAT,
            {
                "messages": [
                    user(part()),
                    {"role": "assistant", "content": "a", "reasoning_content": TYPED},
                    user(said(TYPED)),
                ]
            },
        ),
        (
            CHAT,
            {
                "messages": [
                    user(part()),
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": f'{{"a": "{TYPED}"}}'}}],
                    },
                    {"role": "tool", "content": TYPED},
                ]
            },
        ),
        (CHAT, {"messages": [user(part(), said(TYPED))], "chat_template_kwargs": {"a": TYPED}}),
        (
            CHAT,
            {"messages": [user(part(), said(TYPED))], "tools": [{"function": {"name": "f", "description": TYPED}}]},
        ),
        (MESSAGES, {"system": TYPED, "messages": [user(block())]}),
        (MESSAGES, {"messages": [user(said(TYPED), block())]}),
        (RESPONSES, {"instructions": TYPED, "input": [user(input_image())]}),
        (RESPONSES, {"input": [user({"type": "input_text", "text": TYPED}, input_image())]}),
        (TALK, {"messages": [{"role": "user", "content": TYPED, "images": [in_base64(png())]}]}),
        (GENERATE, {"system": TYPED, "prompt": "a", "images": [in_base64(png())]}),
        (GENERATE, {"prompt": TYPED, "images": [in_base64(png())]}),
    ],
)
def test_a_marker_that_somebody_typed_beside_a_picture_is_text(path, body):
    fake = asked(path, body)
    assert [*fake.requests[0].images] == [image()]
    text = prompt_of(fake)
    assert text.count(PLACE) == 1
    assert TYPED in text or TYPED in json.dumps(fake.chats[-1])


def test_no_text_can_hold_what_stands_for_a_picture():
    """It is not `media_marker`, and no answer shows it."""
    seen = [get("/props", seeing())[1], post("/apply-template", WITH_PICTURE[CHAT][0], seeing())[1]]
    assert PLACE not in json.dumps(seen)
    assert len({PLACE, MARKER, OLD_MARKER}) == 3
    assert min(len(PLACE), len(MARKER)) > 32
    told = [[sys.executable, "-c", f"import {module} as m; print(m.{name})"] for module, name in DRAWN]
    drawn = {subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in told * 2}
    assert len(drawn) == 4  # each another one in another process


DRAWN = (("uad.base.types.images", "IMAGE_PLACE"), ("uad.http.requests.pictures", "MEDIA_MARKER"))


def test_a_native_prompt_has_the_marker_of_props_or_the_old_one():
    data = {"multimodal_data": [in_base64(png())]}
    for text, prompt in (
        (f"a{MARKER}b", f"a{PLACE}b"),
        (f"a{OLD_MARKER}b", f"a{PLACE}b"),
        (f"{OLD_MARKER}{MARKER}{OLD_MARKER}", f"{OLD_MARKER}{PLACE}{OLD_MARKER}"),
    ):
        assert prompt_of(asked(NATIVE, {"prompt": {"prompt_string": text, **data}})) == prompt
    told = refused(NATIVE, {"prompt": {"prompt_string": OLD_MARKER * 2, **data}})
    assert told.startswith("prompt.prompt_string: must hold")


def test_pictures_in_files_are_read_below_one_directory_only(tmp_path: Path):
    folder = tmp_path / "pictures"
    (folder / "in").mkdir(parents=True)
    (folder / "a b.png").write_bytes(png(0))
    (folder / "in" / "b.png").write_bytes(png(1))
    (tmp_path / "secret.png").write_bytes(png(2))
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    config = ServerConfig(port=0, media_path=folder)

    def body(url: str) -> dict[str, Any]:
        return {"messages": [user({"type": "image_url", "image_url": {"url": url}})]}

    for url, seed in (("file://a b.png", 0), ("file://a%20b.png", 0), ("file://in/b.png", 1), ("file:///in/b.png", 1)):
        assert [*asked(CHAT, body(url), config).requests[0].images] == [image(seed)]
    for url in (
        *("file://../secret.png", "file:///../secret.png", "file://in/../../secret.png", "file://link.png"),
        *(f"file://{tmp_path}/secret.png", "file://in", "file://", "file://nowhere.png", "file://a%00b.png"),
        *("file://%2e%2e/secret.png", f"file://{'a' * 300}.png"),
    ):
        why = refused(CHAT, body(url), config=config)
        assert why == "messages.0.content.0: there is no such file below --media-path", url
    assert refused(CHAT, body("file://a b.png")).startswith("messages.0.content.0: files are not read")
    (folder / "large.png").write_bytes(bytes((10 << 20) + 1))
    assert "more than 10485760 bytes" in refused(CHAT, body("file://large.png"), config=config)


def test_the_server_tells_that_it_sees():
    for fake, sees in ((FakeRuntime(), False), (seeing(), True)):
        props = get("/props", fake)[1]
        assert props["modalities"] == {"vision": sees, "video": False, "audio": False}
        assert props["media_marker"] == MARKER
    for fake, kinds, more in ((FakeRuntime(), ["text"], []), (seeing(), ["text", "image"], ["multimodal"])):
        listed = get("/v1/models", fake)[1]
        assert listed["models"][0]["capabilities"] == ["completion", *more]
        assert listed["data"][0]["architecture"] == {"input_modalities": kinds, "output_modalities": ["text"]}
    assert "vision" not in post("/api/show", {"model": "toy"}, FakeRuntime())[1]["capabilities"]
    assert "vision" in post("/api/show", {"model": "toy"}, seeing())[1]["capabilities"]


def test_pictures_are_decoded_on_threads_and_the_loop_goes_on(monkeypatch):
    """While one waits for its pictures, another is answered."""
    may_go, names = threading.Event(), set[str]()
    real = decoding.decoded

    def slow(*args: Any) -> Image:
        names.add(threading.current_thread().name)
        assert may_go.wait(120)
        return real(*args)

    monkeypatch.setattr(decoding, "decoded", slow)

    async def run() -> tuple[int, int]:
        async with asyncio.timeout(120), serving(seeing()) as session:
            long = asyncio.create_task(session.post(CHAT, json={"messages": [user(part())], "max_tokens": 3}))
            while not names:
                await asyncio.sleep(0)
            async with session.post(CHAT, json={"messages": [user(said("a"))], "max_tokens": 3}) as short:
                may_go.set()
                return short.status, (await long).status

    assert asyncio.run(run()) == (200, 200)
    assert all(name.startswith("uad-http-pictures") for name in names)


def test_what_pictures_hold_is_counted_and_given_back():
    async def run(session: Any) -> list[int]:
        statuses = []
        for data in (png(), b"nothing", raw_png(1 << 12, 1 << 12, rows=b"x")[:-20]):
            body = {"messages": [user({"type": "image_url", "image_url": {"url": data_url(data)}})], "max_tokens": 3}
            async with session.post(CHAT, json=body) as answer:
                statuses.append(answer.status)
        return statuses

    made: list[state.State] = []
    real = state.State.__post_init__

    def noted(self: state.State) -> None:
        real(self)
        made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state.State, "__post_init__", noted)
        assert with_server(run, seeing()) == [200, 400, 200]
        assert [one.media.n_held for one in made] == [0]


def test_pixels_are_freed_with_their_request_whoever_still_knows_it():
    fake = asked(CHAT, {"messages": [user(part())], "n": 2})
    assert [[one.pixels.n_bytes for one in request.images] for request in fake.requests] == [[0], [0]]


def test_pixels_that_were_read_are_counted_no_more_while_the_answer_is_written():
    made: list[state.State] = []
    real = state.State.__post_init__

    def noted(self: state.State) -> None:
        real(self)
        made.append(self)

    fake = seeing()
    fake.go.clear()

    async def run(session: Any) -> tuple[int, ...]:
        task = asyncio.create_task(session.post(CHAT, json={"messages": [user(part())], "n": 2, "max_tokens": 3}))
        while len(fake.requests) < 2:
            await asyncio.sleep(0)
        (one,) = made
        held = [one.media.n_held]
        for request in fake.requests:
            request.prompt_is_read()
            held.append(one.media.n_held)
        fake.go.set()
        return (await task).status, *held

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state.State, "__post_init__", noted)
        assert with_server(run, fake) == (200, 72, 72, 0)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, TALK, NATIVE])
def test_files_of_pictures_are_let_go_before_the_answer_is_written(path):
    """A file of 3 MB with its pixels at its beginning."""
    large = base64.b64encode(written(pixels(), "JPEG") + bytes(3 << 20))
    body = json.dumps({**corrupted(WITH_PICTURE[path][0], b"x"), "max_tokens": 3, "stream": False}).encode()
    small = in_base64(b"x").encode()
    fake = seeing()
    fake.go.clear()

    async def sent() -> AsyncIterator[bytes]:
        before, _, after = body.partition(small)
        yield before
        for start in range(0, len(large), 1 << 16):
            yield large[start : start + (1 << 16)]
        yield after

    async def run(session: Any) -> tuple[int, int]:
        before, _ = tracemalloc.get_traced_memory()
        task = asyncio.create_task(session.post(path, data=sent(), headers={"Content-Type": "application/json"}))
        while not fake.requests:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        fake.go.set()
        return (await task).status, held - before

    tracemalloc.start()
    try:
        status, n = with_server(run, fake)
    finally:
        tracemalloc.stop()
    assert status == 200
    assert n < 2 << 20


@pytest.mark.long
def test_a_chat_with_a_hundred_megabytes_of_photos_is_answered():
    large = data_url(written(pixels(), "JPEG") + bytes(30 << 20))
    parts = [{"type": "image_url", "image_url": {"url": large}} for _ in range(3)]
    fake = seeing()
    assert post(CHAT, {"messages": [user(*parts, said("a"))], "max_tokens": 3}, fake)[0] == 200
    assert len(fake.requests[0].images) == 3


def test_eight_large_pictures_at_once_are_answered_one_after_another(monkeypatch):
    monkeypatch.setattr("uad.http.server.media.LARGE_BYTES", 10)
    inside, most = 0, 0
    real = decoding.decoded

    def counted(*args: Any) -> Image:
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        try:
            return real(*args)
        finally:
            inside -= 1

    monkeypatch.setattr(decoding, "decoded", counted)

    async def run(session: Any) -> list[int]:
        asks = [session.post(CHAT, json={"messages": [user(part(i))], "max_tokens": 3}) for i in range(8)]
        return [answer.status for answer in await asyncio.gather(*asks)]

    assert with_server(run, seeing(), ServerConfig(port=0, max_queue=8)) == [200] * 8
    assert most == 1


def test_where_pictures_take_too_much_memory_the_next_waits_for_another_try():
    real = state.State.__post_init__

    def full(self: state.State) -> None:
        real(self)
        self.media.limit = 10

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state.State, "__post_init__", full)
        status, answer = post(CHAT, {"messages": [user(part())]}, seeing())
        assert (status, answer["error"]["message"]) == (
            503,
            "the images of all requests take too much memory now; try again later",
        )


@pytest.mark.long
def test_two_hundred_hostile_files_each_get_an_answer_from_one_server():
    files = [data for _, data in hostile()]

    async def run(session: Any) -> dict[int, int]:
        counts: dict[int, int] = {}
        for data in files:
            body = {"messages": [user({"type": "image_url", "image_url": {"url": data_url(data)}})], "max_tokens": 1}
            async with session.post(CHAT, json=body) as answer:
                counts[answer.status] = counts.get(answer.status, 0) + 1
                assert answer.status == 200 or "messages.0.content.0: " in await answer.text()
        return counts

    counts = with_server(run, seeing())
    assert sum(counts.values()) == len(files)
    assert set(counts) == {200, 400}


def test_a_picture_in_another_format_than_its_type_says_is_read():
    jpeg = written(pixels(0, (16, 16)), "JPEG")
    fake = asked(CHAT, {"messages": [user({"type": "image_url", "image_url": {"url": data_url(jpeg)}})]})
    assert (fake.requests[0].images[0].width, fake.requests[0].images[0].height) == (16, 16)


def test_answers_show_prompts_with_pictures():
    prompt = {"prompt": {"prompt_string": f"a{MARKER}b", "multimodal_data": [in_base64(png())]}, "max_tokens": 3}
    assert post(NATIVE, prompt, seeing())[1]["prompt"] == f"<s>a{PLACE}b"
    (choice,) = post(COMPLETIONS, {**prompt, "echo": True, "return_token_ids": True}, seeing())[1]["choices"]
    assert choice["text"].startswith(f"a{MARKER}b")
    assert choice["prompt_token_ids"] == [256, *f"a{PLACE}".encode(), -1, ord("b")]
    body = {"messages": [user(part())], "verbose": True, "return_token_ids": True, "max_tokens": 3}
    answer = post(CHAT, body, seeing())[1]
    assert answer["__verbose"]["prompt"] == f"<s>user:{PLACE}\nassistant:"
    assert min(answer["prompt_token_ids"]) == -1
