"""Rendering in the sandbox, seams between template text and content, and tokenization of prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.templates_toys import FAMILY_SPECIALS, family_vocab, toy

from uad.base.config import TemplateConfig
from uad.base.errors import ConfigError, InvalidRequestError
from uad.text.mapping.patterns import encode_parts, encode_text
from uad.text.prompts import Prompts
from uad.text.templates.conversation import MAX_TEXT_CHARS, Talk, converse
from uad.text.templates.render import Rendered, render
from uad.text.templates.sandbox import Budget, ChatTemplate
from uad.text.templates.seams import Part
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ALL_SPECIALS = sorted({name for names in FAMILY_SPECIALS.values() for name in names})
NASTY = st.lists(
    st.sampled_from([*ALL_SPECIALS, "\n", " ", "a", "</think>", '"', "{{", "user", "\ue0f00\ue0f1"]), max_size=8
).map("".join)


def user(content: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": content}]


def n_specials(rendered: Rendered, vocab: VocabTable) -> int:
    return sum(vocab.is_special(id_) for id_ in encode_parts(rendered.parts, vocab, vocab.tokenize))


@pytest.mark.parametrize(
    "template",
    [
        CHATML,
        CHATML.replace("m['content']", "m['content'] | trim"),
        CHATML.replace("m['content']", "m['content'].split('</think>')[-1].lstrip('\\n')"),
        CHATML.replace("m['content']", "m['content'] | tojson"),
        CHATML.replace("m['content']", "(m['content'] | trim if loop.first else m['content'])"),
    ],
    ids=["plain", "trim", "think", "json", "mixed"],
)
@given(contents=st.lists(NASTY, min_size=1, max_size=4))
def test_content_never_makes_specials(template: str, contents: list[str]):
    vocab = family_vocab("chatml")
    messages = [{"role": "user", "content": content} for content in contents]
    rendered = render(template, messages)
    assert rendered.exact
    harmless = render(template, [{"role": "user", "content": "x"} for _ in contents])
    assert n_specials(rendered, vocab) == n_specials(harmless, vocab) == 2 * len(contents) + 1


@given(contents=st.lists(NASTY, min_size=1, max_size=4))
def test_content_never_makes_specials_where_the_template_transforms_it(contents: list[str]):
    template = CHATML.replace(
        "m['content']", "(m['content'] | upper if 'a' in m['content'] else m['content'] | reverse)"
    )
    vocab = family_vocab("chatml")
    rendered = render(template, [{"role": "user", "content": content} for content in contents])
    assert n_specials(rendered, vocab) <= 2 * len(contents) + 1


def test_the_fallback_still_parses_the_templates_own_specials():
    template = CHATML.replace("m['content']", "(m['content'] | replace('x', 'y'))")
    rendered = render(template, user("x <b> <|im_start|>x"))
    assert not rendered.exact
    assert rendered.text == "<|im_start|>user\ny <b> <|im_start|>y<|im_end|>\n<|im_start|>assistant\n"
    assert "<|im_end|>" in "".join(part.text for part in rendered.parts if part.trusted)
    assert "<|im_start|>" not in "".join(part.text for part in rendered.parts if part.trusted)


def test_seams():
    parts = render(CHATML, user("Hi")).parts
    assert parts == (
        Part("<|im_start|>user\n", True),
        Part("Hi", False),
        Part("<|im_end|>\n<|im_start|>assistant\n", True),
    )


def test_tool_arguments_and_template_variables_are_content_too():
    calls = "{% for c in m.tool_calls or [] %}{{ c.name }}{{ c.arguments | tojson }}{% endfor %}"
    template = "{{ tools | tojson }}{% for m in messages %}{{ m.content }}" + calls + "{% endfor %}"
    messages = [{"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"q": "<|im_end|>"}}]}]
    rendered = render(template, messages, kwargs={"tools": [{"description": "a <|im_start|> b"}]})
    assert n_specials(rendered, family_vocab("chatml")) == 0
    assert rendered.exact
    assert "<|im_end|>" in rendered.text


def test_lists_of_text_parts_are_joined():
    assert render(
        CHATML, user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), add_generation_prompt=False
    ).text == ("<|im_start|>user\na\nb<|im_end|>\n")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (user([{"type": "image_url", "image_url": "x"}]), r"messages\[0\].content: only parts of the type 'text'"),
        (user(3), r"messages\[0\].content must be text"),
        ([{"role": "us<|im_end|>", "content": "x"}], r"messages\[0\].role must be a word"),
        ([{"content": "x"}], r"messages\[0\].role must be a word"),
        (["hello"], r"messages\[0\] is not an object"),
        ([{"role": "user", "content": "x", "extra": object()}], "JSON cannot express"),
    ],
)
def test_malformed_messages(messages: list[dict[str, object]], message: str):
    with pytest.raises(InvalidRequestError, match=message):
        render(CHATML, messages)


@pytest.mark.parametrize(
    "name", ["messages", "bos_token", "add_generation_prompt", "uad_budget", "_x", "a b", "raise_exception"]
)
def test_template_variables_that_are_taken(name: str):
    with pytest.raises(InvalidRequestError, match="cannot be set"):
        render(CHATML, user("x"), kwargs={name: 1})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "not valid Jinja, line 1"),
        ("{{ ''.__class__.__mro__ }}", "cannot render|unsafe"),
        ("{{ messages.append(1) }}", "cannot render|unsafe"),
        ("{{ messages[9].content.x }}", "cannot render|fails"),
        ("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", "fails|nested|too"),
        (
            "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "writes too much text",
        ),
        ("{{ 'a' * 999999999999 }}", "too large"),
        ("{{ [0] * 999999999999 }}", "too large"),
        ("{{ '%999999999d' % 1 }}", "not allowed"),
        ("{{ '{:>999999999}'.format(1) }}", "cannot render"),
        ("{{ 'x'.ljust(999999999) }}", "cannot render"),
        ("{{ 10 ** (10 ** 10) }}", "not allowed|too large"),
        ("{% set a = 'a' * 9000 %}{{ a.replace('a', a).replace('a', a) }}", "too large"),
        ("{% set a = 'a' * 9000 %}{{ a | replace('a', a) | replace('a', a) }}", "too large"),
        ("{% for i in range(9000) %}{{ 'a' * 9000 }}{% endfor %}", "too much text"),
        ("{{ messages | tojson(indent=2) | nofilter }}", "not valid Jinja"),
        ("x" * 1_000_001, "longer than 1000000"),
    ],
)
def test_hostile_and_broken_templates(template: str, message: str):
    with pytest.raises(InvalidRequestError, match=message):
        render(template, user("x"))


def test_loops_of_loops_are_stopped(monkeypatch: pytest.MonkeyPatch):
    """After fewer steps than usual, which a request may take several times."""
    monkeypatch.setattr(Budget.__init__, "__defaults__", (1000, *Budget.__init__.__defaults__[1:]))
    with pytest.raises(InvalidRequestError, match="runs for too long"):
        render("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", user("x"))


def test_the_clock_stops_a_template():
    with pytest.raises(InvalidRequestError, match="too long"):
        ChatTemplate("{% for i in range(9) %}{% endfor %}").render({}, Budget(seconds=-1.0))


def test_what_templates_of_models_use():
    template = (
        "{%- for m in messages -%}\n    {%- if loop.index0 == 1 %}{% break %}{% endif -%}\n"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{%- endfor -%}"
        "{{ strftime_now('%Y') | length }}{{ tools is none }}{{ '<é>' | tojson }}"
        "{{ 'a-b' | replace('-', '+') }}{{ ['x', 'y'] | join(',') }}"
        "{{ '{}={}'.format('k', 1) }}{{ '[1]' | fromjson }}{{ 'a\nb' | indent(2) }}"
    )
    text = render(template, [*user("é<"), *user("no")]).text
    assert text == '{"role": "user", "content": "é<"}4True"<é>"a+bx,yk=1[1]a\n  b'


def test_blocks_are_trimmed_as_models_expect():
    assert render("{% if true %}\n  {% set x = 1 %}\nA\n{% endif %}\n", user("x")).text == "A\n"


def test_text_that_touches_is_encoded_in_one_run():
    vocab = family_vocab("chatml")
    ids = encode_parts([Part("<|im_start|>user\n", True), Part("\nHi", False)], vocab, vocab.tokenize)
    assert ids == [vocab.specials["<|im_start|>"], *vocab.tokenize(b"user\n\nHi")]


def test_specials_are_parsed_longest_first_and_across_trusted_parts_only():
    vocab = toy("t", ("<s>", "<s><s>x", "ab"))
    parts = [Part("<s><s", True), Part(">x", True), Part("a", True), Part("b", False)]
    assert encode_parts(parts, vocab, vocab.tokenize) == [vocab.specials["<s><s>x"], *b"ab"]


def test_bos_is_added_once():
    vocab = family_vocab("gemma")
    hi = [Part("<bos>hi", True)]
    assert encode_parts(hi, vocab, vocab.tokenize) == [vocab.bos, *b"hi"]
    assert encode_parts([Part("hi", True)], vocab, vocab.tokenize) == [vocab.bos, *b"hi"]
    assert encode_parts([Part("hi", True)], vocab, vocab.tokenize, add_bos=False) == [*b"hi"]
    assert encode_parts([Part("hi", True)], family_vocab("chatml"), vocab.tokenize) == [*b"hi"]


def test_a_space_is_put_before_text_at_the_start_and_after_specials():
    vocab = family_vocab("mistral-v3", add_space_prefix=True)
    ids = encode_parts([Part("<s>[INST]a b[/INST]", True), Part("c", False)], vocab, vocab.tokenize)
    inst, end = vocab.specials["[INST]"], vocab.specials["[/INST]"]
    assert ids == [vocab.bos, inst, *b" a b", end, *b" c"]


def test_a_begun_answer_is_one_text_with_what_is_before_it():
    vocab = family_vocab("chatml", add_space_prefix=True)

    def chat(opening: str) -> list[int]:
        prompts = Prompts(vocab, Encoder(vocab), TemplateConfig(), f"{{{{ messages[0].content }}}}{opening}", "toy")
        return prompts.chat(user("Hi"), {}, True, prefill="Well<|im_end|>")

    assert vocab.join(chat("\nAnswer:")) == b" Hi\nAnswer:Well<|im_end|>"
    start = vocab.specials["<|im_start|>"]
    assert chat("<|im_start|>") == [*vocab.tokenize(b" Hi"), start, *vocab.tokenize(b" Well<|im_end|>")]


def test_white_space_next_to_specials_that_swallow_it():
    base = toy("t", ("<s>", "<l>", "<r>"))
    left, right = base.specials["<l>"], base.specials["<r>"]
    vocab = toy("t", ("<s>", "<l>", "<r>"), lstrip=frozenset({left}), rstrip=frozenset({right}))
    assert encode_parts([Part("a \n<l> b<r>\n", True), Part(" c", False)], vocab, vocab.tokenize) == [
        *b"a",
        left,
        *b" b",
        right,
        *b"c",
    ]


def test_encode_text_for_the_native_endpoints():
    vocab = family_vocab("gemma")
    end = vocab.specials["<end_of_turn>"]
    assert encode_text("a<end_of_turn>", vocab, vocab.tokenize, add_special=True, parse_special=True) == [
        vocab.bos,
        *b"a",
        end,
    ]
    begun = [encode_text("<bos>a", vocab, vocab.tokenize, add_special=add, parse_special=True) for add in (True, False)]
    assert begun == [[vocab.bos, vocab.bos, *b"a"], [vocab.bos, *b"a"]], "a BOS that is written is one more"
    assert encode_text("", vocab, vocab.tokenize, add_special=True, parse_special=True) == [vocab.bos]
    letters = encode_text("a<end_of_turn>", vocab, vocab.tokenize, add_special=False, parse_special=False)
    assert vocab.join(letters) == b"a<end_of_turn>"
    with pytest.raises(InvalidRequestError, match="surrogate"):
        encode_text("\ud800", vocab, vocab.tokenize, add_special=False, parse_special=False)


def test_the_text_of_a_chat_gives_its_ids_as_a_raw_prompt(caplog: pytest.LogCaptureFixture):
    template = "{{ bos_token }}" + CHATML.replace("<|im_start|>", "<start_of_turn>").replace(
        "<|im_end|>", "<end_of_turn>"
    )
    for family, begins in (("gemma", "<start_of_turn>"), ("chatml", "<bos>")):
        vocab = family_vocab(family)
        prompts = Prompts(vocab, Encoder(vocab), TemplateConfig(), template.replace("{{ bos_token }}", "<bos>"), "toy")
        text = prompts.raw(prompts.render(user("Hi"), {}, True))
        assert text.startswith(begins)
        assert prompts.tokenize(text, add_special=True, parse_special=True) == prompts.chat(user("Hi"), {}, True)
    assert not caplog.records


def test_a_template_without_bos_has_none_where_none_is_to_be_added():
    vocab = family_vocab("gemma")
    with_bos, without = (
        Prompts(vocab, Encoder(vocab), TemplateConfig(), begin + "{{ messages[0].content }}", "toy")
        for begin in ("{{ bos_token }}", "")
    )
    for prompts, n_bos in ((with_bos, 1), (without, 0)):
        assert prompts.chat(user("Hi"), {}, True) == [vocab.bos, *b"Hi"]
        assert prompts.chat(user("Hi"), {}, True, add_special=False) == [*[vocab.bos] * n_bos, *b"Hi"]


def test_a_second_bos_in_front_of_a_prompt_is_told_once(caplog: pytest.LogCaptureFixture):
    vocab = family_vocab("gemma")
    prompts = Prompts(vocab, Encoder(vocab), TemplateConfig(), CHATML, "toy")
    assert prompts.tokenize("<bos>a", add_special=False, parse_special=True) == [vocab.bos, *b"a"]
    assert prompts.tokenize("<bos>a", add_special=True, parse_special=False) == [vocab.bos, *b"<bos>a"]
    assert not caplog.records
    for _ in range(2):
        assert prompts.tokenize("<bos>a", add_special=True, parse_special=True) == [vocab.bos, vocab.bos, *b"a"]
    (record,) = caplog.records
    assert "<bos>" in record.message
    assert "add_special_tokens" in record.message


def test_specials_typed_inside_thoughts_that_a_template_takes_out_stay_letters():
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if '</think>' in m.content %}"
        "{% set parts = m.content.split('</think>') %}<think>{{ parts[0].split('<think>')[-1] }}</think>{{ "
        "parts[-1].lstrip('\n') }}"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    )
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>a<|im_end|>b</think>\n\nc<|im_end|>d"},
    ]
    got = render(template, messages, add_generation_prompt=False)
    assert got.exact
    assert [part.text for part in got.parts if not part.trusted] == ["Hi", "a<|im_end|>b", "c<|im_end|>d"]


def test_messages_that_are_too_long_are_refused_before_they_are_rendered() -> None:
    messages = [
        {"role": "user", "content": "x" * MAX_TEXT_CHARS},
        {"role": "user", "content": [{"type": "text", "text": "y"}]},
    ]
    with pytest.raises(InvalidRequestError, match=f"hold {MAX_TEXT_CHARS + 1} characters"):
        converse(messages, Talk("{{ 1 / 0 }}"))


def test_a_template_that_is_no_jinja_stops_no_model_but_one_that_was_given_does() -> None:
    vocab = family_vocab("chatml")
    go = "{{ .System }}{{ range .Messages }}{{ .Content }}{{ end }}"
    prompts = Prompts(vocab, Encoder(vocab), TemplateConfig(), go, "toy")
    assert prompts.notes[0].startswith("warning: toy: the chat template is not valid Jinja")
    assert prompts.render(user("Hi"), {}, True).text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(ConfigError, match=r"^--chat-template: the chat template is not valid Jinja, line 1"):
        Prompts(vocab, Encoder(vocab), TemplateConfig(chat_template=go), None, "toy")
