"""Rule 1: ports that are no host data ports, and devices that cannot be judged.

A candidate has node type CA, link layer InfiniBand or Ethernet, and a PCI function that is none of
Omni-Path; a file that the tree lacks speaks for it.

A rule whose input is unread must not pass for one that does not apply. So a device is failed, and
has no ports, while another one that decides about it cannot be read (`with_hidden`).

Two devices of one cable: a multi-plane HCA has an SMI sub-device (subnet management interface),
through which the subnet manager reaches the planes. A Socket-Direct card has two PCI functions for
one port: of an InfiniBand port one function has SMI, of an Ethernet port both are alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agent.ids import card_of
from agent.model import RdmaDevice, RdmaPort
from agent.sources.netdev import is_representor
from agent.sysfs.bus import EMPTY, OMNI_PATH_CLASS, Bus
from agent.sysfs.front_end import NOT_RECORDED, FrontEnd, netdevs_of

SMI_NAME = "smi"  # begins the name that mlx5_ib gives an SMI sub-device
MLX5 = "mlx5_core"
# Virtual functions of mlx5, which have no physfn in a guest (mlx5_core_pci_table in
# drivers/net/ethernet/mellanox/mlx5/core/main.c, MLX5_PCI_DEV_IS_VF).
MLX5_VIRTUAL = frozenset(
    f"15b3:{device}" for device in ("1012", "1014", "1016", "1018", "101a", "101c", "101e", "a2d3")
)
CLOUD_DRIVERS = frozenset({"mana", "erdma"})  # Azure's and Alibaba's virtual NICs
NO_ADDRESS = "ffffffff:ff:ff.7"  # sorts after every PCI address
CONNECTX_7 = frozenset({"15b3:1021", "MT4129"})  # PCI ids; hca_type, in a copied tree
_OMNI_PATH = re.compile(r"hfi[0-9]")  # begins the name that the drivers hfi1 and hfi2 give
MIN_PATTERN = 3  # functions; a data card has at most two

Devices = Sequence[RdmaDevice]
PortKey = tuple[str, int]  # name of the device, number of the port


class DevicePort(NamedTuple):
    """A port and its device."""

    device: RdmaDevice
    port: RdmaPort

    @property
    def key(self) -> PortKey:
        """The key of the port."""
        return self.device.name, self.port.number


class Verdict(NamedTuple):
    """The rule that decided, and the evidence in words."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts that roles depend on, gathered once for each decision."""

    devices: Devices
    bus: Bus = EMPTY
    front_end: FrontEnd = NOT_RECORDED
    # interfaces that have labels, with the address of their PCI function
    labeled: Mapping[str, str | None] = field(default_factory=dict)
    excluded: frozenset[str] = frozenset()  # PCI functions that --exclude-device names
    is_old_guest: bool = False  # both ports of a card are named p0 (agent/sysfs/front_end.py)

    def carries_route(self, device: RdmaDevice) -> bool:
        """Return True if the best default route is on a netdev of the device, or of a VF of it."""
        netdevs = (netdev for port in device.ports for netdev in (port.netdev, *port.legs))
        is_seen = any(netdev.default_route for netdev in netdevs if netdev)
        return is_seen or self.front_end.carries_route(device)


def device_ports(devices: Devices) -> list[DevicePort]:
    """Return all ports that were read."""
    return [DevicePort(device, port) for device in devices for port in device.ports]


def ethernet_data_ports(evidence: Evidence) -> list[DevicePort]:
    """Return the data ports of link layer Ethernet."""
    ports = [one for one in device_ports(evidence.devices) if one.port.link_layer == "Ethernet"]
    return [one for one in ports if drop(one, evidence) is None]


def drop(one: DevicePort, evidence: Evidence) -> Verdict | None:
    """Return the first rule that drops a port; None for a data port."""
    return next(_drops(one, evidence), None)


def _drops(one: DevicePort, evidence: Evidence) -> Iterator[Verdict]:
    """Yield the rules for which a port is no host data port."""
    yield from _no_function_of_its_own(one, evidence)
    device, port = one
    if device.node_type == "RNIC":
        yield Verdict("iwarp", "iWARP (node type RNIC)")
    function = evidence.bus.functions.get(device.pci or "")
    if function and function.code == OMNI_PATH_CLASS:
        yield Verdict("omni-path", f"Omni-Path (PCI class {OMNI_PATH_CLASS:#06x})")
    elif device.driver is None and device.pci is None and _OMNI_PATH.match(device.name):
        yield Verdict("omni-path", f"Omni-Path (by its name {device.name})")
    is_accelerated = not evidence.front_end.accelerated.isdisjoint(netdevs_of(device))
    if is_accelerated or (device.driver in CLOUD_DRIVERS and evidence.carries_route(device)):
        what = "below hv_netvsc" if is_accelerated else f"driver {device.driver}"
        text = f"front end: a virtual NIC of the cloud ({what}) with the default route"
        yield Verdict("front-end", text)
    if port.link_layer not in {"InfiniBand", "Ethernet"}:
        text = f"link layer {port.link_layer or 'unknown'}: neither InfiniBand nor Ethernet"
        yield Verdict("other-link-layer", text)
    if device.node_type not in {None, "CA"}:
        yield Verdict("node-type", f"node type {device.node_type}: no channel adapter")
    if device.pci is None and (evidence.bus.gpus or any(other.pci for other in evidence.devices)):
        text = "a software device: no PCI function, beside GPUs or devices that have one"
        yield Verdict("software", text)
    yield from no_data(one)


def _no_function_of_its_own(one: DevicePort, evidence: Evidence) -> Iterator[Verdict]:
    """Yield the rules for which another function counts in place of this one, or none."""
    device, devices = one.device, evidence.devices
    if device.virtual_function:
        yield Verdict("virtual-function", "SR-IOV virtual function: its physical function counts")
    for owner in devices if device.sub_function and device.pci else ():
        if owner.pci == device.pci and not owner.sub_function:
            yield Verdict("sub-function", f"sub-function of {owner.name}, which counts")
    if parent := _smi_parent(device, devices):
        yield Verdict("smi", f"SMI sub-device of {parent.name}")
    if device.nvswitch_management:
        yield Verdict("nvswitch", "NVSwitch management function (SW_MNG in its VPD)")
    elif device.nvswitch_pattern and device.nvswitch_management is None:
        text = "taken for an NVSwitch management function: its VPD cannot be read"
        yield Verdict("nvswitch-pattern", text)
    twin = _socket_direct_twin(one, devices)
    if twin := twin or (None if evidence.is_old_guest else ethernet_twin(one, devices)):
        first = f"{twin.name} ({twin.pci or 'PCI address unknown'})"
        text = f"second PCI function of the Socket-Direct card of {first}: one cable"
        yield Verdict("socket-direct", text)


def no_data(one: DevicePort) -> Iterator[Verdict]:
    """Yield the rules for which a port of a data device carries no data of its own.

    - A port of the embedded switch (switchdev mode): its traffic passes the uplink, too.
    - A plane of a multi-plane HCA: no netdev beside siblings that have one.
    """
    device, port = one
    if port.netdev and _is_representor(port):
        name = port.netdev.phys_port_name
        text = f"representor of a VF or SF (phys_port_name {name}): its uplink counts"
        yield Verdict("representor", text)
    has_siblings = any(other.netdev and not _is_representor(other) for other in device.ports)
    if port.link_layer == "Ethernet" and not port.netdev and has_siblings:
        yield Verdict("no-netdev", "no netdev, beside ports that have one: no data port")


def _is_representor(port: RdmaPort) -> bool:
    return port.netdev is not None and is_representor(port.netdev.phys_port_name)


# Two devices of one cable


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
    """Return the other function of an InfiniBand card, if this one is that without SMI.

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


def ethernet_twin(one: DevicePort, devices: Devices) -> RdmaDevice | None:
    """Return the first function of an Ethernet card, if this one is the second.

    Exactly two mlx5 physical functions have one function number and one sys_image_guid, on
    different buses or in different domains; the one at the lower address counts. Functions of two
    ports of a card, each assigned to a guest's slot, are alike but for phys_port_name ("p0", "p1").
    """
    device, port = one
    if port.link_layer != "Ethernet":
        return None
    functions = {other.pci: other for other in devices if _may_be_ethernet_twins(device, other)}
    if len(functions) != 1:
        return None
    (other,) = functions.values()
    return other if pci_numbers(other.pci) < pci_numbers(device.pci) else None


def _may_be_ethernet_twins(device: RdmaDevice, other: RdmaDevice) -> bool:
    """Return True for another mlx5 function of the same number and image on another bus."""
    guid = device.sys_image_guid
    if not guid or other.sys_image_guid != guid or not (device.pci and other.pci):
        return False
    for one in (device, other):
        is_virtual = one.virtual_function or one.pci_ids in MLX5_VIRTUAL
        if one.driver != MLX5 or is_virtual or one.sub_function:
            return False
    ports, others = _physical_ports(device), _physical_ports(other)
    if ports and others and ports.isdisjoint(others):
        return False
    *bus, _, function = pci_numbers(device.pci)
    *other_bus, _, other_function = pci_numbers(other.pci)
    return bus != other_bus and function == other_function


def _physical_ports(device: RdmaDevice) -> set[str]:
    """Return the phys_port_name of its ports."""
    netdevs = (port.netdev for port in device.ports)
    return {one.phys_port_name for one in netdevs if one and one.phys_port_name}


def _has_smi(device: RdmaDevice) -> bool:
    return any(port.has_smi for port in device.ports)


def pci_numbers(pci: str | None) -> list[int]:
    """Return [domain, bus, device, function]; an unknown address is higher than any other."""
    return [int(part, 16) for part in (pci or NO_ADDRESS).replace(".", ":").split(":")]


# Functions that manage the NVSwitches of an HGX board


def nvswitch_pattern(devices: Devices) -> frozenset[str]:
    """Return the devices that look like the functions that manage NVSwitches.

    On HGX B200 and B300 these are InfiniBand functions of a ConnectX-7, some of them ACTIVE: three
    or more with one sys_image_guid, whatever their addresses; the two of a Socket-Direct port are
    one. A device that cannot be read counts if it is a function of the same PCI device. The VPD of
    such a function says what it is.
    """
    candidates = [one for one in devices if _may_manage(one) and not _is_second(one, devices)]
    functions = {(one.sys_image_guid, one.pci or one.name) for one in candidates}
    counts = Counter(guid for guid, _ in functions)
    slots = {one.sys_image_guid: card_of(one.pci) for one in candidates if one.pci}
    for one in devices:
        if one.failure and one.sys_image_guid:
            counts[one.sys_image_guid] += 1
        elif one.failure and one.pci:
            counts.update(guid for guid, slot in slots.items() if slot == card_of(one.pci))
    found = {guid for guid, count in counts.items() if count >= MIN_PATTERN}
    return frozenset(one.name for one in candidates if one.sys_image_guid in found)


def _is_second(device: RdmaDevice, devices: Devices) -> bool:
    """Return True for the second function of a Socket-Direct card of InfiniBand."""
    return any(_socket_direct_twin(DevicePort(device, port), devices) for port in device.ports)


def _may_manage(device: RdmaDevice) -> bool:
    """Return True for a physical function that is, or may be, an InfiniBand ConnectX-7."""
    layers = {port.link_layer for port in device.ports}
    is_connectx_7 = (device.pci_ids or device.hca_type) in {*CONNECTX_7, None}
    if device.virtual_function or device.sub_function or not is_connectx_7:
        return False
    return bool(device.sys_image_guid) and not layers.isdisjoint({"InfiniBand", None})


# Devices that cannot be judged while another is unread


def with_hidden(devices: Devices) -> tuple[RdmaDevice, ...]:
    """Return the devices; one that cannot be judged while another is unread has failed with it.

    The facts of both devices of a cable decide which of them counts. Example: the parent of smi0
    cannot be read, or has just gone, so nothing shows that smi0 is its SMI sub-device; it must not
    become a backend port. One whose parent can be read is judged by it.
    """
    unread = [device for device in devices if not (device.ports or device.excluded)]
    found = []
    for device in devices:
        others = () if device in unread or _smi_parent(device, devices) else unread
        parts = (other for other in others if _may_be_part_of(device, other, devices))
        if other := next(parts, None):
            why = "failed" if other.failure else "has no ports"
            failure = f"it may be a part of {other.name}, which {why}"
            found.append(replace(device, failure=failure, ports=()))
        else:
            found.append(device)
    return tuple(found)


def _may_be_part_of(device: RdmaDevice, unread: RdmaDevice, devices: Devices) -> bool:
    """Return True if a device may be the second one of a cable, of which `unread` is the first.

    - Both have one PCI function; where that of the unread one was never read, the name decides.
    - It may be the second function of a Socket-Direct card: of Ethernet, or of InfiniBand without
      SMI of any kind. The GUID that the functions of a card share decides, where it is known of the
      unread one; a device that has none, such as scif0, is no card.
    """
    if unread.pci is None and device.name.startswith(SMI_NAME):
        return True
    if unread.pci is not None and device.pci == unread.pci and not device.sub_function:
        return True
    if any(port.link_layer == "Ethernet" for port in device.ports):
        is_first = pci_numbers(unread.pci) < pci_numbers(device.pci)
        if is_first and _may_be_ethernet_twins(device, unread):
            return True
    guid = unread.sys_image_guid
    if guid != device.sys_image_guid and (guid is not None or not unread.failure):
        return False
    if any(is_smi_of(other, device) for other in devices):
        return False
    return any(
        port.link_layer == "InfiniBand"
        and port.has_smi is False
        and _socket_direct_twin(DevicePort(device, port), devices) is None
        for port in device.ports
    )
