"""Measures every ordered pair of real chat templates and draws docs/template-matrix.png and docs/template-matrix.md.

    UAD_VOCABS=folder-with-templates .venv/bin/python docs/draw_matrix.py

The measurement is tests/kit/templates_matrix.py; the templates are those of llama-cpp-python's source distribution.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from kit.templates_matrix import Cell, derived, derived_cells, family_cells, pairs, recognised, telling  # noqa: E402
from kit.templates_real import CONVERSATIONS, REASONS, real_templates  # noqa: E402

COLORS = ("#c0392b", "#9fd3a8", "#1e8449", "#d9d9d9")
LABELS = ("not equal", "equal up to how the answer begins", "equal to the character", "no conversation in common")
UNEQUAL, TO_ANSWER, SAME, NOTHING = range(4)


def grid(cells: Iterable[Cell]) -> np.ndarray:
    """The worse of both conversations for every pair; rows are targets, columns drafts."""
    names = {name: at for at, name in enumerate(real_templates())}
    out = np.full((len(names), len(names)), NOTHING)
    for cell in cells:
        value = SAME if cell.is_same else TO_ANSWER if cell.is_equal else UNEQUAL
        at = names[cell.target], names[cell.draft]
        out[at] = min(out[at], value)
    return out


def draw(panels: dict[str, np.ndarray], path: Path) -> None:
    names = [name.removesuffix("-tool_use")[:34] for name in real_templates()]
    figure, axes = plt.subplots(1, len(panels), figsize=(26, 14), sharey=True)
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        axis.imshow(values, cmap=ListedColormap(COLORS), vmin=-0.5, vmax=3.5, interpolation="nearest")
        axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.set_title(title)
        axis.set_xlabel("draft")
    axes[0].set_ylabel("target")
    handles = [Patch(color=color, label=label) for color, label in zip(COLORS, LABELS, strict=True)]
    figure.legend(handles=handles, loc="lower center", ncol=len(handles), frameon=False)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=75, metadata={"Software": ""})


def share(cells: list[Cell], same: bool = False) -> str:
    n = sum(cell.is_same if same else cell.is_equal for cell in cells)
    return f"{n:,} of {len(cells):,} ({100 * n / len(cells):.1f} %)"


def own_words(name: str) -> str:
    """The text that a template adds of its own, besides the conversation."""
    found = derived()[name]
    family, said = recognised()[name], []
    if found.family.no_system.strip():
        said.append("text where there is no system message")
    if family is not None and real_templates()[name].texts["with system"]:
        system = [
            message for message in telling(name, "with system").messages if message.role in ("system", "developer")
        ]
        if "".join(message.content for message in system) != CONVERSATIONS["with system"][0].content:
            said.append("text around the system message")
    if found.family.asking != found.family.roles["assistant"].start.rstrip(" "):
        said.append(f"begins the answer with {found.family.asking.removeprefix(found.family.opening)!r}"[:110])
    said += [note for note in found.notes if "rendered differently" not in note]
    return "; ".join(said)


def report(by_rules: list[Cell], by_families: list[Cell]) -> str:
    lines = [
        "# Every chat template into every other",
        "",
        (
            f"For authors of mappings: which of {len(real_templates())} chat templates can be translated into which, "
            "and why some cannot."
        ),
        "",
        "Written by `docs/draw_matrix.py`; [mappings.md](mappings.md#how-well-it-works) says what is compared.",
        "",
        (
            f"{len(real_templates())} templates; ordered pairs times conversations (system, user, assistant, user; and "
            "without system)."
        ),
        "",
        "| rules | equal | equal to the character, with how the answer begins |",
        "|---|---|---|",
        f"| derived from both templates | {share(by_rules)} | {share(by_rules, same=True)} |",
        f"| families alone | {share(by_families)} | {share(by_families, same=True)} |",
        "",
        "![matrix](template-matrix.png)",
        "",
        "Not equal, with the reason:",
        "",
    ]
    for name, reason in REASONS.items():
        counts = [
            sum(not cell.is_equal and name in (cell.target, cell.draft) for cell in cells)
            for cells in (by_rules, by_families)
        ]
        lines.append(f"- {name}: {counts[0]} by derived rules, {counts[1]} by families: {reason}")
    rest = [
        sum(not cell.is_equal and not REASONS.keys() & {cell.target, cell.draft} for cell in cells)
        for cells in (by_rules, by_families)
    ]
    lines += [
        f"- others: {rest[0]} by derived rules, {rest[1]} by families",
        "",
        "| template | family | what it tells of its own |",
        "|---|---|---|",
    ]
    for name in real_templates():
        family = recognised()[name]
        words = own_words(name).replace("|", "\\|")
        lines.append(f"| {name} | {family.name if family else 'none: derived'} | {words} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    chosen = pairs()
    by_rules, by_families = list(derived_cells(chosen)), list(family_cells(chosen))
    draw({"derived rules": grid(by_rules), "families alone": grid(by_families)}, HERE / "template-matrix.png")
    text = report(by_rules, by_families)
    (HERE / "template-matrix.md").write_text(text, encoding="utf-8")
    print("\n".join(text.splitlines()[4:22]))


if __name__ == "__main__":
    main()
