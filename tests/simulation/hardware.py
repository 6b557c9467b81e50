"""Faults of cables, switches, devices and GPUs: the true state changes, and events report it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from random import Random

from agent.events.event import Event
from tests.simulation.node import GONE, HERE, LENT, UNBOUND, ZERO, Gpus, Hca, Peer
from tests.simulation.sysfs import CLASS, Fault
from tests.simulation.world import World


def wakes(hca: Hca) -> tuple[Event, ...]:
    """Return the events that report a change of a port."""
    return (
        (Event("port", f"{hca.name}/1"),) if hca.infiniband else (Event("link", hca.netdev or ""),)
    )


def pick(world: World, rng: Random, fit: Callable[[Hca], bool] = lambda _hca: True) -> Hca | None:
    """Pick a backend device without a fault in progress, or None."""
    free = [hca for hca in world.node.hcas if hca.where == HERE and not hca.busy and fit(hca)]
    return rng.choice(free) if free else None


def of_a_port(
    fit: Callable[[Hca], bool] = lambda _hca: True,
) -> Callable[[Callable[[World, Random, Hca], float]], Callable[[World, Random], float]]:
    """Make a fault of a device that is picked; nothing happens where there is none."""

    def drawn(fault: Callable[[World, Random, Hca], float]) -> Callable[[World, Random], float]:
        @wraps(fault)
        def of_one(world: World, rng: Random) -> float:
            hca = pick(world, rng, fit)
            return 0.0 if hca is None else fault(world, rng, hca)

        return of_one

    return drawn


def new_peer(rng: Random) -> Peer:
    """Return a random switch port."""
    number = rng.randrange(1, 1 << 16)
    port = str(rng.randrange(1, 65))
    return Peer(f"leaf-{number}", port, None, b"\x02\x5e" + number.to_bytes(4, "big"))


def peer_of(hca: Hca, rng: Random) -> Peer:
    """Return a random switch port, named as in the HCA's kind of fabric."""
    peer = new_peer(rng)
    return (
        peer
        if hca.infiniband
        else replace(peer, port=f"swp{peer.port}", port_name=f"swp{peer.port}")
    )


def new_hca(rng: Random, number: int, gbps: int = 400, *, infiniband: bool) -> Hca:
    """Return an HCA on a card of its own, with a cable."""
    name = f"ibp{number}" if infiniband else f"mlx5_{number}"
    netdev = None if infiniband else f"eth{number}"
    hca = Hca(name, f"0000:{0x10 + number:02x}:00.0", infiniband, gbps, netdev, new_peer(rng))
    hca.peer = peer_of(hca, rng)
    return hca


def _down(world: World, hca: Hca, by: int) -> None:
    was_up = hca.up
    hca.downs += by
    hca.carrier += hca.up != was_up
    world.changed(*wakes(hca))


def bounce(world: World, hca: Hca, seconds: float) -> float:
    """Take a link down for some seconds."""
    return world.for_a_while(seconds, partial(_down, world, hca))


@of_a_port()
def link_flap(world: World, rng: Random, hca: Hca) -> float:
    """Take a link down, and up again."""
    seconds = rng.choice([0.5, 3.0, 20.0, 29.0, 31.0, 60.0, 400.0])
    world.note(f"{hca.name}: link down for {seconds} s")
    return bounce(world, hca, seconds)


@of_a_port()
def link_flaps(world: World, rng: Random, hca: Hca) -> float:
    """Flap one link for minutes."""
    count, every = rng.randrange(5, 60), rng.choice([0.3, 1.0, 4.0])
    world.note(f"{hca.name}: {count} flaps, one every {2 * every} s")
    for number in range(count):
        world.at(2 * number * every, partial(_down, world, hca, 1))
        world.at((2 * number + 1) * every, partial(_down, world, hca, -1))
    return 2 * count * every


@of_a_port()
def cable_moved(world: World, rng: Random, hca: Hca) -> float:
    """Move a cable to another leaf."""
    seconds, peer = rng.choice([2.0, 10.0, 45.0]), peer_of(hca, rng)
    world.note(f"{hca.name}: cable moved to {peer.device} port {peer.port} in {seconds} s")
    hca.busy = True
    _down(world, hca, 1)

    def plug() -> None:
        hca.peer, hca.busy = peer, False
        _down(world, hca, -1)

    world.at(seconds, plug)
    return seconds


@of_a_port(lambda hca: hca.infiniband)
def subnet_not_ready(world: World, rng: Random, hca: Hca) -> float:
    """Set an InfiniBand port to INIT, as without a subnet manager: it adds no speed but has a
    neighbor.
    """
    seconds = rng.choice([3.0, 60.0, 700.0])
    world.note(f"{hca.name}: INIT for {seconds} s")

    def become(state: str) -> None:
        hca.state = state
        world.changed(*wakes(hca))

    become("INIT")
    world.at(seconds, partial(become, "ACTIVE"))
    return seconds


def move(world: World, hca: Hca, where: str) -> None:
    """Take a device out of the class or off the bus, or put it back."""
    hca.where = where
    hca.has_left |= where == GONE
    hca.busy = where != HERE
    world.changed(Event("device", hca.name), Event("link", hca.netdev or ""))


def _away(world: World, hca: Hca, where: str, seconds: float, text: str) -> float:
    world.note(f"{hca.name}: {text} for {seconds} s")
    move(world, hca, where)
    world.at(seconds, partial(move, world, hca, HERE))
    return seconds


@of_a_port()
def device_removed(world: World, rng: Random, hca: Hca) -> float:
    """Remove a device with its PCI function for a while."""
    return _away(world, hca, GONE, rng.choice([1.0, 30.0, 700.0]), "pulled out")


@of_a_port(lambda hca: not hca.sick and not hca.murky)
def device_renamed(world: World, rng: Random, hca: Hca) -> float:
    """Rebind a device under another name."""
    seconds = rng.choice([0.0, 1.0, 20.0])
    taken = {one.name for one in world.node.hcas}
    name = next(
        name
        for name in (f"renamed{number}" for number in range(len(taken) + 1))
        if name not in taken
    )
    world.note(f"{hca.name}: becomes {name} in {seconds} s")
    move(world, hca, UNBOUND)

    def back() -> None:
        world.wake(Event("device", hca.name))
        hca.name = name
        world.node.names.add(name)
        move(world, hca, HERE)

    world.at(seconds, back)
    return seconds


def driver_reloads(world: World, rng: Random) -> float:
    """Unbind the driver of one device, or of all; the PCI functions stay."""
    seconds = rng.choice([2.0, 30.0, 590.0, 700.0, 1500.0])
    hcas = [hca for hca in world.node.hcas if hca.where == HERE and not hca.busy]
    some = hcas if rng.random() < 0.3 else hcas[:1]
    world.note(f"{', '.join(hca.name for hca in some)}: the driver reloads in {seconds} s")
    for hca in some:
        move(world, hca, UNBOUND)
        world.at(seconds + rng.random(), partial(move, world, hca, HERE))
    return seconds + 1.0


@of_a_port()
def driver_off(world: World, rng: Random, hca: Hca) -> float:
    """RoCE is switched off on one NIC: for hours its function offers no RDMA device."""
    return _away(world, hca, UNBOUND, rng.choice([3000.0, 9000.0, 30000.0]), "no RDMA device")


@of_a_port()
def device_vanishes(world: World, rng: Random, hca: Hca) -> float:
    """Remove a device between the listing and the reading of its files."""
    seconds, after = rng.choice([5.0, 60.0]), rng.randrange(25)
    fault = Fault(f"{CLASS}/{hca.name}", rng.choice([errno.ENOENT, errno.ENODEV]), after)
    world.note(f"{hca.name}: vanishes after {after} reads")
    hca.busy = True
    hca.sick += 1
    world.sysfs.faults.append(fault)
    world.changed(Event("device", hca.name))

    def go() -> None:
        hca.sick -= 1
        world.sysfs.faults.remove(fault)
        move(world, hca, UNBOUND)

    world.at(0.05, go)
    world.at(seconds, partial(move, world, hca, HERE))
    return seconds


@of_a_port(lambda hca: not hca.infiniband)
def netdev_lent(world: World, rng: Random, hca: Hca) -> float:
    """Move a netdev to a pod's namespace, possibly for longer than any hold."""
    seconds = rng.choice([60.0, 1000.0, 5000.0])
    return _away(world, hca, LENT, seconds, f"{hca.netdev} lent to a pod")


def fabric_state(world: World, rng: Random) -> float:
    """Change the GPUs' fabric state: registration, status, domain, or one GPU of another clique."""
    gpus = world.node.gpus
    healthy = Gpus(gpus.count)  # not what they are now: another change may be in progress
    seconds = rng.choice([30.0, 200.0, 590.0, 900.0])
    changes: list[dict[str, object]] = [
        {"state": rng.randrange(3)},
        {"status": rng.choice([23, 999])},
        {"cluster": ZERO},
        {"odd": True},
        {"clique": rng.randrange(1, 30000)},
    ]
    change = rng.choice(changes)
    world.note(f"GPUs: {change} for {seconds} s")

    def become(**facts: object) -> None:
        for name, value in facts.items():
            setattr(gpus, name, value)
        world.changed()

    become(**change)
    world.at(seconds, partial(become, **{name: getattr(healthy, name) for name in change}))
    return seconds
