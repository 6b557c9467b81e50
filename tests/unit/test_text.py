"""Text that a stranger chose, made printable; natural order; times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.text import natural, utc, visible

ANY = st.text(st.characters(codec=None), max_size=400)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("leaf-1.pod/3", "leaf-1.pod/3"),
        ("", ""),
        ("caf\u00e9 \u4ea4\u6362\u673a", "caf\u00e9 \u4ea4\u6362\u673a"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\u202egnp", r"\u202egnp"),
        ("\udcff", r"\udcff"),
        ("\u2028", r"\u2028"),
        ("\U000e0041", r"\U000e0041"),
        (r"already\n", r"already\n"),
    ],
)
def test_what_does_not_print_becomes_an_escape(text: str, shown: str) -> None:
    """Line breaks, cursor movements and changes of direction; letters of any script stay."""
    assert visible(text, 40) == shown


@pytest.mark.parametrize(
    ("text", "max_length", "shown"),
    [
        ("leaf", 4, "leaf"),
        ("leaf-1", 4, "lea…"),
        ("leaf-1", 1, "…"),
        ("ab\x1b", 4, "ab\\…"),
        ("\x1b" * 1000, 5, "\\x1b…"),
    ],
)
def test_a_cut_ends_with_an_ellipsis(text: str, max_length: int, shown: str) -> None:
    """The limit counts the characters that are shown, escapes included."""
    assert visible(text, max_length) == shown


@given(ANY, st.integers(1, 300))
def test_any_text_is_one_printable_line(text: str, max_length: int) -> None:
    """The result is printable, bounded, and unaltered where the text was both already."""
    shown = visible(text, max_length)
    assert shown.isprintable()
    assert len(shown) <= max_length
    assert shown == text or not text.isprintable() or len(text) > max_length


def test_a_year_has_four_digits() -> None:
    """Any year that a stranger wrote is read again."""
    assert utc(-62135596800) == "0001-01-01T00:00:00Z"
    assert utc(1_800_000_000) == "2027-01-15T08:00:00Z"


def test_names_are_sorted_by_their_numbers() -> None:
    """As people count, with any number of digits; int() refuses more than 4,300."""
    huge, larger = "mlx5_" + "7" * 5000, "mlx5_8" + "0" * 5000
    ordered = ["a", "mlx5_0", "mlx5_9", "mlx5_9a", "mlx5_10", huge, larger, "mlx5_bond_0"]
    assert sorted([larger, *ordered[:5], "mlx10_1", "mlx5_bond_0", huge], key=natural) == [
        *ordered,
        "mlx10_1",
    ]
    assert sorted(["leaf-8", "leaf-007", "leaf-7"], key=natural) == ["leaf-7", "leaf-007", "leaf-8"]
    assert sorted(["leaf-\u0663", "leaf-2"], key=natural) == ["leaf-2", "leaf-\u0663"]
