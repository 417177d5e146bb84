"""The page in a real Chromium, over a scripted runtime: what people see and do."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import groupby
from typing import Any

from kit.browser import Open, answered, by_sevens, fake, say, served, until
from kit.fake_runtime import REJECTED
from kit.pace import best_of

from uad.base.config import ServerConfig
from uad.base.console import kind_of
from uad.base.errors import UadError
from uad.base.types import Origin
from uad.text.calls.format import AnswerFormat, ThoughtFormat

PHONE = {"width": 375, "height": 700}
HOSTILE = (
    "<script>window.bad = 1</script> <img src=x onerror='window.bad = 1'> [x](javascript:alert(1)) "
    '[y](https://example.org/"onmouseover=alert(1)) \u202egnirts\u202c \u2067 **bold** `code`\n\n'
    "```html\n<script>window.bad = 1</script>\n```\n\n"
    + "| a | b |\n|---|---|\n| <b>x</b> | 2 |\n\n"
    + "w" * 30_000
    + "\n"
)


def runs(page: Any) -> list[list[str]]:
    """[kind, text] of each stretch of the last answer, neighbours of one kind as one."""
    found = page.locator(".turn.answer .paper").last.evaluate(
        """root => {
            const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
            const found = [];
            while (walk.nextNode()) {
                const mark = walk.currentNode.parentElement.closest("mark");
                if (!walk.currentNode.parentElement.closest("button, del"))
                    found.push([mark ? mark.className : "target", walk.currentNode.textContent]);
            }
            return found;
        }"""
    )
    return [[kind, "".join(text for _, text in group)] for kind, group in groupby(found, key=lambda one: one[0])]


def test_a_chat_is_answered_and_its_colours_are_the_origins_of_the_stream(visit: Open) -> None:
    text = "Käse für 東京 😀 und noch viel mehr, ohne Ende und Ziel."
    with served(fake(text)) as url:
        page = visit(url)
        say(page)
        assert answered(page).inner_text() == text
        owners = [by_sevens(i) for i in range(len(text.encode()))]
        expected, at = [], 0
        for char in text[:-1]:
            at += len(char.encode())
            expected.append((kind_of(owners[at - 1]), char))  # a character belongs to the token that completes it
        expected.append(("target", text[-1]))  # it was held back, and no token came with it
        wanted = [[kind, "".join(c for _, c in group)] for kind, group in groupby(expected, key=lambda one: one[0])]
        assert runs(page) == wanted
        assert "guesses\xa0accepted" in page.locator(".numbers").first.inner_text()
        assert page.locator("del").count() == 0
        page.check("#show-rejected")
        assert page.locator("del").first.inner_text() == REJECTED
        assert runs(page) == wanted


def test_what_is_wrong_with_the_models_is_on_the_page(visit: Open) -> None:
    runtime = fake("x")
    with served(runtime) as url:
        assert visit(url).locator("#warnings").is_hidden()
    runtime = fake("x")
    runtime.info = replace(runtime.info, notes=("context: 8", "warning: it has no chat template"))
    with served(runtime) as url:
        page = visit(url)
        page.wait_for_selector("#warnings:not([hidden])")
        assert page.locator("#warnings").inner_text() == "it has no chat template"


def test_the_page_knows_the_kind_of_every_origin(visit: Open) -> None:
    with served(fake("x")) as url:
        names = [str(origin) for origin in Origin]
        kinds = visit(url).evaluate(
            "async names => { const m = await import('./page/origins.js'); return names.map(m.kindOf) }", names
        )
    assert kinds == [kind_of(Origin(name)) for name in names]


def test_conversations_stay_in_the_browser_and_may_be_deleted(visit: Open) -> None:
    with served(fake("An answer.")) as url:
        page = visit(url)
        say(page, "first")
        answered(page)
        page.click("#new")
        say(page, "second")
        answered(page)
        before = runs(page)
        page.reload()
        assert page.locator("#chats li").all_inner_texts() == ["second\n×", "first\n×"]
        assert runs(page) == before
        page.get_by_role("button", name="Delete second").click()
        assert page.locator("#chats li").count() == 1
        assert "first" in page.locator(".turn.user").inner_text()


def test_stop_ends_the_answer_on_the_server_and_regenerate_asks_anew(visit: Open) -> None:
    slow = fake("word " * 400, pause=0.02)
    with served(slow) as url:
        page = visit(url)
        say(page)
        until(page, "document.querySelector('.turn.answer > .paper').textContent.length > 20")
        page.keyboard.press("Escape")
        answered(page)
        assert page.locator(".turn .numbers").inner_text() == "stopped"
        assert slow.cancelled
        slow.pause = 0
        page.get_by_role("button", name="Regenerate").click()
        until(page, "document.querySelector('.turn.answer > .paper').textContent.length >= 1990")
        answered(page)
        assert page.locator(".turn.answer").count() == 1
        assert len(slow.chats[-1][0]) == 1  # the old answer was not sent


def test_settings_go_with_the_request(visit: Open) -> None:
    runtime = fake("ok")
    with served(runtime) as url:
        page = visit(url)
        page.click("#show-settings")
        page.fill("[name=system]", "Be brief.")
        page.fill("#settings [name=temperature]", "0.25")
        page.fill("#settings [name=seed]", "7")
        page.select_option("#settings [name=drafting]", "off")
        page.fill("#settings [name=max_tokens]", "50")
        say(page)
        answered(page)
    asked = runtime.requests[-1]
    assert (asked.sampling.temperature, asked.sampling.seed, asked.max_tokens) == (0.25, 7, 50)
    assert not asked.speculative.enabled
    assert runtime.chats[-1][0][0]["content"] == "Be brief."


def test_a_race_says_whether_the_texts_are_the_same(visit: Open) -> None:
    runtime = fake("the same text for both")
    with served(runtime) as url:
        page = visit(url + "#race")
        page.fill("#race-form [name=prompt]", "run")
        page.click("#race-start")
        until(page, "document.querySelector('#verdict').textContent.includes('same text')")
        assert page.locator("#verdict").inner_text().startswith("same text: yes")
        assert page.locator(".lane .paper").all_inner_texts() == ["the same text for both"] * 2
        assert [page.locator(".lane").nth(i).locator("mark").count() > 0 for i in (0, 1)] == [False, True]
        plain, drafted = runtime.requests
        assert (plain.speculative.enabled, drafted.speculative.enabled) == (False, True)
        assert (plain.slot, plain.sampling.seed, plain.cache_prompt) == (drafted.slot, drafted.sampling.seed, False)
        runtime.script = lambda asked: b"drafts differ" if asked.speculative.enabled else b"drafts agree!"
        page.click("#race-start")
        until(page, "document.querySelector('#verdict').textContent.includes('same text: no')")
        assert "character 8" in page.locator("#verdict").inner_text()


def test_hostile_text_is_only_text(visit: Open) -> None:
    with served(fake(HOSTILE, step=400)) as url:
        page = visit(url)
        say(page, HOSTILE[:200])
        answered(page)
        page.wait_for_timeout(50)
        assert page.evaluate("window.bad") is None
        assert page.locator(".turn script, .turn img, .turn b").count() == 0
        hrefs = page.locator(".turn a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
        assert all(href.startswith("https://example.org/") for href in hrefs)
        wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wide
        bare = HOSTILE.replace("*", "").replace("`", "")
        assert page.locator(".turn.answer .paper p").last.inner_text().count("w") > 1_000
        assert len(answered(page).inner_text()) > 0.9 * len(bare)


MARKDOWN = (
    """# A *title*

Some **bold**, `code` and [a link](https://example.org/a). An_underscore_name, 2 * 3 * 4.
A second line.

- one
- two **bold**

- three
  - inner
1. first

> quoted
> text

| a | b |
|---|:-:|
| 1 | **2** |

```python
def f(x):
    return x


```

***
"""
    + "long words " * 700
    + """

```
never closed
``"""
)


def test_markdown_is_drawn_and_how_it_is_cut_changes_nothing(visit: Open) -> None:
    with served(fake("x")) as url:
        page = visit(url)
        whole, *cut = page.evaluate(
            """async text => {
                const { Paper } = await import("./page/paper.js");
                const { Coloured } = await import("./page/origins.js");
                const draw = step => {
                    const root = document.createElement("div");
                    const coloured = new Coloured();
                    const paper = new Paper(root, coloured);
                    for (let i = 0; i < text.length; i += step) {
                        coloured.add(text.slice(i, i + step), "target", 1);
                        paper.draw();
                    }
                    root.normalize();
                    return root.innerHTML;
                };
                return [1 << 20, 1, 2, 7, 100].map(draw);
            }""",
            MARKDOWN,
        )
    assert cut == [whole] * 4
    plain = re.sub(r' (dir|tabindex|type|target|rel|aria-label|class)="[^"]*"', "", whole)
    for part in (
        "<h3>A <em>title</em></h3>",
        '<strong>bold</strong>, <code>code</code> and <a href="https://example.org/a">a link</a>. An_underscore_name',
        "<ul><li>one</li><li>two <strong>bold</strong></li><li>three<ul><li>inner</li></ul></li></ul>",
        "<ol><li>first</li></ol>",
        "<blockquote>quoted\ntext</blockquote>",
        "<th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><strong>2</strong></td>",
        "<code>def f(x):\n    return x\n\n</code>",
        "<hr>",
        "<code>never closed</code>",
    ):
        assert part in plain, part


def test_thoughts_are_folded_and_calls_are_shown(visit: Open) -> None:
    answers = AnswerFormat(thought=ThoughtFormat("<think>", "</think>"))
    with served(fake("<think>so and so</think>It is *so*.", answers=answers)) as url:
        page = visit(url)
        say(page)
        assert answered(page).locator("em").count() in (0, 1)
        details = page.locator("details.thought")
        assert details.evaluate("one => one.open") is False
        details.locator("summary").click()
        assert details.locator(".paper").inner_text() == "so and so"
        assert page.locator(".turn.answer > .paper").inner_text() == "It is so."


def test_everything_can_be_done_with_the_keyboard(visit: Open) -> None:
    with served(fake("Hello.\n\n```\ncode\n```\n\nend")) as url:
        page = visit(url)
        assert page.evaluate("document.activeElement.id") == "say"
        page.keyboard.type("one")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("two")
        page.keyboard.press("Enter")
        answered(page)
        assert page.locator(".turn.user .paper").inner_text() == "one\ntwo"
        assert page.locator("#said").inner_text() == "The answer is complete."
        page.keyboard.press("Shift+Tab")  # from the message into the log and its buttons
        assert page.evaluate("document.activeElement.textContent") == "Regenerate"
        page.keyboard.press("Escape")
        page.focus("#show-settings")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.name") == "system"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.id") == "show-settings"
        assert not page.locator("#settings").is_visible()
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, input, select, textarea, a")]
                .filter(one => !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length))
                .map(one => one.outerHTML)"""
        )
        assert nameless == []
        assert page.locator("[role=log]").get_attribute("aria-live") == "polite"
        assert page.locator("main, header, nav").count() == 3


def test_a_phone_shows_all_of_it(visit: Open) -> None:
    with served(fake("An answer that is long enough to be broken into several lines of a phone.")) as url:
        page = visit(url)
        page.set_viewport_size(PHONE)
        say(page)
        answered(page)
        page.click("#show-side")
        assert page.locator("#new").is_visible()
        fits_phone(page)
        page.click("#hide-side")
        for view in ("race", "live"):
            page.click(f"nav a[href='#{view}']")
            page.wait_for_selector(f"#{view}:not([hidden])")
            fits_phone(page)


def fits_phone(page: Any) -> None:
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_dark_mode_and_reduced_motion_are_followed_and_text_can_be_read(visit: Open) -> None:
    with served(fake("An answer.")) as url:
        page = visit(url, reduced_motion="reduce")
        say(page)
        answered(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            ink, paper = page.evaluate(
                "() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor] }"
            )
            assert (brightness(ink) > brightness(paper)) == (scheme == "dark")
            for name in ("--ink", "--soft", "--model", "--text", "--grammar", "--rejected", "--bad"):
                value = page.evaluate("name => getComputedStyle(document.body).getPropertyValue(name)", name)
                assert contrast(value.strip(), page) >= 4.5, (scheme, name)
            lines = page.locator(".legend mark").evaluate_all(
                "all => all.map(one => getComputedStyle(one).textDecorationStyle)"
            )
            assert lines == ["solid", "double", "dashed", "dotted"]  # colour is not the only sign


def numbers(colour: str) -> list[float]:
    if colour.startswith("#"):
        return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]


def brightness(colour: str) -> float:
    """WCAG's relative luminance."""
    parts = [value / 255 for value in numbers(colour)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in parts]
    return sum(share * value for share, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(colour: str, page: Any) -> float:
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    low, high = sorted((brightness(colour), brightness(paper)))
    return (high + 0.05) / (low + 0.05)


def test_a_key_is_asked_for_and_stays_in_the_tab(visit: Open) -> None:
    config = ServerConfig(port=0, alias="toy", api_keys=("secret",), api_prefix="/llm")
    with served(fake("Behind a key."), config) as url:
        page = visit(url)
        page.fill("#key-text", "wrong")
        page.press("#key-text", "Enter")
        page.wait_for_selector("#key-problem:not([hidden])")
        page.fill("#key-text", "secret")
        page.press("#key-text", "Enter")
        until(page, "document.querySelector('#model').textContent === 'toy'")
        say(page)
        assert answered(page).inner_text() == "Behind a key."
        assert page.evaluate("[sessionStorage.length, JSON.stringify(localStorage).includes('secret')]") == [1, False]
        page.goto(url.rstrip("/"))  # without its slash the prefix leads to the page
        assert page.url == url


def test_an_error_of_the_server_is_told(visit: Open) -> None:
    with served(fake("x" * 50, fail=UadError("the model is on fire"), fail_after=10)) as url:
        page = visit(url)
        say(page)
        page.wait_for_selector(".turn .problem:not([hidden])")
        assert "on fire" in page.locator(".turn .problem").inner_text()
        assert page.locator("#send").is_visible()


def test_two_thousand_tokens_a_second_do_not_freeze_it(visit: Open) -> None:
    text = "Many **words** of `text` and more, \n" * 110  # 3,900 tokens of one byte
    with served(fake(text, step=10, pause=0.0045)) as url:

        def longest_frame() -> float:
            page = visit(url)
            page.evaluate(
                """() => { window.longest = 0; let last = performance.now();
                    const tick = () => {
                        const now = performance.now();
                        window.longest = Math.max(window.longest, now - last);
                        last = now;
                        requestAnimationFrame(tick);
                    };
                    requestAnimationFrame(tick) }"""
            )
            say(page)
            answered(page)
            assert "".join(text for _, text in runs(page)).count("words") == 110
            return float(page.evaluate("window.longest"))

        assert best_of(3, longest_frame, lambda ms: ms < 500) < 500  # ms between two frames


def test_the_page_is_small_and_little_of_it_delays_the_first_paint(visit: Open) -> None:
    with served(fake("x")) as url:
        page = visit(url)
        until(page, "performance.getEntriesByName('first-contentful-paint').length > 0")
        parts = page.evaluate(
            """performance.getEntriesByType("resource").map(part =>
                [new URL(part.name).pathname, part.renderBlockingStatus, part.decodedBodySize])"""
        )
        assert sum(size for *_, size in parts) < 300_000
        assert [name for name, status, _ in parts if status == "blocking"] == ["/page/answer.css", "/page/style.css"]


def test_the_live_view_shows_what_the_server_tells(visit: Open) -> None:
    with served(fake("An answer.")) as url:
        page = visit(url + "#live")
        page.wait_for_selector("#live-drafters tbody tr")
        rows = page.locator("#live-drafters tbody tr").all_inner_texts()
        assert [row.split()[0] for row in rows] == ["draft-simple", "suffix"]
        assert page.locator("#live-slots li").count() == 2
        assert page.locator("#live-lengths svg").get_attribute("aria-label")
        assert "auto" in page.locator("#live-state").inner_text()


def test_the_live_view_says_that_the_models_are_unloaded(visit: Open) -> None:
    runtime = fake("An answer.")
    runtime.fall_asleep()
    with served(runtime) as url:
        page = visit(url + "#live")
        page.wait_for_selector("#live-drafters tbody tr")
        assert page.locator("#live-state").inner_text().startswith("Asleep")


def test_a_tool_is_called_and_its_result_is_asked_for(visit: Open) -> None:
    from kit.calls_kit import FORMATS

    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    runtime = fake(call, answers=AnswerFormat(calls=(FORMATS["hermes"],)))
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    with served(runtime) as url:
        page = visit(url)
        page.click("#show-settings")
        page.fill("[name=tools]", "nothing")
        assert page.locator("#settings-problem").is_visible()
        page.fill("[name=tools]", json.dumps([tool]))
        say(page)
        answered(page)
        assert page.locator(".call summary").inner_text() == "Calls add"
        assert json.loads(page.locator(".call pre").inner_text()) == {"a": 1}
        assert page.locator("#say").get_attribute("placeholder") == "Result of add"
        runtime.script = lambda _: b"The sum is 1."
        say(page, "1")
        until(page, "document.querySelectorAll('.turn.answer').length === 2")
        assert answered(page).inner_text() == "The sum is 1."
        assert [message["role"] for message in runtime.chats[-1][0]] == ["user", "assistant", "tool"]


def test_a_whole_answer_is_copied_as_it_was_written(visit: Open) -> None:
    text = "**Bold** and `code`.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    with served(fake(text)) as url:
        page = visit(url, permissions=["clipboard-read", "clipboard-write"])
        say(page)
        answered(page)
        page.locator(".turn.answer footer button", has_text="Copy").click()
        until(page, "document.querySelector('.turn.answer footer').textContent.includes('Copied')")
        assert page.evaluate("navigator.clipboard.readText()") == text


def test_nothing_is_said_of_time_that_nobody_would_notice(visit: Open) -> None:
    with served(fake("x")) as url:
        lines = visit(url).evaluate(
            """async () => {
                const { numbersOf } = await import("./page/answer.js");
                const timings = { predicted_n: 9, predicted_per_second: 9, draft_n: 8, draft_n_accepted: 4 };
                return [null, 0, 49, -49, 1400, -1400].map((saved) => numbersOf({ timings }, saved));
            }"""
        )
    assert ["saved" in line or "lost" in line for line in lines] == [False] * 4 + [True] * 2
