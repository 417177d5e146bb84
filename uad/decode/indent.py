"""Where a text ends because a line begins too far to the left: for code that is filled in inside a block."""

from __future__ import annotations


class Indentation:
    """Reads a text as it comes. Behind the first line end each line must begin with n blanks or tabs at least; an empty
    line has none. n 0: any line may follow.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._blanks: int | None = None  # of the line that has begun; None: it has more than blanks, or is the first
        self.is_over = False

    def read(self, text: str) -> str:
        """The text goes on with this; returns what of it belongs to the answer."""
        if not self._n:
            return text
        if self.is_over:
            return ""
        for i, char in enumerate(text):
            if self._blanks is not None and char in " \t":
                self._blanks += 1
            elif self._blanks is not None and self._blanks < self._n:
                self.is_over = True
                return text[:i]
            else:
                self._blanks = 0 if char == "\n" else None
        return text
