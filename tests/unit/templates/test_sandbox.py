"""What a template can do to the server: bounded work, whatever it calls things, and nothing that one call of C makes
huge.
"""

from __future__ import annotations

import pytest

from uad.base.errors import InvalidRequestError
from uad.text.templates.sandbox import Budget, compile_template

LOOP = "{% for a in range(700) %}{% for b in range(700) %}{% endfor %}{% endfor %}"


def render(source: str, budget: Budget | None = None) -> str:
    return compile_template(source).render({"messages": [{"role": "user", "content": "hi"}]}, budget or Budget())


@pytest.mark.parametrize(
    "source",
    [
        LOOP,
        "{% set uad_budget = namespace(tick=dict, sized=dict) %}" + LOOP,
        "{% set tick = dict %}{% set environment = namespace(tick=dict) %}" + LOOP,
        "{% macro walk(uad_budget) %}" + LOOP + "{% endmacro %}{{ walk(namespace(tick=dict)) }}",
        "{% for uad_budget in [namespace(tick=dict)] %}" + LOOP + "{% endfor %}",
        "{% with uad_budget = namespace(tick=dict) %}" + LOOP + "{% endwith %}",
    ],
)
def test_no_name_of_a_template_turns_its_budget_off(source: str) -> None:
    with pytest.raises(InvalidRequestError, match="runs for too long"):
        render(source, Budget(n_steps=1000))


def test_without_more_words_half_a_million_steps_are_too_many() -> None:
    with pytest.raises(InvalidRequestError, match="runs for too long"):
        render(LOOP)


@pytest.mark.parametrize(
    "expression",
    [
        "((9 ** 64) ** 64) ** 64",
        "2 ** 100000",
        "0x" + "f" * 2000 + " // 3",
        "0x" + "f" * 1000 + " * 0x" + "f" * 1000,
        "1 | round(4000000, 'ceil')",
        "('9' * 5000) | int",
        "('a' * 5000000 + 'a' * 5000000)",
        "('a' * 5000000) * 2",
    ],
)
def test_no_value_is_huge(expression: str) -> None:
    with pytest.raises(InvalidRequestError, match="too large"):
        render("{{ " + expression + " }}")


@pytest.mark.parametrize(
    "expression",
    [
        "lipsum(n=20000)",
        "('a' * 1000).translate({97: 'b' * 1000})",
        "('a' * 1000).encode()",
        "(1).to_bytes(1000, 'big')",
        "'a'.zfill(1000)",
        "'%1000d' % 3",
        "([[1] * 1000] * 1000) | sum(start=[])",
    ],
)
def test_what_makes_huge_values_in_one_call_is_not_there(expression: str) -> None:
    with pytest.raises(InvalidRequestError):
        render("{{ " + expression + " }}")


def test_arithmetic_and_texts_are_as_usual() -> None:
    source = (
        "{{ 2 ** 10 }} {{ 7 // 2 }} {{ 7 % 4 }} {{ 2.5 | round }} {{ '12' | int + 1 }} {{ [1, 2, 3] | sum }} "
        "{{ [{'n': 2}, {'n': 3}] | sum(attribute='n') }} {{ 'a-b'.split('-') | join('+') }} {{ '{} b'.format('a') }} "
        "{{ 'x' * 3 + 'y' }} {{ [1] + [2] }}"
    )
    assert render(source) == "1024 3 3 2.0 13 6 5 a+b a b xxxy [1, 2]"


def test_renderings_inside_each_other_count_for_themselves() -> None:
    outer = Budget()
    with pytest.raises(InvalidRequestError, match="too long"):
        render(LOOP, Budget(n_steps=10))
    assert render("{% for a in range(5) %}x{% endfor %}", outer) == "xxxxx"
