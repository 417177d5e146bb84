"""Which file of a repository is loaded, as llama-server chooses it."""

import pytest

from uad.base.config import HubModel
from uad.base.errors import ConfigError
from uad.tools.hub.choose import choose, parts, projector, quant_of

PLAIN = ["README.md", "m-IQ2_XS.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-F16.gguf", "m.imatrix.gguf"]


@pytest.mark.parametrize(
    ("quant", "names", "expected"),
    [
        ("", PLAIN, "m-Q4_K_M.gguf"),
        ("", ["m-Q8_0.gguf", "m-F16.gguf"], "m-Q8_0.gguf"),
        ("", ["m-Q6_K.gguf", "m-Q5_K.gguf"], "m-Q5_K.gguf"),
        ("q8_0", PLAIN, "m-Q8_0.gguf"),
        ("F16", ["mmproj-m-F16.gguf", "m-F16.gguf"], "m-F16.gguf"),
        (
            "Q4_K_M",
            ["q/m-Q4_K_M-00002-of-00002.gguf", "q/m-Q4_K_M-00001-of-00002.gguf"],
            "q/m-Q4_K_M-00001-of-00002.gguf",
        ),
        ("Q8_0", ["Q8_0/m.gguf", "m-Q8_0.gguf"], "m-Q8_0.gguf"),
        ("", ["mtp-m-Q4_K_M.gguf", "eagle3-m-Q4_K_M.gguf", "m-Q2_K.gguf"], "m-Q2_K.gguf"),
    ],
)
def test_the_file_for_a_quantization(quant, names, expected):
    assert choose(HubModel("a/b", quant), names) == expected


@pytest.mark.parametrize(
    ("model", "names", "words"),
    [
        (HubModel("a/b", "Q4"), ["m-Q4_K_M.gguf"], "no quantization 'Q4'; there are Q4_K_M"),
        (HubModel("a/b", "Q4.K"), ["m-Q4_K-x.gguf"], "no quantization 'Q4.K'"),
        (HubModel("a/b"), ["mmproj-m-F16.gguf"], "--hf-file"),
        (HubModel("a/b"), ["model.safetensors"], "no GGUF file"),
    ],
)
def test_what_cannot_be_chosen_says_what_there_is(model, names, words):
    with pytest.raises(ConfigError) as caught:
        choose(model, names)
    assert words in str(caught.value)


def test_parts_of_a_split_file_come_in_order():
    names = ["m-00002-of-00003.gguf", "m-00001-of-00003.gguf", "m-00003-of-00003.gguf"]
    assert parts("m-00001-of-00003.gguf", names, "a/b") == tuple(sorted(names))
    assert parts("m.gguf", names, "a/b") == ("m.gguf",)
    with pytest.raises(ConfigError, match=r"missing: m-00001-of-00003\.gguf"):
        parts("m-00002-of-00003.gguf", names[:1] + names[2:], "a/b")


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("m-Q4_K_M.gguf", "Q4_K_M"),
        ("m.q8_0.gguf", "Q8_0"),
        ("x/m-BF16-00001-of-00002.gguf", "BF16"),
        ("model.gguf", ""),
    ],
)
def test_a_name_says_its_quantization(name, quant):
    assert quant_of(name) == quant


@pytest.mark.parametrize(
    ("model", "names", "expected"),
    [
        ("m-Q4_K_M.gguf", PLAIN, "mmproj-m-F16.gguf"),
        ("m-Q8_0.gguf", ["m-Q8_0.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf", "mmproj-Q8_0.gguf"], "mmproj-Q8_0.gguf"),
        ("q/m-Q4_0.gguf", ["mmproj-Q4_0.gguf", "q/m-Q4_0.gguf", "q/mmproj-F32.gguf"], "q/mmproj-F32.gguf"),
        ("q/m-Q4_0.gguf", ["r/mmproj-F16.gguf", "q/m-Q4_0.gguf"], None),
        ("m-Q4_0.gguf", ["m-Q4_0.gguf", "mmproj.json"], None),
    ],
)
def test_the_projector_beside_a_file(model, names, expected):
    assert projector(model, names) == expected
