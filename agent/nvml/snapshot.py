"""The NVML part of a snapshot: one answer of the helper.

nvml.json    answer of the helper (agent/nvml/library.py, query)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import Unavailable
from agent.recorded_answer import RecordedAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from agent.host import Host
    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

FILE = "nvml.json"


@dataclass(slots=True)
class RecordedNvml(RecordedAnswer):
    """The recorded answer, and the Host I/O that replays it."""

    file: ClassVar[str] = FILE

    def replayed(self) -> dict[str, Any]:
        """Return the fields of a Host that replay this record.

        Where NVML was queried, its answer counts, whatever is on the PCI bus.
        """
        return {"gpus": self.gpus, "gpus_off_bus": self.answer is not None}

    def gpus(self) -> dict[str, Any]:
        """Return the answer; raise Unavailable if there is none."""
        if self.answer is None:
            raise Unavailable("the snapshot has no answer of NVML")
        return self.answer

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced UUIDs of GPUs and clusters, and serials."""
        return type(self)(_anonymized(self.answer, names))


def record(host: Host) -> tuple[RecordedNvml, dict[str, Any]]:
    """Return an empty record, and the fields of a Host that query `host` and fill the record."""
    recorded = RecordedNvml()

    def gpus() -> dict[str, Any]:
        recorded.answer = host.gpus()
        return recorded.answer

    return recorded, {"gpus": gpus}


def load(files: SnapshotFiles, _facts: Mapping[str, Any]) -> RecordedNvml:
    """Load the record; raises Malformed if the file is not a JSON object."""
    return RecordedNvml(files.json(FILE))


def _anonymized(value: Any, names: Names) -> Any:
    """Replace names in JSON: UUIDs of GPUs in text, of clusters as 32 hex digits, serials."""
    if isinstance(value, list):
        return [_anonymized(item, names) for item in value]
    if isinstance(value, dict):
        cluster = value.get("cluster_uuid")
        replaced = {"cluster_uuid": names.digits(cluster)} if isinstance(cluster, str) else {}
        serial = value.get("chassis_serial_number")
        replaced |= {"chassis_serial_number": names.peer(serial, "chassis")} if serial else {}
        return {key: _anonymized(item, names) for key, item in (value | replaced).items()}
    return names.text(value) if isinstance(value, str) else value
