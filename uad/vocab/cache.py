"""A bounded memory of words and their ids, shared by threads. Knows no vocabulary."""

from __future__ import annotations

import threading

Ids = tuple[int, ...]


class WordCache:
    """Words to ids; forgets what was not used for long. What is asked for moves to a young generation; the old one is
    dropped whole.

    Safe to use from several threads: look-ups take no lock, and two threads that miss the same word store the same ids.
    """

    def __init__(self, size: int) -> None:
        self._half = max(size // 2, 1)
        self._young: dict[bytes, Ids] = {}
        self._old: dict[bytes, Ids] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, word: bytes) -> Ids | None:
        """The word's ids, which are kept for longer now; None where it is not known."""
        ids = self._young.get(word)
        if ids is None:
            ids = self._old.get(word)
            if ids is not None:
                self.put(word, ids)
        return ids

    def put(self, word: bytes, ids: Ids) -> None:
        """Store the word's ids; may drop the old generation."""
        with self._lock:
            self._young[word] = ids
            if len(self._young) > self._half:
                self._old, self._young = self._young, {}

    def clear(self) -> None:
        with self._lock:
            self._young, self._old = {}, {}
