"""How long a part that fails is left alone."""

from __future__ import annotations

from uad.decode.guard import Guarded


def test_pauses_double_to_five_minutes_and_begin_anew_with_who_worked_for_long() -> None:
    now, pauses = 0.0, []
    part = Guarded("part", None, lambda: now)

    def fail(_: object) -> None:
        raise ValueError

    part.do(fail)
    for _ in range(11):
        began = now
        while not part.bring_back(lambda _: None):
            now += 0.5
        pauses.append(now - began)
        now += 0.25
        part.do(fail)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    now += 300
    assert part.bring_back(lambda _: None)
    now += 299
    part.do(fail)
    now += 1
    assert not part.bring_back(lambda _: None), "it worked for less than its last pause"
    now += 300
    assert part.bring_back(lambda _: None)
    now += 301
    part.do(fail)
    now += 1
    assert part.bring_back(lambda _: None)
