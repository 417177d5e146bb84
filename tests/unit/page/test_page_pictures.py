"""Pictures on the page, in a real Chromium: chosen, pasted or dropped, shown and sent, where the server sees."""

from __future__ import annotations

from typing import Any

from kit.browser import Open, answered, fake, say, served, until
from kit.picture_files import in_base64, pixels, png, written

from uad.base.types import IMAGE_PLACE, Image

PUT = """([kind, data]) => {
    const bytes = Uint8Array.from(atob(data), letter => letter.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], "a.png", {type: "image/png"}));
    const options = {bubbles: true, cancelable: true};
    const event = kind === "paste"
        ? new ClipboardEvent("paste", {...options, clipboardData: files})
        : new DragEvent("drop", {...options, dataTransfer: files});
    document.querySelector("#say").dispatchEvent(event);
    return event.defaultPrevented;
}"""
ONE_WAITS = "document.querySelectorAll('#waiting img').length === 1"


def image(seed: int) -> Image:
    picture = pixels(seed)
    return Image.of(picture.width, picture.height, picture.tobytes())


def is_drawn(page: Any, where: str) -> None:
    """A picture there is shown, which the page's policy has to allow."""
    until(page, f"document.querySelector('{where}').naturalWidth > 0")


def test_a_picture_is_chosen_shown_and_sent_and_stays_in_the_conversation(visit: Open) -> None:
    runtime = fake("I see.", sees_images=True)
    with served(runtime) as url:
        page = visit(url)
        page.wait_for_selector("#attach:not([hidden])")
        page.set_input_files("#pick", {"name": "a.png", "mimeType": "image/png", "buffer": png(0)})
        is_drawn(page, "#waiting img")
        say(page, "What is it?")
        answered(page)
        assert page.locator("#waiting img").count() == 0
        is_drawn(page, ".turn.user img")
        page.reload()
        is_drawn(page, ".turn.user img")
        say(page, "And now?")
        until(page, "document.querySelectorAll('.turn.answer').length === 2")
        answered(page)
    assert [[*request.images] for request in runtime.requests] == [[image(0)]] * 2
    assert runtime.chats[0][0][0]["content"] == f"{IMAGE_PLACE}What is it?"


def test_pictures_are_pasted_and_dropped_and_may_be_removed_or_sent_without_a_text(visit: Open) -> None:
    runtime = fake("I see.", sees_images=True)
    with served(runtime) as url:
        page = visit(url)
        page.wait_for_selector("#attach:not([hidden])")
        assert page.evaluate(PUT, ["paste", in_base64(png(0))])
        until(page, ONE_WAITS)
        page.get_by_role("button", name="Remove picture 1").click()
        assert page.locator("#waiting img").count() == 0
        assert page.evaluate(PUT, ["drop", in_base64(png(1))])
        until(page, ONE_WAITS)
        page.evaluate(PUT, ["drop", in_base64(b"no picture")])
        until(page, "document.querySelector('#said').textContent.includes('cannot be read')")
        say(page, "")
        answered(page)
    assert [[*request.images] for request in runtime.requests] == [[image(1)]]
    assert runtime.chats[0][0][0]["content"] == IMAGE_PLACE


def test_a_large_picture_is_made_smaller(visit: Open) -> None:
    runtime = fake("I see.", sees_images=True)
    large = written(pixels(0, (2000, 1000)))
    with served(runtime) as url:
        page = visit(url)
        page.wait_for_selector("#attach:not([hidden])")
        page.set_input_files("#pick", {"name": "a.png", "mimeType": "image/png", "buffer": large})
        until(page, ONE_WAITS)
        say(page)
        answered(page)
    assert [(one.width, one.height) for one in runtime.requests[0].images] == [(1536, 768)]


def test_a_page_of_a_server_that_sees_nothing_takes_no_pictures(visit: Open) -> None:
    runtime = fake("I do not see.")
    with served(runtime) as url:
        page = visit(url)
        until(page, "document.querySelector('#model').textContent === 'toy'")
        assert page.locator("#attach").is_hidden()
        assert not page.evaluate(PUT, ["paste", in_base64(png(0))])
        assert not page.evaluate(PUT, ["drop", in_base64(png(0))])
        say(page)
        answered(page)
    assert runtime.requests[0].images == ()
