"""Rates of plans in Gb/s, as sysfs counts them; what has no unit is no rate."""

from __future__ import annotations

import pytest

from agent.cabling.plans.columns import rate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("400G", 400.0),
        ("400 Gb/s", 400.0),
        ("100 gbps", 100.0),
        ("100GbE", 100.0),
        ("1.6T", 1600.0),
        ("25000M", 25.0),
        ("4xNDR", 400.0),
        ("4X FDR10", 40.0),
        ("4x FDR", 56.0),
        ("400", None),
        ("NDR", None),
        ("4xABC", None),
        ("fast", None),
        ("", None),
    ],
)
def test_rate(text: str, expected: float | None) -> None:
    """A number with its unit, or a width with the name of a speed."""
    assert rate(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("400000", 400.0), ("100", 0.1), ("100G", 100.0), ("auto", None)]
)
def test_megabits(text: str, expected: float | None) -> None:
    """SONiC's BandWidth is in Mb/s."""
    assert rate(text, "M") == expected
