"""Random faults by seed, and each fault with each change of the node in whatever order they come:
no label is wrong, and the agent keeps running.

`python -m tests.simulation` runs more seeds; with `--combinations ""`, all of the product.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.simulation import catalog, combinations, hardware, no_backend, process, sensors, switches
from tests.simulation.node import Gpus, Node
from tests.simulation.scenario import play, run
from tests.simulation.world import World

SCENARIOS, CHUNK = 60, 5
PAIRS = [*combinations.cases(every=False)]
STEP = 31  # one pair of so many; the sweep takes all


def few(count: int, *seeds: int) -> list[Any]:
    """Return the first seeds; the sweep takes the others too."""
    marks = [()] * count + [pytest.mark.sweep] * (len(seeds) - count)
    return [pytest.param(seed, marks=mark) for seed, mark in zip(seeds, marks, strict=True)]


@pytest.mark.parametrize("first", few(6, *range(0, SCENARIOS, CHUNK)))
def test_no_fault_makes_a_label_wrong(first: int) -> None:
    """No label is wrong, lost early or another manager's; no traceback, no excess request; all
    labels are right in the end.
    """
    failed = [report for report in map(run, range(first, first + CHUNK)) if report.violations]
    assert not failed, "\n\n".join(report.told() for report in failed)


@pytest.mark.parametrize("fault", catalog.FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_alone(fault: catalog.Fault) -> None:
    """Each fault of the catalog runs on one machine, so that none depends on chance."""
    report = run(7, faults=[fault])
    assert not report.violations, report.told()


@pytest.mark.parametrize("first", few(1, *range(0, 6 * CHUNK, CHUNK)))
@pytest.mark.parametrize("fault", [no_backend.attribute_fails, no_backend.device_fails])
def test_what_is_no_backend_port_does_not_become_one(fault: catalog.Fault, first: int) -> None:
    """Any of its facts may be unreadable, before or after the agent has read them."""
    reports = [run(seed, faults=[fault] * 3) for seed in range(first, first + CHUNK)]
    failed = [report.told() for report in reports if report.violations]
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("seed", few(4, *range(8)))
def test_transient_failures_beside_a_driver_that_is_off(seed: int) -> None:
    """One NIC has no RDMA device for hours; files and devices beside it fail for moments."""
    transient = [sensors.device_fails, sensors.attribute_fails, sensors.device_blocks]
    report = run(seed, faults=[hardware.driver_off, *transient * 3, hardware.link_flap])
    assert not report.violations, report.told()


def test_an_hca_that_leaves_the_bus_is_known_until_it_is_back() -> None:
    """Beside drivers that reload, a class that cannot be read, restarts of the agent, and reboots;
    no other HCA is taken for lost.
    """
    others: list[catalog.Fault] = [
        process.rebooted,
        process.killed,
        hardware.driver_reloads,
        sensors.class_fails,
    ]
    others += [hardware.device_vanishes, hardware.device_renamed]
    reports = [run(seed, faults=[hardware.device_removed] * 3 + others) for seed in range(CHUNK)]
    assert not [line for report in reports for line in report.violations if "a loss: " in line]
    assert sum(report.counts["writes with a loss"] for report in reports) > CHUNK


FOUND = (
    *(74319427, 99157, 700296, 800011, 800673, 800806, 800914, 801084, 801119, 801181),
    *(801290, 802179, 803271, 803462, 803807, 803905, 804248, 806224, 900206),
    *(1001490, 1002663, 1003877, 1006320, 1007367),
)


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_was_found(seed: int) -> None:
    """Routes cannot be read on a node without HCAs, and the agent restarts: its speed is 0G. An HCA
    vanishes while it is read: its SMI sub-device is no backend port. Of two unread RoCE ports, the
    hold of one has ended, or that of the whole class goes on with a device: flavor and speed stay
    until the last hold ends. A driver is unloaded after a link went down: its neighbor goes 30 s
    after that. A switch is silent, and later the other cable turns out to be moved: the node may
    have been. The first frame of a netdev that is new contradicts the frames before. An unread port
    is followed by the whole class: the flavor stays for the hold of the others. Two changes of the
    GPUs overlap. The flavor is removed by others while no agent runs: it is that of the rows.
    A netdev is lent while its device is unread: that hold goes on. HCAs are back on the bus: the
    front end counts a minute longer. A device has another name while its link is down. A
    link flaps while the other cable is moved: the node may have been. A link goes down before a new
    agent can read the Node. The port of a link that flaps is not read again. The whole class is
    unread before a new agent must know all counts: each port keeps its own. A new agent has the
    front end as a backend port in the annotation: its leaf goes with that. The only NIC vanishes,
    and is back with nothing of it readable: the front end does not replace it.
    A driver is unloaded while the class cannot be read: its hold began with that.
    A port is renamed while nobody can see it. Factory text outlives its hold: the name is asked for
    in the next round. A node may have been moved, and restarts. The clique of the GPUs changes
    while a new agent cannot read the Node. A second station is the first to send after a driver was
    loaded again.
    """
    assert run(seed, catalog=catalog.EARLIER).violations == ()


@pytest.mark.parametrize("seed", few(2, 1, 4, 0, 2, 3, 5))
def test_neighbors_by_the_subnet_administrator(seed: int) -> None:
    """All ports refuse SMPs: links flap, cables are moved, the agent is killed, while the subnet
    manager is busy, away, or assigns other LIDs.
    """
    rng = random.Random(seed)  # noqa: S311 - a simulation
    hcas = [hardware.new_hca(rng, number, infiniband=True) for number in range(4)]
    node = Node(hcas, Gpus(0), by_sa=True)
    faults: list[catalog.Fault] = [
        hardware.link_flap,
        hardware.cable_moved,
        process.killed,
        hardware.link_flaps,
    ]
    faults += [switches.manager_away, switches.manager_busy, switches.lids_moved]
    world = World(node, seed)
    world.needs(switches.SWEPT)
    report = play(world, seed, rng, rng.sample(faults * 2, 8), 7200.0)
    assert not report.violations, report.told()
    labels = world.api.fields
    for hca in hcas:
        key = f"backend.coreweave.cloud/neighbors.current.{hca.name}.device"
        assert labels["labels", key] == hca.peer.device


def test_a_seed_is_a_whole_story() -> None:
    """A seed repeats its scenario to the last line of the log."""
    first, second = run(3), run(3)
    assert first.timeline == second.timeline
    assert first.counts == second.counts


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if number % STEP == 0 else pytest.mark.sweep)
        for number, case in enumerate(PAIRS)
    ],
    ids=str,
)
def test_no_order_of_fault_and_change_makes_a_label_wrong(case: combinations.Case) -> None:
    """The agent is killed, and the node boots again, in between or not."""
    report = combinations.run(case)
    assert not report.violations, report.told()
