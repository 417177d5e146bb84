"""Screenshots of the page for the documentation: `python scripts/screenshots.py URL -o docs/images`.

URL is that of a running server that drafts: `make demo`, or `make serve`. Needs playwright and a
Chromium on the path, or named in CHROMIUM.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

PROMPT = """Rename `found` to `result` in this function, and change nothing else:

```python
def runs(values):
    found = []
    for value in values:
        if found and found[-1][0] == value:
            found[-1][1] += 1
        else:
            found.append([value, 1])
    return found
```"""
STORY = "Tell me a long story about the keeper of a lighthouse."
RACE = "Write the numbers from one to thirty as words, one on each line."
SETTINGS = {"temperature": "0", "max_tokens": "200"}
DESKTOP = {"width": 1180, "height": 780}
PHONE = {"width": 390, "height": 800}
PATIENCE_S = 600.0


def main() -> int:
    """Take them all; returns 2 where something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("url")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next((found for name in names if (found := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("screenshots: playwright is missing; pip install playwright", file=sys.stderr)
        return 2
    if path is None:
        print("screenshots: no Chromium on the path; install one, or name it in CHROMIUM", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as opened:
        browser = opened.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            take(browser, args.url.rstrip("/") + "/", args.out)
        finally:
            browser.close()
    return 0


def take(browser: Any, url: str, out: Path) -> None:
    """The chat in light and dark and on a phone, the race, the live view."""
    page = browser.new_context(viewport=DESKTOP, device_scale_factor=1.5).new_page()
    page.goto(url)
    race(page, out)
    chat(page, out)
    page.emulate_media(color_scheme="dark")
    shot(page, out / "page-chat-dark.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PHONE)
    page.evaluate("document.getElementById('log').scrollTop = 1e6")
    shot(page, out / "page-phone.png")
    page.set_viewport_size(DESKTOP)
    live(page, url, out)


def chat(page: Any, out: Path) -> None:
    """One answer with its colours."""
    page.click("text=Chat")
    page.click("#show-settings")
    for name, value in SETTINGS.items():
        page.fill(f"#settings [name={name}]", value)
    page.select_option("#settings [name=drafting]", "fixed")  # colours, whatever they cost on the machine at hand
    page.click("#show-settings")
    page.fill("#say", PROMPT)
    page.press("#say", "Enter")
    wait(page, "document.querySelector('.turn.answer:not(.busy) .numbers')?.textContent.includes('tokens/s')")
    page.wait_for_timeout(3000)  # the line of numbers gets its last part
    shot(page, out / "page-chat.png")


def race(page: Any, out: Path) -> None:
    """A whole race."""
    page.click("text=Race")
    page.fill("#race-form [name=prompt]", RACE)
    page.select_option("#race-form [name=drafting]", "fixed")
    page.click("#race-start")
    wait(page, "document.querySelector('#verdict').textContent.includes('same text')")
    page.wait_for_timeout(300)
    shot(page, out / "page-race.png")


def live(page: Any, url: str, out: Path) -> None:
    """The live view while another tab asks something."""
    other = page.context.new_page()
    other.goto(url)
    other.click("#new")
    other.fill("#say", STORY)
    other.press("#say", "Enter")
    page.bring_to_front()
    page.click("text=Live")
    wait(page, "document.querySelector('#live-slots .runs') !== null")
    page.wait_for_timeout(4000)
    size = page.evaluate("document.querySelector('#live').scrollHeight + 60")
    page.set_viewport_size({**DESKTOP, "height": min(int(size), 1000)})
    page.wait_for_timeout(1200)
    shot(page, out / "page-live.png")


def wait(page: Any, wanted: str) -> None:
    """Until JavaScript says so."""
    end = time.monotonic() + PATIENCE_S
    while not page.evaluate(wanted):
        if time.monotonic() > end:
            raise TimeoutError(f"the page does not get there: {wanted}")
        page.wait_for_timeout(200)


def shot(page: Any, path: Path) -> None:
    """Write a picture of the window."""
    page.mouse.move(0, 0)
    page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    sys.exit(main())
