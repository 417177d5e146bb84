"""Translation of a target's stream into the draft's format."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.templates_toys import FAMILY_SPECIALS, family_vocab, items_of, named, sample, toy

from uad.base.errors import MappingError
from uad.text.mapping.compile import Replacement, compile_rules
from uad.text.mapping.families import Family, PlainMessage, bundled_mappings, load_families
from uad.text.mapping.patterns import encode_parts, normalise
from uad.text.mapping.plan import Options, Side, plan
from uad.text.mapping.recognise import bos_name, eos_name
from uad.text.mapping.rules import CompiledRules
from uad.text.templates.render import render
from uad.text.templates.seams import Part
from uad.text.vocab.table import VocabTable

FAMILIES = load_families([bundled_mappings()])
CORE = [name for name in FAMILY_SPECIALS if name in FAMILIES]
SYSTEM = PlainMessage("system", "Be brief.")
TALK = (PlainMessage("user", "\nHello é"), PlainMessage("assistant", "Hi  there\n"), PlainMessage("user", "us the end"))


def rules_for(read: str, write: str, *replace: tuple[str, str], **options: object) -> CompiledRules:
    given_rules = [Replacement(old, new, f"--spec-replace {at}") for at, (old, new) in enumerate(replace, 1)]
    return compile_rules(
        family_vocab(read), family_vocab(write, **options), FAMILIES[read], FAMILIES[write], given_rules
    )


def ids_of(text: str, vocab: VocabTable) -> list[int]:
    return encode_parts([Part(text, True)], vocab, vocab.tokenize)


def translate(rules: CompiledRules, ids: list[int]) -> str:
    stream = rules.stream()
    return named(stream.feed(ids) + stream.flush(), rules.draft)


def written(family: Family, messages: tuple[PlainMessage, ...], vocab: VocabTable, prompt: bool = True) -> str:
    text = family.render(messages, bos_name(vocab), eos_name(vocab), add_generation_prompt=prompt)
    return text if not vocab.add_bos or text.startswith(bos_name(vocab)) else bos_name(vocab) + text


def merged(messages: tuple[PlainMessage, ...]) -> tuple[PlainMessage, ...]:
    """The conversation as a format tells it that has no marker of its own for the system message."""
    if messages[0].role != "system":
        return messages
    return (PlainMessage("user", f"{messages[0].content}\n\n{messages[1].content}"), *messages[2:])


@pytest.mark.parametrize("messages", [TALK, (SYSTEM, *TALK)], ids=["talk", "system"])
@pytest.mark.parametrize(("read", "write"), [pair for pair in itertools.product(CORE, CORE) if pair[0] != "plain"])
def test_every_family_into_every_other(read: str, write: str, messages: tuple[PlainMessage, ...]):
    rules = rules_for(read, write)
    prompt = ids_of(written(FAMILIES[read], messages, rules.target), rules.target)
    source = FAMILIES[read]
    told = merged(messages) if source.system == "prefix" and not source.roles["system"].start else messages
    assert translate(rules, prompt) == written(FAMILIES[write], told, rules.draft)


@pytest.mark.parametrize("draft", ["draft-zephyr", "draft-gemma"])
@pytest.mark.parametrize(
    "messages", [TALK, (SYSTEM, *TALK), (PlainMessage("user", " <|im_end|> "),)], ids=["talk", "system", "typed"]
)
def test_bundled_models_agree_with_their_own_templates(draft: str, messages: tuple[PlainMessage, ...]):
    target, other = sample("target-chatml"), sample(draft)
    asked = [{"role": message.role, "content": message.content} for message in messages]

    def prompt(side: Side) -> list[int]:
        parts = render(side.chat_template or "", asked, bos=bos_name(side.vocab), eos=eos_name(side.vocab)).parts
        return encode_parts(parts, side.vocab, side.vocab.tokenize)

    stream = plan(target, other, Options()).rules.stream()
    assert normalise(stream.feed(prompt(target)) + stream.flush()) == items_of(prompt(other), other.vocab)


@pytest.mark.parametrize(
    "messages", [(*TALK, PlainMessage("assistant", "ok")), (SYSTEM, *TALK, PlainMessage("assistant", "ok"))]
)
def test_a_finished_answer_ends_the_turn_even_without_the_newline(messages: tuple[PlainMessage, ...]):
    rules = rules_for("chatml", "gemma")
    text = written(FAMILIES["chatml"], messages, rules.target, prompt=False).rstrip("\n")
    assert translate(rules, ids_of(text, rules.target)).endswith("<start_of_turn>model\nok<end_of_turn>")


def test_tool_and_unknown_roles_pass_as_user():
    rules = rules_for("chatml", "gemma")
    text = "<|im_start|>tool\n42<|im_end|>\n<|im_start|>critic\nbad<|im_end|>\n"
    expected = "<start_of_turn>user\n42<end_of_turn>\n<start_of_turn>user\ncritic\nbad<end_of_turn>\n"
    assert translate(rules, ids_of(text, rules.target)) == "<bos>" + expected


def test_system_before_the_assistant_closes_the_user_turn():
    rules = rules_for("chatml", "gemma")
    text = "<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
    assert (
        translate(rules, ids_of(text, rules.target))
        == "<bos><start_of_turn>user\nS\n\n<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
    )


PIECES = st.sampled_from(
    (
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "user\n",
        "us",
        "er",
        "system\n",
        "assistant\n",
        "\n",
        "x",
        "[INST] ",
        " ",
    )
)
REPLACE = (("<|im_start|>user\n", "\n[U] "), ("xx\n", "y"), ("<|im_end|>\n<|endoftext|>", ""))


@given(
    st.lists(PIECES, max_size=30), st.data(), st.sampled_from(["gemma", "zephyr", "mistral-v3", "plain"]), st.booleans()
)
def test_streaming_equals_whole(pieces: list[str], data: st.DataObject, write: str, explicit: bool):
    rules = rules_for("chatml", write, *(REPLACE if explicit else ()))
    check_cuts(rules, ids_of("".join(pieces), rules.target), data)


@given(
    st.lists(st.sampled_from((" [INST] ", "[INST]", " [/INST]", "[/", "</s>", "<s>", " ", "a", "[IN")), max_size=30),
    st.data(),
)
def test_streaming_equals_whole_where_markers_are_letters(pieces: list[str], data: st.DataObject):
    rules = rules_for("mistral-v1", "chatml", add_space_prefix=True)
    check_cuts(rules, ids_of("".join(pieces), rules.target), data)


@given(st.lists(st.integers(0, 276), max_size=40), st.data(), st.sampled_from(CORE), st.sampled_from(CORE))
def test_streaming_equals_whole_on_any_ids(ids: list[int], data: st.DataObject, read: str, write: str):
    rules = rules_for(read, write)
    check_cuts(rules, [id_ % rules.target.n_vocab for id_ in ids], data)


def check_cuts(rules: CompiledRules, ids: list[int], data: st.DataObject) -> None:
    whole = rules.stream()
    expected = normalise(whole.feed(ids) + whole.flush())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    stream = rules.stream()
    got = []
    for start, end in itertools.pairwise([0, *cuts, len(ids)]):
        got += stream.feed(ids[start:end])
    assert normalise(got + stream.flush()) == expected
    stream = rules.stream()
    assert normalise([item for id_ in ids for item in stream.feed([id_])] + stream.flush()) == expected


@given(st.lists(st.binary(max_size=4), max_size=8))
def test_text_passes_with_pending_as_its_tail(chunks: list[bytes]):
    rules = rules_for("chatml", "gemma", ("ab\n", "z"))
    stream = rules.stream()
    stream.feed(ids_of("<|im_start|>assistant\n", rules.target))
    seen = b""
    for chunk in chunks:
        out = b"".join(item for item in stream.feed(list(chunk)) if isinstance(item, bytes))
        seen += out
        assert b"ab\n".startswith(stream.pending)
    text = b"".join(chunks)
    assert seen + stream.pending == text.replace(b"ab\n", b"z")


def test_pending_is_empty_after_a_prompt():
    for read, write in itertools.product(CORE, CORE):
        rules = rules_for(read, write)
        stream = rules.stream()
        before = stream.feed(ids_of(written(FAMILIES[read], TALK, rules.target), rules.target))
        assert (stream.pending, stream.flush()) == (b"", []), (read, write)
        assert before


@pytest.mark.parametrize("write", CORE)
@pytest.mark.parametrize("read", CORE)
def test_the_drafts_end_of_turn_is_offered_as_the_targets(read: str, write: str):
    rules = rules_for(read, write)
    draft_end = named([rules.draft.eos], rules.draft) if write != "llama-3" else "<|eot_id|>"
    names = {"gemma": "<end_of_turn>", "phi-3": "<|end|>", "llama-3": "<|eot_id|>"}
    ends = {"chatml": "<|im_end|>", "phi-4": "<|im_end|>"} | names
    expected = ends.get(read, rules.target.special_names[rules.target.eos])
    assert rules.back(rules.draft.specials[names.get(write, draft_end)]) == (rules.target.specials[expected],)


def test_specials_without_a_meaning_end_the_draft():
    assert rules_for("chatml", "gemma").back(family_vocab("gemma").specials["<start_of_turn>"]) == ()


def test_replacements_win_over_families_and_keep_the_rest():
    rules = rules_for("chatml", "gemma", ("<|im_start|>user\n", "Q:"))
    text = written(FAMILIES["chatml"], TALK[:1], rules.target)
    assert translate(rules, ids_of(text, rules.target)) == "<bos>Q:\nHello é<end_of_turn>\n<start_of_turn>model\n"


def test_a_shorter_replacement_hides_longer_family_patterns():
    rules = rules_for("chatml", "gemma", ("<|im_start|>", "#"))
    assert translate(rules, ids_of("<|im_start|>user\nx<|im_end|>\n", rules.target)) == "<bos>#user\nx<end_of_turn>\n"


def test_text_to_text_replacement():
    rules = rules_for("plain", "plain", ("colour", "color"))
    assert translate(rules, ids_of("a colourful colou", rules.target)) == "a colorful colou"


def test_replacements_work_backwards_from_a_special():
    rules = rules_for(
        "chatml", "zephyr", ("<|im_end|>\n", "<|user|>"), ("yes", "<|system|>"), ("<|im_start|>user\n", "<s>x")
    )
    target, draft = rules.target.specials, rules.draft.specials
    assert rules.back(draft["<|user|>"]) == (target["<|im_end|>"],)
    assert rules.back(draft["<|system|>"]) == tuple(rules.target.tokenize(b"yes"))
    assert rules.back(draft["<s>"]) == (target["<|im_start|>"],)


def test_missing_special_in_a_replacement_is_named_with_the_nearest():
    with pytest.raises(
        MappingError,
        match=r"--spec-replace 1.*<\|im_ends\|>.*nearest that it has is <\|im_end\|>.*write \\<\|im_ends\|>",
    ):
        rules_for("chatml", "gemma", ("<|im_ends|>", "x"))
    with pytest.raises(MappingError, match=r"<end_of_turns>.*toy-gemma.*<end_of_turn>"):
        rules_for("chatml", "gemma", ("<|im_end|>", "<end_of_turns>"))
    with pytest.raises(MappingError, match=r"\[INST\]"):
        rules_for("chatml", "gemma", ("x", "[INST]"))


def test_escapes_make_letters_of_special_names():
    rules = rules_for("chatml", "plain", (r"\<|im_end|>\n", r"\[INST]"))
    assert translate(rules, [*b"<|im_end|>\n"]) == "[INST]"
    assert translate(rules, ids_of("<|im_end|>\n", rules.target)) == "\n\n"


def test_contradictory_and_empty_replacements_are_refused():
    with pytest.raises(MappingError, match=r"--spec-replace 2.*'b' here but by 'a' in --spec-replace 1"):
        rules_for("chatml", "gemma", ("x", "a"), ("x", "b"))
    with pytest.raises(MappingError, match="target side of a replacement is empty"):
        rules_for("chatml", "gemma", ("", "b"))


def test_unreachable_replacement_is_told():
    vocab = family_vocab("chatml")
    rules = [Replacement("ab", "1", "command line", 0), Replacement("abc", "2", "file:3", 1)]
    assert compile_rules(vocab, vocab, None, FAMILIES["plain"], rules).warnings == (
        "file:3: the rule for 'abc' never applies; a rule with precedence matches first",
    )


def test_shared_specials_pass_unless_a_format_uses_them():
    target = toy("t", ("<b>", "<|im_end|>", "<|im_start|>", "<think>", "<other>", "<|user|>"))
    draft = toy("d", ("<b>", "</s>", "<think>", "<|user|>", "<|assistant|>"))
    rules = compile_rules(target, draft, FAMILIES["chatml"], FAMILIES["zephyr"], template="... <other> ...")
    assert translate(rules, ids_of("<|im_start|>user\na<think>b<other>c<|user|>d", target)) == "<|user|>\na<think>bcd"
    assert rules.back(draft.specials["<think>"]) == (target.specials["<think>"],)
    assert rules.dropped == {target.specials["<other>"], target.specials["<|user|>"]}
    assert rules.warnings == ("no rule for <other>: left out of what the draft sees",)


def test_end_of_document_becomes_end_of_document():
    target, draft = toy("t", ("<|endoftext|>",)), toy("d", ("</s>",))
    rules = compile_rules(target, draft, None, FAMILIES["plain"])
    assert translate(rules, [*b"a", target.specials["<|endoftext|>"], *b"b"]) == "a</s>b"


def test_space_prefix_of_the_target_is_taken_off_and_of_the_draft_put_on():
    target = family_vocab("mistral-v1", add_space_prefix=True)
    draft = family_vocab("mistral-v3", add_space_prefix=True)
    text = written(FAMILIES["mistral-v1"], TALK[:2], target, prompt=False)
    into_chatml = compile_rules(target, family_vocab("chatml"), FAMILIES["mistral-v1"], FAMILIES["chatml"])
    assert translate(into_chatml, ids_of(text, target)) == written(
        FAMILIES["chatml"], TALK[:2], into_chatml.draft, False
    )
    back = compile_rules(family_vocab("chatml"), draft, FAMILIES["chatml"], FAMILIES["mistral-v3"])
    ids = ids_of(written(FAMILIES["chatml"], TALK[:2], back.target, False), back.target)
    stream = back.stream()
    own = ids_of(written(FAMILIES["mistral-v3"], TALK[:2], draft, False), draft)
    assert normalise(stream.feed(ids) + stream.flush()) == items_of(own, draft)


def test_white_space_swallowed_by_specials_is_not_looked_for():
    vocab = family_vocab("phi-3")
    phi = family_vocab(
        "phi-3",
        rstrip=frozenset(vocab.specials[name] for name in ("<|user|>", "<|assistant|>", "<|end|>", "<|system|>")),
    )
    there = compile_rules(phi, family_vocab("chatml"), FAMILIES["phi-3"], FAMILIES["chatml"])
    ids = ids_of(written(FAMILIES["phi-3"], (SYSTEM, *TALK[1:]), phi), phi)
    assert b"\n"[0] not in ids[:3]
    assert translate(there, ids).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\nHi")
    back = compile_rules(family_vocab("chatml"), phi, FAMILIES["chatml"], FAMILIES["phi-3"])
    stream = back.stream()
    own = ids_of(written(FAMILIES["phi-3"], TALK, phi), phi)
    assert normalise(
        stream.feed(ids_of(written(FAMILIES["chatml"], TALK, back.target), back.target)) + stream.flush()
    ) == items_of(own, phi)


ALL_SPECIALS = sorted({name for names in FAMILY_SPECIALS.values() for name in names})
LOOKALIKES = st.lists(
    st.sampled_from([*ALL_SPECIALS, "user\n", "system\n", "\n", " ", "a", "<", "|>"]), max_size=12
).map("".join)


@pytest.mark.parametrize("read", [name for name in CORE if name not in ("plain", "mistral-v1")])
@settings(max_examples=25)
@given(content=LOOKALIKES)
def test_typed_specials_stay_letters(read: str, content: str):
    """In every format whose markers are specials, whatever a user types reaches the draft byte by byte, between the
    same specials.
    """
    vocab, family = family_vocab(read), FAMILIES[read]
    frame = written(family, (PlainMessage("user", "@@"),), vocab).split("@@")
    ids = encode_parts([Part(frame[0], True), Part(content, False), Part(frame[1], True)], vocab, vocab.tokenize)
    harmless = encode_parts([Part(frame[0], True), Part("x", False), Part(frame[1], True)], vocab, vocab.tokenize)
    assert [id_ for id_ in ids if vocab.is_special(id_)] == [id_ for id_ in harmless if vocab.is_special(id_)]
    for write in ("chatml", "gemma", "zephyr"):
        rules = rules_for(read, write)
        start, end = translate(rules, harmless).split("x", 1)
        spaces = len(content) - len(content.lstrip(" ")) if frame[0].endswith(" ") else 0
        assert start + content[min(spaces, 0) :] + end == translate(rules, ids)
