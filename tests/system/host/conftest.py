"""Processes that the agent's own code starts for a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.processes import Started


@pytest.fixture
def started() -> Iterator[Started]:
    """Start processes; none is left."""
    with Started() as processes:
        yield processes
