"""Calls that are not well written, over all APIs of chats, whole and streamed: a call has arguments that clients can
parse, what is none is text, and an answer that says it calls has a call.
"""

from __future__ import annotations

import pytest
from kit.heard import APIS

START = '<tool_call>\n{"name": "look_up", "arguments": '
END = "}\n</tool_call>"
CASES: dict[str, tuple[str, str, dict[str, object] | None]] = {
    "a line end": (f'{START}{{"word": "t\nea"}}{END}', "", {"word": "t\nea"}),
    "a comma": (f'{START}{{"word": "tea",}}{END}', "", {"word": "tea"}),
    "no brace": (f'{START}{{"word": "tea"\n</tool_call>', "", {"word": "tea"}),
    "a brace too many": (f'{START}{{"word": "tea"}}}}{END}', "", {"word": "tea"}),
    "nothing": (f'{START}""{END}', "", {}),
    "a list": (f"{START}[]{END}", "", {}),
    "no end": (f'{START}{{"word": "te', "", {"word": "te"}),
    "no number": (f'{START}{{"word": NaN}}{END}', "", {"word": "NaN"}),
    "too deep": (f'{START}{{"word": "tea", "n": {"[" * 300}{END}', "[" * 100 + END, {"word": "tea"}),
    "unreadable in the middle": (f'{START}{{"word": "tea", "n" = 3}}{END}', f', "n" = 3}}{END}', {"word": "tea"}),
    "no arguments": (f"{START}[1]{END}", f"{START}[1]{END}", None),
    "no name": ('<tool_call>\n{"word": "tea"}\n</tool_call>', '<tool_call>\n{"word": "tea"}\n</tool_call>', None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("api", APIS)
def test_a_damaged_call_is_a_call_or_text_on_every_api(api: str, case: str) -> None:
    text, rest, wanted = CASES[case]
    ask, calling = APIS[api]
    whole, pieces = ask(text, False), ask(text, True)
    assert whole == pieces
    assert whole.text.endswith(rest)
    assert whole.text or wanted is not None
    if wanted is None:
        assert (whole.text, whole.calls) == (text, ())
        assert whole.reason in ("stop", "end_turn", "completed")
    else:
        (arguments,) = whole.calls
        assert isinstance(arguments, dict)
        assert arguments.get("word") == wanted.get("word")
        assert whole.reason == calling
