"""The list of what the shell script for nodes without bwagent copies."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import capture_script
from tests.support.machines import FOLDERS


@pytest.mark.slow
@pytest.mark.parametrize("machine", FOLDERS)
def test_the_list_has_all_that_is_read(machine: Path, written: Callable[[str], Path]) -> None:
    """What `bwagent capture` reads of a machine is in the list of sysfs_fixtures/README.md."""
    folder = written(machine.name)
    read = {path for path in capture_script.files(folder) if not path.endswith("/subsystem")}
    assert read - {"proc/net"} <= capture_script.matching(folder)


def test_the_script_names_no_other_program() -> None:
    """Programs of POSIX and BusyBox only."""
    text = capture_script.SCRIPT.read_text()
    assert not re.search(r"\b(python|perl|bash|readlink|realpath|tcpdump|jq)\b(?! )", text)
