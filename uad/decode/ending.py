"""How requests end: the last event, the error as users may see it, and the line in the log. Knows no slot and no
model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from uad.decode.guard import reason
from uad.errors import UadError
from uad.events import Done, Event, Sink

_log = logging.getLogger("uad.request")


@contextmanager
def logged(what: str) -> Iterator[None]:
    """An exception that concerns no other request ends here."""
    try:
        yield
    except Exception:
        _log.exception("%s", what)


def deliver(sink: Sink, event: Event) -> None:
    """The last event of a request."""
    with logged("the last event of a request could not be delivered"):
        sink(event)


def known(error: Exception) -> UadError:
    """The error, as users may see it; the log has the rest of an unexpected one."""
    if isinstance(error, UadError):
        return error
    _log.error("a request failed for an unexpected reason", exc_info=error)
    return UadError(f"internal error: {reason(error)}")


def summary(done: Done) -> str:
    """The one log line of a finished request."""
    t, d = done.timings, done.timings.draft
    line = (
        f"request {done.request}: {done.finish} after {t.n_predicted} tokens, {t.predicted_per_second:.1f} tokens/s; "
        f"prompt {t.n_prompt} tokens (+{t.n_cached} cached), {t.prompt_per_second:.0f} tokens/s"
    )
    if not d.n_drafts:
        return line + "; not drafted"
    by = ", ".join(f"{one.origin} {one.n_accepted}/{one.n_drafted}" for one in d.by.values())
    kept = [f", {what} {n}" for what, n in (("healed", d.n_healed), ("salvaged", d.n_salvaged)) if n]
    crossed = (
        f", translation {d.translate_us:.0f} µs per round with {100 * d.crossing.hit_rate:.0f} % of the words known"
    )
    return line + (
        f"; drafted {d.n_drafted}, accepted {d.n_accepted} ({100 * d.accept_rate:.0f} %; {by}), "
        f"mean accepted run {d.mean_accepted_run:.1f}, rejected {d.n_rejected}{''.join(kept)}, "
        f"drafting {d.draft_ms:.0f} ms{crossed if d.crossing.us else ''}"
    )
