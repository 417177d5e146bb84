"""OpenAI's client: Predicted Outputs, and what is put in before a suffix."""

from __future__ import annotations

from typing import Any

import openai
from checks import CLIENT, MODEL, check, run

client: Any = openai.OpenAI(**CLIENT)
CODE = "".join(f"def half_{i}(value):\n    return value / {2 * i}\n\n\n" for i in range(1, 6))
PREDICTION = {"type": "content", "content": CODE}
ASKED = [{"role": "user", "content": f"Repeat all of this code as it is, but write third for half_3.\n\n{CODE}"}]
COMMON: dict[str, Any] = {"model": MODEL, "max_tokens": 256, "temperature": 0}


def accepted(usage: Any) -> int:
    """Tokens of the prediction that were accepted. Raises AssertionError without any."""
    details = usage.completion_tokens_details
    assert details is not None, "usage tells nothing of the prediction"
    assert details.accepted_prediction_tokens > 0, f"nothing was accepted: {details!r}"
    assert details.rejected_prediction_tokens >= 0
    n: int = details.accepted_prediction_tokens
    return n


@check("prediction: the same answer, and tokens of it accepted")
def predicted() -> None:
    plain = client.chat.completions.create(messages=ASKED, **COMMON)
    found = client.chat.completions.create(messages=ASKED, prediction=PREDICTION, **COMMON)
    assert found.choices[0].message.content == plain.choices[0].message.content, "another answer"
    accepted(found.usage)


@check("prediction: streamed, in parts")
def streamed() -> None:
    parts = [{"type": "text", "text": CODE[:60]}, {"type": "text", "text": CODE[60:]}]
    stream = client.chat.completions.create(
        messages=ASKED,
        prediction={"type": "content", "content": parts},
        stream=True,
        stream_options={"include_usage": True},
        **COMMON,
    )
    chunks = list(stream)
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert "half_1" in text, f"another answer: {text!r}"
    accepted(chunks[-1].usage)


@check("completions: what stands before a suffix")
def inserted() -> None:
    answer = client.completions.create(
        prompt="def volume(width, height, depth):\n    return", suffix="\n\n\nprint(volume(2, 3, 4))\n", **COMMON
    )
    assert "depth" in answer.choices[0].text.partition("\n")[0], f"another line: {answer.choices[0].text!r}"


run("openai")
