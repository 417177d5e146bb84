"""Measured costs and rules of formats in predictions of what a draft gains."""

import json
import os

import pytest
from gguf import GGUFWriter, TokenType
from kit.headers import finish

from uad.base.model_files import fingerprint
from uad.pairs.choose import views
from uad.pairs.costs import Curve, stored
from uad.pairs.costs import measured as measured_of
from uad.pairs.formats import chat_format, reads_chats
from uad.pairs.header import HeaderFacts, stamp
from uad.pairs.predict import predicted

BIG = HeaderFacts("llama", "big", 1_500_000_000, 1_600_000_000, "Q8_0", 4096, 64, 1000, "{{ x }}")
SMALL = HeaderFacts("llama", "small", 135_000_000, 100_000_000, "Q8_0", 4096, 64, 1000, "{{ x }}")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ODD = (
    "{% for m in messages %}<<{{ m.role }}>>{{ m.content }}<</>>{% endfor %}"
    "{% if add_generation_prompt %}<<assistant>>{% endif %}"
)
BROKEN = "{{ raise_exception('no') }}"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache" / "profiles"
    folder.mkdir(parents=True)
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def measured(path, of, role):
    return measured_of(path, of, role, stored())


def write(path, template=None, specials=(), rows=1):
    writer = GGUFWriter(path, "llama")
    writer.add_token_list(["a", "b", *specials])
    writer.add_token_types([TokenType.NORMAL] * 2 + [TokenType.CONTROL] * len(specials))
    if template is not None:
        writer.add_chat_template(template)
    finish(writer, rows)
    return path


def keep(cache, name, model, samples, role="target", version=1, changed=1):
    file = cache / f"{name}.json"
    facts = {"model": fingerprint(model), "role": role}
    file.write_text(json.dumps({"version": version, "facts": facts, "samples": samples}), encoding="utf-8")
    os.utime(file, (changed, changed))


# --- costs


def test_a_curve_lies_between_what_was_measured_and_goes_on_beyond_it():
    one = Curve("m", "target", ((1, 10.0), (2, 12.0), (4, 20.0)))
    assert [one.ms(n) for n in (1, 2, 3, 4, 8)] == [10.0, 12.0, 16.0, 20.0, 36.0]
    assert Curve("m", "draft", ((1, 3.0),)).ms(1) == 3.0


def test_measured_costs_win_over_sizes():
    flat = Curve("t", "target", tuple((n, 10.0) for n in range(1, 17)))
    steep = Curve("t", "target", tuple((n, 10.0 * n) for n in range(1, 17)))
    quick, slow = Curve("d", "draft", ((1, 0.2),)), Curve("d", "draft", ((1, 9.0),))
    by_size = predicted(BIG, SMALL, 1.0)
    assert predicted(BIG, SMALL, 1.0, curves=(None, quick)) == by_size  # of no use without the target's
    best = predicted(BIG, SMALL, 1.0, curves=(flat, quick))
    assert best.cost == pytest.approx(0.02)
    assert best.gain > predicted(BIG, SMALL, 1.0, curves=(flat, None)).gain > by_size.gain
    assert predicted(BIG, SMALL, 1.0, curves=(flat, slow)).gain < by_size.gain
    assert predicted(BIG, SMALL, 1.0, curves=(steep, quick)).n == 0


def test_the_newest_curve_of_a_model_in_its_role_counts(tmp_path, cache):
    model, other = write(tmp_path / "m.gguf"), write(tmp_path / "o.gguf", rows=2)
    of = stamp(model)
    assert measured(model, of, "target") is None
    keep(cache, "old", model, [[1, 0, 9.0]], changed=1)
    keep(cache, "new", model, [[1, 512, 8.0], [1, 0, 7.0], [2, 0, 7.5], [2, 512, 9.0]], changed=2)
    keep(cache, "other", other, [[1, 0, 1.0]], changed=3)
    assert measured(model, of, "target") == Curve(fingerprint(model), "target", ((1, 7.0), (2, 7.5)))
    assert measured(model, of, "draft").points == ((1, 7.0), (2, 7.5))  # measured as a target only
    keep(cache, "draft", model, [[1, 0, 6.0]], role="draft", changed=1)
    assert measured(model, of, "draft").points == ((1, 6.0),)


@pytest.mark.parametrize(
    ("samples", "version"), [([[1, 0, 5.0]], 2), ([], 1), ([[2, 0, 5.0]], 1), ([[1, 0, -1.0]], 1), ("?", 1), (None, 1)]
)
def test_a_curve_that_cannot_be_used_is_none(tmp_path, cache, samples, version):
    model = write(tmp_path / "m.gguf")
    keep(cache, "bad", model, samples, version=version)
    (cache / "worse.json").write_bytes(b"\xff{")
    assert measured(model, stamp(model), "target") is None


def test_choices_know_what_was_measured(tmp_path, cache):
    target, draft = write(tmp_path / "t.gguf", rows=64), write(tmp_path / "d.gguf")
    (before,) = views(target, [draft])
    keep(cache, "t", target, [[n, 0, 10.0] for n in range(1, 12)])
    keep(cache, "d", draft, [[1, 0, 0.1]], role="draft")
    (after,) = views(target, [draft])
    assert before.prediction.n == 0  # of so few numbers a step costs more than a decode of the target
    assert (after.prediction.cost, after.prediction.n > 0) == (pytest.approx(0.01), True)


# --- formats


@pytest.mark.parametrize(
    ("target", "draft", "knows"),
    [
        ((CHATML, ("<|im_start|>", "<|im_end|>")), (CHATML, ("<|im_start|>", "<|im_end|>")), True),
        ((CHATML, ("<|im_start|>", "<|im_end|>")), (ODD,), True),  # a derived format
        ((ODD,), (None, ("<|im_start|>", "<|im_end|>")), True),  # known by its specials
        ((CHATML, ("<|im_start|>", "<|im_end|>")), (None,), False),
        ((BROKEN,), (CHATML, ("<|im_start|>", "<|im_end|>")), False),
        ((BROKEN,), (BROKEN,), True),  # the same needs no rules
        ((None,), (None,), True),
        ((None,), (CHATML,), True),
    ],
)
def test_a_draft_gets_conversations_in_a_format_it_knows_where_rules_turn_them(tmp_path, target, draft, knows):
    made = [write(tmp_path / f"{name}.gguf", *of) for name, of in (("t", target), ("d", draft))]
    assert reads_chats(*(chat_format(one, stamp(one)) for one in made)) is knows


def test_the_rules_of_a_pair_count(tmp_path):
    """Pythia knows no chats; `mappings/pairs/` has rules for it."""
    target = write(tmp_path / "qwen-7b.gguf", CHATML, ("<|im_start|>", "<|im_end|>", "<|endoftext|>"))
    pythia, other = (tmp_path / f"{name}.gguf" for name in ("pythia-70m", "other"))
    for one in (pythia, other):
        write(one, None, ("<|endoftext|>",))
    known = [reads_chats(chat_format(target, stamp(target)), chat_format(one, stamp(one))) for one in (pythia, other)]
    assert known == [True, False]


def test_a_file_that_cannot_be_read_has_no_format(tmp_path):
    broken = tmp_path / "b.gguf"
    broken.write_bytes(b"GGUF")
    assert chat_format(broken, stamp(broken)).recognised.family is None


def test_a_draft_without_chats_is_worth_less():
    assert predicted(BIG, SMALL, 1.0, reads_chats=False).gain < predicted(BIG, SMALL, 1.0).gain
