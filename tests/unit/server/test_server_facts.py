"""Routes about the server and its model, the tokenizer's routes, keys and browsers."""

import asyncio
import re
from datetime import datetime

import pytest
from kit.fake_runtime import BOS, FakeRuntime
from kit.server_kit import CHAT, CONFIG, HELLO, get, post, serving
from prometheus_client.parser import text_string_to_metric_families

from uad.base.config import ServerConfig
from uad.base.events import CacheCounts, Totals
from uad.base.types import Origin
from uad.http.edge.access import is_trusted_origin, may_use

KEYED = ServerConfig(port=0, api_keys=("sk-one", "sk-zwei-ü"))


def test_models():
    for path in ("/v1/models", "/models"):
        _, body = get(path)
        (model,) = body["data"]
        assert (body["object"], model["id"], model["object"], model["owned_by"]) == ("list", "toy", "model", "llamacpp")
        assert model["meta"] == {
            "vocab_type": 1,
            "n_vocab": 259,
            "n_ctx": 4096,
            "n_ctx_train": 8192,
            "n_embd": 4,
            "n_params": 10,
            "size": 20,
            "ftype": "F16",
        }
        assert (model["aliases"], model["tags"]) == (["toy"], [])
        assert (model["type"], model["display_name"]) == ("model", "toy")
        assert datetime.fromisoformat(model["created_at"]).timestamp() == model["created"]
        (entry,) = body["models"]
        assert (entry["name"], entry["model"], entry["capabilities"]) == ("toy", "toy", ["completion"])
        assert set(entry) >= {"modified_at", "size", "digest", "description", "parameters", "tags", "type"}
        assert (entry["details"]["format"], entry["details"]["families"]) == ("gguf", [""])
    assert get("/v1/models/toy")[1]["id"] == "toy"
    status, body = get("/v1/models/other")
    assert (status, body["error"]["type"]) == (404, "not_found_error")


def test_the_model_is_called_after_its_file_without_an_alias():
    _, body = get("/v1/models", None, ServerConfig(port=0))
    assert body["data"][0]["id"] == "toy.gguf"


def test_props():
    _, body = get("/props")
    assert body["default_generation_settings"]["n_ctx"] == 4096
    assert body["default_generation_settings"]["params"]["temperature"] == 0.8
    assert body["default_generation_settings"]["params"]["speculative.n_max"] == 48
    assert body["default_generation_settings"]["params"]["speculative.types"] == "suffix,draft-simple"
    assert isinstance(body["chat_template"], str)
    assert (body["total_slots"], body["model_path"], body["build_info"]) == (2, "toy.gguf", "b1-toy")
    assert (body["model_ftype"], body["bos_token"], body["eos_token"]) == ("F16", "", "")
    assert body["default_generation_settings"]["params"]["samplers"][-2:] == ["temperature", "adaptive_p"]


def test_props_has_what_clients_of_llama_server_read():
    fake = FakeRuntime(scales=(1.0, 0.5))
    _, body = get("/props", fake, ServerConfig(port=0, reasoning_format="none", ui=False))
    params = body["default_generation_settings"]["params"]
    assert (params["stream"], params["stop"], params["n_probs"], params["min_tokens"]) == (False, [], 0, 0)
    assert (params["timings_per_token"], params["post_sampling_probs"]) == (False, False)
    assert (params["reasoning_format"], params["lora"][1]) == ("none", {"id": 1, "scale": 0.5})
    assert body["modalities"] == {"vision": False, "video": False, "audio": False}
    assert (body["ui"], body["ui_settings"], body["cors_proxy_enabled"]) == (False, {}, False)
    assert body["chat_template_caps"] == {"supports_tools": True}
    assert not any("Main" in name for name in fake.threads), "templates are not rendered on the event loop"


def test_slots():
    _, body = get("/slots")
    assert [(slot["id"], slot["is_processing"], slot["id_task"]) for slot in body] == [(0, False, -1), (1, False, -1)]
    status, body = get("/slots", None, ServerConfig(port=0, slots=False))
    assert (status, body["error"]["type"]) == (501, "not_supported_error")
    assert [slot["speculative"] for slot in get("/slots", FakeRuntime(loaded=(Origin.NGRAM_MOD,)))[1]] == [True, True]
    assert [slot["speculative"] for slot in get("/slots", FakeRuntime(loaded=()))[1]] == [False, False]
    for slot in get("/slots")[1]:
        assert slot["next_token"] == [{"has_next_token": False, "n_decoded": 0, "n_remain": -1}]
        assert slot["n_prompt_tokens"] == slot["n_prompt_tokens_cache"] == slot["n_prompt_tokens_processed"] == 0
    status, body = post("/slots/0?action=erase", {})
    assert (status, body["error"]["type"]) == (501, "not_supported_error")
    assert get("/slots?fail_on_no_slot=1")[0] == 200
    assert get("/slots?fail_on_no_slot=1", FakeRuntime(n_slots=0))[0] == 503


def test_metrics():
    status, body = get("/metrics")
    assert (status, body["error"]["type"]) == (501, "not_supported_error")

    async def run():
        async with serving(FakeRuntime(), ServerConfig(port=0, metrics=True)) as session:
            async with session.post(CHAT, json={"messages": HELLO}) as answer:
                told = await answer.json()
            for _ in range(200):  # the last byte of the answer may be here before its slot is free
                async with session.get("/metrics") as answer:
                    headers, text = answer.headers, await answer.text()
                if "llamacpp:requests_processing 0.0\n" in text:
                    break
                await asyncio.sleep(0.01)
            return told, headers, text

    told, headers, text = asyncio.run(run())
    values = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert int(headers["Process-Start-Time-Unix"]) > 1_600_000_000
    assert float(values["llamacpp:tokens_predicted_total"]) == told["timings"]["predicted_n"]
    assert float(values["llamacpp:prompt_tokens_total"]) == told["timings"]["prompt_n"]
    assert float(values["llamacpp:spec_decode_num_draft_tokens_total"]) == told["timings"]["draft_n"]
    assert float(values["llamacpp:spec_decode_num_accepted_tokens_total"]) == told["timings"]["draft_n_accepted"]
    assert float(values["llamacpp:tokens_predicted_seconds_total"]) == 0.002
    assert float(values["uad:translation_words_total"]) == told["timings"]["translate_n"] > 0
    assert float(values["uad:translation_words_cached_total"]) == told["timings"]["translate_n_cached"]
    assert float(values["uad:translation_seconds_total"]) == pytest.approx(told["timings"]["translate_us"] / 1e6)
    assert float(values["llamacpp:requests_processing"]) == 0
    assert float(values['uad:drafter_tokens_accepted_total{type="suffix"}']) == 3
    assert float(values['uad:drafter_seconds_total{type="draft-simple"}']) == 0.03
    for name in values:
        assert f"# HELP {name.partition('{')[0]} " in text
        assert f"# TYPE {name.partition('{')[0]} " in text


def test_what_llama_server_counts_per_decode_has_its_names_and_types():
    fake = FakeRuntime()
    fake._totals = Totals(n_decodes=4, n_busy_slots=7, n_tokens_max=99)
    text = get("/metrics", fake, ServerConfig(port=0, metrics=True))[1]
    assert "# TYPE llamacpp:n_busy_slots_per_decode gauge\nllamacpp:n_busy_slots_per_decode 1.75\n" in text
    assert "# TYPE llamacpp:n_tokens_max gauge\nllamacpp:n_tokens_max 99.0\n" in text
    assert "llamacpp:n_busy_slots_per_decode 0.0\n" in get("/metrics", None, ServerConfig(port=0, metrics=True))[1]


def test_every_metric_keeps_the_rules_of_the_exposition_format():
    """As `promtool check metrics` has them, but for the colons of llama-server's names."""
    fake = FakeRuntime(loaded=(Origin.MODEL, Origin.SUFFIX))
    text = get("/metrics", fake, ServerConfig(port=0, metrics=True))[1]
    families = list(text_string_to_metric_families(text))
    names = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    assert len(names) == len(set(names)) == len(families) > 40
    assert text.endswith("\n")
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        assert kind in ("counter", "gauge")
        assert name.endswith("_total") == (kind == "counter"), name
        assert re.fullmatch(r"(llamacpp|uad):[a-z][a-z0-9]*(_[a-z0-9]+)*", name), name
        assert not re.search(r"_(sum|count|bucket|info|ms|us|ns|kb|mb|milliseconds|gauge|counter)(_total)?$", name), (
            name
        )
    for family in families:
        assert family.documentation, family.name
        assert family.samples, family.name
        labels = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(labels) == len(set(labels)), family.name


def test_counters_are_exact():
    fake = FakeRuntime()
    fake._totals = Totals(n_predicted=123_456_789)
    text = get("/metrics", fake, ServerConfig(port=0, metrics=True))[1]
    (value,) = re.findall(r"^llamacpp:tokens_predicted_total (.*)$", text, re.MULTILINE)
    assert float(value) == 123_456_789


def test_the_prompt_cache_has_metrics():
    fake = FakeRuntime()
    fake._totals = Totals(cache=CacheCounts(2, 3, 4, 5, 6, 0.5, 1, 7.5, 8, 9, 10, 11))
    text = get("/metrics", fake, ServerConfig(port=0, metrics=True))[1]
    found = dict(re.findall(r"^uad:prompt_cache_(\S+) (.*)$", text, re.MULTILINE))
    names = ("texts", "bytes", "saved_total", "restored_total", "dropped_total", "seconds_total")
    assert [float(found[name]) for name in names] == [2, 3, 4, 5, 6, 0.5]
    assert [float(found[f'hits_total{{level="{level}"}}']) for level in ("memory", "disk")] == [4, 1]
    names = ("seconds_saved_total", "disk_texts", "disk_bytes", "disk_read_bytes_total", "disk_written_bytes_total")
    assert [float(found[name]) for name in names] == [7.5, 8, 9, 10, 11]


def test_tokenize_and_back():
    assert post("/tokenize", {"content": "ab"})[1] == {"tokens": [97, 98]}
    assert post("/tokenize", {"content": "ab", "add_special": True})[1] == {"tokens": [BOS, 97, 98]}
    assert post("/tokenize", {"content": ["a", 98, "c"]})[1] == {"tokens": [97, 98, 99]}
    assert post("/tokenize", {"content": ""})[1] == {"tokens": []}
    _, body = post("/tokenize", {"content": "aé", "with_pieces": True})
    assert body["tokens"] == [{"id": 97, "piece": "a"}, {"id": 0xC3, "piece": [0xC3]}, {"id": 0xA9, "piece": [0xA9]}]
    assert post("/detokenize", {"tokens": [97, BOS, 98]})[1] == {"content": "a<s>b"}
    assert post("/detokenize", {"tokens": []})[1] == {"content": ""}


@pytest.mark.parametrize("tokens", ["ab", [259], [-1], [True], ["a"], [1.5]])
def test_detokenize_checks_ids(tokens):
    assert post("/detokenize", {"tokens": tokens})[0] == 400


@pytest.mark.parametrize("content", [[259], {"a": 1}, 5, [[1]], [True]])
def test_tokenize_checks_content(content):
    status, body = post("/tokenize", {"content": content})
    assert (status, body["error"]["param"]) == (400, "content")
    assert body["error"]["message"].startswith("content")


def test_apply_template():
    assert post("/apply-template", {"messages": HELLO})[1] == {"prompt": "user:hello\nassistant:"}
    prefilled = [*HELLO, {"role": "assistant", "content": "Hm"}]
    assert post("/apply-template", {"messages": prefilled})[1] == {"prompt": "user:hello\nassistant:Hm"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"X-Api-Key": "sk-on"}, 401),
        ({"Authorization": "Bearer sk-one"}, 200),
        ({"X-Api-Key": "sk-one"}, 200),
        ({"Authorization": "Bearer sk-zwei-ü"}, 200),
    ],
)
def test_keys(headers, status):
    got, body = post(CHAT, {"messages": HELLO}, None, KEYED, headers=headers)
    assert got == status
    if status == 401:
        assert body["error"]["type"] == "authentication_error"
        assert "sk-one" not in str(body)


def test_only_health_is_public():
    for path in ("/health", "/v1/health"):
        assert get(path, None, KEYED)[0] == 200
    for path in ("/v1/models", "/models", "/props", "/slots", "/metrics", "/nowhere"):
        assert get(path, None, KEYED)[0] == 401


def options(headers, config=CONFIG):
    async def run():
        async with serving(FakeRuntime(), config) as session, session.options(CHAT, headers=headers) as answer:
            return answer.status, answer.headers

    return asyncio.run(run())


def test_pages_of_this_machine_may_call():
    status, headers = options({"Origin": "http://localhost:3000"})
    assert (status, headers["Access-Control-Allow-Origin"], headers["Vary"]) == (200, "http://localhost:3000", "Origin")
    assert "POST" in headers["Access-Control-Allow-Methods"]
    assert "Authorization" in headers["Access-Control-Allow-Headers"]
    assert post(CHAT, {"messages": HELLO}, headers={"Origin": "http://127.0.0.1:5173"})[0] == 200


def test_pages_of_other_sites_may_not_without_a_key():
    evil = {"Origin": "https://evil.example"}
    status, headers = options(evil)
    assert status == 403
    assert "Access-Control-Allow-Origin" not in headers
    fake = FakeRuntime()
    status, body = post(CHAT, {"messages": HELLO}, fake, headers={**evil, "Content-Type": "text/plain"})
    assert (status, body["error"]["type"]) == (403, "permission_error")
    assert fake.requests == []


def test_with_a_key_any_page_may_ask():
    status, headers = options({"Origin": "https://web.example"}, KEYED)
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, "https://web.example")
    assert post(CHAT, {"messages": HELLO}, None, KEYED, headers={"Origin": "https://web.example"})[0] == 401


def test_foreign_host_names_are_refused_on_loopback_without_a_key():
    status, body = get("/v1/models", headers={"Host": "evil.example:8080"})
    assert (status, body["error"]["type"]) == (403, "permission_error")
    for host in ("localhost:8080", "127.0.0.1", "[::1]:80", "host.docker.internal", "10.0.0.7:8080"):
        assert get("/v1/models", headers={"Host": host})[0] == 200
    assert get("/v1/models", None, KEYED, headers={"Host": "evil.example", "X-Api-Key": "sk-one"})[0] == 200


@pytest.mark.parametrize(
    ("origin", "is_trusted"),
    [
        ("http://localhost", True),
        ("https://localhost:8443", True),
        ("http://[::1]:3000", True),
        ("http://app.localhost", True),
        ("http://0.0.0.0:3000", True),
        ("https://0.0.0.0", True),
        ("http://[::]:3000", True),
        ("http://0.0.0.1", False),
        ("http://0.0.0.0.evil.com", False),
        ("chrome-extension://abc", True),
        ("tauri://localhost", True),
        ("http://server.lan:8080", True),
        ("null", False),
        ("http://localhost.evil.com", False),
        ("http://notlocalhost", False),
        ("http://evil.com", False),
        ("http://[broken", False),
    ],
)
def test_trusted_origins(origin, is_trusted):
    assert is_trusted_origin(origin, "server.lan:8080") is is_trusted


@pytest.mark.parametrize(
    ("keys", "origins", "may"),
    [
        ((), "", (True, False, False)),
        (("secret",), "", (True, True, True)),
        ((), "https://chat.example", (True, True, False)),
        (("secret",), "localhost", (True, False, False)),
        (("secret",), "https://chat.example", (True, True, False)),
        ((), "*", (True, True, True)),
    ],
)
def test_pages_may_use_the_server_by_key_and_by_name(keys, origins, may):
    config = ServerConfig(api_keys=keys, cors_origins=origins)
    pages = "http://localhost:3000", "https://CHAT.example", "http://evil.com"
    assert tuple(may_use(page, "server.lan:8080", config) for page in pages) == may
