"""The command `doctor`: the parts that each source needs, those missing, and how to get them.

Device files and packet sockets are tried; nothing is changed. A capture has only the checks that
need no more than one observation reads.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator

from agent.check import MAX_NAMED, NOT_PERMITTED, Check, Step, Surroundings, absent, missing
from agent.errors import Unavailable
from agent.host import Host
from agent.kube.api import connect
from agent.kube.commands import check, check_admission
from agent.lldp.packet_socket import open_lldp_socket
from agent.model import Failed, Observation, Seen
from agent.sources.checks import CHECKS, of_nics
from agent.sources.observe import NEIGHBOR_SOURCES, NICS, SOURCES
from agent.sysfs.reader import Reader
from agent.text import listed

NamedCheck = tuple[str, Check]  # with the name of its source, CLUSTER or CAPTURE

CLUSTER = "kubernetes"
NEIGHBORS = {name for name, _ in NEIGHBOR_SOURCES}
CAPTURE = "capture"
NOT_IN_A_CAPTURE = (
    "not in a capture: device files, packet sockets, libraries, kernel modules, the API server; on "
    "the node: bwagent doctor"
)
NOT_THE_AGENT = "admission policy not checked with this account; in the agent's Pod: bwagent doctor"


def of_sources(around: Surroundings) -> Iterator[NamedCheck]:
    """Yield the checks of the sources that --source does not leave out.

    The first source is always checked: the others get their ports from it. A read that blocks is
    reported as a check, too.
    """
    observation = around.observation
    for source in SOURCES:
        if source is not SOURCES[0] and not observation.is_asked(source.name):
            continue
        if source.link_layer and isinstance(observation.rdma, Failed):
            yield source.name, absent("not checked: the ports of this node are not known")
            continue
        try:
            checks = list(CHECKS[source.name](around))
        except Unavailable as error:
            checks = [missing(Step.DRIVER, str(error), "dmesg")]
        if not around.is_live:
            checks += _of_capture(source.name, observation)
        yield from ((source.name, check) for check in checks)
    yield from ((NICS, check) for check in of_nics(around))
    if not around.is_live:
        yield CAPTURE, absent(NOT_IN_A_CAPTURE)


def _of_capture(source: str, observation: Observation) -> Iterator[Check]:
    """Yield the failed reads of a source, and the ports without neighbor, both by the reason."""
    outcome = getattr(observation, source)
    links = outcome.value if source in NEIGHBORS and isinstance(outcome, Seen) else ()
    subjects: defaultdict[str, list[str]] = defaultdict(list)
    for problem in observation.problems:
        is_one_read = problem.source == source != problem.subject
        if is_one_read and problem.error not in NOT_PERMITTED:
            subjects[problem.text].append(problem.subject)
    for link in links:
        if link.missing:
            subjects[link.missing].append(link.interface)
    for text, names in subjects.items():
        yield absent(f"{listed(names, MAX_NAMED)}: {text}")


def of_cluster(
    name: str, boot_id: str | None, kubeconfig: str | None, context: str | None
) -> Iterator[NamedCheck]:
    """Yield the checks of the API server; the policy restricts the agent's own account only."""
    kube = connect(kubeconfig, context)
    node = check(kube, name, boot_id)
    yield CLUSTER, node
    is_agent = os.environ.get("KUBERNETES_SERVICE_HOST") and not (kubeconfig or context)
    if node.is_there:
        yield CLUSTER, check_admission(kube, name) if is_agent else absent(NOT_THE_AGENT)


def surroundings(
    host: Host, observation: Observation, *, openvswitch: bool, is_live: bool = True
) -> Surroundings:
    """Return the surroundings of a host that was observed."""
    reader = Reader(host.root, "doctor")

    def device_fault(path: str) -> str | None:
        # It is not opened, since a driver may block.
        if not os.path.exists(path):
            return "ENOENT"
        return None if os.access(path, os.R_OK | os.W_OK) else "EACCES"

    def lldp_fault(netdev: str) -> str | None:
        try:
            open_lldp_socket(netdev, openvswitch=openvswitch).close()
        except OSError as error:
            return errno.errorcode.get(error.errno or errno.ENODEV, str(error.errno))
        return None

    return Surroundings(
        observation,
        names=lambda path: reader.names(path) or [],
        text=reader.text,
        device_fault=device_fault,
        lldp_fault=lldp_fault,
        private_flags=host.private_flags,
        is_live=is_live,
    )


def lines(checks: Iterable[NamedCheck]) -> list[str]:
    """Return a line for each check; missing parts come last, in the order of their repair."""
    ordered = sorted(checks, key=lambda named: named[1].missing or 0)
    return [
        f"{'missing':9}{source:12}{check.text}; run: {check.command}"
        if check.missing
        else f"{'ok' if check.is_there else '-':9}{source:12}{check.text}"
        for source, check in ordered
    ]
