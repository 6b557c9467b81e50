"""The prerequisites for receiving LLDP frames: packet sockets, and NICs that pass the frames on."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from agent.check import AS_ROOT, Step, absent, missing, there

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.check import Check, Surroundings
    from agent.model import Observation

PERMISSION = Step.PRIVILEGE, f"{AS_ROOT} (in a Pod: the capability NET_RAW)"
FAULTS = {  # of a packet socket
    "EPERM": PERMISSION,
    "EACCES": PERMISSION,
    "EAFNOSUPPORT": (Step.MODULE, "modprobe af_packet"),
}
# Driver flags by which firmware consumes LLDP frames: the value that does, and the other one
FIRMWARE = {"disable-fw-lldp": (False, "on"), "fw-lldp-agent": (True, "off")}


def checks(around: Surroundings) -> Iterator[Check]:
    """Open the packet socket of each Ethernet backend port, and read the flags of its driver."""
    netdevs = _netdevs(around.observation)
    if not netdevs:
        yield absent("no Ethernet backend port with a network device")
        return
    by_fault: defaultdict[str | None, list[str]] = defaultdict(list)
    for netdev in netdevs:
        by_fault[around.lldp_fault(netdev)].append(netdev)
    if opened := by_fault.pop(None, None):
        yield there(f"packet sockets: {len(opened)} of {len(netdevs)}")
    for fault, without in by_fault.items():
        yield _no_socket(fault or "", without)
    for netdev in netdevs:
        yield from _firmware(netdev, around.private_flags(netdev))


def _netdevs(observation: Observation) -> list[str]:
    """Return the netdevs of the Ethernet backend ports, the legs of a bond among them."""
    ethernet = [role for role in observation.backend if role.port.link_layer == "Ethernet"]
    return [found.name for role in ethernet if (found := role.leg or role.port.netdev)]


def _no_socket(fault: str, netdevs: list[str]) -> Check:
    step, command = FAULTS.get(fault, (Step.DRIVER, f"ip link show {netdevs[0]}"))
    return missing(step, f"packet socket of {', '.join(netdevs)}: {fault}", command)


def _firmware(netdev: str, flags: Mapping[str, bool]) -> Iterator[Check]:
    """Yield a check for firmware that consumes the LLDP frames of a netdev."""
    for flag, (consumes, other) in FIRMWARE.items():
        if flags.get(flag) is consumes:
            text = f"LLDP frames of {netdev}, which the NIC's firmware consumes"
            yield missing(Step.FIRMWARE, text, f"ethtool --set-priv-flags {netdev} {flag} {other}")
