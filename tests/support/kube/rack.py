"""A RoCE node cabled to leaves that lldpd simulates, its agent, and its Node on a real API server.

The node is a network namespace. Its netdevs are real, and so are their files in its /sys; the RDMA
devices on top of them are laid out as files. The API server is outside, and only a relay leads to
it.

Its address comes up after the agent has started. Each port belongs to one test. A neighbor that is
gone counts for 30 seconds more, so three are removed as soon as all are there, and the last test of
tests/system/kube/test_run_lldp.py checks them.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.kernel_tree import HOME, NET, Entries, hca, union
from tests.support.kube.cluster import Cluster
from tests.support.kube.resident import LIMIT, Agent, get
from tests.support.switch import Leaf, Namespace, bring_up, cable

STAYS, GOODBYE, SILENT, MOVED, PULLED, FLOODED = PORTS = range(6)
LEAVES = {GOODBYE: 2, SILENT: 3, MOVED: 2}  # the others are on the first
ADDRESS = "192.0.2.1"
# No NIC of the namespace carries a default route, so which ports are the front end is not known.
BACKEND = ("--backend-device", "mlx5_*")


def roce(number: int) -> Entries:
    """Return an RDMA device on a netdev, as files."""
    netdev = {f"{HOME}/{function(number)}/net/eth{number}": f"/{NET}/eth{number}"}
    return hca(f"mlx5_{number}", function(number), "Ethernet") | netdev


def function(number: int) -> str:
    return f"0000:{number + 0x18:02x}:00.0"


def tree(ports: Iterable[int] = PORTS) -> Entries:
    """Return one device for each port; the netdevs are those of the reading namespace."""
    return union([{NET: f"/{NET}"}, *map(roce, ports)])


@dataclass(frozen=True, slots=True)
class Rack:
    """The node, its leaves, the agent, and the time of the removals."""

    node: Namespace
    leaves: tuple[Leaf, ...]
    agent: Agent
    departed: float  # seconds since the epoch

    def far_end(self, number: int) -> tuple[str | None, str | None]:
        """Return the leaf and port in the labels of a port of the node."""
        labels = self.agent.neighbors(f"mlx5_{number}")
        return labels.get("device"), labels.get("port-name")

    def until(
        self, number: int, device: str | None, port: str | None, limit: float = LIMIT
    ) -> None:
        """Wait until the labels have these."""
        self.agent.until(lambda: self.far_end(number) == (device, port), limit)

    def missing(self, number: int) -> list[str]:
        """Return the reason for a missing neighbor of a port, by the metrics."""
        return self.agent.metrics().holds(
            "bwagent_neighbor_missing", "reason", interface=f"mlx5_{number}"
        )

    def told(self, number: int) -> list[dict[str, str]]:
        """Return the neighbors of a port in the metrics."""
        series = self.agent.metrics().series("bwagent_neighbor_info", interface=f"mlx5_{number}")
        return [labels for labels, _ in series]


@contextmanager
def cabled(cluster: Cluster, folder: Path) -> Iterator[Rack]:
    """Cable the node, start the agent, wait for all neighbors, and remove three of them."""
    cluster.node("rack")
    with ExitStack() as stack:
        node = stack.enter_context(Namespace())
        leaves = Leaf("leaf1"), Leaf("leaf2"), Leaf("leaf3")
        for leaf in leaves:
            stack.enter_context(leaf)
        for number in PORTS:
            cable(leaves[LEAVES.get(number, 1) - 1], f"swp{number}", node, f"eth{number}")
        stack.enter_context(relayed(node, urlsplit(cluster.url).port or 0))
        agent = stack.enter_context(
            Agent(
                *(cluster, folder, "rack", tree(), *BACKEND),
                under=node.command(),
                fetch=lambda url: node.call(get, url),
                address=ADDRESS,
            )
        )
        agent.says(f"cannot serve metrics on {ADDRESS}")
        node.ip("address", "add", f"{ADDRESS}/32", "dev", "lo")
        found = Rack(node, leaves, agent, time.time())
        for number in PORTS:
            found.until(number, f"leaf{LEAVES.get(number, 1)}", f"swp{number}")
        agent.until(lambda: agent.metrics().text)
        yield Rack(node, leaves, agent, send_away(node, *leaves))


def send_away(node: Namespace, leaf1: Leaf, leaf2: Leaf, leaf3: Leaf) -> float:
    """Move one cable to another leaf, stop one leaf, silence one, take one link down;
    return the time.
    """
    leaf2.ip("link", "set", f"swp{MOVED}", "address", "02:00:00:00:00:77", "netns", leaf1.name)
    bring_up(leaf1, f"swp{MOVED}", node, f"eth{MOVED}")
    departed = time.time()
    leaf2.lldpd.stop()
    leaf3.lldpd.pause()
    leaf1.ip("link", "set", f"swp{PULLED}", "down")
    return departed


HERE = "127.0.0.1"


@contextmanager
def relayed(namespace: Namespace, port: int) -> Iterator[None]:
    """Forward 127.0.0.1:port of the namespace, which has no way out, to 127.0.0.1:port of the host.

    The listening socket is created inside; bytes are forwarded, so TLS ends at the same peer.
    """
    listener = namespace.call(socket.create_server, (HERE, port))
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(_relay(listener, port, stop),), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _relay(listener: socket.socket, port: int, stop: asyncio.Event) -> None:
    server = await asyncio.start_server(partial(_join, port), sock=listener)
    await stop.wait()
    server.close()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def _join(port: int, reader: StreamReader, writer: StreamWriter) -> None:
    far_reader, far_writer = await asyncio.open_connection(HERE, port)
    try:
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        # A client keeps its connection, so it may be open when the relay ends.
        for one in (writer, far_writer):
            one.transport.abort()
            with suppress(OSError):
                await one.wait_closed()


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
