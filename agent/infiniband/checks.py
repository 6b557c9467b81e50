"""The prerequisites of a query of InfiniBand neighbors: ib_umad, its device files, libibumad."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from agent.check import AS_ROOT, NOT_PERMITTED, Step, absent, missing, there
from agent.model import Absent, Seen
from agent.reasons import NeighborReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.check import Check, Surroundings
    from agent.model import Link, Observation

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


def checks(around: Surroundings) -> Iterator[Check]:
    """Check the umad devices, their files, the library, and whether any port was queried."""
    outcome = around.observation.ib
    if isinstance(outcome, Absent):
        yield absent(outcome.reason)
        return
    links = outcome.value if isinstance(outcome, Seen) else ()
    found = [*_umads(around), *_library(around.observation)]
    yield from found or _queries(outcome.reason if not isinstance(outcome, Seen) else None, links)


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
        yield _no_file(fault, names)


def _no_file(fault: str, names: list[str]) -> Check:
    text = f"device files in {FOLDER}: {', '.join(names)}: {fault}"
    if fault in NOT_PERMITTED:
        return missing(Step.PRIVILEGE, text, ALLOW)
    return missing(Step.DEVICE_FILE, text, MAKE_FILES)


def _library(observation: Observation) -> Iterator[Check]:
    problems = [problem.text for problem in observation.problems if problem.source == SOURCE]
    for text in problems:
        if LIBRARY in text:
            yield missing(Step.LIBRARY, text, INSTALL)
            return


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
