"""Port roles: the ports that are the backend network, by the rules of the label contract.

1. A port that is not a host data port is dropped, by the first of DROPS that gives a reason.
2. If a remaining port is InfiniBand, the InfiniBand ports are the backend.
3. Otherwise the Ethernet devices with a default route are dropped, unless that leaves none. Of the
   remaining kinds (hca_type, board_id) the most numerous is the backend; on a tie the faster one,
   then the one at the lower PCI address.

With --backend-device, the devices that it names are the backend and the rules do not apply.
Reasons are shown in the table and the JSON document of `probe`.
"""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agent.model import PortRole, natural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from agent.model import Netdev, RdmaDevice, RdmaPort

    Devices = Iterable[RdmaDevice]
    DevicePort = tuple[RdmaDevice, RdmaPort]
    Drop = Callable[[RdmaDevice, RdmaPort, Devices], str | None]

IN_USE = "ACTIVE"  # the only port state that counts (IBTA vol. 1, 14.2.5.6, PortState 4)
STANDBY = frozenset({"backup", "down"})  # states of a bond member that carries no traffic
NO_ADDRESS = "ffffffff:ff:ff.7"  # sorts after every PCI address
Reasons = dict[tuple[str, int], str]  # (device, port) -> why the port is ignored


def assign(
    devices: Sequence[RdmaDevice],
    backend_globs: Sequence[str] = (),
    previous: Collection[str] | None = None,
    *,
    infiniband_unbound: bool = False,
) -> tuple[PortRole, ...]:
    """Assign a role to every port of every device that could be read, in natural order.

    `previous` are the interfaces that have labels; given only if a device is missing or could not
    be read, so that the set of devices is incomplete. `infiniband_unbound`: the backend was
    InfiniBand and its driver is not loaded; no Ethernet port takes its place.
    """
    if backend_globs:
        ignored = _not_named(devices, backend_globs)
    else:
        ignored = _ignored(devices, previous, infiniband_unbound)
    roles: list[PortRole] = []
    for device in devices:
        for port in device.ports:
            reason = f"{port.link_layer} data port"
            if backend_globs:
                reason = "named by --backend-device"
            roles += _roles(device, port, devices, ignored, reason)
    return tuple(roles)


def _not_named(devices: Sequence[RdmaDevice], globs: Sequence[str]) -> Reasons:
    """Return the ports of the devices that no glob matches, and the planes without data."""
    reasons: Reasons = {}
    for device in devices:
        named = any(fnmatchcase(device.name, glob) for glob in globs)
        for port in device.ports:
            if not named:
                reasons[device.name, port.number] = "not named by --backend-device"
            elif reason := _no_netdev_beside_siblings(device, port, devices):
                reasons[device.name, port.number] = reason
    return reasons


def _ignored(
    devices: Sequence[RdmaDevice], previous: Collection[str] | None, infiniband_unbound: bool
) -> Reasons:
    """Return the ports that are not the backend, by the rules of this module."""
    reasons: Reasons = {}
    data_ports: list[DevicePort] = []
    for device in devices:
        for port in device.ports:
            if reason := _drop_reason(device, port, devices):
                reasons[device.name, port.number] = reason
            else:
                data_ports.append((device, port))
    if infiniband_unbound or any(port.link_layer == "InfiniBand" for _, port in data_ports):
        reason = "Ethernet, and the backend is InfiniBand"
        others = [one for one in data_ports if one[1].link_layer != "InfiniBand"]
        return reasons | {(device.name, port.number): reason for device, port in others}
    return reasons | _ethernet_ignored(data_ports, previous)


def _drop_reason(device: RdmaDevice, port: RdmaPort, devices: Devices) -> str | None:
    """Return the reason of the first rule in DROPS that drops the port."""
    for drop in DROPS:
        if reason := drop(device, port, devices):
            return reason
    return None


# Rule 1: ports that are not host data ports.


def _virtual_function(device: RdmaDevice, _port: RdmaPort, _devices: Devices) -> str | None:
    if device.virtual_function:
        return "SR-IOV virtual function: its physical function counts"
    return None


def _smi_device(device: RdmaDevice, _port: RdmaPort, devices: Devices) -> str | None:
    for parent in devices:
        if is_smi_of(device, parent):
            return f"SMI sub-device of {parent.name}"
    return None


def _nvswitch_management(device: RdmaDevice, _port: RdmaPort, _devices: Devices) -> str | None:
    if device.nvswitch_management:
        return "NVSwitch management function (SW_MNG in its VPD)"
    return None


def _socket_direct_twin(device: RdmaDevice, port: RdmaPort, devices: Devices) -> str | None:
    """The second PCI function of a Socket-Direct card: a second device for the same cable.

    It has no SMI, and its sys_image_guid is that of a device with SMI at another PCI address, which
    is not the SMI sub-device of a multi-plane HCA.
    """
    if port.link_layer != "InfiniBand" or port.has_smi is not False or not device.sys_image_guid:
        return None
    for other in devices:
        is_other_function = (
            other.sys_image_guid == device.sys_image_guid and other.pci != device.pci
        )
        has_smi = any(sibling.has_smi for sibling in other.ports)
        if is_other_function and has_smi and not _is_smi_of_any(other, devices):
            return f"second PCI function of the Socket-Direct card of {other.name}: one cable"
    return None


def _iwarp(device: RdmaDevice, _port: RdmaPort, _devices: Devices) -> str | None:
    return "iWARP (node type RNIC)" if device.node_type == "RNIC" else None


def _omni_path(device: RdmaDevice, _port: RdmaPort, _devices: Devices) -> str | None:
    return "Omni-Path (driver hfi1)" if device.driver == "hfi1" else None


def _other_link_layer(_device: RdmaDevice, port: RdmaPort, _devices: Devices) -> str | None:
    if port.link_layer in {"InfiniBand", "Ethernet"}:
        return None
    return f"link layer {port.link_layer or 'unknown'}: neither InfiniBand nor Ethernet"


def _no_netdev_beside_siblings(device: RdmaDevice, port: RdmaPort, _devices: Devices) -> str | None:
    """A plane of a multi-plane HCA that carries no data of its own."""
    if port.link_layer != "Ethernet" or port.netdev:
        return None
    if any(sibling.netdev for sibling in device.ports):
        return "no netdev, beside ports that have one: no data port"
    return None


DROPS: tuple[Drop, ...] = (
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
    """Return True if `device` is the SMI sub-device of `parent`, a multi-plane HCA.

    The subnet manager reaches the planes through it. Both have the same PCI function and port GUID;
    the sub-device is the one with SMI or, where has_smi does not distinguish them, the one whose
    name begins with "smi".
    """
    is_same_function = device.pci is not None and device.pci == parent.pci
    if device.name == parent.name or not is_same_function or not _share_a_port(device, parent):
        return False
    if device.name.startswith("smi") and not parent.name.startswith("smi"):
        return True
    return any(
        port.has_smi is True and other.has_smi is False
        for port in device.ports
        for other in parent.ports
    )


def _is_smi_of_any(device: RdmaDevice, devices: Devices) -> bool:
    return any(is_smi_of(device, parent) for parent in devices)


def _share_a_port(device: RdmaDevice, other: RdmaDevice) -> bool:
    """Return True if a port of each has the same, known GUID."""
    guids = {port.port_guid for port in device.ports} - {None}
    return not guids.isdisjoint(port.port_guid for port in other.ports)


# Rule 3: the backend among several kinds of Ethernet NICs.


def _ethernet_ignored(data_ports: list[DevicePort], previous: Collection[str] | None) -> Reasons:
    """Return the Ethernet ports that are not the backend.

    The devices of the front end are dropped. Of the kinds that remain, the first by `_rank` is the
    backend. Example: of 2 x MT4125 with the default route, 1 x MT4123 and 8 x MT4129, the eight are
    the backend.
    """
    front_end = _front_end(data_ports, previous)
    kinds: dict[tuple[str | None, str | None], list[DevicePort]] = defaultdict(list)
    for device, port in data_ports:
        if device.name not in front_end:
            kinds[device.hca_type, device.board_id].append((device, port))
    backend = max(kinds.values(), key=_rank, default=[])
    chosen = {device.name for device, _ in backend}
    reasons: Reasons = {}
    for device, port in data_ports:
        if device.name in front_end:
            reasons[device.name, port.number] = "front end: carries the default route"
        elif device.name not in chosen:
            kind = _kind(backend[0][0])
            reason = f"Ethernet NIC of another kind than the backend's {kind}"
            reasons[device.name, port.number] = reason
    return reasons


def _front_end(data_ports: list[DevicePort], previous: Collection[str] | None) -> set[str]:
    """Return the names of the devices that carry a default route, if any other remains.

    If every device carries one, the node has one network for everything, and none is the front end.
    But if the set of devices is incomplete (`previous` is given), only the devices that had labels
    are taken for the backend. Example: of eth0 (default route) and a backend NIC that cannot be
    read, eth0 remains the front end.
    """
    names = {device.name for device, _ in data_ports}
    routed = {device.name for device, port in data_ports if _carries_default_route(port)}
    if routed != names:
        return routed
    if previous is None:
        return set()
    return {name for name in routed if not _had_labels(name, previous)}


def _had_labels(device: str, previous: Collection[str]) -> bool:
    """Return True if the device, or one of its ports (`{device}-{port}`), had labels."""
    return any(interface == device or interface.startswith(f"{device}-") for interface in previous)


def _carries_default_route(port: RdmaPort) -> bool:
    return any(netdev.default_route for netdev in (port.netdev, *port.legs) if netdev)


def _rank(kind: list[DevicePort]) -> tuple[int, float, list[int]]:
    """Return the sort key of a kind: number of devices, nominal rate, lower PCI address.

    The nominal rate counts for ports that are down, too.
    """
    devices = {device.name for device, _ in kind}
    rates = [_nominal_gbps(port.netdev, port) or 0 for _, port in kind]
    lowest = min(_pci_numbers(device.pci) for device, _ in kind)
    return len(devices), max(rates), [-number for number in lowest]


def _pci_numbers(pci: str | None) -> list[int]:
    """Return [domain, bus, device, function]; an unknown address is higher than any other."""
    return [int(part, 16) for part in (pci or NO_ADDRESS).replace(".", ":").split(":")]


def _kind(device: RdmaDevice) -> str:
    return " ".join(filter(None, (device.hca_type, device.board_id))) or "unnamed kind"


# Interface names and rates.


def _roles(
    device: RdmaDevice,
    port: RdmaPort,
    devices: Sequence[RdmaDevice],
    ignored: Reasons,
    backend_reason: str,
) -> Iterable[PortRole]:
    """Return the role of a port, or of each leg of a bonded port.

    An interface is named {device} or, if several ports of the device have the same role,
    {device}-{port}; a leg adds its netdev. Examples: ibp0, mlx5_0-3, mlx5_bond_0-eth2.
    """
    reason = ignored.get((device.name, port.number))
    alike = [
        sibling
        for sibling in device.ports
        if ((device.name, sibling.number) in ignored) == bool(reason)
    ]
    name = device.name if len(alike) == 1 else f"{device.name}-{port.number}"
    for leg in _legs(device, port, devices):
        yield PortRole(
            interface=f"{name}-{leg.name}" if leg else name,
            device=device,
            port=port,
            leg=leg,
            backend=reason is None,
            reason=reason or backend_reason,
            counted_gbps=0.0 if reason else _counted_gbps(port, leg),
        )


def _legs(
    device: RdmaDevice, port: RdmaPort, devices: Sequence[RdmaDevice]
) -> Sequence[Netdev | None]:
    """Return the legs of a bonded port in natural order; (None,) for any other port.

    A bond whose members are RDMA devices of their own does not make any of them a bonded device.
    """
    others = {netdev for other in devices if other.name != device.name for netdev in other.netdevs}
    if not port.legs or any(leg.name in others for leg in port.legs):
        return (None,)
    return sorted(port.legs, key=lambda leg: natural(leg.name))


def _counted_gbps(port: RdmaPort, leg: Netdev | None) -> float | None:
    """Return the Gb/s that the port or leg adds to the node's speed; None if unknown.

    0 unless the port is ACTIVE and, for a leg, the bond uses it.
    """
    if port.state is None:
        return None
    if port.state != IN_USE:
        return 0.0
    if leg and (leg.bond_state or leg.operstate) in STANDBY:
        return 0.0
    return _nominal_gbps(leg or port.netdev, port)


def _nominal_gbps(netdev: Netdev | None, port: RdmaPort) -> float | None:
    """Return the rate of the port's netdev where it is known, else that of the port.

    `rate` of an Ethernet port may be nominal: soft-RoCE (rxe) reports 2.5 Gb/s.
    """
    if port.link_layer == "Ethernet" and netdev and netdev.speed_mbps:
        return netdev.speed_mbps / 1000
    return port.rate_gbps
