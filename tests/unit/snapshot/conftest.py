from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from agent.snapshot.capture import write_folder
from tests.support import snapshots


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder with the capture of a machine folder; it is written once."""
    top = tmp_path_factory.mktemp("captures")

    @cache
    def folder_of(machine: str) -> Path:
        write_folder(snapshots.contents(machine), str(top / machine))
        return top / machine

    return folder_of
