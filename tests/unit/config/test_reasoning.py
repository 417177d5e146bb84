"""What the flags about thoughts tell templates."""

from __future__ import annotations

import pytest

from uad.base.config import TemplateConfig


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TemplateConfig(), {"enable_thinking": True}),
        (TemplateConfig(reasoning="on"), {"enable_thinking": True}),
        (
            TemplateConfig(reasoning="off", reasoning_effort="low"),
            {"enable_thinking": False, "reasoning_effort": "low"},
        ),
        (TemplateConfig(reasoning="off", kwargs={"enable_thinking": True}), {"enable_thinking": True}),
    ],
)
def test_variables(config: TemplateConfig, expected: dict[str, object]) -> None:
    assert config.variables == expected
