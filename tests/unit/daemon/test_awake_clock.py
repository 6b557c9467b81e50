"""A clock without the time in which the agent could not run."""

from __future__ import annotations

from agent.daemon.awake_clock import MAX_LATENESS, MISSED, AwakeClock


def test_a_suspension_is_left_out() -> None:
    """A wait that is a little late is not."""
    raw = [100.0]
    clock = AwakeClock(lambda: raw[0])
    clock.waits(20.0)
    raw[0] += 20 + MAX_LATENESS
    assert (clock.missed(), clock()) == (MAX_LATENESS, raw[0])
    clock.waits(20.0)
    assert clock.missed() == 0
    since = clock()
    clock.waits(20.0)
    raw[0] += 20 + 28_800.0
    assert (clock.missed(), clock()) == (28_800.0, since + 20)
    assert (clock.woke_at, clock.left_out()) == (since + 20, 28_800.0)
    raw[0] += 5
    assert (clock.missed(), clock()) == (0, since + 25)
    assert AwakeClock()() > 0


def test_a_freeze_while_the_agent_works_is_left_out() -> None:
    """The call that follows it notices it, whether a wait was before; short pieces do not add up.

    A wait that another thread's calls divide is late by its end alone.
    """
    raw = [100.0]
    clock = AwakeClock(lambda: raw[0])
    raw[0] += 80
    assert (clock(), clock.woke_at, clock.missed(), clock.missed()) == (100, 100, 80, 0)
    for _ in range(5):
        raw[0] += MISSED
        clock()
    assert clock.missed() == 0
    raw[0] += MISSED + 1
    assert (clock(), clock.missed()) == (161, MISSED + 1)
    clock.waits(20.0)
    for _ in range(3):
        raw[0] += 10
        clock()
    assert clock.missed() == 0
