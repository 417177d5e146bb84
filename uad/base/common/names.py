"""The nearest known name of one that was misspelt. The only place for that."""

from __future__ import annotations

from collections.abc import Collection, Iterable

_LONGEST_CHARS = 256  # characters of a name that are compared
_ALIKE = 0.75  # Jaro-Winkler similarity of what may be a slip
_KEPT = 0.75  # share of characters that a misspelt path has in common with the right one


def nearest(name: str, known: Iterable[str], at_least: float = 0.0) -> str | None:
    """The known name most like `name`; None where none has a similarity (0 to 1) of `at_least`. Case, - and _ do not
    count.
    """
    from rapidfuzz import process  # here, since most processes compare no names
    from rapidfuzz.distance import JaroWinkler

    words = {_plain(word): word for word in known}
    best = process.extractOne(
        _plain(name[:_LONGEST_CHARS]), words.keys(), scorer=JaroWinkler.similarity, score_cutoff=at_least
    )
    return words[best[0]] if best else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a complaint about an unknown name: its nearest known one, whatever the distance."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near is not None else "nothing is known here"


def meant_or_known(name: str, known: Collection[str]) -> str:
    """The end of a complaint about a name in a file: the known one that it is a slip of, or all that are known."""
    near = nearest(name, known, _ALIKE)
    return f"did you mean '{near}'?" if near is not None else f"known are {', '.join(sorted(known))}"


def misspelt_path(path: str, known: Iterable[str]) -> str | None:
    """The known path that `path` differs from by a quarter of its characters at most; None if no path is that close."""
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    best = process.extractOne(
        path[:_LONGEST_CHARS], known, scorer=Levenshtein.normalized_similarity, score_cutoff=_KEPT
    )
    return best[0] if best else None


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()
