"""Texts that would end a tab, in a real Chromium: too deep ones stay as written, a page that failed starts safely."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from kit.browser import Open, answered, fake, say, served, until

DRAW = """async text => {
    const { Paper } = await import("./page/paper.js");
    const { Coloured } = await import("./page/origins.js");
    await import("./page/vendor/katex-0.19.1/katex.min.js");
    const root = document.createElement("div");
    const paper = new Paper(root, new Coloured({ text }));
    document.getElementById("log").replaceChildren(root);
    paper.draw();
    root.scrollHeight; // laid out now
    return root.innerText;
}"""
MARKED = "Object.keys(localStorage).filter(key => key.startsWith('uad.drawing.'))"
UNSAFE = "document.querySelector('#unsafe')"


def nested(before: str, after: str, n: int, inner: str = "x") -> str:
    return before * n + inner + after * n


FORMULAS = {
    "frac": (r"\frac{1}{", "}"),
    "sqrt": (r"\sqrt{", "}"),
    "power": ("x^{", "}"),
    "index": ("x_{", "}"),
    "left": (r"\left(", r"\right)"),
    "matrix": (r"\begin{matrix}", r"\end{matrix}"),
    "overline": (r"\overline{", "}"),
    "overbrace": (r"\overbrace{", "}^1"),
    "boxed": (r"\boxed{", "}"),
    "color": (r"\textcolor{red}{", "}"),
    "text": (r"\text{", "}"),
    "size": (r"{\large ", "}"),
    "braces": ("{", "}"),
}


def test_formulas_that_are_too_deep_stay_as_written_and_others_are_drawn(visit: Open) -> None:
    deep = ["$$" + nested(*pair, min(147, 2900 // len("".join(pair)))) + "$$" for pair in FORMULAS.values()]
    parts = [f"{text}\n\n$${nested(*pair, 6)}$$" for text, pair in zip(deep, FORMULAS.values(), strict=True)]
    drawn = f"document.querySelectorAll('.turn.answer .katex').length === {len(FORMULAS)}"
    with served(fake("\n\n".join([*parts, "end"]), step=500)) as url:
        page = visit(url)
        say(page)
        answered(page)
        formulas = page.locator(".turn.answer .formula")
        for is_kept in (False, True):
            if is_kept:
                page.reload()
            until(page, drawn)
            assert formulas.all_text_contents()[::2] == deep
            titles = formulas.evaluate_all("all => all.map(one => one.title)")
            assert all("too deep" in title for title in titles[::2])
            assert not any("too deep" in title for title in titles[1::2])


COMMANDS = (
    r"\def\a{" + "x" * 2000 + "}" + r"\a" * 300,
    r"\newcommand{\a}[1]{#1#1#1#1}\a{\a{\a{x}}}",
    r"\gdef\b{\frac{1}{\c}}\b",
    r"\let\d=\sqrt \d{2}",
)


def test_formulas_with_commands_of_their_own_stay_as_written(visit: Open) -> None:
    own = "\n\n".join(f"$${tex}$$" for tex in COMMANDS)
    with served(fake(f"{own} and $\\\\def \\tag{{1}}$ and $$x \\tag{{2}}$$", step=500)) as url:
        page = visit(url)
        say(page)
        answered(page)
        until(page, "document.querySelectorAll('.turn.answer .katex').length >= 1")
        formulas = page.locator(".turn.answer .formula")
        for i, tex in enumerate(COMMANDS):
            assert formulas.nth(i).text_content() == f"$${tex}$$"
            assert "defines commands" in formulas.nth(i).get_attribute("title")
        assert "(2)" in formulas.last.inner_text()  # KaTeX's own tags define a command, too


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (nested("> ", "", 150, "deep"), "> > deep"),
        (nested("- ", "", 60, "deep"), "- - deep"),
        (nested("1. ", "", 60, "deep"), "1. 1. deep"),
        (nested("> - ", "", 150, "deep"), "> - > - deep"),
        ("\n".join("  " * i + f"- item {i}" for i in range(70)), "- item 69"),
        (nested("*a ", "a*", 300), "*a x"),
        (nested("**a ", "a**", 300), "**a x"),
        (nested("~~a ", "a~~", 300), "~~a x"),
        (nested("*", "*", 900), "**x**"),
        ("# " + nested("*a ", "a*", 100), "*a x"),
        ("| h |\n|---|\n| b\\|" + nested("*a ", "a*", 100) + " |", "*a x"),
        ("- " + nested("*a ", "a*", 100) + "\n  second line", "second line"),
    ],
)
def test_markdown_that_is_too_deep_stays_as_written(blank: Any, text: str, shown: str) -> None:
    assert shown in blank.evaluate(DRAW, text)


@pytest.mark.parametrize(("before", "after"), [("> ", ""), ("- ", ""), ("*a ", " a*"), ("**a ", " a**")])
def test_markdown_of_ten_levels_is_drawn(blank: Any, before: str, after: str) -> None:
    assert before not in blank.evaluate(DRAW, nested(before, after, 10, "deep"))


def test_the_deepest_of_everything_is_drawn_together(blank: Any) -> None:
    formula = "$" + nested("x^{", "}", 15) + "$"
    assert "> - " not in blank.evaluate(DRAW, nested("> - ", "", 10) + nested("*a ", " a*", 30, f" {formula} "))
    assert blank.locator(".katex").count() == 1


def test_what_cannot_be_drawn_is_shown_as_it_was_written(visit: Open) -> None:
    broken = "export const LONG = 4000, definitions = () => ({}), blocks = () => { throw new Error('no') };"
    with served(fake("An *answer*.")) as url:
        page = visit(url)
        page.route("**/page/markdown.js", lambda one: one.fulfill(content_type="text/javascript", body=broken))
        page.reload()
        say(page)
        assert answered(page).inner_text() == "An *answer*."
        assert "no" in page.locator(".turn.answer > .paper").get_attribute("title")


def test_arguments_of_a_call_that_are_deep_are_not_broken_into_lines(blank: Any) -> None:
    draw = """async text => {
        const { drawTurn } = await import("./page/turn.js");
        const { emptyAnswer } = await import("./page/answer.js");
        const message = { ...emptyAnswer(), calls: [{ id: "1", name: "f", arguments: text }] };
        const hooks = { rejected: () => false, plain: () => false, drawn: () => {} };
        return drawTurn(message, hooks).element.querySelector(".call pre").textContent;
    }"""
    deep = '{"a":' + nested("[", "]", 5000, "") + "}"
    assert blank.evaluate(draw, deep) == deep
    assert blank.evaluate(draw, '{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'


def test_a_race_shows_hostile_text_as_it_was_written(visit: Open) -> None:
    text = f"$${nested(*FORMULAS['frac'], 147)}$$\n\n{nested('> ', '', 150)} {nested('*a ', 'a*', 300)}"
    with served(fake(text, step=500)) as url:
        page = visit(url + "#race")
        page.fill("#race-form [name=max_tokens]", "4096")
        page.click("#race-start")
        until(page, "document.querySelector('#verdict').textContent.includes('same text: yes')")
        assert page.locator(".lane .paper").all_text_contents() == [text] * 2
        assert page.locator(".katex, .lane em, .lane blockquote").count() == 0


# --- a page that failed


def crash(page: Any) -> None:
    """Ends the process of a tab, as an overflow of its stack does: the page hears nothing of it."""
    with contextlib.suppress(Exception):
        page.goto("chrome://crash")


def failed(page: Any) -> Any:
    """Another tab, after this one crashed while an answer grew in it."""
    until(page, "document.querySelector('.turn.answer > .paper').textContent.length > 20")
    until(page, "Object.values(localStorage).some(one => one.includes('word'))")
    crash(page)


def test_a_page_that_crashed_starts_without_the_conversation(visit: Open) -> None:
    with served(fake("*word* " * 400, pause=0.02)) as url:
        page = visit(url)
        say(page, "first")
        failed(page)
        other = visit(f"{url}#race", beside=page)
        other.click("nav a[href='#chat']")
        until(other, f"!{UNSAFE}.hidden && {UNSAFE}.textContent.includes('first')")
        assert other.locator(".turn").count() == 0
        assert other.locator("#chats li").count() == 1  # nothing is deleted
        other.reload()  # again, until its user says otherwise
        until(other, f"!{UNSAFE}.hidden")
        assert other.locator(".turn").count() == 0
        other.click("#unsafe-open")
        assert other.locator(".turn.answer .paper.plain").last.inner_text().startswith("*word* *word*")
        assert "plain text" in other.locator("#unsafe-text").inner_text()
        other.click("#unsafe-draw")
        assert other.locator(".turn.answer em").first.inner_text() == "word"
        assert not other.locator("#unsafe").is_visible()
        until(other, f"{MARKED}.length === 0")
        other.reload()
        assert other.locator(".turn.answer em").first.inner_text() == "word"


def test_a_conversation_that_failed_is_plain_where_it_is_opened_and_forgotten_when_deleted(visit: Open) -> None:
    with served(fake("*word* " * 400, pause=0.02)) as url:
        page = visit(url)
        say(page, "first")
        failed(page)
        other = visit(url, beside=page)
        until(other, f"!{UNSAFE}.hidden")
        say(other, "second")
        assert not other.locator("#unsafe").is_visible()
        other.locator("#chats").get_by_text("first", exact=True).click()
        assert other.locator(".turn.answer em").count() == 0
        other.get_by_role("button", name="Delete first").click()
        assert other.evaluate("localStorage.getItem('uad.failed')") is None


def test_another_tab_that_is_well_is_no_failure(visit: Open) -> None:
    slow = fake("*word* " * 400, pause=0.02)
    with served(slow) as url:
        page = visit(url)
        say(page, "first")
        until(page, f"{MARKED}.length === 1")
        other = visit(url, beside=page)
        until(other, "document.querySelector('.turn.answer em') !== null")
        assert not other.locator("#unsafe").is_visible()
        slow.pause = 0
        answered(page)
        answered(other)
        for one in (page, other):
            until(one, f"{MARKED}.length === 0")


@pytest.mark.parametrize("leave", ["reload", "close"])
def test_a_tab_that_is_left_is_no_failure(visit: Open, leave: str) -> None:
    with served(fake("*word* " * 400, pause=0.02)) as url:
        page = visit(url)
        say(page, "first")
        until(page, f"{MARKED}.length === 1")
        until(page, "Object.values(localStorage).some(one => one.includes('word'))")
        other = page if leave == "reload" else visit(url + "#live", beside=page)
        page.reload() if leave == "reload" else page.close(run_before_unload=False)
        if leave == "close":
            other.click("nav a[href='#chat']")
        answered(other)
        assert not other.locator("#unsafe").is_visible()
        assert other.evaluate("localStorage.getItem('uad.failed')") is None


def test_what_the_guard_keeps_may_be_broken(visit: Open) -> None:
    with served(fake("An answer.")) as url:
        page = visit(url)
        say(page, "first")
        answered(page)
        for kept in ("{", "7", json.dumps(["gone"])):
            page.evaluate("kept => localStorage.setItem('uad.failed', kept)", kept)
            page.reload()
            assert answered(page).inner_text() == "An answer."
            assert not page.locator("#unsafe").is_visible()
