"""The LLDP part of a snapshot: received frames, and the private flags of netdevs.

    lldp/<netdev>.pcap or .pcapng    frames with their times (agent/lldp/pcap.py)
    host.json, "private_flags"       netdev -> flag -> value, of the netdevs that were queried

The folder lldp/ exists if LLDP frames were received at all. A frame file that cannot be read fails
its netdev, as a packet socket that cannot be opened does. Frames that a packet socket drops are
left out: somebody else's capture may have them. Those of the netdev itself are recognized by its
MAC address later (agent/lldp/neighbors.py, receive).

In an anonymized snapshot
- nothing is copied because it looked harmless: a frame is rebuilt from the fields that the decoder
  uses (agent/lldp/frame.py), so descriptions, management addresses, organizational TLVs and TLVs of
  a later standard are left out; so is a text that has no replacement;
- subtypes, capabilities, TTLs and VLAN tags are kept, names and addresses replaced; port names that
  identify nobody are kept (agent/snapshot/anonymize.py, INTERFACE);
- a name has the same replacement in a System Name, a Port Description and an InfiniBand
  NodeDescription.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from agent.errors import Malformed, Unavailable
from agent.ids import MAC
from agent.recorded_answer import Recording

if TYPE_CHECKING:  # packages that import this one, and the decoder: of frames alone
    from agent.host import Host
    from agent.lldp.driver_flags import PrivateFlags
    from agent.lldp.frame import Frame
    from agent.lldp.reception import (
        Clock,
        Links,
        LldpQuery,
        Received,
        Reception,
        SilenceQuery,
    )
    from agent.model import Netdev
    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

FlagsQuery = Callable[[str], "PrivateFlags"]

FOLDER = "lldp"
FLAGS = "private_flags"


class RecordedLldp(Recording):
    """The recorded frames and private flags, and the Host I/O that replays them.

    Each by netdev; `failed` has errors. Unless `listening`, Host.lldp_neighbors is None.
    """

    def __init__(
        self,
        received: dict[str, list[Frame]] | None = None,
        failed: dict[str, str] | None = None,
        flags: dict[str, PrivateFlags] | None = None,
        *,
        listening: bool = False,
    ) -> None:
        self.received, self.failed, self.flags = received or {}, failed or {}, flags or {}
        self.listening = listening

    @classmethod
    def record(cls, host: Host) -> tuple[Self, Host]:
        """Return an empty record, and the host with I/O that fills it."""
        recorded, neighbors = cls(listening=host.lldp_neighbors is not None), host.lldp_neighbors
        if neighbors:
            neighbors = partial(recorded.query_neighbors, neighbors)
        flags = partial(recorded.query_flags, host.private_flags)
        return recorded, host._replace(lldp_neighbors=neighbors, private_flags=flags)

    @classmethod
    def load(cls, files: SnapshotFiles, facts: Mapping[str, Any]) -> Self:
        """Load the record; `facts` is host.json. Raises Malformed for malformed private flags."""
        flags = facts.get(FLAGS, {})
        if not isinstance(flags, dict) or not all(isinstance(of, dict) for of in flags.values()):
            raise Malformed(f"host.json: {FLAGS!r} is no object of objects")
        recorded = cls(flags=dict(flags), listening=files.has_folder(FOLDER))
        for name in files.names(FOLDER):
            netdev, _, suffix = name.rpartition(".")
            if suffix not in {"pcap", "pcapng"}:
                continue
            from agent.lldp import pcap
            from agent.lldp.frame import drop_reason

            path = f"{FOLDER}/{name}"
            frames: list[Frame] = []
            try:
                data = files.read(path, pcap.MAX_SIZE)
                frames, fault = pcap.read(netdev, data)
                fault = "no frame in the file" if pcap.is_empty(data) else fault
            except Malformed as error:
                fault = str(error).removeprefix(f"{path}: ")
            except Unavailable as error:
                raise Unavailable(f"{path}: {error}") from error
            # by a packet socket
            passed = [frame for frame in frames if not drop_reason(frame.data)]
            recorded.received.setdefault(netdev, []).extend(passed)
            if fault:
                recorded.failed[netdev] = f"{path}: {fault}"
        return recorded

    def replayed(self, host: Host) -> Host:
        """Return the host with I/O that replays this record."""
        host = host._replace(private_flags=self.private_flags)
        if not self.listening:
            return host
        from agent.lldp.reception import LldpNeighbors

        return host._replace(lldp_neighbors=LldpNeighbors(self.frames, problem="{}"))

    def frames(self, netdevs: Links) -> Received:
        """Return the frames of these netdevs by time, and the errors of those that failed."""
        frames = [frame for netdev in netdevs for frame in self.received.get(netdev, ())]
        failed = {netdev: text for netdev, text in self.failed.items() if netdev in netdevs}
        return sorted(frames, key=lambda frame: (frame.time, frame.netdev)), failed

    def private_flags(self, netdev: str) -> PrivateFlags:
        """Return the private flags of a netdev's driver; none if they were not recorded."""
        return self.flags.get(netdev, {})

    def query_neighbors(
        self,
        query: LldpQuery,
        netdevs: Collection[Netdev],
        clock: Clock,
        silence: SilenceQuery = lambda _netdev: None,
    ) -> Reception:
        """Record the frames of an observation, and the errors of its packet sockets."""
        reception = query(netdevs, clock, silence)
        for frame in reception.frames:
            self.received.setdefault(frame.netdev, []).append(frame)
        self.failed.update(reception.errors)
        return reception

    def query_flags(self, query: FlagsQuery, netdev: str) -> PrivateFlags:
        """Record the private flags of a netdev's driver."""
        self.flags[netdev] = query(netdev)
        return self.flags[netdev]

    def newest(self) -> float | None:
        """Return the time of the last frame."""
        frames = (frame for frames in self.received.values() for frame in frames)
        return max((frame.time for frame in frames), default=None)

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced names; without its malformed frames."""
        received = {}
        for netdev, frames in sorted(self.received.items()):
            replaced = (_anonymized(frame, names) for frame in frames)
            received[names.text(netdev)] = [frame for frame in replaced if frame]
        failed = {names.text(netdev): names.text(text) for netdev, text in self.failed.items()}
        flags = {names.text(netdev): flags for netdev, flags in self.flags.items()}
        return type(self)(received, failed, flags, listening=self.listening)

    def facts(self) -> dict[str, Any]:
        """Return the entries of host.json."""
        return {FLAGS: self.flags}

    def files(self) -> dict[str, bytes | None]:
        """Return the files of the frames, and their folder."""
        from agent.lldp import pcap

        files: dict[str, bytes | None] = {FOLDER: None} if self.listening else {}
        for netdev, frames in self.received.items():
            if frames:
                files[f"{FOLDER}/{netdev}.pcap"] = pcap.write(frames)
        return files


def _anonymized(frame: Frame, names: Names) -> Frame | None:
    """Return the rebuilt frame, without the texts that have no replacement; None if malformed."""
    from agent.lldp import frame as lldp

    try:
        neighbor = lldp.decode(frame.data)
    except Malformed:
        return None
    chassis, port = neighbor.chassis_id, neighbor.port_id
    chassis_is_mac = neighbor.chassis_subtype == lldp.CHASSIS_MAC and MAC.fullmatch(chassis)
    port_is_mac = neighbor.port_id_subtype == lldp.PORT_MAC and MAC.fullmatch(port)
    description, name = neighbor.port_description, neighbor.system_name
    every = neighbor._asdict().items()
    facts: dict[str, Any] = {
        field: None if isinstance(fact, str) else fact for field, fact in every
    }
    facts |= {
        "destination_mac": names.text(neighbor.destination_mac),
        "source_mac": names.text(neighbor.source_mac),
        "chassis_id": names.text(chassis) if chassis_is_mac else names.peer(chassis),
        "port_id": names.text(port) if port_is_mac else names.port(port),
        "port_description": description and names.port(description),
        "system_name": name and names.peer(name),
    }
    tags = frame.data[12 : lldp.lldpdu_offset(frame.data)]  # and the ethertype
    data = lldp.encode(type(neighbor)(**facts), tags)
    return lldp.Frame(names.text(frame.netdev), frame.time, data)
