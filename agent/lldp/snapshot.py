"""The LLDP part of a snapshot: received frames, and the private flags of netdevs.

    lldp/<netdev>.pcap or .pcapng    frames with their times (agent/lldp/savefile.py)
    host.json, "private_flags"       netdev -> flag -> value, of the netdevs that were queried

The folder lldp/ exists if LLDP frames were received at all. A frame file that cannot be read fails
its netdev, as a packet socket that cannot be opened does. Frames that a packet socket drops are
left out: somebody else's capture may have them. Those of the netdev itself are recognized by its
MAC address later (agent/lldp/neighbors.py, receive).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.lldp.frame import drop_reason
from agent.lldp.reception import LldpNeighbors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Self

    from agent.host import Host
    from agent.lldp.frame import Frame
    from agent.lldp.reception import Clock, Links, LldpQuery, Received, Reception
    from agent.model import Netdev
    from agent.snapshot.files import SnapshotFiles
    from agent.snapshot.names import Names

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
        received = {
            names.text(netdev): _anonymized(frames, names)
            for netdev, frames in self.received.items()
        }
        failed = {names.text(netdev): names.text(text) for netdev, text in self.failed.items()}
        flags = {names.text(netdev): flags for netdev, flags in self.flags.items()}
        return type(self)(received, failed, flags, self.listening)

    def facts(self) -> dict[str, Any]:
        """Return the entries of host.json."""
        return {FLAGS: self.flags}

    def files(self) -> dict[str, bytes | None]:
        """Return the files of the frames, and their folder."""
        folder: dict[str, bytes | None] = {FOLDER: None} if self.listening else {}
        received = filter(itemgetter(1), self.received.items())
        return folder | {f"{FOLDER}/{netdev}.pcap": _pcap(frames) for netdev, frames in received}


def _anonymized(frames: Iterable[Frame], names: Names) -> list[Frame]:
    from agent.lldp.anonymize import anonymized

    return list(filter(None, (anonymized(frame, names) for frame in frames)))


def _pcap(frames: Iterable[Frame]) -> bytes:
    from agent.lldp import pcap  # not for a snapshot without frames

    return pcap.write(frames)


def record(host: Host) -> tuple[RecordedLldp, dict[str, Any]]:
    """Return an empty record, and the fields of a Host that query `host` and fill the record."""
    recorded = RecordedLldp(listening=host.lldp_neighbors is not None)
    fields: dict[str, Any] = {"private_flags": partial(recorded.query_flags, host.private_flags)}
    if host.lldp_neighbors:
        fields["lldp_neighbors"] = partial(recorded.query_neighbors, host.lldp_neighbors)
    return recorded, fields


def load(files: SnapshotFiles, facts: Mapping[str, Any]) -> RecordedLldp:
    """Load the record; `facts` is host.json. Raises Malformed for malformed private flags."""
    recorded = RecordedLldp(flags=_flags(facts.get(FLAGS, {})), listening=files.has_folder(FOLDER))
    for name in files.names(FOLDER):
        netdev, _, suffix = name.rpartition(".")
        if suffix in {"pcap", "pcapng"}:
            _load_frames(recorded, netdev, files, f"{FOLDER}/{name}")
    return recorded


def _load_frames(recorded: RecordedLldp, netdev: str, files: SnapshotFiles, path: str) -> None:
    frames, fault = _read_frames(netdev, files, path)
    recorded.received.setdefault(netdev, []).extend(frames)
    if fault:
        recorded.failed[netdev] = f"{path}: {fault}"


def _read_frames(netdev: str, files: SnapshotFiles, path: str) -> tuple[list[Frame], str | None]:
    from agent.lldp import savefile  # not for a snapshot without frames

    try:
        data = files.read(path, savefile.MAX_SIZE)
        frames, fault = savefile.read(netdev, data)
        fault = "no frame in the file" if savefile.is_empty(data) else fault
    except Malformed as error:
        return [], str(error).removeprefix(f"{path}: ")
    except Unavailable as error:
        raise Unavailable(f"{path}: {error}") from error
    return [frame for frame in frames if not drop_reason(frame.data)], fault


def _flags(flags: Any) -> dict[str, dict[str, bool]]:
    if not isinstance(flags, dict) or not all(isinstance(one, dict) for one in flags.values()):
        raise Malformed(f"host.json: {FLAGS!r} is no object of objects")
    return dict(flags)
