"""The prerequisites of LLDP neighbors: packet sockets, and NICs that pass the frames on."""

from __future__ import annotations

from collections.abc import Iterator

from agent.check import AS_ROOT, Check, Step, Surroundings, absent, missing, there
from agent.grouped import grouped
from agent.lldp.firmware import FIRMWARE, hints
from agent.model import Seen, ethernet_netdevs

PERMISSION = Step.PRIVILEGE, f"{AS_ROOT} (in a Pod: the capability NET_RAW)"
FAULTS = {  # of a packet socket
    "EPERM": PERMISSION,
    "EACCES": PERMISSION,
    "EAFNOSUPPORT": (Step.MODULE, "modprobe af_packet"),
}


def checks(around: Surroundings) -> Iterator[Check]:
    """Open the packet socket of each Ethernet backend port, and read the flags of its driver.

    A capture has the neighbors instead.
    """
    netdevs = ethernet_netdevs(around.observation.backend)
    if not netdevs:
        yield absent("no Ethernet backend port with a network device")
        return
    if around.is_live:
        by_fault = grouped(netdevs, around.lldp_fault)
        if opened := by_fault.pop(None, None):
            yield there(f"packet sockets: {len(opened)} of {len(netdevs)}")
        for fault, without in by_fault.items():
            step, command = FAULTS.get(fault or "", (Step.DRIVER, f"ip link show {without[0]}"))
            yield missing(step, f"packet socket of {', '.join(without)}: {fault}", command)
    else:
        outcome = around.observation.lldp
        links = outcome.value if isinstance(outcome, Seen) else ()
        answered = sum(bool(link.neighbors) for link in links)
        yield there(f"Ethernet backend ports with a neighbor: {answered} of {len(links)}")
    for name in netdevs:
        flags = around.private_flags(name)
        for flag, consumes in FIRMWARE.items():
            if flags.get(flag) is consumes:
                value = "off" if consumes else "on"
                text = f"LLDP frames of {name}, which the NIC's firmware consumes"
                command = f"ethtool --set-priv-flags {name} {flag} {value}"
                yield missing(Step.FIRMWARE, text, command)
    for hint in hints(around.observation):
        yield absent(hint.text)
