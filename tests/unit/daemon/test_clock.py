"""The clock of holds and TTLs stands still while the node is suspended."""

from __future__ import annotations

from agent.daemon.schedule import MAX_LATENESS, AwakeClock


def test_a_suspension_is_left_out() -> None:
    """A wait that is a little late is not."""
    raw = [100.0]
    clock = AwakeClock(lambda: raw[0])
    raw[0] = 100.0 + 20 + MAX_LATENESS
    assert (clock.waited(100.0, 20.0), clock()) == (False, raw[0])
    since = clock()
    raw[0] += 20 + 28_800.0
    assert (clock.waited(since, 20.0), clock()) == (True, since + 20)
    raw[0] += 5
    assert clock() == since + 25
    assert AwakeClock()() > 0
