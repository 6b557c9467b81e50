"""The error counters of InfiniBand links: both ends of each ACTIVE backend port's link.

Only ports that have a neighbor are asked about, never functions that manage NVSwitches. An end that
cannot be read has its reason in its row: it is no problem of the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import Malformed, Unavailable
from agent.facts import MAX_SECONDS, number
from agent.host import Host
from agent.infiniband.devices import CounterPort, by_port, printable, recorded_reason
from agent.model import Absent, Failed, IbNeighbor, Link, PortRole, RdmaDevice, Reading, Seen
from agent.sources.ib import CLASS, sender_of
from agent.sysfs.parse import counter
from agent.sysfs.reader import Reader, Root
from agent.text import Json

if TYPE_CHECKING:  # an observation without readings does not load them
    from agent.infiniband.bad_link import EndReading, LinkErrors

SOURCE = "ib"
AGAIN = 5.0  # seconds between the two readings of a single observation


def read(
    host: Host, ports: tuple[PortRole, ...], links: Seen[tuple[Link, ...]] | Absent | Failed
) -> Reading[tuple[LinkErrors, ...]]:
    """Read the counters of the links among `links`, those of the source of InfiniBand."""
    by_name = {
        role.interface: role
        for role in ports
        if role.backend and role.port.state == "ACTIVE" and not may_manage(role.device)
    }
    neighbors = links.value if isinstance(links, Seen) else ()
    asked: dict[CounterPort, tuple[str, str]] = {}  # the interface, and the far end's name
    for link in neighbors:
        role, first = by_name.get(link.interface), next(iter(link.neighbors), None)
        if role and first and isinstance(far := first.facts, IbNeighbor):
            address = role.device.name, role.port.number
            sender = sender_of(role, ports)
            port = CounterPort(*address, sender, far.port, far.lid, AGAIN, far.node_guid)
            asked[port] = link.interface, f"{first.device} port {first.port_id}"
    if host.ask_perf is None or not asked:
        return Reading(Absent("no InfiniBand backend port is ACTIVE and has a neighbor"))
    try:
        entries = by_port(host.ask_perf(tuple(asked)))
    except (Unavailable, Malformed) as error:
        return Reading(Failed(str(error)))
    rows = (
        _row(*names, port.far_port, entries[port.device, port.number])
        for port, names in asked.items()
        if (port.device, port.number) in entries
    )
    return Reading(Seen(tuple(rows)))


def read_counters(host: Host, ports: Iterable[PortRole]) -> dict[str, dict[str, int]]:
    """Read all counters of the backend ports in sysfs, by interface and name.

    Those of the link are in counters/, those of the driver, as for RoCE, in hw_counters/
    (Documentation/ABI/stable/sysfs-class-infiniband). One that cannot be read is absent.
    """
    paths = {
        role.interface: f"{CLASS}/{role.device.name}/ports/{role.port.number}"
        for role in ports
        if role.backend and not may_manage(role.device)
    }
    jobs = {name: partial(_counters, host.root, path) for name, path in paths.items()}
    return host.device_readers().read(jobs, host.deadline)


def _counters(root: Root, path: str) -> dict[str, int]:
    reader, values = Reader(root, SOURCE), dict[str, int]()
    for folder in (f"{path}/counters", f"{path}/hw_counters"):
        for name in {*(reader.names(folder) or ())} - {"lifespan"}:  # no counter: ms between reads
            if (value := reader.value(f"{folder}/{name}", counter)) is not None:
                values[name] = value
    return values


def may_manage(device: RdmaDevice) -> bool:
    """Return True for a function that manages NVSwitches: its counters are never read."""
    return device.nvswitch_pattern and device.nvswitch_management is not False


def _row(interface: str, far_name: str, far_port: int, entry: Json) -> LinkErrors:
    """Decode the entry of a port (agent/helper/main.py, verb perf)."""
    from agent.infiniband.bad_link import LinkErrors, judge

    try:
        readings: list[Json] = [{}, {}, *(entry.get("readings") or ())][-2:]
        times = [number(MAX_SECONDS).parse(row["time"]) for row in readings if row]
        seconds = times[1] - times[0] if len(times) > 1 else 0.0
        near_was, near = (_end(row.get("near"), entry, entry["port"]) for row in readings)
        far_was, far = (_end(row.get("far"), entry, far_port) for row in readings)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fault = printable(f"a recorded reading is malformed: {error!r}")
        return LinkErrors(interface, far_name, fault, fault)
    if seconds <= 0:
        return LinkErrors(interface, far_name, near, far)
    verdict = judge((near_was, near), (far_was, far), seconds, far_name)
    return LinkErrors(interface, far_name, near, far, seconds, verdict, times[1])


def _end(side: Json | None, entry: Json, port: int) -> EndReading:
    """Return what was read at an end, or why nothing was, in words."""
    from agent.infiniband import perf
    from agent.infiniband.smp import Exchange

    if side is None:
        return printable(entry.get("text") or "its counters were read once")
    try:
        if side.get("error"):
            return printable(side.get("text") or recorded_reason(side["error"]))
        return perf.replay([Exchange.from_json(row) for row in side["exchanges"]], port)
    except (Malformed, Unavailable) as error:
        return printable(str(error))
