"""The recorded I/O of a node: one Recording for each source that has a part in a snapshot.

Each source keeps its own files (agent/<protocol>/snapshot.py); the table of sources lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.host import Host
from agent.snapshot.tree import SnapshotFiles
from agent.sources.table import SOURCES, Recording

if TYPE_CHECKING:  # its expressions are compiled, for an anonymized capture only
    from agent.snapshot.names import Names

_SNAPSHOTS = {source.name: source.snapshot for source in SOURCES if source.snapshot}


@dataclass(slots=True)
class RecordedIo:
    """The recordings by the name of their source."""

    parts: dict[str, Recording] = field(default_factory=dict)

    def replayed(self) -> dict[str, Any]:
        """Return the fields of a Host that replay the recordings."""
        return _merged(part.replayed() for part in self.parts.values())

    def newest(self) -> float | None:
        """Return the time of the newest recorded frame, if there is one."""
        times = [part.newest() for part in self.parts.values()]
        return max((time for time in times if time is not None), default=None)

    def anonymized(self, names: Names) -> RecordedIo:
        """Return the recordings with replaced names."""
        return RecordedIo({name: part.anonymized(names) for name, part in self.parts.items()})

    def facts(self) -> dict[str, Any]:
        """Return the entries of host.json."""
        return _merged(part.facts() for part in self.parts.values())

    def files(self) -> dict[str, bytes | None]:
        """Return the files of every part by path; None is a folder."""
        return _merged(part.files() for part in self.parts.values())


def recording(host: Host) -> tuple[Host, RecordedIo]:
    """Return the host with I/O that is recorded, and the record, empty so far."""
    recorded = {name: snapshot.record(host) for name, snapshot in _SNAPSHOTS.items()}
    io = RecordedIo({name: part for name, (part, _) in recorded.items()})
    return replace(host, **_merged(fields for _, fields in recorded.values())), io


def load(files: SnapshotFiles, facts: Mapping[str, Any]) -> RecordedIo:
    """Load the recordings of a snapshot; `facts` is host.json. Raises Malformed."""
    return RecordedIo({name: snapshot.load(files, facts) for name, snapshot in _SNAPSHOTS.items()})


def _merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}
