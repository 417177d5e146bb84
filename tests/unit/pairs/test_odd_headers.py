"""Headers that no converter writes: any value of any kind below any key that is read, files cut anywhere, and bytes
that are others. Each costs its own model, and nothing else.
"""

import json
import random
import struct
from contextlib import suppress
from dataclasses import asdict
from math import inf, nan

import pytest

from uad.base.errors import UadError
from uad.base.gguf import GgufFile, read_texts
from uad.pairs.choose import best, views
from uad.pairs.formats import chat_format
from uad.pairs.header import facts, stamp
from uad.tools.trim.cut import saving
from uad.tools.trim.vocabulary import read_vocabulary

U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 = 4, 5, 6, 7, 8, 9, 10, 11, 12
PACKED = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q", I64: "<q", F64: "<d"}
TOKENS, TEMPLATE = "tokenizer.ggml.tokens", "tokenizer.chat_template"
CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
USUAL = {
    "general.architecture": (TEXT, "llama"),
    "general.name": (TEXT, "tiny"),
    "general.type": (TEXT, "model"),
    "general.file_type": (U32, 7),
    "general.alignment": (U32, 32),
    "llama.context_length": (U32, 4096),
    "llama.embedding_length": (U32, 8),
    "llama.block_count": (U32, 1),
    "llama.nextn_predict_layers": (U32, 1),
    "llama.attention.causal": (BOOL, True),
    "llama.pooling_type": (U32, 0),
    "llama.classifier.output_labels": (TEXT, []),
    "split.count": (U32, 0),
    "tokenizer.ggml.model": (TEXT, "gpt2"),
    TOKENS: (TEXT, ["a", "b", "</s>"]),
    "tokenizer.ggml.token_type": (I32, [1, 1, 3]),
    "tokenizer.ggml.merges": (TEXT, ["a b"]),
    "tokenizer.ggml.bos_token_id": (U32, 2),
    "tokenizer.ggml.eos_token_id": (U32, 2),
    "tokenizer.ggml.fim_pre_token_id": (U32, 2),
    TEMPLATE: (TEXT, CHAT),
}
ODD = [
    *((F32, nan), (F32, inf), (F32, -inf), (F64, nan), (F64, inf), (F64, 1e300), (F32, 0.5), (F32, -1.0)),
    *((I32, -1), (I64, -(2**63)), (U64, 2**64 - 1), (U32, 2**32 - 1), (U32, 0), (BOOL, True), (BOOL, False)),
    *((TEXT, ""), (TEXT, "x"), (TEXT, "\0\n\x1b"), (TEXT, b"\xff\xfe"), (TEXT, "{{ 1/0 }}"), (TEXT, "{% for %}")),
    *((TEXT, []), (TEXT, ["x"]), (U32, []), (U32, [1, 2, 3]), (F32, [nan, inf, 1.0]), (BOOL, [True] * 3)),
    *((I32, [-1] * 3), (U64, [2**64 - 1] * 3), (TEXT, ["", "", ""]), (TEXT, [b"\xff"] * 3)),
]


def packed(kind, value):
    if kind == TEXT:
        data = value if isinstance(value, bytes) else value.encode()
        return struct.pack("<Q", len(data)) + data
    return struct.pack(PACKED[kind], value)


def written(kind, value):
    """A value with its kind before it."""
    if isinstance(value, list):
        each = b"".join(packed(kind, one) for one in value)
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + each
    return struct.pack("<I", kind) + packed(kind, value)


def model(changes=(), shape=(8, 3), kind=0):
    """The bytes of a model of these values and of one matrix."""
    values = USUAL | dict(changes)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(values))
    head += b"".join(packed(TEXT, key) + written(*value) for key, value in values.items())
    head += packed(TEXT, "token_embd.weight") + struct.pack("<IQQIQ", 2, *shape, kind, 0)
    return head + bytes(-len(head) % 32) + bytes(4 * 8 * 3)


def read_everywhere(path, target):
    """All that reads headers before llama.cpp does, on one file; its facts."""
    of = stamp(path)
    found = facts(path, of)
    assert json.dumps(asdict(found), allow_nan=False).encode()
    assert min(found.n_ctx_train, found.n_embd, found.n_vocab, found.n_params, found.size) >= 0
    assert found.problem or found.size
    chat_format(path, of)
    views(target, [path])
    best(target, [path])
    saving(path, keep=1)
    read_texts(path, (TOKENS,))
    with suppress(UadError), GgufFile(path) as file:
        read_vocabulary(file)
    return found


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "target.gguf"
    path.write_bytes(model() + bytes(4096))
    return path


def test_the_usual_file_is_read(target):
    found = read_everywhere(target, target)
    assert (found.problem, found.n_ctx_train, found.n_vocab, found.n_params, found.ftype) == ("", 4096, 3, 24, "Q8_0")


@pytest.mark.parametrize("key", USUAL)
def test_any_value_of_any_kind_below_a_key_costs_its_own_model(target, key):
    for i, odd in enumerate(ODD):
        path = target.with_name(f"odd-{i}.gguf")
        path.write_bytes(model([(key, odd)]))
        read_everywhere(path, target)


@pytest.mark.parametrize("key", ["llama.context_length", "llama.embedding_length"])
def test_a_number_of_the_wrong_kind_is_none(target, key):
    for odd in ((F32, nan), (F64, 4096.0), (I32, -1), (TEXT, "4096"), (U32, [4096]), (BOOL, True)):
        path = target.with_name("odd.gguf")
        path.write_bytes(model([(key, odd)]))
        found = facts(path, ((str(odd), 1, 1, 1),))
        assert 0 in (found.n_ctx_train, found.n_embd)


def test_a_file_cut_anywhere_says_so(target):
    whole = model()
    path = target.with_name("cut.gguf")
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        assert (facts(path, stamp(path)) if n % 16 else read_everywhere(path, target)).problem


def test_a_byte_that_is_another_costs_its_own_model(target):
    whole, chance = model(), random.Random(1)
    path = target.with_name("other.gguf")
    for _ in range(200):
        data = bytearray(whole)
        for at in chance.sample(range(len(whole)), chance.choice((1, 1, 3))):
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        path.write_bytes(data)
        read_everywhere(path, target)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (8, 0), (2**63, 2**63), (2**64 - 1, 1), (7, 3)])
@pytest.mark.parametrize("kind", [0, 2, 8, 14, 999])
def test_a_matrix_of_any_shape_and_type_costs_its_own_model(target, shape, kind):
    path = target.with_name("shape.gguf")
    path.write_bytes(model(shape=shape, kind=kind))
    read_everywhere(path, target)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 8, 24])
def test_a_file_without_a_header_says_so(target, n):
    path = target.with_name("none.gguf")
    path.write_bytes(b"GGUF\3\0\0\0"[:n] + bytes(max(n - 8, 0)))
    assert read_everywhere(path, target).problem or n == 24
