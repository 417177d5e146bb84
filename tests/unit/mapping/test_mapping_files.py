"""Family and pair files: what is accepted, and what the errors say."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kit.pace import here
from kit.templates_toys import FAMILY_FILE, family_vocab, toy

from uad.base.errors import MappingError
from uad.text.mapping.families import Family, PlainMessage, bundled_mappings, find_family, load_families, load_family
from uad.text.mapping.pairs import load_pair, load_pairs
from uad.text.templates.render import render

FAMILIES = load_families([bundled_mappings()])
PAIR = """\
pair: mine
target: {family: chatml}
draft: {name: "*toy*"}
replace:
  - {target: "<|im_end|>", draft: "x"}
"""


def load(tmp_path: Path, text: str) -> Family:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return load_family(path)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_the_example_of_every_family_is_what_it_renders(family: Family):
    assert family.example is not None
    assert family.render(family.example.messages, "{bos}", "{eos}") == family.example.text
    roles = {message.role for message in family.example.messages}
    assert roles >= {"system", "user", "assistant"}


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_the_jinja_template_of_a_family_renders_the_same(family: Family, prompt: bool):
    example = family.example
    assert example is not None
    plain = tuple(PlainMessage(message.role, message.content) for message in example.messages)
    for messages in (plain, plain[1:], (*plain[:1], *plain[2:])):
        asked = [{"role": message.role, "content": message.content} for message in messages]
        got = render(family.template(), asked, bos="<B>", eos="<E>", add_generation_prompt=prompt)
        assert got.text == family.render(messages, "<B>", "<E>", add_generation_prompt=prompt)
        assert got.exact


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "titel:", r"mine\.yaml:2:1: unknown key 'titel'; did you mean 'title'\?"),
        ("  user:", "  usr:", r"mine\.yaml:6:3: unknown key 'usr'; did you mean 'user'\?"),
        ('end: "\\n"}\n  user', 'stop: "\\n"}\n  user', r"mine\.yaml:5:26: unknown key 'stop'"),
        ("title: My format\n", "", r"mine\.yaml:1:1: the key 'title' is missing"),
        ("My format", "[a]", r"mine\.yaml:2:8: 'title': expected text \(in quotes\), found a list"),
        ("My format", "12", r"mine\.yaml:2:8: 'title': expected text \(in quotes\), found '12' \(int\)"),
        ('["<u>"]', '"<u>"', r"mine\.yaml:3:11: 'specials': expected a list, found a plain value"),
        ('["<u>"]', '["<u>"', r"mine\.yaml:4:\d+: not valid YAML: expected ',' or '\]'"),
        ("title: My format\n", "title: My format\ntitle: again\n", r"mine\.yaml:3:1: the key 'title' is given twice"),
        ("title: My format", "title: &a My format", r"mine\.yaml:2:8: anchors and aliases"),
        (
            "title: My format",
            "title: !!python/name:os.system x",
            r"mine\.yaml:2:8: tags \('tag:yaml.org,2002:python/name:os.system'\)",
        ),
        ("title:", "system: turns\ntitle:", r"mine\.yaml:2:9: 'system' is 'turns'; expected one of turn, prefix, drop"),
        ("family: mine", "family: other", r"mine\.yaml:1:9: the family is called 'other' but the file 'mine.yaml'"),
        ("title:", "write_only: 1\ntitle:", r"mine\.yaml:2:13: 'write_only': expected true or false"),
        (FAMILY_FILE[FAMILY_FILE.index("  assistant") :], "", r"mine\.yaml:5:3: the role 'assistant' is missing"),
    ],
)
def test_errors_name_file_line_column_and_what_was_expected(tmp_path: Path, old: str, new: str, message: str):
    assert load(tmp_path, FAMILY_FILE).name == "mine"
    assert old in FAMILY_FILE
    with pytest.raises(MappingError, match=message):
        load(tmp_path, FAMILY_FILE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty; expected a mapping"),
        ("- a\n- b\n", r"mine\.yaml:1:1: expected a mapping with the keys .*family.*, found a list"),
        ("just text", "expected a mapping with the keys"),
        ("a: " + "[" * 50 + "]" * 50, "nested more than 12 levels"),
        ("a: \t\x00", "not valid YAML"),
        ("x" * 1_000_001, "more than 1000000 bytes"),
    ],
)
def test_files_that_are_no_rules_at_all(tmp_path: Path, text: str, message: str):
    with pytest.raises(MappingError, match=message):
        load(tmp_path, text)


def test_bombs_are_refused_quickly(tmp_path: Path):
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    start = time.process_time()
    with pytest.raises(MappingError, match="anchors"):
        load(tmp_path, "\n".join(lines))
    with pytest.raises(MappingError, match="nested"):
        load(tmp_path, "[" * 900_000)
    assert time.process_time() - start < here(5)


def test_not_text_and_not_there(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"title: \xff")
    with pytest.raises(MappingError, match=r"not UTF-8 text \(byte 7\)"):
        load_family(path)
    with pytest.raises(MappingError, match="cannot be read: No such file"):
        load_family(tmp_path / "none.yaml")
    with pytest.raises(MappingError, match="no such directory of mappings"):
        load_families([tmp_path / "none"])


def test_a_directory_given_by_the_user_wins(tmp_path: Path):
    (tmp_path / "families").mkdir()
    (tmp_path / "families" / "gemma.yaml").write_text(FAMILY_FILE.replace("mine", "gemma"), encoding="utf-8")
    families = load_families([tmp_path, bundled_mappings()])
    assert families["gemma"].title == "My format"
    assert families["chatml"] == FAMILIES["chatml"]
    with pytest.raises(MappingError, match=r"no chat format family 'gema'; did you mean 'gemma'\?"):
        find_family(families, "gema")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('target: "<|im_end|>"', 'target: ""', r"mine\.yaml:5:14: 'target' is empty"),
        (
            "{family: chatml}",
            "{}",
            r"mine\.yaml:2:9: 'target' has no condition, or an empty one; give at least one of family, name, specials",
        ),
        ("{family: chatml}", "{families: chatml}", r"unknown key 'families'; did you mean 'family'\?"),
        ('  - {target: "<|im_end|>", draft: "x"}\n', "  []\n", r"'replace' has no rules"),
        ('draft: "x"', "with: y", r"mine\.yaml:5:28: unknown key 'with'"),
        ("pair: mine", "pair: other", r"the pair is called 'other'"),
    ],
)
def test_errors_in_pair_files(tmp_path: Path, old: str, new: str, message: str):
    path = tmp_path / "mine.yaml"
    path.write_text(PAIR, encoding="utf-8")
    assert load_pair(path).replace[0].where == f"{path}:5:14"
    assert old in PAIR
    path.write_text(PAIR.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(MappingError, match=message):
        load_pair(path)


def test_bundled_pairs_load():
    assert "qwen-pythia" in load_pairs([bundled_mappings()])


def test_toys_are_what_the_other_tests_think():
    vocab = toy("t", ("<s>", "</s>"))
    assert (vocab.bos, vocab.eos) == (vocab.specials["<s>"], vocab.specials["</s>"])
    assert set(FAMILIES["chatml"].specials) <= set(family_vocab("chatml").specials)
