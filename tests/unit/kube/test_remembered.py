"""What the annotation and the owned labels of a Node tell a new agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.kube.annotation import Annotation, OtherPort, parse, render
from agent.kube.remembered import NO_GLOBS, pins, published, rule_set, switches
from agent.memory import Fact, FarEnd, Memory
from agent.model import Failed
from agent.sources.pci import Place
from agent.sources.steady import Pin
from tests.support.nodes import BOOT, IB_PREFIX, KEYS, LEAF, NOW, PREFIX, SPEED
from tests.support.observations import observation

GUID, NAME = "b0cf0e0300d4ee40", "MF0;L90.1.3:MQM9700/U1"
IB_LEAF = LEAF.replace(PREFIX, IB_PREFIX)
REPORT = {"boot_id": BOOT, "time": "2026-11-20T13:34:49Z"}


def last_switches(
    annotation: Annotation | None, labels: dict[str, str]
) -> dict[str, tuple[str, str | None]]:
    """Return what a new agent takes over."""
    return switches(published(annotation, labels, KEYS, BOOT).rows)


def annotation(*neighbors: tuple[str, FarEnd | None]) -> Annotation:
    rows = (Fact(name, "0000:18:00.0", last_far=neighbor) for name, neighbor in neighbors)
    return Annotation(NOW, BOOT, tuple(rows))


@pytest.mark.parametrize(
    ("name", "labels", "used"),
    [
        (NAME, {LEAF: "L90.1.3"}, True),
        (NAME, {LEAF: "L90.1.3", IB_LEAF: "L90.1.3"}, True),
        (NAME, {IB_LEAF: "L90.1.3"}, True),
        (NAME, {}, True),
        (NAME, {LEAF.replace("ibp0", "ibp1"): "L90.1.4"}, True),
        (NAME, {LEAF: "L90.1.4"}, False),
        (NAME, {LEAF: "L90.1.3", IB_LEAF: "L90.1.4"}, False),
        (NAME, {LEAF: GUID}, False),
        (None, {LEAF: GUID}, True),
        (None, {LEAF: "L90.1.3"}, False),
        ("Quantum Mellanox Technologies", {LEAF: GUID}, True),
        ("a b", {LEAF: "a-b"}, True),
        ("東京", {LEAF: "x2f3c04f1ff1b2daf"}, True),
        ("---", {LEAF: GUID}, True),
        ("東京", {LEAF: GUID}, False),
        ("東京", {LEAF: "L90.1.3"}, False),
    ],
)
def test_a_label_with_another_device(name: str | None, labels: dict[str, str], used: bool) -> None:
    """A neighbor counts unless the label of its interface disagrees."""
    found = last_switches(annotation(("ibp0", FarEnd(GUID, name, "3"))), labels)
    assert found == ({"ibp0": (GUID, name)} if used else {})


@pytest.mark.parametrize(
    "neighbor",
    [None, FarEnd(), FarEnd(None, NAME, "3"), FarEnd("00:1c:73:aa:bb:cc", "tor")],
)
def test_what_is_no_switch(neighbor: FarEnd | None) -> None:
    """A neighbor without a node GUID is an LLDP neighbor, or unknown."""
    assert last_switches(annotation(("ibp0", neighbor)), {}) == {}
    assert last_switches(None, {}) == {}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"gbps": 9000}, "their sum is 9400G, and the speed label is 800G"),
        ({"gbps": -400}, "their sum is 400G, and the speed label is 800G"),
        ({"gbps": 1e308}, "their sum is 400G, and the speed label is 800G"),
        ({"gbps": float("nan")}, "their sum is 400G, and the speed label is 800G"),
        ({"boot_id": "another"}, "they are of another boot"),
        ({"partial": REPORT | {"boot_id": "another"}}, "they are of another boot"),
        ({"boot_id": "another", "partial": REPORT}, ""),
    ],
)
def test_counts_that_are_not_used(change: dict[str, Any], fault: str) -> None:
    """Those of another boot, and those that do not sum up to the label."""
    rows = tuple(Fact(f"ibp{n}", f"0000:{18 + n}:00.0", 1, gbps=400.0) for n in range(2))
    document = json.loads(render(Annotation(NOW, BOOT, rows)))
    (document["ports"][0] if "gbps" in change else document).update(change)
    annotation, _ = parse(json.dumps(document), KEYS.annotation)
    found = published(annotation, {SPEED: "800G"}, KEYS, BOOT)
    assert found.fault == fault
    memory = Memory(600.0)
    memory.seed(found, 0.0)
    known = memory.merge(observation(rdma=Failed("EIO")), lambda _address: Place.BUS, 0.0)
    assert [row.gbps for row in known.facts] == ([None, None] if fault else [400.0, 400.0])


def test_the_roles_that_ports_keep() -> None:
    """Those of the backend, with or without a link, and those that a rule took out."""
    ports = [(f"0000:{number}:00.0", 1) for number in range(18, 21)]
    rows = tuple(
        Fact(f"ibp{number}", *port, gbps=gbps, rule="kind")
        for number, (port, gbps) in enumerate(zip(ports, (400.0, 0.0), strict=False))
    )
    others = (OtherPort(*ports[2], "front-end"),)
    found = pins(Annotation(NOW, BOOT, rows, rules=rule_set(NO_GLOBS), others=others))
    assert found == [
        Pin(ports[2], "front-end", backend=False),
        Pin(ports[0], "kind", backend=True, has_link=True),
        Pin(ports[1], "kind", backend=True, has_link=False),
    ]
