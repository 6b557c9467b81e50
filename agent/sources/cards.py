"""Functions of one card: those that share a cable, and those that manage NVSwitches.

A multi-plane HCA has an SMI sub-device (subnet management interface), through which the subnet
manager reaches the planes. A Socket-Direct card has two PCI functions for one port: of an
InfiniBand port one function has SMI, as has_smi of newer drivers tells; else both are alike, and
the one at the lower address counts. On an HGX board, functions of a ConnectX-7 manage the
NVSwitches.

A rule whose input is unread must not pass for a rule that does not apply. So a device is failed,
and has no ports, while another device that may count in its place cannot be read (`with_hidden`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from functools import lru_cache

from agent.grouped import grouped
from agent.ids import card_of
from agent.model import RdmaDevice

SMI_NAME = "smi"  # begins the name that mlx5_ib gives an SMI sub-device
MLX5 = "mlx5_core"
# Virtual functions of mlx5, which have no physfn in a guest (mlx5_core_pci_table in
# drivers/net/ethernet/mellanox/mlx5/core/main.c, MLX5_PCI_DEV_IS_VF).
MLX5_VIRTUAL = frozenset(
    f"15b3:{device}" for device in ("1012", "1014", "1016", "1018", "101a", "101c", "101e", "a2d3")
)
CONNECTX_7 = frozenset({"15b3:1021", "MT4129"})  # PCI ids; hca_type, in a copied tree
MIN_PATTERN = 3  # functions; a data card has at most two
NO_ADDRESS = "ffffffff:ff:ff.7"  # sorts after every PCI address

Devices = Sequence[RdmaDevice]


def is_smi_of(device: RdmaDevice, parent: RdmaDevice) -> bool:
    """Return True if `device` is the SMI sub-device of `parent`, a multi-plane HCA.

    Both have the same PCI function and port GUID; the sub-device is that whose name begins with
    "smi" or, where names do not distinguish them, that with SMI.
    """
    if device.name == parent.name or not device.pci or device.pci != parent.pci:
        return False
    guids = {port.port_guid for port in device.ports} - {None}
    if guids.isdisjoint(port.port_guid for port in parent.ports):
        return False
    is_named, is_parent_named = (name.startswith(SMI_NAME) for name in (device.name, parent.name))
    if is_named is not is_parent_named:
        return is_named
    return bool(_has_smi(device)) and any(port.has_smi is False for port in parent.ports)


def smi_parent(device: RdmaDevice, devices: Devices) -> RdmaDevice | None:
    """Return the HCA whose SMI sub-device this device is; None if it is no SMI sub-device."""
    return next((parent for parent in devices if is_smi_of(device, parent)), None)


def socket_direct_twin(
    device: RdmaDevice, devices: Devices, ambiguous: Collection[str] = ()
) -> RdmaDevice | None:
    """Return the first function of a port, if this device is the second.

    Exactly two mlx5 physical functions have one function number and one sys_image_guid, on
    different buses or in different domains. The first one has SMI, where has_smi tells it, else
    the lower address. Of `ambiguous` link layers only has_smi tells them from two ports.
    """
    functions = {other.pci: other for other in devices if _is_alike(device, other)}
    if not functions:
        return None
    twins = [other for other in functions.values() if not smi_parent(other, devices)]
    layers = {port.link_layer for port in device.ports} & {"InfiniBand", "Ethernet"}
    if len(twins) != 1 or not layers or any(is_smi_of(other, device) for other in devices):
        return None
    (other,) = twins
    has_smi, other_has_smi = _has_smi(device), _has_smi(other)
    if "InfiniBand" in layers and (has_smi, other_has_smi) != (None, None):
        return other if has_smi is False and other_has_smi else None
    if not layers.isdisjoint(ambiguous):
        return None
    return other if pci_numbers(other.pci) < pci_numbers(device.pci) else None


def joined_slots(devices: Devices) -> dict[str, str]:
    """Return the first slot of each Socket-Direct card, by each of its slots."""
    joined: defaultdict[str, set[str]] = defaultdict(set)
    for alike in grouped(devices, lambda device: device.sys_image_guid).values():
        for device in alike:
            others = {card_of(other.pci) for other in alike if _is_alike(device, other)}
            if others:
                joined[card_of(device.pci)] |= others | {card_of(device.pci)}
    return {slot: min(slots) for slot, slots in joined.items()}


def nvswitch_pattern(devices: Devices) -> frozenset[str]:
    """Return the devices that look like the functions that manage NVSwitches.

    On HGX B200 and B300 these are InfiniBand functions of a ConnectX-7, some of them ACTIVE: three
    or more with one sys_image_guid, whatever their addresses; the two of a Socket-Direct port are
    one. A device that cannot be read counts if it is a function of the same PCI device. The VPD of
    such a function says what it is.
    """
    alike = [
        device
        for device in devices
        if device.sys_image_guid
        and (device.pci_ids or device.hca_type) in {*CONNECTX_7, None}
        and not (device.virtual_function or device.sub_function)
        and any(port.link_layer in {"InfiniBand", None} for port in device.ports)
        and not socket_direct_twin(device, devices)
    ]
    images = {card_of(device.pci): device.sys_image_guid for device in alike if device.pci}
    counted = alike + [device for device in devices if device.failure]
    functions = {
        (device.sys_image_guid or images.get(card_of(device.pci)), device.pci or device.name)
        for device in counted
    }
    counts = Counter(guid for guid, _ in functions)
    return frozenset(
        device.name for device in alike if counts[device.sys_image_guid] >= MIN_PATTERN
    )


def with_hidden(devices: Devices, ambiguous: Collection[str] = ()) -> tuple[RdmaDevice, ...]:
    """Return the devices; what stands behind an unread device, or may do so, has failed.

    Example: the parent of smi0 cannot be read, or has just gone, so nothing shows that smi0 is its
    SMI sub-device; it must not become a backend port. One whose first device can be read is judged
    by that.
    """
    unread = [device for device in devices if not (device.ports or device.excluded)]
    if not unread:
        return tuple(devices)
    read = [device for device in devices if device.ports]
    judged = []
    for device in devices:
        others = () if device in unread or _first(device, read, ambiguous) else unread
        for other in others:
            if _first(device, [*read, _assumed(other, device)], ambiguous):
                why = "failed" if other.failure else "has no ports"
                failure = f"it may be a part of {other.name}, which {why}"
                device = device._replace(failure=failure, ports=())  # noqa: PLW2901
                break
        judged.append(device)
    return tuple(judged)


def _first(device: RdmaDevice, devices: Devices, ambiguous: Collection[str]) -> RdmaDevice | None:
    """Return the device that has the cable, if another device has it."""
    return smi_parent(device, devices) or socket_direct_twin(device, devices, ambiguous)


def _assumed(unread: RdmaDevice, device: RdmaDevice) -> RdmaDevice:
    """Return an unread device with whatever is unknown of it as if `device` stood behind it.

    Where only the address tells the two functions apart, the GUID that they share is known, or it
    is none: else each rail might be the second function of the unread device. A device that
    has not failed has none either, such as scif0.
    """
    pci, guid = unread.pci, unread.sys_image_guid
    if pci is None and device.name.startswith(SMI_NAME):
        pci = device.pci
    has_smi = _has_smi(device)
    is_ethernet = any(port.link_layer == "Ethernet" for port in device.ports)
    if unread.failure and has_smi is not None and not is_ethernet:
        guid = guid or device.sys_image_guid
    ports = tuple(
        port._replace(has_smi=None if has_smi is None else not has_smi) for port in device.ports
    )
    driver = unread.driver or device.driver
    return unread._replace(pci=pci, driver=driver, sys_image_guid=guid, ports=ports)


def _is_alike(device: RdmaDevice, other: RdmaDevice) -> bool:
    """Return True for another mlx5 function of the same number and image on another bus."""
    guid = device.sys_image_guid
    if not guid or other.sys_image_guid != guid or not (device.pci and other.pci):
        return False
    for function in (device, other):
        is_virtual = function.virtual_function or function.pci_ids in MLX5_VIRTUAL
        if function.driver != MLX5 or is_virtual or function.sub_function:
            return False
    *bus, _, number = pci_numbers(device.pci)
    *other_bus, _, other_number = pci_numbers(other.pci)
    if bus == other_bus or number != other_number:
        return False
    names, other_names = (
        {port.netdev.phys_port_name for port in function.ports if port.netdev} - {None, ""}
        for function in (device, other)
    )
    return not (names and other_names and names.isdisjoint(other_names))


def _has_smi(device: RdmaDevice) -> bool | None:
    """Return True if a port has SMI; None if that is unknown of all."""
    known = {port.has_smi for port in device.ports} - {None}
    return any(known) if known else None


@lru_cache(1024)
def pci_numbers(pci: str | None) -> tuple[int, ...]:
    """Return (domain, bus, device, function); an unknown address is higher than any other."""
    return tuple(int(part, 16) for part in (pci or NO_ADDRESS).replace(".", ":").split(":"))
