"""The generated Nodes are as the agent publishes them."""

from __future__ import annotations

import itertools

import pytest

from agent.kube import annotation
from agent.labels import encode
from agent.model import natural
from tests.support import fleets


@pytest.mark.parametrize("style", fleets.STYLES)
@pytest.mark.parametrize("shape", fleets.REGULAR, ids=lambda shape: shape.name)
def test_labels_and_annotation_are_of_the_contract(shape: fleets.Shape, style: str) -> None:
    """The annotation is read without a problem, and each neighbor's label is its encoded name."""
    fleet = fleets.Fleet(shape, 64, style=style)
    fleet.inject(0.05)
    for node, document in zip(fleet.nodes(), fleet.documents(), strict=True):
        metadata = document["metadata"]
        key = f"{fleets.P}/observed"
        read, problem = annotation.parse(metadata["annotations"][key], key)
        assert problem is None
        assert read
        assert read.addresses == {port.interface: port.pci for port in node.ports}
        labels = metadata["labels"]
        assert all(encode.value(value) == value for value in labels.values())
        for port in node.ports:
            device = labels.get(f"{fleets.P}/neighbors.current.{port.interface}.device")
            name = fleets.names(port.end, style).name if port.end else None
            assert device == (encode.value(name) if name else None)
        leaves = labels.get(f"{fleets.P}/leaves.current")
        names = {fleets.names(port.end, style).name for port in node.ports if port.end}
        joined = "_".join(sorted(names, key=natural))
        assert leaves == (encode.value(joined) if joined else None)


def test_a_large_fleet_is_made_lazily() -> None:
    """The first Node of 100,000 is there at once, and a fault is in it."""
    fleet = fleets.Fleet(fleets.RAIL, 100_000)
    assert len([*itertools.islice(fleet.documents(), 3)]) == 3


def test_every_kind_of_fault_changes_the_cables_that_it_lists() -> None:
    """The list of faults is the oracle: it has every cable that is not as it was built."""
    for shape, kind in itertools.product(fleets.REGULAR, (*fleets.KINDS, fleets.MIRRORED)):
        fleet = fleets.Fleet(shape, 64)
        fleet.inject(0.05, [kind])
        changed = {
            cable
            for node in range(64)
            for slot in range(shape.slots)
            if fleet.ends.get(cable := fleets.Cable(node, slot), fleet.wired(cable))
            != fleet.wired(cable)
        }
        assert changed == {cable for fault in fleet.faults for cable in fault.before} != set()
