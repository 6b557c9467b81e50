"""InfiniBand neighbors of the annotation, compared with the labels that the agent owns."""

from __future__ import annotations

import pytest

from agent.kube.annotation import Annotation, LabeledInterface
from agent.kube.interfaces import published, switches
from agent.memory import FarEnd
from tests.support.nodes import BOOT, IB_PREFIX, KEYS, LEAF, NOW, PREFIX

GUID, NAME = "b0cf0e0300d4ee40", "MF0;L90.1.3:MQM9700/U1"
IB_LEAF = LEAF.replace(PREFIX, IB_PREFIX)


def last_switches(
    annotation: Annotation | None, labels: dict[str, str]
) -> dict[str, tuple[str, str | None]]:
    """Return what a new agent takes over."""
    return switches(published(annotation, labels, KEYS, BOOT).rows)


def annotation(*neighbors: tuple[str, FarEnd | None]) -> Annotation:
    rows = (
        LabeledInterface(name, "0000:18:00.0", neighbor=neighbor) for name, neighbor in neighbors
    )
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
        ("東京", {LEAF: GUID}, True),
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
