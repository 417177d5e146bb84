"""Formats derived from chat templates, pair files written from them, and the choice between families, derived formats
and plain text.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.templates_toys import named, sample, toy, vocab_of

from uad.base.errors import InvalidRequestError, MappingError
from uad.text.mapping.derive import derive
from uad.text.mapping.emit import pair_name, pair_text
from uad.text.mapping.families import Turn, bundled_mappings, load_families
from uad.text.mapping.pairs import load_pair
from uad.text.mapping.patterns import encode_parts
from uad.text.mapping.plan import Options, Side, plan
from uad.text.templates.seams import Part

FAMILIES = load_families([bundled_mappings()])
VOCAB = toy("t", ("<b>", "<e>", "<|a|>", "<|z|>"))


def side(template: str) -> Side:
    return Side(VOCAB, template, "toy")


OWN = (
    "{% if messages[0].role == 'system' %}<|a|>SYS{{ messages[0].content }}<|z|>{% set messages = messages[1:] %}"
    "{% else %}<|a|>SYSI am a robot of {{ strftime_now('%Y') }}.<|z|>{% endif %}"
    "{% for m in messages %}<|a|>{{ m.role | upper }}:{{ m.content }}<|z|>{% endfor %}"
    "{% if add_generation_prompt %}<|a|>ASSISTANT:{% endif %}"
)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_format_of_every_familys_own_template_is_derived_exactly(name: str):
    """What a template says of itself: turns, and what stands for no system message. Thoughts it does not write."""
    found = derive(Side(vocab_of(FAMILIES[name]), FAMILIES[name].template(), name))
    assert found.exact, found.notes


def test_defaults_and_dates_of_a_template_are_part_of_its_format():
    found = derive(side(OWN))
    assert found.family.roles["user"] == Turn("<|a|>USER:", "<|z|>")
    assert found.family.roles["system"] == Turn("<|a|>SYS", "<|z|>")
    assert found.family.no_system.startswith("<|a|>SYSI am a robot of 20")


def test_thoughts_are_derived_from_a_message_that_has_some():
    template = (
        "{% for m in messages %}<|a|>{{ m.role }}\n{% if m.reasoning_content %}<thinking>{{ m.reasoning_content "
        "}}</thinking>\n{% endif %}"
        "{{ m.content }}<|z|>{% endfor %}{% if add_generation_prompt %}<|a|>assistant\n{% endif %}"
    )
    assert derive(side(template)).family.reasoning == Turn("<thinking>", "</thinking>\n")


def test_thoughts_are_derived_from_the_generation_prompt():
    template = (
        "{% for m in messages %}<|a|>{{ m.role }}:{{ m.content }}<|z|>{% endfor %}"
        "{% if add_generation_prompt %}<|a|>assistant:<think>\n{% endif %}"
    )
    found = derive(side(template)).family
    assert (found.opening, found.reasoning) == ("<|a|>assistant:", Turn("<think>\n", "\n</think>\n\n"))


@pytest.mark.parametrize(
    ("template", "note", "system"),
    [
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}@",
            "refuses system messages",
            "prefix",
        ),
        (
            "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}@",
            "leaves system messages out",
            "drop",
        ),
    ],
)
def test_what_a_template_cannot_express_is_noted(template: str, note: str, system: str):
    loop = (
        "{% for m in messages %}<|a|>{{ m.role }}:{{ m.content }}<|z|>{% endfor %}{% if add_generation_prompt "
        "%}<|a|>assistant:{% endif %}"
    )
    found = derive(side(template.replace("@", loop)))
    assert note in found.notes[0]
    assert found.family.system == system


def test_a_template_that_renders_no_conversation_is_refused():
    for template in (
        "{{ messages[0].content }}",
        "{% for m in messages | reverse %}{{ m.content }}\n{% endfor %}",
        "{{ raise_exception('x') }}",
    ):
        with pytest.raises(InvalidRequestError, match="does not render a plain conversation in order"):
            derive(side(template))


def test_unknown_families_fall_back_to_deriving_and_then_to_plain_text():
    known = sample("draft-gemma")
    strange = plan(side(OWN), known, Options())
    assert strange.notes[0].startswith(
        "target toy: derived (score 1.00: its template is of no known format, so the format is derived from it"
    )
    stream = strange.rules.stream()
    ids = encode_parts([Part("<|a|>SYSBe brief.<|z|><|a|>USER:Hi<|z|><|a|>ASSISTANT:", True)], VOCAB, VOCAB.tokenize)
    got = named([*stream.feed(ids), *stream.flush()], known.vocab)
    assert got.endswith("<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n")
    broken = plan(side("{{ messages[0].content }}"), known, Options())
    assert "does not render a plain conversation in order, so text passes as it is" in broken.notes[0]
    assert broken.target_family.family is None


def test_a_format_near_a_family_is_derived_where_it_is_not_the_same():
    template = FAMILIES["chatml"].template().replace("|im_end|>", "|im_end|> ")
    vocab = vocab_of(FAMILIES["chatml"])
    found = plan(Side(vocab, template, "odd"), sample("draft-gemma"), Options())
    assert "like chatml, but not the same, so the format is derived from it" in found.notes[0]
    assert found.target_family.family is not None
    assert found.target_family.family.roles["user"].end == "<|im_end|> \n"


def test_a_derived_pair_file_can_be_read_and_wins(tmp_path: Path):
    target, draft = side(OWN), sample("draft-gemma")
    name = pair_name(target.name, draft.name)
    assert name == "toy--draft-gemma"
    (tmp_path / "pairs").mkdir()
    path = tmp_path / "pairs" / f"{name}.yaml"
    text = pair_text(name, (target.name, derive(target)), (draft.name, derive(draft)))
    path.write_text(text, encoding="utf-8")
    pair = load_pair(path)
    assert pair.formats[0] is not None
    assert pair.formats[0].roles == derive(target).family.roles
    edited = text.replace('start: "<start_of_turn>user\\n"', 'start: "<start_of_turn>USER\\n"')
    assert edited != text
    path.write_text(edited, encoding="utf-8")
    found = plan(target, draft, Options(mappings=(tmp_path,)))
    assert f"rules: pair {name} ({path}), then families {name}/target -> {name}/draft" in found.notes
    stream = found.rules.stream()
    ids = encode_parts([Part("<|a|>USER:Hi<|z|>", True)], VOCAB, VOCAB.tokenize)
    assert "<start_of_turn>USER\nHi<end_of_turn>" in named([*stream.feed(ids), *stream.flush()], draft.vocab)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("formats:", "format:", r"unknown key 'format'; did you mean 'formats'\?"),
        ("    roles:", "    role:", r"unknown key 'role'; did you mean 'roles'\?"),
        ("  target:\n    #", "  targets:\n    #", r"unknown key 'targets'; did you mean 'target'\?"),
    ],
)
def test_errors_in_derived_pairs_name_the_place(tmp_path: Path, old: str, new: str, message: str):
    path = tmp_path / "toy.yaml"
    text = pair_text("toy", ("toy", derive(side(OWN))), ("draft-gemma", derive(sample("draft-gemma"))))
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(MappingError, match=rf"toy\.yaml:\d+:\d+: {message}"):
        load_pair(path)
