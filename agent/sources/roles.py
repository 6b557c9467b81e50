"""Port roles: the ports that are the backend network, and the evidence in words.

The rules in the order of the label contract. Each takes candidates out, with its words, or
abstains; the first that takes a port out gives its reason.

    1  no_data_port             ports that are no host data ports
    2  spare_ports, front_end   NICs of the best default route, and spare ports of their cards
    3  gpu_affinity             NICs that are not near a GPU, where that is decisive
    4  link_layer               ports of the other link layer
    5  kind                     NICs of another kind (agent/sources/kinds.py)
    2  front_end_unknown        all of Ethernet, where nothing tells the front end from them

A device that cannot be read is a candidate without ports: its PCI ids, place and class are known
from the bus. Where they are not, a node that has labels keeps its roles. One without labels is
`undecided` for the time of --hold, and then decides by what it read.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from agent.ids import card_of, is_named
from agent.model import Hint, PortRole, RdmaDevice
from agent.reasons import HoldReason
from agent.sources import kinds, left_out
from agent.sources.cards import smi_parent, socket_direct_twin
from agent.sources.interfaces import (
    DevicePort,
    PortKey,
    RoleEvidence,
    RoleVerdict,
    had_labels,
    is_unread,
    roles_of,
)
from agent.sources.kinds import Candidate, Candidates, bandwidth, number_of_devices
from agent.sources.netdev import is_representor
from agent.sysfs.bus import INFINIBAND_CLASSES, NEAR, NO_INFINIBAND, OMNI_PATH_CLASS, Function
from agent.sysfs.front_end import netdevs_of
from agent.text import listed

if TYPE_CHECKING:  # a probe, which has none, does not load it
    from agent.sources.steady import RoleMemory

DATA_PORT = "data-port"  # no rule took the port out
UNDECIDED = "undecided"
UNKNOWN_FRONT_END = "front-end-unknown"
MIN_GPUS = 2
NEAR_SHARE = 0.75  # of the GPUs must have a NIC near for affinity to decide
FEW_ROUTED = 2  # NICs of a kind that a default route may convict
QUARTER = 4
ETHERNET_LEAD = 3  # times the bandwidth of InfiniBand that makes a backend of an Ethernet kind
CLOUD_DRIVERS = frozenset({"mana", "erdma"})  # Azure's and Alibaba's virtual NICs
_OMNI_PATH = re.compile(r"hfi[0-9]")  # the drivers hfi1 and hfi2, and the names that they give

TakenOut = Iterator[tuple[Candidates, str]]  # by a rule, with its words


class Decision(NamedTuple):
    """The role of every port, what is in doubt, and why there are none if they are not known."""

    roles: tuple[PortRole, ...]
    undecided: str | None = None
    hold: HoldReason | None = None  # of what was published; None: HoldReason.SOURCE_FAILED
    hints: tuple[Hint, ...] = ()
    unread: Mapping[str, str] = MappingProxyType({})  # link layers, by device


def decide(
    evidence: RoleEvidence, globs: Sequence[str] = (), memory: "RoleMemory | None" = None
) -> Decision:
    """Assign a role to every port of every device that could be read, in natural order.

    The devices that `globs` (--backend-device) name are the backend; of the rules only those about
    a port of a data device apply then. `memory` keeps roles while something is missing.
    """
    unread = _unread_candidates(evidence)
    if globs:
        return _by_flag(evidence, globs, _layers(unread, {}))
    dropped = {port.key: next(no_data_port(port, evidence), None) for port in evidence.ports}
    verdicts = {key: verdict for key, verdict in dropped.items() if verdict}
    left = [port for port in evidence.ports if port.key not in verdicts]
    # A sub-device has the function of its parent.
    known = {nic.device.pci: nic for nic in unread if nic.device.failure and nic.device.pci_ids}
    candidates = [*(kinds.candidate(port, evidence) for port in left), *known.values()]
    kinds.assign(candidates, evidence)
    verdicts |= _judge(candidates, evidence)
    decision = Decision((), unread=_layers(unread, verdicts))
    unknown = _unknown(candidates, unread, evidence)
    if unknown and (evidence.labeled or memory is None or memory.awaits_unread()):
        what = f"{', '.join(unknown)} cannot be read"
        doubt = f"the backend is not known while {what}"
        if not evidence.labeled:
            return decision._replace(undecided=doubt)
        for nic in candidates:
            is_kept = had_labels(nic.device, evidence.labeled)
            text = f"has labels, and {what}" if is_kept else doubt
            verdicts[nic.key] = RoleVerdict(UNDECIDED, text, is_kept)
    dark = [] if evidence.labeled else _dark(unread, verdicts)
    if memory:
        verdicts = memory.keep(evidence, verdicts)
    roles = roles_of(evidence, verdicts)
    if dark:
        undecided = f"{listed(dark)}: no RDMA device: is its driver loaded?"
        return decision._replace(roles=roles, undecided=undecided)
    rules = {role.rule for role in roles}
    if UNKNOWN_FRONT_END in rules and not any(role.backend for role in roles):
        hold = HoldReason.FRONT_END_UNKNOWN
        return decision._replace(undecided=f"{hold}: {evidence.front_end.unknown}", hold=hold)
    return decision._replace(roles=roles, hints=left_out.hints(roles, evidence, candidates))


def _layers(unread: Candidates, verdicts: Mapping[PortKey, RoleVerdict]) -> dict[str, str]:
    """Return the link layers of unread devices, without those that rule 4 takes out."""
    out = {key for key, its in verdicts.items() if its.rule == "link-layer" and not its.backend}
    return {nic.device.name: nic.layer for nic in unread if nic.key not in out}


def _by_flag(evidence: RoleEvidence, globs: Sequence[str], unread: Mapping[str, str]) -> Decision:
    """Decide by --backend-device; `unread` are link layers of unread devices."""
    named = {
        device.name
        for device in evidence.devices
        if is_named(globs, device.name, device.pci, kinds.ids_of(device, evidence.bus))
    }
    data = RoleVerdict("flag", "named by --backend-device", backend=True)
    other = RoleVerdict("flag", "not named by --backend-device")
    verdicts = {
        port.key: next(_no_data_of_its_own(port), data) if port.device.name in named else other
        for port in evidence.ports
    }
    its = {name: layer for name, layer in unread.items() if name in named}
    return Decision(roles_of(evidence, verdicts), unread=its)


def _unread_candidates(evidence: RoleEvidence) -> list[Candidate]:
    """Return the unread devices, and functions without a device, as a reloading driver has.

    VFs, devices of other networks, and functions of a card that manages NVSwitches are no
    candidates. One of unknown PCI class may be an InfiniBand HCA.
    """
    devices, bus = evidence.devices, evidence.bus
    read = {device.pci for device in devices if device.ports or device.excluded} - {None}
    managing = {card_of(device.pci) for device in devices if device.nvswitch_pattern} - {""}
    unread = [
        device
        for device in devices
        if is_unread(device) and (device.ports or device.pci not in read)
    ]
    unbound = sorted(evidence.unbound - {device.pci for device in unread})
    unread += [RdmaDevice(f"PCI function {pci}", failure="unbound", pci=pci) for pci in unbound]
    nics = []
    for device in unread:
        pci = device.pci or ""
        function = bus.functions.get(pci) or Function(pci, min(INFINIBAND_CLASSES))
        is_none = function.is_virtual or any(other_network(device, evidence))
        if not is_none and function.card not in managing:
            layer = "Ethernet" if function.code in NO_INFINIBAND else "InfiniBand"
            known = device._replace(pci_ids=function.ids, subsystem=function.subsystem)
            nics.append(Candidate(known, None, layer, bus.beside(pci)))
    return nics


def _dark(unread: Candidates, judged: Mapping[PortKey, RoleVerdict]) -> list[str]:
    """Return the InfiniBand functions without device that are the backend, if nothing else is."""
    backend = {key for key, verdict in judged.items() if verdict.backend}
    dark = [nic for nic in unread if nic.layer == "InfiniBand" and nic.device.failure == "unbound"]
    keys = {nic.key for nic in dark}
    return [nic.device.name for nic in dark if nic.key in backend] if backend <= keys else []


def _unknown(candidates: Candidates, unread: Candidates, evidence: RoleEvidence) -> list[str]:
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


def _judge(candidates: Candidates, evidence: RoleEvidence) -> dict[PortKey, RoleVerdict]:
    """Return the verdicts of the rules on all candidates."""
    verdicts: dict[PortKey, RoleVerdict] = {}
    decided_by, left, others = DATA_PORT, list(candidates), 0.0
    for name, rule in RULES:
        for taken_out, words in rule(left, evidence):
            for nic in taken_out:
                verdicts[nic.key], decided_by = RoleVerdict(name, words), name
            if name == "kind":
                others = max(others, bandwidth(taken_out))
        left = [nic for nic in left if nic.key not in verdicts]
    near = number_of_devices(nic for nic in left if nic.beside.is_near)
    beside = f"{near} of {number_of_devices(left)} beside a GPU" if near else None
    for nic in left:
        text = beside or f"{nic.layer} data port"
        if others:
            text += f", {bandwidth(left):g}G of {kinds.text_of(nic.device)} against {others:g}G"
        elif nic.device.pci_ids:
            text += f", {kinds.text_of(nic.device)}"
        verdicts[nic.key] = RoleVerdict(decided_by, text, backend=True)
    return verdicts


def ethernet_data_ports(evidence: RoleEvidence) -> list[DevicePort]:
    """Return the data ports of link layer Ethernet."""
    ports = [port for port in evidence.ports if port.port.link_layer == "Ethernet"]
    return [port for port in ports if not any(no_data_port(port, evidence))]


def no_data_port(candidate: DevicePort, evidence: RoleEvidence) -> Iterator[RoleVerdict]:
    """Yield the rules for which a port is no host data port.

    A candidate has node type CA, link layer InfiniBand or Ethernet, and a PCI function that is none
    of Omni-Path; a file that the tree lacks speaks for it. Of devices that share a cable one counts
    (agent/sources/cards.py).
    """
    yield from _no_function_of_its_own(candidate, evidence)
    yield from other_network(candidate.device, evidence)
    device, port = candidate
    if port.link_layer not in {"InfiniBand", "Ethernet"}:
        text = f"link layer {port.link_layer or 'unknown'}: neither InfiniBand nor Ethernet"
        yield RoleVerdict("other-link-layer", text)
    if device.node_type not in {None, "CA"}:
        yield RoleVerdict("node-type", f"node type {device.node_type}: no channel adapter")
    if device.pci is None and (evidence.bus.gpus or any(other.pci for other in evidence.devices)):
        text = "a software device: no PCI function, beside GPUs or devices that have one"
        yield RoleVerdict("software", text)
    yield from _no_data_of_its_own(candidate)


def other_network(device: RdmaDevice, evidence: RoleEvidence) -> Iterator[RoleVerdict]:
    """Yield the rules for which a device is of another network: iWARP, Omni-Path, a cloud's."""
    if device.node_type == "RNIC":
        yield RoleVerdict("iwarp", "iWARP (node type RNIC)")
    function = evidence.bus.functions.get(device.pci or "")
    if function and function.code == OMNI_PATH_CLASS:
        yield RoleVerdict("omni-path", f"Omni-Path (PCI class {OMNI_PATH_CLASS:#06x})")
    elif function is None and _OMNI_PATH.match(device.driver or device.name):
        by = f"driver {device.driver}" if device.driver else f"name {device.name}"
        yield RoleVerdict("omni-path", f"Omni-Path (by its {by})")
    is_accelerated = not evidence.front_end.accelerated.isdisjoint(netdevs_of(device))
    if is_accelerated or (device.driver in CLOUD_DRIVERS and evidence.carries_route(device)):
        what = "below hv_netvsc" if is_accelerated else f"driver {device.driver}"
        text = f"front end: a virtual NIC of the cloud ({what}) with the default route"
        yield RoleVerdict("front-end", text)


def _no_function_of_its_own(candidate: DevicePort, evidence: RoleEvidence) -> Iterator[RoleVerdict]:
    """Yield the rules for which another function counts in place of this, or none."""
    device, devices = candidate.device, evidence.devices
    if device.virtual_function:
        text = "SR-IOV virtual function: its physical function counts"
        yield RoleVerdict("virtual-function", text)
    for owner in devices if device.sub_function and device.pci else ():
        if owner.pci == device.pci and not owner.sub_function:
            yield RoleVerdict("sub-function", f"sub-function of {owner.name}, which counts")
    if parent := smi_parent(device, devices):
        yield RoleVerdict("smi", f"SMI sub-device of {parent.name}")
    if device.nvswitch_management:
        yield RoleVerdict("nvswitch", "NVSwitch management function (SW_MNG in its VPD)")
    elif device.nvswitch_pattern and device.nvswitch_management is None:
        text = "taken for an NVSwitch management function: its VPD cannot be read"
        yield RoleVerdict("nvswitch-pattern", text)
    if twin := socket_direct_twin(device, devices, evidence.ambiguous):
        first = f"{twin.name} ({twin.pci or 'PCI address unknown'})"
        text = f"second PCI function of the Socket-Direct card of {first}: one cable"
        yield RoleVerdict("socket-direct", text)


def _no_data_of_its_own(candidate: DevicePort) -> Iterator[RoleVerdict]:
    """Yield the rules for which a port of a data device carries no data of its own.

    - A port of the embedded switch (switchdev mode): its traffic passes the uplink, too.
    - A plane of a multi-plane HCA: no netdev beside siblings that have one.
    """
    device, port = candidate
    name = port.netdev.phys_port_name if port.netdev else None
    if is_representor(name):
        text = f"representor of a VF or SF (phys_port_name {name}): its uplink counts"
        yield RoleVerdict("representor", text)
    netdevs = [other.netdev for other in device.ports if other.netdev]
    has_siblings = any(not is_representor(netdev.phys_port_name) for netdev in netdevs)
    if port.link_layer == "Ethernet" and not port.netdev and has_siblings:
        yield RoleVerdict("no-netdev", "no netdev, beside ports that have one: no data port")


def _routed(candidates: Candidates, evidence: RoleEvidence) -> list[Candidate]:
    return [nic for nic in _ethernet(candidates) if evidence.carries_route(nic.device)]


def _ethernet(candidates: Candidates) -> list[Candidate]:
    return [nic for nic in candidates if nic.layer == "Ethernet"]


def spare_ports(candidates: Candidates, evidence: RoleEvidence) -> TakenOut:
    """Take out the ports of a front end's card that never had a link, nor labels."""
    routed = _routed(candidates, evidence)
    cards = {card_of(nic.device.pci) for nic in routed} - {""}
    spare = [
        nic
        for nic in _ethernet(candidates)
        if card_of(nic.device.pci) in cards
        and nic not in routed
        and nic.never_had_link
        and not had_labels(nic.device, evidence.labeled)
    ]
    yield spare, "spare port of the front end's card: it never had a link"


def front_end(candidates: Candidates, evidence: RoleEvidence) -> TakenOut:
    """Take out the Ethernet NICs of the best default route.

    Without GPU, nothing of the front end counts. With GPUs a route convicts a minority only: one or
    two NICs that are at most half of their kind, or those beside which NICs without route have a
    quarter of the kind's bandwidth. Else the rails have gateways, or the node has one network for
    everything.
    """
    routed, text = _routed(candidates, evidence), "front end: carries the default route"
    if not evidence.bus.gpus:
        yield routed, text
        return
    for kind, mine in kinds.by_kind(routed).items():
        whole = [nic for nic in _ethernet(candidates) if nic.kind == kind]
        others = [nic for nic in candidates if nic.kind != kind and nic not in routed]
        number, total = number_of_devices(mine), number_of_devices(whole)
        if number <= FEW_ROUTED and number * 2 <= total:
            yield mine, f"{text}, {number} of {total} of its kind"
        elif others and bandwidth(others) * QUARTER >= bandwidth(whole):
            yield mine, f"{text}, {bandwidth(mine):g}G beside {bandwidth(others):g}G without it"


def near_gpu(candidates: Candidates, evidence: RoleEvidence) -> dict[PortKey, bool]:
    """Return which candidates are near a GPU, or at the place of a NIC that is.

    The GPU of a NIC at such a place fell off the bus.
    """
    functions = [(nic, evidence.bus.functions.get(nic.device.pci or "")) for nic in candidates]
    places = {nic.key: function.place if function else None for nic, function in functions}
    near = {places[nic.key] for nic in candidates if nic.beside.is_near} - {None}
    return {nic.key: nic.beside.is_near or places[nic.key] in near for nic in candidates}


def _is_decisive(candidates: Candidates, evidence: RoleEvidence) -> bool:
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
    return len(bus.gpus) >= MIN_GPUS and served >= len(bus.gpus) * NEAR_SHARE


def gpu_affinity(candidates: Candidates, evidence: RoleEvidence) -> TakenOut:
    """Take out the NICs that are not near a GPU, where most GPUs have one near."""
    if _is_decisive(candidates, evidence):
        near = near_gpu(candidates, evidence)
        for nic in candidates:
            if not near[nic.key]:
                where = f" ({nic.beside.distance})" if nic.beside.distance else ""
                yield [nic], f"not near a GPU{where}, as the backend's NICs are"


def link_layer(candidates: Candidates, evidence: RoleEvidence) -> TakenOut:
    """Take out the ports of the other link layer than the backend's.

    It is InfiniBand if there is any; but Ethernet beside GPUs where one Ethernet kind has three
    times the bandwidth of all InfiniBand candidates, and the rate of each of these is known.
    """
    ethernet = _ethernet(candidates)
    infiniband = [nic for nic in candidates if nic.layer == "InfiniBand"]
    if infiniband and ethernet:
        most = max(map(bandwidth, kinds.by_kind(ethernet).values()))
        is_known = all(nic.gbps for nic in infiniband)
        if evidence.bus.gpus and is_known and most >= ETHERNET_LEAD * bandwidth(infiniband):
            rates = f"{bandwidth(infiniband):g}G against {most:g}G of one kind of Ethernet"
            yield infiniband, f"InfiniBand, {rates}"
        else:
            yield ethernet, "Ethernet, and the backend is InfiniBand"


def kind(candidates: Candidates, evidence: RoleEvidence) -> TakenOut:
    """Take out the NICs of other kinds than the one of the greatest bandwidth.

    On a tie it is the one at the lower PCI address. Without GPUs nothing tells compute from storage
    among InfiniBand HCAs: all of them count.
    """
    gpus, near = len(evidence.bus.gpus), near_gpu(candidates, evidence)
    if not gpus and any(nic.layer == "InfiniBand" for nic in candidates):
        return
    wholes = kinds.by_kind(candidates).values()
    parts = [part for whole in wholes for part in kinds.parts_of(whole, gpus, near)]
    backend = max(parts, key=kinds.rank, default=[])
    for part in parts:
        if part is not backend:
            its = kinds.text_of(backend[0].device) + kinds.difference(part[0].kind, backend[0].kind)
            sums = f"{bandwidth(part):g}G against {bandwidth(backend):g}G"
            rates = "tie: lower PCI address" if bandwidth(part) == bandwidth(backend) else sums
            yield part, f"{part[0].layer} NIC of another kind than the backend's {its} ({rates})"


def front_end_unknown(candidates: Candidates, evidence: RoleEvidence) -> TakenOut:
    """Take out all Ethernet ports where the front end is not known, if one is not near a GPU."""
    reason, ethernet = evidence.front_end.unknown, _ethernet(candidates)
    if reason and not all(near_gpu(ethernet, evidence).values()):
        yield ethernet, f"the front end is not known: {reason}"


RULES: tuple[tuple[str, Callable[[Candidates, RoleEvidence], TakenOut]], ...] = (
    ("spare-port", spare_ports),
    ("front-end", front_end),
    ("gpu-affinity", gpu_affinity),
    ("link-layer", link_layer),
    ("kind", kind),
    (UNKNOWN_FRONT_END, front_end_unknown),
)
