"""The beginning of an answer goes on as an answer, whatever a generation prompt ends in: an open thought, a role
without channel.
"""

from __future__ import annotations

import pytest
from kit.templates_real import folder
from kit.templates_toys import named, toy, vocab_of

from uad.base.config import TemplateConfig
from uad.text.mapping.families import bundled_mappings, load_families
from uad.text.mapping.patterns import encode_parts, normalise
from uad.text.mapping.plan import Options, Side, plan
from uad.text.mapping.recognise import bos_name, eos_name
from uad.text.prompts import Prompts
from uad.text.templates.conversation import Talk, converse
from uad.text.templates.seams import Part
from uad.text.vocab.encode import Encoder

HELLO = [{"role": "user", "content": "hello"}]
BEGUN = "The capital is"
OPENED = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content "
    "}}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"
)
"""As many templates for thinking models: an answer of history has no thoughts, a new one begins with them."""
SWITCHED = OPENED.replace(
    "<think>\n{%", "{% if enable_thinking %}<think>\n{% else %}<think>\n\n</think>\n\n{% endif %}{%"
)
KEPT = OPENED.replace("<{{ m.role }}>{{", "<{{ m.role }}>{{ '<think>\n' if m.role == 'assistant' else '' }}{{")
"""Its last answer goes on inside the thought."""
MUTE = (
    "{% for m in messages if m.role != 'assistant' %}{{ m.content }}{% endfor %}{% if add_generation_prompt "
    "%}<assistant>TAIL{% endif %}"
)
"""Writes no answers."""
CHANNELS = (
    "{% for m in messages %}<|start|>{{ m.role }}{{ '<|channel|>final' if m.role == 'assistant' else '' "
    "}}<|message|>{{ m.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)


def prompt(template: str, prefill: str = BEGUN, messages: list[dict[str, object]] = HELLO, **kwargs: object) -> str:
    return converse(messages, Talk(template, kwargs=kwargs, prefill=prefill)).text


@pytest.mark.parametrize(
    ("template", "tail"),
    [
        (OPENED, "<assistant>"),
        (SWITCHED, "<assistant>"),
        (KEPT, "<assistant><think>\n\n</think>\n\n"),
        (CHANNELS, "<|start|>assistant<|channel|>final<|message|>"),
        (MUTE.replace("TAIL", ""), "<assistant>"),
        (MUTE.replace("TAIL", "<think>"), "<assistant><think></think>"),
        (MUTE.replace("TAIL", "<think>\n"), "<assistant><think>\n\n</think>\n\n"),
        (MUTE.replace("TAIL", "<think>\n\n</think>\n\n"), "<assistant><think>\n\n</think>\n\n"),
        (MUTE.replace("TAIL", "[THINK]"), "<assistant>[THINK][/THINK]"),
        (MUTE.replace("TAIL", "<|START_THINKING|>"), "<assistant><|START_THINKING|><|END_THINKING|>"),
        (MUTE.replace("TAIL", "<seed:think>"), "<assistant><seed:think></seed:think>"),
        (MUTE.replace("TAIL", "<|channel>thought\n"), "<assistant><|channel>thought\n\n<channel|>\n\n"),
        (
            OPENED.replace(
                "{% for", "{% if messages[-1].role == 'assistant' %}{{ raise_exception('no') }}{% endif %}{% for", 1
            ),
            None,
        ),
    ],
)
def test_an_answer_goes_on_where_the_template_has_answers(template: str, tail: str | None):
    text = prompt(template)
    assert text.endswith((tail or "<assistant><think>\n\n</think>\n\n") + BEGUN)
    assert text.count("hello") == 1


@pytest.mark.parametrize(
    "template",
    [OPENED, SWITCHED, KEPT, MUTE.replace("TAIL", "<think>\n"), MUTE.replace("TAIL", "{# <think> </think> #}")],
)
@pytest.mark.parametrize(
    "begun", ["<think>\nI reckon", "<think>I reckon</think>\n\nThe capital", "\n<think>\nI reckon\n</think>"]
)
@pytest.mark.parametrize("enable_thinking", [True, False])
def test_thoughts_that_the_answer_brings_are_not_opened_twice(template: str, begun: str, enable_thinking: bool):
    text = prompt(template, begun, enable_thinking=enable_thinking)
    assert text.endswith("<assistant>" + begun.lstrip())
    assert text.count("<think>") == 1


def test_tags_that_the_template_does_not_know_are_letters():
    begun = "<think>x</think>y"
    rendered = converse(HELLO, Talk(CHANNELS, prefill=begun))
    assert rendered.parts[-1] == Part(begun, False)
    assert rendered.text.endswith("<|channel|>final<|message|>" + begun)


def test_only_the_first_thoughts_are_tags_and_what_stands_in_them_is_letters():
    parts = converse(HELLO, Talk(OPENED, prefill="<think>a<end></think>b</think><end>")).parts
    assert parts[-4:] == (
        Part("<think>", True),
        Part("a<end>", False),
        Part("</think>", True),
        Part("b</think><end>", False),
    )


def test_white_space_of_the_beginning_stays():
    template = OPENED.replace("split('</think>')[-1]", "strip()")
    assert prompt(template, "  The capital is \n").endswith("<assistant>  The capital is \n")


def test_a_begun_answer_behind_messages_that_need_another_place():
    template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + OPENED
    )
    messages = [{"role": "system", "content": "S"}, *HELLO]
    assert prompt(template, messages=messages) == f"<user>S\n\nhello<end><assistant>{BEGUN}"
    without_results = OPENED.replace("messages %}", "messages if m.role != 'tool' %}")
    told = "<tool_response>\nT\n</tool_response>"
    assert (
        prompt(without_results, messages=[*HELLO, {"role": "tool", "content": "T"}])
        == f"<user>hello\n\n{told}<end><assistant>{BEGUN}"
    )


@pytest.mark.parametrize(
    ("family", "tail"),
    [
        ("chatml", "<|im_start|>assistant\n"),
        ("chatml-think", "<|im_start|>assistant\n"),
        ("harmony", "<|start|>assistant<|channel|>final<|message|>"),
        ("deepseek-r1", "<｜Assistant｜>"),
        ("glm-4.6", "<|assistant|>\n<think></think>\n"),
        ("kimi-k3", "<|open|>think<|sep|><|close|>think<|sep|><|open|>response<|sep|>"),
        ("command-r7b", "<|CHATBOT_TOKEN|><|START_RESPONSE|>"),
        ("vicuna", " ASSISTANT: "),
    ],
)
def test_bundled_formats(family: str, tail: str):
    template = load_families([bundled_mappings()])[family].template()
    assert prompt(template).endswith(tail + BEGUN)


REAL = {
    "Qwen3.5-4B": "<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "Qwen-Qwen3-0.6B": "<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "openai-gpt-oss-120b": "<|start|>assistant<|channel|>final<|message|>",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "<｜Assistant｜>",
    "NVIDIA-Nemotron-Nano-v2": "Assistant\n<think>\n\n</think>\n\n",
    "Kimi-K3": "<|open|>think<|sep|><|close|>think<|sep|><|open|>response<|sep|>",
    "Cohere2MoE": "<|CHATBOT_TOKEN|><|START_TEXT|>",
    "upstage-Solar-Open-100B": "<|begin|>assistant<|content|>",
    "meta-llama-Llama-3.1-8B-Instruct": "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "google-gemma-2-2b-it": "<start_of_turn>model\n",
}
OPENERS = ("<think>", "[THINK]", "<|START_THINKING|>", "<|channel>thought", "<seed:think>", "<|channel|>analysis")
CLOSERS = ("</think>", "[/THINK]", "<|END_THINKING|>", "<channel|>", "</seed:think>", "<|channel|>final")


@pytest.mark.skipif(folder() is None, reason="no chat templates here: make vocabs")
def test_real_templates_go_on_with_the_answer():
    at = folder()
    assert at is not None
    paths = sorted((at / "templates").glob("*.jinja"))
    assert {path.stem for path in paths} >= REAL.keys()
    for path in paths:
        template = path.read_text(encoding="utf-8")
        text = prompt(template)
        behind = text.rpartition("hello")[2]
        assert text.endswith(REAL.get(path.stem, "") + BEGUN), path.stem
        assert behind.count(BEGUN) == 1
        for opener, closer in zip(OPENERS, CLOSERS, strict=True):
            assert behind.rfind(opener) <= behind.rfind(closer), path.stem
        thinking = prompt(template, "<think>\nHm")
        assert thinking.endswith("<think>\nHm"), path.stem
        assert thinking.rpartition("hello")[2].count("<think>") == 1, path.stem


def test_tags_are_ids_and_typed_specials_are_letters():
    vocab = toy("t", ("<user>", "<end>", "<assistant>", "<think>", "</think>"))
    prompts = Prompts(vocab, Encoder(vocab), TemplateConfig(), OPENED, "t")

    def seen(prefill: str) -> list[str]:
        ids = prompts.chat(HELLO, {}, True, prefill)
        start = len(ids) - ids[::-1].index(vocab.specials["<assistant>"])
        return [named([id_], vocab) if vocab.is_special(id_) else vocab.pieces[id_].decode() for id_ in ids[start:]]

    assert seen("a<end>") == [*"a<end>"]
    assert seen("<think>a<end>") == ["<think>", *"a<end>"]
    assert seen("<think>a</think>b<think>") == ["<think>", "a", "</think>", *"b<think>"]


def side(name: str) -> Side:
    family = load_families([bundled_mappings()])[name]
    return Side(vocab_of(family), family.template(), name)


def crossed(target: Side, draft: Side, prefill: str, **kwargs: object) -> str:
    """What the draft gets to see of the target's prompt."""
    vocab = target.vocab
    talk = Talk(str(target.chat_template), bos_name(vocab), eos_name(vocab), kwargs, prefill=prefill)
    stream = plan(target, draft, Options()).rules.stream()
    seen = [*stream.feed(encode_parts(converse(HELLO, talk).parts, vocab, vocab.tokenize)), *stream.flush()]
    return named(normalise(seen), draft.vocab)


@pytest.mark.parametrize(
    "target", ["chatml-think", "harmony", "deepseek-v3.2", "glm-4.6", "kimi-k3", "gemma", "nemotron-3"]
)
@pytest.mark.parametrize("draft", ["chatml", "harmony", "gemma", "deepseek-r1", "glm-4.7", "llama-3"])
def test_the_draft_goes_on_with_the_answer_in_its_own_format(target: str, draft: str):
    own = side(draft)
    talk = Talk(str(own.chat_template), bos_name(own.vocab), eos_name(own.vocab), prefill=BEGUN)
    wanted = named(
        normalise(
            [
                id_ if own.vocab.is_special(id_) else own.vocab.pieces[id_]
                for id_ in encode_parts(converse(HELLO, talk).parts, own.vocab, own.vocab.tokenize)
            ]
        ),
        own.vocab,
    )
    assert crossed(side(target), own, BEGUN).partition("hello")[2] == wanted.partition("hello")[2]


SHUT = (
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}SHUT{% endif %}{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if think %}<think>{% else %}SHUT{% endif %}{% endif %}"
)


@pytest.mark.parametrize("closed", ["</think>", "<think></think>", "\n</think>\n"])
def test_the_draft_sees_where_an_answer_begins_with_thoughts_on_and_off(closed: str):
    template = SHUT.replace("SHUT", closed)
    target = Side(toy("t", ("<s>", "<end>", "<user>", "<assistant>", "<think>", "</think>")), template, "t")
    chatml = side("chatml")
    start = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert crossed(target, chatml, "") == start
    assert crossed(target, chatml, BEGUN, think=True) == start + BEGUN
    assert crossed(target, chatml, "", think=True).startswith(start)
    assert crossed(target, chatml, "<think>Hm", think=True).startswith(start)
