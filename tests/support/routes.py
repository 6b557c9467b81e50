"""A subnet whose administrator refuses, and whose nodes answer SMPs over directed routes."""

from __future__ import annotations

from collections.abc import Callable

from agent.infiniband.devices import AGGREGATION_NODE, AskingPort, SubnetPort
from agent.infiniband.smp import Attribute, PortUnavailable, is_smp
from agent.reasons import NeighborReason
from tests.support import sas, smps
from tests.support.subnets import Subnet

KINDS = {"host": 1, "sharp": 1, "switch": 2, "router": 3}
DENIED = 0x0700  # status of a MAD


class Routes:
    """The `AskSa` of an exploration from the HCAs of one host; each has one port."""

    def __init__(self, subnet: Subnet, node: str) -> None:
        self.subnet, self.hcas = subnet, dict(enumerate(subnet.nodes[node]))
        self.asked: list[tuple[str, bytes]] = []  # device and SMP
        self.down: set[tuple[str, int]] = set()  # links, by one of their ends
        self.silent: set[str] = set()  # nodes
        self.refuse: Callable[[bytes], bytes] = lambda request: sas.reply(request, status=DENIED)
        self.lie: Callable[[str, int, Attribute], bytes | None] = lambda *_: None
        self.reply: Callable[[bytes, bytes], bytes] = smps.reply  # of a request and data

    @property
    def ports(self) -> list[AskingPort]:
        """The ports of the HCAs with their leaves."""
        return [
            (SubnetPort(f"ib{at}", 1, 22 + at, 9, 0, 0, None, (f"ib{at}", 1)), leaf)
            for at, hca in self.hcas.items()
            for leaf, _ in self.subnet.ports[hca].values()
        ]

    def __call__(self, port: SubnetPort, request: bytes) -> bytes:
        if not is_smp(request):
            return self.refuse(request)
        self.asked.append((port.device, request))
        node, at = self.hcas[int(port.device.removeprefix("ib"))], 0
        for out in request[129 : 129 + request[7]]:
            end = self.subnet.ports[node].get(out)
            if end is None or {(node, out), end} & self.down or end[0] in self.silent:
                raise PortUnavailable(NeighborReason.NO_ANSWER, f"{port.device} port 1: no answer")
            node, at = end
        attribute, number = Attribute(request[17]), int.from_bytes(request[20:24], "big")
        data = self.lie(node, at, attribute) or self.truth(node, at, attribute, number)
        return self.reply(request, data)

    def truth(self, node: str, at: int, attribute: Attribute, number: int) -> bytes:
        """Return an attribute of a node, which the request has reached on port `at`."""
        ports = self.subnet.ports[node]
        if attribute is Attribute.NODE_DESCRIPTION:
            return (self.subnet.names.get(node) or "").encode()
        if attribute is Attribute.PORT_INFO:
            is_down = number not in ports or {(node, number), ports[number]} & self.down
            return smps.port_info(1 if is_down else 4)
        kind = self.subnet.kinds[node]
        info = bytearray(smps.node_info(KINDS[kind], max(ports), int(node, 16), at))
        if kind == "sharp":
            info[30:32] = AGGREGATION_NODE.to_bytes(2, "big")
        return bytes(info)
