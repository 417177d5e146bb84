"""Deliberately bad drafts: the same file but for the weights, reproducible, wrong, and sure of itself if asked."""

import gguf
import numpy as np
import pytest
from kit.models import DRAFTS, SAMPLES
from scale import main
from scramble import scramble, sentence

from uad.base.errors import ConfigError, ModelLoadError

ZEPHYR = DRAFTS["zephyr"]
TEXT = (
    b"def add(a, b):\n    return a + b\n\nThe quick brown fox jumps over the lazy dog and then it rests.\n\nimport os\n"
)


def tensors(path):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def test_everything_but_the_weights_is_kept(tmp_path):
    result = scramble(ZEPHYR, tmp_path / "bad.gguf", 7)
    old, new = gguf.GGUFReader(ZEPHYR).fields, gguf.GGUFReader(result.path).fields
    for key in old:
        if not key.startswith("GGUF.") and key != "general.name":
            assert (new[key].contents(), new[key].types) == (old[key].contents(), old[key].types), key
    assert new["general.name"].contents() == "uad-sample-draft-zephyr with random weights"
    assert (
        sentence(result)
        == "bad.gguf: draft-zephyr.gguf with random weights (seed 7); it writes nonsense at the same cost"
    )
    before, after = tensors(ZEPHYR), tensors(result.path)
    assert {name: (one.tensor_type, list(one.shape)) for name, one in after.items()} == {
        name: (one.tensor_type, list(one.shape)) for name, one in before.items()
    }
    for name, one in after.items():
        new_values, old_values = one.data.astype(np.float32), before[name].data.astype(np.float32)
        if new_values.ndim == 1:
            assert np.array_equal(new_values, old_values)
        else:
            assert abs(np.corrcoef(new_values.ravel(), old_values.ravel())[0, 1]) < 0.05
            assert np.sqrt(np.mean(new_values**2)) == pytest.approx(np.sqrt(np.mean(old_values**2)), rel=0.05)


def test_the_seed_decides(tmp_path):
    one, same, other = (
        scramble(ZEPHYR, tmp_path / f"{i}.gguf", seed).path.read_bytes() for i, seed in enumerate((1, 1, 2))
    )
    assert one == same != other


@pytest.mark.model
@pytest.mark.parametrize("draft", DRAFTS)
def test_nonsense_and_confident_nonsense(tmp_path, draft):
    for confident, low, high in ((False, 0.0, 0.5), (True, 0.8, 1.0)):
        path = scramble(DRAFTS[draft], tmp_path / "bad.gguf", 1, confident).path
        ids, probs = _probabilities(path)
        top = probs.argmax(1)
        assert low <= np.median(probs.max(1)) <= high
        assert np.mean(top[:-1] == ids[1:]) < 0.1
        assert np.mean(top == ids) < 0.1


def _probabilities(path):
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False)
    try:
        ids = model.tokenize(TEXT, add_bos=False)
        model.eval(ids)
        logits = np.asarray(model.scores[: len(ids)])
        probs = np.exp(logits - logits.max(1, keepdims=True))
        return np.array(ids), probs / probs.sum(1, keepdims=True)
    finally:
        model.close()


def test_bad_sources_and_outputs(tmp_path):
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ModelLoadError, match="not a GGUF file"):
        scramble(tmp_path / "text.gguf", tmp_path / "out.gguf", 1)
    with pytest.raises(ConfigError, match="the source itself"):
        scramble(ZEPHYR, SAMPLES / "draft-zephyr.gguf", 1)
    with pytest.raises(ConfigError, match="a folder"):
        scramble(ZEPHYR, tmp_path, 1)
    with pytest.raises(ConfigError, match="cannot write"):
        scramble(ZEPHYR, tmp_path / "none" / "out.gguf", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.gguf"]


def test_a_file_without_weights_is_refused(tmp_path):
    path = tmp_path / "empty.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("x", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelLoadError, match=r"output_norm\.weight"):
        scramble(path, tmp_path / "out.gguf", 1)


def test_command_line(tmp_path, capsys):
    out = tmp_path / "bad.gguf"
    assert main([str(ZEPHYR), str(out), "--random-weights", "3", "--confident"]) == 0
    assert "random weights (seed 3); it writes confident nonsense" in capsys.readouterr().out
    assert out.stat().st_size == pytest.approx(ZEPHYR.stat().st_size, rel=0.01)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--random-weights", "x"), "--random-weights: expected a whole number"),
        (("--random-weights", "1", "--params", "1b"), "leave out --params"),
        (("--confident",), "--confident needs --random-weights"),
    ],
)
def test_bad_flags(tmp_path, flags, words):
    with pytest.raises(ConfigError, match=words):
        main([str(ZEPHYR), str(tmp_path / "out.gguf"), *flags])
