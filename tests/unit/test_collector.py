"""The collector of reference cycles is suspended, and as before afterwards."""

from __future__ import annotations

import gc

import pytest

from agent.limits import uncollected


@uncollected()
def fail() -> None:
    assert not gc.isenabled()
    raise ValueError("one")


def test_it_is_enabled_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="one"):
        fail()
    assert gc.isenabled()


def test_it_stays_disabled() -> None:
    """Where the caller, such as a fork of the helper, has disabled it."""
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_it_passes_over_what_was_made() -> None:
    """A later collection would visit all of it once more, to free nothing."""
    before = gc.get_freeze_count()
    try:
        with uncollected():
            kept = [[number] for number in range(1000)]
        assert gc.get_freeze_count() - before >= len(kept)
    finally:
        gc.unfreeze()
