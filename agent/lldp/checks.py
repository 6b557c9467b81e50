"""The prerequisites for receiving LLDP frames: packet sockets, and NICs that pass the frames on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from agent.check import AS_ROOT, Check, Step, Surroundings, absent, missing, there
from agent.model import Observation, Problem, Seen
from agent.reasons import NeighborReason
from agent.text import listed

PERMISSION = Step.PRIVILEGE, f"{AS_ROOT} (in a Pod: the capability NET_RAW)"
FAULTS = {  # of a packet socket
    "EPERM": PERMISSION,
    "EACCES": PERMISSION,
    "EAFNOSUPPORT": (Step.MODULE, "modprobe af_packet"),
}
# Driver flags by which firmware consumes LLDP frames: the value that does, and the other one
FIRMWARE = {"disable-fw-lldp": (False, "on"), "fw-lldp-agent": (True, "off")}


MLX5 = "mlx5_core"
NAMES_SHOWN = 8


def hints(observation: Observation) -> Iterator[Problem]:
    """Report ConnectX ports without an LLDP frame: their firmware may keep the frames.

    Only NVIDIA's own tools can tell.
    """
    links = observation.lldp.value if isinstance(observation.lldp, Seen) else ()
    silent = {link.interface for link in links if link.missing == NeighborReason.SILENT}
    roles = [
        role
        for role in observation.backend
        if role.interface in silent and role.device.driver == MLX5
    ]
    if roles:
        names = listed([role.interface for role in roles], NAMES_SHOWN)
        text = (
            f"{names} silent: if the switch sends LLDP frames, firmware may keep them:"
            f" mlxconfig -d {roles[0].device.pci} query LLDP_NB_RX_MODE_P1 LLDP_NB_DCBX_P1"
        )
        yield Problem("lldp", "lldp", None, text)


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
    for hint in hints(around.observation):
        yield absent(hint.text)
