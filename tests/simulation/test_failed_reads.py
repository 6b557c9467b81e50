"""One failed read makes no label wrong: on every machine, every read that an observation needs.

Each case is a cycle of the daemon's observer in which one file, listing, link or device folder
fails with EIO, ETIMEDOUT or ENODEV. `nox -s sweep` has every read of every machine fail, the other
sessions those of one machine of each shape, less the reads that are alike (failed_reads.py).
"""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from agent.daemon.observer import Cycle
from agent.sources.steady import CONFIRM
from tests.simulation.failed_reads import HOLD, Agent, Case, Machine
from tests.simulation.permitted import ROWS, is_about, permits
from tests.simulation.untrue import Change, changed, untrue
from tests.support.machines import MACHINES

MOST_TOLD = 4  # changes of a file class that are shown
SHAPES = {
    "aws-p5-efa": "32 devices that are neither InfiniBand nor Ethernet",
    "azure-ndv5-vm": "a guest, whose VFs are the backend",
    "bond-roce": "a bond, whose legs are the ports",
    "cpu-node": "no RDMA devices",
    "cx8-ib-smi": "InfiniBand of four planes, with SMI sub-devices",
    "dgx-spark": "one cable behind two functions, in two PCI domains",
    "driver-reloading": "functions without devices, labels that are held",
    "gb200-registering": "NVLink, GPUs that still register",
    "h200-roce": "RoCE, with LLDP neighbors",
    "hgx-b200-nvswitch": "functions that manage NVSwitches, known by their VPD",
    "ib-and-roce-tie": "two kinds of NICs, of which either may be the backend",
    "lent-to-pod": "netdevs in another network namespace: labels that are never complete",
    "mixed-ib-storage": "InfiniBand, with storage and front end",
    "mlx4-dual": "one device with two link layers",
    "ovn-kubernetes": "the front end on a port of Open vSwitch",
    "roce-subfunction": "a sub-function, whose parent counts",
    "sick-hca": "devices that have failed before",
    "socket-direct": "one cable behind two functions",
}
BY_NAME = {folder.name: folder for folder in MACHINES}
every_machine = pytest.mark.parametrize("folder", MACHINES, ids=lambda path: path.name)
every_shape = pytest.mark.parametrize(
    ("folder", "alike"),
    [
        *(pytest.param(BY_NAME[name], False, id=name) for name in SHAPES),
        *(
            pytest.param(folder, True, id=f"{folder.name} all", marks=pytest.mark.sweep)
            for folder in MACHINES
        ),
    ],
)


@cache
def load(folder: Path, *, alike: bool = False) -> Machine:
    return Machine(folder, alike=alike)


@every_machine
def test_the_clean_observation_is_that_of_the_machine(folder: Path) -> None:
    """Without a failure a machine has the labels that were worked out for it, and no source breaks
    in a cycle of the daemon.
    """
    labels = "".join(f"{key}={value}\n" for key, value in sorted(load(folder).labels.items()))
    assert labels == (folder / "expected.labels").read_text()
    assert not broken(load(folder).clean)


@every_shape
def test_a_failed_read_changes_no_label_that_an_earlier_agent_published(
    folder: Path, *, alike: bool
) -> None:
    """The first cycle of an agent that was started again, on a Node with labels: what was published
    stays, held labels among it, in that cycle and in the next one, which reads everything.
    """
    machine = load(folder, alike=alike)
    labels, annotation = machine.published
    found = Complaints(machine)
    for case in machine.cases:
        agent = Agent(machine, labels, annotation)
        found.changes(case, labels, agent.observe(case))
        found.changes(case, labels, agent.observe(), "in the next cycle")
    found.judge()


@every_shape
def test_a_failed_read_changes_no_label_of_a_running_agent(folder: Path, *, alike: bool) -> None:
    """An agent that has observed the machine before: no label changes before the hold ends, and all
    are right when the file can be read again.

    In a failure that outlasts the hold the device loses its labels, and nothing untrue is
    published: its role is what it was when it could be read. A label that is never complete has a
    hold of its own after that, and is right at its end.
    """
    machine = load(folder, alike=alike)
    incomplete = machine.clean.rendered.incomplete
    found = Complaints(machine)
    agent = running(machine)
    for case in machine.cases:
        if incomplete:  # a label that is never complete has one hold
            agent = running(machine)
        before = found.count
        found.changes(case, machine.labels, agent.observe(case, after=1.0))
        if case.number != errno.ENODEV:  # which nothing gives for minutes: the device goes
            found.note(
                case, untrue(machine, case, agent.observe(case, after=HOLD)), "past the hold"
            )
        after = agent.observe(after=1.0)
        found.changes(case, machine.labels, after, "in the next cycle", but=incomplete)
        if incomplete:
            after = agent.observe(after=HOLD)
            found.changes(case, machine.labels, after, "after one more hold")
        if found.count > before:
            agent = running(machine)
    found.judge()


@every_shape
def test_a_failed_read_publishes_nothing_untrue(folder: Path, *, alike: bool) -> None:
    """On a node without labels those of a device that failed are missing, and no other label; no
    port has another role than it has.
    """
    machine = load(folder, alike=alike)
    found = Complaints(machine)
    for case in machine.cases:
        found.note(case, untrue(machine, case, Agent(machine).observe(case)))
    found.judge()


def test_every_row_of_the_table_is_about_a_read() -> None:
    """An exception that no machine needs any more leaves the table."""
    unused = set(ROWS)
    for machine in map(load, MACHINES):
        cases = {(case.read.file_class, case.number): case for case in machine.cases}
        unused -= {row for row in unused for case in cases.values()
                   if is_about(row, machine.name, case)}  # fmt: skip
    assert not unused


def running(machine: Machine) -> Agent:
    """An agent whose roles have lasted, and whose Node had no labels before."""
    agent = Agent(machine)
    agent.observe()
    agent.observe(after=CONFIRM)
    return agent


def broken(cycle: Cycle) -> list[str]:
    """Exceptions of a source, which the observation turns into failures."""
    return [one.text for one in cycle.observation.problems if " source broke: " in one.text]


class Complaints:
    """The changes that nothing permits, by file class."""

    def __init__(self, machine: Machine) -> None:
        self.count = 0
        self._machine = machine
        self._found: dict[str, list[str]] = defaultdict(list)

    def changes(
        self,
        case: Case,
        labels: Mapping[str, str],
        cycle: Cycle,
        when: str = "meanwhile",
        *,
        but: Collection[str] = (),
    ) -> None:
        """Take in the labels of a cycle that are not these, but for some keys; no row of the table
        is about them.
        """
        found = changed(labels, cycle.rendered.labels)
        self._add(case, [one for one in found if one.subject not in but], when)
        self._add(case, broken(cycle), when)

    def note(self, case: Case, changes: Iterable[Change], when: str = "meanwhile") -> None:
        """Take in the changes that the table does not permit."""
        name = self._machine.name
        self._add(case, [one for one in changes if not permits(name, case, one)], when)

    def judge(self) -> None:
        """Fail with all of them."""
        told = []
        for file_class, lines in sorted(self._found.items()):
            told += [f"{len(lines)} of {file_class}", *lines[:MOST_TOLD]]
        if told:
            pytest.fail("\n".join(told), pytrace=False)

    def _add(self, case: Case, changes: Sequence[object], when: str) -> None:
        if changes:
            self.count += 1
            shown = "; ".join(map(str, changes[:MOST_TOLD]))
            self._found[case.read.file_class].append(f"    {case}, {when}: {shown}")
