"""lab/measure_pair.py on the bundled models."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace

import measure_pair as measure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.models import DRAFTS, TARGET, config
from measure_pair import Form, SampleText, draft_track, main, measure_pair, target_track

from uad.base.errors import ConfigError
from uad.base.types import Rows
from uad.engine.policy.cost import CostSample
from uad.tools.bench.gain import chunks

CHAT = tuple(
    SampleText("chat", text, Form.CHAT)
    for text in (
        "Write a Python function that adds length and weight.",
        "Repeat the following sentence, as is:\nThe night train crossed the stone bridge at dusk.",
        "Count from 3 to 21 in steps of 2.",
    )
)


@given(st.text(max_size=300), st.integers(1, 50), st.integers(1, 20))
def test_chunks_are_the_text_in_order(text, size, most):
    pieces = list(chunks(text, size, most))
    assert text.startswith("".join(pieces))
    assert len(pieces) <= most
    assert all(0 < len(piece) <= size for piece in pieces)
    assert len(pieces) == most or "".join(pieces) == text


# --- the bundled models


def pair_config(draft):
    """One thread: several wait for each other where the machine is busy."""
    both = config(draft=draft)
    return replace(both, target=replace(both.target, n_threads=1))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path))


@pytest.fixture(scope="module")
def pair():
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        ms = {"target": 10.0, "draft": 0.5}
        patch.setattr(
            measure, "curve", lambda *args: (tuple(CostSample(n, 0, ms[args[2]] + 0.1 * n) for n in range(1, 20)), True)
        )
        yield stack.enter_context(measure._OpenPair(pair_config(DRAFTS["gemma"]), lambda what, share: None))


@pytest.mark.model
def test_a_model_agrees_with_itself(cache):
    found = measure_pair(
        pair_config(TARGET), (*CHAT[:1], SampleText("read", "Once upon a time, ", Form.READ)), lambda what, share: None
    )
    assert [line.kind for line in found.lines] == ["read", "chat"]
    for line in found.lines:
        assert line.n_places >= line.n_tokens
        assert (line.same, line.alike) == (1.0, 1.0)
        assert line.kl == pytest.approx(0, abs=1e-6)
        assert line.kl_byte == pytest.approx(0, abs=1e-6)
        assert line.target_mass == pytest.approx(line.draft_mass)
    assert found.lines[0].accepted is None
    assert found.lines[1].accepted == 1.0


@pytest.mark.model
def test_a_related_draft_is_worth_something_and_a_foreign_text_is_not_foretold(pair):
    read = SampleText("read", "Zażółć gęślą jaźń, powiedział nauczyciel.", Form.READ)
    found = pair.measure((*CHAT, read))
    foreign, chat = found.lines
    assert chat.accepted > 0.7
    assert chat.alike >= chat.same > 0.5
    assert chat.kl_byte < 0.5 < foreign.kl_byte
    assert chat.speed_up > 1.2
    assert 0 < chat.target_mass <= 1
    assert 0 < chat.draft_mass <= 1
    assert foreign.speed_up is None


@pytest.mark.model
def test_places_are_the_same_bytes_for_both(pair):
    rules, (target, draft) = pair._rules, pair._encoders
    prompt = tuple(pair._prompt(CHAT[0]))
    text = "def naïve(x):\n    return '東京 😀'\tand more".encode()
    body = target.encode(text)
    for track, pieces in (
        (target_track(rules, prompt, body), target.vocab.pieces),
        (draft_track(rules, draft, prompt, body), draft.vocab.pieces),
    ):
        assert len(track.ids) == len(track.ends)
        assert track.ends[-1] == len(text)
        assert [text[start:end] for start, end in track.spans()] == [
            pieces[id_] for id_, end in zip(track.ids, track.ends, strict=True) if end > 0
        ]
        assert track.ids[track.first :] == track.ids[-len(track.spans()) - 1 :]
    assert draft_track(rules, draft, prompt, [target.vocab.eot or target.vocab.eos]) is None


@pytest.mark.model
def test_accepted_is_what_a_greedy_draft_would_get_right(pair):
    """Let the draft itself write on from many places of the target's answers: it agrees exactly as far as the runs
    say.
    """
    n_same = n = 0
    for text in pair._texts(CHAT):
        track = draft_track(pair._rules, pair._encoders[1], text.prompt, text.body)
        target = target_track(pair._rules, text.prompt, text.body)
        body = pair._rules.target.join(text.body)
        good = pair._compare(measure.DraftComparison(pair._rules), text).runs[0]
        spans = target.spans()
        for k in range(0, len(spans), 7):
            if spans[k][0] not in track.ends:
                continue
            got = written(pair._draft, track.ids[: track.ends.index(spans[k][0]) + 1], 8)
            n_right = next(
                (i for i, (a, b) in enumerate(zip(got, body[spans[k][0] :], strict=False)) if a != b),
                min(len(got), len(body)),
            )
            foretold = next((i for i, one in enumerate(good[k:]) if not one), len(good) - k)
            right = sum(end - spans[k][0] <= n_right for _, end in spans[k:])
            reach = sum(end - spans[k][0] <= len(got) for _, end in spans[k:])
            n += 1
            n_same += min(foretold, reach) == min(right, reach)
    assert n > 10
    assert n_same / n > 0.9


def written(context, ids, n):
    """The bytes of n ids that the draft writes greedily."""
    context.clear(0)
    context.decode([Rows(0, 0, ids, 1)])
    out = b""
    for i in range(n):
        id_ = int(context.logits()[0].argmax())
        out += context.vocab.pieces[id_]
        context.decode([Rows(0, len(ids) + i, (id_,), 1)])
    context.clear(0)
    return out


@pytest.mark.model
def test_texts_that_do_not_fit_are_named(pair):
    found = pair.measure(
        (*CHAT[:1], SampleText("read", "x y " * 3000, Form.READ), SampleText("chat", "x y " * 3000, Form.CHAT))
    )
    assert [line.kind for line in found.lines] == ["chat"]
    assert sum("left out" in note for note in found.notes) == 2
    with pytest.raises(ConfigError, match="--text"):
        pair.measure((SampleText("read", "x y " * 3000, Form.READ),))


@pytest.mark.model
def test_a_draft_is_needed(cache):
    with pytest.raises(ConfigError, match="draft"):
        measure_pair(pair_config(None), CHAT, lambda what, share: None)


@pytest.mark.model
def test_the_command_measures_on_the_users_text(cache, capsys, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n" * 3)
    words = [str(TARGET), str(DRAFTS["zephyr"]), "--text", str(file), "-t", "1"]
    assert main([*words, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert [line["kind"] for line in told["lines"]] == ["text, read", "text, continued"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "as a draft for" in out
    assert "speed-up" in out
