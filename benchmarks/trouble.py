"""What happens to a node in an hour, in a random order that a seed repeats: links, neighbours,
GPUs, devices, the API.

Each kind of trouble is a callable that does one thing and is done; what it broke, it or another one
mends later. `mend` puts everything right, so that what the Node should say in the end is known.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.rack import PORTS, infiniband, set_link
from tests.support.kernel_tree import CLASS
from tests.support.kube.cluster import MERGE
from tests.support.lldp_frames import ethernet as ethernet_frame
from tests.support.lldp_frames import identity, tlv
from tests.support.stand_in_nvml import gpu, tray
from tests.support.switch import cable
from tests.support.sysfs_on_disk import lay, remove

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from benchmarks.rack import Agent, Rack
    from benchmarks.relay import Relay
    from tests.support.kube.cluster import Cluster

PREFIX = "backend.coreweave.cloud"
RATES = ("400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)", "100 Gb/sec (4X EDR)")
PLANS = (
    tray(gpus=8),
    tray("crash fabric 0", gpus=8),
    tray("fail init -1 999", gpus=8),
    gpu(0, state=2) + gpu(1),
    gpu(0, cluster="1" * 32) + gpu(1),
)
AWAY = 20.0  # seconds that the API server may be away


@dataclass(slots=True)
class Trouble:
    """The hand that pulls cables; `count` is what it has done."""

    rack: Rack
    agent: Agent
    relay: Relay
    cluster: Cluster
    random: Random
    count: dict[str, int] = field(default_factory=dict)
    _back: float = 0.0  # when the API server is back
    _gone: set[int] = field(default_factory=set)  # HCAs

    def strike(self) -> None:
        """Do one thing."""
        self.relay.cut = time.monotonic() < self._back
        names, weights = zip(*KINDS.values(), strict=True)
        [kind] = self.random.choices(names, weights)
        name = next(name for name, (one, _) in KINDS.items() if one is kind)
        self.count[name] = self.count.get(name, 0) + 1
        kind(self)

    def mend(self) -> None:
        """Everything as it was at the start."""
        self.relay.cut, self._back = False, 0.0
        for number in range(PORTS):
            self.agent.ethernet(number, up=True)
            self._plug_in(number)
            self.agent.infiniband(number, up=True)
            self.agent.set(f"ibp{number}", "rate", RATES[0])
        self.rack.gpus(PLANS[0])
        self.rack.leaf.rename("leaf1")

    def ethernet(self) -> None:
        """A cable is pulled or plugged."""
        self.agent.ethernet(self._port(), up=self._heads())

    def infiniband(self) -> None:
        """A port changes its state."""
        self.agent.infiniband(self._port(), up=self._heads())

    def rate(self) -> None:
        """A port trains at another speed."""
        self.agent.set(f"ibp{self._port()}", "rate", self.random.choice(RATES))

    def stranger(self) -> None:
        """Somebody speaks who was never heard before, under a name that no label can carry."""
        name = self.random.randbytes(self.random.randrange(1, 200)).hex().encode()[:255]
        mac = b"\4\2" + self.random.randbytes(5)
        lldpdu = (
            identity(mac, b"\5" + name[:40], self.random.randrange(180)) + tlv(5, name) + b"\0\0"
        )
        self._send(ethernet_frame(lldpdu, source=mac[1:].hex()))

    def nonsense(self) -> None:
        """A frame that no decoder likes."""
        self._send(ethernet_frame(self.random.randbytes(self.random.randrange(1, 1400))))

    def leaf(self) -> None:
        """The leaf gets another name."""
        self.rack.leaf.rename(f"leaf{self.random.randrange(1000)}")

    def gpus(self) -> None:
        """The fabric changes its mind, or NVML fails."""
        self.rack.gpus(self.random.choice(PLANS))

    def device(self) -> None:
        """An HCA's driver goes, or comes back."""
        number = self._port()
        if number in self._gone:
            self._plug_in(number)
        else:
            self._gone.add(number)
            remove(self.agent.sys.parent, f"{CLASS}/ibp{number}")
        self.agent.process.send_signal(signal.SIGHUP)

    def netdev(self) -> None:
        """A netdev is deleted and made again under another index."""
        name = self.rack.netdevs[self._port()]
        self.rack.node.ip("link", "delete", name)
        cable(self.rack.leaf, name.replace("eth", "port"), self.rack.node, name)

    def away(self) -> None:
        """The API server is not to be reached for a while."""
        self._back = time.monotonic() + self.random.uniform(1, AWAY)
        self.relay.cut = True

    def drift(self) -> None:
        """Somebody writes into our labels."""
        body = {"metadata": {"labels": {f"{PREFIX}/speed.current": "1G"}}}
        self.cluster.request("PATCH", f"/api/v1/nodes/{self.agent.node}", body, kind=MERGE)

    def reborn(self) -> None:
        """The Node is deleted and made again."""
        self.cluster.request("DELETE", f"/api/v1/nodes/{self.agent.node}")
        self.cluster.node(self.agent.node)

    def _send(self, frame: bytes) -> None:
        port = f"port{self._port()}"
        self.rack.leaf.call(set_link, port, up=True)
        self.rack.leaf.send(port, frame)

    def _plug_in(self, number: int) -> None:
        self._gone.discard(number)
        lay(
            {path: entry for path, entry in infiniband().items() if f"/ibp{number}" in path},
            self.agent.sys.parent,
        )

    def _port(self) -> int:
        return self.random.randrange(PORTS)

    def _heads(self) -> bool:
        return self.random.random() < 0.5


KINDS: dict[str, tuple[Callable[[Trouble], None], int]] = {
    "cable": (Trouble.ethernet, 30),
    "infiniband": (Trouble.infiniband, 30),
    "rate": (Trouble.rate, 10),
    "stranger": (Trouble.stranger, 40),
    "nonsense": (Trouble.nonsense, 20),
    "leaf renamed": (Trouble.leaf, 2),
    "GPUs": (Trouble.gpus, 4),
    "driver": (Trouble.device, 6),
    "netdev": (Trouble.netdev, 2),
    "API away": (Trouble.away, 2),
    "drift": (Trouble.drift, 2),
    "Node reborn": (Trouble.reborn, 1),
}
