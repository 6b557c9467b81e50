"""Processes that the agent's own code starts for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.processes import Started

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def started() -> Iterator[Started]:
    """Start processes; none is left."""
    with Started() as processes:
        yield processes
