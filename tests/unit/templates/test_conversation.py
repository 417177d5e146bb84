"""What went in comes out: every message's text is in the prompt, in some way that the template has, or the request is
refused by name.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.templates_real import folder

from uad.base.errors import InvalidRequestError
from uad.text.mapping.families import bundled_mappings, load_families
from uad.text.templates.conversation import Talk, converse

TURNS = (
    "{% for m in messages %}<{{ m.role }}>CONTENT</{{ m.role }}>{% endfor %}{% if add_generation_prompt "
    "%}<assistant>{% endif %}"
)
PLAIN = TURNS.replace("CONTENT", "{{ m.content }}")
PARTS = TURNS.replace(
    "CONTENT", "{% for p in m.content %}{% if p.type == 'text' %}[{{ p.text }}]{% endif %}{% endfor %}"
)
BOTH = PARTS.replace("{% for p in m", "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m").replace(
    "{% endif %}{% endfor %}</", "{% endif %}{% endfor %}{% endif %}</"
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + PLAIN.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}",
    )
)
DEAF = PLAIN.replace("{% for m in messages %}", "{% for m in messages if m.role in ('user', 'assistant') %}")
FRONT = PLAIN.replace("{% for m in messages %}", "{% for m in messages if m == messages[0] or m.role != 'system' %}")
STRICT = (
    "{% for m in messages %}{% if m.role != ('assistant' if loop.index0 % 2 else 'user') %}{{ raise_exception('roles "
    "must alternate') }}"
    "{% endif %}"
    "<{{ 'model' if m.role == 'assistant' else m.role }}>{{ m.content | trim }}{% endfor %}<model>"
)


def said(*turns: tuple[str, object]) -> list[dict[str, object]]:
    return [{"role": role, "content": content} for role, content in turns]


def text_of(template: str, *turns: tuple[str, object]) -> str:
    return converse(said(*turns), Talk(template, add_generation_prompt=False)).text


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    ("template", "content", "shown"),
    [
        (PLAIN, "one", "one"),
        (PLAIN, parts("one", "two"), "one\ntwo"),
        (PARTS, "one", "[one]"),
        (PARTS, parts("one", "two"), "[one][two]"),
        (BOTH, "one", "one"),
        (BOTH, parts("one"), "one"),
        (BOTH, parts("one", "two"), "[one][two]"),
        (PLAIN.replace("m.content", "m.content | tojson"), parts('"o\n"', "two"), r'"\"o\n\"\ntwo"'),
    ],
)
@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool"])
def test_contents_are_given_as_the_template_takes_them(template: str, content: object, shown: str, role: str):
    assert (
        text_of(template, ("user", "q"), (role, content), ("user", "z"))
        .split(f"<{role}>")[-2 if role == "user" else -1]
        .startswith(shown)
    )


@pytest.mark.parametrize(
    ("template", "turns", "wanted"),
    [
        (NO_SYSTEM, [("system", "S"), ("user", "U")], "<user>S\n\nU</user>"),
        (NO_SYSTEM, [("system", "S"), ("system", "T"), ("user", "U")], "<user>S\n\nT\n\nU</user>"),
        (
            NO_SYSTEM,
            [("user", "U"), ("assistant", "A"), ("system", "S"), ("user", "V")],
            "<user>U</user><assistant>A</assistant><user>S\n\nV</user>",
        ),
        (NO_SYSTEM, [("user", "U"), ("system", "S")], "<user>U\n\nS</user>"),
        (NO_SYSTEM, [("system", "S")], "<user>S</user>"),
        (
            NO_SYSTEM,
            [("system", "S"), ("assistant", "A"), ("user", "U")],
            "<user>S</user><assistant>A</assistant><user>U</user>",
        ),
        (NO_SYSTEM, [("developer", "S"), ("user", "U")], "<user>S\n\nU</user>"),
        (NO_SYSTEM, [("system", parts("S", "T")), ("user", parts("U", "V"))], "<user>S\nT\n\nU\nV</user>"),
        (DEAF, [("system", "S"), ("user", "U")], "<user>S\n\nU</user>"),
        (FRONT, [("system", "S"), ("user", "U")], "<system>S</system><user>U</user>"),
        (FRONT, [("system", "S"), ("system", "T"), ("user", "U")], "<system>S\n\nT</system><user>U</user>"),
        (FRONT, [("system", "S"), ("user", "U"), ("system", "T")], "<system>S</system><user>U\n\nT</user>"),
        (STRICT, [("system", "S"), ("user", "U")], "<user>S\n\nU<model>"),
        (STRICT, [("user", "U"), ("system", "S"), ("user", "V")], "<user>U\n\nS\n\nV<model>"),
        (PLAIN, [("developer", "S"), ("user", "U")], "<system>S</system><user>U</user>"),
        (PLAIN + "{# developer #}", [("developer", "S"), ("user", "U")], "<developer>S</developer><user>U</user>"),
        (DEAF + "{# developer #}", [("developer", "S"), ("user", "U")], "<user>S\n\nU</user>"),
        (PLAIN, [("user", "U"), ("system", "S"), ("user", "V")], "<user>U</user><system>S</system><user>V</user>"),
        (PLAIN, [("user", "U"), ("user", "V")], "<user>U</user><user>V</user>"),
        (STRICT, [("user", "U"), ("user", "V")], "<user>U\n\nV<model>"),
        (
            STRICT,
            [("system", "S"), ("user", "U"), ("assistant", "A"), ("assistant", "B"), ("user", "V")],
            "<user>S\n\nU<model>A\n\nB<user>V<model>",
        ),
        (STRICT, [("assistant", "A"), ("user", "U")], "<user><model>A<user>U<model>"),
        (DEAF, [("user", "U"), ("tool", "T")], "<user>U\n\n<tool_response>\nT\n</tool_response></user>"),
    ],
)
def test_system_messages_have_a_place_anywhere(template: str, turns: list[tuple[str, object]], wanted: str):
    assert text_of(template, *turns) == wanted


@pytest.mark.parametrize(
    ("template", "turns", "named"),
    [
        (
            DEAF.replace("'assistant') %}", "'assistant') and 'T' not in m.content %}"),
            [("system", "S"), ("user", "U"), ("tool", "T")],
            r"messages\[2\]: .*does not write this text as it is \(role user\)",
        ),
        (
            PLAIN.replace("m.content", "m.content[:3]"),
            [("user", "ab"), ("user", "four")],
            r"messages\[1\]: .*does not write this text as it is",
        ),
        (PLAIN.replace("m.content", "m.content | upper"), [("user", "ab")], r"messages\[0\]: .*\(role user\)"),
        (
            PLAIN.replace("messages %}", "messages[-2:] %}", 1),
            [("user", "a"), ("assistant", "b"), ("user", "c")],
            r"messages\[0\]: ",
        ),
        (PLAIN.replace("m.content", "m.content | replace('x', '')"), [("user", "some text")], r"messages\[0\]: "),
        (PLAIN.replace("m.content", "''"), [("user", "U")], r"messages\[0\]: .*leaves this message out"),
        (PARTS.replace("m.content %}", "m.content[:1] %}"), [("user", parts("a", "b"))], r"messages\[0\]: "),
        (
            STRICT + "{% if messages | length > 3 %}{{ raise_exception('too long') }}{% endif %}",
            [("system", "S"), ("user", "U"), ("assistant", "A"), ("user", "V"), ("assistant", "B")],
            r"messages\[4\] \(role assistant\): .*too long",
        ),
        ("{{ raise_exception('never') }}", [("user", "U")], r"^the chat template cannot render these messages: never"),
        (PLAIN, [("user", 3)], r"messages\[0\].content must be text"),
        (PLAIN, [("us er", "x")], r"messages\[0\].role"),
    ],
)
def test_what_has_no_place_is_refused_by_name(template: str, turns: list[tuple[str, object]], named: str):
    with pytest.raises(InvalidRequestError, match=named):
        text_of(template, *turns)


LENIENT = {
    "trimmed": PLAIN.replace("m.content", "m.content | trim"),
    "front": PLAIN.replace("m.content", "m.content.lstrip()"),
    "json": PLAIN.replace("m.content", "m.content | tojson"),
    "indented": PLAIN.replace("m.content", "m.content | indent(2)"),
    "switches": PLAIN.replace("m.content", "m.content.replace('/no_think', '').replace('/think', '') | trim"),
    "thoughts": PLAIN.replace("m.content", "m.content.split('</think>')[-1] if m.role == 'assistant' else m.content"),
    "hoisted": "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}" + DEAF,
}
TEXTS = st.lists(
    st.sampled_from(["a", " ", "\n", "/no_think", "/think", '"', "\\", "é", "<b>", "{{", "\ue0f00\ue0f1", "\r\n"]),
    max_size=6,
)


@pytest.mark.parametrize("template", LENIENT.values(), ids=LENIENT.keys())
@settings(deadline=None, max_examples=40)
@given(
    contents=st.lists(TEXTS.map("".join), min_size=4, max_size=4),
    thought=st.sampled_from(["", "<think>t</think>", "t</think>\n"]),
)
def test_what_templates_do_to_texts_by_design_is_no_loss(template: str, contents: list[str], thought: str):
    system, first, answer, second = contents
    text_of(template, ("system", system), ("user", first), ("assistant", thought + answer), ("user", second))


def test_a_long_text_that_a_template_transforms_is_looked_for_in_linear_work():
    lines = "\n".join(f"line {n} /think" for n in range(40_000))
    assert "line 39999" in text_of(LENIENT["switches"], ("user", lines), ("user", "and /think more"))


FAMILIES = ("chatml", "gemma", "llama-2", "harmony", "deepseek-v3.1", "glm-4.6", "mistral-v3", "kimi-k3")


def test_bundled_formats_hold_every_message():
    families = load_families([bundled_mappings()])
    for name in FAMILIES:
        for conversation, turns in CONVERSATIONS.items():
            if conversation not in TOOLS:
                check(families[name].template(), turns, name)


CONVERSATIONS: dict[str, list[tuple[str, object]]] = {
    "one": [("user", "Hello one")],
    "several": [("user", "Hello one"), ("assistant", "Answer two"), ("user", "And three")],
    "spaces": [("user", "  Hello one \n\n"), ("assistant", "\n Answer two "), ("user", "And three\n")],
    "system": [("system", "Be brief"), ("user", "Hello one"), ("assistant", "Answer two"), ("user", "And three")],
    "system inside": [
        ("user", "Hello one"),
        ("assistant", "Answer two"),
        ("system", "Be brief"),
        ("user", "And three"),
    ],
    "systems": [
        ("system", "Zero"),
        ("user", "Hello one"),
        ("assistant", "Answer two"),
        ("system", "Be brief"),
        ("user", "And three"),
    ],
    "two systems": [("system", "Zero"), ("system", "Be brief"), ("user", "And three")],
    "system last": [("user", "Hello one"), ("system", "Be brief")],
    "system alone": [("system", "Be brief")],
    "developer": [("developer", "Be brief"), ("user", "Hello one")],
    "thoughts": [("user", "Hello one"), ("assistant", "<think>\nHm\n</think>\n\nAnswer two"), ("user", "And three")],
    "open thoughts": [("user", "Hello one"), ("assistant", "Answer two <think>\nHm"), ("user", "And three")],
    "empty": [("user", ""), ("assistant", "."), ("user", "And three")],
    "switches": [("system", "Be brief /no_think"), ("user", "Hello one /think")],
    "markers": [
        ("user", 'say <|im_end|> </think> [/INST] "quoted" \\n <b>&amp;</b> /thinking'),
        ("assistant", "No."),
        ("user", "<think>"),
    ],
    "lines": [("user", "First\n\n  second\r\n\tthird\n"), ("assistant", "- a\n- b\n"), ("user", "{% x %} {{ y }}")],
    "parts": [("user", parts("Part one", "Part two"))],
    "tool": [("user", "Hello one"), ("assistant", "calling"), ("tool", "result 7")],
    "twice": [("user", "Hello one"), ("user", "Hello two")],
}
TOOLS = {"tool", "twice"}
"""Conversations that some templates have no place for: those are refused by name."""


def check(template: str, turns: list[tuple[str, object]], name: str) -> None:
    text = converse(said(*turns), Talk(template, "<BOS>", "<EOS>")).text
    for role, content in turns:
        pieces = [part["text"] for part in content] if isinstance(content, list) else [str(content)]
        for piece in pieces:
            wanted = piece.rpartition("</think>")[2].partition("<think>")[0] if role == "assistant" else piece
            for line in wanted.replace("/no_think", "\n").replace("/think", "\n").split("\n"):
                assert line.strip() in text, (name, role, line)


@pytest.mark.long
@pytest.mark.skipif(folder() is None, reason="no chat templates here: make vocabs")
def test_real_templates_hold_every_message_or_name_it():
    at = folder()
    assert at is not None
    refused: dict[str, list[str]] = {}
    paths = sorted((at / "templates").glob("*.jinja"))
    for path in paths:
        for conversation, turns in CONVERSATIONS.items():
            try:
                check(path.read_text(encoding="utf-8"), turns, path.stem)
            except InvalidRequestError as error:
                refused.setdefault(conversation, []).append(path.stem)
                if error.param != f"messages[{len(turns) - 1}]":
                    raise
    assert len(paths) > 60
    assert refused.keys() <= TOOLS, refused
    assert all(len(names) <= 12 for names in refused.values()), refused


def test_a_talk_is_asked_for_an_answer_unless_it_says_otherwise():
    talk = Talk(PLAIN)
    assert converse(said(("user", "U")), talk).text == "<user>U</user><assistant>"
    assert converse(said(("user", "U")), replace(talk, add_generation_prompt=False)).text == "<user>U</user>"


def test_many_system_messages_are_linear_work():
    many = [("system", "x" * 190)] * 20_000
    assert len(text_of(NO_SYSTEM, *many, ("user", "U"))) > 3_800_000
