"""An attribute whose read never returns, on a filesystem that has died."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from agent.host import Host
from agent.model import Seen
from agent.sysfs.reader import LiveRoot
from tests.support import dead_filesystem
from tests.support.kernel_tree import HOME, hca
from tests.support.real_parts import require
from tests.support.sources import read_rdma
from tests.support.switch import wait_for
from tests.support.sysfs_on_disk import lay, rewrite

A, B = "0000:18:00.0", "0000:19:00.0"


def failures(node: Host) -> dict[str, str | None]:
    outcome = read_rdma(node).outcome
    assert isinstance(outcome, Seen)
    return {device.name: device.failure for device in outcome.value}


@pytest.mark.slow
def test_a_read_that_never_returns_costs_one_thread(tmp_path: Path) -> None:
    """An attribute on a dead filesystem: its device blocks, the other has its facts each cycle."""
    require(dead_filesystem.missing())
    sys = lay(hca("ibp0", A) | hca("ibp1", B), tmp_path / "tree")
    state = tmp_path / "tree" / HOME / B / "infiniband/ibp1/ports/1/state"
    state.unlink()
    root = LiveRoot(str(sys), str(tmp_path / "tree/proc"))
    with dead_filesystem.mounted(tmp_path / "dead") as dead:
        state.symlink_to(dead / "state")
        node = Host(root, clock=time.time, deadline=1.0)
        before = threading.active_count()
        for _ in range(5):
            assert failures(node) == {"ibp0": None, "ibp1": "blocks"}
            assert threading.active_count() <= before + 2
            node.readers.refresh()
    state.unlink()
    rewrite(state, b"4: ACTIVE\n")

    def is_back() -> bool:
        node.readers.refresh()
        return failures(node)["ibp1"] is None

    wait_for(is_back)
    wait_for(lambda: threading.active_count() == before + 1)
