"""Devices that come late end in the roles that one observation of all has; so does a restart while
something is missing, under other names and bus numbers, and from the annotation of 0.3.0.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.kube.annotation import parse
from agent.kube.remembered import annotate, pins
from agent.model import PortRole, RdmaDevice, Seen
from agent.sources.steady import CONFIRM, RoleMemory
from agent.sysfs.bus import Bus
from tests.support.devices import backend, decide, plain, without_route
from tests.support.machines import FOLDERS, evidence_of
from tests.support.remembering import alone
from tests.support.shuffle import Shuffle


@pytest.mark.parametrize("seconds", [10.0, 10 * CONFIRM])
@pytest.mark.parametrize("machine", FOLDERS)
def test_devices_that_come_late_have_their_roles_after_two_minutes(
    machine: Path, seconds: float
) -> None:
    """Half of them are there for seconds, or for ten minutes, then all."""
    evidence, found = evidence_of(machine)
    devices = list(found.rdma.value) if isinstance(found.rdma, Seen) else []
    whole = backend(decide(devices, bus=evidence.bus.bus).roles)
    for seed in range(3):
        shuffled = random.Random(seed).sample(devices, len(devices))  # noqa: S311
        now = 0.0
        memory = RoleMemory(lambda: now, lambda: now)  # noqa: B023 - of this turn
        # The parent of an SMI sub-device is registered before it.
        shuffled.sort(key=lambda one: one.name.startswith("smi"))
        half = shuffled[: len(devices) // 2]
        for there in (half, half, devices, devices, devices):
            decision = decide(there, bus=evidence.bus.bus, memory=memory)
            now += seconds if there is half else CONFIRM
        assert backend(decision.roles) == whole


# The parent of an SMI sub-device or sub-function goes after it.
PARENTS = {"cx8-ib-smi", "gb300-nvl72", "roce-subfunction"}
NO_ADDRESS = {"soft-roce"}  # so its ports are not in the annotation


def missing(
    devices: Sequence[RdmaDevice], bus: Bus, backend: Sequence[RdmaDevice]
) -> Iterator[tuple[Sequence[RdmaDevice], Bus]]:
    """Yield the node while something is missing that its roles may depend on."""

    def without(*addresses: str | None) -> Bus:
        functions = {name: one for name, one in bus.functions.items() if name not in addresses}
        return Bus(functions, bus.unread, bus.failure)

    gpus = [one.address for one in bus.gpus]
    for gone in (gpus, gpus[::2], *([one] for one in gpus)):
        yield [one for one in devices if one.pci not in gone], without(*gone)
    for one in devices:
        others = [other for other in devices if other is not one]
        yield others, bus
        yield [other for other in others if other.pci != one.pci], without(one.pci)
    yield [one for one in devices if one not in backend[1:]], bus
    yield [plain(one, state="DOWN") for one in devices], bus
    yield [plain(one, state="DOWN") if one in backend else one for one in devices], bus
    yield [without_route(one) for one in devices], bus


@pytest.mark.slow
@pytest.mark.parametrize("machine", FOLDERS)
def test_a_restart_while_something_is_missing_changes_no_role(machine: Path) -> None:
    """A GPU or NIC off the bus, HCAs in recovery, links that are down, a lease without route."""
    (evidence, found), now = evidence_of(machine), 0.0
    devices = list(found.rdma.value) if isinstance(found.rdma, Seen) else []
    labeled = {one.interface: one.device.pci for one in found.backend}

    def look(there: Sequence[RdmaDevice], bus: Bus, memory: RoleMemory) -> tuple[PortRole, ...]:
        return decide(there, labeled=labeled, bus=bus, memory=memory).roles

    settled = RoleMemory(lambda: now, lambda: now)
    for _ in range(2):
        roles = look(devices, evidence.bus.bus, settled)
        now += CONFIRM
    told = annotate(*alone(found._replace(ports=roles)), roles=(((), ()), settled.known))
    whole = {(one.device.name, one.port.number) for one in roles if one.backend}
    named = [one for one in devices if any(one.name == name for name, _ in whole)]
    for there, bus in missing(devices, evidence.bus.bus, named):
        memory = RoleMemory(lambda: now, lambda: now)  # noqa: B023 - of this turn
        names = {one.name for one in there}
        memory.seed(pins(told), settled.known)
        for _ in range(3):
            after = look(there, bus, memory)
            now += 10 * CONFIRM
        left = {(one.device.name, one.port.number) for one in after if one.backend}
        is_known = machine.name not in NO_ADDRESS
        hidden = {one.name for one in devices if machine.name in PARENTS and one.name not in names}
        if is_known and not hidden:
            assert left == {key for key in whole if key[0] in names}


# Of a Socket-Direct card the function at the lower address counts.
BY_ADDRESS = {"dgx-spark"}


@pytest.mark.parametrize("is_new", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("machine", FOLDERS)
def test_names_buses_and_order_change_no_role_of_a_memory(machine: Path, *, is_new: bool) -> None:
    """A reboot numbers buses anew; names and order may change under a running agent."""
    (evidence, found), now = evidence_of(machine), 0.0
    if not isinstance(found.rdma, Seen):
        return
    devices, bus, route = found.rdma.value, evidence.bus.bus, evidence.front_end
    memory = RoleMemory(lambda: now, lambda: now)
    for _ in range(2):
        roles = decide(devices, bus=bus, front_end=route, memory=memory).roles
        now += CONFIRM
    told = annotate(*alone(found._replace(ports=roles)), roles=(((), ()), memory.known))
    for seed in range(2):
        shuffle = Shuffle(seed, has_same_buses=not is_new)
        if is_new:
            known = memory.known
            memory = RoleMemory(lambda: now, lambda: now)  # noqa: B023 - of this turn
            memory.seed(pins(told), known)
        names, there = shuffle.devices(devices)
        before = {(names[one.device.name], one.port.number): one.backend for one in roles}
        for _ in range(2):
            after = decide(
                there,
                bus=shuffle.bus(bus),
                front_end=shuffle.front_end(route),
                memory=memory,
            ).roles
            now += CONFIRM
        is_backend = {(one.device.name, one.port.number): one.backend for one in after}
        if is_new and machine.name in BY_ADDRESS:
            assert sorted(is_backend.values()) == sorted(before.values())
        else:
            assert is_backend == before


@pytest.mark.parametrize("is_wrong", [False, True], ids=["as now", "the other way round"])
@pytest.mark.parametrize("machine", FOLDERS)
def test_the_annotation_of_0_3_0_pins_no_role(machine: Path, *, is_wrong: bool) -> None:
    """After a minute an upgraded agent has the roles of a fresh one, whatever 0.3.0 decided."""
    (evidence, found), now = evidence_of(machine), 0.0
    devices = found.rdma.value if isinstance(found.rdma, Seen) else ()
    facts: dict[str, Any] = {"bus": evidence.bus.bus, "front_end": evidence.front_end}
    was = [one for one in found.ports if one.device.pci and one.backend is not is_wrong]
    written = {
        "schema": 2, "agent": "0.3.0", "boot_id": "b", "time": "2027-01-15T08:00:00Z",
        "switches": [], "rules": "2", "gpus": [gpu.address for gpu in evidence.bus.bus.gpus],
        "ports": [
            {"interface": one.interface, "pci": one.device.pci, "port": one.port.number,
             "gbps": 400.0, "rule": "kind"}
            for one in was
        ],
        "others": [
            [one.device.pci, one.port.number, "kind"]
            for one in found.ports
            if one.device.pci and one not in was
        ][:64],
    }  # fmt: skip
    annotation, fault = parse(json.dumps(written), "backend.coreweave.cloud/observed")
    assert fault is None
    memory = RoleMemory(lambda: now, lambda: now)
    memory.seed(pins(annotation))
    for _ in range(2):
        upgraded = decide(devices, memory=memory, **facts)
        now += CONFIRM
    assert backend(upgraded.roles) == backend(decide(devices, **facts).roles)
