"""The loss of any NIC, GPU, link, device or route raises no speed and adds no port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from agent.model import RdmaDevice, Seen
from agent.sources.cards import with_hidden
from agent.sources.roles import Decision, decide
from agent.sources.steady import CONFIRM, RoleMemory
from agent.sysfs.bus import Bus
from agent.sysfs.front_end import FrontEnd
from tests.support.devices import plain, without_route
from tests.support.machines import MACHINES, evidence_of

every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.name)
# What a fresh agent counts more without a device: the other port of a card of which one function
# is gone is a card of one port, as those of the backend are; a spare port whose card has no front
# end any more.
FRESH = {
    "cpu-roce-front-end": {"mlx5_0"},
    "mixed-ib-storage": {"mlx5_2", "mlx5_8"},
    "supermicro-h200-storage-near": {"mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"},
}
ROUTE_GONE = FrontEnd(unknown="no NIC carries the default route")


class Node(NamedTuple):
    """What roles are decided by, and what is lost of it."""

    devices: Sequence[RdmaDevice]
    bus: Bus
    front_end: FrontEnd
    lost: str = ""

    def decide(self, memory: RoleMemory | None = None) -> Decision:
        devices = with_hidden(self.devices)
        labeled = {"any": None} if memory else {}
        return decide(devices, (), labeled, self.bus, front_end=self.front_end, memory=memory)


def losses(node: Node) -> Iterator[Node]:
    devices, bus, front_end, _ = node

    def without(address: str | None) -> Bus:
        left = {name: one for name, one in bus.functions.items() if name != address}
        return replace(bus, functions=left)

    for gpu in bus.gpus:
        yield Node(devices, without(gpu.address), front_end, gpu.address)
    for gone in devices:
        others = [
            one for one in devices if one is not gone and (one.pci != gone.pci or not one.pci)
        ]
        yield Node(others, without(gone.pci), front_end, gone.name)
        down = [plain(one, state="DOWN") if one is gone else one for one in devices]
        yield Node(down, bus, front_end, f"{gone.name} down")
        failed = replace(gone, failure="blocks", ports=())
        unread = [failed if one is gone else one for one in devices]
        yield Node(unread, bus, front_end, f"{gone.name} unread")
    yield Node([*map(without_route, devices)], bus, ROUTE_GONE, "the route")


def counted(decision: Decision) -> dict[tuple[str, int], float]:
    backend = [role for role in decision.roles if role.backend and not decision.undecided]
    return {(role.device.name, role.port.number): role.counted_gbps or 0.0 for role in backend}


@pytest.mark.slow
@every_machine
def test_no_loss_adds_to_the_backend(machine: Path) -> None:
    """With memory none does; of a fresh agent those that FRESH lists."""
    evidence, observation = evidence_of(machine)
    if not isinstance(observation.rdma, Seen):
        return
    node = Node(observation.rdma.value, evidence.bus.bus, evidence.node.front_end)
    whole, now, raised = counted(node.decide()), 0.0, set()
    for left in losses(node):
        fresh = counted(left.decide())
        if fresh.keys() - whole.keys() or sum(fresh.values()) > sum(whole.values()):
            raised.add(left.lost)
        memory = RoleMemory(lambda: now, lambda: now)  # noqa: B023 - of this turn
        for seen in (node, node, left, left, left):
            kept = counted(seen.decide(memory))
            now += CONFIRM
        assert kept.keys() <= whole.keys(), left.lost
        assert sum(kept.values()) <= sum(whole.values())
    assert raised == FRESH.get(machine.name, set())
