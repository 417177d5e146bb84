"""What a body becomes: the runtime's Request, and the messages that reach the template."""

import math

import pytest
from kit.calls_kit import FORMATS
from kit.fake_runtime import BOS, CONFIG, N_VOCAB, FakeRuntime
from kit.server_kit import CHAT, HELLO, post

from uad.base.config import Config, DraftingConfig, ServerConfig
from uad.base.types import Origin, SamplingParams, SpeculativeParams
from uad.http.requests.fields import NativeBody, checked
from uad.text.calls.format import AnswerFormat
from uad.text.mapping.families import ThoughtFormat


def request(path=CHAT, fake=None, **members):
    fake = fake or FakeRuntime()
    body = {"messages": HELLO, **members} if path == CHAT else {"prompt": "ab", **members}
    status, answer = post(path, body, fake)
    assert status == 200, answer
    return fake.requests[-1]


def chat_of(messages, **members):
    fake = FakeRuntime()
    status, answer = post(CHAT, {"messages": messages, **members}, fake)
    assert status == 200, answer
    return fake.chats[-1], fake.requests[-1]


def with_defaults(**members):
    return FakeRuntime(config=Config(**{"target": CONFIG.target, **members}))


def test_defaults_come_from_the_server():
    sampling = SamplingParams(temperature=0.1, top_k=3, seed=9, repeat_penalty=1.2)
    drafting = DraftingConfig(defaults=SpeculativeParams(n_max=5, n_min=2, p_min=0.25))
    asked = request(fake=with_defaults(sampling=sampling, drafting=drafting), top_p=0.5)
    assert asked.sampling == SamplingParams(temperature=0.1, top_k=3, seed=9, repeat_penalty=1.2, top_p=0.5)
    assert asked.speculative == drafting.defaults
    assert asked.max_tokens is None


def test_every_sampling_field_arrives():
    fields = {
        "temperature": 0.3,
        "top_k": 7,
        "top_p": 0.4,
        "min_p": 0.01,
        "typical_p": 0.9,
        "repeat_last_n": 12,
        "repeat_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": -0.3,
        "seed": 77,
        "ignore_eos": True,
    }
    assert request(**fields).sampling == SamplingParams(**fields)
    assert request(repeat_last_n=-1).sampling.repeat_last_n == 4096
    assert request(temperature=1).sampling.temperature == 1.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"5": 2, "7": -100}, ((5, 2.0), (7, -100.0))),
        ({"ab": 1.5}, ((97, 1.5), (98, 1.5))),
        ([[5, False], ["c", -1]], ((5, -math.inf), (99, -1.0))),
        ({}, ()),
    ],
)
def test_logit_bias_spellings(value, expected):
    assert request(logit_bias=value).sampling.logit_bias == expected


def test_samplers_left_out_are_switched_off():
    sampling = request(samplers=["top_k", "temperature"], top_p=0.5).sampling
    assert (sampling.top_k, sampling.temperature) == (40, 0.8)
    assert (sampling.top_p, sampling.min_p, sampling.typical_p, sampling.repeat_penalty) == (1.0, 0.0, 1.0, 1.0)
    assert request(samplers="edskypmxta").sampling == SamplingParams()
    assert request(samplers=["tfs_z", "top_k"]).sampling.samplers == ("top_k",), "unknown ones: as llama-server"


def test_limits_of_length():
    assert request(max_tokens=-1).max_tokens is None
    assert request(max_tokens=0).max_tokens == 0
    capped = with_defaults(n_predict=6)
    assert request(fake=capped, max_tokens=3).max_tokens == 3
    assert request(fake=with_defaults(n_predict=6), max_tokens=30).max_tokens == 6
    assert request(fake=with_defaults(n_predict=6)).max_tokens == 6


def test_speculative_of_one_request():
    assert request(speculative={"enabled": False}).speculative == SpeculativeParams(enabled=False)
    assert request(speculative={"n_max": 3, "n_min": 1, "p_min": 0}).speculative == SpeculativeParams(True, 3, 1, 0.0)
    flat = {"speculative.n_max": 3, "speculative.n_min": 1, "speculative.p_min": 0.75}
    assert request(**flat).speculative == SpeculativeParams(True, 3, 1, 0.75)
    assert request(speculative={"n_max": 2}, **flat).speculative == SpeculativeParams(True, 2, 1, 0.75)


@pytest.mark.parametrize(
    "value", ["suffix,draft", ["suffix", "draft-simple"], "suffix, draft-simple", ["suffix,draft-simple"]]
)
def test_drafters_of_one_request(value):
    both = (Origin.SUFFIX, Origin.MODEL)
    assert request(speculative={"types": value}).speculative == SpeculativeParams(types=both)
    assert request(**{"speculative.types": value}).speculative == SpeculativeParams(types=both)
    assert request(speculative={"types": "suffix"}, **{"speculative.types": value}).speculative.types == (
        Origin.SUFFIX,
    )
    assert request(**{"speculative.types": "none"}).speculative == SpeculativeParams(enabled=False)


def test_a_request_may_name_a_further_draft_model():
    fake = FakeRuntime(loaded=(Origin.MODEL, Origin.MODEL_2))
    assert request(fake=fake, **{"speculative.types": "draft-simple-2"}).speculative.types == (Origin.MODEL_2,)


def test_the_longest_draft_goes_by_the_policy_unless_somebody_says_it():
    assert [
        request(speculative=asked).speculative.longest for asked in ({}, {"policy": "auto"}, {"policy": "fixed"})
    ] == [48, 48, 16]
    assert request(speculative={"policy": "fixed", "n_max": 5}).speculative.longest == 5
    told = DraftingConfig(defaults=SpeculativeParams(n_max=8))
    assert request(fake=with_defaults(drafting=told), speculative={"policy": "fixed"}).speculative.longest == 8
    assert request(speculative={"n_max": 0}).speculative.longest == 0


def test_a_smaller_n_max_takes_the_default_n_min_along():
    drafting = DraftingConfig(defaults=SpeculativeParams(n_max=8, n_min=4))
    assert request(fake=with_defaults(drafting=drafting), speculative={"n_max": 2}).speculative.n_min == 2


@pytest.mark.parametrize(
    ("path", "members", "expected"),
    [
        (CHAT, {}, (False, 0)),
        (CHAT, {"logprobs": True}, (True, 0)),
        (CHAT, {"logprobs": True, "top_logprobs": 3}, (True, 3)),
        ("/v1/completions", {"logprobs": 0}, (True, 0)),
        ("/v1/completions", {"logprobs": 4}, (True, 4)),
        ("/completion", {"n_probs": 2}, (True, 2)),
        ("/completion", {"logprobs": 2}, (True, 2)),
        ("/completion", {"n_probs": 0}, (False, 0)),
    ],
)
def test_log_probabilities(path, members, expected):
    asked = request(path, **members)
    assert (asked.logprobs, asked.n_probs) == expected


def test_slot_cache_and_stop():
    asked = request(id_slot=1, cache_prompt=False, stop="end")
    assert (asked.slot, asked.cache_prompt, asked.stop) == (1, False, ("end",))
    assert request(stop=["a", "", "b"]).stop == ("a", "b")
    assert request(stop=None).stop == ()


def test_the_servers_own_word_on_cached_prompts():
    assert request().cache_prompt
    fresh = with_defaults(server=ServerConfig(cache_prompt=False))
    assert not request(fake=fresh).cache_prompt
    assert request(fake=with_defaults(server=ServerConfig(cache_prompt=False)), cache_prompt=True).cache_prompt


def test_null_means_absent():
    assert (
        request(temperature=None, max_tokens=None, n=None, logit_bias=None, speculative=None).sampling
        == SamplingParams()
    )
    assert request(max_completion_tokens=None, max_tokens=5).max_tokens == 5


def test_content_parts_go_to_the_template_as_parts():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    (messages, _, is_open), _ = chat_of([{"role": "system", "content": None}, {"role": "user", "content": parts}])
    assert messages == [{"role": "system", "content": ""}, {"role": "user", "content": parts}]
    assert is_open
    (messages, _, _), _ = chat_of([{"role": "user", "content": parts[:1]}])
    assert messages == [{"role": "user", "content": "one"}]


def test_roles_and_names_go_to_the_template():
    (messages, _, _), _ = chat_of(
        [{"role": "developer", "content": "x"}, {"role": "user", "content": "y", "name": "Ann", "other": 1}]
    )
    assert messages == [{"role": "developer", "content": "x"}, {"role": "user", "content": "y", "name": "Ann"}]


def test_template_kwargs_travel():
    (_, kwargs, _), _ = chat_of(
        HELLO, chat_template_kwargs={"enable_thinking": False, "level": 3}, reasoning_effort="high"
    )
    assert kwargs == {"enable_thinking": False, "level": 3, "reasoning_effort": "high"}
    (_, kwargs, _), _ = chat_of(HELLO, chat_template_kwargs={"of_my_own": {"a": [1, "x"]}})
    assert kwargs == {"of_my_own": {"a": [1, "x"]}}
    (_, kwargs, _), _ = chat_of(HELLO, reasoning_effort="none")
    assert kwargs == {"enable_thinking": False}


def test_a_last_assistant_message_is_continued():
    (messages, _, is_open), asked = chat_of([*HELLO, {"role": "assistant", "content": "Well, "}])
    assert messages == HELLO
    assert is_open
    assert asked.prompt == (BOS, *b"user:hello\nassistant:Well, ")
    same = chat_of(
        [*HELLO, {"role": "assistant", "content": "Well, "}], add_generation_prompt=False, continue_final_message=True
    )
    assert same[1].prompt == asked.prompt


def test_a_chat_without_the_opening_of_an_answer():
    (_, _, is_open), asked = chat_of(HELLO, add_generation_prompt=False)
    assert not is_open
    assert asked.prompt == (BOS, *b"user:hello\n")


@pytest.mark.parametrize(
    ("messages", "members"),
    [
        ([*HELLO, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}], {}),
        (
            [*HELLO, {"role": "assistant", "content": "a", "reasoning_content": "hm"}],
            {"continue_final_message": "reasoning_content"},
        ),
        ([*HELLO, {"role": "assistant", "content": "a"}], {"continue_final_message": "thoughts"}),
        (
            [*HELLO, {"role": "assistant", "content": "a"}],
            {"add_generation_prompt": True, "continue_final_message": True},
        ),
        (HELLO, {"continue_final_message": True}),
    ],
)
def test_prefills_that_are_refused(messages, members):
    status, answer = post(CHAT, {"messages": messages, **members})
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


THINKING, HARMONY = AnswerFormat(thinks=True), AnswerFormat((FORMATS["harmony"],))
MISTRAL = AnswerFormat(thought=ThoughtFormat("[THINK]", "[/THINK]"), thinks=True)


@pytest.mark.parametrize(
    ("answers", "last", "more", "begun"),
    [
        (THINKING, {"content": "", "reasoning_content": "so far"}, {}, "<think>\nso far"),
        (THINKING, {"reasoning_content": "so far"}, {}, "<think>\nso far"),
        (THINKING, {"content": None, "reasoning": "so far"}, {}, "<think>\nso far"),
        (THINKING, {"content": "a", "reasoning_content": "hm"}, {}, "<think>\nhm\n</think>\n\na"),
        (THINKING, {"reasoning_content": "hm"}, {"continue_final_message": "content"}, "<think>\nhm\n</think>\n\n"),
        (
            THINKING,
            {"reasoning_content": "hm"},
            {"continue_final_message": "reasoning_content", "add_generation_prompt": False},
            "<think>\nhm",
        ),
        (MISTRAL, {"reasoning_content": "so far"}, {}, "[THINK]so far"),
        (HARMONY, {"reasoning_content": "so far"}, {}, "<|channel|>analysis<|message|>so far"),
        (HARMONY, {"content": "a", "reasoning_content": "hm"}, {}, "<|channel|>analysis<|message|>hm<|end|>a"),
        (AnswerFormat(), {"content": "a", "reasoning_content": "hm"}, {}, "a"),
        (AnswerFormat(), {"reasoning_content": "hm"}, {}, ""),
    ],
)
def test_thoughts_that_the_last_message_begins_go_on(answers, last, more, begun):
    fake = FakeRuntime(answers=answers)
    status, answer = post(CHAT, {"messages": [*HELLO, {"role": "assistant", **last}], **more}, fake)
    assert status == 200, answer
    assert fake.requests[-1].prompt == (BOS, *b"user:hello\nassistant:", *begun.encode())


@pytest.mark.parametrize("answers", [THINKING, HARMONY])
def test_thoughts_that_go_on_are_thoughts_of_the_answer(answers):
    ends = {THINKING: b" and on</think>Yes", HARMONY: b" and on<|end|><|start|>assistant<|channel|>final<|message|>Yes"}
    fake = FakeRuntime(answers=answers, script=lambda request: ends[answers])
    _, answer = post(CHAT, {"messages": [*HELLO, {"role": "assistant", "reasoning_content": "so far"}]}, fake)
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Yes", "and on")


def test_an_answer_may_begin_a_conversation():
    (messages, _, is_open), asked = chat_of([{"role": "assistant", "content": "a"}])
    assert (messages, is_open) == ([], True)
    assert bytes(asked.prompt[1:]).endswith(b"assistant:a")


@pytest.mark.parametrize(
    ("members", "name", "expected"),
    [
        ({"max_tokens": 5, "n_predict": ""}, "max_tokens", 5),
        ({"repeat_penalty": None, "repetition_penalty": 1.5}, "repeat_penalty", 1.5),
        ({"typical_p": "", "typ_p": 0.5}, "typical_p", 0.5),
        ({"n_cmpl": "", "n": 2}, "n", 2),
    ],
)
def test_null_and_an_empty_text_hide_no_other_name(members, name, expected):
    body = checked(NativeBody, {"prompt": "a", **members})
    assert getattr(body, name) == expected


def test_a_thought_under_the_other_name_is_not_lost():
    for hidden in (None, ""):
        said = {"role": "assistant", "content": "a", "reasoning_content": hidden, "reasoning": "THO"}
        (messages, _, _), _ = chat_of([*HELLO, said, *HELLO])
        assert messages[1]["reasoning_content"] == "THO"


def test_an_empty_prompt_has_its_bos():
    assert request("/completion", prompt="").prompt == (BOS,)
    assert max(request("/completion", prompt=[N_VOCAB - 1]).prompt) == N_VOCAB - 1
