"""Firmware of NICs that consumes LLDP frames, so that no packet socket receives one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.model import Observation, Problem, Seen
from agent.reasons import NeighborReason
from agent.text import listed

SOURCE = "lldp"
# Driver flags by which firmware consumes LLDP frames, with the value for it
FIRMWARE = {"disable-fw-lldp": False, "fw-lldp-agent": True}
MLX5 = "mlx5_core"


def consumes_lldp(flags: Mapping[str, bool]) -> bool:
    """Return True if NIC firmware consumes LLDP frames, by the private flags of i40e and ice."""
    return any(flags.get(flag) is consumes for flag, consumes in FIRMWARE.items())


def hints(observation: Observation) -> Iterator[Problem]:
    """Report ConnectX ports without an LLDP frame: their firmware may keep the frames.

    Only NVIDIA's own tools show whether it does.
    """
    links = observation.lldp.value if isinstance(observation.lldp, Seen) else ()
    silent = {link.interface for link in links if link.missing == NeighborReason.SILENT}
    roles = [
        role
        for role in observation.backend
        if role.interface in silent and role.device.driver == MLX5
    ]
    if roles:
        names = listed([role.interface for role in roles])
        text = (
            f"{names} silent: if the switch sends LLDP frames, firmware may keep them:"
            f" mlxconfig -d {roles[0].device.pci} query LLDP_NB_RX_MODE_P1 LLDP_NB_DCBX_P1"
        )
        yield Problem(SOURCE, SOURCE, None, text)
