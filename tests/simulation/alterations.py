"""Actions of an administrator: HCAs are reconfigured or replaced, netdevs are bonded or bridged,
software devices and virtual functions come and go. The true state changes, and events report it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

from agent.events.event import Event
from tests.simulation.hardware import bounce, move, new_peer, of_a_port, peer_of, pick, wakes
from tests.simulation.node import GONE, HERE, VIRTUAL, Hca
from tests.simulation.process import killed, rebooted
from tests.simulation.switches import beside
from tests.simulation.world import World


@of_a_port(lambda hca: hca.leader is None and not hca.members)
def link_layer_changed(world: World, rng: Random, hca: Hca) -> float:
    """Reconfigure an HCA from InfiniBand to Ethernet, or back; for good.

    The agent restarts, or the node boots, a moment later, or neither.
    """
    hca.infiniband = not hca.infiniband
    hca.netdev = None if hca.infiniband else f"conv{int(hca.pci[5:7], 16)}"
    hca.peer = peer_of(hca, rng)
    world.note(f"{hca.name}: {'InfiniBand' if hca.infiniband else 'Ethernet'} from now on")
    world.changed(Event("device", hca.name), *wakes(hca))
    after = rng.choice([None, killed, rebooted])
    if after:
        world.at(rng.choice([0.5, 3.0, 30.0]), partial(after, world, rng))
    return 150.0


def bonded(world: World, rng: Random) -> float:
    """Make a bond over the two ports of a card, and dissolve it later."""
    pairs = [
        (hca, other)
        for hca in world.node.hcas
        for other in world.node.hcas
        if hca.pci.endswith(".0") and other.pci == f"{hca.pci[:-1]}1" and not hca.infiniband
    ]
    free = [pair for pair in pairs if all(hca.where == HERE and not hca.busy for hca in pair)]
    if not free:
        return 0.0
    (first, second), seconds = rng.choice(free), rng.choice([200.0, 900.0, 2000.0])
    name, bond = first.name, f"bond{int(first.pci[5:7], 16)}"
    world.note(f"{first.name}: a bond with {second.name} for {seconds} s")
    events = [Event("device", first.name), Event("device", second.name), Event("link", bond)]
    first.busy = second.busy = True
    first.members, first.bond, first.name, second.leader = (first, second), bond, bond, first
    first.name = f"mlx5_{bond}"
    world.changed(*events)

    def dissolve() -> None:
        first.members, first.bond, first.name, second.leader = (), "", name, None
        first.busy = second.busy = False
        world.changed(*events, Event("device", name))

    world.at(seconds, dissolve)
    return seconds


def soft_roce(world: World, rng: Random) -> float:
    """Add a software device (`rdma link add rxe0 type rxe`), and delete it later."""
    if world.node.soft:
        return 0.0
    seconds = rng.choice([5.0, 100.0, 900.0])
    world.note(f"rxe0 for {seconds} s")

    def become(netdev: str) -> None:
        world.node.soft = netdev
        world.changed(Event("device", "rxe0"))

    become("lo")
    world.at(seconds, partial(become, ""))
    return seconds


@of_a_port(lambda hca: hca.leader is None and not hca.members)
def card_replaced(world: World, rng: Random, hca: Hca) -> float:
    """Replace a card in its slot: another GUID at the same address, at the same switch port."""
    seconds = rng.choice([30.0, 400.0])
    world.note(f"{hca.name}: replaced within {seconds} s")
    move(world, hca, GONE)

    def back() -> None:
        hca.serial += 1
        move(world, hca, HERE)

    world.at(seconds, back)
    return seconds


@of_a_port(lambda hca: not hca.infiniband and not hca.members)
def bridged(world: World, rng: Random, hca: Hca) -> float:
    """Make a NIC a port of a bridge that forwards LLDP frames, for a while."""
    seconds = rng.choice([100.0, 500.0, 900.0])
    world.note(f"{hca.netdev}: a port of br0 for {seconds} s")

    def become(by: int) -> None:
        hca.bridged += by
        world.changed(Event("link", hca.netdev or ""))

    return world.for_a_while(seconds, become)


def virtual_functions(world: World, rng: Random) -> float:
    """Enable a virtual function of a HCA for a while."""
    taken = {hca.pci for hca in world.node.all()}
    hca = pick(world, rng, lambda hca: f"{hca.pci[:-1]}7" not in taken and not hca.members)
    if hca is None:
        return 0.0
    seconds = rng.choice([60.0, 900.0])
    name, netdev = f"{hca.name}v7", hca.netdev and f"{hca.netdev}v7"
    function = Hca(
        name, f"{hca.pci[:-1]}7", hca.infiniband, hca.gbps, netdev, new_peer(rng),
        backend=False, drop=VIRTUAL,
    )  # fmt: skip
    world.note(f"{name} for {seconds} s")
    world.node.dropped = [*world.node.dropped, function]
    world.changed(Event("device", name))

    def disable() -> None:
        world.node.dropped = [one for one in world.node.dropped if one is not function]
        world.changed(Event("device", name))

    world.at(seconds, disable)
    return seconds


@of_a_port(lambda hca: not hca.infiniband and not hca.members)
def two_stations(world: World, rng: Random, hca: Hca) -> float:
    """Have a second station speak beside the switch for long; the agent restarts meanwhile."""
    seconds, other = rng.choice([200.0, 1000.0]), replace(peer_of(hca, rng), ttl=60)
    world.note(f"{hca.name}: {other.device} speaks beside its switch for {seconds} s")
    for number in range(int(seconds / 20.0)):
        world.at(number * 20.0 + rng.uniform(0.0, 10.0), partial(world.speak, hca, other))
    world.at(rng.uniform(0.0, seconds), partial(killed, world, rng))
    return beside(world, hca, other, seconds + 80.0) + 20.0


@of_a_port(lambda hca: not hca.members and hca.leader is None)
def moved_while_frozen(world: World, rng: Random, hca: Hca) -> float:
    """Freeze the agent (SIGSTOP) while a cable goes to another switch.

    It waits, reads a file or awaits the answer to a query then.
    """
    seconds, peer = rng.choice([45.0, 80.0, 300.0]), peer_of(hca, rng)
    while_it = rng.choice(["waits", "reads", *(["asks"] if hca.infiniband else [])])

    def plug() -> None:
        hca.peer = peer

    def begin() -> None:
        text = f"cable moved to {peer.device} {peer.port}"
        world.note(f"frozen for {seconds} s while it {while_it}; {hca.name}: {text}")
        world.freeze(seconds, at_work=while_it == "reads")
        world.at(seconds / 2, plug)
        bounce(world, hca, seconds / 2 + 3.0)

    if while_it == "waits":
        begin()
    else:
        world.when(while_it, begin)
    return seconds + 10.0
