"""The mirror under any history of commits and guesses: it tells the committed bytes, keeps what agrees, and re-encodes
only what is new.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.toys import DRAFT_VOCAB, SCRIPT

from uad.drafts.model.heal import Healer
from uad.drafts.model.mirror import Mirror
from uad.text.vocab.encode import Encoder

ENCODER = Encoder(DRAFT_VOCAB)
END = DRAFT_VOCAB.eos
words = st.sampled_from([SCRIPT[i:j] for i in range(0, len(SCRIPT), 7) for j in (i + 1, i + 3, i + 11)])
odd = st.sampled_from([b" ", b"  ", b"\n", b" the", b"quick"])
data = st.one_of(words, st.binary(max_size=12), st.text(max_size=6).map(str.encode), odd)


def check(mirror: Mirror, stream: list[bytes | int]) -> None:
    """ids, up to the edge, are the stream: bytes and specials in order, KV within ids, offsets right."""
    assert 0 <= mirror.n_kv <= len(mirror.ids) == len(mirror.ends) == len(mirror.p)
    at, told = 0, []
    for id_, end in zip(mirror.ids, mirror.ends, strict=True):
        at += len(DRAFT_VOCAB.pieces[id_])
        assert at == end
        told.append(id_ if DRAFT_VOCAB.is_special(id_) else DRAFT_VOCAB.pieces[id_])
    flat = flatten(told)
    want = flatten(stream)
    assert flat[: len(want)] == want


def flatten(items: list[bytes | int]) -> list[int]:
    out: list[int] = []
    for item in items:
        out += [-item] if isinstance(item, int) else list(item)
    return out


def test_guesses_behind_bytes_that_a_rule_holds_back_stay_where_they_agree() -> None:
    for held, kept in ((b"qu", b"ick brown"), (b"qx", b"")):
        mirror = Mirror(ENCODER)
        mirror.extend([b"The "])
        mirror.sync()
        for id_ in ENCODER.encode(b"quick brown"):
            mirror.guess(id_, 0.9)
        mirror.extend([], held)
        assert mirror.ahead(mirror.edge) == kept
        mirror.sync()
        mirror.extend([held])
        mirror.sync()
        assert bytes(mirror.data) == b"The " + held
        check(mirror, [b"The " + held])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_history(source: st.DataObject) -> None:
    mirror, stream = Mirror(ENCODER), []
    for _ in range(source.draw(st.integers(1, 12))):
        mirror.sync()
        ids = source.draw(st.lists(st.integers(0, DRAFT_VOCAB.n_vocab - 3), max_size=5))
        for id_ in ids:
            mirror.guess(id_, 0.9)
        if source.draw(st.booleans()):
            mirror.guess(END, 0.5)
        mirror.n_kv = source.draw(st.integers(0, len(mirror.ids)))
        ahead = mirror.ahead(mirror.edge)
        foretold = st.sampled_from([ahead[:n] for n in range(len(ahead) + 1)])
        items: list[bytes | int] = source.draw(st.lists(st.one_of(data, st.just(END), foretold), max_size=4))
        stream += items
        mirror.extend(items, tentative := source.draw(st.one_of(st.just(b""), data, foretold)))
        assert bytes(mirror.data) == b"".join(item for item in stream if isinstance(item, bytes))
        mirror.sync()
        check(mirror, [*stream, tentative])


@settings(max_examples=200, deadline=None)
@given(data, st.integers(0, 20))
def test_guesses_that_come_true_stay_kv_and_all(prompt: bytes, n: int) -> None:
    mirror = Mirror(ENCODER)
    mirror.extend([prompt + b" x"])
    mirror.sync()
    guessed = DRAFT_VOCAB.tokenize(SCRIPT[n : n + 40])
    for id_ in guessed:
        mirror.guess(id_, 0.9)
    mirror.n_kv = len(mirror.ids)
    before = list(mirror.ids)
    mirror.extend([SCRIPT[n : n + 23]])
    assert mirror.sync() == len(mirror.ids)
    assert mirror.ids == before
    assert mirror.n_kv == len(before)
    assert mirror.ahead(mirror.edge) == SCRIPT[n + 23 : n + 40]


def test_a_rejected_guess_goes_and_the_agreeing_ones_stay() -> None:
    mirror = Mirror(ENCODER)
    mirror.extend([b"The quick"])
    mirror.sync()
    kept = list(mirror.ids)
    for id_ in DRAFT_VOCAB.tokenize(b" brown fox"):
        mirror.guess(id_, 0.9)
    mirror.n_kv = len(mirror.ids)
    mirror.extend([b" brown dog"])
    mirror.sync()
    brown = len(DRAFT_VOCAB.tokenize(b" brown"))
    assert mirror.ids[: len(kept) + brown] == kept + DRAFT_VOCAB.tokenize(b" brown")
    assert mirror.n_kv >= len(kept) + brown
    assert DRAFT_VOCAB.join(mirror.ids) == b"The quick brown dog"


def test_work_per_round_does_not_grow_with_the_context() -> None:
    """Counted, not timed: bytes that reach the tokenizer in a round, at two lengths of context."""
    counted = []
    for n in (20, 2000):
        encoder = Encoder(DRAFT_VOCAB)
        mirror = Mirror(encoder)
        mirror.extend([SCRIPT * n])
        mirror.sync()
        seen: list[int] = []
        original = encoder.encode
        encoder.encode = lambda piece, original=original, seen=seen: (seen.append(len(piece)), original(piece))[1]  # type: ignore[method-assign]
        mirror.extend([b"then it"])
        mirror.sync()
        counted.append(sum(seen))
    assert counted[0] == counted[1] > 0


def test_a_window_leaves_the_ids_as_they_are() -> None:
    mirror = Mirror(ENCODER)
    mirror.extend([SCRIPT, END, SCRIPT])
    mirror.sync()
    mirror.n_kv = len(mirror.ids)
    before = list(mirror.ids)
    mirror.read_last(20)
    assert (mirror.ids, mirror.skip, mirror.n_kv, mirror.n_unread) == (before, len(before) - 20, len(before) - 20, 20)
    mirror.extend([b" and on it goes"])
    mirror.sync()
    assert bytes(mirror.data) == DRAFT_VOCAB.join(mirror.ids)
    mirror.guess(DRAFT_VOCAB.tokenize(b" the")[0], 0.5)
    assert mirror.ahead(mirror.edge)
    mirror.read_last(10**6)
    assert mirror.skip == mirror.n_kv == 0


def test_a_cut_before_the_window_begins_it_there() -> None:
    mirror = Mirror(ENCODER)
    mirror.extend([SCRIPT])
    mirror.sync()
    mirror.read_last(4)
    mirror.retract(mirror.skip - 3)
    assert mirror.skip == mirror.n_kv == len(mirror.ids)


def test_a_held_back_piece_is_tentative() -> None:
    mirror = Mirror(ENCODER)
    mirror.extend([b"The quick"], b" bro")
    mirror.sync()
    assert mirror.edge == len(b"The quick bro")
    mirror.extend([b" brown"])
    mirror.sync()
    assert DRAFT_VOCAB.join(mirror.ids) == b"The quick brown"
    mirror.extend([], b"!")
    mirror.extend([END])
    mirror.sync()
    assert DRAFT_VOCAB.join(mirror.ids) == b"The quick brown"
    assert mirror.ids[-1] == END


@given(st.sampled_from([b" qu", b"qu", b"    ", b"th", b" ", b"\n  ", "é".encode()[:1], b"zz"]), st.integers(0, 10**6))
def test_a_healed_choice_covers_the_bytes(rest: bytes, seed: int) -> None:
    row = np.random.default_rng(seed).standard_normal(DRAFT_VOCAB.n_vocab).astype(np.float32)
    choice = Healer(DRAFT_VOCAB).choose(row, rest)
    spaces = {rest[:n] for n in range(1, len(rest))} if rest.isspace() else set()
    agreeing = [i for i, p in enumerate(DRAFT_VOCAB.pieces) if p and (p.startswith(rest) or p in spaces)]
    if not agreeing:
        assert choice is None
        return
    assert choice is not None
    assert choice[0] in agreeing
    assert row[choice[0]] == row[agreeing].max()
    weights = np.exp(row[agreeing].astype(float))
    assert abs(choice[1] - float(np.exp(float(row[choice[0]])) / weights.sum())) < 1e-4


def brute_force(rows: np.ndarray, canonical: list[int], rest: bytes) -> dict[tuple[int, int], float]:
    """Probability of every path, written out."""
    paths: dict[tuple[int, int], float] = {}
    before = 1.0
    for i, id_ in enumerate(canonical):
        p = np.exp(rows[i].astype(float)) / np.exp(rows[i].astype(float)).sum()
        last = i == len(canonical) - 1
        for other, piece in enumerate(DRAFT_VOCAB.pieces):
            partly = rest.isspace() and len(piece) < len(rest) and rest.startswith(piece)
            if piece and (piece.startswith(rest) or partly) and (last or other != id_):
                paths[i, other] = before * p[other]
        before *= p[id_]
        rest = rest[len(DRAFT_VOCAB.pieces[id_]) :]
    return paths


@given(
    st.sampled_from([b" qu", b"Th", b"      ", b" than th", b"f) r", b"12", b" jum"]),
    st.integers(0, 10**6),
    st.floats(0.5, 6),
)
def test_the_likeliest_path_wins_as_a_whole(rest: bytes, seed: int, width: float) -> None:
    canonical = DRAFT_VOCAB.tokenize(rest)
    rows = (np.random.default_rng(seed).standard_normal((len(canonical), DRAFT_VOCAB.n_vocab)) * width).astype(
        np.float32
    )
    path = Healer(DRAFT_VOCAB).choose_path(rows, canonical, rest)
    paths = brute_force(rows, canonical, rest)
    best = max(paths.values())
    assert abs(paths[path.n, path.id] - best) <= 1e-4 * best
    assert abs(path.p - best / sum(paths.values())) < 1e-3


def test_a_prefix_that_could_begin_anything_does_not_win() -> None:
    """The bare space is likely as a first id, but " quick" through it is not canonical."""
    canonical = DRAFT_VOCAB.tokenize(b" ov")
    row = np.zeros(DRAFT_VOCAB.n_vocab, np.float32)
    row[DRAFT_VOCAB.tokenize(b" ")[0]] = 9
    row[canonical[0]] = 5
    assert len(canonical) == 1
    assert Healer(DRAFT_VOCAB).choose_path(row[None], canonical, b" ov").id == canonical[0]
