"""Random faults of a node, repeatable by seed: links, neighbors, GPUs, devices, the API server.

Each kind of fault is a callable that makes one change and returns; the same or another one repairs
it later. `mend` repairs everything, so that the right labels are known in the end.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from benchmarks.rack import PORTS, Agent, Rack, infiniband, set_link
from benchmarks.relay import Relay
from tests.support.kernel_tree import CLASS
from tests.support.kube.cluster import Cluster
from tests.support.lldp_frames import ethernet as ethernet_frame
from tests.support.lldp_frames import identity, tlv
from tests.support.stand_in_nvml import gpu, tray
from tests.support.switch import cable
from tests.support.sysfs_on_disk import lay, remove

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
    """Injects faults; `count` is the number of each kind."""

    rack: Rack
    agent: Agent
    relay: Relay
    cluster: Cluster
    random: Random
    count: dict[str, int] = field(default_factory=dict)
    _back: float = 0.0  # when the API server is back
    _gone: set[int] = field(default_factory=set)  # HCAs

    def strike(self) -> None:
        """Inject one random fault."""
        self.relay.cut = time.monotonic() < self._back
        names, weights = zip(*KINDS.values(), strict=True)
        [kind] = self.random.choices(names, weights)
        name = next(name for name, (one, _) in KINDS.items() if one is kind)
        self.count[name] = self.count.get(name, 0) + 1
        kind(self)

    def mend(self) -> None:
        """Restore the initial state."""
        self.relay.cut, self._back = False, 0.0
        for number in range(PORTS):
            self.agent.ethernet(number, up=True)
            self._plug_in(number)
            self.agent.infiniband(number, up=True)
            self.agent.set(f"ibp{number}", "rate", RATES[0])
        self.rack.gpus(PLANS[0])
        self.rack.leaf.rename("leaf1")

    def ethernet(self) -> None:
        """Pull or plug a cable."""
        self.agent.ethernet(self._port(), up=self._heads())

    def infiniband(self) -> None:
        """Change the state of a port."""
        self.agent.infiniband(self._port(), up=self._heads())

    def rate(self) -> None:
        """Change the rate of a port."""
        self.agent.set(f"ibp{self._port()}", "rate", self.random.choice(RATES))

    def stranger(self) -> None:
        """Send a frame of an unknown switch whose name is no valid label value."""
        name = self.random.randbytes(self.random.randrange(1, 200)).hex().encode()[:255]
        mac = b"\4\2" + self.random.randbytes(5)
        lldpdu = (
            identity(mac, b"\5" + name[:40], self.random.randrange(180)) + tlv(5, name) + b"\0\0"
        )
        self._send(ethernet_frame(lldpdu, source=mac[1:].hex()))

    def nonsense(self) -> None:
        """Send a malformed frame."""
        self._send(ethernet_frame(self.random.randbytes(self.random.randrange(1, 1400))))

    def leaf(self) -> None:
        """Rename the leaf."""
        self.rack.leaf.rename(f"leaf{self.random.randrange(1000)}")

    def gpus(self) -> None:
        """Change the GPUs' fabric state, or let NVML fail."""
        self.rack.gpus(self.random.choice(PLANS))

    def device(self) -> None:
        """Unbind or bind an HCA's driver."""
        number = self._port()
        if number in self._gone:
            self._plug_in(number)
        else:
            self._gone.add(number)
            remove(self.agent.sys.parent, f"{CLASS}/ibp{number}")
        self.agent.process.send_signal(signal.SIGHUP)

    def netdev(self) -> None:
        """Delete a netdev and create it again under another index."""
        name = self.rack.netdevs[self._port()]
        self.rack.node.ip("link", "delete", name)
        cable(self.rack.leaf, name.replace("eth", "port"), self.rack.node, name)

    def away(self) -> None:
        """Make the API server unreachable for a while."""
        self._back = time.monotonic() + self.random.uniform(1, AWAY)
        self.relay.cut = True

    def drift(self) -> None:
        """Change the agent's labels as another manager."""
        self.cluster.merge(self.agent.node, {"labels": {f"{PREFIX}/speed.current": "1G"}})

    def reborn(self) -> None:
        """Delete the Node and create it again."""
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
