"""Which devices a model gets: workers on other machines, names and shares, and what a draft takes over."""

from __future__ import annotations

import pytest

from uad.base.config import Config, load_config
from uad.base.errors import ConfigError

MODELS = ("-m", "t.gguf", "-md", "d.gguf")


def load(*words: str, env: dict[str, str] | None = None) -> Config:
    return load_config((*MODELS, *words), env or {})


def test_workers_are_addresses_in_the_given_order() -> None:
    assert load("--rpc", "10.0.0.2:50052, box.lan:50053").rpc == ("10.0.0.2:50052", "box.lan:50053")
    assert load(env={"LLAMA_ARG_RPC": "127.0.0.1:1"}).rpc == ("127.0.0.1:1",)


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.2",
        "10.0.0.2:",
        ":50052",
        "10.0.0.2:0",
        "10.0.0.2:70000",
        "[::1]:50052",
        "a:1,a:1",
        "http://a:1",
        ",".join(f"a:{i}" for i in range(1, 18)),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--rpc: expected HOST:PORT of a worker"):
        load("--rpc", text)


def test_devices_are_names_and_none_is_the_cpu_alone() -> None:
    config = load("-dev", "RPC0,CUDA0", "-devd", "none", "-ts", "3,1")
    assert config.target.devices == ("RPC0", "CUDA0")
    assert config.target.tensor_split == (3.0, 1.0)
    assert config.draft is not None
    assert config.draft.devices == ()
    assert load("--device", "none").target.devices == ()


def test_the_draft_follows_the_targets_devices_but_not_its_shares() -> None:
    draft = load("--device", "RPC0,RPC1", "--tensor-split", "3/1").draft
    assert draft is not None
    assert (draft.devices, draft.tensor_split) == (("RPC0", "RPC1"), ())
    unplaced = load("--rpc", "a:1").draft
    assert unplaced is not None
    assert unplaced.devices is None


@pytest.mark.parametrize("words", [("-dev", "none,CUDA0"), ("-dev", "A,A"), ("-ts", "0,0"), ("-ts", "1,-1")])
def test_contradictions_are_refused(words: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        load(*words)
