"""Where one label comes from: the document of `bwagent explain`, schema 1, and its text.

Its states are

    seen         the text was read now
    held         the label stays as it is, or has a part that does; `hold` has the reason
    incomplete   the text was read now, from facts of which some are missing; so has `hold`
    absent       there is no such label now; `reason` says why

Its evidence are the files, frames and answers that the row of the label is read from; the sources
are those of the fields' comments in agent/model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches
from itertools import groupby
from typing import NamedTuple

import agent
from agent.encode import Naming
from agent.labels.render import Rendered, Subject, keys_for, subject_of
from agent.labels.table import LABELS, Label
from agent.lldp.frame import tlv_texts
from agent.memory import FarEnd, Known
from agent.model import Failed, LldpNeighbor, Observation, PortRole, Seen
from agent.nic.driver import HEALTHY
from agent.output.backend import absent_ports
from agent.output.layout import joined, section, wrap
from agent.reasons import SWITCHED_OFF, HoldReason, NeighborReason
from agent.text import Json, listed, utc, visible

SCHEMA = 1
MAX_NEAREST = 3
MIN_LIKENESS = 0.6  # of a key that is named as near, see difflib
MAX_KEY = 317  # characters of a valid key: prefix, slash, name
MAX_SHOWN = 64  # characters of an unknown key in its error
MAX_TEXT = 1000  # characters of one text of the document, as text
MARGIN = 10  # columns of the names there
MAX_ERROR = 140  # characters of that error, unless its nearest key is longer
NO_INFINIBAND = "flavor is not infiniband"
NO_PORT_NAME = "no port name in the neighbor's frame"
CLASS = "/sys/class/infiniband"
NET = "/sys/class/net"
PCI = "/sys/bus/pci/devices"
SUM = "part of the sum"
OF_LEAVES = ("leaves.current", "leafgroup.current", "ports.current")
REMEMBERED = "remembered in the annotation"
FAMILIES = (  # rows that an empty flag turns off: their field of Naming
    ("ib_prefix", "--ib-label-prefix"),
    ("accelerator", "--accelerator-label"),
)


def known_interfaces(observation: Observation, known: Known) -> list[str]:
    """Return the interfaces that keys may name: those of all ports, read or not."""
    names = [role.interface for role in observation.ports]
    names += [port.interface for port in absent_ports(observation, known)]
    return [*dict.fromkeys([*names, *(link.interface for link in observation.links)])]


def backend_interfaces(observation: Observation, known: Known) -> list[str]:
    """Return the interfaces that may have labels: those of the backend ports."""
    names = {role.interface for role in observation.ports if not role.backend}
    return [name for name in known_interfaces(observation, known) if name not in names]


def unknown_key(key: str, naming: Naming, interfaces: Iterable[str]) -> str:
    """Return the error for a key that is none of a label: it names the nearest ones.

    Of rows that the naming turns off it names the flag.
    """
    shown = key[:MAX_SHOWN]
    for field, flag in FAMILIES:
        default = getattr(Naming(), field)
        keys = (key, f"{default}/{key}", default if default.endswith(f"/{key}") else "")
        with_default = naming._replace(**{field: default})
        if not getattr(naming, field) and any(
            subject_of(full_key, with_default) for full_key in keys
        ):
            return f"{shown!r} is turned off by an empty {flag}"
    known = keys_for(naming, interfaces)
    full = key if "/" in key else f"{naming.prefix}/{key}"
    nearest = get_close_matches(full[:MAX_KEY], known, MAX_NEAREST, MIN_LIKENESS)
    error = f"{shown!r} is no label key of bwagent; "
    if not nearest:
        return f"{error}`bwagent probe -o labels` lists them"
    error += f"nearest: {nearest[0]}"
    for other in nearest[1:]:
        if len(error) + len(other) + 2 <= MAX_ERROR:
            error += f", {other}"
    return error


def explained(
    subject: Subject,
    observation: Observation,
    known: Known,
    rendered: Rendered,
    on_node: Json | None,
) -> Json:
    """Return the document of a label; `on_node` are those of agent/kube/commands.py."""
    key, row, interface, _ = subject
    values = [*row.values(known)]
    value = rendered.labels.get(key)
    hold = rendered.held.get(key) or rendered.incomplete.get(key)
    absence = ABSENCE.get(row.key.partition("/")[2] or row.key, _absence)
    evidence = list(of_row(row.key)(observation, known, interface))
    names = {interface, *(fact.interface for fact in evidence)} - {None}
    roles = [role for role in observation.ports if role.interface in names]
    concerned = {key, *names, *(role.device.name for role in roles)}
    state, reason = "seen", None
    if value is None:
        state, reason = "absent", absence(row, interface, observation, known)
    elif key in rendered.held:
        state = "held"
    elif key in rendered.incomplete:
        state = "incomplete"
    # the text before it is encoded, if it was read now
    texts = (raw.text for raw in values if raw.interface == interface)
    return {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "node": observation.node,
        "boot_id": observation.boot_id,
        "key": key,
        # of the first row with these values; a later row may say "the same"
        "meaning": next(label.value for label in LABELS if label.values is row.values),
        "absent_when": row.absent,
        "state": state,
        "value": value,
        "raw": next((text for text in texts if text), value if key in rendered.frozen else None),
        "hold": {"reason": str(hold), "text": hold.text} if hold else None,
        "reason": reason,
        "evidence": [fact.document for fact in evidence],
        "problems": [
            f"{problem.subject}: {problem.text}"
            for problem in (*rendered.problems, *rendered.notes, *observation.problems)
            if concerned.intersection([problem.subject, *problem.subject.split("/")])
        ],
        "on_node": on_node,
    }


def _absence(row: Label, interface: str | None, observation: Observation, known: Known) -> str:
    """Return the reason why there is no label."""
    if isinstance(observation.rdma, Failed):
        return observation.rdma.reason
    layers = {role.port.link_layer for role in observation.backend}
    lacks_infiniband = row.key.startswith("IB/") and "InfiniBand" not in layers
    if lacks_infiniband and layers:
        return NO_INFINIBAND
    if interface and (reason := _of_interface(interface, observation, known)):
        return reason
    if lacks_infiniband and "rdma" not in observation.off:
        return NO_INFINIBAND
    if lacks_infiniband or _is_switched_off(row, interface, known, observation.off):
        return SWITCHED_OFF
    return _without_text(row, known, layers) or row.absent


def _of_accelerator(
    row: Label, interface: str | None, observation: Observation, known: Known
) -> str:
    """Return the reason why there is no label of an NVLink domain."""
    if _is_switched_off(row, interface, known, observation.off):
        return SWITCHED_OFF
    return observation.accelerator.text or observation.accelerator.reason or row.absent


def _of_tier(row: Label, _interface: str | None, observation: Observation, known: Known) -> str:
    """Return the reason why there is no label of a tier."""
    if isinstance(observation.tiers, Failed):
        return observation.tiers.reason
    fabric = known.fabric
    return fabric.reason.text if fabric and fabric.reason else row.absent


def _is_switched_off(row: Label, interface: str | None, known: Known, off: Collection[str]) -> bool:
    """Return True if the source of a label is left out, to hold a published one or altogether."""
    covering = [value for value in row.values(known) if interface in (None, value.interface)]
    is_unknown = bool(interface) and interface not in {fact.interface for fact in known.facts}
    is_unasked = is_unknown and not {"lldp", "ib"}.isdisjoint(off)
    return is_unasked or any(value.hold is HoldReason.SOURCE_OFF for value in covering)


def _without_text(row: Label, known: Known, layers: Collection[str | None]) -> str | None:
    """Return why the far ends that are there give no text; None if that is no reason."""
    if row.key.endswith(".port-name") and "InfiniBand" not in layers:
        return NO_PORT_NAME
    names = [
        fact.interface
        for fact in known.facts
        if fact.interface and fact.far and fact.far.is_station
    ]
    if not names or row.key.partition("/")[2] not in OF_LEAVES:
        return None
    says = "neighbor says that it is" if len(names) == 1 else "neighbors say that they are"
    return f"no leaf: the {says} neither Bridge nor Router: {listed(names)}"


def _of_interface(interface: str, observation: Observation, known: Known) -> str | None:
    """Return the reason why an interface has no neighbor, or is no backend port."""
    for link in observation.links:
        if link.interface == interface and link.missing:
            reason = NeighborReason.of(link.missing)
            return f"{link.missing}: {reason.text}" if reason else link.missing
    reasons = {port.interface: port.reason for port in absent_ports(observation, known)}
    reasons |= {role.interface: role.reason for role in observation.ports if not role.backend}
    return reasons.get(interface)


class Evidence(NamedTuple):
    """One fact; None is unknown."""

    interface: str | None  # None: it is of no port
    # "sysfs", "lldp", "smp", "sa", "perf", "gpu", "ethtool", "devlink", "annotation", or SUM
    via: str
    subject: str  # a path, a netdev with its frame, a port with its query, a GPU, or what is summed
    fact: str  # the file, TLV, attribute or field
    value: str | None
    seen: float | None  # seconds since the epoch

    @property
    def document(self) -> Json:
        """The JSON object of the fact."""
        return self._asdict() | {"seen": None if self.seen is None else utc(int(self.seen))}


def _file(role: PortRole, seen: Observation, name: str, value: str | None) -> Evidence:
    path = f"{CLASS}/{role.device.name}/ports/{role.port.number}/{name}"
    return Evidence(role.interface, "sysfs", path, name, value, seen.time)


def _driver(role: PortRole, seen: Observation) -> Iterator[Evidence]:
    """Yield what the driver of a port tells: why its link is down, and reporters in error."""
    if not isinstance(seen.nics, Seen):
        return
    nics, netdev = seen.nics.value, role.netdev
    link = nics.links.get(netdev.name) if netdev else None
    if netdev and link and link.text:
        name = f"{netdev.name}: link state"
        yield Evidence(role.interface, "ethtool", name, "LINKSTATE_EXT_STATE", link.text, seen.time)
    nic = nics.health.get(role.device.pci or "")
    for reporter in nic.reporters if nic else ():
        if reporter.state != HEALTHY:
            name = f"{role.device.pci}: health reporter {reporter.name}"
            state = reporter.state
            yield Evidence(
                role.interface, "devlink", name, "HEALTH_REPORTER_STATE", state, seen.time
            )


def flavor(seen: Observation, _known: Known, _interface: str | None) -> Iterable[Evidence]:
    """Yield the link layer of each backend port."""
    return [_file(role, seen, "link_layer", role.port.link_layer) for role in seen.backend]


def speed(seen: Observation, known: Known, _interface: str | None) -> Iterable[Evidence]:
    """Yield state and rate of each backend port, and what those count that cannot be read."""
    for role in seen.backend:
        path = f"{CLASS}/{role.device.name}/ports/{role.port.number}"
        yield Evidence(role.interface, "sysfs", path, "role", role.reason, seen.time)
        yield _file(role, seen, "state", role.port.state)
        yield from _driver(role, seen)
        # the rate of an Ethernet port is that of its netdev, where it has a netdev
        netdev = role.netdev
        if role.port.link_layer == "Ethernet" and netdev and netdev.speed_mbps:
            path, value = f"{NET}/{netdev.name}/speed", f"{netdev.speed_mbps} Mb/s"
            yield Evidence(role.interface, "sysfs", path, "speed", value, seen.time)
        else:
            yield _file(role, seen, "rate", role.port.rate_text)
        if role.leg:
            name, state = "bonding_slave/state", role.leg.bond_state
            path = f"{NET}/{role.leg.name}/{name}"
            yield Evidence(role.interface, "sysfs", path, name, state, seen.time)
        yield Evidence(role.interface, SUM, SUM, "counted_gbps", _gbps(role.counted_gbps), None)
    names = {role.interface for role in seen.backend}
    for role in seen.ports if not names else ():  # why each port of a node is no backend port
        path = f"{CLASS}/{role.device.name}/ports/{role.port.number}"
        yield Evidence(role.interface, "sysfs", path, "role", role.reason, seen.time)
    for fact in known.facts:
        if fact.interface not in names:
            yield Evidence(
                fact.interface, SUM, "what it did last", "counted_gbps", _gbps(fact.gbps), None
            )
    for lost in known.lost:
        yield Evidence(lost.interface, "sysfs", f"{PCI}/{lost.function}", "pci", "gone", seen.time)


def _gbps(gbps: float | None) -> str | None:
    return None if gbps is None else f"{gbps:g} Gb/s"


def neighbor(seen: Observation, _known: Known, interface: str | None) -> Iterable[Evidence]:
    """Yield the facts of the selected neighbor of the interface, or of all interfaces.

    They are the TLVs of its frame, or the attributes in the answer to the query. A port without
    neighbor has its state instead.
    """
    for link in seen.links:
        if interface not in (None, link.interface):
            continue
        roles = [role for role in seen.ports if role.interface == link.interface]
        if not link.neighbors:
            for role in roles:
                yield _file(role, seen, "state", role.port.state)
                yield _file(role, seen, "phys_state", role.port.phys_state)
                yield from _driver(role, seen)
            continue
        selected = link.neighbors[0]
        facts = selected.facts
        rows: list[tuple[str, str | None]]
        if isinstance(facts, LldpNeighbor):
            via = "lldp"
            subject = f"{link.netdev}: frame from {facts.source_mac} to {facts.destination_mac}"
            rows = tlv_texts(facts)
        else:
            port, number = link.interface, "?"
            if roles:
                number = str(roles[0].port.number)
                port = f"{roles[0].device.name} port {number}"
            via, way, field = facts.via, f"directed route 0,{number}", "NodeInfo.LocalPortNum"
            if via == "sa":
                way, field = "the subnet administrator's records", "LinkRecord.ToPortNum"
            subject = f"{port}: {way}"
            rows = [("NodeDescription.NodeString", facts.node_description)]
            if not facts.node_description:
                rows.append(("NodeDescription, earlier", selected.last_description))
            rows += [("NodeInfo.NodeGUID", facts.node_guid), (field, str(facts.port))]
        at = seen.time - (selected.age or 0.0)
        for name, value in rows:
            yield Evidence(link.interface, via, subject, name, value, at)
        subject = "the counters of both ends of the link"
        for counted in seen.read_links:
            if counted.interface == link.interface and (verdict := counted.verdict):
                yield Evidence(link.interface, "perf", subject, "verdict", verdict.text, seen.time)


def leaf_group(seen: Observation, known: Known, _interface: str | None) -> Iterable[Evidence]:
    """Yield the facts of each neighbor, and what is remembered of ports without neighbor."""
    last = {fact.interface: fact.last_far for fact in known.facts if fact.last_far}
    for link in seen.links:
        yield from neighbor(seen, known, link.interface)
        if far := last.pop(link.interface, None):
            yield from () if link.neighbors else [_remembered(link.interface, far)]
    yield from (_remembered(interface, far) for interface, far in last.items())


def _remembered(interface: str, far: FarEnd) -> Evidence:
    return Evidence(interface, "annotation", REMEMBERED, "neighbor", far.device, None)


def accelerator(seen: Observation, _known: Known, _interface: str | None) -> Iterable[Evidence]:
    """Yield the place of each GPU in the NVLink fabric."""
    for gpu in seen.gpus:
        subject = f"GPU {gpu.number} ({gpu.pci})" if gpu.pci else f"GPU {gpu.number}"
        facts = {
            ".state": gpu.state,
            ".status": gpu.status,
            ".clusterUuid": gpu.cluster_uuid,
            ".cliqueId": None if gpu.clique_id is None else str(gpu.clique_id),
            "error": gpu.error,
        }
        for name, value in facts.items():
            if value is not None:
                yield Evidence(None, "gpu", subject, name, value, seen.time)


def tiers(_seen: Observation, known: Known, _interface: str | None) -> Iterable[Evidence]:
    """Yield the links on a way from each leaf to the highest tier, as they were seen last."""
    if (fabric := known.fabric) is None:
        return
    names = {guid: switch.name or guid for guid, switch in fabric.switches.items()}
    names |= {far.id: far.device for fact in known.facts if (far := fact.last_far) and far.id}
    for path in fabric.paths:
        for hop in path:
            near, far_end = (names.get(guid, guid) for guid in (hop.guid, hop.far_guid))
            to = f"{far_end} port {hop.far_port}"
            is_by_smps = hop.guid in fabric.by_smps
            via, fact = ("smp", "NodeInfo") if is_by_smps else ("sa", "LinkRecord")
            yield Evidence(None, via, f"{near} port {hop.port}", fact, to, fabric.time)


# By the last parts of a row's key: the evidence of an interface, or of all (None). A row of the
# label table that has no entry here is of another family with the same last parts.
OF_ROWS: dict[str, Callable[[Observation, Known, str | None], Iterable[Evidence]]] = {
    "flavor": flavor,
    "speed.current": speed,
    "neighbors.current.{if}.device": neighbor,
    "neighbors.current.{if}.port-id": neighbor,
    "neighbors.current.{if}.port-name": neighbor,
    "leaves.current": neighbor,
    "leafgroup.current": leaf_group,
    "tier-1.current": tiers,
    "tier-2.current": tiers,
    "ports.current": neighbor,
    "ACC": accelerator,
}


# The reasons why there is no label, where they are not those of the other rows.
ABSENCE = {"ACC": _of_accelerator, "tier-1.current": _of_tier, "tier-2.current": _of_tier}


def of_row(key: str) -> Callable[[Observation, Known, str | None], Iterable[Evidence]]:
    """Return the function of a row of the label table, by its key there."""
    return OF_ROWS[key.partition("/")[2] or key]


def text_of(document: Json) -> str:
    """Return a document for a person at a terminal, in 80 columns.

    It has the label, its state, the texts of its row, its evidence and the Node's view.
    """

    def named(name: str, text: str) -> list[str]:
        """Return a text behind its name, wrapped in a column of its own."""
        return wrap(visible(text, MAX_TEXT), name.ljust(MARGIN), " " * MARGIN)

    def below(title: str, lines: Iterable[str]) -> list[str]:
        return section(title, lines, most=MAX_TEXT, break_words=False)

    value, state, hold = document["value"], document["state"], document["hold"]
    if state == "absent":
        state = f"absent: {document['reason']}"
    elif hold:
        state = f"{state}, {hold['reason']}: {hold['text']}"
    summary = named("state", state)
    if times := sorted({fact["seen"] for fact in document["evidence"] if fact["seen"]}):
        summary += named("seen", times[0] if len(times) == 1 else f"{times[0]} to {times[-1]}")
    if document["raw"] not in (None, value):
        summary += named("raw", document["raw"])
    summary += named("meaning", document["meaning"])
    summary += named("absent if", document["absent_when"])
    is_equal = ": no label" if value is None else f"={visible(value, MAX_TEXT)}"
    return joined(
        [
            [f"{document['key']}{is_equal}"],
            summary,
            below("Read from", _read_from(document["evidence"])),
            below("Problems", document["problems"]),
            below("On the Node", _on_node(document)),
        ]
    )


def _read_from(evidence: Iterable[Json]) -> Iterator[str]:
    """Yield the facts of each interface; those of a frame, an answer or a GPU below its line."""
    for interface, facts in groupby(evidence, lambda fact: fact["interface"]):
        indent = "  " if interface else ""
        if interface:
            yield str(interface)
        for (via, subject), group in groupby(facts, lambda fact: (fact["via"], fact["subject"])):
            rows = list(group)
            has_line = via in ("lldp", "smp", "sa", "gpu")
            if has_line:
                yield f"{indent}{via} {subject}, {rows[0]['seen']}"
            for row in rows:
                name = f"  {row['fact']}" if has_line else subject
                yield f"{indent}{name}: {'unknown' if row['value'] is None else row['value']}"


def _on_node(document: Json) -> Iterator[str]:
    """Yield what the Node has of the label, and what its annotation has of the interface.

    The rows of all interfaces are shown only if the label was not read in full.
    """
    facts = document["on_node"]
    if facts is None:
        return
    if facts.get("fault"):
        yield f"not read: {facts['fault']}"
        return
    if facts["value"] is None:
        yield "no such label"
    else:
        yield f"{facts['value']}, held by {', '.join(facts['managers']) or 'no field manager'}"
    if facts.get("observed") or facts.get("boot_id") or facts.get("agent"):
        yield _last_observation(facts, document["boot_id"])
    if len(facts["interfaces"]) > 1 and document["state"] == "seen":
        return
    for row in facts["interfaces"]:
        own = {name: value for name, value in row.items() if name not in ("neighbor", "interface")}
        neighbor = row.get("neighbor") or {}
        own |= {f"neighbor {name}": value for name, value in neighbor.items()}
        texts = (f"{name} {'unknown' if own[name] is None else own[name]}" for name in own)
        yield f"annotation, {row['interface']}: {', '.join(texts)}"


def _last_observation(facts: Json, boot_id: str | None) -> str:
    """Return the line of what the annotation says of the agent's last observation."""
    observed, boot = facts.get("observed"), "boot unknown"
    if facts.get("boot_id") and boot_id:
        boot = "this boot" if facts["boot_id"] == boot_id else "another boot"
    line = f"last full observation {observed or 'at an unknown time'}, {boot}"
    line += f", bwagent {facts.get('agent') or 'version unknown'}"
    if (reported := facts.get("reported")) not in {None, observed}:
        line += f"; an incomplete one {reported}"
    return line
