"""Devices that are no backend (the front end, and what is no host data port) cannot be read.

Nothing of the truth changes. Each fault may meet an agent that has read the device before, or one
that is started meanwhile and has not.
"""

from __future__ import annotations

import errno
from functools import partial
from random import Random

from tests.simulation.node import SUB_DEVICE, SWITCH_MANAGEMENT, VIRTUAL, Hca
from tests.simulation.process import killed
from tests.simulation.sensors import ERRNOS, lasting, lay
from tests.simulation.sysfs import CLASS, NET, Fault
from tests.simulation.world import World

INPUTS = (
    *("device", "device/driver", "device/net", "device/physfn", "device/vpd", "node_type"),
    *("sys_image_guid", "hca_type", "board_id", "ports", "ports/1/link_layer", "ports/1/has_smi"),
    *("ports/1/gids/0", "ports/1/gid_attrs/ndevs/0"),
)
# The one that tells.
DECISIVE = {
    SWITCH_MANAGEMENT: ("sys_image_guid", "device/vpd"),
    VIRTUAL: ("device/physfn", "device"),
    SUB_DEVICE: ("ports/1/gids/0", "ports/1/has_smi", "device"),
}


def _pick(world: World, rng: Random) -> Hca | None:
    """One of them at a time."""
    others = world.node.others
    return rng.choice(others) if others and not world.node.clouded else None


def _path(hca: Hca, rng: Random) -> str:
    if hca.netdev and rng.random() < 0.4:
        return f"{NET}/{hca.netdev}{rng.choice(['', '', '/master', '/operstate', '/speed'])}"
    inputs = DECISIVE[hca.drop] if hca.drop and rng.random() < 0.5 else INPUTS
    return f"{CLASS}/{hca.name}/{rng.choice(inputs)}"


def _fail(world: World, rng: Random, hca: Hca, fault: Fault) -> float:
    seconds = lasting(rng)
    name = errno.errorcode[fault.what] if isinstance(fault.what, int) else fault.what
    world.note(f"{hca.name}, no backend: {fault.path}: {name!s} for {seconds} s")
    if rng.random() < 0.5:
        world.at(rng.uniform(0.0, seconds / 2), partial(killed, world, rng))
    # The rest of it may be read, as the neighbor of an Ethernet NIC without its VPD.
    count = "sick" if fault.path == f"{CLASS}/{hca.name}" else "murky"
    # What sits behind the same PCI function is hidden with it.
    parents = [(hca.parent, "murky")] if hca.parent else []
    return lay(world, seconds, fault, (hca, count), *parents)


def attribute_fails(world: World, rng: Random) -> float:
    """One file by which it may be known for what it is."""
    if (hca := _pick(world, rng)) is None:
        return 0.0
    path = _path(hca, rng)
    return _fail(world, rng, hca, Fault(path, rng.choice(ERRNOS)))


def device_fails(world: World, rng: Random) -> float:
    """Everything of it, or its reads do not come back."""
    if (hca := _pick(world, rng)) is None:
        return 0.0
    ways: list[int | str] = [*ERRNOS, "blocks", "blocks"]
    return _fail(world, rng, hca, Fault(f"{CLASS}/{hca.name}", rng.choice(ways)))
