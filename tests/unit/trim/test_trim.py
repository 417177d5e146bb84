"""Smaller drafts: which tokens stay, what they are made of, and the file that is written. Without llama.cpp; see
test_trim_models.py.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.vocab_makers import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    bpe,
    byte_to_unicode,
    raw_bpe,
    rwkv,
    scored,
    write,
)

from uad.base.errors import ConfigError, ModelLoadError
from uad.base.gguf import BLOCKS, GgufFile, NewTensor
from uad.base.gguf import write as write_gguf
from uad.tools.trim import corpus
from uad.tools.trim.choose import Ways, choose, on_the_way, share
from uad.tools.trim.cut import check_output, check_source, kept_merges, saving, write_trimmed
from uad.tools.trim.vocabulary import Vocabulary, byte_letters, read_vocabulary

SAMPLES = Path(__file__).parents[3] / "samples"
ZEPHYR, GEMMA = SAMPLES / "draft-zephyr.gguf", SAMPLES / "draft-gemma.gguf"
WIDTH = 64


def silent(done: int, total: int) -> None:
    pass


def model(path: Path, tokens, more=(), merges=(), kind: str = "llama", **keys: object) -> Path:
    """A file with these (text, type) tokens, an embedding matrix and these (name, shape, type) tensors; keys are
    metadata.
    """
    writer = gguf.GGUFWriter(path, "toy")
    writer.add_tokenizer_model(kind)
    writer.add_token_list([text.encode() for text, _ in tokens])
    writer.add_token_types([type_ for _, type_ in tokens])
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    if merges:
        writer.add_token_merges(list(merges))
    for key, value in keys.items():
        name = key.replace("__", ".")
        writer.add_array(name, value) if isinstance(value, list) else writer.add_uint32(name, value)
    rng = np.random.default_rng(0)
    for name, shape, type_ in (("token_embd.weight", (len(tokens), WIDTH), gguf.GGMLQuantizationType.Q8_0), *more):
        values = rng.standard_normal(shape).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def words(n: int = 40) -> list[tuple[str, int]]:
    """Tokens of a small SentencePiece vocabulary: three specials, bytes, letters, and words of letters."""
    rng = random.Random(5)
    letters = "abcdefgh"
    made = ["".join(rng.choices(letters, k=k)) for k in (2, 2, 3, 4) for _ in range(n)]
    specials = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    byte_tokens = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    return [*specials, *byte_tokens, *((text, NORMAL) for text in dict.fromkeys([*letters, *made]))]


def cut(source: Path, out: Path, kept) -> GgufFile:
    """`out`, opened, with the tokens `kept` of `source`."""
    with GgufFile(source) as file:
        write_trimmed(file, read_vocabulary(file), kept, out, silent)
    return GgufFile(out)


def read(path: Path) -> Vocabulary:
    with GgufFile(path) as file:
        return read_vocabulary(file)


# --- files


def test_sizes_of_types_are_the_gguf_package_s() -> None:
    assert {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()} == BLOCKS


@pytest.mark.parametrize("path", [ZEPHYR, GEMMA, SAMPLES / "target-chatml.gguf"], ids=lambda path: path.stem)
def test_headers_are_those_of_the_gguf_package(path: Path) -> None:
    theirs = gguf.GGUFReader(path)
    with GgufFile(path) as file:
        assert [*file.values] == [key for key in theirs.fields if not key.startswith("GGUF.")]
        for key, value in file.values.items():
            is_text = value.kind == gguf.GGUFValueType.STRING
            one, many = (file.text, file.texts) if is_text else (file.whole, file.numbers)
            if not (is_text or value.is_array or value.is_whole):  # nobody reads single fractions and truths
                assert one(key) is None
                continue
            assert (many if value.is_array else one)(key) == theirs.fields[key].contents(), key
        assert len(file.tensors) == len(theirs.tensors)
        for tensor, other in zip(file.tensors, theirs.tensors, strict=True):
            assert (tensor.name, tensor.shape, tensor.kind, tensor.n_bytes) == (
                other.name,
                tuple(other.shape),
                other.tensor_type,
                other.n_bytes,
            )
            assert file.bytes_of(tensor.span) == other.data.tobytes()


def test_a_copy_without_changes_has_the_same_bytes(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    with GgufFile(ZEPHYR) as file:
        same = [NewTensor(tensor.name, tensor.shape, tensor.kind, (tensor.span,)) for tensor in file.tensors]
        write_gguf(file, tmp_path / "out.gguf", {}, same, lambda done, total: calls.append((done, total)))
    assert (tmp_path / "out.gguf").read_bytes() == ZEPHYR.read_bytes()
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] > 0


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    whole = ZEPHYR.read_bytes()
    cases = {
        "empty": b"",
        "text": b"PK\x03\x04 a zip file" * 100,
        "version": whole[:4] + b"\x09\x00\x00\x00" + whole[8:],
        "header": whole[:5000],
        "weights": whole[: len(whole) - 5000],
        "stub": whole[:8],
    }
    for name, data in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ModelLoadError, match=name):
            GgufFile(path)
    with pytest.raises(ModelLoadError, match="no such file"):
        GgufFile(tmp_path / "none")
    with pytest.raises(ModelLoadError, match="not a file"):
        GgufFile(tmp_path)


@pytest.mark.parametrize("at", range(8, 400, 3))
def test_a_damaged_header_is_an_error_of_ours_or_harmless(at: int, tmp_path: Path) -> None:
    path = write(tmp_path / "v.gguf", "llama", [("a", NORMAL, 0.0), ("b", NORMAL, 1.0)])
    data = path.read_bytes()
    path.write_bytes(data[:at] + b"\xff" * 8 + data[at + 8 :])
    with suppress(ModelLoadError, ConfigError), GgufFile(path) as file:
        read_vocabulary(file)


# --- on the way to a token


def test_the_lowest_order_wins_and_of_equal_ones_the_leftmost() -> None:
    ranks = {("a", "b"): 1, ("b", "c"): 0, ("a", "bc"): 2, ("x", "x"): 5}
    assert [*on_the_way("abc", lambda left, right: ranks.get((left, right)))] == ["a", "b", "c", "bc", "abc"]
    assert [*on_the_way("xxx", lambda left, right: ranks.get((left, right)))] == ["x", "x", "x", "xx"]
    assert [*on_the_way("", lambda left, right: None)] == []


def vocabulary(kind: str, tokens: str, merges: str = "", scores: tuple[float, ...] = ()) -> Vocabulary:
    texts = tuple(tokens.split())
    pairs = tuple((left, right) for left, _, right in (merge.partition("+") for merge in merges.split()))
    return Vocabulary(kind, texts, (NORMAL,) * len(texts), scores or (0.0,) * len(texts), pairs, frozenset())


def test_of_several_merges_that_make_a_token_the_one_that_happens_counts() -> None:
    toy = vocabulary("gpt2", "a b c ab bc abc", "b+c a+b ab+c a+bc")
    way = Ways(toy)
    assert {toy.tokens[id_] for id_ in way(5)} == {"a", "b", "c", "bc", "abc"}
    kept = [*way(5)]
    assert [toy.merges[i] for i in kept_merges(toy, kept)] == [("b", "c"), ("a", "bc")]


def test_pieces_are_merged_by_their_scores() -> None:
    toy = vocabulary("llama", "a b c ab bc abc", scores=(0, 0, 0, -2, -1, -3))
    assert {toy.tokens[id_] for id_ in Ways(toy)(5)} == {"a", "b", "c", "bc", "abc"}
    other = vocabulary("llama", "a b c ab bc abc", scores=(0, 0, 0, -1, -2, -3))
    assert {other.tokens[id_] for id_ in Ways(other)(5)} == {"a", "b", "c", "ab", "abc"}


def test_of_tokens_with_one_text_the_last_is_kept_too() -> None:
    toy = vocabulary("gpt2", "a b ab ab", "a+b")
    assert Ways(toy)(2) == {0, 1, 2, 3}


def test_what_merges_cannot_make_stays_with_what_they_make_of_it() -> None:
    toy = vocabulary("gpt2", "a b c ab abc", "a+b")
    assert Ways(toy)(4) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("path", [ZEPHYR, GEMMA], ids=lambda path: path.stem)
def test_the_way_of_every_token_is_closed(path: Path) -> None:
    one = read(path)
    way = Ways(one)
    for id_ in range(len(one.tokens)):
        needed = way(id_)
        assert id_ in needed
        assert all(way(other) <= needed for other in needed), one.tokens[id_]


# --- which tokens stay


def test_as_many_of_the_most_frequent_as_fit_with_all_they_need() -> None:
    needs = {10: {10, 1, 2}, 11: {11}, 12: {12, 1, 3}, 13: {13}}
    counts = {10: 5, 11: 7, 12: 3, 13: 1}
    found = {most: choose(counts, {0}, needs.__getitem__, most) for most in range(1, 10)}
    assert found[1] == (0,)
    assert found[2] == found[3] == found[4] == (0, 11)
    assert found[5] == found[6] == (0, 1, 2, 10, 11)
    assert found[7] == (0, 1, 2, 3, 10, 11, 12)
    assert found[8] == found[9] == (0, 1, 2, 3, 10, 11, 12, 13)


def test_of_equally_frequent_ones_the_lower_id_stays() -> None:
    assert choose({9: 2, 5: 2, 7: 2}, (), lambda id_: {id_}, 2) == (5, 7)


@given(st.dictionaries(st.integers(0, 60), st.integers(1, 9)), st.integers(3, 64))
def test_the_longest_list_of_the_most_frequent_that_fits(counts: dict[int, int], most: int) -> None:
    def way(id_: int) -> range:
        return range(id_ // 2, id_ + 1)

    ranked = sorted(counts, key=lambda id_: (-counts[id_], id_))
    lists = [{0, 1, 2}.union(*map(way, ranked[:n])) for n in range(len(ranked) + 1)]
    kept = choose(counts, {0, 1, 2}, way, most)
    assert [*kept] == sorted(max((one for one in lists if len(one) <= most), key=len))
    assert 0 <= share(counts, kept) <= 1


def test_too_little_room_is_an_error_that_says_how_much_it_takes() -> None:
    with pytest.raises(ConfigError, match=r"--keep 2: 3 tokens .* give at least 3"):
        choose({}, {0, 1, 2}, lambda id_: {id_}, 2)


def test_bytes_specials_and_added_tokens_always_stay(tmp_path: Path) -> None:
    tokens = [
        *words(),
        ("<pad>", UNUSED),
        ("<tool>", USER_DEFINED),
        ("plain", NORMAL),
        ("spare", UNUSED),
        ("<end>", CONTROL),
    ]
    n = len(tokens)
    path = model(
        tmp_path / "m.gguf",
        tokens,
        tokenizer__ggml__padding_token_id=n - 5,
        tokenizer__ggml__eog_token_ids=[n - 3, 10**6],
    )
    one = read(path)
    assert {one.tokens[id_] for id_ in one.always} == {
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *("<unk>", "<s>", "</s>", "<pad>", "<tool>", "plain", "<end>"),
    }


def test_byte_level_bpe_keeps_its_256_letters_and_the_ids_that_llama_cpp_takes_by_default() -> None:
    assert dict(enumerate(byte_letters())) == byte_to_unicode()
    one = read(ZEPHYR)
    assert {one.by_text[letter] for letter in byte_letters()} <= one.always
    assert one.always >= {*range(12), 2044, 2045, 2046, 2047}
    assert len(one.always) < 280


# --- the file


@pytest.mark.long
@pytest.mark.parametrize("path", [ZEPHYR, GEMMA], ids=lambda path: path.stem)
def test_rows_lists_and_ids_are_cut_and_all_else_is_copied(path: Path, tmp_path: Path) -> None:
    one = read(path)
    rng = random.Random(2)
    kept = sorted(
        one.always
        | Ways(one)(1500)
        | Ways(one)(900)
        | {id_ for n in rng.sample(range(2048), 50) for id_ in Ways(one)(n)}
    )
    with cut(path, tmp_path / "out.gguf", kept), GgufFile(path) as source:
        old, new = gguf.GGUFReader(path), gguf.GGUFReader(tmp_path / "out.gguf")
        n_old = len(source.texts("tokenizer.ggml.tokens"))
    changed = {"llama.vocab_size": len(kept)}
    for key in ("tokens", "scores", "token_type"):
        if (field := old.fields.get(f"tokenizer.ggml.{key}")) is not None:
            changed[f"tokenizer.ggml.{key}"] = [field.contents()[id_] for id_ in kept]
            assert len(field.contents()) == n_old
    for key in old.fields:
        if key.endswith("_token_id"):
            changed[key] = kept.index(old.fields[key].contents())
    assert any(changed[key] != old.fields[key].contents() for key in changed if key.endswith("_token_id")) == (
        path == ZEPHYR
    )
    for key, field in old.fields.items():
        if key == "tokenizer.ggml.merges":
            texts = {one.tokens[id_] for id_ in kept}
            want = [m for m in field.contents() if {*m.split(" "), m.replace(" ", "")} <= texts]
            assert new.fields[key].contents() == want
            assert 0 < len(want) < len(field.contents())
        elif not key.startswith("GGUF."):
            assert new.fields[key].contents() == changed.get(key, field.contents()), key
            assert new.fields[key].types == field.types
    assert [tensor.name for tensor in new.tensors] == [tensor.name for tensor in old.tensors]
    for before, after in zip(old.tensors, new.tensors, strict=True):
        want = before.data[kept] if before.name == "token_embd.weight" else before.data
        assert np.array_equal(after.data, want), before.name
        assert after.tensor_type == before.tensor_type


MATRICES = (
    ("output.weight", WIDTH, gguf.GGMLQuantizationType.Q4_0),
    ("output.bias", None, gguf.GGMLQuantizationType.F32),
    ("per_layer_token_embd.weight", 32, gguf.GGMLQuantizationType.Q5_1),
    ("blk.1.nextn.shared_head_head.weight", WIDTH, gguf.GGMLQuantizationType.BF16),
    ("blk.0.nextn.embed_tokens.weight", WIDTH, gguf.GGMLQuantizationType.F16),
)


def test_every_matrix_of_the_vocabulary_is_cut_by_whole_rows_of_its_type(tmp_path: Path) -> None:
    tokens = words()
    n = len(tokens)
    more = [(name, (n,) if width is None else (n, width), kind) for name, width, kind in MATRICES]
    more.insert(2, ("blk.0.ffn_up.weight", (96, WIDTH), gguf.GGMLQuantizationType.Q8_0))
    path = model(tmp_path / "m.gguf", tokens, more, toy__vocab_size=n)
    kept = [*range(259), *range(260, n, 3)]
    with cut(path, tmp_path / "out.gguf", kept) as file:
        assert file.whole("toy.vocab_size") == len(kept)
    old, new = gguf.GGUFReader(path), gguf.GGUFReader(tmp_path / "out.gguf")
    for before, after in zip(old.tensors, new.tensors, strict=True):
        values = gguf.quants.dequantize(before.data, before.tensor_type)
        want = values if "ffn" in before.name else values[kept]
        assert np.array_equal(gguf.quants.dequantize(after.data, after.tensor_type), want), before.name


def test_ids_under_every_key_are_renumbered(tmp_path: Path) -> None:
    tokens = [*words(), ("<end>", CONTROL), ("<turn>", CONTROL)]
    n = len(tokens)
    names = (
        "bos",
        "eos",
        "eot",
        "eom",
        "unknown",
        "padding",
        "seperator",
        "mask",
        "cls",
        "fim_pre",
        "fim_suf",
        "fim_mid",
        "middle",
    )
    keys: dict[str, object] = {f"tokenizer__ggml__{name}_token_id": n - 1 - i % 2 for i, name in enumerate(names)}
    other = {"tokenizer__ggml__token_type_count": n - 1, "toy__embedding_length": WIDTH}
    lists = {"tokenizer__ggml__eog_token_ids": [n - 2, 1, n - 1, 10**6]}
    path = model(tmp_path / "m.gguf", tokens, **keys, **other, **lists)
    kept = sorted(read(path).always)
    assert len(kept) == 261
    with cut(path, tmp_path / "out.gguf", kept) as file:
        for i, name in enumerate(names):
            assert file.whole(f"tokenizer.ggml.{name}_token_id") == 260 - i % 2
        assert file.numbers("tokenizer.ggml.eog_token_ids") == [259, 1, 260, 10**6]
        assert file.whole("tokenizer.ggml.token_type_count") == n - 1
        assert file.whole("toy.embedding_length") == WIDTH


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("old")

    def full(*args: object) -> None:
        (tmp_path / "out.gguf.part").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("uad.tools.trim.cut.write", full)
    with pytest.raises(ConfigError, match="No space left"):
        cut(ZEPHYR, out, range(2048))
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert out.read_text() == "old"
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    with pytest.raises(ConfigError, match="are free there"):
        cut(ZEPHYR, out, range(2048))


def test_places_where_nothing_can_be_written(tmp_path: Path) -> None:
    source = tmp_path / "draft.gguf"
    source.write_bytes(b"GGUF")
    (tmp_path / "link.gguf").symlink_to(source)
    (tmp_path / "other.gguf.part").hardlink_to(source)
    for name, why in (
        ("draft.gguf", "itself"),
        ("link.gguf", "itself"),
        ("other.gguf", "itself"),
        ("", "folder"),
        ("no/out.gguf", "no folder"),
    ):
        with pytest.raises(ConfigError, match=why):
            check_output(source, tmp_path / name)
    check_output(source, tmp_path / "new.gguf")


# --- what is refused


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda path: scored(path, "t5", 1), "unigram"),
        (lambda path: write(path, "bert", [("[UNK]", UNKNOWN, 0.0), ("a", NORMAL, 0.0)]), "WordPiece"),
        (lambda path: rwkv(path, 1), "'rwkv'"),
        (lambda path: scored(path, "plamo2", 1), "'plamo2'"),
        (lambda path: raw_bpe(path, "gemma4", "default", 1), "'gemma4'"),
        (lambda path: write(path, "no_vocab", []), "no vocabulary"),
    ],
)
def test_other_tokenizers_are_refused_by_name(make, named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        read(make(tmp_path / "v.gguf"))
    assert str(tmp_path / "v.gguf") in str(caught.value)


@pytest.mark.parametrize("shape", ["rows", "columns"])
def test_an_unknown_tensor_that_may_belong_to_the_vocabulary_is_refused(shape: str, tmp_path: Path) -> None:
    tokens = words()[:288]
    size = (len(tokens), 4) if shape == "rows" else (4, len(tokens))
    path = model(tmp_path / "m.gguf", tokens, [("medusa.0.weight", size, gguf.GGMLQuantizationType.F32)])
    with GgufFile(path) as file, pytest.raises(ConfigError, match=r"medusa\.0\.weight has a dimension of 288"):
        check_source(file, len(tokens))


def test_files_without_weights_parts_of_models_and_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with GgufFile(bpe(tmp_path / "v.gguf", "gpt-2", 1)) as file, pytest.raises(ConfigError, match="vocabulary only"):
        check_source(file, len(file.texts("tokenizer.ggml.tokens")))
    with (
        GgufFile(model(tmp_path / "p.gguf", words(), split__count=3)) as file,
        pytest.raises(ConfigError, match="several parts"),
    ):
        check_source(file, len(words()))
    more = [("output.weight", (100, WIDTH), gguf.GGMLQuantizationType.F16)]
    with GgufFile(model(tmp_path / "m.gguf", words(), more)) as file, pytest.raises(ModelLoadError, match="100 rows"):
        check_source(file, len(words()))


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "v.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"a", b"b"])
    writer.add_token_scores([0.0])
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_ti_data_to_file, writer.close):
        step()
    with pytest.raises(ModelLoadError, match="1 entries for 2 tokens"):
        read(tmp_path / "v.gguf")


# --- the corpus


def letters(data: bytes) -> list[int]:
    return list(data)


def test_files_and_folders_are_read_in_order_without_what_is_no_text(tmp_path: Path) -> None:
    for name, data in (
        ("b/x.txt", b"bb"),
        ("b/a.py", b"a"),
        ("b/.git/y", b"y"),
        ("b/z.bin", b"z\0z"),
        ("b/__pycache__/q.pyc", b"q"),
        ("c", b"c"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = corpus.named([tmp_path / "b", tmp_path / "c", tmp_path / "c"])
    assert [source.path.name for source in found] == ["a.py", "x.txt", "c"]
    assert all(source.weight == 1 for source in found)
    shares: list[float] = []
    assert corpus.count(found, letters, shares.append) == Counter(b"abbc")
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_weight_multiplies(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("aab")
    assert corpus.count([corpus.CorpusSource(tmp_path / "a", 5)], letters, lambda share: None) == {97: 10, 98: 5}


def test_long_files_come_in_pieces_of_whole_lines_with_what_is_no_utf_8_replaced(tmp_path: Path) -> None:
    lines = "".join(f"line {i} of text, wörter\n" for i in range(20_000))
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + lines.encode() + b"\xff\xfe tail")
    found = [*corpus.pieces(tmp_path / "a")]
    assert b"".join(found).decode() == lines + "\ufffd\ufffd tail"
    assert len(found) > 5
    assert all(piece.endswith(b"\n") for piece in found[:-1])
    (tmp_path / "b").write_text("x" * 300_000)
    assert sum(map(len, corpus.pieces(tmp_path / "b"))) == 300_000


def test_what_is_no_corpus_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"GGUF\0\0")
    (tmp_path / "folder").mkdir()
    (tmp_path / "blank").write_text("")
    for name, why in (("none", "no such file"), ("bin", "not a text file"), ("folder", "no text files")):
        with pytest.raises(ConfigError, match=why) as caught:
            corpus.named([tmp_path / name])
        assert str(tmp_path / name) in str(caught.value)
    with pytest.raises(ConfigError, match="holds no text"):
        corpus.count(corpus.named([tmp_path / "blank"]), letters, lambda share: None)


def test_the_bundled_corpus_has_fifteen_languages_code_and_this_project() -> None:
    found = corpus.bundled()
    own = {source.path.stem for source in found if source.path.parent == corpus.TEXTS}
    assert own == {
        *(
            "english",
            "german",
            "french",
            "spanish",
            "italian",
            "portuguese",
            "dutch",
            "polish",
            "russian",
            "chinese",
            "japanese",
            "korean",
        ),
        *("arabic", "hindi", "turkish", "code"),
    }
    assert sum(path.stat().st_size for path in corpus.TEXTS.iterdir()) < 300_000
    for path in corpus.TEXTS.iterdir():
        path.read_text(encoding="utf-8")
    names = [source.path.name for source in found]
    assert {"argparse.py", "topics.py", "vocabulary.py", "chat.toml"} <= {*names}
    assert len({source.path for source in found}) == len(found)
    assert not any("site-packages" in source.path.parts[-3:] for source in found)


# --- what it would bring


def test_what_trimming_would_bring_is_told_where_it_is_much() -> None:
    told = saving(ZEPHYR, 256)
    assert told is not None
    assert told.startswith("the draft's vocabulary is 38 % of its weights; `uad trim` would make the file about ")
    assert told.endswith("(1.37 MiB now)")
    assert saving(ZEPHYR) is None
    assert saving(ZEPHYR, 1500) is None


def test_what_it_would_bring_is_what_it_brings(tmp_path: Path) -> None:
    one = read(ZEPHYR)
    kept = sorted(one.always)
    cut(ZEPHYR, tmp_path / "out.gguf", kept).close()
    told = saving(ZEPHYR, len(kept))
    assert told is not None
    size = float(told.partition("about ")[2].split(" KiB")[0]) * 2**10
    assert size == pytest.approx((tmp_path / "out.gguf").stat().st_size, rel=0.02)


def test_nothing_is_told_of_files_that_cannot_be_trimmed(tmp_path: Path) -> None:
    assert saving(tmp_path / "none.gguf") is None
    assert saving(scored(tmp_path / "t5.gguf", "t5", 1), 1) is None
    assert saving(bpe(tmp_path / "v.gguf", "gpt-2", 1), 1) is None
