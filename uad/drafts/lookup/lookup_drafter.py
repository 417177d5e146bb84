"""Drafters without a model: slots with their texts, filled by commits and asked in rounds, which know no way to look
up; and what a grammar forces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from uad.base.common.sequences import common_prefix
from uad.base.types import GREEDY, Ask, Commit, Draft, Origin, SamplingParams
from uad.drafts.lookup.aligner import CopyAligner
from uad.drafts.lookup.history import ID_BYTES
from uad.drafts.lookup.sources import Located
from uad.engine.drafter import Pace
from uad.text.grammar.protocol import Matcher


@dataclass(slots=True)
class SlotText:
    """The text of one slot: its ids, of which the first n_prompt are the prompt, and the copy that the answer is.
    n_submitted: how many ids were submitted in the round of the last draft, of whatever drafter; None before that is
    known.
    """

    origin: Origin
    ids: list[int] = field(default_factory=list)
    n_prompt: int = 0
    n_submitted: int | None = None
    aligner: CopyAligner = field(default_factory=CopyAligner)

    def copy(self, n: int, n_match: int, find: Callable[[], Located | None]) -> Draft | None:
        """At most n ids of the copy that is followed, else of one that is found, else of what may be a copy after a
        difference. n_match: ids that a look-up needs.
        """
        if not self.aligner.is_copying and (place := find()) is not None:
            return self.aligner.start(place.source, place.length, n).draft(n, self.origin, n_match)
        guess = self.aligner.guess(n)
        return None if guess is None else guess.draft(n, self.origin, n_match)


class Lookup(Protocol):
    """One way to look drafts up, in one slot: each type of drafter is such a class, made with the slot's `SlotText`."""

    @property
    def memory(self) -> int:
        """Bytes, what is shared with other slots included, the ids left out."""

    def begin(self, n_kept: int) -> None:
        """A prompt comes, of which the first n_kept ids are those of the text: forget the others, which are still
        there.
        """

    def draft(self, n: int) -> Draft | None:
        """Take in the new ids, then guess at most n more; n may be 0."""

    def end(self) -> None:
        """The answer is complete."""


class Shared(Protocol):
    """Knowledge that slots gather together."""

    @property
    def memory(self) -> int:
        """Bytes."""


class LookupDrafter:
    """A `Drafter` of slots with one `Lookup` each, which `lookup` makes. `observe` only appends ids and aligns the copy
    at hand, so that a drafter that is left alone costs nothing.

    shared: what is part of all of them. save: writes what is to be kept in files.
    """

    def __init__(
        self,
        origin: Origin,
        lookup: Callable[[SlotText], Lookup],
        shared: Shared | None = None,
        save: Callable[[], None] | None = None,
    ) -> None:
        self.origin = origin
        self._lookup = lookup
        self._shared = shared
        self._save = save
        self._slots: dict[int, tuple[SlotText, Lookup]] = {}
        self._nothing = Draft(origin=origin, kind=origin)

    @property
    def memory(self) -> int:
        """Bytes that tables and texts take, of all slots."""
        own = sum(ID_BYTES * len(text.ids) + lookup.memory for text, lookup in self._slots.values())
        # each slot counts it
        return own if self._shared is None else own + (1 - len(self._slots)) * self._shared.memory

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        """A sequence starts (again); what the slot knows of the common beginning with its last one is kept, the rest
        forgotten.
        """
        if seq not in self._slots:
            new = SlotText(self.origin)
            self._slots[seq] = new, self._lookup(new)
        text, lookup = self._slots[seq]
        n_kept = common_prefix(text.ids, prompt)
        lookup.begin(n_kept)
        text.ids[n_kept:] = prompt[n_kept:]
        text.n_prompt, text.aligner = len(prompt), CopyAligner()

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        text, lookup = self._slots[ask.seq]
        draft = lookup.draft(ask.n_max)
        text.n_submitted = None
        return draft if draft is not None and len(draft.ids) >= max(ask.n_min, 1) else self._nothing

    def observe(self, commit: Commit) -> None:
        text, _ = self._slots[commit.seq]
        text.aligner.observe(commit.ids)
        text.ids.extend(commit.ids)
        if text.n_submitted is None:
            text.n_submitted = commit.n_drafted

    def end(self, seq: int) -> None:
        """The slot's ids and what was learned of them stay for the next request."""
        self._slots[seq][1].end()

    def reset(self) -> None:
        self._slots.clear()

    def close(self) -> None:
        """Write what is to be kept in files."""
        if self._save is not None:
            self._save()


_NOTHING = Draft(origin=Origin.GRAMMAR, kind=Origin.GRAMMAR)


class GrammarDrafter:
    """Proposes what a request's constraint forces (keys, punctuation, what closes), which is believed wholly, and what
    is forced after a choice of white space.

    matchers: those of running answers, by sequence; they belong to the loop, which passes them every id.
    """

    origin = Origin.GRAMMAR

    def __init__(self, matchers: Mapping[int, Matcher]) -> None:
        self._matchers = matchers

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        """All that is known of a sequence is in its matcher."""

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        matcher = self._matchers.get(ask.seq)
        expected = matcher.expected[: ask.n_max] if matcher is not None else ()
        ids, beliefs = tuple(id_ for id_, _ in expected), tuple(p for _, p in expected)
        return Draft(ids, beliefs, Origin.GRAMMAR, kind=Origin.GRAMMAR) if ids else _NOTHING

    def observe(self, commit: Commit) -> None:
        """The matcher has them."""

    def end(self, seq: int) -> None:
        """The matcher is the loop's."""

    def reset(self) -> None:
        """Nothing is kept."""
