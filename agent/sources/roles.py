"""Port roles: the ports that are the backend network, their names, and what each of them counts.

The rules in the order of the label contract. Each takes candidates out, with its words, or
abstains; the first that takes a port out gives its reason.

    1  agent/sources/drops.py   ports that are no host data ports
    2  front_end                devices of the best default route, and spare ports of their cards
    3  gpu_affinity             NICs that are not near a GPU, where that is decisive
    4  link_layer               ports of the other link layer
    5  kind                     NICs of another kind (agent/sources/kinds.py)

With --backend-device, the devices that it names are the backend. Of the rules only those about a
port of a data device apply then (`drops.no_data`).

A device that cannot be read can change the answer. It is a candidate without ports: its PCI ids,
place and class are known from the bus. Where they are not, every possible answer is worked out
(`_possible`); if these differ, the one counts that keeps the labeled ports. Without labels a port
counts that is a backend port in every answer; if there is none, the backend is `undecided`.

An interface is a port or, if the port is bonded, one leg of it. Its name is {device} or, if several
ports of the device have the same role, {device}-{port}; a leg adds its netdev. Examples: ibp0,
mlx5_0-3, mlx5_bond_0-eth2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from agent.ids import card_of, is_named
from agent.model import Netdev, PortRole, RdmaDevice, RdmaPort, natural
from agent.sources import drops
from agent.sources.drops import DevicePort, PortKey, device_ports
from agent.sources.kinds import (
    Nic,
    difference,
    kinds,
    number_of_devices,
    rank,
    size,
    text_of,
)
from agent.sources.steady import RoleMemory, Verdict, Verdicts
from agent.sysfs.bus import EMPTY, ETHERNET_CLASS, INFINIBAND_CLASSES, NEAR, NOWHERE, Bus, Function

IN_USE = "ACTIVE"  # the only port state that counts (IBTA vol. 1, 14.2.5.6, PortState 4)
MIN_GPUS = 2
NEAR_SHARE = 3, 4  # of the GPUs must have a NIC near for affinity to decide
STANDBY = frozenset({"backup", "down"})  # states of a bond member that carries no traffic

Devices = Sequence[RdmaDevice]
Labeled = Mapping[str, str | None]  # interface -> address of its PCI function
Nics = Sequence[Nic]


@dataclass(slots=True)
class Case:
    """The evidence of one decision, and what the rules have found so far."""

    devices: Devices
    bus: Bus
    labeled: Labeled
    is_affine: bool = False  # rule 3 was decisive
    decided_by: str = "data-port"  # the last rule that took a candidate out


class Decision(NamedTuple):
    """The role of every port, and why they are not certain."""

    roles: tuple[PortRole, ...]
    undecided: str | None = None


def decide(  # noqa: PLR0913 - the evidence, and what is remembered of it
    devices: Devices,
    backend_globs: Sequence[str] = (),
    labeled: Labeled | None = None,
    bus: Bus = EMPTY,
    *,
    unbound: Collection[str] = (),
    memory: RoleMemory | None = None,
) -> Decision:
    """Assign a role to every port of every device that could be read, in natural order.

    `labeled` are the interfaces that have labels. `unbound` are PCI functions that may be the
    backend's and have no RDMA device (agent/sources/pci.py). `memory` keeps roles while evidence is
    missing.
    """
    if backend_globs:
        return Decision(_roles(devices, _not_named(devices, backend_globs), {}, bus))
    labeled = labeled or {}
    found: dict[frozenset[PortKey], tuple[Verdicts, Verdicts]] = {}
    for answer in _answers(devices, bus, labeled, unbound):
        found.setdefault(frozenset(answer[1]), answer)

    def agreement(backend: Collection[PortKey]) -> int:
        """Return how well a backend agrees with the labels, without any of which all are equal."""
        names = {name for name, _ in backend}
        counted = [device for device in devices if device.name in names] if labeled else []
        return sum(1 if had_labels(device, labeled) else -1 for device in counted)

    ignored, backend = found[max(found, key=agreement)]
    if len(found) == 1 or labeled:
        if memory:
            ignored, backend = memory.keep(devices, bus, ignored, backend)
        return Decision(_roles(devices, ignored, backend, bus))
    # Without labels a port counts that is a backend port in any case.
    certain = frozenset.intersection(*found)
    unread = [device.name for device in devices if device.failure]
    functions = bus.unread.union(_placed(bus))
    unread += [f"PCI function {address}" for address in sorted(functions)]
    text = f"the backend is not known while {', '.join(unread)} cannot be read"
    doubtful = dict.fromkeys(frozenset().union(*found) - certain, Verdict("undecided", text))
    roles = _roles(devices, {**ignored, **doubtful}, backend, bus)
    return Decision(roles, None if certain else text)


def _roles(
    devices: Devices, ignored: Verdicts, backend: Verdicts, bus: Bus
) -> tuple[PortRole, ...]:
    roles = []
    for one in device_ports(devices):
        verdict = ignored.get(one.key) or backend.get(one.key)
        rule, text = verdict or Verdict("flag", "named by --backend-device")
        is_backend = one.key not in ignored
        # A device of which several ports have this role names them by their numbers.
        name = one.device.name
        is_ignored = [(name, sibling.number) in ignored for sibling in one.device.ports]
        if is_ignored.count(not is_backend) > 1:
            name = f"{name}-{one.port.number}"
        nearest = bus.beside(one.device.pci, one.device.numa_node)
        roles += [
            PortRole(
                interface=f"{name}-{leg.name}" if leg else name,
                device=one.device,
                port=one.port,
                leg=leg,
                backend=is_backend,
                reason=text,
                counted_gbps=_counted_gbps(one.port, leg) if is_backend else 0.0,
                rule=rule,
                gpu=nearest.gpu,
                distance=nearest.distance,
            )
            for leg in _legs(one, devices)
        ]
    return tuple(roles)


def is_unread(device: RdmaDevice) -> bool:
    """Return True if the device may belong to the backend, but its link layer is unknown."""
    return bool(device.failure) or any(port.link_layer is None for port in device.ports)


def may_be_infiniband(devices: Devices, backend_globs: Sequence[str], bus: Bus) -> frozenset[str]:
    """Return the unread devices that may be InfiniBand HCAs of the backend.

    A device is none if it has no PCI function (rxe, siw), if the class of that is another one, if
    it is a VF or belongs to the card of an NVSwitch management function, or if --backend-device
    does not name it.
    """
    managing = {card_of(device.pci) for device in devices if device.nvswitch_pattern}
    found = set()
    for device in devices:
        function = bus.functions.get(device.pci or "")
        ids = device.pci_ids or (function and function.ids)
        if not (is_unread(device) and device.pci) or card_of(device.pci) in managing:
            continue
        if backend_globs and not is_named(backend_globs, device.name, device.pci, ids):
            continue
        if function is None or not (function.is_virtual or function.code == ETHERNET_CLASS):
            found.add(device.name)
    return frozenset(found)


def _not_named(devices: Devices, globs: Sequence[str]) -> Verdicts:
    """Return the ports of the devices that no glob names, and the ports without data."""
    verdicts = {}
    for one in device_ports(devices):
        if not is_named(globs, one.device.name, one.device.pci, one.device.pci_ids):
            verdicts[one.key] = Verdict("flag", "not named by --backend-device")
        elif dropped := next(drops.no_data(one), None):
            verdicts[one.key] = Verdict(*dropped)
    return verdicts


# The rules


def _answers(
    devices: Devices, bus: Bus, labeled: Labeled, unbound: Collection[str]
) -> Iterator[tuple[Verdicts, Verdicts]]:
    """Yield the verdicts on ignored and backend ports: the likeliest first, then other possible."""
    dropped: dict[PortKey, Verdict] = {}
    nics = []
    for one in device_ports(devices):
        if found := drops.drop(one, devices):
            dropped[one.key] = Verdict(*found)
        else:
            nics.append(_nic(one, devices, bus))
    for unread, possible_bus in _possible(devices, nics, bus, unbound):
        case = Case(devices, possible_bus, labeled)
        ignored = dict(dropped)
        candidates: list[Nic] = [*nics, *unread]
        for name, rule in RULES:
            verdicts = rule(candidates, case)
            if verdicts:
                case.decided_by = name
            ignored |= verdicts
            candidates = [nic for nic in candidates if _key(nic) not in verdicts]
        backend = {}
        near = number_of_devices([one for one in candidates if one.beside.is_near])
        for nic in candidates:
            if nic.port:
                what = f"{nic.layer} data port"
                if near:
                    what = f"{near} of {number_of_devices(candidates)} beside a GPU"
                text = f"{what}, {text_of(nic.device)}" if nic.device.pci_ids else what
                backend[_key(nic)] = Verdict(case.decided_by, text)
        yield {key: one for key, one in ignored.items() if key[1] >= 0}, backend


def _key(nic: Nic) -> PortKey:
    return nic.device.name, nic.port.number if nic.port else -1


def _nic(one: DevicePort, devices: Devices, bus: Bus) -> Nic:
    device, port = one
    rates = [_counted_gbps(port, leg) or 0.0 for leg in _legs(one, devices)]
    return Nic(
        device,
        port,
        port.link_layer,
        bus.beside(device.pci, device.numa_node),
        cables=len(rates),
        active_gbps=max(rates) or None,
        nominal_gbps=_nominal_gbps(port.netdev, port) or 0.0,
    )


def _possible(
    devices: Devices, nics: Nics, bus: Bus, unbound: Collection[str]
) -> Iterator[tuple[list[Nic], Bus]]:
    """Yield what is unread as it may be: the candidates without ports, and the bus.

    - A device of known PCI ids and class is one of that kind; one that is Ethernet may be the front
      end instead.
    - Any other device may be of each kind (of its own if there is none), or no candidate at all.
    - A function of unknown class may be a GPU.
    - A NIC of unknown place may be at that of one near a GPU.
    """
    known, unknown = _unread(devices, bus, unbound)
    yield known, bus
    infiniband = [nic for nic in known if nic.layer == "InfiniBand"]
    if len(infiniband) < len(known):
        yield infiniband, bus
    if unknown:
        likely = [*(nic for nic in nics if not _is_routed(nic)), *known]
        own = Nic(unknown[0], None, None, NOWHERE)
        for first, *_ in kinds(likely or [own], devices, bus).values():
            same = first._replace(port=None, active_gbps=None)
            others = [replace(first.device, name=device.name) for device in unknown]
            yield [*known, *(same._replace(device=one) for one in others)], bus
    if bus.unread:
        gpus = {address: Function(address, 0x0302, "10de:") for address in bus.unread}
        yield known, replace(bus, functions={**bus.functions, **gpus})
    if placed := _placed(bus):
        yield known, replace(bus, functions={**bus.functions, **placed})


def _placed(bus: Bus) -> dict[str, Function]:
    """Return the NICs of unknown place, each at that of a NIC near a GPU that it may be like."""

    def may_be(one: str | None, other: str | None) -> bool:
        return one in (None, other)

    unplaced = [one for one in bus.nics if one.bridge_ids and one.place is None]
    if not unplaced:  # as nearly always: each observation asks
        return {}
    near = [one for one in bus.nics if one.place and bus.beside(one.address).is_near]
    found = {}
    for one, other in product(unplaced, near):
        mine, its = (one.ids, *one.bridge_ids), (other.ids, *other.bridge_ids)
        if len(mine) == len(its) and all(map(may_be, mine, its)):
            found[one.address] = one._replace(ids=other.ids, bridge_ids=other.bridge_ids)
    return found


def _unread(
    devices: Devices, bus: Bus, unbound: Collection[str]
) -> tuple[list[Nic], list[RdmaDevice]]:
    """Return the candidates that are unread: of known function, and devices of which none is known.

    A function without RDMA device, as one whose driver reloads, is one too.
    """
    judged = {device.pci for device in devices if device.ports or device.excluded}
    names = {one: RdmaDevice(f"@{one}", failure="unbound", pci=one) for one in sorted(unbound)}
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
        if function.is_virtual or function.card in managing:
            continue
        layer = "InfiniBand" if function.code in INFINIBAND_CLASSES else "Ethernet"
        known_device = replace(device, pci_ids=function.ids, subsystem=function.subsystem)
        known.append(Nic(known_device, None, layer, bus.beside(address)))
    return known, unknown


def front_end(nics: Nics, case: Case) -> Verdicts:
    """Take out the Ethernet devices of the best default route, and spare ports of their cards.

    A spare port never had a link, nor labels. Where no device that was read has the route, a card
    with one that is unread may be the front end's. If nothing is left, a node with GPUs has one
    network for everything: the default route says nothing then. A node without GPU has no backend.
    """
    front = [nic for nic in nics if nic.layer == "Ethernet" and _is_routed(nic)]
    names = {nic.device.name for nic in front}
    unread = [device for device in case.devices if device.failure]
    cards = {card_of(one.pci) for one in ([nic.device for nic in front] or unread)} - {""}
    routed, spare = {}, {}
    for nic in nics:
        if nic.port is None or nic.layer != "Ethernet":
            continue
        if nic.device.name in names:
            routed[_key(nic)] = Verdict("front-end", "front end: carries the default route")
        elif (
            card_of(nic.device.pci) in cards
            and (netdevs := [one for one in (nic.port.netdev, *nic.port.legs) if one])
            and all(one.carrier_up_count == 0 for one in netdevs)
            and not had_labels(nic.device, case.labeled)
        ):
            text = "spare port of the front end's card: it never had a link"
            spare[_key(nic)] = Verdict("spare-port", text)
    if len(routed) + len(spare) < len(nics) or not routed:
        return routed | spare
    if case.bus.gpus:
        return spare
    text = "front end: carries the default route, and a node without GPU has no backend beside it"
    return dict.fromkeys(routed, Verdict("front-end", text)) | spare


def _is_routed(nic: Nic) -> bool:
    return nic.port is not None and DevicePort(nic.device, nic.port).carries_default_route


def gpu_affinity(nics: Nics, case: Case) -> Verdicts:
    """Take out the NICs that are not near a GPU, if NEAR_SHARE of two or more GPUs have one near.

    All NICs on the bus count, bound or not, so that a dead HCA does not change the answer, but
    those of other ports, as of the front end, are not a GPU's. What is at the same place as a near
    NIC stays: its GPU fell off the bus.
    """
    bus = case.bus
    addresses = {nic.device.pci for nic in nics if nic.device.pci}
    others = {one.pci for one in case.devices if one.ports and one.pci} - addresses
    cards = {card_of(one) for one in others} - {card_of(one) for one in addresses}
    counted = [
        one
        for one in bus.functions.values()
        if one.address in addresses
        or (one.is_nic and one.address not in others and one.card not in cards)
    ]
    gpus = bus.gpus
    served = sum(any(one.distance(gpu) in NEAR for one in counted) for gpu in gpus)
    part, whole = NEAR_SHARE
    if len(gpus) < MIN_GPUS or served * whole < len(gpus) * part:
        return {}
    functions = [bus.functions.get(nic.device.pci or "") for nic in nics]
    for nic, function in zip(nics, functions, strict=True):
        if nic.device.pci and (function is None or function.bridges is None):
            return {}  # its place is not known
    places = [one and one.place for one in functions]
    near = {place for place, nic in zip(places, nics, strict=True) if nic.beside.is_near} - {None}
    far = {}
    for nic, place in zip(nics, places, strict=True):
        if not nic.beside.is_near and place not in near:
            distance = f" ({nic.beside.distance})" if nic.beside.distance else ""
            text = f"not near a GPU{distance}, as the backend's NICs are"
            far[_key(nic)] = Verdict("gpu-affinity", text)
    case.is_affine = bool(far)
    return far


def link_layer(nics: Nics, case: Case) -> Verdicts:
    """Take out the ports of the other link layer than the backend's.

    It is that of most NICs near a GPU where affinity was decisive, else InfiniBand if there is any.
    """
    layers = [nic.layer for nic in nics if nic.layer]
    infiniband, ethernet = layers.count("InfiniBand"), layers.count("Ethernet")
    if case.is_affine and ethernet > infiniband:
        text = "InfiniBand, and most NICs near a GPU are Ethernet"
        return {_key(nic): Verdict("link-layer", text) for nic in nics if nic.layer == "InfiniBand"}
    if infiniband:
        text = "Ethernet, and the backend is InfiniBand"
        return {_key(nic): Verdict("link-layer", text) for nic in nics if nic.layer == "Ethernet"}
    return {}


def kind(nics: Nics, case: Case) -> Verdicts:
    """Take out the NICs of other kinds.

    Of Ethernet kinds the largest is the backend. All InfiniBand kinds are, unless only some have a
    multiple of the number of GPUs: of 8 compute and 2 storage HCAs beside 8 GPUs the eight.
    """
    by_kind = kinds(nics, case.devices, case.bus)
    if len(by_kind) < 2:
        return {}
    if any(nic.layer == "InfiniBand" for nic in nics):
        gpus = len(case.bus.gpus)
        number = {one: number_of_devices(members) for one, members in by_kind.items()}
        if not gpus or sum(number.values()) % gpus == 0:
            return {}
        whole = {
            one
            for one, members in by_kind.items()
            if number[one] % gpus == 0 and any(nic.port for nic in members)
        }
        counted = sum(number[one] for one in whole)
        text = f"InfiniBand HCA of another kind than the {counted} for {gpus} GPUs"
        parts = [one for one in by_kind if whole and one not in whole]
        return {_key(nic): Verdict("kind", text) for one in parts for nic in by_kind[one]}
    chosen = max(by_kind, key=lambda one: rank(by_kind[one]))
    backend = by_kind.pop(chosen)
    verdicts: dict[PortKey, Verdict] = {}
    for other, others in by_kind.items():
        tie = ""
        if size(others) == size(backend):
            is_equal = rank(others)[1:3] == rank(backend)[1:3]
            tie = " (tie: lower PCI address)" if is_equal else " (tie: faster)"
        model = text_of(backend[0].device)
        what = f"{model}{difference(other, chosen)}{tie}"
        text = f"Ethernet NIC of another kind than the backend's {what}"
        verdicts |= {_key(nic): Verdict("kind", text) for nic in others}
    return verdicts


RULES: tuple[tuple[str, Callable[[Nics, Case], Verdicts]], ...] = (
    ("front-end", front_end),
    ("gpu-affinity", gpu_affinity),
    ("link-layer", link_layer),
    ("kind", kind),
)


# Names, legs and rates


def had_labels(device: RdmaDevice, labeled: Labeled) -> bool:
    """Return True if the device, or one of its ports or legs, had labels.

    Names change, so the address of its PCI function decides where it is known.
    """
    return any(
        device.pci == pci if device.pci and pci else is_of_device(interface, device.name)
        for interface, pci in labeled.items()
    )


def is_of_device(interface: str, device: str) -> bool:
    """Return True for the interface of a device's only port, or of one of its ports or legs."""
    return interface == device or interface.startswith(f"{device}-")


def _legs(one: DevicePort, devices: Devices) -> Sequence[Netdev | None]:
    """Return the legs of a bonded port in natural order; (None,) for any other port.

    A bond whose members are RDMA devices of their own does not make any of them a bonded device.
    """
    names = {leg.name for leg in one.port.legs}
    others = (other for other in devices if other.name != one.device.name)
    if not names or any(not names.isdisjoint(other.netdevs) for other in others):
        return (None,)
    return sorted(one.port.legs, key=lambda leg: natural(leg.name))


def _counted_gbps(port: RdmaPort, leg: Netdev | None) -> float | None:
    """Return the Gb/s that the port or leg adds to the node's speed; None if unknown.

    0 unless the port is ACTIVE and, for a leg, the bond uses it.
    """
    if port.state is None:
        return None
    if port.state != IN_USE or (leg and (leg.bond_state or leg.operstate) in STANDBY):
        return 0.0
    return _nominal_gbps(leg or port.netdev, port)


def rate_of(role: PortRole) -> float:
    """Return the Gb/s of a port or leg, whatever its role; 0 if unknown."""
    return _nominal_gbps(role.leg or role.port.netdev, role.port) or 0.0


def _nominal_gbps(netdev: Netdev | None, port: RdmaPort) -> float | None:
    """Return the rate of the port's netdev where it is known, else that of the port.

    `rate` of an Ethernet port may be nominal: soft-RoCE (rxe) reports 2.5 Gb/s.
    """
    if port.link_layer == "Ethernet" and netdev and netdev.speed_mbps:
        return netdev.speed_mbps / 1000
    return port.rate_gbps
