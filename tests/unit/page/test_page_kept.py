"""Conversations of the page in a real Chromium: what is kept, by one tab and by several, and answers that are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.browser import Open, answered, fake, say, served, until

SLOW = "word " * 400
OLD = "uad.conversations"
TEXT_OF_LAST = "document.querySelector('.turn.answer:last-child > .paper').textContent"
KEPT_TEXT = "Object.values(localStorage).map(JSON.parse).find(one => one.said).said.text"
PHONE = {"width": 390, "height": 844}


def titles(page: Any) -> list[str]:
    return [one.removesuffix("\n×") for one in page.locator("#chats li").all_inner_texts()]


def until_titles(page: Any, wanted: list[str]) -> None:
    until(page, f"document.querySelectorAll('#chats li').length === {len(wanted)}")
    assert titles(page) == wanted


def open_chat(page: Any, title: str) -> None:
    page.locator("#chats").get_by_text(title, exact=True).click()


def test_what_two_tabs_keep_stays(visit: Open) -> None:
    with served(fake("An answer.")) as url:
        one = visit(url)
        other = visit(url, beside=one)
        say(one, "first")
        say(other, "second")
        for page in (one, other):
            answered(page)
            until_titles(page, ["second", "first"])
            page.reload()
            assert titles(page) == ["second", "first"]
        open_chat(one, "first")
        assert answered(one).inner_text() == "An answer."


def test_a_deletion_is_seen_in_other_tabs_and_ends_the_answer_there(visit: Open) -> None:
    slow = fake(SLOW, pause=0.02)
    with served(slow) as url:
        one = visit(url)
        say(one, "first")
        until(one, f"{TEXT_OF_LAST}.length > 20")
        other = visit(url, beside=one)
        other.get_by_role("button", name="Delete first").click()
        until_titles(other, [])
        until_titles(one, [])
        until(one, "document.querySelectorAll('.turn').length === 0")
        for _ in range(500):
            if slow.cancelled:
                break
            one.wait_for_timeout(10)
        assert slow.cancelled
        one.wait_for_timeout(50)
        assert one.evaluate("Object.keys(localStorage)") == []


def test_what_a_tab_writes_while_another_deletes_goes_too(visit: Open) -> None:
    with served(fake("An answer.")) as url:
        one = visit(url)
        say(one, "first")
        answered(one)
        other = visit(url, beside=one)
        # A deletion whose news comes late: the messages were written anew before it.
        other.evaluate("localStorage.removeItem(Object.keys(localStorage).find((key) => key.startsWith('uad.chat.')))")
        until_titles(one, [])
        until(one, "Object.keys(localStorage).length === 0")


def test_the_same_conversation_in_two_tabs_keeps_the_turns_of_both(visit: Open) -> None:
    runtime = fake(SLOW, pause=0.02)
    with served(runtime) as url:
        one = visit(url)
        say(one, "first")
        other = visit(url, beside=one)
        until(other, "document.querySelector('.turn.answer') !== null")
        assert other.locator("#send").is_disabled()  # it waits for the other tab
        until(other, f"{TEXT_OF_LAST}.length > 40")
        runtime.pause = 0
        assert answered(one).inner_text() == answered(other).inner_text() == SLOW.strip()
        runtime.script = lambda _: b"ok"
        say(other, "second")
        answered(other)
        until(one, "document.querySelectorAll('.turn').length === 4")
        say(one, "third")
        answered(one)
        assert [message["role"] for message in runtime.chats[-1][0]] == ["user", "assistant"] * 2 + ["user"]
        for page in (one, other):
            until(page, "document.querySelectorAll('.turn').length === 6")
            assert page.locator(".turn.user .paper").all_inner_texts() == ["first", "second", "third"]


def test_messages_that_two_tabs_add_at_once_both_stay(visit: Open) -> None:
    """Neither tab has been told of the other's message when it keeps its own."""
    add = """async text => {
        const store = await import("./page/store.js");
        const chat = store.chats[0];
        const message = { role: "user", text, place: store.newPlace(chat) };
        chat.messages.push(message);
        store.keep(chat, message);
    }"""
    with served(fake("ok")) as url:
        one = visit(url)
        say(one, "first")
        answered(one)
        other = visit(url, beside=one)
        for page in (one, other):
            page.evaluate("addEventListener('storage', event => event.stopImmediatePropagation(), true)")
        one.evaluate(add, "of one")
        other.evaluate(add, "of the other")
        one.reload()
        assert one.locator(".turn.user .paper").all_inner_texts() == ["first", "of one", "of the other"]


def old_chats(n: int, size: int) -> list[dict[str, Any]]:
    runs = [{"end": 4, "by": "draft-simple", "n": 1}, {"end": 10, "by": "target", "n": 2}]
    said = {"text": "An answer.", "runs": runs, "rejected": []}
    answer = {"role": "assistant", "said": said, "thought": {"text": ""}, "calls": [], "numbers": None, "saved": None}
    settings = {"seed": "7", "system": "." * size}
    return [
        {"id": f"{i}-7", "settings": settings, "messages": [{"role": "user", "text": f"old {i}"}, answer]}
        for i in range(n)
    ]


@pytest.mark.parametrize("size", [9, 1_600_000])  # three large ones and their copies do not fit beside each other
def test_what_earlier_versions_kept_is_moved(visit: Open, size: int) -> None:
    with served(fake("x")) as url:
        page = visit(url)
        page.evaluate("([key, text]) => localStorage.setItem(key, text)", [OLD, json.dumps(old_chats(3, size))])
        page.reload()
        assert titles(page) == ["old 0", "old 1", "old 2"]
        assert page.evaluate(f"localStorage.getItem('{OLD}')") is None
        assert not page.locator("#full").is_visible()
        page.reload()
        assert titles(page) == ["old 0", "old 1", "old 2"]
        open_chat(page, "old 2")
        assert answered(page).inner_text() == "An answer."
        assert page.locator(".turn.answer mark.model").inner_text() == "An a"
        assert page.evaluate("document.forms.settings.seed.value") == "7"
        assert page.evaluate("document.forms.settings.system.value.length") == size


def test_what_cannot_be_read_does_not_stop_the_page(visit: Open) -> None:
    with served(fake("ok")) as url:
        page = visit(url)
        say(page, "first")
        answered(page)
        page.evaluate(
            f"""() => {{
                localStorage.setItem("uad.chat.bad", "{{");
                localStorage.setItem("uad.turn.bad.1-0", "[");
                localStorage.setItem("{OLD}", "{{");
                for (const key of Object.keys(localStorage))
                    if (key.startsWith("uad.turn.") && localStorage[key].includes("assistant")) localStorage[key] = "?";
            }}"""
        )
        page.reload()
        assert titles(page) == ["first"]
        assert page.locator(".turn").count() == 1
        assert page.evaluate(f"[localStorage['{OLD}'], localStorage['uad.turn.bad.1-0']]") == ["{", "["]  # nor deleted


def test_a_full_store_is_told_and_what_did_not_fit_is_kept_once_there_is_room(visit: Open) -> None:
    fill = """() => {
        let part = "x".repeat(1 << 20), i = 0;
        while (part) {
            try { localStorage.setItem("fill" + i, part); i += 1; } catch { part = part.slice(0, part.length >> 1); }
        }
    }"""
    with served(fake("An answer.")) as url:
        page = visit(url)
        say(page, "first")
        answered(page)
        page.evaluate(fill)
        page.click("#new")
        say(page, "second")
        answered(page)
        assert "storage is full" in page.locator("#full").inner_text()
        assert titles(page) == ["second", "first"]
        open_chat(page, "first")
        open_chat(page, "second")
        assert answered(page).inner_text() == "An answer."
        other = visit(url, beside=page)
        assert titles(other) == ["first"]
        other.evaluate(
            "Object.keys(localStorage).forEach(key => key.startsWith('fill') && localStorage.removeItem(key))"
        )
        until(page, "document.getElementById('full').hidden")
        until_titles(other, ["second", "first"])
        page.reload()
        assert titles(page) == ["second", "first"]
        assert answered(page).inner_text() == "An answer."


def test_an_answer_goes_on_while_another_conversation_is_shown(visit: Open) -> None:
    runtime = fake(SLOW, pause=0.02)
    with served(runtime) as url:
        page = visit(url)
        say(page, "first")
        until(page, f"{TEXT_OF_LAST}.length > 20")
        page.click("#new")
        assert page.locator("#send").is_visible()
        runtime.script = lambda _: b"ok"
        say(page, "second")
        assert answered(page).inner_text() == "ok"
        assert page.locator("#chats li.runs").count() == 1
        open_chat(page, "first")
        assert page.locator("#stop").is_visible()
        runtime.pause = 0
        assert answered(page).inner_text() == SLOW.strip()
        assert page.locator("#chats li.runs").count() == 0
        assert not runtime.cancelled
        page.reload()
        open_chat(page, "first")
        assert answered(page).inner_text() == SLOW.strip()


def test_a_reload_keeps_what_had_come_and_it_can_be_continued(visit: Open) -> None:
    runtime = fake(SLOW, pause=0.02)
    with served(runtime) as url:
        page = visit(url)
        say(page, "first")
        until(page, f"{TEXT_OF_LAST}.length > 40")
        page.reload()
        shown = answered(page).text_content()
        begun = page.evaluate(KEPT_TEXT)
        assert SLOW.startswith(begun)
        assert begun.strip() == shown
        assert len(shown) > 40
        assert page.locator(".turn .numbers").inner_text() == "stopped"
        assert not page.locator(".turn .problem").is_visible()
        runtime.script = lambda _: b"and the rest."
        page.get_by_role("button", name="Continue").click()
        until(page, f"{TEXT_OF_LAST}.endsWith('the rest.')")
        assert answered(page).text_content() == f"{begun}and the rest."
        assert bytes(runtime.requests[-1].prompt[1:]).decode() == f"user:first\nassistant:{begun}"
        assert page.locator(".turn").count() == 2
        page.reload()
        assert answered(page).text_content() == f"{begun}and the rest."


def test_an_answer_whose_tab_is_gone_is_said_to_be_stopped(visit: Open) -> None:
    with served(fake("An answer.")) as url:
        page = visit(url)
        say(page, "first")
        answered(page)
        page.evaluate(
            """() => {
                const key = Object.keys(localStorage).find(one => localStorage[one].includes("assistant"));
                localStorage[key] = JSON.stringify({ ...JSON.parse(localStorage[key]), writer: "1-2", finish: "" });
            }"""
        )
        page.reload()
        answered(page)
        assert page.locator(".turn .numbers").inner_text().endswith("stopped")
        assert page.locator("#send").is_enabled()


def test_a_server_that_goes_away_is_told_in_words_and_what_had_come_stays(visit: Open) -> None:
    problem = "document.querySelector('.turn:last-child .problem').textContent"
    with served(fake(SLOW, pause=0.02)) as url:
        page = visit(url)
        say(page, "first")
        until(page, f"{TEXT_OF_LAST}.length > 40")
    assert len(answered(page).text_content()) > 40
    assert page.evaluate(problem)
    assert page.get_by_role("button", name="Continue").is_visible()
    say(page, "second")
    until(page, f"{problem} === 'The server cannot be reached.'")
    assert len(page.locator(".turn.answer > .paper").first.text_content()) > 40


def test_history_on_a_phone_closes_by_its_button_by_a_tap_outside_and_by_escape(visit: Open) -> None:
    with served(fake("ok")) as url:
        page = visit(url, has_touch=True)
        page.set_viewport_size(PHONE)
        ways = (
            lambda: page.tap("#hide-side"),
            lambda: page.touchscreen.tap(PHONE["width"] - 20, PHONE["height"] // 2),
            lambda: page.keyboard.press("Escape"),
        )
        for close in ways:
            page.tap("#show-side")
            assert page.locator("#new").is_visible()
            close()
            assert not page.locator("#new").is_visible()
            assert page.evaluate("document.activeElement.id") == "show-side"
