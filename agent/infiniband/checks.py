"""The prerequisites of a query of InfiniBand neighbors: ib_umad, its device files, libibumad."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from agent.check import AS_ROOT, NOT_PERMITTED, Check, Step, Surroundings, absent, missing, there
from agent.model import Absent, Link, Observation, PortRole, Problem, Seen
from agent.reasons import NeighborReason
from agent.text import listed

SOURCE = "ib"
CLASS = "sys/class/infiniband_mad"
FOLDER = "/dev/infiniband"
LIBRARY = "libibumad"
INSTALL = "apt-get install libibumad3 (RHEL: dnf install libibumad)"
MAKE_FILES = "udevadm trigger --action=add --subsystem-match=infiniband_mad"
ALLOW = f"{AS_ROOT} (in a Pod: privileged, for the device cgroup)"

UNSENT = {  # by the reason why a port was not queried, whose file seems to be in order
    NeighborReason.NOT_PERMITTED.value: (Step.PRIVILEGE, ALLOW),
    NeighborReason.NO_UMAD.value: (Step.DEVICE_FILE, MAKE_FILES),
}


SMI_HCAS = frozenset({"15b3:1023", "15b3:1025"})  # ConnectX-8 and -9: several planes
MAKE_SMI = "rdma dev add smi1 type SMI parent"
NAMES_SHOWN = 8


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
    """Report the ports without SMI device, and how to make one."""
    if roles := without_smi(observation):
        names = listed([role.interface for role in roles], NAMES_SHOWN)
        text = (
            f"{names}: no subnet management interface: `{MAKE_SMI} {roles[0].device.name}` makes"
            " one for the first (kernel 6.11 or newer; not kept over a reboot)"
        )
        yield Problem(SOURCE, SOURCE, None, text)


def checks(around: Surroundings) -> Iterator[Check]:
    """Check the umad devices, their files, the library, and whether any port was queried."""
    outcome = around.observation.ib
    if isinstance(outcome, Absent):
        yield absent(outcome.reason)
        return
    links = outcome.value if isinstance(outcome, Seen) else ()
    found = list(_umads(around))
    texts = (problem.text for problem in around.observation.problems if problem.source == SOURCE)
    if text := next((text for text in texts if LIBRARY in text), None):
        found.append(missing(Step.LIBRARY, text, INSTALL))
    yield from found or _queries(outcome.reason if not isinstance(outcome, Seen) else None, links)
    for hint in hints(around.observation):
        first = without_smi(around.observation)[0].device.name
        yield missing(Step.DEVICE_FILE, hint.text, f"{MAKE_SMI} {first}")


def _umads(around: Surroundings) -> Iterator[Check]:
    """Check the kernel module, and the file of each of its devices."""
    umads = [name for name in around.names(CLASS) if name.startswith("umad")]
    if not umads:
        yield missing(Step.MODULE, f"umad devices: /{CLASS} has none", "modprobe ib_umad")
    by_fault: defaultdict[str, list[str]] = defaultdict(list)
    for name in umads:
        if fault := around.device_fault(f"{FOLDER}/{name}"):
            by_fault[fault].append(name)
    for fault, names in by_fault.items():
        refused = fault in NOT_PERMITTED
        step, command = (Step.PRIVILEGE, ALLOW) if refused else (Step.DEVICE_FILE, MAKE_FILES)
        yield missing(step, f"device files in {FOLDER}: {', '.join(names)}: {fault}", command)


def _queries(failure: str | None, links: tuple[Link, ...]) -> Iterator[Check]:
    """Check the queries themselves, where everything that they need seems to be there."""
    if failure:
        yield missing(Step.DRIVER, failure, "dmesg")
    unsent = [(link.missing, link.interface) for link in links if link.missing in UNSENT]
    for reason in dict.fromkeys(reason for reason, _ in unsent):
        ports = ", ".join(interface for other, interface in unsent if other == reason)
        step, command = UNSENT[reason or ""]
        yield missing(step, f"queries of {ports}: {reason}", command)
    if not (failure or unsent):
        answered = sum(bool(link.neighbors) for link in links)
        yield there(f"InfiniBand backend ports with a neighbor: {answered} of {len(links)}")
