"""Which ports are the backend network, and why: the rules of the label contract, in their order.

    1. What is no host data port is dropped, by the first of DROPS that has a reason.
    2. If any port left is InfiniBand, the InfiniBand ports are the backend.
    3. Otherwise the Ethernet devices are, without those that carry a default route (unless nothing would be left); of
       several kinds (hca_type, board_id) the most numerous, then the faster, then the one at the lower PCI address.

`--backend-device` replaces all of it. Reasons are for people: they stand in `probe`'s table and JSON.
"""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agent.model import PortRole, natural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from agent.model import Netdev, RdmaDevice, RdmaPort

IN_USE = "ACTIVE"  # the only port state that counts (IBTA vol. 1, 14.2.5.6, PortState 4)
Reasons = dict[tuple[str, int], str]  # (device, port) -> why it is ignored


def assign(
    devices: Sequence[RdmaDevice],
    backend_globs: Sequence[str] = (),
    before: Collection[str] | None = None,
    *,
    infiniband_away: bool = False,
) -> tuple[PortRole, ...]:
    """The role of every port of every device that could be read, in natural order.

    `before`: the interfaces that had labels, where something that may be the backend is hidden; None: nothing is.
    `infiniband_away`: the backend was InfiniBand and its driver is loading, so that no Ethernet port takes its place.
    """
    ignored = (
        _not_named(devices, backend_globs)
        if backend_globs
        else _ignored(devices, before, infiniband_away)
    )
    why = "named by --backend-device" if backend_globs else ""
    return tuple(
        role
        for device in devices
        for port in device.ports
        for role in _roles(device, port, devices, ignored, why or f"{port.link_layer} data port")
    )


def _not_named(devices: Sequence[RdmaDevice], globs: Sequence[str]) -> Reasons:
    reasons: Reasons = {}
    for device in devices:
        named = any(fnmatchcase(device.name, glob) for glob in globs)
        for port in device.ports:
            reason = (
                _no_netdev_beside_siblings(device, port, devices)
                if named
                else "not named by --backend-device"
            )
            if reason:
                reasons[device.name, port.number] = reason
    return reasons


def _ignored(
    devices: Sequence[RdmaDevice], before: Collection[str] | None, infiniband_away: bool
) -> Reasons:
    reasons: Reasons = {}
    left: list[tuple[RdmaDevice, RdmaPort]] = []
    for device in devices:
        for port in device.ports:
            if reason := next(filter(None, (drop(device, port, devices) for drop in DROPS)), None):
                reasons[device.name, port.number] = reason
            else:
                left.append((device, port))
    if infiniband_away or any(port.link_layer == "InfiniBand" for _, port in left):
        return reasons | {
            (device.name, port.number): "Ethernet, and the backend is InfiniBand"
            for device, port in left
            if port.link_layer != "InfiniBand"
        }
    return reasons | _ethernet_ignored(left, before)


# Step 1: what is no host data port.


def _virtual_function(
    device: RdmaDevice, _port: RdmaPort, _devices: Iterable[RdmaDevice]
) -> str | None:
    return (
        "SR-IOV virtual function: its physical function counts" if device.virtual_function else None
    )


def _smi_device(device: RdmaDevice, _port: RdmaPort, devices: Iterable[RdmaDevice]) -> str | None:
    return next(
        (f"SMI sub-device of {other.name}" for other in devices if is_smi_of(device, other)), None
    )


def _nvswitch_management(
    device: RdmaDevice, _port: RdmaPort, _devices: Iterable[RdmaDevice]
) -> str | None:
    return (
        "NVSwitch management function (SW_MNG in its VPD)" if device.nvswitch_management else None
    )


def _socket_direct_twin(
    device: RdmaDevice, port: RdmaPort, devices: Iterable[RdmaDevice]
) -> str | None:
    """The second PCI function of a Socket-Direct card: the same cable, shown once more."""
    if port.link_layer != "InfiniBand" or port.has_smi is not False or not device.sys_image_guid:
        return None
    return next(
        (
            f"second PCI function of the Socket-Direct card of {other.name}: one cable"
            for other in devices
            if other.sys_image_guid == device.sys_image_guid
            and other.pci != device.pci
            and any(sibling.has_smi for sibling in other.ports)
            and not any(is_smi_of(other, parent) for parent in devices)
        ),
        None,
    )


def _iwarp(device: RdmaDevice, _port: RdmaPort, _devices: Iterable[RdmaDevice]) -> str | None:
    return "iWARP (node type RNIC)" if device.node_type == "RNIC" else None


def _omni_path(device: RdmaDevice, _port: RdmaPort, _devices: Iterable[RdmaDevice]) -> str | None:
    return "Omni-Path (driver hfi1)" if device.driver == "hfi1" else None


def _other_link_layer(
    _device: RdmaDevice, port: RdmaPort, _devices: Iterable[RdmaDevice]
) -> str | None:
    if port.link_layer in {"InfiniBand", "Ethernet"}:
        return None
    return f"link layer {port.link_layer or 'unknown'}: neither InfiniBand nor Ethernet"


def _no_netdev_beside_siblings(
    device: RdmaDevice, port: RdmaPort, _devices: Iterable[RdmaDevice]
) -> str | None:
    """A plane of a multi-plane HCA that carries no data of its own."""
    if (
        port.link_layer != "Ethernet"
        or port.netdev
        or not any(sibling.netdev for sibling in device.ports)
    ):
        return None
    return "no netdev, beside ports that have one: no data port"


DROPS: tuple[Callable[[RdmaDevice, RdmaPort, Iterable[RdmaDevice]], str | None], ...] = (
    _virtual_function,
    _smi_device,
    _nvswitch_management,
    _socket_direct_twin,
    _iwarp,
    _omni_path,
    _other_link_layer,
    _no_netdev_beside_siblings,
)


def is_smi_of(device: RdmaDevice, parent: RdmaDevice) -> bool:
    """`device` is the sub-device through which the subnet manager talks to the planes of `parent`."""
    if (
        device.name == parent.name
        or device.pci is None
        or device.pci != parent.pci
        or not _same_port(device, parent)
    ):
        return False
    known = {(port.has_smi, other.has_smi) for port in device.ports for other in parent.ports}
    return (True, False) in known or (
        device.name.startswith("smi") and not parent.name.startswith("smi")
    )


def _same_port(device: RdmaDevice, other: RdmaDevice) -> bool:
    guids = {port.port_guid for port in device.ports} - {None}
    return not guids.isdisjoint(port.port_guid for port in other.ports)


# Step 3: of several kinds of Ethernet NICs, the backend ones.


def _ethernet_ignored(
    left: list[tuple[RdmaDevice, RdmaPort]], before: Collection[str] | None
) -> Reasons:
    front = {device.name for device, port in left if _carries_default_route(port)}
    if front == {device.name for device, _ in left}:
        # A node with one kind of NIC for everything. Or the others are hidden: then it is what it was.
        front = set() if before is None else {name for name in front if not _was(name, before)}
    groups: dict[tuple[str, str], list[tuple[RdmaDevice, RdmaPort]]] = defaultdict(list)
    for device, port in left:
        if device.name not in front:
            groups[device.hca_type or "", device.board_id or ""].append((device, port))
    backend = max(groups.values(), key=_weight, default=[])
    chosen = {device.name for device, _ in backend}
    return {
        (device.name, port.number): "front end: carries the default route"
        if device.name in front
        else f"Ethernet NIC of another kind than the backend's {_kind(backend[0][0])}"
        for device, port in left
        if device.name not in chosen
    }


def _was(device: str, before: Collection[str]) -> bool:
    return any(interface == device or interface.startswith(f"{device}-") for interface in before)


def _carries_default_route(port: RdmaPort) -> bool:
    return any(netdev.default_route for netdev in (port.netdev, *port.legs) if netdev)


def _weight(group: list[tuple[RdmaDevice, RdmaPort]]) -> tuple[int, float, list[int]]:
    """More devices, then the higher nominal rate (a port that is down has one, too), then the lower PCI address."""
    rates = (_nominal_gbps(port.netdev, port) or 0 for _, port in group)
    lowest = min(_pci_order(device.pci) for device, _ in group)
    return len({device.name for device, _ in group}), max(rates), [-part for part in lowest]


def _pci_order(pci: str | None) -> list[int]:
    return [int(part, 16) for part in (pci or "ffffffff:ff:ff.7").replace(".", ":").split(":")]


def _kind(device: RdmaDevice) -> str:
    return " ".join(filter(None, (device.hca_type, device.board_id))) or "unnamed kind"


# Interfaces and rates.


def _roles(
    device: RdmaDevice, port: RdmaPort, devices: Sequence[RdmaDevice], ignored: Reasons, why: str
) -> Iterable[PortRole]:
    reason = ignored.get((device.name, port.number))
    data_ports = [
        sibling
        for sibling in device.ports
        if ((device.name, sibling.number) in ignored) == bool(reason)
    ]
    name = device.name if len(data_ports) == 1 else f"{device.name}-{port.number}"
    for leg in _legs(device, port, devices):
        yield PortRole(
            interface=f"{name}-{leg.name}" if leg else name,
            device=device,
            port=port,
            leg=leg,
            backend=reason is None,
            reason=reason or why,
            counted_gbps=0.0 if reason else _counted_gbps(port, leg),
        )


def _legs(
    device: RdmaDevice, port: RdmaPort, devices: Sequence[RdmaDevice]
) -> Sequence[Netdev | None]:
    """The legs of a bonded device; a bond whose members are RDMA devices of their own is no bonded device."""
    elsewhere = {
        netdev for other in devices if other.name != device.name for netdev in other.netdevs
    }
    if not port.legs or any(leg.name in elsewhere for leg in port.legs):
        return (None,)
    return sorted(port.legs, key=lambda leg: natural(leg.name))


def _counted_gbps(port: RdmaPort, leg: Netdev | None) -> float | None:
    """What the port adds to the node's speed: nothing unless ACTIVE, a bond's leg nothing unless active as well."""
    if port.state is None:
        return None
    if port.state != IN_USE or (leg and (leg.bond_state or leg.operstate) in {"backup", "down"}):
        return 0.0
    return _nominal_gbps(leg or port.netdev, port)


def _nominal_gbps(netdev: Netdev | None, port: RdmaPort) -> float | None:
    """The netdev's speed is the truth where it is known; RoCE's `rate` may be a fiction (soft-RoCE says 2.5)."""
    if port.link_layer == "Ethernet" and netdev and netdev.speed_mbps:
        return netdev.speed_mbps / 1000
    return port.rate_gbps
