"""`uad mapping lint` on files with every kind of mistake, and rules that are refused when they are compiled."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kit.pace import here
from kit.templates_toys import FAMILY_FILE, toy

from uad.base.errors import MappingError
from uad.text.mapping.compile import Replacement, compile_rules
from uad.text.mapping.families import bundled_mappings, load_families
from uad.text.mapping.lint import lint

GOOD = f"""\
{FAMILY_FILE}example:
  messages:
    - user: Hi
  text: "<u>Hi\\n"
"""
PAIR = """\
pair: mine
target: {family: mine}
draft: {name: "*toy*"}
replace:
  - {target: "<u>", draft: "x"}
  - {target: "<a>", draft: "y"}
"""
PLAIN = load_families([bundled_mappings()])["plain"]


def findings(tmp_path: Path, family: str = GOOD, pair: str = PAIR, more: dict[str, str] | None = None) -> list[str]:
    for name, text in {"families/mine.yaml": family, "pairs/mine.yaml": pair, **(more or {})}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [finding.text.replace(f"{tmp_path}/", "") for finding in lint([tmp_path])[1]]


def test_the_bundled_files_are_clean():
    n_files, found = lint([bundled_mappings()])
    assert n_files > 50
    assert found == ()


def test_good_files_have_nothing_wrong(tmp_path: Path):
    assert findings(tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "titel:", "families/mine.yaml:2:1: unknown key 'titel'; did you mean 'title'?"),
        (
            'assistant: {start: "<a>"',
            'assistant: {start: "<u>"',
            "families/mine.yaml:7:3: ambiguous: a turn of 'assistant' starts like one of 'user'",
        ),
        ('["<u>"]', '["<u>", "<w>"]', "families/mine.yaml:3:1: the special <w> is in no marker of the format"),
        (
            'text: "<u>Hi\\n"',
            'text: "<u>Ho\\n"',
            "families/mine.yaml:11:3: the example is not what the format renders: '<u>Hi\\n'",
        ),
        (GOOD[GOOD.index("example") :], "", "families/mine.yaml:1:1: there is no example"),
        (
            "roles:",
            'reasoning: {start: "<t>", end: ""}\nroles:',
            "families/mine.yaml:4:32: 'end' is empty; what stands around reasoning",
        ),
        (
            "roles:",
            'thought: {start: "", end: ""}\nroles:',
            "families/mine.yaml:4:27: 'end' is empty; the end of thoughts",
        ),
        ('["<u>"]', '["<u>", ""]', "families/mine.yaml:3:19: an entry of 'specials' is empty; leave it out"),
        ("title: My", 'title: "\\uD83D\\uDE00" #', "families/mine.yaml:2:8: 'title' holds half of a surrogate pair"),
        ("title: My", "? [a, b]\n: 3\ntitle: My", "families/mine.yaml:2:3: expected a key, found a list"),
    ],
)
def test_mistakes_in_families(tmp_path: Path, old: str, new: str, message: str):
    assert old in GOOD
    assert any(found.startswith(message) for found in findings(tmp_path, GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "family: mine",
            "family: mien",
            "pairs/mine.yaml:1:1: never applies: there is no family 'mien'; did you mean 'mine'?",
        ),
        (
            '"<a>", draft',
            '"<u>", draft',
            "pairs/mine.yaml:6:14: ambiguous: '<u>' becomes 'y' here but 'x' in pairs/mine.yaml:5:14",
        ),
        (
            '"<a>", draft: "y"',
            '"<u>", draft: "x"',
            "pairs/mine.yaml:6:14: unreachable: the same rule as in pairs/mine.yaml:5:14",
        ),
        ('"<a>", draft: "y"', '"x", draft: "<u>"', "pairs/mine.yaml:6:14: the rules lead in a circle: '<u>' -> 'x'"),
        ('"*toy*"', '""', "pairs/mine.yaml:3:8: 'draft' has no condition, or an empty one"),
        ('"<a>", draft', '"", draft', "pairs/mine.yaml:6:14: 'target' is empty; it must name what is to be replaced"),
    ],
)
def test_mistakes_in_pairs(tmp_path: Path, old: str, new: str, message: str):
    assert old in PAIR
    assert findings(tmp_path, pair=PAIR.replace(old, new, 1))[0].startswith(message)


def test_files_that_compete(tmp_path: Path):
    other = PAIR.replace("pair: mine", "pair: other")
    twin = GOOD.replace("family: mine", "family: twin")
    found = findings(tmp_path, more={"pairs/other.yaml": other, "families/twin.yaml": twin})
    assert found[0].startswith("families/twin.yaml:1:1: ambiguous: the same format as ")
    assert found[1].startswith("pairs/other.yaml:1:1: unreachable: applies to the same models as ")


def test_every_broken_file_is_told_not_only_the_first(tmp_path: Path):
    found = findings(
        tmp_path,
        GOOD.replace("title", "titel"),
        PAIR.replace("draft:", "drfat:"),
        {"families/x.yaml": "[", "families/y.yaml": "&a [*a]"},
    )
    assert [text.split(":")[0] for text in found] == [
        "families/mine.yaml",
        "families/x.yaml",
        "families/y.yaml",
        "pairs/mine.yaml",
    ]


def test_a_file_of_ten_megabytes_and_bombs_are_refused_at_once(tmp_path: Path):
    bomb = "\n".join(["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)])
    start = time.process_time()
    found = findings(
        tmp_path,
        "x" * 10_000_000,
        more={"families/b.yaml": bomb, "families/c.yaml": "title: !!python/object/apply:os.system [x]"},
    )
    assert time.process_time() - start < here(2)
    assert "anchors and aliases" in found[0]
    assert "tags ('tag:yaml.org,2002:python/object/apply:os.system') are not allowed" in found[1]
    assert "more than 1000000 bytes" in found[2]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            (("a", "b"), ("b", "a")),
            r"--spec-replace 2: the rules lead in a circle: 'a' -> 'b' -> 'a'\. Rules apply once",
        ),
        (
            (("a", "b"), ("b", "c"), ("c", "a")),
            r"--spec-replace 3: the rules lead in a circle: 'a' -> 'b' -> 'c' -> 'a'",
        ),
        ((("a", "b"), ("a", "c")), r"--spec-replace 2: 'a' is replaced by 'c' here but by 'b' in --spec-replace 1"),
        ((("", "b"),), r"--spec-replace 1: the target side of a replacement is empty"),
    ],
)
def test_cyclic_contradictory_and_empty_rules_are_refused(rules: tuple[tuple[str, str], ...], message: str):
    vocab = toy("t", ("<b>", "<e>"))
    replace = [Replacement(old, new, f"--spec-replace {at}") for at, (old, new) in enumerate(rules, 1)]
    with pytest.raises(MappingError, match=message):
        compile_rules(vocab, vocab, None, PLAIN, replace)


def test_rules_that_only_look_cyclic_are_not():
    vocab = toy("t", ("<b>", "<e>"))
    for rules in ((("a", "a"),), (("a", "b"), ("b", "b")), (("a", "b"), ("c", "a"))):
        compile_rules(vocab, vocab, None, PLAIN, [Replacement(old, new, "x") for old, new in rules])


def test_files_that_would_never_be_read_are_errors(tmp_path: Path):
    found = findings(
        tmp_path, more={"pairs/other.yml": PAIR, "pairs/.#mine.yaml": "an editor's", "pairs/._mine.yaml": ""}
    )
    assert found == ["pairs/other.yml: files of rules end in .yaml; rename it"]
    for folder in (tmp_path / "pairs", tmp_path / "families"):  # one level too deep
        text = f"{folder}: none of the folders families, pairs, calls is in it, where files of mappings lie"
        assert [finding.text for finding in lint([folder])[1]] == [text]
        with pytest.raises(MappingError, match="none of the folders"):
            load_families([folder])


def test_a_missing_directory_is_told_once(tmp_path: Path):
    n_files, found = lint([tmp_path / "nowhere"])
    assert (n_files, [finding.text for finding in found]) == (0, [f"{tmp_path}/nowhere: no such directory of mappings"])
