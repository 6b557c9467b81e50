"""The sentence of each finding: which cable, from where to where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from agent.cabling.cables import ComparedCable
from agent.cabling.expected import ExpectedRow
from agent.cabling.finding import end_text, spot
from agent.cabling.seen import Port
from agent.ids import HASH
from agent.reasons import NeighborReason
from agent.text import listed, many

# What a port without a link means for a technician (IBTA vol. 1, 14.2.5.6, PortPhysicalState).
LINK = {
    "Polling": "no light from the far end",
    "PortConfigurationTraining": "it still negotiates with the far end",
    "LinkErrorRecovery": "errors on the link, so a failing cable or transceiver",
}
NO_LINK = "no link"
DISABLED = "Disabled"  # by the administrator of this node
GONE = {
    NeighborReason.EXPIRED: "the link is up, but no LLDP frame came for the time that it promised",
    NeighborReason.SHUTDOWN: "the link is up, but LLDP ended there (TTL 0)",
}


def far(row: ExpectedRow) -> str:
    """Return the planned far end with its place: `leaf01 port 5 (rack B3, unit 40)`."""
    is_hash = row.is_label and row.device and HASH.fullmatch(row.device)
    name = f"the switch whose name has the hash {row.device}" if is_hash else row.device
    return end_text((name or None, row.port)) + spot(row.far).in_brackets


def near(row: ExpectedRow) -> str:
    """Return the interface with the node's place and the label of the cable."""
    return _name(row) + spot(row.near, row.label).in_brackets


def _name(row: ExpectedRow) -> str:
    """Return the interface, and its name in the plan if that is another."""
    name = row.interface or row.text
    return f"{name} ({row.text})" if name != row.text else name


def present(port: Port, cable: ComparedCable | None) -> str:
    """Return the far end that a cable has now, else the planned one."""
    if cable and cable.far_end:
        return end_text(cable.actual) + cable.present_spot.in_brackets
    if port.far_ends:
        return end_text((port.far_ends[0].device, port.far_ends[0].port))
    return far(cable.row) if cable else "the switch"


def wrong(cable: ComparedCable, owner: str | None) -> str:
    """A cable to another device, or to another port of the right one."""
    device, port = cable.actual
    if cable.device.equal is False:
        start, to, what = present(cable.port, cable), far(cable.row), "its present port"
    else:
        start = what = f"port {port}"
        to = far(cable.row._replace(device=cable.row.device or device))
    text = f"Move the far end of {near(cable.row)} from {start} to {to}"
    return f"{text}; the plan gives {what} to {owner}." if owner else f"{text}."


def swapped(ring: Sequence[ComparedCable]) -> str:
    """Two cables, or a ring of several, that changed places: each is where the next belongs.

    Those of one node are named by their interfaces.
    """
    ends = [far(cable.row) for cable in ring]
    if len({cable.ref.node for cable in ring}) > 1:
        names, where = [f"{cable.ref.node} {cable.ref.interface}" for cable in ring], ""
        places = [spot(cable.row.near, cable.row.label).in_brackets for cable in ring]
    else:
        names = [_name(cable.row) for cable in ring]
        where = f" of this node{spot(ring[0].row.near).in_brackets}"
        places = [spot(None, cable.row.label).in_brackets for cable in ring]
    near_ends = [name + place for name, place in zip(names, places, strict=True)]
    if len(ring) == 2:
        (name, other), (first, second) = names, ends
        ports = f"{' and '.join(near_ends)}{where}"
        return f"Exchange the far ends of {ports}: {name} belongs to {first}, {other} to {second}."
    moves = [
        f"{name} from {present(cable.port, cable)} to {end}"
        for cable, name, end in zip(ring, near_ends, ends, strict=True)
    ]
    return f"Move the far ends of {len(ring)} cables{where} in a ring: {listed(moves)}."


def exchanged(ring: Sequence[ComparedCable]) -> str:
    """Nodes in each other's place, by a cable of each: each is in the place of the next."""
    names = [cable.ref.node + spot(cable.row.near).in_brackets for cable in ring]
    fix = "exchange their names, or their rows in the plan; or else the far ends of their cables"
    if len(ring) == 2:
        return f"{' and '.join(names)} are in each other's place: {fix}."
    places = [cable.ref.node for cable in (*ring[1:], ring[0])]
    steps = [f"{name} in that of {place}" for name, place in zip(names, places, strict=True)]
    return f"{len(ring)} nodes are in each other's place, {listed(steps)}: {fix}."


def moved(cables: Sequence[ComparedCable], host: str | None) -> str:
    """A node that is elsewhere as a whole, perhaps in the place of a host of the plan."""
    first, more = cables[0], many(len(cables) - 1, "other port")
    where = f"in the place of {host}" if host else f"at {end_text(first.actual)} and {more}"
    return (
        f"{first.ref.node}{spot(first.row.near).in_brackets} is elsewhere as a whole, {where}: "
        "correct the plan or the name of the node; or else move the far ends of its cables."
    )


def missing(cable: ComparedCable) -> str:
    """Nobody at the far end."""
    state, start, end = cable.port.phys_state, near(cable.row), far(cable.row)
    if state == DISABLED and cable.port.link_layer == "InfiniBand":
        return f"Enable the port of {start}, cabled to {end}: it is {state} here."
    if why := GONE.get(NeighborReason.of(cable.reason or "") or NeighborReason.LINK_DOWN):
        return f"Check LLDP of {end}, and that {start} is still cabled to it: {why}."
    if cable.port.link_layer == "Ethernet":
        is_up = f", and that {cable.port.netdev} is up here" if cable.port.netdev else ""
        return f"Check the cable of {start} to {end}{is_up}: {NO_LINK}."
    why = LINK.get(state or "", NO_LINK)
    why = f"{state}, {why}" if state else why
    return f"Check the cable of {start} to {end}: {why}."


def duplicate_in_plan(device: str | None, port: str | None, users: Sequence[str]) -> str:
    """One switch port for several interfaces."""
    listed = " and ".join(users)
    return f"Correct the plan: it gives {device} port {port} to {listed}."


def duplicate_seen(
    device: str | None, port: str | None, interfaces: Sequence[str], link_layer: str | None
) -> str:
    """Several interfaces that see one switch port."""
    cause = (
        "exclude all but one if they are functions of one NIC that share its cable"
        if link_layer == "InfiniBand"
        else "look for a device between them and the switch that forwards LLDP"
    )
    return f"{' and '.join(interfaces)} see the same port, {device} port {port}: {cause}."
