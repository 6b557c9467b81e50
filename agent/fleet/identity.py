"""Identities that are used twice: of switches, of switch ports, and of HCAs.

Invariants:
- Only what is certain is said. Some switches have a Chassis ID for each port, some send one Port ID
  from all ports, and a chassis may have one name for several ASICs: none of these is a finding.
- One cause is one finding: what is wrong with the identity of a switch, or is explained by one
  machine that has two Nodes, is not repeated for each port.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import UNKNOWN, PortRef, finding, grouped
from agent.findings.names import guid, mac
from agent.fleet.cables import end_text, port_text
from agent.model import natural
from agent.text import listed, utc

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from agent.findings.finding import Finding
    from agent.fleet.model import FarEnd, Fleet, FleetNode

MAX_CACHED = 1 << 16  # identifiers
MAX_CLAIMS = 0.5  # share of a switch's claimed ports that may be claimed twice
MANY_NAMES = 4  # that are of several switches each: two fabrics
MUCH_OLDER = 3600  # seconds between two reports, which are an hour apart at most


class _Claim(NamedTuple):
    """A switch port that a port of a node sees."""

    port: PortRef
    end: FarEnd


class _Reports(NamedTuple):
    """When the nodes reported last, and which are silent."""

    times: Mapping[str, int | None]
    silent: Collection[str]

    def text(self, names: Iterable[str]) -> str:
        """Return when each of these nodes reported."""
        times = ((name, self.times.get(name)) for name in names)
        return ", ".join(f"{name} {utc(time) if time else 'never'}" for name, time in times)

    def older(self, first: str, second: str) -> str | None:
        """Return the node whose report is much older; None if neither is."""
        one, other = self.times.get(first), self.times.get(second)
        if one is None or other is None or abs(one - other) < MUCH_OLDER:
            return None
        return first if one < other else second


def findings(fleet: Fleet, silent: Collection[str]) -> list[Finding]:
    """Return the findings; what a silent node says is no proof against a switch."""
    reports = _Reports({node.name: node.time for node in fleet.nodes}, silent)
    clones = _clones(fleet.nodes)
    claims = [_Claim(*one) for node in fleet.nodes for one in _ends(node)]
    fresh = [one for one in claims if one.port.node not in silent]
    machines = grouped(
        ((name, machine) for machine, names in enumerate(clones) for name in names),
        lambda one: one[0],
    )
    twins = {name: {machine for _, machine in same} for name, same in machines.items()}
    return [
        *(_cloned(names, reports) for names in clones),
        *_switches(fresh),
        *_claimed(claims, twins, reports),
    ]


def _ends(node: FleetNode) -> Iterator[tuple[PortRef, FarEnd]]:
    for port in node.ports:
        if port.far_end and not port.is_lost:
            yield PortRef(node.name, port.interface), port.far_end


@lru_cache(MAX_CACHED)
def _address(text: str | None) -> str | None:
    """Return a GUID or MAC address; None for other text, and for one of zeros or ones."""
    found = (guid(text) or mac(text)) if text else None
    return found if found and set(found) not in ({"0"}, {"f"}) else None


# HCAs


def _clones(nodes: Iterable[FleetNode]) -> list[tuple[str, ...]]:
    """Return the sets of Nodes that have an HCA GUID in common."""
    first: dict[str, str] = {}
    owners: dict[str, dict[str, None]] = {}  # of the GUIDs that several Nodes have
    for node in nodes:
        for number in filter(None, (port.node_guid for port in node.ports)):
            owner = first.setdefault(number, node.name)
            if owner != node.name:
                owners.setdefault(number, {owner: None})[node.name] = None
    return list(dict.fromkeys(tuple(names) for one, names in owners.items() if _address(one)))


def _cloned(names: Sequence[str], reports: _Reports) -> Finding:
    """Return the finding of one machine, or one image, with several Nodes."""
    stale = [name for name in names if name in reports.silent]
    if stale and len(stale) < len(names):
        why = f"the agent of {listed(stale)} is silent, so delete that Node if it is stale"
    else:
        why = "delete the stale Node, or give each machine its own GUIDs if an image was cloned"
    text = f"{listed(names)} have the same HCA: {why}."
    facts = {"reported": reports.text(names)}
    return finding("cloned", [], text, nodes=names, facts=facts)


# switches


def _switches(claims: Sequence[_Claim]) -> Iterator[Finding]:
    """Yield the switches with one identifier and two names, and those with one name and two."""
    known = _of_doubt(claims)
    by_id = grouped(known, lambda one: _address(one.end.id) or "")
    for same in by_id.values():
        names = grouped(same, lambda one: (one.end.name or "").casefold())
        if len(names) > 1:
            yield _two_names([*names.values()])
    by_name = grouped(known, lambda one: (one.end.name or "").casefold()).values()
    shared = [parts for same in by_name if (parts := _of_two_switches(same))]
    if len(shared) < MANY_NAMES:
        yield from map(_two_ids, shared)
    else:
        yield _two_fabrics(shared)


def _of_doubt(claims: Sequence[_Claim]) -> list[_Claim]:
    """Return the claims of identifiers with several names, and of names with several of them."""
    pairs = {(one.end.id, one.end.name) for one in claims if one.end.name}
    known = {(_address(number), (name or "").casefold()) for number, name in pairs}
    names = Counter(number for number, _ in known if number)
    numbers = Counter(name for number, name in known if number)
    return [
        one
        for one in claims
        if (number := _address(one.end.id))
        and one.end.name
        and (names[number] > 1 or numbers[one.end.name.casefold()] > 1)
    ]


def _of_two_switches(same: Sequence[_Claim]) -> list[list[_Claim]]:
    """Return what is seen of each switch with this name; empty if it may be of one."""
    ids = grouped(same, lambda one: _address(one.end.id) or "").values()
    of_switches = [part for part in ids if len(_ports(part)) > 1]  # not of a port alone
    return of_switches if len(of_switches) > 1 and _share_a_port(of_switches) else []


def _ports(part: Iterable[_Claim]) -> set[str]:
    return {one.end.port_id for one in part if one.end.port_id}


def _share_a_port(parts: Sequence[Sequence[_Claim]]) -> bool:
    """Return True if two identifiers were seen at one port: no two parts of one chassis."""
    ports = [*map(_ports, parts)]
    return sum(map(len, ports)) > len(set().union(*ports))


def _two_names(parts: Sequence[Sequence[_Claim]]) -> Finding:
    names = sorted({part[0].end.name or "" for part in parts}, key=natural)
    identity = parts[0][0].end.id or ""
    why = (
        "two switches have one identifier, so give each its own"
        if _share_a_port(parts)
        else "it was renamed, or two switches have one identifier"
    )
    text = f"Look at the switch {identity}, which is called {' and '.join(names)}: {why}."
    return _identity(parts, text, ["names", _address(identity)], names[0])


def _two_ids(parts: Sequence[Sequence[_Claim]]) -> Finding:
    ids = sorted({part[0].end.id or "" for part in parts})
    name = parts[0][0].end.name or ""
    ports = [port_text(part[0].port) for part in parts]
    text = (
        f"Rename all but one of the switches called {name}: they are {' and '.join(ids)}, "
        f"seen by {listed(ports)}."
    )
    return _identity(parts, text, ["ids", name], name)


def _two_fabrics(shared: Sequence[Sequence[Sequence[_Claim]]]) -> Finding:
    names = sorted({parts[0][0].end.name or "" for parts in shared}, key=natural)
    text = (
        f"Give each switch a name of its own: {len(shared):,} names ({listed(names)}) are each "
        "of several switches; two fabrics may have the same names, or the Nodes be of two clusters."
    )
    return _identity([part for parts in shared for part in parts], text, ["ids"], None)


def _identity(
    parts: Sequence[Sequence[_Claim]], text: str, key: Sequence[object], device: str | None
) -> Finding:
    ports = [one.port for part in parts for one in part]
    nodes = sorted({port.node for port in ports}, key=natural)
    end = (device, None)
    return finding("switch-identity", ports, text, nodes=nodes, key=key, actual=end)


# switch ports


def _claimed(
    claims: Iterable[_Claim], twins: Mapping[str, set[int]], reports: _Reports
) -> Iterator[Finding]:
    """Yield the switch ports that two interfaces see, if the switch numbers its ports."""
    known = (one for one in claims if one.end.port_id)
    for switch in grouped(known, lambda one: (one.end.switch, one.end.device.casefold())).values():
        by_port = grouped(switch, lambda one: (one.end.port_id, one.end.port_name))
        twice = [same for same in by_port.values() if len(same) > 1]
        if len(by_port) > 1 and len(twice) > MAX_CLAIMS * len(by_port):
            continue
        for same in twice:
            first, second = same[0].port.node, same[1].port.node
            is_one = first != second and twins.get(first, set()) & twins.get(second, set())
            if len(same) == 2 and not is_one:
                yield _claim(same, reports)


def _claim(same: Sequence[_Claim], reports: _Reports) -> Finding:
    """Return the finding of one switch port; the likelier stale claim is named."""
    ports = [one.port for one in same]
    first, second = ports
    end = same[0].end.device, same[0].end.port
    stale = [port.node for port in ports if port.node in reports.silent]
    older = stale[0] if len(stale) == 1 else reports.older(first.node, second.node)
    if len(stale) == 1:
        why = f"the agent of {older} is silent, so its label is likely to be stale"
    elif older:
        why = f"the report of {older} is older, so look at its cable first"
    else:
        why = "look for a device between them and the switch, or for a label that is stale"
    text = f"{port_text(first)} and {port_text(second)} see the same port, {end_text(end)}: {why}."
    severity = UNKNOWN if stale else None
    facts = {"stale": older, "reported": reports.text(dict.fromkeys((first.node, second.node)))}
    return finding("claimed", ports, text, severity=severity, facts=facts, actual=end)
