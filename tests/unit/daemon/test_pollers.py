"""The pollers replace the queries of a host by their caches."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from agent.daemon.background import BackgroundTask, pollers
from agent.errors import Unavailable
from agent.host import Host
from agent.infiniband.devices import SubnetPort, unanswered
from agent.snapshot.tree import MemoryStore, Tree

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_every_poller_of_the_table_replaces_its_query() -> None:
    """The host that comes back reads caches; LLDP frames are received, not polled."""
    live = Host(Tree(MemoryStore({}), {}), lambda: 0.0)
    host, found = pollers(live, {"gpu_interval": 60.0}, BackgroundTask)
    assert [poller.source for poller in found] == ["ib", "ib", "nvml"]
    assert [id(host.ask_smp), id(host.ask_sa), id(host.gpus)] == [id(poller) for poller in found]
    assert (host.lldp_neighbors, host.private_flags) == (live.lldp_neighbors, live.private_flags)
    assert host.ask_smp([("mlx5_0", 1)])["ports"][0]["error"] == "no-answer"
    with pytest.raises(Unavailable, match="not asked yet"):
        host.gpus()


def test_a_dead_subnet_manager_delays_no_smp() -> None:
    """Sixteen ports wait for it in a thread; another port comes up and is asked by SMPs."""
    is_asked, is_over, polled = threading.Event(), threading.Event(), threading.Semaphore(0)

    def ask_sa(ports: Sequence[SubnetPort]) -> dict[str, Any]:
        is_asked.set()
        assert is_over.wait(60)
        return {"ports": [unanswered(port[:2], "no answer") for port in ports]}

    live = Host(
        Tree(MemoryStore({}), {}),
        lambda: 0.0,
        ask_smp=lambda ports: {"ports": [unanswered(port, "refused") for port in ports]},
        ask_sa=ask_sa,
    )
    host, [smp, sa, _] = pollers(
        live, {"gpu_interval": 60.0}, lambda: BackgroundTask[Any](notify=polled.release)
    )
    host.ask_sa([SubnetPort(f"mlx5_{number}", 1, 1, 9, 0, 0) for number in range(16)])
    sa.start_due(0.0)
    sa.start_due(3600.0)
    assert is_asked.wait(60)
    for now in (3600.0, 3700.0):
        host.ask_smp([("mlx5_0", 1), ("mlx5_16", 1)])
        smp.start_due(now)
        assert polled.acquire(timeout=60)
        assert smp.collect(now)
        assert (sa.task.busy, sa.collect(now), sa.next_due()) == (True, False, float("inf"))
        smp.begin_cycle()
    is_over.set()
    assert polled.acquire(timeout=60)
    assert sa.collect(3701.0)
