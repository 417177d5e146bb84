"""Recognition of families, and the choice between command line, pair files and families."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.templates_toys import FAMILY_SPECIALS, family_vocab, named, sample, toy

from uad.base.errors import MappingError
from uad.text.mapping.families import bundled_mappings, load_families
from uad.text.mapping.patterns import encode_parts
from uad.text.mapping.plan import Options, Side, plan, usable_template
from uad.text.mapping.recognise import recognise
from uad.text.templates.render import render
from uad.text.templates.seams import Part

FAMILIES = load_families([bundled_mappings()])
CORE = [name for name in FAMILY_SPECIALS if name in FAMILIES and name != "plain"]
GEMMA_2 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% "
    "endif %}"
    "{% for message in messages %}{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else "
    "message['role']) + '\n' "
    "+ message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<start_of_turn>model\n' }}{% endif %}"
)


def side(family: str, template: str | None = None) -> Side:
    return Side(family_vocab(family), template, f"toy-{family}")


@pytest.mark.parametrize("family", CORE)
def test_every_family_recognises_its_own_template(family: str):
    found = recognise(side(family, FAMILIES[family].template()), FAMILIES)
    assert found.family is not None
    assert (found.family.name, found.score) == (family, 1.0)
    assert "exactly" in found.reason


@pytest.mark.parametrize(
    ("name", "family"), [("target-chatml", "chatml"), ("draft-zephyr", "zephyr"), ("draft-gemma", "gemma")]
)
def test_bundled_models_are_recognised(name: str, family: str):
    found = recognise(sample(name), FAMILIES)
    assert found.family is FAMILIES[family]
    assert found.score == 1.0


def test_a_template_that_refuses_system_messages_is_recognised_by_the_rest():
    found = recognise(side("gemma", GEMMA_2), FAMILIES)
    assert found.family is FAMILIES["gemma"]


def test_a_template_with_a_preamble_is_recognised_by_its_turns():
    template = (
        "{{ '<|im_start|>system\nToday is Monday. Tools: none of them.<|im_end|>\n' }}" + FAMILIES["chatml"].template()
    )
    found = recognise(side("chatml", template), FAMILIES)
    assert found.family is FAMILIES["chatml"]


@pytest.mark.parametrize(
    ("family", "expected"),
    [("chatml", "chatml"), ("phi-4", "phi-4"), ("gemma", "gemma"), ("plain", None), ("mistral-v1", None)],
)
def test_without_a_template_the_specials_decide(family: str, expected: str | None):
    found = recognise(side(family), FAMILIES)
    assert (found.family.name if found.family else None) == expected
    assert "no chat template" in found.reason


def test_an_unknown_template_is_no_family():
    template = "{% for m in messages %}{{ '@@' + m.role + '@@ ' + m.content + ' !!' }}{% endfor %}"
    found = recognise(side("plain", template), FAMILIES)
    assert found.family is None
    assert "like no known format" in found.reason


def test_notes_say_what_was_found_and_why():
    notes = plan(sample("target-chatml"), sample("draft-gemma"), Options()).notes
    assert (
        notes[0]
        == "target target-chatml: chatml (score 1.00: its template renders a conversation exactly as chatml does)"
    )
    assert notes[1].startswith("draft draft-gemma: gemma (score 1.00")
    assert notes[2] == "rules: families chatml -> gemma"


def test_unknown_on_both_sides_passes_text_and_leaves_specials_out():
    target = Side(toy("t", ("<b>", "<e>", "<x>")), "<x>{{ messages[0].content }}", "t")
    found = plan(target, side("plain"), Options())
    assert found.notes[-2:] == (
        "rules: none; text passes as it is and the target's specials are left out",
        "warning: no rule for <x>: left out of what the draft sees",
    )
    stream = found.rules.stream()
    ids = [target.vocab.specials["<x>"], *b"hello"]
    assert named(stream.feed(ids) + stream.flush(), found.rules.draft) == "hello"


def test_families_can_be_given_by_hand():
    found = plan(side("chatml"), side("plain"), Options(target_family="phi-4", draft_family="zephyr"))
    assert found.target_family.family == FAMILIES["phi-4"]
    assert found.draft_family.reason == "given by --draft-family"
    with pytest.raises(
        MappingError, match=r"--target-family: there is no chat format family 'chatm'; did you mean 'chatml'"
    ):
        plan(side("chatml"), side("plain"), Options(target_family="chatm"))


def translated(target: Side, draft: Side, options: Options, text: str) -> str:
    stream = plan(target, draft, options).rules.stream()
    ids = encode_parts([Part(text, True)], target.vocab, target.vocab.tokenize)
    return named(stream.feed(ids) + stream.flush(), draft.vocab)


TALK = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_precedence(tmp_path: Path):
    target, draft = side("chatml"), side("gemma")
    (tmp_path / "pairs").mkdir()
    pair = "pair: p\ntarget: {name: '*CHATML'}\ndraft: {family: gemma}\nreplace:\n"
    (tmp_path / "pairs" / "p.yaml").write_text(
        pair + '  - {target: "<|im_start|>user\\n", draft: "P:"}\n  - {target: "<|im_end|>\\n", draft: "|"}\n',
        encoding="utf-8",
    )
    families = Options()
    with_pair = Options(mappings=(tmp_path,))
    by_hand = Options(mappings=(tmp_path,), replace=(("<|im_start|>user\n", "H:"),))
    assert (
        translated(target, draft, families, TALK) == "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
    )
    assert translated(target, draft, with_pair, TALK) == "<bos>P:Hi|<start_of_turn>model\n"
    assert translated(target, draft, by_hand, TALK) == "<bos>H:Hi|<start_of_turn>model\n"
    assert (
        plan(target, draft, by_hand).notes[-2]
        == f"rules: 1 from --spec-replace, then pair p ({tmp_path / 'pairs' / 'p.yaml'}), then families chatml -> gemma"
    )


def test_a_pair_whose_specials_are_missing_is_passed_over_with_a_line(tmp_path: Path):
    (tmp_path / "pairs").mkdir()
    text = 'pair: p\ntarget: {family: chatml}\ndraft: {family: gemma}\nreplace:\n  - {target: "<|nope|>", draft: ""}\n'
    (tmp_path / "pairs" / "p.yaml").write_text(text, encoding="utf-8")
    notes = plan(side("chatml"), side("gemma"), Options(mappings=(tmp_path,))).notes
    assert any(note.startswith("pair p is not used: ") and "<|nope|>" in note for note in notes)


def test_the_missions_own_pair():
    target = Side(family_vocab("chatml"), FAMILIES["chatml"].template(), "Qwen2.5 7B Instruct")
    draft = Side(toy("pythia", ("<|endoftext|>",)), None, "Pythia 160m")
    found = plan(target, draft, Options())
    assert "rules: pair qwen-pythia" in found.notes[2]
    assert translated(target, draft, Options(), "<|im_start|>system\nS<|im_end|>\n" + TALK) == "S\n\nQ:\n\nHi\n\nA:\n\n"
    assert found.rules.back(draft.vocab.specials["<|endoftext|>"]) == (target.vocab.specials["<|im_end|>"],)


def test_models_without_a_template_get_one():
    template, note = usable_template(side("gemma"), Options())
    assert note == (
        "warning: toy-gemma has no chat template, as base models that were not trained for chats; messages are written "
        "in the format gemma; --chat-template-file gives it one"
    )
    assert (
        render(template, [{"role": "user", "content": "Hi"}], bos="<bos>").text
        == "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
    )
    template, note = usable_template(side("plain"), Options())
    assert render(template, [{"role": "user", "content": "Hi"}]).text == "User:\nHi\n\nAssistant:\n"
    assert "in the format plain; --chat-template-file" in note
    assert usable_template(Side(family_vocab("gemma"), "{{ messages[0].content }}", "own"), Options()) == (
        "{{ messages[0].content }}",
        "",
    )


@pytest.mark.parametrize(
    "template", ["{{ .System }}{{ range .Messages }}{{ .Content }}{{ end }}", "{% for %}", "{{ x | none }}"]
)
def test_a_template_that_is_no_jinja_names_the_model_and_the_way_out(template: str):
    used, note = usable_template(Side(family_vocab("gemma"), template, "toy-gemma"), Options())
    assert used == usable_template(side("gemma"), Options())[0]
    assert note.startswith("warning: toy-gemma: the chat template is not valid Jinja, line 1: ")
    assert note.endswith("; messages are written in the format gemma; give another template with --chat-template-file")
