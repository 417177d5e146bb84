"""Scaled models: geometry arithmetic, error cases, and that the function really is the source's."""

import dataclasses
import math
import shutil
import sys
from pathlib import Path

import gguf
import gguf_files
import numpy as np
import pytest
from geometry import Geometry, parse_params, plan, short
from gguf import quants
from scale import scale, sentence

from uad.base.errors import ConfigError, ModelLoadError, UadError

SAMPLES = Path(__file__).parents[3] / "samples"
TARGET = SAMPLES / "target-chatml.gguf"
DRAFT = SAMPLES / "draft-zephyr.gguf"
SMALL = Geometry(vocab=4096, width=256, layers=6, ff=768, heads=4, heads_kv=2, head_dim=64)


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("1b", 10**9),
        ("300m", 3 * 10**8),
        ("0.5B", 5 * 10**8),
        (" 7b ", 7 * 10**9),
        ("64k", 64_000),
        ("123456", 123456),
        (10**9, 10**9),
    ],
)
def test_params_are_read(text, params):
    assert parse_params(text) == params


@pytest.mark.parametrize(
    "text", ["", "b", "1t", "-1b", "1e9", "one", "1 b", "0", "0b", "9999b", "1" * 40, 0, -5, "0x10", "٣b"]
)
def test_bad_params_are_refused(text):
    with pytest.raises(ConfigError, match="--params"):
        parse_params(text)


def test_short_names():
    assert [short(n) for n in (900, 64_000, 688_768, 5_770_496, 1_015_105_536)] == [
        "900",
        "64.0K",
        "688.8K",
        "5.8M",
        "1.0B",
    ]


def test_one_billion_is_a_usual_one_billion():
    fit = plan(SMALL, 10**9)
    assert (fit.width, fit.layers, fit.ff, fit.heads, fit.heads_kv, fit.head_dim) == (2048, 20, 6144, 32, 16, 64)
    assert fit.params == 1_015_105_536


@pytest.mark.parametrize("text", ["100m", "300m", "1b", "3b", "7b", "70b"])
@pytest.mark.parametrize(
    "source",
    [
        SMALL,
        dataclasses.replace(SMALL, vocab=2048, width=128, layers=2, ff=384, heads=2, heads_kv=2),
        dataclasses.replace(SMALL, tied=False),
        Geometry(vocab=1000, width=448, layers=3, ff=1000, heads=7, heads_kv=1, head_dim=64),
    ],
    ids=["target", "draft", "untied", "odd"],
)
def test_plan_holds_the_source_and_meets_the_size(source, text):
    fit = plan(source, parse_params(text))
    assert fit.width % 256 == 0 == fit.ff % 256
    assert fit.heads * source.heads_kv == fit.heads_kv * source.heads
    assert fit.heads * fit.head_dim == fit.width
    for field in ("width", "layers", "ff", "heads", "heads_kv"):
        assert getattr(fit, field) >= getattr(source, field)
    assert (fit.vocab, fit.head_dim, fit.tied) == (source.vocab, source.head_dim, source.tied)
    assert abs(fit.params / parse_params(text) - 1) <= 0.25
    assert fit.params == sum(math.prod(shape) for shape in fit.shapes.values())


def test_too_small_and_unreachable_sizes_are_refused():
    with pytest.raises(ConfigError, match=r"smaller than the source \(5\.8M"):
        plan(SMALL, 5_000_000)
    draft = dataclasses.replace(SMALL, vocab=2048, width=128, layers=2, ff=384, heads=2, heads_kv=2)
    with pytest.raises(ConfigError, match=r"the nearest is 2\.2M"):
        plan(draft, 1_000_000)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["f32", "bf16", "q8_0", "q5_1", "mxfp4"])
def test_tensors_are_the_source_in_zeros(tmp_path, kind):
    out = tmp_path / "out.gguf"
    calls = []
    result = scale(DRAFT, out, "3m", kind, lambda done, total: calls.append((done, total)))
    source = {t.name: t for t in gguf.GGUFReader(DRAFT).tensors}
    tensors = {t.name: t for t in gguf.GGUFReader(out).tensors}
    assert sum(int(t.n_elements) for t in tensors.values()) == result.params
    assert result.n_bytes == out.stat().st_size
    assert calls == sorted(calls)
    assert calls[-1] == (sum(int(t.n_bytes) for t in tensors.values()),) * 2
    for name, tensor in tensors.items():
        data = quants.dequantize(tensor.data, tensor.tensor_type)
        if data.ndim == 1:
            expected = (
                source[name].data * np.float32(math.sqrt(128 / result.width))
                if name in source
                else np.ones(result.width)
            )
        elif name in source:
            rounded = np.pad(
                source[name].data.astype(np.float32), ((0, 0), (0, data.shape[1] - source[name].data.shape[1]))
            )
            expected = quants.dequantize(quants.quantize(rounded, tensor.tensor_type), tensor.tensor_type)
        else:
            expected = data * (not name.endswith(("attn_output.weight", "ffn_down.weight")))
            assert name.endswith(("attn_output.weight", "ffn_down.weight")) or data.std() > 0.01
        assert np.array_equal(
            data, np.pad(expected, [(0, want - have) for want, have in zip(data.shape, expected.shape, strict=True)])
        ), name


def test_metadata_is_kept_and_says_what_it_is(tmp_path):
    result = scale(TARGET, tmp_path / "out.gguf", "20m", "q8_0")
    fields = gguf.GGUFReader(tmp_path / "out.gguf").fields
    source = gguf.GGUFReader(TARGET).fields
    for key in source:
        if key.startswith("tokenizer.") or key in (
            "llama.context_length",
            "llama.rope.freq_base",
            "llama.vocab_size",
            "general.license",
        ):
            assert fields[key].contents() == source[key].contents()
            assert fields[key].types == source[key].types
    assert fields["general.name"].contents() == "uad-sample-target-chatml scaled to 21.0M (cost emulation)"
    assert "Cost emulation" in fields["general.description"].contents()
    assert fields["uad.cost_emulation"].contents() is True
    assert fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q8_0
    assert fields["llama.attention.layer_norm_rms_epsilon"].contents() == pytest.approx(1e-5 * 256 / result.width)
    assert sentence(result) == (
        "out.gguf: same function as target-chatml.gguf, rounded to Q8_0, at the cost of 21.0M parameters "
        "(width 512, 6 layers, feed-forward 1536); text quality is that of target-chatml.gguf"
    )


def test_source_errors(tmp_path):
    wrong = tmp_path / "text.gguf"
    wrong.write_text("hello, world")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(TARGET.read_bytes()[:100_000])
    stub = tmp_path / "stub.gguf"
    stub.write_bytes(b"GGUF\x03\x00\x00\x00")
    for path, text in (
        (tmp_path / "none.gguf", "no such file"),
        (wrong, "not a GGUF"),
        (cut, "truncated"),
        (stub, "truncated"),
        (tmp_path, "no such file"),
    ):
        with pytest.raises(ModelLoadError, match=text) as caught:
            scale(path, tmp_path / "out.gguf", "1b")
        assert str(path) in str(caught.value)
    assert not list(tmp_path.glob("out*"))


def test_a_source_that_may_not_be_read(tmp_path, monkeypatch):
    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(TARGET), "open", refuse)
    with pytest.raises(ModelLoadError, match=r"cannot be read \(Permission denied"):
        scale(TARGET, tmp_path / "out.gguf", "1b")


def _write(path, architecture, width=128, head_dim=64, extra=()):
    writer = gguf.GGUFWriter(path, architecture)
    if architecture == "llama":
        writer.add_embedding_length(width)
        writer.add_block_count(0)
        writer.add_feed_forward_length(256)
        writer.add_head_count(2)
        writer.add_key_length(head_dim)
        writer.add_layer_norm_rms_eps(1e-5)
    for name, shape in (("token_embd.weight", (64, 128)), ("output_norm.weight", (128,)), *extra):
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_models_of_other_kinds_are_refused(tmp_path):
    cases = [
        (_write(tmp_path / "bert.gguf", "bert"), "architecture is 'bert'; only llama and qwen2"),
        (
            _write(tmp_path / "extra.gguf", "llama", extra=[("blk.0.ffn_gate_exps.weight", (4, 8, 8))]),
            "ffn_gate_exps.weight is not one",
        ),
        (
            _write(tmp_path / "width.gguf", "llama", width=64),
            r"token_embd.weight has the shape \(64, 128\), expected \(64, 64\)",
        ),
    ]
    for path, text in cases:
        with pytest.raises(ModelLoadError, match=text):
            scale(path, tmp_path / "out.gguf", "1b")


@pytest.mark.parametrize(
    ("kind", "text"),
    [("q8", "did you mean q8_0"), ("bf15", "did you mean bf16"), ("Q4_K", "did you mean q4_"), ("tq1_0", "cannot")],
)
def test_unknown_type_names_the_nearest(tmp_path, kind, text):
    with pytest.raises(ConfigError, match=text):
        scale(TARGET, tmp_path / "out.gguf", "1b", kind)


def test_output_errors_leave_nothing(tmp_path, monkeypatch):
    source = shutil.copy(DRAFT, tmp_path / "source.gguf")
    before = source.read_bytes()
    for out, text in (
        (source, "the source itself"),
        (tmp_path, "a folder"),
        (tmp_path / "no" / "out.gguf", "No such file"),
    ):
        with pytest.raises(ConfigError, match=text):
            scale(source, out, "3m")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 10))
    with pytest.raises(ConfigError, match=r"it needs .* GB, 0\.0 GB are free"):
        scale(source, tmp_path / "out.gguf", "3m")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.gguf"]
    assert source.read_bytes() == before


def test_an_interrupted_write_keeps_the_old_file(tmp_path):
    out = tmp_path / "out.gguf"
    out.write_bytes(b"old")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scale(DRAFT, out, "3m", "f16", interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert out.read_bytes() == b"old"


def test_missing_gguf_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigError, match=r"pip install 'uad\[lab\]'") as caught:
        scale(TARGET, tmp_path / "out.gguf", "1b")
    assert isinstance(caught.value, UadError)


def _greedy(path, prompt, n):
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False)
    try:
        ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
        model.eval(ids)
        for _ in range(n):
            ids.append(int(np.argmax(model.scores[model.n_tokens - 1])))
            model.eval(ids[-1:])
        return ids
    finally:
        model.close()


@pytest.mark.model
def test_greedy_text_is_the_source_s(tmp_path):
    scale(TARGET, tmp_path / "out.gguf", "20m", "f16")
    prompts = [
        "<|im_start|>user\nCount from 3 to 30 in steps of 3.<|im_end|>\n<|im_start|>assistant\n",
        "import os\n\n\ndef main(argv):\n",
    ]
    for prompt in prompts:
        assert _greedy(tmp_path / "out.gguf", prompt, 16) == _greedy(TARGET, prompt, 16)


def _as_qwen2(path):
    """The bundled target's weights as a qwen2 model, with biases: another function, since qwen2 turns other pairs of a
    head.
    """
    reader, rng = gguf.GGUFReader(TARGET), np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "qwen2")
    for key, field in reader.fields.items():
        if key.startswith(("llama.", "tokenizer.")):
            kind = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key.replace("llama.", "qwen2."), gguf_files.raw_value(field), field.types[0], kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
        layer, dot, name = tensor.name.rpartition(".attn_")
        if dot and name in ("q.weight", "k.weight", "v.weight"):
            writer.add_tensor(
                f"{layer}.attn_{name[0]}.bias", rng.normal(0, 0.3, int(tensor.shape[1])).astype(np.float32)
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.model
def test_a_qwen2_model_keeps_its_text_too(tmp_path):
    source = _as_qwen2(tmp_path / "qwen2.gguf")
    scale(source, tmp_path / "out.gguf", "20m", "f16")
    fields = gguf.GGUFReader(tmp_path / "out.gguf").fields
    assert fields["general.architecture"].contents() == "qwen2"
    assert not [key for key in fields if key.startswith("llama.")]
    prompt = "<|im_start|>user\nCount from 3 to 30 in steps of 3.<|im_end|>\n<|im_start|>assistant\n"
    text = _greedy(source, prompt, 16)
    assert _greedy(tmp_path / "out.gguf", prompt, 16) == text
    assert text != _greedy(TARGET, prompt, 16), "the biases count"
