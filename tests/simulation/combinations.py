"""Each fault of a read or query with each change of the node, in all orders.

The change comes after the fault or before it; the fault ends within the hold or after it; the agent
is killed in between, or the node boots again, or both, or neither. The node is the smallest that
has a port with the fault, another one, and a front end that must not take their place.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple
from zlib import crc32

from agent.errors import Unavailable
from tests.simulation import hardware, process, sensors, switches
from tests.simulation.catalog import Fault as Change
from tests.simulation.node import Gpus, Hca, Node
from tests.simulation.scenario import Report, begin, play
from tests.simulation.sysfs import CLASS, NET, Fault
from tests.simulation.world import World

BRIEF, LONG = 400.0, 900.0  # seconds; the hold is between them
FIRST, SECOND, RESTART, BOOT = 200.0, 240.0, 280.0, 310.0  # times in seconds


def _read(path: str, world: World, hca: Hca, seconds: float) -> float:
    fault = Fault(path.format(hca=hca), errno.EIO)
    return sensors.lay(world, seconds, fault, (hca, "murky"))


def _device(how: int | str, world: World, hca: Hca, seconds: float) -> float:
    fault = Fault(f"{CLASS}/{hca.name}", how)
    return sensors.lay(world, seconds, fault, (hca, "sick"))


def _tree(path: str, world: World, _hca: Hca, seconds: float) -> float:
    return sensors.tree_fails(world, path, errno.EIO, seconds)


def _smp(world: World, _hca: Hca, seconds: float) -> float:
    return sensors.break_helpers(
        world, seconds, ("smp",), lambda: Unavailable("helper smp: killed")
    )


def _monitors(world: World, _hca: Hca, seconds: float) -> float:
    return sensors.mute(world, seconds)


def _sockets(world: World, _hca: Hca, _seconds: float) -> float:
    return sensors.sockets_die(world, random.Random(0))  # noqa: S311 - a simulation


FAULTS: dict[str, Callable[[World, Hca, float], float]] = {
    **{name: partial(_read, f"{CLASS}/{{hca.name}}/{name}") for name in sensors.DEVICE},
    **{f"netdev {name}": partial(_read, f"{NET}/{{hca.netdev}}/{name}") for name in sensors.NETDEV},
    "all of a device": partial(_device, errno.EIO),
    "a device blocks": partial(_device, "blocks"),
    **{f"/{path}": partial(_tree, path) for path in sensors.TREES},
    "SMP helper": _smp,
    "LLDP sockets": _sockets,
    "monitors": _monitors,
}
CHANGES: tuple[Change, ...] = (
    *(hardware.link_flap, hardware.cable_moved, switches.switch_renamed, switches.switch_silent),
    *(switches.description_lost, switches.switch_boots),
    switches.switch_says_goodbye,
    *(hardware.subnet_not_ready, hardware.device_removed, hardware.device_renamed),
    *(hardware.driver_reloads, hardware.driver_off, hardware.netdev_lent),
)
INFINIBAND = {"SMP helper", switches.description_lost, switches.switch_boots,
              hardware.subnet_not_ready}  # fmt: skip
ETHERNET = {*(f"netdev {name}" for name in sensors.NETDEV), "LLDP sockets",
            switches.switch_says_goodbye, hardware.netdev_lent}  # fmt: skip


class Case(NamedTuple):
    """One combination."""

    fault: str
    change: Change
    infiniband: bool
    is_long: bool  # the fault lasts longer than the hold
    is_second: bool  # the fault comes after the change
    restarts: bool
    boots: bool

    def __str__(self) -> str:
        words = [self.fault, self.change.__name__, "InfiniBand" if self.infiniband else "RoCE"]
        words += ["for long"] * self.is_long + ["second"] * self.is_second
        return ", ".join(words + ["a restart"] * self.restarts + ["a boot"] * self.boots)


def cases(*, every: bool) -> Iterator[Case]:
    """Yield the combinations of all faults and changes; unless `every`, one of each pair."""
    orders = [*product((False, True), repeat=4)]
    pairs = (
        (fault, change, infiniband)
        for fault, change, infiniband in product(FAULTS, CHANGES, (True, False))
        if not {fault, change} & (ETHERNET if infiniband else INFINIBAND)
    )
    for number, pair in enumerate(pairs):
        for order in orders if every else [orders[number % len(orders)]]:
            yield Case(*pair, *order)


def run(case: Case) -> Report:
    """Run one combination; its name is the seed of the port, and of how long the change lasts."""
    seed = crc32(str(case).encode())
    rng = random.Random(seed)  # noqa: S311 - a simulation
    hcas = [hardware.new_hca(rng, number, infiniband=case.infiniband) for number in range(2)]
    front = hardware.new_hca(rng, 40, infiniband=False)
    front.backend = False
    world = World(Node(hcas, Gpus(0), front=front), seed)
    seconds, hca = LONG if case.is_long else BRIEF, rng.choice(hcas)

    def fails(world: World, _rng: random.Random) -> float:
        return FAULTS[case.fault](world, hca, seconds)

    order = [case.change, fails] if case.is_second else [fails, case.change]
    steps = [*zip((FIRST, SECOND), order, strict=True)]
    steps += [(RESTART, process.killed)] * case.restarts + [(BOOT, process.rebooted)] * case.boots
    for at, what in steps:
        world.at(at, partial(begin, world, what, rng))
    return replace(play(world, seed, rng, (), BOOT + 1.0), combination=str(case))
