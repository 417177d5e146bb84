"""The beginning of an answer, behind prompts of templates that think, of harmony's, and of those that want a user."""

from __future__ import annotations

import pytest

from uad.text.templates.conversation import Talk, converse

USER = [{"role": "user", "content": "hi"}]
THINKS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}"
)
HARMONY = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' ~ m.content ~ '<|end|>' }}"
    "{% else %}<|start|>user<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}{# <|channel|>analysis<|message|> #}"
)
FINAL = "<|start|>assistant<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("template", "begun", "end"),
    [
        (THINKS, "<think>\nso far", "[assistant]<think>\nso far"),
        (THINKS, "<think>\nhm\n</think>\n\nYes", "[assistant]<think>\nhm\n</think>\n\nYes"),
        (HARMONY, "<|channel|>analysis<|message|>so far", "<|start|>assistant<|channel|>analysis<|message|>so far"),
        (
            HARMONY,
            "<|channel|>analysis<|message|>hm<|end|>Yes",
            f"<|start|>assistant<|channel|>analysis<|message|>hm<|end|>{FINAL}Yes",
        ),
        (HARMONY, "Yes", f"{FINAL}Yes"),
    ],
)
def test_thoughts_go_on_where_the_template_has_them(template: str, begun: str, end: str) -> None:
    found = converse(USER, Talk(template, prefill=begun))
    assert found.text == converse(USER, Talk(template, add_generation_prompt=False)).text + end
    assert found.parts[-1].trusted is False, "what a client sends is text"


def test_marks_of_another_template_are_text() -> None:
    found = converse(USER, Talk(THINKS, prefill="<|channel|>analysis<|message|>a"))
    assert not any("channel" in part.text for part in found.parts if part.trusted)


@pytest.mark.parametrize(
    ("template", "before"),
    [
        (HARMONY, ""),
        (THINKS, "[assistant]"),
        ("{% if messages[0].role != 'user' %}{{ raise_exception('a user begins') }}{% endif %}" + THINKS, "[user]"),
    ],
)
def test_an_answer_may_begin_a_conversation(template: str, before: str) -> None:
    found = converse([], Talk(template, prefill="Yes"))
    assert found.text.startswith(before)
    assert found.text.endswith("Yes")
