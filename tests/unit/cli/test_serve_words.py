"""What `uad serve` takes as llama-server does, and what it warns of before anything is loaded."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import uad.http.server
from uad.base.config import ServerConfig
from uad.base.config.foreign import GONE
from uad.base.config.load import load_config
from uad.base.errors import ConfigError
from uad.tools.cli import main, serve


def server(*words: str, **environ: str) -> ServerConfig:
    return load_config(["-m", "x", *words], environ).server


@pytest.fixture
def started(monkeypatch):
    """Starts nothing; returns what would have been served."""
    seen = []

    @contextmanager
    def no_models(config, quiet=False, tell=None):
        yield config

    monkeypatch.setattr(serve, "runtime", no_models)
    monkeypatch.setattr(uad.http.server, "serve", lambda opening, config, ready: seen.append(config))
    return seen


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        (["--host", "0.0.0.0"], True),
        (["--host", "::"], True),
        (["--host", "192.168.1.7"], True),
        (["--host", "127.0.0.1,10.0.0.1"], True),
        (["--host", "box.lan"], True),
        (["--host", "0.0.0.0", "--api-key", "secret"], False),
        (["--host", "127.0.0.1,::1"], False),
        (["--host", "127.1.2.3"], False),
        (["--host", "localhost"], False),
        ([], False),
    ],
)
def test_an_address_that_others_reach_without_a_key_is_told_in_a_line(started, caplog, words, is_told):
    assert main(["serve", "-m", "x", *words]) == 0
    told = [line for line in caplog.messages if "lets other machines in" in line]
    assert len(told) == is_told
    assert len(started) == 1
    if is_told:
        assert "--api-key" in told[0]
        assert "127.0.0.1" not in told[0]


def test_several_addresses_and_names_are_taken_as_llama_server_takes_them():
    assert server("--host", "127.0.0.1, ::1").hosts == ("127.0.0.1", "::1")
    assert server("--alias", "gpt-4o, coder").names == ("coder", "gpt-4o")
    assert server("--alias", "one").names == ("one",)
    assert server(LLAMA_ARG_HOST="::1,127.0.0.1", LLAMA_ARG_ALIAS="b,a").names == ("a", "b")
    assert server().names == ()
    for words in (["--host", ","], ["--host", "::1,::1"], ["--alias", "a,,b"], ["--alias", " "]):
        with pytest.raises(ConfigError, match="commas between them"):
            server(*words)
    with pytest.raises(ConfigError, match=r"/run/x\.sock is a socket of the file system"):
        server("--host", "/run/x.sock")


def test_each_address_is_printed():
    lines = list(serve.greeting("http://127.0.0.1:8080/llm", ServerConfig(host="127.0.0.1,::1,box"), can_chat=True))
    assert lines[:3] == [
        "listening on http://127.0.0.1:8080/llm",
        "and on http://[::1]:8080/llm",
        "and on http://box:8080/llm",
    ]
    first, second, *_ = serve.greeting("http://[::1]:80", ServerConfig(host="::1,127.0.0.1"), can_chat=True)
    assert (first, second) == ("listening on http://[::1]:80", "and on http://127.0.0.1:80")


@pytest.mark.parametrize(
    ("underscored", "plain"),
    [
        (["--ctx_size", "512"], ["--ctx-size", "512"]),
        (["--ctx_size=512"], ["--ctx-size=512"]),
        (["--spec_draft_n_max", "3", "--no_mmap"], ["--spec-draft-n-max", "3", "--no-mmap"]),
        (["--alias=my_model"], ["--alias", "my_model"]),
        (["--chat_template", "{{ a_b }}"], ["--chat-template", "{{ a_b }}"]),
        (["--reasoning-budget-message", "--so_be it"], ["--reasoning-budget-message=--so_be it"]),
    ],
)
def test_names_of_flags_may_have_underscores(underscored, plain):
    assert load_config(["-m", "x", *underscored], {}) == load_config(["-m", "x", *plain], {})


def test_underscores_change_nothing_in_what_is_ignored_refused_or_unknown():
    assert load_config(["-m", "x", "--cont_batching"], {}).notes == ("ignored, without effect in uad: --cont-batching",)
    with pytest.raises(ConfigError, match="--context-shift is known to llama-server, not supported"):
        server("--context_shift")
    with pytest.raises(ConfigError, match=r"unknown flag --ctx-sise.*--ctx-size"):
        server("--ctx_sise", "5")


@pytest.mark.parametrize("flag", " ".join(GONE.values()).split())
def test_a_flag_of_an_earlier_release_says_that_it_is_gone_and_what_to_do(flag):
    with pytest.raises(ConfigError, match=rf"^{flag} is gone: .*; leave the flag out$"):
        server(flag)


def test_the_drafts_experts_have_llama_servers_variables():
    config = load_config(
        ["-m", "x", "-md", "y"], {"LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE": "2", "LLAMA_ARG_SPEC_DRAFT_CPU_MOE": "1"}
    )
    assert config.draft is not None
    assert len(config.draft.places) == 3
    assert config.target.places == ()
    assert config.notes == ()
