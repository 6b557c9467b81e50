"""The LLDP part of a snapshot: received frames, and the private flags of netdevs.

    lldp/<netdev>.pcap or .pcapng    frames with their times (agent/lldp/pcap.py)
    host.json, "private_flags"       netdev -> flag -> value, of the netdevs that were queried

The folder lldp/ exists if LLDP frames were received at all. A frame file that cannot be read fails
its netdev, as a packet socket that cannot be opened does. Frames that a packet socket drops are
left out: somebody else's capture may have them. Those of the netdev itself are recognized by its
MAC address later (agent/lldp/neighbors.py, receive).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from agent.errors import Malformed, Unavailable
from agent.lldp.frame import Frame, drop_reason
from agent.lldp.reception import Clock, Links, LldpNeighbors, LldpQuery, Received, Reception
from agent.model import Netdev

if TYPE_CHECKING:  # packages that import this one
    from agent.host import Host
    from agent.snapshot.names import Names
    from agent.snapshot.tree import SnapshotFiles

FlagsQuery = Callable[[str], dict[str, bool]]

FOLDER = "lldp"
FLAGS = "private_flags"


@dataclass(slots=True)
class RecordedLldp:
    """The recorded frames and private flags, and the Host I/O that replays them."""

    received: dict[str, list[Frame]] = field(default_factory=dict)  # by netdev
    failed: dict[str, str] = field(default_factory=dict)  # netdev -> error
    flags: dict[str, dict[str, bool]] = field(default_factory=dict)  # by netdev
    listening: bool = False  # False: Host.lldp_neighbors is None

    def replayed(self) -> dict[str, Any]:
        """Return the fields of a Host that replay this record."""
        neighbors = LldpNeighbors(self.frames, problem="{}") if self.listening else None
        return {"lldp_neighbors": neighbors, "private_flags": self.private_flags}

    def frames(self, netdevs: Links) -> Received:
        """Return the frames of these netdevs by time, and the errors of those that failed."""
        frames = [frame for netdev in netdevs for frame in self.received.get(netdev, ())]
        failed = {netdev: text for netdev, text in self.failed.items() if netdev in netdevs}
        return sorted(frames, key=lambda frame: (frame.time, frame.netdev)), failed

    def private_flags(self, netdev: str) -> dict[str, bool]:
        """Return the private flags of a netdev's driver; none if they were not recorded."""
        return self.flags.get(netdev, {})

    def query_neighbors(
        self, query: LldpQuery, netdevs: Collection[Netdev], clock: Clock
    ) -> Reception:
        """Record the frames of an observation, and the errors of its packet sockets."""
        reception = query(netdevs, clock)
        for frame in reception.frames:
            self.received.setdefault(frame.netdev, []).append(frame)
        self.failed.update(reception.errors)
        return reception

    def query_flags(self, query: FlagsQuery, netdev: str) -> dict[str, bool]:
        """Record the private flags of a netdev's driver."""
        self.flags[netdev] = query(netdev)
        return self.flags[netdev]

    def newest(self) -> float | None:
        """Return the time of the last frame."""
        frames = (frame for frames in self.received.values() for frame in frames)
        return max((frame.time for frame in frames), default=None)

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced names; without its malformed frames."""
        from agent.lldp.anonymize import anonymized

        received = {}
        for netdev, frames in self.received.items():
            replaced = (anonymized(frame, names) for frame in frames)
            received[names.text(netdev)] = [frame for frame in replaced if frame]
        failed = {names.text(netdev): names.text(text) for netdev, text in self.failed.items()}
        flags = {names.text(netdev): flags for netdev, flags in self.flags.items()}
        return type(self)(received, failed, flags, self.listening)

    def facts(self) -> dict[str, Any]:
        """Return the entries of host.json."""
        return {FLAGS: self.flags}

    def files(self) -> dict[str, bytes | None]:
        """Return the files of the frames, and their folder."""
        from agent.lldp import pcap  # not for a replay

        files: dict[str, bytes | None] = {FOLDER: None} if self.listening else {}
        for netdev, frames in self.received.items():
            if frames:
                files[f"{FOLDER}/{netdev}.pcap"] = pcap.write(frames)
        return files


def record(host: Host) -> tuple[RecordedLldp, dict[str, Any]]:
    """Return an empty record, and the fields of a Host that query `host` and fill the record."""
    recorded = RecordedLldp(listening=host.lldp_neighbors is not None)
    fields: dict[str, Any] = {"private_flags": partial(recorded.query_flags, host.private_flags)}
    if host.lldp_neighbors:
        fields["lldp_neighbors"] = partial(recorded.query_neighbors, host.lldp_neighbors)
    return recorded, fields


def load(files: SnapshotFiles, facts: Mapping[str, Any]) -> RecordedLldp:
    """Load the record; `facts` is host.json. Raises Malformed for malformed private flags."""
    flags = facts.get(FLAGS, {})
    if not isinstance(flags, dict) or not all(isinstance(one, dict) for one in flags.values()):
        raise Malformed(f"host.json: {FLAGS!r} is no object of objects")
    recorded = RecordedLldp(flags=dict(flags), listening=files.has_folder(FOLDER))
    for name in files.names(FOLDER):
        netdev, _, suffix = name.rpartition(".")
        if suffix in {"pcap", "pcapng"}:
            path = f"{FOLDER}/{name}"
            frames, fault = _read_frames(netdev, files, path)
            recorded.received.setdefault(netdev, []).extend(frames)
            if fault:
                recorded.failed[netdev] = f"{path}: {fault}"
    return recorded


def _read_frames(netdev: str, files: SnapshotFiles, path: str) -> tuple[list[Frame], str | None]:
    """Return the frames of a file that a packet socket passes on, and a fault in the file."""
    from agent.lldp import pcap  # not for a snapshot without frames

    try:
        data = files.read(path, pcap.MAX_SIZE)
        frames, fault = pcap.read(netdev, data)
    except Malformed as error:
        return [], str(error).removeprefix(f"{path}: ")
    except Unavailable as error:
        raise Unavailable(f"{path}: {error}") from error
    fault = "no frame in the file" if pcap.is_empty(data) else fault
    return [frame for frame in frames if not drop_reason(frame.data)], fault
