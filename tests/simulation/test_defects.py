"""Stories that made a Node untrue, one for each defect, on the smallest node that shows it.

Each is a fixed sequence: the laws find what is wrong in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from agent.events.event import Event
from tests.simulation import alterations, api_faults, hardware
from tests.simulation.node import HERE, UNBOUND, Gpus, Hca, Node
from tests.simulation.scenario import play, run
from tests.simulation.world import AN_HOUR, World

Step = Callable[[World, list[Hca]], object]


def hcas(count: int, *, infiniband: bool, card: bool = False) -> list[Hca]:
    """Return HCAs, each on a card of its own; or two ports of one `card` and the others."""
    rng = random.Random(count)  # noqa: S311 - a simulation
    found = [hardware.new_hca(rng, number, infiniband=infiniband) for number in range(count)]
    if card:
        found[1].pci = "0000:10:00.1"
    return found


def unload(world: World, ports: list[Hca]) -> None:
    """Unload the driver of the first HCA, for long."""
    hca = ports[0]
    hardware.move(world, hca, UNBOUND)
    world.at(3000.0, partial(hardware.move, world, hca, HERE))


def lives(count: int, world: World, ports: list[Hca]) -> None:
    """Kill so many agents, each when it is five seconds old."""
    for number in range(count):
        world.at(number * 5.5, partial(kill, world, ports))


def convert(world: World, ports: list[Hca]) -> None:
    """Reconfigure an HCA to the other link layer."""
    hca = ports[3]
    hca.infiniband, hca.netdev = not hca.infiniband, None if hca.netdev else "conv3"
    hca.peer = hardware.peer_of(hca, random.Random(3))  # noqa: S311 - a simulation
    world.changed(Event("device", hca.name))


def kill(world: World, _ports: list[Hca]) -> None:
    world.rest = 0.5
    world.kill()


def away(seconds: float, world: World, ports: list[Hca]) -> None:
    """Kill the agent; the next one cannot reach the API server for a while."""
    unreachable = api_faults.ANSWERS["unreachable"]
    api_faults._disturb(world, seconds, lambda request: unreachable(world, request))  # noqa: SLF001
    kill(world, ports)


def fault(do: Callable[[World, random.Random], float], world: World, _ports: list[Hca]) -> None:
    do(world, random.Random(2))  # noqa: S311 - a simulation


STORIES: dict[str, tuple[list[Hca], list[tuple[float, Step]]]] = {
    "D2, a driver is unloaded, and no agent lives a minute": (
        hcas(2, infiniband=False), [(100.0, partial(lives, 150)), (120.0, unload)],
    ),
    "D3, a bond over the ports of a card": (
        hcas(4, infiniband=False, card=True), [(200.0, partial(fault, alterations.bonded))],
    ),
    "D4, a fresh Node of which nothing is read": (
        hcas(2, infiniband=True),
        [(200.0, partial(fault, api_faults.nothing_reads_on_a_fresh_node))],
    ),
    "D5, a software device that is gone": (
        hcas(8, infiniband=False),
        [(200.0, partial(fault, alterations.soft_roce)), (1300.0, convert)],
    ),
    "D6, an API server that is away at the start": (
        hcas(2, infiniband=False), [(150.0, unload), (160.0, partial(away, 90.0))],
    ),
    "D7, a cable that is moved while the agent is frozen": (
        hcas(2, infiniband=True), [(200.0, partial(fault, alterations.moved_while_frozen))],
    ),
}  # fmt: skip


def tell(name: str) -> tuple[str, ...]:
    """Run a story; return what is wrong in it."""
    ports, steps = STORIES[name]
    world = World(Node(ports, Gpus(0)), 1)
    world.needs(AN_HOUR)
    for at, step in steps:
        world.at(at, partial(step, world, ports))
    rng = random.Random(1)  # noqa: S311 - a simulation
    return play(world, 1, rng, (), max(at for at, _ in steps) + 3200.0).violations


@pytest.mark.parametrize("name", STORIES)
def test_no_story_makes_a_label_wrong(name: str) -> None:
    """The laws hold in each of them."""
    assert tell(name) == ()


def test_d1_a_port_has_another_link_layer() -> None:
    """Flavor, speed and neighbors are of one set of roles, whatever was converted."""
    assert run(8, faults=[alterations.link_layer_changed]).violations == ()
