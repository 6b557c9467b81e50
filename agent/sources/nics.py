"""What the drivers of the backend NICs know: link states, health reporters, firmware.

agent/nic/health.py decodes the answer. Absent is absent: most drivers tell a part of it.
"""

from __future__ import annotations

from agent.errors import Malformed, Pending, Unavailable
from agent.host import Host
from agent.model import (
    Absent,
    Failed,
    PortRole,
    Problem,
    Reading,
    Seen,
    backend_functions,
    ethernet_netdevs,
)
from agent.nic.health import Nics, decode

SOURCE = "nics"


def read(host: Host, ports: tuple[PortRole, ...]) -> Reading[Nics]:
    """Ask about the backend NICs, all in one question."""
    functions = backend_functions(ports)
    netdevs = ethernet_netdevs(role for role in ports if role.backend)
    if host.ask_nics is None or not functions:
        return Reading(Absent("no backend port is on a PCI function"))
    try:
        nics, faults = decode(host.ask_nics(netdevs))
    except (Malformed, Unavailable) as error:
        return Reading(Failed(str(error), isinstance(error, Pending)))
    ours = Nics(
        {name: state for name, state in nics.links.items() if name in netdevs},
        {pci: health for pci, health in nics.health.items() if pci in functions},
    )
    return Reading(Seen(ours), tuple(Problem(SOURCE, part, None, text) for part, text in faults))
