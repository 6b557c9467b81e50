"""The pollers replace the queries of a host by their caches."""

from __future__ import annotations

import pytest

from agent.daemon.background import BackgroundTask, pollers
from agent.errors import Unavailable
from agent.host import Host
from agent.snapshot.tree import MemoryStore, Tree


def test_every_poller_of_the_table_replaces_its_query() -> None:
    """The host that comes back reads caches; LLDP frames are received, not polled."""
    live = Host(Tree(MemoryStore({}), {}), lambda: 0.0)
    host, found = pollers(live, {"gpu_interval": 60.0}, BackgroundTask)
    assert [poller.source for poller in found] == ["ib", "nvml"]
    assert [id(host.ask_smp), id(host.gpus)] == [id(poller) for poller in found]
    assert (host.lldp_neighbors, host.private_flags) == (live.lldp_neighbors, live.private_flags)
    assert host.ask_smp([("mlx5_0", 1)])["ports"][0]["error"] == "no-answer"
    with pytest.raises(Unavailable, match="not asked yet"):
        host.gpus()
