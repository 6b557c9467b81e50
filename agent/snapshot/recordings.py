"""The recordings of what is no file: one part for each source that does I/O of its own.

The daemon loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.host import Host
from agent.infiniband import snapshot as ib_snapshot
from agent.lldp import snapshot as lldp_snapshot
from agent.nic.snapshot import RecordedNics
from agent.nvml.snapshot import RecordedNvml
from agent.recorded_answer import Recording
from agent.snapshot.tree import SnapshotFiles
from agent.sysfs import route_snapshot
from agent.transceiver.snapshot import RecordedModules

if TYPE_CHECKING:  # its expressions are compiled, for an anonymized capture only
    from agent.snapshot.anonymize import Names


class SnapshotPart(NamedTuple):
    """Functions that make the Recording of one source."""

    # Returns an empty Recording, and the fields of a Host that query this host and fill it.
    record: Callable[[Host], tuple[Recording, dict[str, Any]]]
    # Loads it from the files and host.json; raises Malformed.
    load: Callable[[SnapshotFiles, Mapping[str, Any]], Recording]


PARTS = {
    "rdma": SnapshotPart(route_snapshot.record, route_snapshot.load),
    "lldp": SnapshotPart(lldp_snapshot.record, lldp_snapshot.load),
    "ib": SnapshotPart(ib_snapshot.record, ib_snapshot.load),
    "nvml": SnapshotPart(RecordedNvml.record, RecordedNvml.load),
    "nics": SnapshotPart(RecordedNics.record, RecordedNics.load),
    "modules": SnapshotPart(RecordedModules.record, RecordedModules.load),  # only if asked for
}


class RecordedIo:
    """The recordings by the name of their source."""

    def __init__(self, parts: dict[str, Recording] | None = None) -> None:
        self.parts = parts or {}

    def replayed(self) -> dict[str, Any]:
        """Return the fields of a Host that replay the recordings."""
        return merged(part.replayed() for part in self.parts.values())

    def newest(self) -> float | None:
        """Return the time of the newest recorded frame, if there is one."""
        times = [part.newest() for part in self.parts.values()]
        return max((time for time in times if time is not None), default=None)

    def anonymized(self, names: Names) -> RecordedIo:
        """Return the recordings with replaced names."""
        return RecordedIo({name: part.anonymized(names) for name, part in self.parts.items()})

    def facts(self) -> dict[str, Any]:
        """Return the entries of host.json."""
        return merged(part.facts() for part in self.parts.values())

    def files(self) -> dict[str, bytes | None]:
        """Return the files of every part by path; None is a folder."""
        return merged(part.files() for part in self.parts.values())


def load(files: SnapshotFiles, facts: Mapping[str, Any]) -> RecordedIo:
    """Load the recordings of a snapshot; `facts` is host.json. Raises Malformed."""
    return RecordedIo({name: snapshot.load(files, facts) for name, snapshot in PARTS.items()})


def merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries of all parts."""
    return {key: value for part in parts for key, value in part.items()}
