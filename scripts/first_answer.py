"""Ask a server that was just installed: wait until it is ready, then compare a chat with and without drafts.

Usage: python scripts/first_answer.py URL [SECONDS]. Prints the answer and how much of it was drafted. Ends with 1 where
the server is not ready in time (120 seconds), drafts nothing, or says something else without drafts. Standard library
only, and no uad.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

QUESTION = "Count from 3 to 23 in steps of 2."
SECONDS = 120.0
PAUSE = 0.5


def main(argv: list[str]) -> int:
    """Exit code 1 where the server does not answer as it should."""
    url = argv[0].rstrip("/")
    if not is_ready(url, float(argv[1]) if len(argv) > 1 else SECONDS):
        print(f"{url} is not ready", file=sys.stderr)
        return 1
    drafted, plain = (answer(url, enabled) for enabled in (True, False))
    text, n_drafted = drafted["choices"][0]["message"]["content"], drafted["timings"].get("draft_n", 0)
    print(f"{text}\n{n_drafted} tokens drafted, {drafted['timings'].get('draft_n_accepted', 0)} of them accepted")
    if not text or not n_drafted:
        print("nothing was written, or nothing drafted", file=sys.stderr)
        return 1
    if text != plain["choices"][0]["message"]["content"]:
        print(f"without drafts it says: {plain['choices'][0]['message']['content']}", file=sys.stderr)
        return 1
    return 0


def is_ready(url: str, seconds: float) -> bool:
    """Whether `/health` is 200 within `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            with urlopen(f"{url}/health", timeout=PAUSE * 10) as response:
                return bool(response.status == 200)
        except HTTPError as error:
            if error.code != 503:  # which is said while models are loaded
                return False
        except (URLError, OSError):  # not listening yet
            pass
        if time.monotonic() >= end:
            return False
        time.sleep(PAUSE)


def answer(url: str, is_drafted: bool) -> dict[str, Any]:
    """A greedy chat."""
    body = {
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 64,
        "speculative": {"enabled": is_drafted, "policy": "fixed"},
    }
    request = Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=SECONDS) as response:
        found: dict[str, Any] = json.load(response)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
