"""Files of repositories as publishers name them, what users ask for, and the file that is meant."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uad.base.config import HubModel
from uad.base.errors import ConfigError
from uad.tools.hub.choose import choose

BARTOWSKI = "IQ2_M IQ3_M IQ3_XS IQ4_NL IQ4_XS Q2_K Q2_K_L Q3_K_L Q3_K_M Q3_K_S Q3_K_XL Q4_0 Q4_1 Q4_K_L Q4_K_M Q4_K_S"
LARGE = "Q5_K_L Q5_K_M Q5_K_S Q6_K Q6_K_L Q8_0"
UNSLOTH = "BF16 F16 IQ4_NL IQ4_XS Q2_K Q2_K_L Q3_K_M Q3_K_S Q4_0 Q4_1 Q4_K_M Q4_K_S Q5_K_M Q5_K_S Q6_K Q8_0"
DYNAMIC = "UD-IQ1_M UD-IQ1_S UD-IQ2_M UD-Q2_K_XL UD-Q3_K_XL UD-Q4_K_XL UD-Q5_K_XL UD-Q6_K_XL UD-Q8_K_XL"
STATIC = "IQ4_XS Q2_K Q3_K_L Q3_K_M Q3_K_S Q4_K_M Q4_K_S Q5_K_M Q5_K_S Q6_K Q8_0 f16"
WEIGHTED = "IQ1_M IQ1_S IQ2_M IQ2_XXS IQ3_S IQ4_NL IQ4_XS Q2_K Q2_K_S Q3_K_M Q4_0 Q4_1 Q4_K_M Q4_K_S Q5_K_M Q6_K"
THEBLOKE = "Q2_K Q3_K_L Q3_K_M Q3_K_S Q4_0 Q4_K_M Q4_K_S Q5_0 Q5_K_M Q5_K_S Q6_K Q8_0"
QWEN = "fp16 q2_k q3_k_m q4_0 q4_k_m q5_0 q5_k_m q6_k q8_0"


def of(start: str, quants: str, *others: str) -> list[str]:
    """`start` and each quantization, and other files."""
    return [".gitattributes", "README.md", *(f"{start}{quant}.gguf" for quant in quants.split()), *others]


def split(start: str, n: int) -> list[str]:
    """The parts of a file."""
    return [f"{start}-{i:05d}-of-{n:05d}.gguf" for i in range(1, n + 1)]


LLAMA = of("Meta-Llama-3.1-8B-Instruct-", f"{BARTOWSKI} {LARGE} f32", "Meta-Llama-3.1-8B-Instruct.imatrix")
QWEN3 = of("Qwen3-4B-", f"{UNSLOTH} {DYNAMIC}", "config.json", "imatrix_unsloth.dat")
GEMMA = of("gemma-3-4b-it-", f"{UNSLOTH} {DYNAMIC}", "mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf")
QAT = of("google_gemma-3-12b-it-qat-", "Q2_K Q4_0 Q4_K_M Q8_0 bf16", "mmproj-google_gemma-3-12b-it-qat-f16.gguf")
UNQUANTIZED = of("gemma-3-12b-it-qat-q4_0-unquantized-", "BF16 Q4_0 Q4_K_M Q8_0")
I1 = of("Qwen2.5-Coder-7B.i1-", WEIGHTED, "Qwen2.5-Coder-7B.imatrix.gguf")
BLOKE = of("mistral-7b-instruct-v0.2.", THEBLOKE, "config.json")
QWENS = of("qwen2.5-coder-1.5b-instruct-", QWEN, "LICENSE")
DEEPSEEK = [
    "config.json",
    *split("DeepSeek-R1-BF16/DeepSeek-R1.BF16", 3),
    *split("DeepSeek-R1-Q4_K_M/DeepSeek-R1-Q4_K_M", 9),
    *split("DeepSeek-R1-Q8_0/DeepSeek-R1.Q8_0", 15),
    *split("DeepSeek-R1-UD-IQ1_S/DeepSeek-R1-UD-IQ1_S", 3),
]
FOLDERS = [*split("BF16/Qwen3-32B-BF16", 2), *of("Qwen3-32B-", f"Q4_K_M Q8_0 {DYNAMIC}")]
ONLY_FOLDERS = [*split("BF16/model", 2), *split("Q4_K_M/model", 2), "Q8_0/model.gguf"]
GPT_OSS = of("gpt-oss-20b-", "F16 Q2_K Q4_K_M Q8_0 UD-Q4_K_XL UD-Q8_K_XL")
MIXED = of("Ornith-1.5-9B-MTP-", "IQ2_M Q4_K_M Q8_0", "mmproj-Ornith-1.5-9B-BF16.gguf")
STEP = [
    "mmproj-m-f16.gguf",
    "m-mtp-BF16.gguf",
    "m-mtp-Q8_0.gguf",
    *split("Q3_K_M/m-Q3_K_M", 3),
    *split("Q8_0/m-Q8_0", 2),
]
GGML = of("gemma-4-12B-it-", "BF16 Q4_K_M Q8_0", "mmproj-gemma-4-12B-it-Q8_0.gguf", "mtp-gemma-4-12B-it-Q4_0.gguf")
SPARK = ["README.md", "m-MXFP4.gguf", "dspark-m-BF16.gguf", "dspark-m-MXFP4.gguf"]
IMAT = of("Erosumika-7B-v3-", "Q4_K_M-imat Q5_K_M-imat Q8_0-imat", "imatrix.dat", "imatrix.txt")
LOWER = of("qwen3.5-9b-mtp-", "bf16 q4_k_m q8_0")
SHOUTED = ["MMPROJ-F16.GGUF", "MODEL-F16.GGUF", "MODEL-Q8_0.GGUF"]
SIDES = of("m-", "Q8_0", "mtp-m-Q4_K_M.gguf", "eagle3-m-Q4_K_M.gguf", "dflash-m-Q4_K_M.gguf", "MTP-m-Q4_K_M.gguf")
PHI = ["Phi-3-mini-4k-instruct-fp16.gguf", "Phi-3-mini-4k-instruct-q4.gguf", "README.md"]

MEANT = [
    # bartowski: name-QUANT, in one folder
    (LLAMA, "", "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"),
    (LLAMA, "Q4_K_L", "Meta-Llama-3.1-8B-Instruct-Q4_K_L.gguf"),
    (LLAMA, "q3_k_xl", "Meta-Llama-3.1-8B-Instruct-Q3_K_XL.gguf"),
    (LLAMA, "Q3_K", "Meta-Llama-3.1-8B-Instruct-Q3_K_M.gguf"),
    (LLAMA, "Q4_K", "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"),
    (LLAMA, "Q5_K", "Meta-Llama-3.1-8B-Instruct-Q5_K_M.gguf"),
    (LLAMA, "Q6_K", "Meta-Llama-3.1-8B-Instruct-Q6_K.gguf"),
    (LLAMA, "Q2_K", "Meta-Llama-3.1-8B-Instruct-Q2_K.gguf"),
    (LLAMA, "F32", "Meta-Llama-3.1-8B-Instruct-f32.gguf"),
    (LLAMA, "Q4_1", "Meta-Llama-3.1-8B-Instruct-Q4_1.gguf"),
    (of("Llama-3.2-1B-Instruct-", "Q4_0 Q4_0_4_4 Q4_0_8_8 f16"), "Q4_0", "Llama-3.2-1B-Instruct-Q4_0.gguf"),
    (of("Llama-3.2-1B-Instruct-", "Q4_0_4_4 Q4_0_8_8 f16"), "Q4_0_8_8", "Llama-3.2-1B-Instruct-Q4_0_8_8.gguf"),
    (
        of("Qwen_Qwen3-30B-A3B-", "Q4_K_M", *split("bf16/Qwen_Qwen3-30B-A3B-bf16", 2)),
        "BF16",
        "bf16/Qwen_Qwen3-30B-A3B-bf16-00001-of-00002.gguf",
    ),
    (QAT, "", "google_gemma-3-12b-it-qat-Q4_K_M.gguf"),
    (QAT, "Q4_0", "google_gemma-3-12b-it-qat-Q4_0.gguf"),
    (QAT, "BF16", "google_gemma-3-12b-it-qat-bf16.gguf"),
    (UNQUANTIZED, "Q4_0", "gemma-3-12b-it-qat-q4_0-unquantized-Q4_0.gguf"),
    (UNQUANTIZED, "Q8_0", "gemma-3-12b-it-qat-q4_0-unquantized-Q8_0.gguf"),
    # unsloth: BF16 beside F16, mixtures of its own, large ones in folders and parts
    (QWEN3, "", "Qwen3-4B-Q4_K_M.gguf"),
    (QWEN3, "F16", "Qwen3-4B-F16.gguf"),
    (QWEN3, "BF16", "Qwen3-4B-BF16.gguf"),
    (QWEN3, "UD-Q4_K_XL", "Qwen3-4B-UD-Q4_K_XL.gguf"),
    (QWEN3, "Q4_K_XL", "Qwen3-4B-UD-Q4_K_XL.gguf"),
    (QWEN3, "Q8_K_XL", "Qwen3-4B-UD-Q8_K_XL.gguf"),
    (QWEN3, "IQ1_S", "Qwen3-4B-UD-IQ1_S.gguf"),
    (GEMMA, "F16", "gemma-3-4b-it-F16.gguf"),
    (GEMMA, "Q8_0", "gemma-3-4b-it-Q8_0.gguf"),
    (GPT_OSS, "F16", "gpt-oss-20b-F16.gguf"),
    (DEEPSEEK, "", "DeepSeek-R1-Q4_K_M/DeepSeek-R1-Q4_K_M-00001-of-00009.gguf"),
    (DEEPSEEK, "Q8_0", "DeepSeek-R1-Q8_0/DeepSeek-R1.Q8_0-00001-of-00015.gguf"),
    (DEEPSEEK, "UD-IQ1_S", "DeepSeek-R1-UD-IQ1_S/DeepSeek-R1-UD-IQ1_S-00001-of-00003.gguf"),
    (FOLDERS, "", "Qwen3-32B-Q4_K_M.gguf"),
    (FOLDERS, "BF16", "BF16/Qwen3-32B-BF16-00001-of-00002.gguf"),
    (ONLY_FOLDERS, "", "Q4_K_M/model-00001-of-00002.gguf"),
    (ONLY_FOLDERS, "Q8_0", "Q8_0/model.gguf"),
    (ONLY_FOLDERS, "BF16", "BF16/model-00001-of-00002.gguf"),
    (["BF16/m-Q8_0.gguf", "BF16/m.gguf"], "BF16", "BF16/m.gguf"),
    (["Q8_0/m-q4_0-unquantized.gguf", "BF16/m-q4_0-unquantized.gguf"], "BF16", "BF16/m-q4_0-unquantized.gguf"),
    (["m-UD-Q8_K_XL.gguf", "mmproj-BF16.gguf", "m-MTP-BF16.gguf"], "BF16", "m-MTP-BF16.gguf"),
    # ggml-org: heads and projectors beside the model
    (GGML, "", "gemma-4-12B-it-Q4_K_M.gguf"),
    (GGML, "BF16", "gemma-4-12B-it-BF16.gguf"),
    (SPARK, "", "m-MXFP4.gguf"),
    (SIDES, "", "m-Q8_0.gguf"),
    (
        ["gpt-oss-120b-mxfp4-00001-of-00002.gguf", "gpt-oss-120b-mxfp4-00002-of-00002.gguf"],
        "",
        "gpt-oss-120b-mxfp4-00001-of-00002.gguf",
    ),
    (
        of("Qwen2.5-VL-7B-Instruct-", "Q4_K_M Q8_0 f16", "mmproj-Qwen2.5-VL-7B-Instruct-f16.gguf"),
        "F16",
        "Qwen2.5-VL-7B-Instruct-f16.gguf",
    ),
    (["stories260K.gguf", "stories15M-q4_0.gguf", "stories15M-q8_0.gguf"], "Q4_0", "stories15M-q4_0.gguf"),
    (STEP, "", "Q8_0/m-Q8_0-00001-of-00002.gguf"),
    (STEP, "Q3_K_M", "Q3_K_M/m-Q3_K_M-00001-of-00003.gguf"),
    # lmstudio-community
    (of("Qwen3-8B-", "Q3_K_L Q4_K_M Q6_K Q8_0"), "Q3_K_L", "Qwen3-8B-Q3_K_L.gguf"),
    (of("gpt-oss-20b-", "MXFP4", "README.md"), "mxfp4", "gpt-oss-20b-MXFP4.gguf"),
    (["Qwen3-Coder-MXFP4_MOE.gguf", "Qwen3-Coder-Q8_0.gguf"], "MXFP4", "Qwen3-Coder-MXFP4_MOE.gguf"),
    # TheBloke: name.QUANT
    (BLOKE, "", "mistral-7b-instruct-v0.2.Q4_K_M.gguf"),
    (BLOKE, "Q3_K_S", "mistral-7b-instruct-v0.2.Q3_K_S.gguf"),
    (BLOKE, "Q5_0", "mistral-7b-instruct-v0.2.Q5_0.gguf"),
    # mradermacher: name.QUANT, name.i1-QUANT
    (of("BlackSheep-24B.", STATIC), "F16", "BlackSheep-24B.f16.gguf"),
    (I1, "", "Qwen2.5-Coder-7B.i1-Q4_K_M.gguf"),
    (I1, "i1-IQ3_S", "Qwen2.5-Coder-7B.i1-IQ3_S.gguf"),
    (I1, "Q2_K", "Qwen2.5-Coder-7B.i1-Q2_K.gguf"),
    # the makers' own
    (QWENS, "", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
    (QWENS, "F16", "qwen2.5-coder-1.5b-instruct-fp16.gguf"),
    (QWENS, "fp16", "qwen2.5-coder-1.5b-instruct-fp16.gguf"),
    (QWENS, "Q3_K", "qwen2.5-coder-1.5b-instruct-q3_k_m.gguf"),
    (
        [*split("qwen2.5-7b-instruct-q4_k_m", 2), *split("qwen2.5-7b-instruct-fp16", 4)],
        "",
        "qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf",
    ),
    (["gemma-3-4b-it-q4_0.gguf", "mmproj-model-f16-4B.gguf"], "", "gemma-3-4b-it-q4_0.gguf"),
    (PHI, "", "Phi-3-mini-4k-instruct-fp16.gguf"),
    (PHI, "q4", "Phi-3-mini-4k-instruct-q4.gguf"),
    (of("ggml-model-", "i2_s", "README.md"), "", "ggml-model-i2_s.gguf"),
    (of("SmolLM2-135M-Instruct-", "Q4_K_M Q8_0"), "Q8_0", "SmolLM2-135M-Instruct-Q8_0.gguf"),
    (["Falcon_E_1B-TQ1_0.gguf", "Falcon_E_1B-TQ2_0.gguf"], "TQ2_0", "Falcon_E_1B-TQ2_0.gguf"),
    # odd names
    (MIXED, "", "Ornith-1.5-9B-MTP-Q4_K_M.gguf"),
    (LOWER, "", "qwen3.5-9b-mtp-q4_k_m.gguf"),
    (IMAT, "Q5_K_M", "Erosumika-7B-v3-Q5_K_M-imat.gguf"),
    (of("m-imatrix-", "Q4_K_M Q8_0", "m-imatrix.gguf"), "Q8_0", "m-imatrix-Q8_0.gguf"),
    (SHOUTED, "F16", "MODEL-F16.GGUF"),
    (SHOUTED, "", "MODEL-Q8_0.GGUF"),
    (["Llama_3.2_1B_Q4_K_M.gguf", "Llama_3.2_1B_Q8_0.gguf"], "Q8_0", "Llama_3.2_1B_Q8_0.gguf"),
    (["m-Q4_K_M_v2.gguf", "m-Q8_0.gguf"], "", "m-Q4_K_M_v2.gguf"),
    (["m-1.7B-Q8_0.gguf", "m-4B-Q8_0.gguf"], "4B", "m-4B-Q8_0.gguf"),
    (["m.Q8_0.gguf.part1of2", "m.Q8_0.gguf.part2of2", "m.Q4_K_M.gguf"], "", "m.Q4_K_M.gguf"),
    (["TheDrummer_M-24B-v4.1-Q8_0.gguf", "BlackSheep-24B.Q8_0.gguf"], "", "BlackSheep-24B.Q8_0.gguf"),
]


@pytest.mark.parametrize(("names", "quant", "meant"), MEANT, ids=lambda value: value if isinstance(value, str) else "")
def test_the_file_that_is_meant_is_found(names: list[str], quant: str, meant: str) -> None:
    assert meant in names
    assert choose(HubModel("a/b", quant), names) == meant
    assert choose(HubModel("a/b", quant), reversed(names)) == meant


NOT_THERE = [
    (of("m-", "Q3_K_S Q3_K_L"), "Q3_K", "there are Q3_K_L, Q3_K_S"),
    (of("m-", "BF16"), "F16", "there are BF16"),
    (of("m-", "IQ4_XS"), "Q4_K_M", "there are IQ4_XS"),
    (of("m-", "Q4_0_4_4"), "Q4_0", "there are Q4_0_4_4"),
    (of("m-", "Q4_K_M"), "UD-Q4_K_M", "there are Q4_K_M"),
    (STEP, "BF16", "there are Q3_K_M, Q8_0"),
    (GGML, "Q4_0", "there are BF16, Q4_K_M, Q8_0"),
    (UNQUANTIZED, "Q6_K", "there are BF16, Q4_0, Q4_K_M, Q8_0"),
    (["m.Q8_0.gguf.part1of2", "m.Q8_0.gguf.part2of2", "m.Q2_K.gguf"], "Q8_0", "m.Q8_0.gguf.part1of2 is a piece"),
    (["MMPROJ-m-F16.gguf", "mtp-m-Q8_0.gguf", "m.imatrix.gguf"], "", "no model that can be loaded by itself"),
]


@pytest.mark.parametrize(("names", "quant", "words"), NOT_THERE)
def test_what_is_not_there_is_not_replaced_by_what_sounds_like_it(names: list[str], quant: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(HubModel("a/b", quant), names)
    assert words in str(caught.value)


QUANTS = sorted({*BARTOWSKI.split(), *LARGE.split(), *UNSLOTH.split(), *WEIGHTED.split(), *THEBLOKE.split(), "MXFP4"})
STYLES = (
    "m-{}.gguf",
    "m.{}.gguf",
    "m_{}.gguf",
    "{}/m-{}.gguf",
    "{}/m.gguf",
    "m-{}-imat.gguf",
    "m-{}-00001-of-00002.gguf",
)
STEMS = ("m", "Phi-3", "Qwen2.5-7B", "gemma-qat-q4_0-unquantized", "x-MTP", "v1.0")


@pytest.mark.parametrize("asked", ["BF16", "Q4_0", "Q8_0"])
def test_of_files_that_all_have_a_quantization_in_their_name_the_folder_decides(asked: str) -> None:
    files = {quant: f"{quant}/gemma-qat-q4_0-unquantized.gguf" for quant in ("BF16", "Q4_0", "Q8_0")}
    assert choose(HubModel("a/b", asked), files.values()) == files[asked]


@settings(max_examples=int(os.environ.get("UAD_EXAMPLES", "60")))
@given(
    style=st.sampled_from(STYLES),
    stem=st.sampled_from(STEMS),
    quants=st.lists(st.sampled_from(QUANTS), min_size=1, max_size=12, unique=True),
    data=st.data(),
)
def test_in_any_style_the_file_is_the_one_with_that_quantization(
    style: str, stem: str, quants: list[str], data: st.DataObject
) -> None:
    files = {quant: style.replace("{}", quant).replace("m", stem, 1) for quant in quants}
    asked = data.draw(st.sampled_from(quants))
    others = [f"mmproj-{stem}-{asked}.gguf", f"mtp-{stem}-{asked}.gguf", f"{stem}.imatrix.gguf", "README.md"]
    names = data.draw(st.permutations([*files.values(), *others]))
    cased = data.draw(st.sampled_from([asked, asked.lower()]))
    assert choose(HubModel("a/b", cased), names) == files[asked]
