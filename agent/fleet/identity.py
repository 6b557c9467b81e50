"""Identities that are used twice: of switches, of switch ports, and of HCAs.

Invariants:
- Only what is certain is said. Some switches have a Chassis ID for each port, some send one Port ID
  from all ports, and a chassis may have one name for several ASICs: none of these is a finding.
- One cause is one finding: what is wrong with the identity of a switch, or is explained by one
  machine that has two Nodes, is not repeated for each port.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from agent.cabling.finding import Finding, PortRef, end_text, finding
from agent.cabling.names import Off, guid, mac, name_keys, node_key
from agent.fleet.model import Fleet, Wire, wires
from agent.grouped import grouped
from agent.text import listed, natural, utc

MAX_CACHED = 1 << 16  # identifiers
MAX_CLAIMS = 0.5  # share of a switch's claimed ports that may be claimed twice
MANY_NAMES = 4  # that are of several switches each: two fabrics
MUCH_OLDER = 3600  # seconds between two reports, which are an hour apart at most


Times = Mapping[str, int | None]  # when each node reported last


def findings(
    fleet: Fleet,
    silent: Collection[str],
    off: Off = frozenset(),
    told: Collection[frozenset[PortRef]] = (),
) -> Iterator[Finding]:
    """Yield the findings; a silent node says nothing of today's cables.

    `off` are the tolerances of names that are switched off, `told` the ports that other findings
    have at one switch port.
    """
    times = {node.name: node.time for node in fleet.nodes}
    machines = defaultdict[str, set[int]](set)  # by Node: those that have several Nodes
    for machine, names in enumerate(_machines(fleet)):
        for name in names:
            machines[name].add(machine)
        stale = [name for name in names if name in silent]
        why = "delete the stale Node, or give each machine its own GUIDs if an image was cloned"
        if 0 < len(stale) < len(names):
            why = f"the agent of {listed(stale)} is silent, so delete that Node if it is stale"
        text = f"{listed(names)} have the same HCA: {why}."
        yield finding("cloned", [], text, nodes=names, facts={"reported": _reported(names, times)})
    # the switch ports that ports of nodes see
    claims = [*wires(node for node in fleet.nodes if node.name not in silent)]
    yield from _switches(claims, off)
    pairs = [same for same in _claimed_twice(claims, off) if len(same) == 2]

    def cause_of(pair: Sequence[Wire]) -> tuple[object, ...]:
        """Two nodes are one cause, two interfaces of a node another at each switch port."""
        first, second = (claim.ref for claim in pair)
        return (first.node, second.node) if first.node != second.node else (first, second)

    for same in grouped(pairs, cause_of).values():
        first, second = (claim.node.name for claim in same[0])
        if first == second or not machines[first] & machines[second]:
            claim = _claim(same, times)
            if frozenset(claim.ports) not in told:
                yield claim


def _reported(names: Iterable[str], times: Times) -> str:
    return ", ".join(f"{name} {utc(time) if (time := times[name]) else 'never'}" for name in names)


def _machines(fleet: Fleet) -> Iterable[tuple[str, ...]]:
    """Return the Nodes of each machine that has several: they have the GUID of one HCA."""
    owner: dict[str, str] = {}
    clones: dict[str, dict[str, None]] = {}  # of the HCA GUIDs that several Nodes have
    for node in fleet.nodes:
        for number in filter(None, (port.node_guid for port in node.ports)):
            first = owner.setdefault(number, node.name)
            if first != node.name:
                clones.setdefault(number, {first: None})[node.name] = None
    return dict.fromkeys(tuple(names) for number, names in clones.items() if _address(number))


@lru_cache(MAX_CACHED)
def _address(text: str | None) -> str | None:
    """Return a GUID or MAC address; None for other text, and if all bits are equal."""
    address = (guid(text) or mac(text)) if text else None
    return address if address and set(address) not in ({"0"}, {"f"}) else None


@lru_cache(MAX_CACHED)
def _identity_of(identity: str | None, label: str) -> str:
    """Return the address of a switch, or else its other identifier, or its label."""
    return _address(identity) or identity or label


# switches


def _named(claim: Wire) -> tuple[str, str]:
    """Return the address and the name of a switch alone; "" without one."""
    return _address(claim.end.id) or "", claim.end.name or ""


def _switches(claims: Sequence[Wire], off: Off) -> Iterator[Finding]:
    """Yield the switches with one identifier and two names, and those with one name and two."""
    seen = {(claim.end.id, claim.end.name) for claim in claims}
    pairs = {(address, name) for number, name in seen if name and (address := _address(number))}
    keys = _names(pairs, off)
    whole = {name: node_key(name, off) for _, name in keys}
    of_address: dict[str, set[str]] = {}
    of_name: dict[str, set[str]] = {}
    for address, name in pairs:
        of_address.setdefault(address, set()).add(keys[address, name])
        of_name.setdefault(whole[name], set()).add(address)
    odd = {
        (address, name)
        for address, name in pairs
        if len(of_address[address]) > 1 or len(of_name[whole[name]]) > 1
    }
    doubtful = [claim for claim in claims if odd and _named(claim) in odd]
    by_address = grouped(doubtful, lambda claim: _named(claim)[0])
    for address, same in by_address.items():
        by_name = grouped(same, lambda claim: keys[_named(claim)])
        if len(by_name) > 1:
            parts = [*by_name.values()]
            names = sorted({part[0].end.device for part in parts}, key=natural)
            why = "it was renamed, or two switches have one identifier"
            if _share_a_port(parts):
                why = "two switches have one identifier, so give each its own"
            called = f"{parts[0][0].end.id}, which is called {' and '.join(names)}"
            text = f"Look at the switch {called}: {why}."
            yield _identity(parts, text, ["names", address], names[0])
    by_name = grouped(doubtful, lambda claim: whole[_named(claim)[1]])
    yield from _several_addresses(by_name.values())


def _several_addresses(of_names: Iterable[Sequence[Wire]]) -> Iterator[Finding]:
    """Yield the names of several switches; many such names are one finding."""
    shared = []  # for each of these names: what is seen of each switch
    for same in of_names:
        switches = grouped(same, lambda claim: _named(claim)[0]).values()
        parts = [part for part in switches if len(_ports(part)) > 1]  # not of a port alone
        if len(parts) > 1 and _share_a_port(parts):
            shared.append(parts)
    if len(shared) >= MANY_NAMES:
        names = sorted({parts[0][0].end.device for parts in shared}, key=natural)
        text = (
            f"Give each switch a name of its own: {len(shared):,} names ({listed(names)}) are each "
            "of several switches; two fabrics may have the same names, or the Nodes be of two "
            "clusters."
        )
        yield _identity([part for parts in shared for part in parts], text, ["ids"], None)
        return
    for parts in shared:
        name = parts[0][0].end.device
        ids = sorted({part[0].end.id or "" for part in parts})
        seen = listed([part[0].ref.text for part in parts])
        text = (
            f"Rename all but one of the switches called {name}: they are {' and '.join(ids)}, "
            f"seen by {seen}."
        )
        yield _identity(parts, text, ["ids", name], name)


def _names(pairs: Iterable[tuple[str, str]], off: Off) -> dict[tuple[str, str], str]:
    """Return the key of each name of an identifier: a short and a qualified name share it."""
    return {
        (identity, name): key
        for identity, same in grouped(pairs, lambda pair: pair[0]).items()
        for name, key in name_keys({name for _, name in same}, off).items()
    }


def _ports(part: Iterable[Wire]) -> set[str]:
    return {claim.end.port_id for claim in part if claim.end.port_id}


def _share_a_port(parts: Sequence[Sequence[Wire]]) -> bool:
    """Return True if two identifiers were seen at one port: no two parts of one chassis."""
    ports = [*map(_ports, parts)]
    return sum(map(len, ports)) > len(set().union(*ports))


def _identity(
    parts: Sequence[Sequence[Wire]], text: str, key: Sequence[object], device: str | None
) -> Finding:
    ports = [claim.ref for part in parts for claim in part]
    nodes = sorted({port.node for port in ports}, key=natural)
    end = (device, None)
    return finding("switch-identity", ports, text, nodes=nodes, key=key, actual=end)


# switch ports


def _claimed_twice(claims: Iterable[Wire], off: Off) -> Iterator[list[Wire]]:
    """Yield the claims of each switch port with several, if the switch numbers its ports."""
    known = [claim for claim in claims if claim.end.port_id]
    ends = (claim.end for claim in known)
    ports = {(_identity_of(end.id, end.label), end.port_id, end.port_name) for end in ends}
    if len(ports) == len(known):
        return

    def named(claim: Wire) -> tuple[str, str]:
        return _identity_of(claim.end.id, claim.end.label), claim.end.device

    keys = _names(set(map(named, known)), off)
    for switch in grouped(known, lambda claim: (named(claim)[0], keys[named(claim)])).values():
        by_port = grouped(switch, lambda claim: (claim.end.port_id, claim.end.port_name))
        twice = [same for same in by_port.values() if len(same) > 1]
        if len(by_port) == 1 or len(twice) <= MAX_CLAIMS * len(by_port):
            yield from twice


def _claim(pairs: Sequence[Sequence[Wire]], times: Times) -> Finding:
    """Return the finding of switch ports that the same two nodes see; the older report is named."""
    ports = [claim.ref for pair in pairs for claim in pair]
    first, second = ports[:2]
    end = pairs[0][0].end.device, pairs[0][0].end.port
    time, other, older = times.get(first.node), times.get(second.node), None
    if time is not None and other is not None and abs(time - other) >= MUCH_OLDER:
        older = first.node if time < other else second.node
    why = "look for a device between them and the switch, or for a label that is stale"
    if older:
        why = f"the report of {older} is older, so look at its cable first"
    what = f"{first.text} and {second.text} see the same port, {end_text(end)}"
    if len(pairs) > 1:
        example = f"such as {end_text(end)} ({first.interface} and {second.interface})"
        what = f"{first.node} and {second.node} see the same {len(pairs)} ports, {example}"
    facts = {"stale": older, "reported": _reported(dict.fromkeys((first.node, second.node)), times)}
    return finding("claimed", ports, f"{what}: {why}.", facts=facts, actual=end)
