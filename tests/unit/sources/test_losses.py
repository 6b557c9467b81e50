"""The loss of any NIC, GPU, link, device or route raises no speed and adds no port.

So it is of each loss and of pairs of them, on the machine folders and on random machines. The
latter have as many kinds of NICs as cards, so that a fresh agent, which knows nothing of the card
that is gone, decides otherwise there: this is of agents with memory alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.ids import card_of
from agent.model import RdmaDevice, Seen
from agent.sources.cards import socket_direct_twin, with_hidden
from agent.sources.kinds import rate_of_port
from agent.sources.roles import Decision
from agent.sources.steady import CONFIRM, RoleMemory
from agent.sysfs.bus import Bus
from agent.sysfs.front_end import FrontEnd
from tests.support.devices import decide, plain, without_route
from tests.support.machines import MACHINES, evidence_of
from tests.support.random_machine import Machine

every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.name)
# What a fresh agent counts more without a device: the first port of a card whose second function
# is gone is a card of one port, as those of the backend are; a spare port whose card has no front
# end any more.
FRESH = {
    "cpu-roce-front-end": {"mlx5_0"},
    "dgx-spark": {"rocep1s0f0", "rocep1s0f1"},  # the second function of the cable counts
    "ib-and-roce-tie": {"mlx5_2"},  # 200G of each kind are left
    "lassen-ac922": {"mlx5_0", "mlx5_1"},
    "mixed-ib-storage": {"mlx5_2", "mlx5_8"},
    "socket-direct": {"mlx5_0", "mlx5_1"},
    "supermicro-h200-storage-near": {"mlx5_9", "mlx5_11"},
}
ROUTE_GONE = FrontEnd(unknown="no NIC carries the default route")


class Node(NamedTuple):
    """What roles are decided by."""

    devices: Sequence[RdmaDevice]
    bus: Bus
    front_end: FrontEnd

    def decide(self, memory: RoleMemory | None = None) -> Decision:
        devices = with_hidden(self.devices)
        labeled = {"any": None} if memory else {}
        return decide(devices, (), labeled, self.bus, front_end=self.front_end, memory=memory)


Loss = tuple[str, Callable[[Node], Node]]  # what is lost, and the node without it


def losses(node: Node) -> Iterator[Loss]:
    """Yield each loss that the node may have, of one part."""

    def without(bus: Bus, address: str | None) -> Bus:
        left = {name: one for name, one in bus.functions.items() if name != address}
        return Bus(left, bus.unread, bus.failure)

    def gpu(address: str) -> Loss:
        return address, lambda node: node._replace(bus=without(node.bus, address))

    def gone(nic: RdmaDevice) -> Loss:
        def lost(node: Node) -> Node:
            left = [
                one
                for one in node.devices
                if one.name != nic.name and (one.pci != nic.pci or not one.pci)
            ]
            return node._replace(devices=left, bus=without(node.bus, nic.pci))

        return nic.name, lost

    def changed(what: str, nic: RdmaDevice, change: Callable[[RdmaDevice], RdmaDevice]) -> Loss:
        def lost(node: Node) -> Node:
            devices = [change(one) if one.name == nic.name else one for one in node.devices]
            return node._replace(devices=devices)

        return f"{nic.name} {what}", lost

    yield from (gpu(function.address) for function in node.bus.gpus)
    for nic in node.devices:
        yield gone(nic)
        yield changed("down", nic, lambda one: plain(one, state="DOWN"))
        yield changed("unread", nic, lambda one: one._replace(failure="blocks", ports=()))
    yield (
        "the route",
        lambda node: node._replace(
            devices=[*map(without_route, node.devices)], front_end=ROUTE_GONE
        ),
    )


def counted(decision: Decision) -> dict[tuple[str, int], float]:
    backend = [role for role in decision.roles if role.backend and not decision.undecided]
    return {(role.device.name, role.port.number): role.counted_gbps or 0.0 for role in backend}


def remembering(whole: Node) -> Callable[[Node], Decision]:
    """Return the decision of an agent that knows the whole node, minutes after a loss."""
    now = 0.0
    settled = RoleMemory(lambda: now, lambda: now)
    for _ in range(2):
        whole.decide(settled)
        now += CONFIRM
    at_loss = now

    def remembered(left: Node) -> Decision:
        nonlocal now
        now, memory = at_loss, deepcopy(settled)
        for _ in range(3):
            decision = left.decide(memory)
            now += CONFIRM
        return decision

    return remembered


def adds(left: Decision, whole: Decision) -> bool:
    """Return True if a port is added, or the speed raised."""
    now, before = counted(left), counted(whole)
    return bool(now.keys() - before.keys()) or sum(now.values()) > sum(before.values())


def cards(devices: Iterable[RdmaDevice]) -> set[str]:
    return {card_of(device.pci) for device in devices}


def lost(whole: Node, left: Node) -> list[RdmaDevice]:
    """The devices that are gone."""
    names = {device.name for device in left.devices}
    return [device for device in whole.devices if device.name not in names]


def backend_of(node: Node) -> list[RdmaDevice]:
    return [role.device for role in node.decide().roles if role.backend]


def rates(node: Node) -> list[float]:
    """The rates of ACTIVE links of each model that are above that of the data sheet."""
    links = [(device.pci_ids, port) for device in node.devices for port in device.ports]
    return [
        port.rate_gbps or 0.0
        for ids, port in links
        if port.state == "ACTIVE" and (port.rate_gbps or 0.0) > (rate_of_port(ids, 1) or math.inf)
    ]


# Why a fresh agent may count more after a loss without a hint: nothing tells it what was there.
SILENT: dict[str, Callable[[Node, Node], bool]] = {
    "all GPUs are gone": lambda whole, left: bool(whole.bus.gpus and not left.bus.gpus),
    "the backend's only card is gone": lambda whole, left: (
        cards(backend_of(whole)) <= cards(lost(whole, left))
    ),
    "a Socket-Direct twin takes over": lambda whole, left: any(
        socket_direct_twin(device, whole.devices) in lost(whole, left) for device in left.devices
    ),
    "the second function of a card is gone, which is like a card of one": lambda whole, left: any(
        f"{card_of(device.pci)}.0" in left.bus.functions for device in lost(whole, left)
    ),
    "a link that is faster than its model is gone": lambda whole, left: (
        len(rates(left)) < len(rates(whole))
    ),
    "the front end is gone, and with it that a port is its spare": lambda whole, left: any(
        device.ports and whole.front_end.carries_route(device) for device in lost(whole, left)
    ),
}


def reasons(whole: Node, left: Node) -> list[str]:
    """Why more may count without a hint."""
    return [reason for reason, holds in SILENT.items() if holds(whole, left)]


def node_of(machine: Path) -> Node | None:
    """The node of a folder; None without RDMA devices."""
    evidence, observation = evidence_of(machine)
    if not isinstance(observation.rdma, Seen):
        return None
    return Node(observation.rdma.value, evidence.bus.bus, evidence.front_end)


@pytest.mark.slow
@every_machine
def test_no_loss_adds_to_the_backend(machine: Path) -> None:
    """With memory none does; of a fresh agent those that FRESH lists."""
    if node := node_of(machine):
        whole, remembered, raised = node.decide(), remembering(node), set()
        for what, lose in losses(node):
            left = lose(node)
            assert not adds(remembered(left), whole), what
            if adds(fresh := left.decide(), whole):
                raised.add(what)
                assert fresh.hints or reasons(node, left), what
        assert raised == FRESH.get(machine.name, set())


@pytest.mark.slow
@every_machine
def test_two_losses_at_once_add_nothing(machine: Path) -> None:
    """With memory; of a fresh agent none that FRESH does not list."""
    chance = random.Random(machine.name)  # noqa: S311 - a test
    if node := node_of(machine):
        whole, remembered, each = node.decide(), remembering(node), [*losses(node)]
        for _ in range(8):
            (first, lose), (second, lose_more) = chance.sample(each, 2)
            left = lose_more(lose(node))
            assert not adds(remembered(left), whole), (first, second)
            if adds(left.decide(), whole):
                assert {first, second} & FRESH[machine.name]


@pytest.mark.slow
def test_a_fresh_agent_says_what_a_loss_may_have_added() -> None:
    """On random machines more counts after a loss with a hint, or for a reason of the list."""
    for seed in (*range(60), 88, 109, 175):
        machine = Machine(seed)
        node = Node(machine.devices, machine.bus, FrontEnd())
        whole = node.decide()
        for what, lose in losses(node):
            left = lose(node)
            if adds(fresh := left.decide(), whole) and not fresh.hints:
                assert reasons(node, left), (seed, what)


@pytest.mark.slow
@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=25)
def test_no_loss_adds_to_a_random_machine(seed: int) -> None:
    """Each alone, and pairs; the front end is known to be elsewhere, or is one of its NICs."""
    machine, chance = Machine(seed), random.Random(seed)  # noqa: S311 - a test
    node = Node(machine.devices, machine.bus, FrontEnd())
    whole, remembered, each = node.decide(), remembering(node), [*losses(node)]
    for what, lose in chance.sample(each, min(len(each), 6)):
        left = lose(node)
        assert not adds(remembered(left), whole), what
        other, lose_more = chance.choice(each)
        assert not adds(remembered(lose_more(left)), whole), (what, other)
