"""The prerequisites for receiving LLDP frames: packet sockets, and NICs that pass the frames on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from agent.check import AS_ROOT, Check, Step, Surroundings, absent, missing, there

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
    roles = around.observation.backend
    ethernet = [role for role in roles if role.port.link_layer == "Ethernet"]
    # the legs of a bond, not the bond
    netdevs = [found.name for role in ethernet if (found := role.leg or role.port.netdev)]
    if not netdevs:
        yield absent("no Ethernet backend port with a network device")
        return
    by_fault: defaultdict[str | None, list[str]] = defaultdict(list)
    for netdev in netdevs:
        by_fault[around.lldp_fault(netdev)].append(netdev)
    if opened := by_fault.pop(None, None):
        yield there(f"packet sockets: {len(opened)} of {len(netdevs)}")
    for fault, without in by_fault.items():
        step, command = FAULTS.get(fault or "", (Step.DRIVER, f"ip link show {without[0]}"))
        yield missing(step, f"packet socket of {', '.join(without)}: {fault}", command)
    for netdev in netdevs:
        flags = around.private_flags(netdev)
        for flag, (consumes, other) in FIRMWARE.items():
            if flags.get(flag) is consumes:
                text = f"LLDP frames of {netdev}, which the NIC's firmware consumes"
                command = f"ethtool --set-priv-flags {netdev} {flag} {other}"
                yield missing(Step.FIRMWARE, text, command)
