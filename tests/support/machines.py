"""The machine folders of sysfs_fixtures/, and the document of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.output.document import Choices, document
from agent.snapshot.replay import replay
from agent.sources.observe import observe

MACHINES = sorted(
    path.parent for path in Path(__file__).parents[2].glob("sysfs_fixtures/*/expected.labels")
)

# Their labels are right in expected.labels, and wrong in the output: today's rules of port roles.
NOT_YET_RIGHT = frozenset(
    {
        "alibaba-erdma",
        "azure-mana",
        "cpu-roce-front-end",
        "dgx-a100",
        "dgx-b200",
        "dgx-b300",
        "dgx-spark",
        "h100-ib-storage-same-model",
        "h200-roce-mixed-psid",
        "h200-roce-ninth-nic",
        "h200-roce-replaced-card",
        "hgx-b300-no-vpd",
        "hgx-b300-roce",
        "mi355x-pollara",
        "mixed-ib-storage",
        "roce-subfunction",
    }
)
RIGHT = [machine for machine in MACHINES if machine.name not in NOT_YET_RIGHT]


def document_of(snapshot: Path, choices: Choices | None = None) -> dict[str, Any]:
    """Replay a snapshot and return its JSON document."""
    choices = choices or Choices()
    host = replay(str(snapshot), choices.excluded_devices, choices.backend_devices)
    return document(observe(host), choices)
