"""Rule 1: ports that are no host data ports.

A candidate has node type CA, link layer InfiniBand or Ethernet, and a PCI function that is none of
Omni-Path; a file that the tree lacks speaks for it. Of devices that share a cable one counts
(agent/sources/cards.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.model import RdmaDevice
from agent.sources.cards import smi_parent, socket_direct_twin
from agent.sources.evidence import DevicePort, RoleEvidence, RoleVerdict
from agent.sources.netdev import is_representor
from agent.sysfs.bus import OMNI_PATH_CLASS
from agent.sysfs.front_end import netdevs_of

CLOUD_DRIVERS = frozenset({"mana", "erdma"})  # Azure's and Alibaba's virtual NICs
_OMNI_PATH = re.compile(r"hfi[0-9]")  # the drivers hfi1 and hfi2, and the names that they give


def ethernet_data_ports(evidence: RoleEvidence) -> list[DevicePort]:
    """Return the data ports of link layer Ethernet."""
    ports = [port for port in evidence.ports if port.port.link_layer == "Ethernet"]
    return [port for port in ports if not any(rules(port, evidence))]


def rules(candidate: DevicePort, evidence: RoleEvidence) -> Iterator[RoleVerdict]:
    """Yield the rules for which a port is no host data port."""
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
    yield from no_data(candidate)


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


def no_data(candidate: DevicePort) -> Iterator[RoleVerdict]:
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
