"""The machine folders, and one look at each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.output.formats import Choices, report_on
from agent.snapshot.replay import replay
from agent.sources.observe import observe

MACHINES = sorted(
    path.parent for path in Path(__file__).parents[2].glob("sysfs_fixtures/*/expected.labels")
)


def report(snapshot: Path, choices: Choices | None = None) -> dict[str, Any]:
    """The JSON document of a snapshot."""
    choices = choices or Choices()
    host = replay(str(snapshot), choices.excluded_devices, choices.backend_devices)
    return report_on(observe(host), choices)
