"""Port roles: the ports that are the backend network, their names, and what each of them counts.

The rules in the order of the label contract; the first that ignores a port gives the reason, which
`probe` shows.

1. A port that is no host data port is dropped (`_drops`).
2. If a remaining port is InfiniBand, the InfiniBand ports are the backend.
3. Otherwise the Ethernet devices with the best default route are the front end, and dropped, unless
   that leaves none. Of the kinds of NICs that remain the most numerous one is the backend; on a tie
   the faster one, then the one at the lower PCI address.

With --backend-device, the devices that it names are the backend. Of the rules only those about a
port of a data device apply then (`_no_data`).

A device that cannot be read can change the answer, since kinds are counted: as long as the set of
devices is incomplete, kinds and devices that had labels keep their role. `previous`, the interfaces
that have labels, is given in that case only.

An interface is a port or, if the port is bonded, one leg of it. Its name is {device} or, if several
ports of the device have the same role, {device}-{port}; a leg adds its netdev. Examples: ibp0,
mlx5_0-3, mlx5_bond_0-eth2.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from agent.model import Netdev, PortRole, RdmaDevice, RdmaPort, natural
from agent.sources.netdev import is_representor

IN_USE = "ACTIVE"  # the only port state that counts (IBTA vol. 1, 14.2.5.6, PortState 4)
STANDBY = frozenset({"backup", "down"})  # states of a bond member that carries no traffic
SMI_NAME = "smi"  # begins the name that mlx5_ib gives an SMI sub-device
OTHER_KIND = "Ethernet NIC of another kind than the backend's"  # the reason begins with this
NO_ADDRESS = "ffffffff:ff:ff.7"  # sorts after every PCI address

Devices = Sequence[RdmaDevice]
PortKey = tuple[str, int]  # name of the device, number of the port
Reasons = Mapping[PortKey, str]  # why the port is ignored
Kind = tuple[str | None, str | None]  # hca_type, board_id


class DevicePort(NamedTuple):
    """A port and its device."""

    device: RdmaDevice
    port: RdmaPort

    @property
    def key(self) -> PortKey:
        """The key of the port in Reasons."""
        return self.device.name, self.port.number


DataPorts = Sequence[DevicePort]


def assign(
    devices: Devices,
    backend_globs: Sequence[str] = (),
    previous: Collection[str] | None = None,
    *,
    infiniband_unbound: bool = False,
) -> tuple[PortRole, ...]:
    """Assign a role to every port of every device that could be read, in natural order.

    `infiniband_unbound`: the backend was InfiniBand and its driver is not loaded; no Ethernet port
    takes its place.
    """
    if backend_globs:
        ignored = _not_named(devices, backend_globs)
    else:
        ignored = _ignored(devices, previous, infiniband_unbound)
    roles = []
    for one in _device_ports(devices):
        reason = ignored.get(one.key)
        rule = "named by --backend-device" if backend_globs else f"{one.port.link_layer} data port"
        name = _name(one, ignored)
        roles += [
            PortRole(
                interface=f"{name}-{leg.name}" if leg else name,
                device=one.device,
                port=one.port,
                leg=leg,
                backend=reason is None,
                reason=reason or rule,
                counted_gbps=0.0 if reason else _counted_gbps(one.port, leg),
            )
            for leg in _legs(one, devices)
        ]
    return tuple(roles)


def undecided(devices: Devices) -> str | None:
    """Return why the backend of an Ethernet node cannot be chosen; None if it can.

    The kinds of NICs are counted, and the devices that cannot be read may tip the scales. Example:
    of two NICs of 200G and two of 50G one of the former fails; the latter are no backend for that.
    """
    unread = [device.name for device in devices if device.failure]
    if not unread:
        return None
    others, _ = _without_front_end(ethernet_data_ports(devices), None)
    cables = sorted(rank.cables for rank in _ranks(others, ()).values())
    lead = cables[-1] - cables[-2] if len(cables) > 1 else math.inf
    if lead > len(unread):
        return None
    return f"the backend is not known while {', '.join(unread)} cannot be read"


def is_unread(device: RdmaDevice) -> bool:
    """Return True if the device may belong to the backend, but its link layer is unknown."""
    return bool(device.failure) or any(port.link_layer is None for port in device.ports)


def ethernet_data_ports(devices: Devices) -> DataPorts:
    """Return the data ports of a node without InfiniBand ports; none of any other node."""
    data_ports = [one for one in _device_ports(devices) if _drop(one, devices) is None]
    return [] if any(map(_is_infiniband, data_ports)) else data_ports


def _not_named(devices: Devices, globs: Sequence[str]) -> Reasons:
    """Return the ports of the devices that no glob matches, and the ports without data."""
    reasons = {}
    for one in _device_ports(devices):
        if not any(fnmatchcase(one.device.name, glob) for glob in globs):
            reasons[one.key] = "not named by --backend-device"
        elif reason := next(_no_data(one), None):
            reasons[one.key] = reason
    return reasons


def _ignored(
    devices: Devices, previous: Collection[str] | None, infiniband_unbound: bool
) -> Reasons:
    """Return the ports that are not the backend, by the rules of this module."""
    reasons, data_ports = {}, []
    for one in _device_ports(devices):
        if reason := _drop(one, devices):
            reasons[one.key] = reason
        else:
            data_ports.append(one)
    if infiniband_unbound or any(map(_is_infiniband, data_ports)):
        for one in data_ports:
            if not _is_infiniband(one):
                reasons[one.key] = "Ethernet, and the backend is InfiniBand"
        return reasons
    # Example: of 2 x MT4125 with the default route, 1 x MT4123 and 8 x MT4129, the eight are left.
    others, front_end = _without_front_end(data_ports, previous)
    for one in front_end:
        reasons[one.key] = "front end: carries the default route"
    return {**reasons, **_of_other_kinds(others, previous or ())}


def _device_ports(devices: Devices) -> DataPorts:
    return [DevicePort(device, port) for device in devices for port in device.ports]


def _is_infiniband(one: DevicePort) -> bool:
    return one.port.link_layer == "InfiniBand"


# 1. Ports that are no host data ports


def _drop(one: DevicePort, devices: Devices) -> str | None:
    """Return the reason of the first rule that drops a port; None for a data port."""
    return next(_drops(one, devices), None)


def _drops(one: DevicePort, devices: Devices) -> Iterator[str]:
    """Yield the reasons for which a port is no host data port."""
    device, port = one
    if device.virtual_function:
        yield "SR-IOV virtual function: its physical function counts"
    if parent := _smi_parent(device, devices):
        yield f"SMI sub-device of {parent.name}"
    if device.nvswitch_management:
        yield "NVSwitch management function (SW_MNG in its VPD)"
    if twin := _socket_direct_twin(one, devices):
        first = f"{twin.name} ({twin.pci or 'PCI address unknown'})"
        yield f"second PCI function of the Socket-Direct card of {first}: one cable"
    if device.node_type == "RNIC":
        yield "iWARP (node type RNIC)"
    if device.driver == "hfi1":
        yield "Omni-Path (driver hfi1)"
    if port.link_layer not in {"InfiniBand", "Ethernet"}:
        yield f"link layer {port.link_layer or 'unknown'}: neither InfiniBand nor Ethernet"
    yield from _no_data(one)


def _no_data(one: DevicePort) -> Iterator[str]:
    """Yield the reasons for which a port of a data device carries no data of its own.

    - A port of the embedded switch (switchdev mode): its traffic passes the uplink, too.
    - A plane of a multi-plane HCA: no netdev beside siblings that have one.
    """
    device, port = one
    if port.netdev and _is_representor(port):
        name = port.netdev.phys_port_name
        yield f"representor of a VF or SF (phys_port_name {name}): its uplink counts"
    has_siblings = any(other.netdev and not _is_representor(other) for other in device.ports)
    if port.link_layer == "Ethernet" and not port.netdev and has_siblings:
        yield "no netdev, beside ports that have one: no data port"


def _is_representor(port: RdmaPort) -> bool:
    return port.netdev is not None and is_representor(port.netdev.phys_port_name)


# Two devices of one cable, as the subnet management interface (SMI) shows them: a multi-plane HCA
# has an SMI sub-device, through which the subnet manager reaches the planes; a Socket-Direct card
# has two PCI functions, of which one has SMI.


def is_smi_of(device: RdmaDevice, parent: RdmaDevice) -> bool:
    """Return True if `device` is the SMI sub-device of `parent`, a multi-plane HCA.

    Both have the same PCI function and port GUID; the sub-device is the one with SMI or, where
    has_smi does not distinguish them, the one whose name begins with "smi".
    """
    is_same_function = device.name != parent.name and device.pci and device.pci == parent.pci
    guids = {port.port_guid for port in device.ports} - {None}
    if not is_same_function or guids.isdisjoint(port.port_guid for port in parent.ports):
        return False
    if device.name.startswith(SMI_NAME) and not parent.name.startswith(SMI_NAME):
        return True
    return _has_smi(device) and any(port.has_smi is False for port in parent.ports)


def _smi_parent(device: RdmaDevice, devices: Devices) -> RdmaDevice | None:
    """Return the device whose SMI sub-device this one is; None if it is no SMI sub-device."""
    return next((parent for parent in devices if is_smi_of(device, parent)), None)


def _socket_direct_twin(one: DevicePort, devices: Devices) -> RdmaDevice | None:
    """Return the other function of a Socket-Direct card, if this one is that without SMI.

    Its sys_image_guid is that of a device with SMI at another PCI address, which is not the SMI
    sub-device of a multi-plane HCA.
    """
    device, port = one
    guid = device.sys_image_guid
    if not guid or port.link_layer != "InfiniBand" or port.has_smi is not False:
        return None
    card = (other for other in devices if other.sys_image_guid == guid and other.pci != device.pci)
    twins = (other for other in card if _has_smi(other) and not _smi_parent(other, devices))
    return next(twins, None)


def _has_smi(device: RdmaDevice) -> bool:
    return any(port.has_smi for port in device.ports)


def with_hidden(devices: Devices) -> tuple[RdmaDevice, ...]:
    """Return the devices; one that cannot be judged while another is unread has failed with it.

    The facts of both devices of a cable decide which of them counts. Example: the parent of smi0
    cannot be read, so nothing shows that smi0 is its SMI sub-device; it must not become a backend
    port. One whose parent can be read is judged by it.
    """
    failed = [device for device in devices if device.failure]
    return tuple(_judged(device, devices, failed) for device in devices)


def _judged(device: RdmaDevice, devices: Devices, failed: Devices) -> RdmaDevice:
    if device.failure or _smi_parent(device, devices):
        return device
    for other in failed:
        # Of one PCI function; where that of the failed one was never read, the name decides.
        is_named = other.pci is None and device.name.startswith(SMI_NAME)
        is_same = other.pci is not None and device.pci == other.pci
        if is_named or is_same or _may_be_twins(device, other, devices):
            failure = f"it may be a part of {other.name}, which failed"
            return replace(device, failure=failure, ports=())
    return device


def _may_be_twins(device: RdmaDevice, failed: RdmaDevice, devices: Devices) -> bool:
    """Return True if `device` may be the second function of the Socket-Direct card of `failed`.

    It has no SMI of any kind. The GUID that the functions of a card share decides, where it is
    known of the failed one.
    """
    if failed.sys_image_guid is not None and failed.sys_image_guid != device.sys_image_guid:
        return False
    if any(is_smi_of(other, device) for other in devices):
        return False
    return any(
        port.link_layer == "InfiniBand"
        and port.has_smi is False
        and _socket_direct_twin(DevicePort(device, port), devices) is None
        for port in device.ports
    )


# 3. The front end, and the kinds of NICs


def _without_front_end(
    data_ports: DataPorts, previous: Collection[str] | None
) -> tuple[DataPorts, DataPorts]:
    """Return the ports that may be the backend, and those of the front end.

    If every device carries a default route, the node has one network for everything, and none is
    the front end. But if the set of devices is incomplete, only the devices that had labels are
    taken for the backend. Example: of eth0 (default route) and a backend NIC that cannot be read,
    eth0 remains the front end.
    """
    front = {
        device.name
        for device, port in data_ports
        if any(netdev.default_route for netdev in (port.netdev, *port.legs) if netdev)
    }
    if all(device.name in front for device, _ in data_ports):
        unlabeled = (one.device for one in data_ports if not had_labels(one.device, previous or ()))
        front = set() if previous is None else {device.name for device in unlabeled}
    others = [one for one in data_ports if one.device.name not in front]
    return others, [one for one in data_ports if one.device.name in front]


class _Rank(NamedTuple):
    """The sort key of a kind; the highest one is the backend."""

    labeled: int  # ports that had labels; 0 if all devices were read
    cables: int  # devices, and the legs of bonded ones: each leg is a NIC port with a cable
    fastest: float  # nominal Gb/s of its fastest port, which may be down
    pci: list[int]  # its lowest address, negated


def _of_other_kinds(data_ports: DataPorts, previous: Collection[str]) -> Reasons:
    """Return the ports of NICs that are not of the backend's kind."""
    ranks = _ranks(data_ports, previous)
    if not ranks:
        return {}
    backend = max(ranks, key=lambda kind: ranks[kind])
    reasons = {}
    for one in data_ports:
        kind = _kind(one.device)
        if kind == backend:
            continue
        tie = ""
        if ranks[kind].cables == ranks[backend].cables:
            is_equal = ranks[kind].fastest == ranks[backend].fastest
            tie = " (tie: lower PCI address)" if is_equal else " (tie: faster)"
        reasons[one.key] = f"{OTHER_KIND} {_kind_text(backend)}{tie}"
    return reasons


def _ranks(data_ports: DataPorts, previous: Collection[str]) -> dict[Kind, _Rank]:
    devices = [device for device, _ in data_ports]
    by_kind = defaultdict(list)
    for one in data_ports:
        by_kind[_kind(one.device)].append(one)
    return {kind: _rank(ports, devices, previous) for kind, ports in by_kind.items()}


def _rank(ports: DataPorts, devices: Devices, previous: Collection[str]) -> _Rank:
    """Return the rank of the kind that has these ports, of all that may be the backend."""
    cables = {(one.device.name, leg and leg.name) for one in ports for leg in _legs(one, devices)}
    lowest = min(_pci_numbers(device.pci) for device, _ in ports)
    return _Rank(
        labeled=sum(had_labels(device, previous) for device, _ in ports),
        cables=len(cables),
        fastest=max(_nominal_gbps(port.netdev, port) or 0 for _, port in ports),
        pci=[-number for number in lowest],
    )


def _kind(device: RdmaDevice) -> Kind:
    return device.hca_type, device.board_id


def _kind_text(kind: Kind) -> str:
    return " ".join(filter(None, kind)) or "unnamed kind"


def _pci_numbers(pci: str | None) -> list[int]:
    """Return [domain, bus, device, function]; an unknown address is higher than any other."""
    return [int(part, 16) for part in (pci or NO_ADDRESS).replace(".", ":").split(":")]


def dark_backend(roles: Iterable[PortRole]) -> str | None:
    """Return a hint if no port of the chosen kind is ACTIVE while one of another kind is."""
    chosen, active = [], []
    for role in roles:
        if role.backend:
            chosen.append(role)
        elif role.port.state == IN_USE and role.reason.startswith(OTHER_KIND):
            active.append(role.interface)
    if not active or not chosen or any(role.port.state == IN_USE for role in chosen):
        return None
    return (
        f"no port of {_kind_text(_kind(chosen[0].device))} is ACTIVE,"
        f" but {', '.join(active)} of another kind:"
        " name the backend with --backend-device"
    )


# Names, legs and rates


def had_labels(device: RdmaDevice, previous: Collection[str]) -> bool:
    """Return True if the device, or one of its ports or legs, had labels."""
    return any(is_of_device(interface, device.name) for interface in previous)


def is_of_device(interface: str, device: str) -> bool:
    """Return True for the interface of a device's only port, or of one of its ports or legs."""
    return interface == device or interface.startswith(f"{device}-")


def _name(one: DevicePort, ignored: Reasons) -> str:
    """Return {device}, or {device}-{port} if several ports of the device have the port's role."""
    device = one.device.name
    is_ignored = [(device, sibling.number) in ignored for sibling in one.device.ports]
    if is_ignored.count(one.key in ignored) == 1:
        return device
    return f"{device}-{one.port.number}"


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


def _nominal_gbps(netdev: Netdev | None, port: RdmaPort) -> float | None:
    """Return the rate of the port's netdev where it is known, else that of the port.

    `rate` of an Ethernet port may be nominal: soft-RoCE (rxe) reports 2.5 Gb/s.
    """
    if port.link_layer == "Ethernet" and netdev and netdev.speed_mbps:
        return netdev.speed_mbps / 1000
    return port.rate_gbps
