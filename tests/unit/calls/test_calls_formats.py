"""What answers say in each format: thoughts, content and calls, as llama-server's own tests have them and as the files'
examples do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.calls_kit import BEGINNING, FILES, FORMATS, TOOLS, Said, said

from uad.base.errors import MappingError
from uad.text.calls.files import lint_calls, load_calls
from uad.text.calls.format import AnswerFormat, CallFormat, ThoughtFormat
from uad.text.calls.parser import Start
from uad.text.calls.recognise import thought_format
from uad.text.calls.tools import Calls
from uad.text.mapping.families import bundled_mappings, load_families


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_example_of_every_format_is_read(name: str):
    file = FILES[name]
    found = said(file.format.example, AnswerFormat((file.format,)))
    assert [(name, json.loads(arguments)) for name, arguments, _ in found.calls] == [
        ("look_up", {"word": "tea", "n": 3})
    ]
    assert [id_ for _, _, id_ in found.calls] == [file.example_id]
    assert (found.content.strip(), found.thought, found.n_ended) == ("", "", 1)


USUAL = ThoughtFormat()
FAMILIES = load_families([bundled_mappings()])


@dataclass(frozen=True)
class Case:
    """A text in a format, and what it says; calls as (name, arguments)."""

    format: str
    text: str
    content: str = ""
    calls: tuple[tuple[str, object], ...] = ()
    thought: str = ""
    start: Start = BEGINNING
    thoughts: ThoughtFormat = USUAL


def tea(n: int = 3) -> tuple[str, object]:
    return "look_up", {"word": "tea", "n": n}


HERMES = '<tool_call>\n{"name": "look_up", "arguments": {"word": "tea", "n": 3}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "say", "arguments": {"text": "hi"}}\n</tool_call>'
CODER = (
    "<tool_call>\n<function=look_up>\n<parameter=word>\ntea\n</parameter>\n"
    "<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"
)
KIMI = '<|tool_call_begin|>functions.look_up:0<|tool_call_argument_begin|>{"word": "tea", "n": 3}<|tool_call_end|>'
V3 = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>look_up\n```json\n{"word": "tea", "n": 3}```<｜tool▁call▁end｜>'
INVOKE = '<invoke name="look_up">\n<parameter name="word">tea</parameter>\n<parameter name="n">3</parameter>\n</invoke>'
CHANNEL = ThoughtFormat("<|channel>thought", "<channel|>", ("<|channel>", "<channel|>"), anywhere=True)
CASES = (
    # Hermes
    Case("hermes", "Hello, world!\nWhat's up?", "Hello, world!\nWhat's up?"),
    Case("hermes", f"Let me see.\n{HERMES}", "Let me see.", (tea(),)),
    Case("hermes", f"{HERMES}\n{SECOND}", calls=(tea(), ("say", {"text": "hi"}))),
    Case("hermes", f"<think>\nhm\n</think>\n\n{HERMES}", calls=(tea(),), thought="hm"),
    Case("hermes", f"hm\n</think>\n\nSo:\n{HERMES}", "So:", (tea(),), "hm", Start(in_thought=True)),
    Case(
        "hermes",
        '<tool_call>{"arguments": {"word": "tea"}, "name": "look_up"}</tool_call>',
        calls=(("look_up", {"word": "tea"}),),
    ),
    Case("hermes", '<tool_call>{"name": "say"}</tool_call> done', "done", (("say", {}),)),
    Case("hermes", '<tool_call>{"name": "say", "arguments": null}</tool_call>', calls=(("say", {}),)),
    Case(
        "hermes",
        '<tool_call>{"name": "say", "arguments": "{\\"text\\": \\"a\\"}"}</tool_call>',
        calls=(("say", {"text": "a"}),),
    ),
    Case(
        "hermes",
        '<tool_call>{"name": "say", "arguments": {"text": "a } </tool_call> \\" {"}}',
        calls=(("say", {"text": 'a } </tool_call> " {'}),),
    ),
    # Qwen3-Coder
    Case("qwen3-coder", f"I look.\n{CODER}\n{CODER}", "I look.", (tea(), tea())),
    Case("qwen3-coder", CODER.removeprefix("<tool_call>\n"), calls=(tea(),)),
    Case(
        "qwen3-coder",
        "<tool_call>\n<function=say>\n<parameter=text>\ndef f():\n    return "
        "'<b>'\n\n</parameter>\n</function>\n</tool_call>",
        calls=(("say", {"text": "def f():\n    return '<b>'\n"}),),
    ),
    Case("qwen3-coder", "<tool_call>\n<function=say>\n</function>\n</tool_call>", calls=(("say", {}),)),
    Case(
        "qwen3-coder",
        "<tool_call>\n<function=mixed>\n<parameter=flag>\nTrue\n</parameter>\n<parameter=list>\n[1, "
        '"a"]\n</parameter>\n'
        "<parameter=maybe>\nnull\n</parameter>\n<parameter=any>\n5\n</parameter>\n</function>\n</tool_call>",
        calls=(("mixed", {"flag": True, "list": [1, "a"], "maybe": None, "any": 5}),),
    ),
    Case(
        "seed-oss",
        "<seed:tool_call>\n<function=say>\n<parameter=text>a\n</parameter>\n</function>\n</seed:tool_call>",
        calls=(("say", {"text": "a\n"}),),
    ),
    # Llama 3
    Case("llama-3", '{"name": "look_up", "parameters": {"word": "tea", "n": 3}}', calls=(tea(),)),
    Case("llama-3", '<|python_tag|>{"name": "look_up", "parameters": {"word": "tea", "n": 3}}', calls=(tea(),)),
    Case("llama-3", '{"name": "Ann", "age": 3}', '{"name": "Ann", "age": 3}'),
    Case("llama-3", "No: {}", "No: {}"),
    # Mistral
    Case(
        "mistral-nemo",
        '[TOOL_CALLS][{"name": "look_up", "arguments": {"word": "tea", "n": 3}, "id": "123456789"}]',
        calls=(tea(),),
    ),
    Case(
        "mistral-nemo",
        '[TOOL_CALLS][{"name": "look_up", "arguments": {"word": "tea", "n": 3}}, {"name": "say", "arguments": {}}]',
        calls=(tea(), ("say", {})),
    ),
    Case(
        "mistral-args",
        'Hm.[TOOL_CALLS]look_up[ARGS]{"word": "tea", "n": 3}[TOOL_CALLS]say[ARGS]{}',
        "Hm.",
        (tea(), ("say", {})),
    ),
    Case("mistral-small", '[TOOL_CALLS]look_up[CALL_ID]123456789[ARGS]{"word": "tea", "n": 3}', calls=(tea(),)),
    # Gemma 4
    Case("gemma-4", '<|tool_call>call:look_up{word:<|"|>tea<|"|>,n:3}<tool_call|>', calls=(tea(),)),
    Case("gemma-4", "<|tool_call>call:say{}<tool_call|>", calls=(("say", {}),)),
    Case(
        "gemma-4",
        '<|tool_call>call:mixed{list:[<|"|>a}<|"|>,-1.5e3],flag:true,any:{a:null,<|"|>b c<|"|>:{}}}<tool_call|>',
        calls=(("mixed", {"list": ["a}", -1500.0], "flag": True, "any": {"a": None, "b c": {}}}),),
    ),
    Case("gemma-4", "<|channel>thought\nhm\n<channel|>Yes.<channel|>", "Yes.", thought="hm", thoughts=CHANNEL),
    Case("gemma-4", "<|channel><|channel>thought\n<channel|>Yes.", "Yes.", thoughts=CHANNEL),
    # DeepSeek
    Case("deepseek-v3", f"<｜tool▁calls▁begin｜>{V3}{V3}<｜tool▁calls▁end｜>", calls=(tea(), tea())),
    Case(
        "deepseek-v3.1",
        "hm</think>So<｜tool▁calls▁begin｜>"
        '<｜tool▁call▁begin｜>look_up<｜tool▁sep｜>{"word": "tea", "n": 3}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>say<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "So",
        (tea(), ("say", {})),
        "hm",
        Start(in_thought=True),
    ),
    Case("deepseek-v3.1", "</think>Hello", "Hello"),
    # GLM
    Case(
        "glm",
        "<tool_call>look_up<arg_key>word</arg_key><arg_value>tea</arg_value><arg_key>n</arg_key><arg_value>3</arg_value></tool_call>",
        calls=(tea(),),
    ),
    Case("glm", "<tool_call>say\n</tool_call><tool_call>say</tool_call>", calls=(("say", {}), ("say", {}))),
    Case(
        "glm",
        "<tool_call>say\n<arg_key>text</arg_key>\n<arg_value>5</arg_value>\n</tool_call>",
        calls=(("say", {"text": "5"}),),
    ),
    # Kimi
    Case("kimi-k2", f"<|tool_calls_section_begin|>{KIMI}{KIMI}<|tool_calls_section_end|>", calls=(tea(), tea())),
    # MiniMax
    Case(
        "minimax-m2",
        f"hm\n</think>\n\n<minimax:tool_call>\n{INVOKE}\n{INVOKE}\n</minimax:tool_call>",
        calls=(tea(), tea()),
        thought="hm",
        start=Start(in_thought=True),
    ),
    # gpt-oss
    Case("harmony", "<|channel|>final<|message|>Hello", "Hello"),
    Case(
        "harmony",
        "<|channel|>analysis<|message|>hm\n<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
        "Yes.",
        thought="hm",
    ),
    Case(
        "harmony",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.look_up<|channel|>commentary "
        "json<|message|>"
        '{"word": "tea", "n": 3}',
        calls=(tea(),),
        thought="hm",
    ),
    Case(
        "harmony",
        '<|channel|>commentary to=functions.say <|constrain|>json<|message|>{"text": "a"}<|call|>',
        calls=(("say", {"text": "a"}),),
    ),
    Case(
        "harmony",
        "<|channel|>commentary "
        "to=assistant<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Y",
        "Y",
        thought="hm",
    ),
    Case("harmony", "<|channel|>commentary to=python<|message|>print(1)", "print(1)"),
    Case("harmony", "just text", "just text"),
    Case("harmony", "more", "more", start=Start(in_content=True)),
    # Granite 3, Command R
    Case("granite-3", '<|tool_call|>[{"name": "look_up", "arguments": {"word": "tea", "n": 3}}]', calls=(tea(),)),
    Case(
        "command-r7b",
        '<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "say", '
        '"parameters": {}},\n'
        '    {"tool_call_id": "1", "tool_name": "look_up", "parameters": {"word": "tea", "n": 3}}\n]<|END_ACTION|>',
        calls=(("say", {}), tea()),
        thought="hm",
        thoughts=ThoughtFormat("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
    Case(
        "command-r7b",
        "<|START_RESPONSE|>Hello<|END_RESPONSE|>",
        "Hello",
        thoughts=ThoughtFormat("<|START_THINKING|>", "<|END_THINKING|>", ("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    ),
    # others
    Case(
        "lfm2",
        '<|tool_call_start|>[look_up(word="tea", n=3), mixed(flag=True, maybe=None, any={"a": [1]})]<|tool_call_end|>',
        calls=(tea(), ("mixed", {"flag": True, "maybe": None, "any": {"a": [1]}})),
    ),
    Case("functionary-3.2", 'all\nHello>>>say\n{"text": "a"}', "Hello", (("say", {"text": "a"}),)),
    Case("functionary-3.2", 'say\n{"text": "a"}', calls=(("say", {"text": "a"}),)),
    Case("firefunction", ' functools[{"name": "say", "arguments": {}}]', calls=(("say", {}),)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.format}: {case.text[:60]}")
def test_what_an_answer_says(case: Case):
    found = said(case.text, AnswerFormat((FORMATS[case.format],), case.thoughts), start=case.start)
    assert [(name, json.loads(arguments)) for name, arguments, _ in found.calls] == list(case.calls)
    assert (found.content, found.thought) == (case.content, case.thought)


@pytest.mark.parametrize(
    ("family", "text", "content", "thought"),
    [
        ("solar-open", "<|think|>hm<|end|><|begin|>assistant<|content|>Yes.", "Yes.", "hm"),
        ("solar-open", "<|content|>Yes.", "Yes.", ""),
        (
            "kimi-k3",
            "<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|>",
            "Yes.",
            "hm",
        ),
        ("muse", " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Yes.", "Yes.", "hm"),
        ("muse", " to=user<|message|>Yes.", "Yes.", ""),
        ("hunyuan-3", "<think:opensource>hm</think:opensource>Yes.", "Yes.", "hm"),
        ("apriel-1.6", "Here are my reasoning steps:\nhm\n[BEGIN FINAL RESPONSE]\nYes.", "Yes.", "hm"),
        ("cohere-2", "<|START_THINKING|>hm<|END_THINKING|><|START_TEXT|>Yes.<|END_TEXT|>", "Yes.", "hm"),
        ("apertus", "<|inner_prefix|>hm<|inner_suffix|>Yes.", "Yes.", "hm"),
        ("seed-oss", "<seed:think>hm</seed:think>\nYes.", "Yes.", "hm"),
        ("minimax-m3", "</mm:think>Yes.", "Yes.", ""),
        ("deepseek-v3.2", "</think>Yes.", "Yes.", ""),
        ("nemotron-3", "<think>\nhm\n</think>\nYes.", "Yes.", "hm"),
    ],
)
def test_thoughts_of_families(family: str, text: str, content: str, thought: str):
    found = said(text, AnswerFormat((), thought_format("", FAMILIES[family])))
    assert (found.content, found.thought) == (content, thought)


MALFORMED = (
    ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
    ("hermes", "<tool_call>what</tool_call>"),
    ("harmony", "<|channel|> x"),
    ("harmony", '{"name": <|channel|>final <|channel|> x{x'),
    ("hermes", '<tool_call>{"name": "say", "arguments": [1]}</tool_call>'),
    ("hermes", "<tool_call>"),
    ("hermes", '<tool_call>{"na'),
    ("qwen3-coder", "<tool_call>\n<function=nothing>\n</function>\n</tool_call>"),
    ("glm", "<tool_call>" + "x" * 300 + "\n</tool_call>"),
    ("mistral-nemo", '[TOOL_CALLS][{"name": "unknown"}]'),
    ("kimi-k2", "<|tool_calls_section_begin|>hello<|tool_calls_section_end|>"),
    ("lfm2", "<|tool_call_start|>[look_up('tea')]<|tool_call_end|>"),
    ("lfm2", "<|tool_call_start|>[__import__('os').x()]<|tool_call_end|>"),
    ("deepseek-v3.1", "<｜tool▁calls▁begin｜>"),
)


@pytest.mark.parametrize(("name", "text"), MALFORMED)
def test_what_is_no_call_is_content_and_nothing_of_it_is_lost(name: str, text: str):
    found = said(f"a {text} b", AnswerFormat((FORMATS[name],)))
    assert (found.content, found.calls) == (f"a {text} b", [])


def test_a_second_call_that_is_none_is_content():
    text = HERMES + '\n<tool_call>{"name": "unknown"}</tool_call>'
    found = said(text, AnswerFormat((FORMATS["hermes"],)))
    assert len(found.calls) == 1
    assert found.content == '<tool_call>{"name": "unknown"}</tool_call>'
    listed = '[TOOL_CALLS][{"name": "say", "arguments": {}}, {"name": "unknown"}]'
    found = said(listed, AnswerFormat((FORMATS["mistral-nemo"],)))
    assert (len(found.calls), found.content) == (1, '{"name": "unknown"}]')


def test_arguments_that_break_off_end_the_call_and_the_rest_is_content():
    found = said(
        '<tool_call>{"name": "say", "arguments": {"text": "a"}\n</tool_call>more', AnswerFormat((FORMATS["hermes"],))
    )
    assert [(name, arguments) for name, arguments, _ in found.calls] == [("say", '{"text": "a"}')]
    assert found.content == "more"


def test_an_answer_that_is_cut_in_a_call_has_what_was_written_of_it():
    found = said('<tool_call>{"name": "say", "arguments": {"text": "a', AnswerFormat((FORMATS["hermes"],)))
    assert [(name, arguments) for name, arguments, _ in found.calls] == [("say", '{"text": "a')]
    assert (found.content, found.n_ended) == ("", 0)


def test_without_tools_and_with_none_everything_is_content():
    for calls in (Calls(), Calls(TOOLS, "none")):
        assert said(HERMES, AnswerFormat((FORMATS["hermes"],)), calls) == Said(HERMES, "", [], 0)


def test_only_the_named_tool_is_called():
    found = said(HERMES + SECOND, AnswerFormat((FORMATS["hermes"],)), Calls(TOOLS, "say", named=True))
    assert [name for name, *_ in found.calls] == ["say"]
    assert found.content == HERMES


def test_one_call_where_only_one_is_wanted():
    found = said(HERMES + SECOND, AnswerFormat((FORMATS["hermes"],)), Calls(TOOLS, parallel=False))
    assert [name for name, *_ in found.calls] == ["look_up"]
    assert found.content == ""


def test_thoughts_that_stay_in_the_text_keep_their_tags_and_hold_no_calls():
    text = f"<think>\nif {HERMES}\n</think>\n\nNo."
    assert said(text, AnswerFormat((FORMATS["hermes"],)), shows_thoughts=True) == Said(text, "", [], 0)
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Y"
    found = said(text, AnswerFormat((FORMATS["harmony"],)), shows_thoughts=True)
    assert found.content == "<|channel|>analysis<|message|>hm<|end|>Y"


def test_white_space_of_an_answer_without_thoughts_and_tools_stays():
    assert said("\n hello \n", AnswerFormat(), Calls()).content == "\n hello \n"
    assert said("\n hello \n", AnswerFormat((FORMATS["hermes"],))).content == "\n hello \n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("body: tagged", "'tags' belong to the body 'tagged'"),
        ("body: named", "needs 'start' and 'name_end'"),
        ("body: list", "must have the body 'json'"),
        ("body: lisp", "expected one of json, list"),
        ("head: '('", "with a group 'name'"),
        ("stort: x", "did you mean 'start'"),
    ],
)
def test_files_that_no_parser_could_follow_are_refused(tmp_path: Path, line: str, message: str):
    path = tmp_path / "mine.yaml"
    body = "" if line.startswith("body") else "body: json\n"
    path.write_text(f'calls: mine\ntitle: t\n{body}{line}\nexample: {{text: "x"}}\n', encoding="utf-8")
    with pytest.raises(MappingError, match=message):
        load_calls(path)


def test_lint_reads_every_example(tmp_path: Path):
    n_files, errors = lint_calls([bundled_mappings()])
    assert (n_files, errors) == (len(FILES), ())
    (tmp_path / "calls").mkdir()
    for name, text in (
        ("mine", "<tool_call>no</tool_call>"),
        ("other", FORMATS["hermes"].example.replace("tea", "milk")),
    ):
        lines = f'calls: {name}\ntitle: t\nbody: json\nstart: "<tool_call>"\nexample: {{text: {json.dumps(text)}}}\n'
        (tmp_path / "calls" / f"{name}.yaml").write_text(lines, encoding="utf-8")
    (tmp_path / "calls" / "third.yaml").write_text("calls: 3\n", encoding="utf-8")
    n_files, errors = lint_calls([tmp_path])
    assert n_files == 3
    assert ["does not call" in error for error in errors] == [True, True, False]


def test_control_tokens_of_markers_are_shown_and_others_are_not():
    format_ = AnswerFormat((FORMATS["kimi-k2"],), ThoughtFormat(), ("<|tool_call_begin|>", "<|im_end|>", "<think>"))
    assert format_.shown(with_calls=True) == ("<|tool_call_begin|>", "<think>")
    assert format_.shown(with_calls=False) == ("<think>",)
    assert isinstance(FORMATS["kimi-k2"], CallFormat)
