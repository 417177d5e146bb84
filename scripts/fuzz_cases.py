"""Requests of `scripts/fuzz.py`: texts, bodies, and what is changed in them. A pure function of the random generator
that is given.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import fuzz_apis
import http_fields

Json = dict[str, Any]
CHAT = "/v1/chat/completions"
GENERATING = (CHAT, "/chat/completions", "/v1/completions", "/completion", "/completions", "/infill")
POSTS = (*GENERATING, "/tokenize", "/detokenize", "/apply-template", *fuzz_apis.PATHS)
ABSENT = (
    "/v1/embeddings",
    "/rerank",
    "/nothing",
    "/",
    "/v1",
    "/%00",
    "/slots/0?action=erase",
)
GETS = (
    "/health",
    "/v1/health",
    "/v1/models",
    "/v1/models/x%2Fy",
    "/props",
    "/slots",
    "/metrics",
    "/lora-adapters",
    "/slots?fail_on_no_slot=1",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW")
MARKERS = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<s>",
    "</s>",
    "<unk>",
    "[INST]",
    "[/INST]",
    "<start_of_turn>",
    "<end_of_turn>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<|channel|>analysis<|message|>",
    "<|user|>",
    "<|assistant|>",
    "<0x0A>",
    "{{",
    "7*7",
    "}}",
    "{%",
    "for",
    "x",
    "in",
    "y",
    "%}",
    "<|im_sta",
    "<|im_start|>system",
]
ODD = (
    "A",
    "=",
    " ",
    "1",
    "é",
    "\n",
    "\0",
    "\t",
    "👍",
    "\u0301",
    "\u202e",
    "ا",
    "中",
    "\ufeff",
    "\U0010ffff",
    "'",
    "-",
    "\r\n",
    "🏳️‍🌈",
    "_",
)


@dataclass(frozen=True)
class Case:
    """One request. `text` is the part of it that a smaller case has less of."""

    method: str
    path: str
    body: bytes = b""
    kind: str = "body"

    @property
    def is_stream(self) -> bool:
        return b'"stream": true' in self.body


# --- texts


def _length(draw: random.Random, most: int) -> int:
    """Any order of magnitude is as likely."""
    return int(2 ** draw.uniform(0, most.bit_length() - 1))


def _planes(draw: random.Random, n: int) -> str:
    points = (draw.choice((0x80, 0x800, 0x3000, 0xFFFF, 0x1F700, 0x10FFFF)) for _ in range(n))
    return "".join(chr(p) for p in (draw.randrange(32, top) for top in points) if not 0xD800 <= p < 0xE000)


def _of(*parts: str) -> Callable[[random.Random, int], str]:
    return lambda draw, n: "".join(draw.choices(parts, k=max(1, n // 4)))[: n or 1]


TEXTS: dict[str, Callable[[random.Random, int], str]] = {
    "run": lambda draw, n: (draw.choice(ODD) * n)[:n],
    "run of a random character": lambda draw, n: (_planes(draw, 1) or "x") * n,
    "emoji": _of("😀", "👩‍👩‍👧", "🏳️‍🌈", "👍🏽", "🇳🇴", "❤️", " ", "\u200d", "\ufe0f"),
    "control characters": _of(*(chr(i) for i in (*range(32), 127, 0x85, 0x2028, 0xFEFF))),
    "right to left": _of("سلام", "שלום", "\u202e", "\u200f", " ", "ا", "١٢٣", "abc"),
    "zero bytes": _of("\0", "\0\0", "a", " "),
    "markers": _of(*MARKERS, " ", "\n"),
    "one huge line": _of("word ", "another ", "x", "lorem,", "1234 "),
    "white space": _of(" ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\v"),
    "digits": _of(*"0123456789", ".", ",", "٣"),
    "code": _of("def f(x):\n", "    return x\n", "{", "}", "();", "//", "a_b", '"', "\\"),
    "any characters": _planes,
    "combining": _of("e", "\u0301", "\u0327", "\u0e47", "\u1100", "\u1161"),
    "contractions": _of("'s", "'LL", "'", "don't", " 'ſ", "ſ"),
}


def text(draw: random.Random, most: int) -> tuple[str, str]:
    """(the class, or two of them; the text)."""
    names = draw.sample(sorted(TEXTS), k=draw.choice((1, 1, 2)))
    return " + ".join(names), "".join(TEXTS[name](draw, _length(draw, most)) for name in names)


# --- valid bodies


def _messages(draw: random.Random, most: int) -> list[Json]:
    out: list[Json] = [{"role": "system", "content": text(draw, 64)[1]}] if draw.random() < 0.3 else []
    for _ in range(draw.randint(0, 2)):
        out += [{"role": "user", "content": text(draw, most)[1]}, {"role": "assistant", "content": text(draw, 64)[1]}]
    said = text(draw, most)[1]
    return [*out, {"role": "user", "content": draw.choice((said, [{"type": "text", "text": said}]))}]


def _prompt(draw: random.Random, most: int) -> Any:
    said = text(draw, most)[1]
    ids = [draw.randrange(3000) for _ in range(draw.randint(1, 40))]
    return draw.choice((said, said, ids, [said, *ids], [said, "x"], [ids, ids], {"prompt_string": said}))


def _makers() -> Iterator[tuple[str, Callable[[random.Random], Any]]]:
    """Of every field that may be left out, by the types and bounds of the table of fields."""
    rows = [row for kind, found in http_fields.all_rows().items() if kind in http_fields.GENERATING for row in found]
    for row in rows:
        if row.schema.get("type") and not row.is_required:
            yield row.name, partial(http_fields.drawn, schema=row.schema)


SPECIAL: dict[str, Callable[[random.Random], Any]] = {
    "temperature": lambda draw: draw.choice((0, 0.8, 1.5)),
    "seed": lambda draw: draw.randrange(2**31),
    "top_k": lambda draw: draw.choice((0, 1, 40)),
    "top_p": lambda draw: draw.random(),
    "min_p": lambda draw: draw.random() / 4,
    "typical_p": lambda draw: draw.random(),
    "repeat_penalty": lambda draw: draw.uniform(0.8, 1.5),
    "repeat_last_n": lambda draw: draw.choice((-1, 0, 5, 10**6)),
    "frequency_penalty": lambda draw: draw.uniform(-1, 1),
    "stop": lambda draw: [text(draw, 16)[1] for _ in range(draw.randint(0, 3))],
    "stop_token_ids": lambda draw: [draw.randrange(4000) for _ in range(draw.randint(0, 5))],
    "min_tokens": lambda draw: draw.randint(0, 12),
    "include_stop_str_in_output": lambda draw: draw.random() < 0.5,
    "ignore_eos": lambda draw: draw.random() < 0.5,
    "logit_bias": lambda draw: [[draw.choice((draw.randrange(4000), text(draw, 32)[1])), draw.choice((-5, 5, False))]],
    "n": lambda draw: draw.randint(1, 2),
    "n_probs": lambda draw: draw.randint(0, 5),
    "cache_prompt": lambda draw: draw.random() < 0.5,
    "id_slot": lambda draw: draw.randint(-1, 1),
    "samplers": lambda draw: draw.choice((["top_k"], ["temperature", "penalties"], "kt", "xkxtd", ["infill"], [])),
    "dry_multiplier": lambda draw: draw.choice((0.5, 1000)),
    "dry_base": lambda draw: draw.choice((1, 1.75, 1000)),
    "dry_penalty_last_n": lambda draw: draw.choice((-1, 1, 10**6)),
    "dry_sequence_breakers": lambda draw: [text(draw, 32)[1] for _ in range(draw.randint(0, 4))],
    "dynatemp_range": lambda draw: draw.choice((0.5, 1000)),
    "mirostat": lambda draw: draw.randint(1, 2),
    "mirostat_eta": lambda draw: draw.choice((0.1, 1000)),
    "mirostat_tau": lambda draw: draw.choice((0, 5, 1000)),
    "adaptive_target": lambda draw: draw.random(),
    "min_keep": lambda draw: draw.choice((2, 10**6)),
    "bad_words": lambda draw: [text(draw, 8)[1] for _ in range(draw.randint(0, 3))],
    "allowed_token_ids": lambda draw: [draw.randrange(4000) for _ in range(draw.randint(1, 5))],
    "n_indent": lambda draw: draw.randint(0, 4),
    "t_max_predict_ms": lambda draw: draw.choice((-1, 1, 100)),
    "post_sampling_probs": lambda draw: draw.random() < 0.5,
    "return_progress": lambda draw: draw.random() < 0.5,
    "timings_per_token": lambda draw: draw.random() < 0.5,
    "echo": lambda draw: draw.random() < 0.5,
    "best_of": lambda draw: draw.randint(1, 3),
    "logprobs": lambda draw: draw.randint(0, 5),
    "speculative": lambda draw: draw.choice(
        ({"enabled": False}, {"policy": "fixed", "n_max": draw.randint(0, 20), "p_min": 0}, {"n_max": 3})
    ),
    "chat_template_kwargs": lambda draw: {"enable_thinking": draw.random() < 0.5, "x": text(draw, 16)[1]},
    "reasoning_effort": lambda draw: draw.choice(("none", "low", "high")),
    "suffix": lambda draw: text(draw, 64)[1],
    "prediction": lambda draw: {"type": "content", "content": _predicted(draw)},
    "response_format": lambda draw: {"type": draw.choice(("text", "json_object"))},
    "response_fields": lambda draw: [],
    "sse_ping_interval": lambda draw: draw.choice((-1, 0, 1, 86400)),
    "speculative.types": lambda draw: draw.choice(("none", "draft-simple", ["suffix", "ngram-mod"])),
    "tools": lambda draw: [{"type": "function", "function": {"name": text(draw, 16)[1] or "f"}}],
}
"""Fields whose values are worth more thought: texts of all kinds, ids, numbers that do not take long."""
_SET_ELSEWHERE = ("stream", "max_tokens", "prompt")
FIELDS = {name: maker for name, maker in (dict(_makers()) | SPECIAL).items() if name not in _SET_ELSEWHERE}


def _predicted(draw: random.Random) -> Any:
    """A text, or parts of one."""
    said = text(draw, 2048)[1]
    return said if draw.random() < 0.5 else [{"type": "text", "text": said}, {"type": "text", "text": said[:9]}]


def _around_a_cursor(draw: random.Random, most: int) -> Json:
    """The texts of /infill."""
    chunks = [{"text": text(draw, 256)[1], "filename": text(draw, 16)[1]} for _ in range(draw.randint(0, 3))]
    before, behind, begun = (text(draw, n)[1] for n in (most, most, 32))
    return {"input_prefix": before, "input_suffix": behind, "prompt": begun, "input_extra": chunks}


def valid(draw: random.Random, path: str, most: int) -> Json:
    """A body that the route takes, or nearly: some values exclude each other."""
    if path == "/tokenize":
        return {"content": _prompt(draw, most), "add_special": draw.random() < 0.5, "with_pieces": draw.random() < 0.5}
    if path == "/detokenize":
        return {"tokens": [draw.randrange(4000) for _ in range(draw.randint(0, 200))]}
    if path == "/apply-template":
        return {"messages": _messages(draw, most)}
    if path in fuzz_apis.PATHS:
        return fuzz_apis.body_of(draw, path, lambda n: text(draw, n)[1], most)
    body: Json = {"messages": _messages(draw, most)} if "chat" in path else {"prompt": _prompt(draw, most)}
    if path == "/infill":
        body = _around_a_cursor(draw, most)
    body["max_tokens"] = draw.randint(0, 20)
    for name in draw.sample(sorted(FIELDS), k=draw.randint(0, 6)):
        body[name] = FIELDS[name](draw)
    if draw.random() < 0.4:
        body["stream"] = True
    return body


# --- changes


def _wrong(draw: random.Random) -> Any:
    deep: Any = 1
    for _ in range(draw.choice((3, 50, 900))):
        deep = draw.choice(([deep], {"a": deep}))
    long = "x" * _length(draw, 2**17)
    numbers = (0, -1, 1.5, 2**31, 2**63, -(2**63), 10**400, 1e308, -0.0)
    return draw.choice(
        (
            None,
            True,
            False,
            "",
            "a",
            "false",
            long,
            [],
            {},
            [None],
            ["a", 1],
            {"a": {}},
            deep,
            *numbers,
            [0] * 5000,
            [[]] * 3000,
        )
    )


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in items:
        yield (*path, key)
        if len(path) < 4:
            yield from _places(member, (*path, key))


def _changed(draw: random.Random, body: Any) -> Any:
    """One member gone, doubled, or of another type."""
    places = list(_places(body))[:400]
    if not places:
        return _wrong(draw)
    *way, last = draw.choice(places)
    holder = body
    for key in way:
        holder = holder[key]
    match draw.randrange(3):
        case 0:
            del holder[last]
        case 1 if isinstance(holder, list):
            holder.extend(holder[last : last + 1] * draw.choice((1, 1000)))
        case _:
            holder[last] = _wrong(draw)
    return body


def _torn(draw: random.Random, data: bytes) -> bytes:
    """Bytes that are no JSON any more, or no UTF-8."""
    at = draw.randrange(len(data) + 1)
    rest = data[at:]
    match draw.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + draw.randbytes(draw.randint(1, 4)) + rest
        case 2:
            return (
                data[:at]
                + draw.choice((b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\0", b"\\ud800", b"NaN", b"Infinity"))
                + rest
            )
        case 3:
            return b"\xef\xbb\xbf" + data
        case 4:
            return data[:-1] + b', "stream": 1, "stream": true, "max_tokens": 1, "max_tokens": "x"}'
        case _:
            return draw.choice(
                (
                    b"",
                    b"[]",
                    b"null",
                    b'"x"',
                    b"1" * 5000,
                    b"[" * 100_000,
                    b'{"a":' * 20_000,
                    data + data,
                    draw.randbytes(200),
                )
            )


def encoded(body: Any, draw: random.Random) -> bytes:
    return json.dumps(body, ensure_ascii=draw.random() < 0.5).encode("utf-8", "replace")


def text_case(draw: random.Random, most: int) -> Case:
    """A long text of some class to a route that tokenizes it."""
    kind, said = text(draw, most)
    path = draw.choice(("/tokenize", "/v1/completions", CHAT, "/completion", "/apply-template", "/v1/completions"))
    body: Json = (
        {"content": said, "parse_special": draw.random() < 0.5}
        if path == "/tokenize"
        else {"prompt": said, "max_tokens": draw.randint(1, 8)}
    )
    if path in (CHAT, "/apply-template"):
        body = {"messages": [{"role": "user", "content": said}], "max_tokens": draw.randint(1, 8)}
    elif path == "/completion" and draw.random() < 0.3:
        body = {"prompt": "x", "n_predict": 1, "logit_bias": [[said, 1]]}
    return Case("POST", path, encoded(body, draw), f"text: {kind}")


def body_case(draw: random.Random, most: int) -> Case:
    """A valid body, or one that is changed in one to three places, to a route that takes it or another."""
    if draw.random() < 0.1:
        return Case(
            draw.choice(METHODS), draw.choice((*GETS, *ABSENT, *POSTS)), draw.choice((b"", b"{}", b"x")), "method"
        )
    path = draw.choice(POSTS)
    body: Any = valid(draw, path, most)
    n = draw.choice((0, 0, 1, 1, 2, 3))
    for _ in range(n):
        body = _changed(draw, body)
    if isinstance(body, dict):  # what would take long is no finding here
        for name in ("max_tokens", *(["max_output_tokens"] if path in fuzz_apis.RESPONSES else [])):
            body[name] = body[name] if isinstance(body.get(name), str) else draw.randint(0, 20)
    data = encoded(body, draw)
    if draw.random() < 0.2:
        data, n = _torn(draw, data), -1
    where = draw.choice((path, path, path, draw.choice(POSTS)))
    return Case("POST", where, data, "torn body" if n < 0 else "changed body" if n else "valid body")


# --- smaller ones


def smaller(case: Case) -> Iterator[Case]:
    """Cases with less in them: without a member, with shorter texts and lists; of what is no JSON, halves."""
    try:
        body = json.loads(case.body)
    except (ValueError, RecursionError):
        half = len(case.body) // 2
        yield from (replace(case, body=part) for part in (case.body[:half], case.body[half:]) if half)
        return
    for place in list(_places(body))[:60]:
        for part in _less(body, place):
            yield replace(case, body=part)


def _less(body: Any, place: tuple[Any, ...]) -> Iterator[bytes]:
    *way, last = place
    holder = body
    for key in way:
        holder = holder[key]
    whole = holder[last]
    if isinstance(holder, dict):
        yield (
            json.dumps({name: value for name, value in holder.items() if name != last}).encode()
            if not way
            else _with(body, way, last)
        )
    if isinstance(whole, str | list) and len(whole) > 1:
        for part in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            holder[last] = part
            yield json.dumps(body).encode()
        holder[last] = whole


def _with(body: Any, way: list[Any], last: Any) -> bytes:
    copy = json.loads(json.dumps(body))
    holder = copy
    for key in way:
        holder = holder[key]
    del holder[last]
    return json.dumps(copy).encode()
