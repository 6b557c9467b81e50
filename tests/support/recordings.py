"""Recorded I/O that a test makes, loads from memory, or takes apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.infiniband.snapshot import RecordedSmps
from agent.lldp.frame import Frame
from agent.lldp.reception import LldpNeighbors
from agent.lldp.snapshot import RecordedLldp
from agent.snapshot.anonymize import Names
from agent.snapshot.recordings import (
    RecordedModules,
    RecordedNics,
    RecordedNvml,
    RecordedRoutes,
    Recordings,
    load,
    merged,
)
from agent.snapshot.tree import SnapshotFiles, Store

ROCE = {"link_layer": b"Ethernet\n", "state": b"4: ACTIVE\n", "rate": b"100 Gb/sec (4X EDR)\n"}
IB = ROCE | {"link_layer": b"InfiniBand\n"}


def tree(
    devices: Mapping[str, Mapping[str, bytes]],
    netdevs: Mapping[str, str] | None = None,
    address: str = "02:00:00:00:00:01",
) -> dict[str, bytes]:
    """A small sysfs: devices with one port each, and the netdevs behind some of them, whose MAC
    addresses count up from `address`.
    """
    files = {
        f"sys/class/infiniband/{device}/ports/1/{name}": data
        for device, port in devices.items()
        for name, data in port.items()
    }
    for last, (device, netdev) in enumerate((netdevs or {}).items(), int(address[-1])):
        files[f"sys/class/infiniband/{device}/device/net/{netdev}/dev_port"] = b"0\n"
        files[f"sys/class/net/{netdev}/operstate"] = b"up\n"
        files[f"sys/class/net/{netdev}/address"] = f"{address[:-1]}{last}\n".encode()
    return files


def hearing(*frames: Frame, refused: dict[str, str] | None = None) -> LldpNeighbors:
    """Reception of these frames, with a neighbor table of its own."""
    return LldpNeighbors(
        lambda netdevs: ([one for one in frames if one.netdev in netdevs], refused or {})
    )


def recorded(
    received: dict[str, list[Frame]] | None = None,
    failed: dict[str, str] | None = None,
    answers: dict[tuple[str, int], dict[str, Any]] | None = None,
    flags: dict[str, dict[str, bool]] | None = None,
    *,
    listening: bool = False,
) -> Recordings:
    """Recorded I/O of all sources, in the order of their table, and of the modules."""
    lldp = RecordedLldp(received, failed, flags, listening=listening)
    smps = RecordedSmps(answers)
    routes, nvml, modules = RecordedRoutes(), RecordedNvml(), RecordedModules()
    parts: Recordings = {"rdma": routes, "lldp": lldp, "ib": smps, "nvml": nvml}
    return parts | {"nics": RecordedNics(), "modules": modules}


def loaded(store: Store, **facts: Any) -> Recordings:
    """The recorded I/O of a snapshot with these entries in host.json."""
    return load(SnapshotFiles(store), facts)


def content(io: Recordings) -> dict[str, tuple[type, dict[str, Any]]]:
    """The class of each part, and what it holds."""
    return {name: (type(part), vars(part)) for name, part in io.items()}


def files_of(io: Recordings) -> dict[str, bytes | None]:
    """The files of all parts."""
    return merged(part.files() for part in io.values())


def anonymized(io: Recordings, names: Names) -> Recordings:
    """All parts with replaced names."""
    return {name: part.anonymized(names) for name, part in io.items()}


def lldp_of(io: Recordings) -> RecordedLldp:
    """The LLDP part."""
    part = io["lldp"]
    assert isinstance(part, RecordedLldp)
    return part


def smps_of(io: Recordings) -> RecordedSmps:
    """The InfiniBand part."""
    part = io["ib"]
    assert isinstance(part, RecordedSmps)
    return part
