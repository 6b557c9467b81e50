"""What the document and the metrics both tell of the backend's ports beside an observation.

The daemon does not load the document for it.
"""

import re
from typing import NamedTuple

from agent.labels.table import total, uncounted
from agent.memory import Known
from agent.model import Failed, Observation, PortRole
from agent.reasons import HoldReason
from agent.text import missing_since

# Connect-IB (MT4113), the first HCA of the mlx5 driver; older ones may run at SDR
FIRST_MLX5 = 4113
ABSENT = "absent"  # the state of a labeled port without an RDMA device
# SDR: 2.5 Gb/s a lane, with or without the word; the width is left out where it is unknown
_SDR = re.compile(r".* SDR\)|(2\.5 Gb/sec( \(1X\))?|(5|10|20|30) Gb/sec \((2|4|8|12)X\))")
_HCA_NUMBER = re.compile(r"MT(\d{4,5})")


def is_suspect(role: PortRole) -> bool:
    """Return True for an ACTIVE InfiniBand port of a modern HCA at SDR.

    The kernel prints a speed that it does not know as SDR, older ones without the word
    (drivers/infiniband/core/sysfs.c, rate_show).
    """
    port, device = role.port, role.device
    if not role.backend or port.link_layer != "InfiniBand" or port.state != "ACTIVE":
        return False
    number = _HCA_NUMBER.match(device.hca_type or "")
    has_mlx5_number = number is not None and int(number[1]) >= FIRST_MLX5
    is_modern = has_mlx5_number or device.driver == "mlx5_core"
    return is_modern and _SDR.fullmatch(port.rate_text or "") is not None


class AbsentPort(NamedTuple):
    """A labeled port that an observation does not have."""

    interface: str  # its last name; `{name}@{pci}` if another port has that now
    reason: str
    counted_gbps: float | None  # its part of the speed label; None: unknown
    pci: str | None = None
    port_guid: str | None = None


def absent_ports(observation: Observation, known: Known) -> list[AbsentPort]:
    """Return the labeled ports without an RDMA device: off the bus, or without a driver."""
    names = {role.interface for role in observation.ports}
    unbound = [
        AbsentPort(fact.interface, HoldReason.DEVICE_GONE.text, fact.gbps)
        for fact in known.unbound
        if fact.interface and fact.interface not in names
    ]
    names |= {port.interface for port in unbound}
    lost = [
        AbsentPort(
            f"{fact.interface}@{fact.function}" if fact.interface in names else fact.interface,
            f"gone from the bus, {missing_since(fact.lost_since or None)}",
            0.0,
            fact.function,
            fact.port_guid,
        )
        for fact in known.lost
    ]
    return [*lost, *unbound]


def speed_gbps(observation: Observation, known: Known) -> float | None:
    """Return the sum of the backend's counts in Gb/s; None if it is not known of any port."""
    if isinstance(observation.rdma, Failed) or uncounted(known):
        return None
    return float(total(known))
