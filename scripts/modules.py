"""Prints one line per module of uad, from the first sentence of its docstring: `python scripts/modules.py`."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".") + "."


def page() -> str:
    lines: list[str] = []
    for room in sorted({path.parent for path in (ROOT / "uad").rglob("*.py")}):
        lines += [f"## {room.relative_to(ROOT)}", ""]
        lines += [f"- `{path.name}`: {first_sentence(path)}" for path in sorted(room.glob("*.py"))]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())
