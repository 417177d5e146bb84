"""Models of a hub, adapters and keys of TLS on the command line, in the environment and in YAML."""

import math
import re
from pathlib import Path

import pytest
from words import words_of

from uad.base.config import HubConfig, HubModel, LoraConfig, Place, load_config
from uad.base.config.flags import FLAGS
from uad.base.errors import ConfigError

NO_SINGLES = ("nan", "inf", "-inf", "1e300", "-1e300", "1e-300")
"""What single precision has no numbers for."""


def load(*words, **env):
    return load_config(words, env)


def why(*words, **env):
    with pytest.raises(ConfigError) as caught:
        load(*words, **env)
    return str(caught.value)


@pytest.mark.parametrize("name", ["-hf", "-hfr", "--hf-repo"])
@pytest.mark.parametrize("draft", ["-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"])
def test_both_models_may_lie_on_a_hub(name, draft):
    config = load(name, "a/b:q8_0", draft, "c/d")
    assert config.target.hub == HubModel("a/b", "q8_0")
    assert config.draft.hub == HubModel("c/d")
    assert (str(config.target.path), str(config.draft.path)) == ("a/b:q8_0", "c/d")


def test_variables_are_llama_servers():
    env = {
        "LLAMA_ARG_HF_REPO": "a/b",
        "LLAMA_ARG_HF_FILE": "b-Q2_K.gguf",
        "LLAMA_ARG_SPEC_DRAFT_HF_REPO": "c/d:Q4_0",
        "HF_TOKEN": "hf_me",
        "LLAMA_ARG_OFFLINE": "1",
    }
    config = load(**env)
    assert config.target.hub == HubModel("a/b", file="b-Q2_K.gguf")
    assert config.draft.hub == HubModel("c/d", "Q4_0")
    assert config.hub == HubConfig("hf_me", True, "b-Q2_K.gguf")
    assert "hf_me" not in repr(config)


def test_what_was_said_last_wins_and_the_command_line_over_the_environment():
    assert load("-hf", "a/b", "-m", "t.gguf").target.hub is None
    assert load("-m", "t.gguf", "-hf", "a/b").target.hub == HubModel("a/b")
    assert load("-m", "t.gguf", LLAMA_ARG_HF_REPO="a/b").target.path == Path("t.gguf")


def test_yaml_names_a_repository(tmp_path):
    file = tmp_path / "uad.yaml"
    file.write_text("hf-repo: a/b:Q4_0\nlora: [one.gguf, /x/two.gguf]\n", encoding="utf-8")
    target = load("--config", str(file)).target
    assert target.hub == HubModel("a/b", "Q4_0")
    assert target.loras == (LoraConfig(tmp_path / "one.gguf"), LoraConfig(Path("/x/two.gguf")))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("-hf", "model"), "user/model-GGUF"),
        (("-hf", "a/b/c"), "user/model-GGUF"),
        (("-hf", "../b"), "user/model-GGUF"),
        (("-hf", "a/b:"), "user/model-GGUF"),
        (("-hf", "a/b", "-hff", "../x.gguf"), "-hff"),
        (("-hf", "a/b", "-hff", "model.bin"), ".gguf file"),
        (("-m", "t.gguf", "-hff", "x.gguf"), "--hf-repo"),
        (("-m", "t.gguf", "--lora", "a.gguf,"), "--lora"),
        (("-m", "t.gguf", "--lora-scaled", "a.gguf"), "FILE:SCALE"),
        (("-m", "t.gguf", "--lora-scaled", "a.gguf:x"), "FILE:SCALE"),
        *((("-m", "t.gguf", "--lora-scaled", f"a.gguf:{text}"), "a scale from -100 to 100") for text in NO_SINGLES),
        (("-m", "t.gguf", "--lora-scaled", "a.gguf:-101"), "a scale from -100 to 100"),
        (("-m", "t.gguf", "--override-kv", "a.b=float:1e300"), "KEY=TYPE:VALUE"),
        (("-m", "t.gguf", "--override-kv", "a.b=int:x"), "KEY=TYPE:VALUE"),
        (("-m", "t.gguf", "--override-kv", "a.b=bool:1"), "KEY=TYPE:VALUE"),
        (("-m", "t.gguf", "--override-kv", "a.b=float:nan"), "KEY=TYPE:VALUE"),
        (("-m", "t.gguf", "--override-kv", "a.b=list:1"), "KEY=TYPE:VALUE"),
        (("-m", "t.gguf", "--override-kv", f"a=str:{'x' * 128}"), "KEY=TYPE:VALUE"),
        (("-m", "t.gguf", "--numa", "mirror"), "distribute"),
        (("-m", "t.gguf", "--ssl-key-file", "k.pem"), "--ssl-cert-file"),
        (("-m", "t.gguf", "--ssl-cert-file", "c.pem"), "--ssl-key-file"),
    ],
)
def test_wrong_words_say_what_was_expected(words, named):
    assert named in why(*words)


def test_a_wrong_token_is_not_shown():
    message = why("-hf", "a/b", "-hft", "hf_secret with blanks")
    assert "-hft" in message
    assert "secret" not in message


@pytest.mark.parametrize("flag", [one for one in FLAGS if float in one.kind.yaml], ids=lambda flag: flag.names)
@pytest.mark.parametrize("text", NO_SINGLES)
def test_no_flag_takes_a_number_that_llama_cpp_would_read_as_0_infinite_or_none(flag, text):
    with pytest.raises((ValueError, ConfigError)):
        flag.kind.parse(text)


@pytest.mark.parametrize("text", ["0+nan", "0+1e300", "0-1e-300"])
def test_a_bias_is_infinite_or_a_number_of_single_precision(text):
    assert "ID+BIAS" in why("-m", "t.gguf", "--logit-bias", text)
    assert load("-m", "t.gguf", "--logit-bias", "0-inf").sampling.logit_bias == ((0, -math.inf),)


@pytest.mark.parametrize(
    "words",
    [
        ("--rope-scale", "1e30"), ("--rope-scale", "1e-30"), ("--rope-freq-scale", "1e30"),
        ("--rope-freq-base", "1e30"), ("--yarn-ext-factor", "1e30"), ("--yarn-attn-factor", "1e30"),
        ("--yarn-beta-fast", "1e30"), ("--yarn-beta-slow", "1e30"), ("--tensor-split", "1,1e30"), ("--temp", "1e30"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_numbers_with_which_models_compute_noise_are_refused_by_name(words):
    assert words[0] in why("-m", "t.gguf", *words)


def test_usual_numbers_of_positions_are_taken():
    words = ("--rope-scale", "4", "--rope-freq-base", "1e8", "--yarn-ext-factor", "0", "--yarn-beta-fast", "32")
    target = load("-m", "t.gguf", *words).target
    assert (target.rope_freq_scale, target.rope_freq_base, target.yarn_ext_factor) == (0.25, 1e8, 0)
    assert load("-m", "t.gguf", "--rope-freq-scale", "0").target.rope_freq_scale == 0


def test_adapters_add_up_in_the_order_given():
    target = load(
        "-m", "t.gguf", "--lora", "a.gguf,b.gguf", "--lora-scaled", "C:/c.gguf:0.5", "--lora", "d.gguf"
    ).target
    assert target.loras == (
        LoraConfig(Path("a.gguf")),
        LoraConfig(Path("b.gguf")),
        LoraConfig(Path("C:/c.gguf"), 0.5),
        LoraConfig(Path("d.gguf")),
    )
    assert load(*words_of(target)).target == target


def test_metadata_are_replaced_with_the_type_that_is_said():
    target = load("-m", "t.gguf", "--override-kv", "a.n=int:6,b.x=float:0.5", "--override-kv", "c=bool:true").target
    assert [(one.key, one.value) for one in target.overrides] == [("a.n", 6), ("b.x", 0.5), ("c", True)]
    assert [type(one.value) for one in target.overrides] == [int, float, bool]
    assert load(*words_of(target)).target == target


def test_experts_stay_beside_the_cpu_in_all_spellings():
    assert load("-m", "t.gguf", "-ot", "exps=CPU,a=b=CUDA0").target.places == (
        Place("exps", "CPU"),
        Place("a=b", "CUDA0"),
    )
    config = load("-m", "t.gguf", "-md", "d.gguf", "-cmoe", "-ncmoed", "2")
    assert [place.buffer for place in config.target.places] == ["CPU"]
    assert re.search(config.target.places[0].pattern, "blk.7.ffn_gate_exps.weight")
    assert [place.pattern[:6] for place in config.draft.places] == [r"blk\.0", r"blk\.1"]
    assert load(LLAMA_ARG_MODEL="t.gguf", LLAMA_ARG_N_CPU_MOE="3").target.places[2].pattern.startswith(r"blk\.2")
    assert "regular expression" in why("-m", "t.gguf", "-ot", "(=CPU")
    assert load(*words_of(config.target)).target == config.target


def test_where_things_lie_holds_for_both_models():
    config = load("-m", "t.gguf", "-md", "d.gguf", "-nkvo", "--no-op-offload", "--no-host", "--check-tensors")
    for model in (config.target, config.draft):
        assert (model.kv_offload, model.op_offload, model.no_host, model.check_tensors) == (False, False, True, True)


def test_the_draft_has_no_adapters():
    config = load("-m", "t.gguf", "-md", "d.gguf", "--lora", "a.gguf", "--lora-init-without-apply")
    assert config.draft.loras == ()
    assert not config.target.apply_loras
