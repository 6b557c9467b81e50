"""Faults of switches and unknown senders at the far ends of the cables, and of the subnet manager,
for a node whose ports refuse SMPs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

from agent.events.event import Event
from tests.simulation.fabric import hostile
from tests.simulation.hardware import bounce, of_a_port, peer_of, pick
from tests.simulation.names import P
from tests.simulation.node import Hca, Peer
from tests.simulation.world import AN_HOUR, QUIET, World


@of_a_port()
def switch_renamed(world: World, rng: Random, hca: Hca) -> float:
    """Rename a switch, without any event."""
    world.needs(AN_HOUR)
    hca.peer = replace(hca.peer, device=f"renamed-{rng.randrange(1 << 16)}")
    world.note(f"{hca.name}: its switch is called {hca.peer.device} now")
    world.changed()
    return 0.0


def _count(world: World, hca: Hca, faults: str, by: int) -> None:
    setattr(hca, faults, getattr(hca, faults) + by)
    world.changed()


@of_a_port()
def switch_silent(world: World, rng: Random, hca: Hca) -> float:
    """Stop the LLDP frames or SMP replies of a switch."""
    seconds = rng.choice([40.0, 130.0, 200.0, 900.0, 2000.0])
    world.needs(2 * seconds + QUIET)
    world.note(f"{hca.name}: its switch is silent for {seconds} s")
    return world.for_a_while(seconds, partial(_count, world, hca, "silent"))


@of_a_port(lambda hca: hca.infiniband)
def description_lost(world: World, rng: Random, hca: Hca) -> float:
    """Lose the NodeDescription of a switch for a while, with a bounce of the link or without."""
    seconds, bounces = rng.choice([20.0, 130.0, 900.0, 2000.0]), rng.random() < 0.7
    world.needs(2 * seconds + QUIET)
    world.note(f"{hca.name}: its switch does not give its name for {seconds} s")
    _count(world, hca, "nameless", 1)
    if bounces:
        bounce(world, hca, rng.choice([0.5, 20.0, 60.0]))
    world.at(seconds, partial(_count, world, hca, "nameless", -1))
    return seconds + 60.0


@of_a_port(lambda hca: hca.infiniband)
def switch_boots(world: World, rng: Random, hca: Hca) -> float:
    """Reboot a switch: its links are down, then it gives factory text for a while."""
    seconds, down = rng.choice([60.0, 300.0, 590.0, 900.0, 2500.0]), rng.choice([2.0, 60.0])
    world.needs(2 * seconds + QUIET)
    world.note(f"{hca.name}: its switch boots, with factory text for {seconds} s")
    _count(world, hca, "factory", 1)
    bounce(world, hca, down)
    world.at(down + seconds, partial(_count, world, hca, "factory", -1))
    return down + seconds


@of_a_port(lambda hca: not hca.infiniband and hca.up and not hca.silent)
def switch_says_goodbye(world: World, rng: Random, hca: Hca) -> float:
    """Send a shutdown frame (TTL 0), then nothing for a while."""
    seconds = rng.choice([5.0, 29.0, 35.0, 300.0])
    world.note(f"{hca.name}: its switch says goodbye for {seconds} s")
    world.speak(hca, ttl=0)
    return world.for_a_while(seconds, partial(_count, world, hca, "silent"))


def odd_ttl(world: World, rng: Random) -> float:
    """Set a very short or the longest TTL from now on."""
    if hca := pick(world, rng):
        hca.peer = replace(hca.peer, ttl=rng.choice([3, 40, 65535]))
        world.note(f"{hca.name}: TTL {hca.peer.ttl}")
    return 0.0


@of_a_port(lambda hca: not hca.infiniband and hca.up)
def odd_frame(world: World, rng: Random, hca: Hca) -> float:  # noqa: ARG001 - a fault
    """Send one contradicting frame, as SONiC does: it first sends a MAC address as its port ID."""
    world.note(f"{hca.name}: one odd frame")
    if ("labels", f"{P}/neighbors.current.{hca.name}.device") not in world.api.fields:
        world.judge.excuse(world.time + 100.0, partial(_is_of, hca.name))  # it may be the first
    world.speak(hca, replace(hca.peer, port="00-odd", port_name="00-odd"))
    return 0.0


@of_a_port(lambda hca: not hca.infiniband and hca.up)
def second_neighbor(world: World, rng: Random, hca: Hca) -> float:
    """Send frames of a second neighbor for a while, as through a BMC or a switch that forwards
    LLDP.
    """
    other = replace(peer_of(hca, rng), ttl=60)
    count = rng.randrange(1, 12)
    world.note(f"{hca.name}: a second neighbour {other.device}, {count} frames")
    for number in range(count):
        world.at(number * 20.0, partial(world.speak, hca, other))
    return beside(world, hca, other, count * 20.0 + 70.0) + 30.0


def beside(world: World, hca: Hca, other: Peer, seconds: float) -> float:
    """Have a guest at the far end of a cable for a while."""

    def become(by: int) -> None:
        others = tuple(peer for peer in hca.guests if peer is not other)
        hca.guests = (*others, other) if by > 0 else others

    return world.for_a_while(seconds, become)


@of_a_port(lambda hca: not hca.infiniband and hca.up)
def flood(world: World, rng: Random, hca: Hca) -> float:
    """Send thousands of frames of unknown senders, well-formed and malformed."""
    netdev, rounds, size = str(hca.netdev), rng.randrange(1, 6), rng.choice([10, 60, 300])
    world.note(f"{hca.name}: a flood of {rounds} x {size} frames")
    world.judge.excuse(world.time + rounds * 0.5 + 300.0, partial(_is_of, hca.name))

    def burst(first: int) -> None:
        world.deliver(netdev, *(hostile(rng, first + number) for number in range(size)))

    for number in range(rounds):
        world.at(number * 0.5, partial(burst, rng.randrange(1 << 24)))
    return rounds * 0.5 + 160.0


def _is_of(interface: str, key: str) -> bool:
    """Return True for the keys of a neighbor, and those that join all of them."""
    name = key.partition("/")[2]
    joined = {"leaves.current", "ports.current", "leafgroup.current"}
    return name in joined or name.startswith(f"neighbors.current.{interface}.")


SWEPT = 3 * 3700.0  # seconds: the failure, as long again, and the hour of a link that flapped


def _trouble(world: World, rng: Random, word: str) -> float:
    seconds = rng.choice([20.0, 300.0, 1500.0])
    world.note(f"subnet manager: {word} for {seconds} s")
    world.needs(SWEPT)

    def become(by: int) -> None:
        world.node.sa_trouble = word if by > 0 else ""
        world.node.smp_trouble += by

    return world.for_a_while(seconds, become)


def manager_away(world: World, rng: Random) -> float:
    """End the subnet manager for a while."""
    return _trouble(world, rng, "away")


def manager_busy(world: World, rng: Random) -> float:
    """Have it refuse every question with the status busy."""
    return _trouble(world, rng, "busy")


def lids_moved(world: World, rng: Random) -> float:  # noqa: ARG001 - a fault
    """Assign other LIDs to all ports, as a subnet manager without its file of LIDs does."""
    world.note("subnet manager: other LIDs")
    world.needs(SWEPT)
    world.node.lids += 1
    world.changed(Event("resync", "links"))
    return 0.0
