"""The pace of retries: doubling with a limit, jitter, Retry-After; tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.pace import BackOff, TokenBucket


def test_a_delay_doubles_up_to_its_limit_and_begins_again() -> None:
    """Without `random` nothing is random; any number of failures is no overflow."""
    back_off = BackOff(2.0, 60.0)
    assert [back_off.failed() for _ in range(7)] == [2, 4, 8, 16, 32, 60, 60]
    for _ in range(5000):
        assert back_off.failed() == 60
    back_off.succeeded()
    assert (back_off.failures, back_off.failed()) == (0, 2)


@given(st.floats(0, 1), st.floats(0, 1e6))
def test_half_of_a_delay_is_random_and_the_server_may_ask_for_more(
    chance: float, retry_after: float
) -> None:
    """Never earlier than Retry-After, and at most a quarter later than that."""
    assert 5 <= BackOff(10.0, 60.0, lambda: chance).failed() <= 10
    delay = BackOff(10.0, 60.0, lambda: chance).failed(retry_after)
    assert retry_after <= delay <= max(10, 1.25 * retry_after)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_a_bucket_gives_no_more_than_its_burst_and_its_rate(pauses: list[float]) -> None:
    """Whoever takes each token as soon as it is there."""
    bucket, now, taken = TokenBucket(5, 30.0, 1000.0), 1000.0, 0
    for pause in pauses:
        now += pause
        while bucket.ready_at() <= now:
            bucket.take(now)
            taken += 1
    assert 5 <= taken <= 5 + (now - 1000.0) / 30 + 1e-6


def test_a_bucket_is_filled_again() -> None:
    """One token an interval, and no more than it holds."""
    bucket = TokenBucket(2, 10.0, 0.0)
    for _ in range(2):
        bucket.take(0.0)
    assert bucket.ready_at() == pytest.approx(10.0)
    bucket.take(1000.0)
    bucket.take(1000.0)
    assert bucket.ready_at() == pytest.approx(1010.0)
