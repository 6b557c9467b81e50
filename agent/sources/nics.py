"""What the drivers of the backend NICs know: link states, health reporters, firmware.

agent/nic/health.py decodes the answer. Absent is absent: most drivers tell a part of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.check import Check, Step, Surroundings, missing, there
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


def checks(around: Surroundings) -> Iterator[Check]:
    """Check what the drivers tell; those that tell nothing have no line."""
    match around.observation.nics:
        case Failed(reason):
            yield missing(Step.LIBRARY, reason, "pip install pyroute2")
        case Seen(nics):
            told = sum(link.state is not None for link in nics.links.values())
            if nics.health or told:
                text = f"NICs whose driver tells their health or firmware: {len(nics.health)}"
                yield there(f"{text}, links with the reason why they are down: {told}")
            for nic in nics.health.values():
                if nic.fault:
                    command = f"devlink health show pci/{nic.pci}"
                    yield missing(Step.FIRMWARE, f"{nic.pci}: {nic.fault}", command)
