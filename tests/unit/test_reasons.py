"""The reasons of the model: words of the JSON document, with their texts."""

from __future__ import annotations

import json

import pytest

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
