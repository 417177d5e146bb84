"""Which files are candidates of `--draft auto`: models that write text from left to right."""

import pytest
from gguf import GGUFWriter
from kit.headers import finish
from numpy import zeros

from uad.pairs.choose import best, views
from uad.pairs.header import facts, stamp

WRITE = ("llama", "qwen2", "qwen3", "gemma3", "phi3", "mamba2", "rwkv7", "gpt-oss", "lfm2", "pangu-embedded", "new-one")
CANNOT = {
    "an encoder": ("bert", "modern-bert", "nomic-bert-moe", "jina-bert-v3", "eurobert", "gemma-embedding"),
    "an encoder, ": ("llama-embed", "t5encoder"),
    "beside a decoder": ("t5",),
    "diffusion": ("dream", "llada", "llada-moe", "rnd1"),
    "of sounds": ("wavtokenizer-dec", "qwen3tts", "pockettts"),
    "a head": ("eagle3", "dflash", "gemma4-assistant"),
}


def write(path, arch="llama", rows=1, set_up=lambda writer: None, words=("a", "b")):
    writer = GGUFWriter(path, arch)
    if words:
        writer.add_token_list(list(words))
    set_up(writer)
    finish(writer, rows)
    return path


def of(path):
    return facts(path, stamp(path))


@pytest.mark.parametrize("arch", WRITE)
def test_architectures_that_write_text_may_draft(tmp_path, arch):
    assert of(write(tmp_path / "m.gguf", arch)).can_draft


@pytest.mark.parametrize(("why", "arch"), [(why, arch) for why, archs in CANNOT.items() for arch in archs])
def test_architectures_that_write_none_do_not(tmp_path, why, arch):
    one = of(write(tmp_path / "m.gguf", arch))
    assert not one.can_draft
    assert why in one.no_draft
    assert one.is_model  # it is listed all the same


def embeds(writer):
    writer.add_uint32("qwen3.pooling_type", 3)


def ranks(writer):
    writer.add_array("qwen3.classifier.output_labels", ["yes", "no"])


def ranks_by_weights(writer):
    writer.add_tensor("cls.output.weight", zeros((2, 32), "float32"))


def both_ways(writer):
    writer.add_causal_attention(False)


def diffuses(writer):
    writer.add_bool("diffusion.shift_logits", False)


def is_a_head(writer):
    writer.add_nextn_predict_layers(1)


def is_an_adapter(writer):
    writer.add_type("adapter")


def is_a_projector(writer):
    writer.add_type("mmproj")


NOT_BY_ARCHITECTURE = [
    embeds,
    ranks,
    ranks_by_weights,
    both_ways,
    diffuses,
    is_a_head,
    is_an_adapter,
    is_a_projector,
]


@pytest.mark.parametrize("set_up", NOT_BY_ARCHITECTURE, ids=lambda one: one.__name__)
def test_models_of_such_an_architecture_that_embed_rank_or_are_none_do_not(tmp_path, set_up):
    assert not of(write(tmp_path / "m.gguf", "qwen3", set_up=set_up)).can_draft


def test_a_vocabulary_alone_and_a_model_without_one_do_not(tmp_path):
    writer = GGUFWriter(tmp_path / "v.gguf", "llama")
    writer.add_token_list(["a"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert not of(tmp_path / "v.gguf").can_draft
    assert not of(write(tmp_path / "m.gguf", words=())).can_draft


def test_a_model_with_a_head_beside_its_layers_may_draft(tmp_path):
    def whole(writer):
        is_a_head(writer)
        writer.add_tensor("blk.0.attn_norm.weight", zeros(32, "float32"))

    assert of(write(tmp_path / "m.gguf", "qwen35", set_up=whole)).can_draft


def test_none_of_them_is_a_candidate(tmp_path):
    target = write(tmp_path / "t.gguf", "gemma3", rows=64)
    files = [
        write(tmp_path / "embedding.gguf", "gemma-embedding"),
        write(tmp_path / "small.gguf", "gemma3"),
        write(tmp_path / "ranks.gguf", "qwen3", set_up=embeds),
    ]
    assert [view.draft.name for view in views(target, files)] == ["small.gguf"]
    assert [view.draft.name for view in best(target, files)] == ["small.gguf"]


@pytest.mark.parametrize(
    ("arch", "set_up", "purpose"),
    [
        ("bert", lambda writer: None, "embedding"),
        ("gemma-embedding", lambda writer: None, "embedding"),
        ("pangu-embedded", lambda writer: None, ""),
        ("llada", both_ways, ""),
        ("qwen3", lambda writer: None, ""),
        ("qwen3", embeds, "embedding"),
        ("qwen3", lambda writer: writer.add_uint32("qwen3.pooling_type", 4), "rerank"),
        ("qwen3", lambda writer: writer.add_uint32("qwen3.pooling_type", 0), ""),
        ("bert", lambda writer: writer.add_uint32("bert.pooling_type", 4), "rerank"),
        (
            "bert",
            lambda writer: (writer.add_array("bert.classifier.output_labels", ["a"]), ranks_by_weights(writer)),
            "rerank",
        ),
    ],
)
def test_a_header_says_whether_a_model_embeds_or_ranks(tmp_path, arch, set_up, purpose):
    assert of(write(tmp_path / "m.gguf", arch, set_up=set_up)).purpose == purpose
