"""The summary of what did not run."""

from __future__ import annotations

from collections import Counter


def not_run(skipped: list[tuple[str, bool]], n_files: int, n_emulated: int = 0) -> list[str]:
    """The summary: (reason, whether it is a real-model test) of each skipped test, how many files were left out, and
    how many tests of other processors.
    """
    counts: Counter[str] = Counter()
    for reason, is_real in skipped:
        if is_real:
            counts["real-model tests: the models are not here (make models fetches them)"] += 1
        elif "make vocabs" in reason:
            counts["real-vocabulary and template tests: the files are not here (make vocabs fetches them)"] += 1
        else:
            counts[f"tests: {reason}"] += 1
    lines = [f"not run: {n} {what}" for what, n in counts.most_common()]
    if n_emulated:
        lines.append(
            f"not run: {n_emulated} tests of the kernels in emulators and sanitizers (make test-kernels runs them)"
        )
    if n_files:
        lines.append(f"not run: {n_files} files of tests that need llama.cpp")
    return lines or ["everything that was asked for has run"]
