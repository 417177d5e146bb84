"""No text ends the process: runs of one class, however long, with every pre-tokenizer that llama.cpp has."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import gguf
import pytest
from kit.vocab_kit import ROOT, TEXTS, fetched, path_of, vocab
from kit.vocab_makers import bpe
from test_vocab_boundary import PRE_TOKENIZERS

import uad.llama.vocab
from uad.base.errors import InvalidRequestError, ModelLoadError
from uad.llama.backend.native import build_info
from uad.llama.vocab import load_vocab
from uad.text.vocab import bounded
from uad.text.vocab.boundary import Boundaries
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

DEEP = [
    pre
    for pre in (*PRE_TOKENIZERS, "whitespace", "cohere2moe", "llada-moe", "a name of tomorrow")
    if pre not in bounded.NEVER_DEEP
]
"""llama.cpp refuses the last one at load; the program below says so."""
N_DEEP = 40_000
"""Characters that llama.cpp would recurse over in 12 MB of stack or more: a thread has 8."""
CLASSES = ("a", "=", " ", "1", "\u00e9", "\n", "好", "a ", "' ", " \n", "\u3000 ")
PROGRAM = """
import json
import sys
from pathlib import Path
from uad.base.errors import ModelLoadError
from uad.llama.vocab import load_vocab
folder, n, each = sys.argv[1:]
for pre, runs in json.loads(each).items():
    try:
        vocab = load_vocab(Path(folder) / "v.gguf", pre, quick=False)
    except ModelLoadError as error:
        print("refused", pre)
        continue
    for run in runs:
        print(pre, repr(run), flush=True)
        data = (run * (int(n) // len(run))).encode()
        ids = vocab.tokenize(data)
        assert vocab.join(ids) == data or pre == "whitespace", (pre, run)
print("alive")
"""


def survives(folder: Path, n: int, runs: dict[str, tuple[str, ...]]) -> subprocess.CompletedProcess[str]:
    """runs: for each pre-tokenizer, of what there are n characters."""
    bpe(folder / "v.gguf", "default", 1)
    command = [sys.executable, "-c", PROGRAM, str(folder), str(n), json.dumps(runs)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.slow
@pytest.mark.model
def test_very_long_runs_of_any_class_end_no_process(tmp_path: Path) -> None:
    # every third class with each, and every class with many
    done = survives(tmp_path, N_DEEP, {pre: (*CLASSES[i % 3 :: 3],) for i, pre in enumerate(DEEP)})
    said = done.stdout.splitlines()[-1]  # else what it died of
    assert (done.returncode, said) == (0, "alive"), done.stderr[-500:]


NEVER_DEEP_PROGRAM = """
import sys, threading
from pathlib import Path
import uad.llama.vocab
from uad.llama.vocab import load_vocab
uad.llama.vocab.bounded = lambda table, pre: table.tokenize
folder, *names = sys.argv[1:]
threading.stack_size(256 << 10)  # less than half of what recursion over 2,000 characters takes
for pre in names:
    vocab = load_vocab(Path(folder) / "v.gguf", pre, quick=False)
    for run in %r:
        print(pre, repr(run), flush=True)
        thread = threading.Thread(target=vocab.tokenize, args=((run * (2000 // len(run))).encode(),))
        thread.start()
        thread.join()
print("alive")
"""


def tried_on_a_small_stack(folder: Path, names: list[str]) -> subprocess.CompletedProcess[str]:
    bpe(folder / "v.gguf", "default", 1)
    command = [sys.executable, "-c", NEVER_DEEP_PROGRAM % (CLASSES,), str(folder), *names]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.model
def test_names_that_are_never_deep_are_not_in_the_installed_llama_cpp(tmp_path: Path) -> None:
    """A name that fails is no longer one of NEVER_DEEP. Where none does, a newer version belongs into CHECKED."""
    done = tried_on_a_small_stack(tmp_path, sorted(bounded.NEVER_DEEP))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "alive"), done.stderr[-500:]
    assert build_info() in bounded.CHECKED


@pytest.mark.model
def test_a_name_that_is_deep_ends_a_process_on_a_small_stack(tmp_path: Path) -> None:
    assert tried_on_a_small_stack(tmp_path, ["tekken"]).returncode < 0, "else the test above proves nothing"


@pytest.mark.model
def test_with_an_unknown_llama_cpp_no_name_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bpe(tmp_path / "v.gguf", "default", 1)
    text = TEXTS["mixed"][:6_000].decode(errors="ignore").encode() + b"a" * 700
    trusted = {pre: load_vocab(made, pre, quick=False) for pre in sorted(bounded.NEVER_DEEP)}
    called: list[str] = []
    monkeypatch.setattr(bounded, "_on_deep_stack", lambda work: called.append(pre) or work())
    monkeypatch.setattr(bounded, "CHECKED", frozenset())
    for pre, table in trusted.items():
        assert load_vocab(made, pre, quick=False).tokenize(text) == table.tokenize(text), pre
    assert called == sorted(bounded.NEVER_DEEP)


def native(path: Path, pre: str | None = None) -> VocabTable:
    """With llama.cpp's own tokenizer, on whatever stack it is called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uad.llama.vocab, "bounded", lambda table, pre: table.tokenize)
        return load_vocab(path, pre, quick=False)


@pytest.fixture(scope="module")
def tekken() -> VocabTable:
    return native(path_of("target-chatml"), "tekken")


@pytest.mark.model
@pytest.mark.parametrize("run", ["A", "=", " ", "1", "\u00e9", "\n", "aB", "x "])
def test_long_runs_have_the_ids_of_llama_cpp_on_a_huge_stack(run: str, tekken: VocabTable) -> None:
    ours = bounded.bounded(tekken, "tekken")
    lengths = (600, 9_000, 26_000, 50_000, 100_001)
    shapes = ("%s", "Some words, %s and more.", "x%sy1")
    for n, shape in [*((lengths[1], shape) for shape in shapes), *((n, shapes[n % 3]) for n in lengths)]:
        text = (shape % (run * n)).encode()
        assert ours(text) == bounded._on_deep_stack(lambda text=text: tekken.tokenize(text)), (n, text[:20])


@pytest.mark.model
@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "llama-spm", "gemma-4", "deepseek-coder", "falcon"])
def test_long_texts_have_the_ids_of_llama_cpp(name: str) -> None:
    table = native(fetched(name))
    for kind, text in TEXTS.items():
        long = b"".join([text] * (50_000 // len(text) + 1)).decode(errors="ignore").encode()
        ids = table.tokenize(long)
        assert bounded.bounded(table, "default")(long) == ids, kind
        assert Encoder(table).encode(long) == ids, kind


@pytest.mark.model
def test_blanks_in_a_row_end_no_process_with_the_pre_tokenizer_for_white_space(tmp_path: Path) -> None:
    """llama.cpp asserts that no merge is looked up for a blank."""
    done = survives(tmp_path, 300, {"whitespace": ("a  b", " \n", "\u3000 ", " ")})
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "alive"), done.stderr[-500:]
    made = bpe(tmp_path / "v.gguf", "whitespace", 1)
    ours, theirs = load_vocab(made, quick=False), native(made)
    for text in ("aZ s1\n\n好a é\t\tx", "a\u3000b", "1 2 3.", "\n\n\n"):
        assert ours.tokenize(text.encode()) == theirs.tokenize(text.encode())


@pytest.mark.model
def test_digits_of_superbpe_are_cut_where_it_cuts_them(tmp_path: Path) -> None:
    made = bpe(tmp_path / "v.gguf", "superbpe", 1)
    ours, theirs = load_vocab(made, quick=False), native(made)
    for n in range(90, 400, 7):
        for text in (b"1" * n, b"a" + b"12" * n + b".5", "\u0664".encode() + b"7" * n):
            cuts = bounded._digit_cuts(text)
            assert cuts or n < 96
            assert ours.tokenize(text) == theirs.tokenize(text)
            assert b"".join(bounded._cut(text, bounded._digit_cuts)) == text


def test_a_system_without_threads_refuses_the_text_and_nothing_else(
    tekken: VocabTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = threading.stack_size()
    ours = bounded.bounded(tekken, "tekken")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(InvalidRequestError, match="thread"):
            ours(b"a" * 5_000)
        assert ours(b"a b") == tekken.tokenize(b"a b")
    assert threading.stack_size() == before
    assert ours(b"a" * 5_000) == tekken.tokenize(b"a" * 5_000)


def test_an_error_on_the_other_thread_is_the_caller_s() -> None:
    def fail() -> None:
        raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        bounded._on_deep_stack(fail)


@pytest.mark.model
def test_pieces_are_bounded_as_far_as_safe_boundaries_allow() -> None:
    boundaries = Boundaries(vocab("target-chatml"))
    text = TEXTS["code"] * 20
    pieces = list(bounded._pieces(text, boundaries))
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= 8192 < len(text)
    assert [len(piece) for piece in bounded._pieces(b"a" * 20_000, boundaries)] == [20_000]


def test_a_file_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    for kind in ("none", "no_vocab"):
        writer = gguf.GGUFWriter(tmp_path / "v.gguf", "llama")
        writer.add_tokenizer_model(kind)
        writer.add_vocab_size(32)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        with pytest.raises(ModelLoadError, match="no vocabulary"):
            load_vocab(tmp_path / "v.gguf")
