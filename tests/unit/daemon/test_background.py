"""Work in background threads, the event of its result, and the pollers that work so."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agent.daemon.background import BackgroundTask, pollers
from agent.errors import Unavailable
from agent.events.event import Event, Notifier
from agent.host import Host
from agent.infiniband.devices import SubnetPort, unanswered
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources.observe import Memories

LIMIT = 10_000  # milliseconds until a result is missing


def is_readable(notifier: Notifier, timeout: int) -> bool:
    poll = select.poll()
    poll.register(notifier.fileno(), select.POLLIN)
    return bool(poll.poll(timeout))


def test_a_result_wakes_a_poll() -> None:
    """The result is there when the descriptor becomes readable, and not before."""
    notifier, gate = Notifier(), threading.Event()
    task = BackgroundTask[str](notify=notifier.notify)
    task.start(lambda: "done" if gate.wait(60) else "late")
    assert not is_readable(notifier, 50)
    assert (task.take(), task.busy) == (None, True)
    gate.set()
    assert is_readable(notifier, LIMIT)
    assert (task.take(), notifier.read()) == ("done", {Event("results", "")})
    assert (task.take(), task.busy) == (None, False)
    assert not is_readable(notifier, 0)
    notifier.close()


def test_a_failure_wakes_a_poll() -> None:
    """An exception of the work, and a thread that cannot be started."""
    notifier = Notifier()

    def refuse(_work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    for task, error in (
        (BackgroundTask[str](notify=notifier.notify), ZeroDivisionError),
        (BackgroundTask[str](refuse, notifier.notify), RuntimeError),
    ):
        task.start(lambda: str(1 // 0))
        assert is_readable(notifier, LIMIT)
        assert isinstance(task.take(), error)
        assert notifier.read()
    notifier.close()


def test_many_notifications_are_one_event() -> None:
    """From any number of threads; after `close` they have no effect."""
    notifier = Notifier("facts")
    threads = [threading.Thread(target=notifier.notify) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (notifier.read(), notifier.read()) == ({Event("results", "facts")}, set())
    notifier.close()
    notifier.notify()


def test_every_poller_replaces_its_query() -> None:
    """The host that comes back reads caches; LLDP frames are received, not polled."""
    live = Host(Tree(MemoryStore({}), {}), lambda: 0.0)
    host, found = pollers(live, Memories(), {"gpu_interval": 60.0}, lambda _name: BackgroundTask())
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
        live,
        Memories(),
        {"gpu_interval": 60.0},
        lambda _name: BackgroundTask[Any](notify=polled.release),
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
