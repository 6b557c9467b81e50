"""Cost of an idle agent, beside comparable programs, in the same minutes on the same machine.

    InfiniBand node  8 HCAs with an IPoIB netdev that is up, whose carrier tells, and 8 GPUs
    everything       16 ports of both fabrics, those of InfiniBand without netdevs, and GPUs: no
                     machine that exists, but all that the agent can be made to do
    no GPU, IB       8 Ethernet ports with LLDP
    the same, resync 60 s     the cost of an hourly PATCH
    node_exporter             Debian's, usual collectors, over the sysfs of `everything` and /proc
    lldpd                     Debian's, on 8 Ethernet ports of its own

Every switch port sends a frame every 30 s; /metrics is scraped once a minute, node_exporter's and
the agents' alike. The first three agents have their resync put off, so that the cost of a minute
does not depend on chance; the PATCH is added to the hour. The clock starts when all have applied
their labels. The kernel counts the forks of a running helper in hundredths of a second: in five
minutes the five queries of the GPUs count as none or one (benchmarks/nvml_poll.py measures them).
"""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import cost
from benchmarks.rack import Rack, ethernet, gpu, infiniband
from benchmarks.relay import Relay, requests
from tests.support.kernel_tree import Entries
from tests.support.kube.cluster import Cluster
from tests.support.kube.programs import free_ports
from tests.support.kube.rack import BACKEND
from tests.support.switch import Lldpd, Namespace, wait_for
from tests.support.sysfs_on_disk import lay

EXPORTER = "prometheus-node-exporter"
NEVER, RESYNC = "720h", 60.0  # seconds
SPEAK = 30  # seconds between two LLDP frames of a port (IEEE Std 802.1AB-2016, 9.2.5.7)
SCRAPE = 60.0  # seconds
LOOKS = 5  # at the memory of each
NODE, EVERYTHING = "InfiniBand node", "everything"
NARROW, RESYNCED = "no GPU, no IB", "resync 60 s"
NODE_EXPORTER = "node_exporter"


@dataclass(slots=True)
class Subject:
    """A measured program; `port` is that of its metrics."""

    name: str
    pid: int
    namespace: Namespace
    port: int | None = None
    cpu: float = 0.0  # seconds an hour, helpers included
    helpers: float = 0.0  # the same, of all but the program's first process
    rss: int = 0  # KiB, the sum of its processes
    distinct: int = 0  # KiB, a page that several of its processes map counted once
    peak: int = 0  # KiB, the same when its first process was largest

    def scrape(self) -> None:
        """Scrape /metrics as Prometheus does."""
        if self.port:
            self.namespace.call(get, f"http://127.0.0.1:{self.port}/metrics")


def get(url: str) -> bytes:
    """Return the body of a GET."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        url, timeout=10
    ) as answer:
        return bytes(answer.read())


def agents(stack: ExitStack, cluster: Cluster, rack: Rack, relay: Relay) -> list[Subject]:
    """Run four agents on one network, each with a Node of its own, until all have applied
    labels.
    """
    wide = ethernet(rack.netdevs) | infiniband() | gpu()
    kinds: dict[str, tuple[Entries, tuple[str, ...]]] = {
        NODE: (infiniband(ipoib=True) | gpu(), ("--resync", NEVER)),
        EVERYTHING: (wide, ("--backend-device", "*", "--resync", NEVER)),
        NARROW: (ethernet(rack.netdevs), (*BACKEND, "--resync", NEVER)),
        RESYNCED: (ethernet(rack.netdevs), (*BACKEND, "--resync", f"{RESYNC:g}s")),
    }
    found = []
    for (name, (tree, flags)), port in zip(
        kinds.items(), rack.node.call(free_ports, len(kinds)), strict=True
    ):
        address = ("--metrics-address", f"127.0.0.1:{port}")
        agent = stack.enter_context(rack.agent(cluster, relay, node(name), tree, *flags, *address))
        found.append(Subject(name, agent.process.pid, rack.node, port))
    for name in kinds:
        wait_for(partial(_labelled, cluster, node(name)))
    return found


def _labelled(cluster: Cluster, name: str) -> bool:
    return "labels" in cluster.metadata(name)


def node(name: str) -> str:
    """Return the Node of an agent."""
    return name.replace(", ", "-").replace(" ", "-").lower()


def today(stack: ExitStack, rack: Rack) -> list[Subject]:
    """Run node_exporter and lldpd."""
    lldpd = stack.enter_context(Lldpd(rack.node))
    lldpd.configure("lldp", "tx-interval", str(SPEAK))
    sys = lay(ethernet(rack.netdevs) | infiniband() | gpu(), rack.folder / "today")
    [port] = rack.node.call(free_ports, 1)
    exporter = stack.enter_context(exporting(rack, sys, port))
    wait_for(lambda: _answers(rack.node, port))
    return [
        Subject(NODE_EXPORTER, exporter.pid, rack.node, port),
        Subject("lldpd", lldpd.pid, rack.node),
    ]


@contextmanager
def exporting(rack: Rack, sys: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a node_exporter within the block."""
    flags = (f"--path.sysfs={sys}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error")
    process = subprocess.Popen(rack.node.command(EXPORTER, *flags), stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _answers(namespace: Namespace, port: int) -> bool:
    try:
        return b"node_infiniband" in namespace.call(get, f"http://127.0.0.1:{port}/metrics")
    except OSError:
        return False


def quiet(racks: tuple[Rack, ...]) -> None:
    """Let switches send at their usual interval, and wait until the agents are idle.

    The first frame of the new interval is a change, since its TTL is another.
    """
    for rack in racks:
        rack.leaf.lldpd.configure("lldp", "tx-interval", str(SPEAK))
    time.sleep(SPEAK + 10)


def measure(subjects: list[Subject], seconds: float) -> None:
    """Wait, and return the costs."""
    before = [(cost.cpu(subject.pid), cost.own(subject.pid)) for subject in subjects]
    began = time.monotonic()
    for scrapes in range(1, int(seconds / SCRAPE) + 1):
        time.sleep(max(began + scrapes * SCRAPE - SCRAPE / 2 - time.monotonic(), 0.0))
        for subject in subjects:
            subject.scrape()
    time.sleep(max(began + seconds - time.monotonic(), 0.0))
    hours = (time.monotonic() - began) / 3600
    for subject, (everything, own) in zip(subjects, before, strict=True):
        subject.cpu = (cost.cpu(subject.pid) - everything) / hours
        subject.helpers = subject.cpu - (cost.own(subject.pid) - own) / hours
        subject.rss, subject.distinct = settled(subject.pid)
        subject.peak = subject.distinct + cost.above(subject.pid)


def settled(pid: int) -> tuple[int, int]:
    """Return Rss and distinct KiB, the minimum over some seconds: without a short-lived helper."""
    found = []
    for _ in range(LOOKS):
        found.append((cost.memory(pid).rss, cost.distinct(pid)))
        time.sleep(0.5)
    return min(found)


def asked(folder: Path, name: str, since: float) -> Counter[str]:
    """Return the number of requests from an agent since then, by verb."""
    return Counter(
        "dry run" if one.is_dry_run else one.verb
        for one in requests(folder)
        if one.node == node(name) and one.began >= since
    )
