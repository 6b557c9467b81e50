"""The root folder of a running machine is no snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import Malformed
from agent.snapshot.replay import replay
from tests.support.real_parts import require


def test_the_root_of_this_machine_is_no_snapshot() -> None:
    """Its sys is live: a replay would read devices without a deadline, one after the other."""
    require(None if Path("/sys").is_mount() else "no sysfs is mounted at /sys")
    with pytest.raises(Malformed, match=r"^/: no snapshot: its sys is a mounted file system"):
        replay("/")
