"""Every machine with neighbors against plans in the spellings of sites, right and wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from agent import inputs
from agent.cabling.expected import from_labels
from agent.cabling.finding import ERROR, UNKNOWN
from agent.cabling.judge import VerifyResult, verify
from agent.cabling.plan_index import from_plans
from agent.cabling.plans.columns import rate
from agent.cabling.plans.model import Plan
from agent.cabling.plans.own import read_csv, read_labels
from agent.cabling.plans.source import PlanContent
from agent.cabling.seen import Port, seen_node
from agent.encode import Naming
from agent.errors import Malformed
from agent.output.document import node_document
from agent.output.report import OK, outcome
from agent.verify.write import FORMATS, written
from tests.support.cabling import cable
from tests.support.machines import MACHINES, observed
from tests.support.remembering import alone

Ends = tuple[str, str]


# The interface of this node, as plans name it.
NEAR: dict[str, Callable[[Port], str | None]] = {
    "interface": lambda port: port.interface,
    "upper case": lambda port: port.interface.upper(),
    "device": lambda port: port.device,
    "device and port": lambda port: f"{port.device}/P{port.number}",
    "netdev": lambda port: port.netdev,
    "address": lambda port: port.pci,
    "address in upper case": lambda port: port.pci and port.pci.upper(),
    "address without domain": lambda port: port.pci and port.pci[5:],
}


def padded(text: str) -> str:
    """Return a name with its last number in three digits: `leaf-001`; an address as it is."""
    if re.fullmatch("[0-9a-f]{16}", text):
        return text
    return re.sub(r"(?<=\D)(\d{1,2})$", lambda found: found[1].zfill(3), text)


# The far end.
FAR: dict[str, Callable[[str, str], Ends]] = {
    "as it is": lambda device, port: (device, port),
    "upper case": lambda device, port: (device.upper(), port.upper()),
    "label values": lambda device, port: (encoded(device), encoded(port)),
    "padded": lambda device, port: (padded(device), padded(port)),
    "without port": lambda device, _port: (device, ""),
}


def encoded(text: str) -> str:
    return re.sub("[^A-Za-z0-9._-]", "-", text)


class Machine:
    """A machine folder."""

    def __init__(self, folder: Path) -> None:
        host, observation = observed(folder)
        hardware = inputs.hardware(host, observation)._replace(paths=None)
        self.node = seen_node(node_document(*alone(observation), None, hardware))
        self.ports = [port for port in self.node.ports.values() if port.far_ends]
        self.ends = [(one.far_ends[0].device, one.far_ends[0].port or "") for one in self.ports]

    def results(self, ends: Iterable[Ends]) -> Iterator[VerifyResult]:
        """Yield the results of the plans with these far ends, in all spellings."""
        rows = list(zip(self.ports, ends, strict=True))
        for near, far in product(NEAR.values(), FAR.values()):
            named = [(near(port), far(*end)) for port, end in rows]
            cables = [
                cable(name, *end, row=row, node=self.node.name)
                for row, (name, end) in enumerate(named, 2)
                if name
            ]
            expected = from_plans([Plan("plan", "own", None, tuple(cables))], [self.node.name])
            with suppress(Malformed):  # two rows, one name: an address without its domain
                if cables:
                    yield verify(expected, self.node)


WITH_NEIGHBORS = [
    folder
    for folder in MACHINES
    if "neighbors.current." in (folder / "expected.labels").read_text()
]
machine_of = cache(Machine)


@pytest.fixture(params=WITH_NEIGHBORS, ids=lambda folder: folder.name)
def machine(request: pytest.FixtureRequest) -> Machine:
    found = machine_of(request.param)
    assert found.ends
    return found


def test_no_spelling_makes_a_right_cable_wrong(machine: Machine) -> None:
    """A row is as planned, or not verified with the reason."""
    for result in machine.results(machine.ends):
        assert [one.text for one in result.findings if one.severity == ERROR] == []
        if result.as_planned < result.planned:
            assert outcome(result.findings) != OK


@pytest.mark.slow
def test_no_spelling_hides_a_wrong_cable(machine: Machine) -> None:
    """Two exchanged, one at another switch: never OK."""
    first, *others = machine.ends
    wrong = [[("other-77", first[1]), *others]]
    if others and others[0][0] != first[0]:
        wrong.append([others[0], first, *others[1:]])
    for ends in wrong:
        for result in machine.results(ends):
            assert outcome(result.findings) != OK


def test_a_written_plan_is_what_is_seen(machine: Machine) -> None:
    """In both forms; a rate that the plan does not have, and nobody knows, is no difference."""
    naming = Naming()
    (csv, notes), (labels, _) = (written(machine.node, naming, kind) for kind in FORMATS)
    assert len(notes) == len(machine.node.ports) - len(machine.ports)
    by_rows = from_plans(read_csv(PlanContent("plan.csv", csv.encode())), [machine.node.name])
    [plan] = read_labels(PlanContent("plan.yaml", labels.encode()))
    rates = [port.rate_gbps for port in machine.node.ports.values()]
    if None not in rates:
        assert rate(plan.labels[f"{naming.prefix}/speed.expected"]) == sum(filter(None, rates))
    for expected in (by_rows, from_labels(plan.labels, naming, plan.file)):
        result = verify(expected, machine.node)
        assert result.as_planned == len(machine.ports)
        assert [one.text for one in result.findings if one.severity in {ERROR, UNKNOWN}] == []
