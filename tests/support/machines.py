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


def document_of(snapshot: Path, choices: Choices | None = None) -> dict[str, Any]:
    """Replay a snapshot and return its JSON document."""
    choices = choices or Choices()
    host = replay(str(snapshot), choices.excluded_devices, choices.backend_devices)
    return document(observe(host), choices)
