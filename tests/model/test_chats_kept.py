"""A chat that was just rendered and tokenized is not rendered again; one that differs in anything is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kit.toys import TARGET_VOCAB

from uad.base.config import TemplateConfig
from uad.base.errors import InvalidRequestError
from uad.text.prompts import Prompts
from uad.text.templates.render import Rendered
from uad.text.vocab.encode import Encoder

HELLO = [{"role": "user", "content": "hello"}]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}{{ tone }}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


class Watched(Prompts):
    """Counts renderings."""

    n = 0

    def render(self, *args: Any, **more: Any) -> Rendered:
        self.n += 1
        return super().render(*args, **more)


def prompts(template: str = TEMPLATE) -> Watched:
    return Watched(TARGET_VOCAB, Encoder(TARGET_VOCAB), TemplateConfig(chat_template=template), None, "toy")


def test_the_same_chat_is_rendered_once_and_its_ids_belong_to_the_caller() -> None:
    asked = prompts()
    first = asked.chat(HELLO, {"tone": "soft"})
    expected = list(first)
    first.append(5)
    assert asked.chat([dict(HELLO[0])], {"tone": "soft"}) == expected
    assert asked.n == 1


CHATS: Sequence[tuple[Any, ...]] = (
    (HELLO, {}),
    (HELLO, {"tone": "soft"}),
    (HELLO, {"tone": 1}),
    (HELLO, {"tone": True}),
    (HELLO, {"tone": "1"}),
    (HELLO, {}, False),
    (HELLO, {}, True, "I"),
    (HELLO, {}, True, "", False),
    ([{"role": "system", "content": "hello"}], {}),
    ([{"role": "user", "content": "hello "}], {}),
    ([{"role": "user", "content": "h\u00e9llo"}], {}),
    (HELLO * 2, {}),
)


def test_chats_that_differ_in_anything_are_not_taken_for_each_other() -> None:
    asked = prompts()
    for _ in range(2):
        assert [asked.chat(*one) for one in CHATS] == [prompts().chat(*one) for one in CHATS]
    assert asked.n == len(CHATS)


@pytest.mark.parametrize("told", ["{{ strftime_now('%H:%M:%S') }}", "{{ date_string }}"])
def test_a_template_that_tells_the_time_is_rendered_every_time(told: str) -> None:
    asked = prompts(TEMPLATE + told)
    for _ in range(2):
        asked.chat(HELLO, {})
    assert asked.n == 2


def test_long_chats_and_older_ones_are_not_kept() -> None:
    asked = prompts()
    long = [{"role": "user", "content": "a" * 20_000}]
    for _ in range(2):
        asked.chat(long, {})
    assert asked.n == 2
    for i in range(100):
        asked.chat([{"role": "user", "content": str(i)}], {})
    asked.chat([{"role": "user", "content": "99"}], {})
    assert asked.n == 102
    asked.chat([{"role": "user", "content": "0"}], {})
    assert asked.n == 103


def test_errors_are_not_kept() -> None:
    asked = prompts()
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="role"):
            asked.chat([{"role": "", "content": "a"}], {})
        with pytest.raises(InvalidRequestError, match="JSON cannot express"):
            asked.chat([{"role": "user", "content": "a", "more": object()}], {})
    assert asked.n == 4
