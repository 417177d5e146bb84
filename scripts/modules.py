"""Writes docs/modules.md: one line per module, from the first sentence of its docstring. `--check` only compares (exit
1).
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "modules.md"


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".") + "."


def page() -> str:
    lines = ["# Modules", "", "One line per file, written by `scripts/modules.py` from the docstrings.", ""]
    for room in sorted({path.parent for path in (ROOT / "uad").rglob("*.py")}):
        lines += [f"## {room.relative_to(ROOT)}", ""]
        lines += [f"- `{path.name}`: {first_sentence(path)}" for path in sorted(room.glob("*.py"))]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    if "--check" not in sys.argv:
        OUT.write_text(page(), encoding="utf-8")
        return 0
    return 0 if OUT.exists() and OUT.read_text(encoding="utf-8") == page() else 1


if __name__ == "__main__":
    sys.exit(main())
