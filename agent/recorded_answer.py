"""One answer of a helper in a snapshot, as a JSON file of its own; it has no time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from agent.text import Json, as_json


@dataclass(slots=True)
class RecordedAnswer:
    """What such recordings have in common (agent/snapshot/recordings.py, Recording)."""

    file: ClassVar[str]
    answer: Json | None = None  # None: it was not asked for, or not given

    def newest(self) -> None:
        """Return no time: an answer has none."""

    def facts(self) -> dict[str, Any]:
        """Return the entries of host.json: none."""
        return {}

    def files(self) -> dict[str, bytes | None]:
        """Return the file of the answer, if there is one."""
        return {} if self.answer is None else {self.file: as_json(self.answer)}
