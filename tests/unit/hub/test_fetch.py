"""Models of a hub: chosen, fetched, gone on with, taken from the cache, and every way in which that fails."""

import hashlib
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from kit.hub import Hub

from uad.base.config import Config, HubConfig, HubModel, ModelConfig, VisionConfig
from uad.base.errors import ConfigError
from uad.tools.hub.fetch import cache_folder, fetched, path_on

REPO = "someone/toy-GGUF"
FILES = {
    "README.md": b"# toy",
    "toy-Q2_K.gguf": b"GGUF two",
    "toy-Q4_K_M.gguf": b"GGUF four" * 5000,
    "toy-Q8_0-00001-of-00002.gguf": b"GGUF eight, one",
    "toy-Q8_0-00002-of-00002.gguf": b"GGUF eight, two",
}
EYES = "someone/eyes-GGUF"
SEEING = {"eyes-Q4_K_M.gguf": b"GGUF four", "mmproj-F32.gguf": b"GGUF large", "mmproj-F16.gguf": b"GGUF eyes"}
Q4 = FILES["toy-Q4_K_M.gguf"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    for name in ("LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with Hub(
        {REPO: FILES, EYES: SEEING, "someone/closed": FILES, "someone/words": {"README.md": b""}},
        ("someone/closed",),
        "hf_me",
    ) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def fetch(repo=REPO, quant="", file="", said=None, **config):
    report = (lambda what, share: None) if said is None else lambda what, share: said.append((what, share))
    return path_on(HubModel(repo, quant, file), HubConfig(**config), report)


def why(**asked):
    with pytest.raises(ConfigError) as caught:
        fetch(**asked)
    return str(caught.value)


def blobs(tmp_path):
    return sorted(path.name for path in (tmp_path / "hf" / "hub" / "models--someone--toy-GGUF" / "blobs").iterdir())


def test_the_usual_quantization_is_fetched_into_the_cache_that_others_share(hub, tmp_path):
    said = []
    path = fetch(said=said)
    assert path.name == "toy-Q4_K_M.gguf"
    assert path.read_bytes() == Q4
    assert path.is_relative_to(tmp_path / "hf" / "hub" / "models--someone--toy-GGUF" / "snapshots")
    assert {what for what, _ in said} == {"fetching toy-Q4_K_M.gguf (43.9 KiB)"}
    assert said[-1][1] == 1.0
    assert blobs(tmp_path) == [hashlib.sha256(Q4).hexdigest()]


def test_what_is_there_is_not_fetched_again(hub):
    first = fetch()
    assert fetch() == first
    assert len(hub.gets("toy-Q4_K_M.gguf")) == 1


@pytest.mark.parametrize(
    ("quant", "file"), [("q8_0", ""), ("", "toy-Q8_0-00001-of-00002.gguf"), ("", "toy-Q8_0-00002-of-00002.gguf")]
)
def test_all_parts_of_a_split_file_are_fetched_and_the_first_is_named(hub, quant, file):
    path = fetch(quant=quant, file=file)
    assert path.name == "toy-Q8_0-00001-of-00002.gguf"
    assert path.with_name("toy-Q8_0-00002-of-00002.gguf").read_bytes() == b"GGUF eight, two"


def test_a_part_that_the_repository_lacks_is_named(hub):
    del hub.repos[REPO]["toy-Q8_0-00002-of-00002.gguf"]
    assert "missing: toy-Q8_0-00002-of-00002.gguf" in why(quant="Q8_0")


def test_a_broken_connection_is_gone_on_with(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 50)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # huggingface_hub waits for a second
    hub.breaks = 2
    assert fetch().read_bytes() == Q4
    spans = hub.gets("toy-Q4_K_M.gguf")
    assert spans[0] == ""
    assert [int(span[len("bytes=") : -1]) for span in spans[1:]] == [len(Q4) // 2, len(Q4) * 3 // 4]


def test_another_start_goes_on_where_the_last_one_ended(hub, tmp_path):
    part = tmp_path / "hf/hub/models--someone--toy-GGUF/blobs" / f"{hashlib.sha256(Q4).hexdigest()}.uad-part"
    part.parent.mkdir(parents=True)
    part.write_bytes(Q4[:1000])
    assert fetch().read_bytes() == Q4
    assert hub.gets("toy-Q4_K_M.gguf") == ["bytes=1000-"]
    assert blobs(tmp_path) == [hashlib.sha256(Q4).hexdigest()]


@pytest.mark.parametrize("rubbish", [b"x" * 1000, b"x" * 10**6])
def test_a_damaged_beginning_never_becomes_a_model(hub, tmp_path, rubbish):
    part = tmp_path / "hf/hub/models--someone--toy-GGUF/blobs" / f"{hashlib.sha256(Q4).hexdigest()}.uad-part"
    part.parent.mkdir(parents=True)
    part.write_bytes(rubbish)
    if len(rubbish) < len(Q4):
        assert "start again" in why()
    assert fetch().read_bytes() == Q4


def test_without_a_network_the_cache_serves_and_what_it_lacks_is_said(hub, monkeypatch, caplog):
    path, asked = fetch(), len(hub.asked)
    assert fetch(offline=True) == path
    assert len(hub.asked) == asked
    assert "--offline" in why(repo="someone/other", offline=True)
    assert "no quantization 'Q2_K'; there are Q4_K_M" in why(quant="Q2_K", offline=True)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert fetch() == path
        assert "as it is in the cache" in caplog.text


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"repo": "someone/else"}, "no repository someone/else"),
        ({"repo": "someone/closed"}, "gated: accept its terms"),
        ({"repo": "someone/words"}, "no GGUF file"),
        ({"quant": "Q5_K_M"}, "no quantization 'Q5_K_M'; there are Q2_K, Q4_K_M, Q8_0"),
        ({"file": "toy-Q4_K_S.gguf"}, "did you mean toy-Q4_K_M.gguf?"),
    ],
)
def test_what_is_not_there_is_named_with_the_way_out(hub, asked, words):
    assert words in why(**asked)


def test_a_token_opens_what_is_gated(hub):
    assert fetch(repo="someone/closed", token="hf_me").name == "toy-Q4_K_M.gguf"
    assert "gated" in why(repo="someone/closed", quant="Q2_K", token="hf_you")
    assert "hf_me" not in repr(HubConfig(token="hf_me"))


@pytest.mark.parametrize(("status", "words"), [(403, "refuses"), (418, "status 418")])
def test_a_hub_that_refuses_is_told(hub, status, words):
    hub.status = status
    assert words in why()


@pytest.mark.parametrize(
    ("names", "folder"),
    [
        ({"LLAMA_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
    ],
)
def test_the_cache_lies_where_other_programs_look(monkeypatch, names, folder):
    for name in ("LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder()) == folder


def test_what_came_before_the_connection_was_lost_for_good_is_kept(hub, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.breaks = 100
    assert "start again to go on" in why()
    [part] = blobs(tmp_path)
    assert part.endswith(".uad-part")
    hub.breaks = 0
    n_before = len(hub.gets("toy-Q4_K_M.gguf"))
    assert fetch().read_bytes() == Q4
    assert int(hub.gets("toy-Q4_K_M.gguf")[n_before][len("bytes=") : -1]) >= 40_000


def test_the_projector_of_a_repository_comes_with_its_model_where_it_is_wanted(hub, monkeypatch):
    asked = Config(target=ModelConfig(Path(), hub=HubModel(EYES)))
    path = fetched(asked, lambda what, share: None, sees=True).vision.path
    assert path is not None
    assert (path.name, path.read_bytes()) == ("mmproj-F16.gguf", b"GGUF eyes")
    assert fetched(asked, lambda what, share: None).vision.path is None
    off = replace(asked, vision=VisionConfig(auto=False))
    assert fetched(off, lambda what, share: None, sees=True).vision.path is None
    blind = replace(asked, target=replace(asked.target, hub=HubModel(REPO)))
    assert fetched(blind, lambda what, share: None, sees=True).vision.path is None
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    again = fetched(asked, lambda what, share: None, sees=True).vision.path
    assert again is not None
    assert again.read_bytes() == b"GGUF eyes"
