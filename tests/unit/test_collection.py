"""Collection defines tests and reads files of the repository, and nothing else."""

from __future__ import annotations

import socket
import subprocess

import pytest

from tests.support.inert import collecting


def test_nothing_starts_while_tests_are_collected() -> None:
    """The hook is in force for every collection (tests/conftest.py)."""
    with collecting():
        with pytest.raises(PermissionError, match=r"subprocess\.Popen while tests"):
            subprocess.run(["true"], check=True)
        with pytest.raises(PermissionError, match=r"socket\.bind"), socket.socket() as one:
            one.bind(("127.0.0.1", 0))
    subprocess.run(["true"], check=True)
