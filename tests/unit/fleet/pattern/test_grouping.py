"""The thresholds that docs/fleet.md names."""

from __future__ import annotations

from math import factorial

import pytest

from agent.fleet.pattern import grouping


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [(4, 5, True), (6, 8, True), (23, 32, True), (3, 3, False), (3, 4, False), (22, 32, False)],
)
def test_a_majority(m: int, n: int, expected: bool) -> None:
    """Three nodes are none, whatever they agree on."""
    assert grouping.is_majority(m, n) is expected


def test_confidence_is_never_certainty() -> None:
    """31 of 32 nodes are 0.94, and all of a thousand are less than 1."""
    assert grouping.confidence(31, 32) == pytest.approx(0.94, abs=0.005)
    assert grouping.confidence(1000, 1000) < 1


def test_two_nodes_of_eight_rails_prove_as_much_as_sixteen_pairs() -> None:
    """A node that agrees counts the logarithm of the ways in which it might be wired."""
    assert grouping.surprise(2, 2, factorial(8)) >= grouping.NO_COINCIDENCE
    assert grouping.surprise(16, 16, 2) >= grouping.NO_COINCIDENCE
    assert grouping.surprise(15, 15, 2) < grouping.NO_COINCIDENCE
    assert grouping.surprise(15, 16, 2) < grouping.NO_COINCIDENCE
    assert grouping.surprise(0, 0, 2) == 0


@pytest.mark.parametrize(("n", "habit", "crew"), [(8, 4, 2), (16, 4, 4), (32, 4, 7), (128, 8, 26)])
def test_a_habit_is_shared_by_some(n: int, habit: int, crew: int) -> None:
    """One interface off alike on four nodes, or most cables of two."""
    assert grouping.is_habit(habit, n)
    assert not grouping.is_habit(habit - 1, n)
    assert grouping.is_crew(crew, n)
    assert not grouping.is_crew(crew - 1, n)
