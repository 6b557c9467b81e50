"""The NVML part of a snapshot: one answer of the helper.

nvml.json    answer of the helper (agent/nvml/library.py, query)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from agent.recorded_answer import RecordedAnswer

if TYPE_CHECKING:
    from typing import Self

    from agent.snapshot.anonymize import Names


class RecordedNvml(RecordedAnswer):
    """The answer of NVML."""

    file: ClassVar[str] = "nvml.json"
    field: ClassVar[str] = "gpus"
    absent: ClassVar[str] = "the snapshot has no answer of NVML"

    def replayed(self) -> dict[str, Any]:
        """Return the fields of a Host that replay this record.

        Where NVML was queried, its answer counts, whatever is on the PCI bus.
        """
        return {self.field: self.given, "gpus_off_bus": self.answer is not None}

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced UUIDs of GPUs and clusters, and serials."""
        return type(self)(_anonymized(self.answer, names))


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
