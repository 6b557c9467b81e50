"""Port roles: the ports that are the backend network, their names, and what each of them counts.

The rules in the order of the label contract. Each takes candidates out, with its words, or
abstains; the first that takes a port out gives its reason.

    1  agent/sources/drops.py   ports that are no host data ports
    2  front_end                NICs of the best default route, and spare ports of their cards
    3  gpu_affinity             NICs that are not near a GPU, where that is decisive
    4  link_layer               ports of the other link layer
    5  kind                     NICs of another kind (agent/sources/kinds.py)
    2  front_end_unknown        all of Ethernet, where nothing tells the front end from them

With --backend-device, the devices that it names are the backend. Of the rules only those about a
port of a data device apply then (`drops.no_data`).

A device that cannot be read is a candidate without ports: its PCI ids, place and class are known
from the bus. Where they are not, a node that has labels keeps its roles. One without labels is
`undecided` for the time of --hold, and then decides by what it read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from agent.ids import card_of, is_named
from agent.model import Hint, PortRole, RdmaDevice
from agent.reasons import HoldReason
from agent.sources import drops, left_out
from agent.sources.cards import Devices
from agent.sources.drops import DevicePort, Evidence, PortKey, Verdict, device_ports
from agent.sources.interfaces import (
    IN_USE,
    Labeled,
    Verdicts,
    had_labels,
    is_unread,
    legs_of,
    printed_gbps,
    roles_of,
)
from agent.sources.kinds import (
    UNREAD,
    Cable,
    Candidate,
    Candidates,
    assign_kinds,
    bandwidth,
    by_kind,
    difference,
    ids_of,
    number_of_devices,
    parts_of,
    rank,
    text_of,
)
from agent.sources.steady import DATA_PORT, UNDECIDED, UNKNOWN_FRONT_END, RoleMemory
from agent.sysfs.bus import (
    EMPTY,
    ETHERNET_CLASS,
    INFINIBAND_CLASSES,
    NEAR,
    OMNI_PATH_CLASS,
    Bus,
    Function,
)
from agent.sysfs.front_end import NOT_RECORDED, FrontEnd

MIN_GPUS = 2
NEAR_SHARE = 3, 4  # of the GPUs must have a NIC near for affinity to decide
FEW_ROUTED = 2  # NICs of a kind that a default route may convict
QUARTER = 4
ETHERNET_LEAD = 3  # times the bandwidth of InfiniBand that makes a backend of an Ethernet kind


class Decision(NamedTuple):
    """The role of every port, what is in doubt, and why there are none if they are not known."""

    roles: tuple[PortRole, ...]
    undecided: str | None = None
    hold: HoldReason | None = None  # of what was published; None: HoldReason.SOURCE_FAILED
    hints: tuple[Hint, ...] = ()
    may_be_infiniband: frozenset[str] = frozenset()  # unread devices


NOTHING_DECIDED = Decision(())


def decide(  # noqa: PLR0913 - the evidence, and what is remembered of it
    devices: Devices,
    backend_globs: Sequence[str] = (),
    labeled: Labeled | None = None,
    bus: Bus = EMPTY,
    *,
    front_end: FrontEnd = NOT_RECORDED,
    excluded: Collection[str] = (),
    unbound: Collection[str] = (),
    ambiguous: Collection[str] = (),
    memory: RoleMemory | None = None,
) -> Decision:
    """Assign a role to every port of every device that could be read, in natural order.

    `labeled` are the interfaces that have labels. `excluded` are the PCI functions that
    --exclude-device names, `unbound` those that may be the backend's and have no RDMA device
    (agent/sources/pci.py). `memory` keeps roles while something is missing.
    """
    labeled = labeled or {}
    evidence = Evidence(
        devices, bus, front_end, labeled, frozenset(excluded), ambiguous=frozenset(ambiguous)
    )
    unread = _unread(evidence, unbound)
    ethernet = {pci for pci, function in bus.functions.items() if function.code == ETHERNET_CLASS}
    infiniband = {nic.device.name for nic in unread if nic.device.pci not in ethernet | {None}}
    verdicts: dict[PortKey, Verdict] = {}
    if backend_globs:
        named = {
            device.name
            for device in devices
            if is_named(backend_globs, device.name, device.pci, ids_of(device, bus))
        }
        for candidate in device_ports(devices):
            verdict = Verdict("flag", "not named by --backend-device")
            if candidate.device.name in named:
                data = Verdict("flag", "named by --backend-device", backend=True)
                verdict = next(drops.no_data(candidate), data)
            verdicts[candidate.key] = verdict
        return Decision(
            roles_of(evidence, verdicts), may_be_infiniband=frozenset(infiniband & named)
        )
    candidates = []
    for candidate in device_ports(devices):
        if dropped := drops.drop(candidate, evidence):
            verdicts[candidate.key] = dropped
        else:
            candidates.append(_candidate(candidate, evidence))
    # A sub-device has the function of its parent.
    functions = {nic.device.pci: nic for nic in unread if nic.device.failure and nic.device.pci_ids}
    known = [*functions.values()]
    candidates += known
    assign_kinds(candidates, evidence)
    judged = _judge(candidates, evidence)
    infiniband -= {
        name
        for (name, _), verdict in judged.items()
        if verdict.rule == "link-layer" and not verdict.backend
    }
    unknown = _unknown(candidates, unread, evidence)
    is_undecided = bool(unknown and not labeled) and (memory is None or memory.awaits_unread())
    if is_undecided or (unknown and labeled):
        what = f"{', '.join(unknown)} cannot be read"
        has_labels = Verdict(UNDECIDED, f"has labels, and {what}", backend=True)
        in_doubt = Verdict(UNDECIDED, f"the backend is not known while {what}")
        judged = {
            candidate.key: has_labels if had_labels(candidate.device, labeled) else in_doubt
            for candidate in candidates
        }
    verdicts |= {key: verdict for key, verdict in judged.items() if key[1] != UNREAD}
    undecided: str | None = None
    hold: HoldReason | None = None
    hints: tuple[Hint, ...] = ()
    if memory and not is_undecided:
        verdicts = memory.keep(evidence, verdicts)
    roles = roles_of(evidence, verdicts)
    if is_undecided:
        undecided = in_doubt.text
    elif not any(role.backend for role in roles) and UNKNOWN_FRONT_END in {
        verdict.rule for verdict in verdicts.values()
    }:
        hold = HoldReason.FRONT_END_UNKNOWN
        undecided = f"{hold}: {front_end.unknown}"
    else:
        hints = left_out.hints(roles, evidence, known)
    return Decision(roles, undecided, hold, hints, frozenset(infiniband))


def _candidate(device_port: DevicePort, evidence: Evidence) -> Candidate:
    device, port = device_port
    cables = []
    for leg in legs_of(device_port, evidence.devices):
        gbps = printed_gbps(leg or port.netdev, port)
        is_standby = leg is not None and leg.operstate in {"down", "lowerlayerdown"}
        cables.append(Cable(gbps, is_active=port.state == IN_USE and not is_standby))
    beside = evidence.bus.beside(device.pci, device.numa_node)
    return Candidate(device, port, port.link_layer or "", beside, cables)


def _unread(evidence: Evidence, unbound: Collection[str]) -> list[Candidate]:
    """Return the unread devices, and functions without a device, as a reloading driver has.

    The PCI bus tells what each of them is. VFs, Omni-Path, and functions of a card that manages
    NVSwitches are no candidates. One of unknown class may be an InfiniBand HCA.
    """
    devices, bus = evidence.devices, evidence.bus
    read = {device.pci for device in devices if device.ports or device.excluded} - {None}
    managing = {card_of(device.pci) for device in devices if device.nvswitch_pattern} - {""}
    unread = [
        device
        for device in devices
        if is_unread(device) and (device.ports or device.pci not in read)
    ]
    unread += [
        RdmaDevice(f"PCI function {pci}", failure="unbound", pci=pci)
        for pci in sorted(set(unbound) - {device.pci for device in unread})
    ]
    nics = []
    for device in unread:
        pci = device.pci or ""
        function = bus.functions.get(pci) or Function(pci, min(INFINIBAND_CLASSES))
        is_none = function.is_virtual or function.code == OMNI_PATH_CLASS
        if not is_none and function.card not in managing:
            layer = "InfiniBand" if function.code in INFINIBAND_CLASSES else "Ethernet"
            known = replace(device, pci_ids=function.ids, subsystem=function.subsystem)
            nics.append(Candidate(known, None, layer, bus.beside(pci)))
    return nics


def _unknown(candidates: Candidates, unread: Candidates, evidence: Evidence) -> list[str]:
    """Return what is unread and may change any role: what has no known kind.

    A NIC whose place is not known counts as unread where GPU affinity decides.
    """
    names = [nic.device.name for nic in unread if nic.device.failure and not nic.device.pci_ids]
    if not _is_decisive(candidates, evidence):
        return names
    bus, addresses = evidence.bus, {nic.device.pci for nic in candidates if nic.device.pci}
    misplaced = {
        pci
        for pci in addresses
        if pci in bus.unread or (pci in bus.functions and not bus.functions[pci].has_known_place)
    }
    return names + [f"PCI function {pci}" for pci in sorted(misplaced)]


def _judge(candidates: Candidates, evidence: Evidence) -> dict[PortKey, Verdict]:
    """Return the verdicts of the rules on all candidates."""
    verdicts: dict[PortKey, Verdict] = {}
    decided_by, left = DATA_PORT, list(candidates)
    for name, rule in RULES:
        taken_out = rule(left, evidence)
        if taken_out:
            decided_by = name
        verdicts |= taken_out
        left = [candidate for candidate in left if candidate.key not in taken_out]
    others = [nic for nic in candidates if nic.key in verdicts and verdicts[nic.key].rule == "kind"]
    rival = max(map(bandwidth, by_kind(others).values()), default=0.0)
    near = number_of_devices([nic for nic in left if nic.beside.is_near])
    for candidate in left:
        what = f"{candidate.layer} data port"
        if near:
            what = f"{near} of {number_of_devices(left)} beside a GPU"
        kind = text_of(candidate.device)
        if others:
            kind = f"{bandwidth(left):g}G of {kind} against {rival:g}G"
        elif candidate.device.pci_ids is None:
            kind = ""
        text = ", ".join(filter(None, (what, kind)))
        verdicts[candidate.key] = Verdict(decided_by, text, backend=True)
    return verdicts


# The rules


def front_end(candidates: Candidates, evidence: Evidence) -> Verdicts:
    """Take out the Ethernet NICs of the best default route, and spare ports of their cards.

    A spare port never had a link, nor labels. Without GPU, nothing of the front end counts. With
    GPUs a route convicts a minority only: one or two NICs that are at most half of their kind, or
    those beside which NICs without route have a quarter of the kind's bandwidth. Else the rails
    have gateways, or the node has one network for everything.
    """
    ethernet = [candidate for candidate in candidates if candidate.layer == "Ethernet"]
    routed = [nic for nic in ethernet if evidence.carries_route(nic.device)]
    names = {nic.device.name for nic in routed}
    cards = {card_of(nic.device.pci) for nic in routed} - {""}
    verdicts: dict[PortKey, Verdict] = {}
    for candidate in ethernet:
        port = candidate.port
        netdevs = [netdev for netdev in (port.netdev, *port.legs) if netdev] if port else []
        if (
            card_of(candidate.device.pci) in cards
            and candidate.device.name not in names
            and netdevs
            and all(netdev.carrier_up_count == 0 for netdev in netdevs)
            and not had_labels(candidate.device, evidence.labeled)
        ):
            text = "spare port of the front end's card: it never had a link"
            verdicts[candidate.key] = Verdict("spare-port", text)
    text = "front end: carries the default route"
    if not evidence.bus.gpus:
        return verdicts | {nic.key: Verdict("front-end", text) for nic in routed}
    left = [candidate for candidate in candidates if candidate.key not in verdicts]
    for kind, mine in by_kind(routed).items():
        whole = [nic for nic in left if nic.kind == kind and nic.layer == "Ethernet"]
        others = [nic for nic in left if nic.kind != kind and nic not in routed]
        number, total = number_of_devices(mine), number_of_devices(whole)
        if number <= FEW_ROUTED and number * 2 <= total:
            words = f"{text}, {number} of {total} of its kind"
        elif others and bandwidth(others) * QUARTER >= bandwidth(whole):
            words = f"{text}, {bandwidth(mine):g}G beside {bandwidth(others):g}G without it"
        else:
            continue
        verdicts |= {nic.key: Verdict("front-end", words) for nic in mine}
    return verdicts


def near_gpu(candidates: Candidates, evidence: Evidence) -> dict[PortKey, bool]:
    """Return which candidates are near a GPU, or at the place of a NIC that is.

    The GPU of a NIC at such a place fell off the bus.
    """
    functions = [(nic, evidence.bus.functions.get(nic.device.pci or "")) for nic in candidates]
    places = {nic.key: function.place if function else None for nic, function in functions}
    near = {places[nic.key] for nic in candidates if nic.beside.is_near} - {None}
    return {nic.key: nic.beside.is_near or places[nic.key] in near for nic in candidates}


def _is_decisive(candidates: Candidates, evidence: Evidence) -> bool:
    """Return True if three quarters of the GPUs, of two or more, have a NIC near.

    All NICs on the bus count, bound or not, so that a dead HCA does not change the answer. Those of
    other ports, as of the front end, and excluded ones are not a GPU's.
    """
    bus = evidence.bus
    addresses = {nic.device.pci for nic in candidates if nic.device.pci}
    others = {device.pci for device in evidence.devices if device.ports and device.pci} - addresses
    cards = set(map(card_of, others)) - set(map(card_of, addresses))
    counted = [
        function
        for address, function in bus.functions.items()
        if address in addresses
        or (
            function.is_nic
            and function.code != OMNI_PATH_CLASS
            and address not in others | evidence.excluded
            and function.card not in cards
        )
    ]
    served = sum(any(nic.distance(gpu) in NEAR for nic in counted) for gpu in bus.gpus)
    part, whole = NEAR_SHARE
    return len(bus.gpus) >= MIN_GPUS and served * whole >= len(bus.gpus) * part


def gpu_affinity(candidates: Candidates, evidence: Evidence) -> Verdicts:
    """Take out the NICs that are not near a GPU, where most GPUs have one near."""
    verdicts: dict[PortKey, Verdict] = {}
    if _is_decisive(candidates, evidence):
        near = near_gpu(candidates, evidence)
        for candidate in candidates:
            if not near[candidate.key]:
                distance = candidate.beside.distance
                where = f" ({distance})" if distance else ""
                text = f"not near a GPU{where}, as the backend's NICs are"
                verdicts[candidate.key] = Verdict("gpu-affinity", text)
    return verdicts


def link_layer(candidates: Candidates, evidence: Evidence) -> Verdicts:
    """Take out the ports of the other link layer than the backend's.

    It is InfiniBand if there is any; but Ethernet beside GPUs where one Ethernet kind has three
    times the bandwidth of all InfiniBand candidates, and the rate of each of these is known.
    """
    infiniband = [nic for nic in candidates if nic.layer == "InfiniBand"]
    ethernet = [nic for nic in candidates if nic.layer == "Ethernet"]
    if not infiniband or not ethernet:
        return {}
    most = max(map(bandwidth, by_kind(ethernet).values()))
    is_known = all(nic.gbps for nic in infiniband)
    taken_out, text = ethernet, "Ethernet, and the backend is InfiniBand"
    if evidence.bus.gpus and is_known and most >= ETHERNET_LEAD * bandwidth(infiniband):
        taken_out = infiniband
        text = f"InfiniBand, {bandwidth(infiniband):g}G against {most:g}G of one kind of Ethernet"
    return {nic.key: Verdict("link-layer", text) for nic in taken_out}


def kind(candidates: Candidates, evidence: Evidence) -> Verdicts:
    """Take out the NICs of other kinds than the one of the greatest bandwidth.

    On a tie it is the one at the lower PCI address. Without GPUs nothing tells compute from storage
    among InfiniBand HCAs: all of them count.
    """
    gpus, near = len(evidence.bus.gpus), near_gpu(candidates, evidence)
    if not gpus and any(nic.layer == "InfiniBand" for nic in candidates):
        return {}
    parts = [part for whole in by_kind(candidates).values() for part in parts_of(whole, gpus, near)]
    verdicts: dict[PortKey, Verdict] = {}
    backend = max(parts, key=rank, default=[])
    for part in parts:
        if part is backend:
            continue
        what = f"{text_of(backend[0].device)}{difference(part[0].kind, backend[0].kind)}"
        rates = f"{bandwidth(part):g}G against {bandwidth(backend):g}G"
        if bandwidth(part) == bandwidth(backend):
            rates = "tie: lower PCI address"
        text = f"{part[0].layer} NIC of another kind than the backend's {what} ({rates})"
        verdicts |= {nic.key: Verdict("kind", text) for nic in part}
    return verdicts


def front_end_unknown(candidates: Candidates, evidence: Evidence) -> Verdicts:
    """Take out all Ethernet ports where the front end is not known, if one is not near a GPU."""
    reason, near = evidence.front_end.unknown, near_gpu(candidates, evidence)
    if not reason or all(near.values()) or candidates[0].layer != "Ethernet":
        return {}
    verdict = Verdict(UNKNOWN_FRONT_END, f"the front end is not known: {reason}")
    return {candidate.key: verdict for candidate in candidates}


RULES: tuple[tuple[str, Callable[[Candidates, Evidence], Verdicts]], ...] = (
    ("front-end", front_end),
    ("gpu-affinity", gpu_affinity),
    ("link-layer", link_layer),
    ("kind", kind),
    (UNKNOWN_FRONT_END, front_end_unknown),
)
