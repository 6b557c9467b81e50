"""The reasons of the model: words of the JSON document, with their texts."""

from __future__ import annotations

import json

import pytest

from agent.model import natural
from agent.reasons import AcceleratorReason, HoldReason, NeighborReason, Reason

REASONS: list[Reason] = [*NeighborReason, *AcceleratorReason, *HoldReason]


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: f"{type(reason).__name__}-{reason}")
def test_a_reason_is_its_word(reason: Reason) -> None:
    """It equals the word, and JSON and text write it; its text is one printable phrase."""
    assert reason == reason.value
    assert json.loads(json.dumps(reason)) == reason.value
    assert f"{reason}" == reason.value
    assert reason.text.isprintable()
    assert not reason.text.endswith(".")


def test_which_reasons_hold() -> None:
    """Reasons for a truly missing neighbor or domain remove labels, all others hold them."""
    removing = {reason for reason in REASONS if not reason.holds}
    assert removing == {
        *("link-down", "expired", "shutdown"),
        *("not-found", "unsupported", "unhealthy", "inconsistent"),
    }
    assert all(reason.holds for reason in HoldReason)


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
