"""Template variables: switches in every spelling, from requests, the command line, the environment and YAML; others
travel as they are.
"""

from __future__ import annotations

import pytest
from kit.templates_real import folder, real_templates
from kit.templates_toys import family_vocab

from uad.base.config import TemplateConfig, load_config
from uad.base.errors import ConfigError, InvalidRequestError
from uad.text.prompts import Prompts
from uad.text.templates.render import render, settle_kwargs
from uad.text.templates.sandbox import compile_template
from uad.text.vocab.encode import Encoder

NO = ("false", "False", " no ", "off", "0", 0, 0.0, "disabled")
YES = ("true", "TRUE", "yes", "on", "1", 1, 1.0, "enabled")
HELLO = [{"role": "user", "content": "hello"}]
TESTS = (
    "{% if think %}yes{% else %}no{% endif %}",
    "{% if think is defined and think is false %}no{% else %}yes{% endif %}",
    "{% if think is sameas true %}yes{% else %}no{% endif %}",
    "{{ 'no' if think == false else 'yes' }}",
    "{% set think = think | default(true) %}{{ 'yes' if think and messages else 'no' }}",
    (
        "{% set deep = think if think is defined else true %}{% set deeper = not deep %}{% if deeper %}no{% else "
        "%}yes{% "
        "endif %}"
    ),
    "{% macro m(x) %}{% if not think %}no{% else %}yes{% endif %}{% endmacro %}{{ m(1) }}",
)
KNOWN = (
    "enable_thinking",
    "thinking",
    "preserve_thinking",
    "clear_thinking",
    "drop_thinking",
    "keep_past_thinking",
    "skip_thinking",
)


@pytest.mark.parametrize("template", TESTS)
@pytest.mark.parametrize(("value", "word"), [*((value, "no") for value in NO), *((value, "yes") for value in YES)])
def test_a_switch_means_what_it_says(template: str, value: object, word: str):
    assert render(template, HELLO, kwargs={"think": value}).text == word


@pytest.mark.parametrize("value", ["maybe", "", 2, -1, 0.5, "none"])
def test_a_switch_with_another_value_is_named(value: object):
    with pytest.raises(InvalidRequestError, match=r"chat_template_kwargs\.think: .* must be true or false") as caught:
        render(TESTS[0], HELLO, kwargs={"think": value})
    assert caught.value.param == "chat_template_kwargs.think"


def test_a_switch_that_is_null_is_as_if_it_were_not_there():
    assert render(TESTS[4], HELLO, kwargs={"think": None}).text == "yes"


@pytest.mark.parametrize(
    "template",
    [
        "{{ level }}",
        "{% if level %}{{ level }}{% endif %}",
        "{% set l = level %}{{ l | upper if l else '' }}",
        "{% if level == 'no' %}no{% endif %}",
        "{{ level | tojson }}",
        "{{ other }}",
    ],
)
@pytest.mark.parametrize("value", ["no", "false", "high", 0, 3, ["no"], {"a": 0}])
def test_what_is_used_for_what_it_is_and_what_is_not_read_stays_as_it_is(template: str, value: object):
    assert settle_kwargs(template, {"level": value}) == {"level": value}


@pytest.mark.skipif(folder() is None, reason="no chat templates here: make vocabs")
def test_switches_of_real_templates():
    tried = 0
    for real in real_templates().values():
        template = real.side.chat_template
        assert template
        for name in compile_template(template).switches.intersection(KNOWN):
            # every spelling with templates of our own is above; each meets some of these
            for spelled, value in ((NO[tried % len(NO)], False), (YES[tried % len(YES)], True)):
                assert _text(template, {name: spelled}) == _text(template, {name: value})
            tried += 1
    assert tried > 30
    switches = {
        name for real in real_templates().values() for name in compile_template(str(real.side.chat_template)).switches
    }
    assert "reasoning_effort" not in switches


def _text(template: str, kwargs: dict[str, object]) -> str:
    messages = [*HELLO, {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}, *HELLO]
    return render(template, messages, kwargs=kwargs).text


def prompts(template: str, kwargs: dict[str, object]) -> Prompts:
    vocab = family_vocab("chatml")
    return Prompts(vocab, Encoder(vocab), TemplateConfig(kwargs=kwargs), template, "toy")


def test_a_request_wins_over_the_configuration():
    configured = prompts(TESTS[0] + "{{ messages[0].content }}", {"think": "off"})
    assert configured.render(HELLO, {}, True).text == "nohello"
    assert configured.render(HELLO, {"think": "on"}, True).text == "yeshello"
    assert configured.render(HELLO, {"think": None}, True).text == "nohello"


@pytest.mark.parametrize(
    ("kwargs", "named"), [({"think": "maybe"}, "think"), ({"messages": []}, "messages"), ({"_x": 1}, "_x")]
)
def test_a_configured_variable_that_cannot_be_is_named_at_the_start(kwargs: dict[str, object], named: str):
    with pytest.raises(ConfigError, match=f"--chat-template-kwargs: .*{named}"):
        prompts(TESTS[0], kwargs)


def load(*words: str, env: dict[str, str] | None = None) -> object:
    return load_config(("-m", "t.gguf", *words), env or {}).templates.kwargs


def test_variables_come_from_the_command_line_the_environment_and_yaml(tmp_path):
    text = '{"enable_thinking": "false", "level": {"a": [1]}}'
    value = {"enable_thinking": "false", "level": {"a": [1]}}
    assert load("--chat-template-kwargs", text) == value
    for name in ("LLAMA_ARG_CHAT_TEMPLATE_KWARGS", "LLAMA_CHAT_TEMPLATE_KWARGS"):
        assert load(env={name: text}) == value
    path = tmp_path / "uad.yaml"
    for written in (
        f"chat-template-kwargs: '{text}'",
        "chat-template-kwargs: {enable_thinking: 'false', level: {a: [1]}}",
    ):
        path.write_text(written)
        assert load("--config", str(path)) == value
    assert load() == {}


@pytest.mark.parametrize("text", ["enable_thinking=false", "[1]", "3", "{", '{"a": ' * 2000])
def test_variables_that_are_no_object_are_refused(text: str):
    with pytest.raises(ConfigError, match="--chat-template-kwargs: expected a JSON object"):
        load("--chat-template-kwargs", text)


def test_yaml_that_json_cannot_express_is_refused(tmp_path):
    path = tmp_path / "uad.yaml"
    path.write_text("chat-template-kwargs: {when: 2020-01-01}")
    with pytest.raises(ConfigError, match=r"uad\.yaml:1: chat-template-kwargs: "):
        load("--config", str(path))
