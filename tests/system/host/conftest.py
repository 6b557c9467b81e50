"""The stand-in libibumad, and processes that the agent's own code starts for a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import stand_in
from tests.support.processes import Started
from tests.support.real_parts import lacks, require


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the stand-in libibumad."""
    require(lacks("cc"))
    return stand_in.build(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture
def started() -> Iterator[Started]:
    """Start processes; none is left."""
    with Started() as processes:
        yield processes
