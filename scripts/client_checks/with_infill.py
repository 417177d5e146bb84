"""Requests of editors that fill in the middle, as llama.vim and llama.vscode send them."""

from __future__ import annotations

import json
from typing import Any

from checks import ROOT_URL, posted, tell

BEFORE = "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n"
BEHIND = "\n\n\ndef main():\n    print(area(2, 3), volume(2, 3, 4))\n"
CHUNK = "".join(f"def half_{i}(value):\n    return value / {2 * i}\n\n\n" for i in range(1, 13))
EXTRA = [{"text": CHUNK, "time": [1, 2], "filename": "halves.py"}]
OF_PROMPT = ("prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second")
OF_ANSWER = ("predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second")
WANTED = ["content", *(f"timings/{name}" for name in (*OF_PROMPT, *OF_ANSWER)), "truncated", "tokens_cached"]
AROUND = {"input_prefix": BEFORE, "input_suffix": BEHIND, "input_extra": EXTRA, "prompt": "    return "}
SAMPLED = {"top_k": 40, "top_p": 0.99, "samplers": ["top_k", "top_p", "infill"], "seed": 1}
TIMES = {"t_max_prompt_ms": 60000, "t_max_predict_ms": 60000, "stream": False, "cache_prompt": True}


def answered(body: dict[str, Any]) -> Any:
    """The object of an answer. Raises HTTPError, or URLError."""
    with posted(f"{ROOT_URL}/infill", body) as response:
        return json.load(response)


def tells_volume(content: str) -> None:
    """Raises AssertionError unless it completes the line."""
    line = content.partition("\n")[0].replace(" ", "")
    assert "depth" in line, f"another line: {content!r}"


def vim_warms() -> None:
    """The chunks of other files are read ahead; the next request with them reads only what is around the cursor."""
    nothing = {"input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "temperature": 0.0, "samplers": []}
    warm = {**nothing, "input_extra": EXTRA, **TIMES, "t_max_prompt_ms": 1, "t_max_predict_ms": 1}
    assert answered({**warm, "response_fields": [""]}) == {}, "fields that nobody asked for"
    found = answered({**AROUND, **SAMPLED, **TIMES, "n_predict": 1, "n_indent": 4, "response_fields": WANTED})
    assert found["timings/prompt_n"] < 100, f"{found['timings/prompt_n']} tokens are read again"


def vim_completes() -> None:
    """A suggestion, with the numbers that are shown beside it."""
    found = answered({**AROUND, **SAMPLED, **TIMES, "n_predict": 32, "n_indent": 4, "response_fields": WANTED})
    assert set(found) == set(WANTED), f"other members: {sorted(found)}"
    assert found["truncated"] is False
    tells_volume(found["content"])


def vscode_completes() -> None:
    """The whole answer, from which it takes the text and times."""
    found = answered({**AROUND, **SAMPLED, **TIMES, "n_predict": 32, "n_indent": 4})
    tells_volume(found["content"])
    assert found["timings"]["predicted_per_second"] > 0


def vscode_warms() -> None:
    """It asks for a token, with one sampler."""
    nothing = {"input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 1, "samplers": ["temperature"]}
    found = answered({**nothing, "input_extra": EXTRA, "top_k": 40, "top_p": 0.99, **TIMES})
    assert found["tokens_predicted"] == 1


for name, what, function in (
    ("llama.vim", "chunks of other files, read ahead", vim_warms),
    ("llama.vim", "a suggestion at the cursor", vim_completes),
    ("llama.vscode", "chunks of other files, read ahead", vscode_warms),
    ("llama.vscode", "a suggestion at the cursor", vscode_completes),
):
    tell(name, "recorded", what, function)
