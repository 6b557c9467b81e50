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
from agent.sources.drops import DevicePort, Evidence, PortKey, Verdict, device_ports
from agent.sources.interfaces import (
    IN_USE,
    Devices,
    Labeled,
    had_labels,
    is_unread,
    legs_of,
    printed_gbps,
    roles_of,
)
from agent.sources.kinds import (
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
from agent.sources.steady import UNDECIDED, RoleMemory, Verdicts
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
UNKNOWN_FRONT_END = "front-end-unknown"


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
    is_old_guest: bool = False,
    memory: RoleMemory | None = None,
) -> Decision:
    """Assign a role to every port of every device that could be read, in natural order.

    `labeled` are the interfaces that have labels. `excluded` are the PCI functions that
    --exclude-device names, `unbound` those that may be the backend's and have no RDMA device
    (agent/sources/pci.py). `memory` keeps roles while something is missing.
    """
    evidence = Evidence(
        devices, bus, front_end, labeled or {}, frozenset(excluded), is_old_guest=is_old_guest
    )
    unread = _may_be_infiniband(devices, backend_globs, bus)
    if backend_globs:
        roles = roles_of(evidence, _not_named(devices, backend_globs), {})
        return Decision(roles, may_be_infiniband=unread)
    dropped: dict[PortKey, Verdict] = {}
    candidates: list[Candidate] = []
    for one in device_ports(devices):
        if verdict := drops.drop(one, evidence):
            dropped[one.key] = verdict
        else:
            candidates.append(_candidate(one, evidence))
    known, unknown = _unread(evidence, unbound)
    candidates += known
    assign_kinds(candidates, evidence)
    ignored, backend = _judge(candidates, evidence)
    unread -= {key[0] for key, verdict in ignored.items() if verdict.rule == "link-layer"}
    ignored = dropped | {key: verdict for key, verdict in ignored.items() if key[1] >= 0}
    if doubted := _doubted(candidates, evidence, unknown):
        text = f"the backend is not known while {', '.join(doubted)} cannot be read"
        in_doubt = Verdict(UNDECIDED, text)
        if evidence.labeled:
            text = f"has labels, and {', '.join(doubted)} cannot be read"
            names = [device.name for device in devices if had_labels(device, evidence.labeled)]
            backend = {
                candidate.key: Verdict(UNDECIDED, text)
                for candidate in candidates
                if candidate.port and candidate.device.name in names
            }
            others = [one.key for one in candidates if one.port and one.key not in backend]
            ignored = dropped | dict.fromkeys(others, in_doubt)
        elif memory is None or memory.awaits_unread():
            keys = [candidate.key for candidate in candidates if candidate.port]
            roles = roles_of(evidence, dropped | dict.fromkeys(keys, in_doubt), {})
            return Decision(roles, text, may_be_infiniband=unread)
    if memory:
        ignored, backend = map(dict, memory.keep(evidence, ignored, backend))
    roles = roles_of(evidence, ignored, backend)
    if not backend and any(one.rule == UNKNOWN_FRONT_END for one in ignored.values()):
        reason = HoldReason.FRONT_END_UNKNOWN
        return Decision(roles, f"{reason}: {front_end.unknown}", reason, may_be_infiniband=unread)
    return Decision(roles, hints=left_out.hints(roles, evidence, known), may_be_infiniband=unread)


def _judge(
    candidates: Candidates, evidence: Evidence
) -> tuple[dict[PortKey, Verdict], dict[PortKey, Verdict]]:
    """Return the verdicts on ignored candidates and on backend ports."""
    ignored: dict[PortKey, Verdict] = {}
    decided_by, left = "data-port", list(candidates)
    for name, rule in RULES:
        verdicts = rule(left, evidence)
        if verdicts:
            decided_by = name
        ignored |= verdicts
        left = [candidate for candidate in left if candidate.key not in verdicts]
    others = [one for one in candidates if ignored.get(one.key, ("",))[0] == "kind"]
    rival = max(map(bandwidth, by_kind(others).values()), default=0.0)
    near = number_of_devices([one for one in left if one.beside.is_near])
    backend = {}
    for candidate in left:
        what = f"{candidate.layer} data port"
        if near:
            what = f"{near} of {number_of_devices(left)} beside a GPU"
        kind = text_of(candidate.device)
        if others:
            kind = f"{bandwidth(left):g}G of {kind} against {rival:g}G"
        elif candidate.device.pci_ids is None:
            kind = ""
        if candidate.port:
            backend[candidate.key] = Verdict(decided_by, ", ".join(filter(None, (what, kind))))
    return ignored, backend


def _candidate(one: DevicePort, evidence: Evidence) -> Candidate:
    device, port = one
    cables = []
    for leg in legs_of(one, evidence.devices):
        gbps = printed_gbps(leg or port.netdev, port)
        is_standby = leg is not None and leg.operstate in {"down", "lowerlayerdown"}
        cables.append(Cable(gbps, is_active=port.state == IN_USE and not is_standby))
    beside = evidence.bus.beside(device.pci, device.numa_node)
    return Candidate(device, port, port.link_layer or "", beside, cables)


def _may_be_infiniband(devices: Devices, backend_globs: Sequence[str], bus: Bus) -> frozenset[str]:
    """Return the unread devices that may be InfiniBand HCAs of the backend.

    A device is none if it has no PCI function (rxe, siw), if the class of that is another one, if
    it is a VF or belongs to the card of an NVSwitch management function, or if --backend-device
    does not name it.
    """
    managing = {card_of(device.pci) for device in devices if device.nvswitch_pattern}
    found = set()
    for device in devices:
        function = bus.functions.get(device.pci or "")
        if not (is_unread(device) and device.pci) or card_of(device.pci) in managing:
            continue
        if backend_globs and not is_named(
            backend_globs, device.name, device.pci, ids_of(device, bus)
        ):
            continue
        if function is None or not (function.is_virtual or function.code == ETHERNET_CLASS):
            found.add(device.name)
    return frozenset(found)


def _not_named(devices: Devices, globs: Sequence[str]) -> Verdicts:
    """Return the ports of the devices that no glob names, and the ports without data."""
    verdicts: dict[PortKey, Verdict] = {}
    for one in device_ports(devices):
        if not is_named(globs, one.device.name, one.device.pci, one.device.pci_ids):
            verdicts[one.key] = Verdict("flag", "not named by --backend-device")
        elif dropped := next(drops.no_data(one), None):
            verdicts[one.key] = Verdict(*dropped)
    return verdicts


# What is unread


def _unread(
    evidence: Evidence, unbound: Collection[str]
) -> tuple[list[Candidate], list[RdmaDevice]]:
    """Return the candidates that are unread: of known function, and devices of which none is known.

    A function without RDMA device, as one whose driver reloads, is one too.
    """
    devices, bus = evidence.devices, evidence.bus
    judged = {device.pci for device in devices if device.ports or device.excluded}
    names = {pci: RdmaDevice(f"@{pci}", failure="unbound", pci=pci) for pci in sorted(unbound)}
    unknown = []
    for device in devices:
        if device.failure and device.pci not in judged:
            function = bus.functions.get(device.pci or "")
            if function and function.ids:
                names[function.address] = device
            elif device.pci not in names:
                unknown.append(device)
    managing = {card_of(device.pci) for device in devices if device.nvswitch_pattern}
    known = []
    for address, device in names.items():
        # One of unknown class may be an InfiniBand HCA.
        function = bus.functions.get(address) or Function(address, min(INFINIBAND_CLASSES))
        if function.is_virtual or function.card in managing or function.code == OMNI_PATH_CLASS:
            continue
        layer = "InfiniBand" if function.code in INFINIBAND_CLASSES else "Ethernet"
        known_device = replace(device, pci_ids=function.ids, subsystem=function.subsystem)
        known.append(Candidate(known_device, None, layer, bus.beside(address)))
    return known, unknown


def _doubted(
    candidates: Candidates, evidence: Evidence, unknown: Collection[RdmaDevice]
) -> list[str]:
    """Return what is unread and may change any role: what has no known kind.

    A NIC whose place is not known is one of them where GPU affinity decides.
    """
    functions = set()
    if _is_decisive(candidates, evidence):
        places = [evidence.bus.functions.get(one.device.pci or "") for one in candidates]
        functions |= {one.address for one in places if one and not one.has_known_place}
        functions |= evidence.bus.unread & {one.device.pci for one in candidates if one.device.pci}
    devices = (device.name for device in unknown)
    return [*devices, *(f"PCI function {address}" for address in sorted(functions))]


# The rules


def front_end(candidates: Candidates, evidence: Evidence) -> Verdicts:
    """Take out the Ethernet NICs of the best default route, and spare ports of their cards.

    A spare port never had a link, nor labels. Without GPU, nothing of the front end counts. With
    GPUs a route convicts a minority only: one or two NICs that are at most half of their kind, or
    those beside which NICs without route have a quarter of the kind's bandwidth. Else the rails
    have gateways, or the node has one network for everything.
    """
    routed = [
        candidate
        for candidate in candidates
        if candidate.layer == "Ethernet" and evidence.carries_route(candidate.device)
    ]
    names = {candidate.device.name for candidate in routed}
    cards = {card_of(candidate.device.pci) for candidate in routed} - {""}
    verdicts: dict[PortKey, Verdict] = {}
    for candidate in candidates:
        port = candidate.port
        if port is None or candidate.layer != "Ethernet" or candidate.device.name in names:
            continue
        netdevs = [netdev for netdev in (port.netdev, *port.legs) if netdev]
        if (
            card_of(candidate.device.pci) in cards
            and netdevs
            and all(netdev.carrier_up_count == 0 for netdev in netdevs)
            and not had_labels(candidate.device, evidence.labeled)
        ):
            text = "spare port of the front end's card: it never had a link"
            verdicts[candidate.key] = Verdict("spare-port", text)
    text = "front end: carries the default route"
    if not evidence.bus.gpus:
        return verdicts | {one.key: Verdict("front-end", text) for one in routed}
    left = [one for one in candidates if one.key not in verdicts]
    for kind, mine in by_kind(routed).items():
        whole = [one for one in left if one.kind == kind and one.layer == "Ethernet"]
        others = [one for one in left if one.kind != kind and one not in routed]
        number, total = number_of_devices(mine), number_of_devices(whole)
        words = None
        if number <= FEW_ROUTED and number * 2 <= total:
            words = f"{text}, {number} of {total} of its kind"
        elif others and bandwidth(others) * QUARTER >= bandwidth(whole):
            words = f"{text}, {bandwidth(mine):g}G beside {bandwidth(others):g}G without it"
        if words:
            verdicts |= {one.key: Verdict("front-end", words) for one in mine}
    return verdicts


def front_end_unknown(candidates: Candidates, evidence: Evidence) -> Verdicts:
    """Take out all Ethernet ports where the front end is not known, if one is not near a GPU."""
    reason, near = evidence.front_end.unknown, near_gpu(candidates, evidence)
    if not reason or all(near.values()) or candidates[0].layer != "Ethernet":
        return {}
    verdict = Verdict(UNKNOWN_FRONT_END, f"the front end is not known: {reason}")
    return {candidate.key: verdict for candidate in candidates}


def near_gpu(candidates: Candidates, evidence: Evidence) -> dict[PortKey, bool]:
    """Return which candidates are near a GPU, or at the place of one that is.

    The GPU of one at such a place fell off the bus.
    """
    functions = evidence.bus.functions
    found = {one.key: functions.get(one.device.pci or "") for one in candidates}
    places = {key: function and function.place for key, function in found.items()}
    near = {places[candidate.key] for candidate in candidates if candidate.beside.is_near} - {None}
    return {one.key: one.beside.is_near or places[one.key] in near for one in candidates}


def _is_decisive(candidates: Candidates, evidence: Evidence) -> bool:
    """Return True if three quarters of the GPUs, of two or more, have a NIC near.

    All NICs on the bus count, bound or not, so that a dead HCA does not change the answer. Those of
    other ports, as of the front end, and excluded ones are not a GPU's.
    """
    bus = evidence.bus
    addresses = {candidate.device.pci for candidate in candidates if candidate.device.pci}
    others = {one.pci for one in evidence.devices if one.ports and one.pci} - addresses
    cards = {card_of(one) for one in others} - {card_of(one) for one in addresses}
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
    gpus = bus.gpus
    served = sum(any(nic.distance(gpu) in NEAR for nic in counted) for gpu in gpus)
    part, whole = NEAR_SHARE
    return len(gpus) >= MIN_GPUS and served * whole >= len(gpus) * part


def gpu_affinity(candidates: Candidates, evidence: Evidence) -> Verdicts:
    """Take out the NICs that are not near a GPU, where most GPUs have one near."""
    if not _is_decisive(candidates, evidence):
        return {}
    near = near_gpu(candidates, evidence)
    verdicts: dict[PortKey, Verdict] = {}
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
    infiniband = [one for one in candidates if one.layer == "InfiniBand"]
    ethernet = [one for one in candidates if one.layer == "Ethernet"]
    if not infiniband or not ethernet:
        return {}
    most = max(map(bandwidth, by_kind(ethernet).values()))
    is_known = all(candidate.gbps for candidate in infiniband)
    if evidence.bus.gpus and is_known and most >= ETHERNET_LEAD * bandwidth(infiniband):
        text = f"InfiniBand, {bandwidth(infiniband):g}G against {most:g}G of one kind of Ethernet"
        return {candidate.key: Verdict("link-layer", text) for candidate in infiniband}
    text = "Ethernet, and the backend is InfiniBand"
    return {candidate.key: Verdict("link-layer", text) for candidate in ethernet}


def kind(candidates: Candidates, evidence: Evidence) -> Verdicts:
    """Take out the NICs of other kinds than the one of the greatest bandwidth.

    On a tie it is the one at the lower PCI address. Without GPUs nothing tells compute from storage
    among InfiniBand HCAs: all of them count.
    """
    gpus, near = len(evidence.bus.gpus), near_gpu(candidates, evidence)
    if not gpus and any(candidate.layer == "InfiniBand" for candidate in candidates):
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
        verdicts |= {candidate.key: Verdict("kind", text) for candidate in part}
    return verdicts


RULES: tuple[tuple[str, Callable[[Candidates, Evidence], Verdicts]], ...] = (
    ("front-end", front_end),
    ("gpu-affinity", gpu_affinity),
    ("link-layer", link_layer),
    ("kind", kind),
    (UNKNOWN_FRONT_END, front_end_unknown),
)
