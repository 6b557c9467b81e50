"""The SMI devices of multi-plane HCAs, which send the SMPs of their ports."""

from __future__ import annotations

from collections.abc import Iterator

from agent.model import Observation, PortRole, Problem, Seen
from agent.text import listed

SOURCE = "ib"
SMI_HCAS = frozenset({"15b3:1023", "15b3:1025"})  # ConnectX-8 and -9: several planes
MAKE_SMI = "rdma dev add smi1 type SMI parent"


def without_smi(observation: Observation) -> list[PortRole]:
    """Return the ports of multi-plane HCAs whose neighbors are unknown for want of an SMI device.

    GB300 and B300 are delivered without one: queue pair 0 is closed, and that is no fault.
    """
    links = observation.ib.value if isinstance(observation.ib, Seen) else ()
    unanswered = {link.interface for link in links if link.missing and link.missing != "link-down"}
    functions = [role.device.pci for role in observation.ports]
    return [
        role
        for role in observation.backend
        if role.interface in unanswered
        and role.device.pci_ids in SMI_HCAS
        and functions.count(role.device.pci) == 1
    ]


def hints(observation: Observation) -> Iterator[Problem]:
    """Report the ports without SMI device, and the command that makes it."""
    if roles := without_smi(observation):
        names = listed([role.interface for role in roles])
        text = (
            f"{names}: no subnet management interface: `{MAKE_SMI} {roles[0].device.name}` makes"
            " one for the first (kernel 6.11 or newer; not kept over a reboot)"
        )
        yield Problem(SOURCE, SOURCE, None, text)
