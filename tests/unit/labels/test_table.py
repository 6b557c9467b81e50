"""The label table, which the documentation is held equal to."""

from __future__ import annotations

from agent.labels.table import LABELS


def test_every_row_is_complete() -> None:
    """Each row has a key of a known family, its value in words and when it is absent."""
    assert all(row.key.startswith(("P/", "IB/")) or row.key == "ACC" for row in LABELS)
    assert all(row.value and row.absent for row in LABELS)


def test_each_tier_has_a_row() -> None:
    assert [row.tier for row in LABELS if row.tier is not None] == [0, 1, 2]


def test_no_key_has_two_rows() -> None:
    assert len({row.key for row in LABELS}) == len(LABELS)
