"""What a model writes as the page shows it, in a real Chromium: Markdown, formulas, and nothing that runs."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.browser import Open, answered, fake, say, served, until, visits

EXAMPLES = int(os.environ.get("UAD_EXAMPLES", "30"))
PIECES = (
    *("word ", " two", "\n", "\n\n", "  \n", "\r\n", "\t", "    ", "é", "😀", "\u200b", "5"),
    *("*", "**", "_", "~~", "`", "``", "```\n", "~~~", "```py\n", "# ", "> ", "- ", "  - ", "1. ", "10) ", "---"),
    *(
        "===\n",
        "| a | b |\n",
        "|---|:-:|\n",
        "|",
        "[l](http://x.y/z)",
        "[r]",
        "![i](http://i.j/k.png)",
        "http://a.b/c_d",
    ),
    *("\\", "\\(", "\\)", "\\[", "\\]", "$", "$$", "x^2", "$5 and $10 ", "&amp;", "&", "<b>", "</b>", "<http://a.b>"),
)
DRAW = """async text => {
    const { Paper } = await import("./page/paper.js");
    const { Coloured } = await import("./page/origins.js");
    const draw = step => {
        const coloured = new Coloured();
        const paper = new Paper(document.createElement("div"), coloured);
        for (let i = 0; i < text.length; i += step) {
            for (let k = i; k < Math.min(i + step, text.length); k += 1)
                coloured.add(text[k], ["target", "suffix", "grammar"][k % 3], 1);
            paper.draw();
        }
        const kinds = [...paper.root.querySelectorAll("mark")].map(mark => mark.className + mark.textContent);
        paper.root.querySelectorAll("mark").forEach(mark => mark.replaceWith(...mark.childNodes));
        paper.root.normalize();
        return paper.root.innerHTML + kinds.join();
    };
    return [1 << 20, 1, 3, 10].map(draw);
}"""
PLACES = """async text => {
    const { blocks } = await import("./page/markdown.js");
    const same = (a, b) => a.replace(/\\s/g, " ") === b.replace(/\\s/g, " ");
    const wrong = [];
    let at = 0;
    const walk = ({ children, code, tex, text: shown, start, end }) => {
        if (children ?? code) return (children ?? code).forEach(walk);
        const typed = text.slice(start, end);
        if (shown && start < at) wrong.push(["not in order", shown]);
        if (shown.length === end - start && !same(shown, typed) && !text.includes("\\t")) wrong.push([shown, typed]);
        at = end;
    };
    blocks(text).forEach(walk);
    return wrong;
}"""


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_how_a_text_is_cut_changes_nothing_that_is_shown(blank: Any, text: str) -> None:
    whole, *cut = blank.evaluate(DRAW, text)
    assert cut == [whole] * 3


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_shown_knows_its_place_in_the_text(blank: Any, text: str) -> None:
    assert blank.evaluate(PLACES, text) == []


@pytest.mark.parametrize("first", ["[r]", "[r]: http://q.w/e"])
def test_links_find_their_definitions_wherever_they_stand(blank: Any, first: str) -> None:
    last = {"[r]": "[r]: http://q.w/e", "[r]: http://q.w/e": "[r]"}[first]
    whole, *cut = blank.evaluate(DRAW, f"{first}\n\n" + "A paragraph between them.\n\n" * 5 + last)
    assert 'href="http://q.w/e"' in whole
    assert cut == [whole] * 3


def shown(blank: Any, text: str) -> str:
    """The HTML of a text, without attributes."""
    return str(
        blank.evaluate(
            """async text => {
                const { Paper } = await import("./page/paper.js");
                const { Coloured } = await import("./page/origins.js");
                const paper = new Paper(document.createElement("div"), new Coloured({ text }));
                paper.draw();
                for (const one of paper.root.querySelectorAll(".formula")) {
                    const tex = one.querySelector("annotation") ?? one; // KaTeX may be there from another text
                    one.replaceWith(`{${tex.textContent.replace(/^[$\\\\([]+|[$\\\\)\\]]+$/g, "").trim()}}`);
                }
                for (const one of paper.root.querySelectorAll("*"))
                    for (const name of one.getAttributeNames()) if (name !== "href") one.removeAttribute(name);
                return paper.root.innerHTML;
            }""",
            text,
        )
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Prices:\n| a | b\\|c |\n|---|---|\n| 1 | `x` |", "<p>Prices:</p><div><table>"),
        ("| a |\n|---|\n| b\\|c |", "<td>b|c</td>"),
        ("- a\n  1. b\n     - c\n- d", "<ul><li>a<ol><li>b<ul><li>c</li></ul></li></ol></li><li>d</li></ul>"),
        ("1. a\n\n   b", "<ol><li><p>a</p><p>b</p></li></ol>"),
        ("````\n```\nx\n```\n````", "<code>```\nx\n```</code>"),
        ("[r]\n\n[r]: https://e.org/", '<a href="https://e.org/">r</a>'),
        ("see https://e.org/a_b_c.", '<a href="https://e.org/a_b_c">https://e.org/a_b_c</a>.'),
        ("[m](mailto:a@b.org)", '<a href="mailto:a@b.org">m</a>'),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("[x](file:///etc/passwd) [y](/v1/models) [z](data:text/html,x)", "[x](file:///etc/passwd) [y](/v1/models)"),
        ("![a cat](https://e.org/c.png)", '<a href="https://e.org/c.png">a cat</a>'),
        ("<b onclick=x>hi</b><!-- c -->", "<p>&lt;b onclick=x&gt;hi&lt;/b&gt;&lt;!-- c --&gt;</p>"),
        ("one\ntwo", "<p>one\ntwo</p>"),
        ("&amp; &lt;b&gt; \\* \\$", "<p>&amp; &lt;b&gt; * $</p>"),
    ],
)
def test_markdown_is_what_commonmark_and_github_say(blank: Any, text: str, wanted: str) -> None:
    assert wanted in shown(blank, text)


@pytest.mark.parametrize(
    "typed",
    [
        "\\(E=mc^2\\)",
        "$x_1$",
        "$\\alpha + 1$",
        "$$\\frac12$$",
        "\\[x\\]",
        "$$\na\n+ b\n$$",
        "\\[\na\n= b\n\\]",
        "$2 \\text{ is}$",
    ],
)
def test_formulas_are_found(blank: Any, typed: str) -> None:
    tex = typed.strip("$\\()[]").strip()
    assert f"{{{tex}}}" in shown(blank, f"so\n{typed}\nit")
    assert f"{{{tex}}}" in shown(blank, f"- so\n\n{typed}".replace("\n", "\n  "))


@pytest.mark.parametrize(
    "text",
    [
        *("$5 and $10", "US$5 to US$10", "$1,000-$2,000", "$5 a day, or 9$", "**$5** and **$10**", "100$ or 200$"),
        *("$HOME/bin:$PATH", "$ x $", "`$x$`", "    $x$", "\\$x\\$", "$5.00 ($6.00 with tax)", "$$", "\\(", "a $ b"),
    ],
)
def test_money_and_variables_are_no_formulas(blank: Any, text: str) -> None:
    assert "{" not in shown(blank, text)


def test_formulas_are_drawn_and_what_draws_them_is_fetched_only_for_them(visit: Open) -> None:
    runtime = fake("Price: $5 and $10.")
    with served(runtime) as url:
        page = visit(url)
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url))
        say(page)
        answered(page)
        assert not [one for one in asked if "katex" in one]
        text = r"\(\vec{v} \in \mathbb{R}\), $\frac{1}{$ and $$\xrightarrow{f} \color{red}{x} \href{https://e.org}{y}$$"
        runtime.script = lambda _: text.encode()
        say(page)
        answered(page)
        until(page, "document.querySelectorAll('.turn:last-child .katex').length === 2")
        until(page, "document.fonts.check('16px KaTeX_Math')")
        formulas = page.locator(".turn:last-child .paper .formula")
        assert formulas.nth(1).inner_text() == r"$\frac{1}{$"  # as it was typed
        assert "Not drawn" in formulas.nth(1).get_attribute("title")
        assert page.locator(".turn:last-child .paper a").count() == 0
        assert all(one.endswith(".woff2") for one in asked if "fonts/" in one)
        assert formulas.first.evaluate("one => one.getBoundingClientRect().height") < 40


def test_what_was_typed_is_shown_as_it_was_typed(visit: Open) -> None:
    text = "**not bold** $x$\n  - no list\n\n| a |\n|---|\n`code` <b>"
    with served(fake("ok")) as url:
        page = visit(url)
        say(page, text)
        answered(page)
        assert page.locator(".turn.user .paper").inner_text() == text
        assert page.locator(".turn.user .paper > *").evaluate_all("all => all.map(one => one.tagName)") == ["SPAN"]


PAYLOADS = r'''
<script>bad()</script>
<script src=//evil.example/x.js></script>
<SCRIPT>bad()</SCRIPT >
<img src=x onerror=bad()>
<img src="x" onerror="bad()">
<IMG """"""><SCRIPT>bad()</SCRIPT>">
<svg onload=bad()>
<svg><script>bad()</script></svg>
<svg><animate onbegin=bad() attributeName=x dur=1s>
<svg><a xlink:href="javascript:bad()"><text x=20 y=20>x</text></a></svg>
<body onload=bad()>
<iframe src="javascript:bad()"></iframe>
<iframe srcdoc="<script>parent.bad()</script>"></iframe>
<object data="javascript:bad()"></object>
<embed src="javascript:bad()">
<details open ontoggle=bad()>
<input autofocus onfocus=bad()>
<select autofocus onfocus=bad()>
<video><source onerror=bad()></video>
<audio src=x onerror=bad()>
<marquee onstart=bad()>
<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=bad()&gt;">
<form><math><mtext></form><form><mglyph><style></math><img src onerror=bad()>
<noscript><p title="</noscript><img src=x onerror=bad()>">
<template><script>bad()</script></template>
<style>@import'javascript:bad()';</style>
<link rel=stylesheet href=//evil.example/x.css>
<meta http-equiv=refresh content="0;url=javascript:bad()">
<base href="javascript:bad()//">
<a href="javascript:bad()">x</a>
<a href="data:text/html,<script>bad()</script>">x</a>
<div style="background:url(javascript:bad())">
<x onclick=bad()>x</x>
<xss style=animation-name:x onanimationstart=bad()></xss>
[x](javascript:bad())
[x](JaVaScRiPt:bad())
[x](java&#115;cript:bad())
[x](java&Tab;script:bad())
[x](&#x6a;avascript:bad())
[x](javascript&colon;bad())
[x](vbscript:bad())
[x](data:text/html;base64,PHNjcmlwdD5iYWQoKTwvc2NyaXB0Pg==)
[x](file:///etc/passwd)
[x](https://e.org/"onmouseover="bad())
[x](<javascript:bad()>)
![x](javascript:bad())
![x](https://evil.example/track.png)
![x"onerror="bad()](x)
<javascript:bad()>
<https://e.org/onclick=bad()>
[x]: javascript:bad()
`<img src=x onerror=bad()>`
\(\href{javascript:bad()}{x}\)
\(\url{javascript:bad()}\)
\(\includegraphics{https://evil.example/x.png}\)
\(\htmlData{x="onclick=bad()}{x}\)
\(\htmlStyle{background:url(https://evil.example)}{x}\)
$\text{<img src=x onerror=bad()>}$
$$\def\x{\x\x}\x$$
$\rule{1000em}{1000em}$
'''
HARMLESS = {
    *("P", "PRE", "CODE", "A", "MARK", "BUTTON", "DIV", "SPAN", "EM", "STRONG", "H3"),
    *("MATH", "SEMANTICS", "MROW", "MI", "MO", "MN", "MTEXT", "MSTYLE", "MSPACE", "ANNOTATION", "MSUP", "MPADDED"),
}


def test_no_known_attack_runs_anything(visit: Open) -> None:
    payloads = [one for one in PAYLOADS.strip().split("\n") if one]
    assert len(payloads) > 50
    text = "\n\n".join([*payloads, "# " + payloads[0], "```" + payloads[3] + "\n" + payloads[3] + "\n```", "end"])
    with served(fake(text, step=200)) as url:
        page = visit(url)
        page.evaluate("() => { window.bad = () => { window.isBad = true } }")
        page.on("dialog", lambda one: one.dismiss())
        say(page, text)
        answered(page)
        until(page, "document.querySelector('.turn.answer .katex') !== null")
        page.reload()  # as it was kept
        page.evaluate("() => { window.bad = () => { window.isBad = true } }")
        page.wait_for_selector(".turn.answer .katex")
        found = page.locator(".turn *").evaluate_all(
            """all => all.filter(one => one.closest(".paper")).map(one => [
                one.tagName.toUpperCase(),
                one.getAttributeNames().filter(name => name.startsWith("on") || name === "src" || name === "srcdoc"),
                one.getAttribute("href") ?? one.getAttribute("xlink:href"),
            ])"""
        )
        assert {tag for tag, _, _ in found} <= HARMLESS
        assert [names for _, names, _ in found if names] == []
        links = {href for _, _, href in found if href}
        assert all(link.startswith(("https://e.org/", "https://evil.example/track.png")) for link in links), links
        for link in page.locator(".turn .paper a").all():
            assert "noopener" in link.get_attribute("rel")
        for one in page.locator(".turn .paper :is(a, p, mark)").all()[:20]:
            one.dispatch_event("mouseover")
        assert page.evaluate("window.isBad") is None
        assert page.locator(".turn.answer .paper").last.inner_text().count("bad()") > 40  # it is shown
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_not_even_the_page_itself_can_make_html_of_a_text(browser: Any) -> None:
    with served(fake("x")) as url, visits(browser, expected=("TrustedHTML",)) as opened:
        tries = opened(url).evaluate(
            """() => ["innerHTML", "outerHTML"].map(name => {
                const one = document.createElement("div");
                document.body.append(one);
                try { one[name] = "<b>x</b>"; return "made" } catch (error) { return error.name }
            })"""
        )
        assert tries == ["TypeError"] * 2
