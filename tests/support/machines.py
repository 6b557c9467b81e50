"""The machine folders of sysfs_fixtures/, and the document of one of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent import inputs
from agent.host import Host
from agent.model import Observation
from agent.output.document import Choices, document
from agent.snapshot.replay import replay
from agent.sources.observe import Memories, observe
from tests.support.remembering import alone

MACHINES = sorted(
    path.parent for path in Path(__file__).parents[2].glob("sysfs_fixtures/*/expected.labels")
)

# Of the folders with a tree.txt, those that a snapshot may treat otherwise than the others: a node
# description, an auxiliary device, the VMBus, bonds.
_UNLIKE_OTHERS = frozenset({"azure-mana", "h20-four-bonds", "mi355x-pollara", "roce-subfunction"})
# For tests of what a folder has, whatever it says: built folders that are alike are for the sweep.
FOLDERS = [
    pytest.param(
        machine,
        id=machine.name,
        marks=pytest.mark.sweep
        if (machine / "tree.txt").exists() and machine.name not in _UNLIKE_OTHERS
        else (),
    )
    for machine in MACHINES
]


@cache
def observed(machine: Path) -> tuple[Host, Observation]:
    """The host of a machine and its observation, for tests that change neither."""
    host = replay(str(machine))
    return host, observe(host)


@cache
def evidence_of(machine: Path) -> tuple[Memories, Observation]:
    """What was read of a machine's bus and routes, and its observation."""
    memories = Memories()
    return memories, observe(replay(str(machine)), memories=memories)


def document_of(snapshot: Path, choices: Choices | None = None) -> dict[str, Any]:
    """Replay a snapshot and return its JSON document, as `probe -o json` prints it."""
    choices = choices or Choices()
    host = replay(str(snapshot), choices.excluded_devices, choices.backend_devices)
    observation = observe(host)
    hardware = inputs.hardware(host, observation)
    return document(*alone(observation), choices, hardware=hardware)
