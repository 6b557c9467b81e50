"""The prerequisites of a query of InfiniBand neighbors: ib_umad, its device files, libibumad."""

from __future__ import annotations

from collections.abc import Iterator

from agent.check import AS_ROOT, NOT_PERMITTED, Check, Step, Surroundings, absent, missing, there
from agent.grouped import grouped
from agent.infiniband.devices import MAKE_SMI, SOURCE, smi_hints, without_smi
from agent.model import Absent, Link, Observation, Seen
from agent.reasons import NeighborReason
from agent.text import listed

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

SMPS_NEED = (
    "SMPs need a subnet management interface (a physical function; on ConnectX-8 and -9 an SMI"
    " device) and no M_Key at level 2"
)
SA_NEEDS = {  # prerequisite of the SA's answer, by the reason of a port that has no neighbor
    NeighborReason.NO_SM: "a subnet manager that has configured the port: `sminfo`",
    NeighborReason.NO_LID: "a LID of the virtual port's own, or the physical function",
    NeighborReason.SA_NO_ANSWER: "a subnet manager that answers: `saquery LR` on another host",
    NeighborReason.SA_BUSY: "a subnet manager with less load; it is asked again",
    NeighborReason.SA_REFUSED: "a subnet manager without SA trust (SM_Key) for these records",
    NeighborReason.SA_NO_RECORD: "a partition that port, switch and subnet manager share",
    NeighborReason.SA_FOREIGN: "`lid` and `sm_lid` in sysfs that are of one subnet",
    NeighborReason.SA_AMBIGUOUS: "planes that lead to one switch",
    NeighborReason.LIMITED_PKEY: "full membership of a partition",
}
TIERS_NEED = (
    "--tiers needs the subnet administrator of an ACTIVE port, and switches that are full members"
    " of its partition (opensm: ALL_SWITCHES=full)"
)


def checks(around: Surroundings) -> Iterator[Check]:
    """Check the umad devices, their files, the library, and the queries of the ports."""
    outcome = around.observation.ib
    if isinstance(outcome, Absent):
        yield absent(outcome.reason)
        return
    links = outcome.value if isinstance(outcome, Seen) else ()
    lacks = list(_umads(around)) if around.is_live else []
    texts = (problem.text for problem in around.observation.problems if problem.source == SOURCE)
    if text := next((text for text in texts if LIBRARY in text), None):
        lacks.append(missing(Step.LIBRARY, text, INSTALL))
    yield from lacks or _queries(outcome.reason if not isinstance(outcome, Seen) else None, links)
    if not lacks:
        yield from _tiers(around.observation)
    for hint in smi_hints(around.observation):
        first = without_smi(around.observation)[0].device.name
        yield missing(Step.DEVICE_FILE, hint.text, f"{MAKE_SMI} {first}")


def _tiers(observation: Observation) -> Iterator[Check]:
    """Report the switches above the leaves, or what is in the way; nothing without --tiers."""
    if observation.tiers is None:
        return
    if isinstance(observation.tiers, Seen):
        tiers = observation.tiers.value.tiers
        for number in (1, 2):
            if switch := tiers.label(number):
                yield there(f"switches above the leaves: tier {number}: {switch}")
        for why in observation.tiers.value.walked:
            yield there(f"switches above the leaves: by SMPs over directed routes, since {why}")
        texts = [f"no more: {tiers.reason.text}"] if tiers.reason else []
    else:
        texts = [f"{observation.tiers.reason}; {TIERS_NEED}"]
    texts += [problem.text for problem in observation.problems if problem.source == "tiers"]
    for text in texts:
        yield absent(f"switches above the leaves: {text}")


def _umads(around: Surroundings) -> Iterator[Check]:
    """Check the kernel module, and the file of each of its devices."""
    umads = [name for name in around.names(CLASS) if name.startswith("umad")]
    if not umads:
        yield missing(Step.MODULE, f"umad devices: /{CLASS} has none", "modprobe ib_umad")
    faults = {name: around.device_fault(f"{FOLDER}/{name}") for name in umads}
    for fault, names in grouped(filter(faults.get, umads), lambda name: faults[name]).items():
        refused = fault in NOT_PERMITTED
        step, command = (Step.PRIVILEGE, ALLOW) if refused else (Step.DEVICE_FILE, MAKE_FILES)
        yield missing(step, f"device files in {FOLDER}: {', '.join(names)}: {fault}", command)


def _queries(failure: str | None, links: tuple[Link, ...]) -> Iterator[Check]:
    """Check the queries themselves: all their prerequisites seem to be there.

    Reports how the neighbors of ports without SMPs are queried, and what the others need.
    """
    if failure:
        yield missing(Step.DRIVER, failure, "dmesg")
    reasons = {link.interface: link.missing for link in links if link.missing in UNSENT}
    for reason, ports in grouped(reasons, reasons.__getitem__).items():
        step, command = UNSENT[reason]
        yield missing(step, f"queries of {', '.join(ports)}: {reason}", command)
    if not (failure or reasons):
        answered = sum(bool(link.neighbors) for link in links)
        yield there(f"InfiniBand backend ports with a neighbor: {answered} of {len(links)}")
        by_sa = [row.interface for row in links if row.neighbors and row.neighbors[0].via == "sa"]
        if by_sa:
            names = listed(by_sa)
            yield there(f"by the subnet administrator, since SMPs fail: {names}; {SMPS_NEED}")
        for reason, need in SA_NEEDS.items():
            if closed := [link.interface for link in links if link.missing == reason]:
                names = listed(closed)
                yield absent(
                    f"{names}: neither by SMPs nor by the subnet administrator ({reason}), which"
                    f" needs {need}; {SMPS_NEED}"
                )
