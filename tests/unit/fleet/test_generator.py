"""The faults of a generated fleet are those of its list."""

from __future__ import annotations

import itertools

from tests.support import fleets


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
