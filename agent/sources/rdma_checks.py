"""The prerequisites of the RDMA devices: the driver, sysfs, the privilege to read files."""

from __future__ import annotations

from collections.abc import Iterator

from agent.check import AS_ROOT, NOT_PERMITTED, Check, Step, Surroundings, absent, missing, there
from agent.model import Absent, Failed, Seen
from agent.reasons import HoldReason
from agent.sources.rdma import CLASS, OFTEN_WITHOUT, RDMA_MODULES, SOURCE, module_of

NAME_BACKEND = "export BWAGENT_BACKEND_DEVICE=GLOB (names the RDMA devices of the backend)"


def checks(around: Surroundings) -> Iterator[Check]:
    """Check the devices, and the files that only root can read."""
    outcome = around.observation.rdma
    if isinstance(outcome, Seen):
        backend = len(around.observation.backend)
        yield there(f"RDMA devices: {len(outcome.value)}, backend ports: {backend}")
    else:
        yield _without(around, outcome)
    unreadable = [
        problem.subject
        for problem in around.observation.problems
        if problem.source == SOURCE and problem.error in NOT_PERMITTED
    ]
    if unreadable:
        text = f"files that root may read: {len(unreadable)}, first {unreadable[0]}"
        yield missing(Step.PRIVILEGE, text, AS_ROOT)
    for doubt in around.observation.hints:
        yield absent(f"in doubt: {doubt.text}")


def _without(around: Surroundings, outcome: Absent | Failed) -> Check:
    """Return the check of a node whose RDMA devices are not there, or not known."""
    has_devices = bool(around.names(CLASS))
    texts = [problem.text for problem in around.observation.problems]
    for driver in () if has_devices else RDMA_MODULES:
        functions = around.names(f"sys/bus/pci/drivers/{driver}")
        is_hinted = any(f"NICs of {driver} without RDMA" in text for text in texts)
        is_bound = any(":" in name for name in functions)
        if is_hinted or (is_bound and driver not in OFTEN_WITHOUT):
            return missing(Step.DRIVER, outcome.reason, f"modprobe {module_of(driver)}")
    if isinstance(outcome, Absent):
        return absent(outcome.reason)
    if outcome.hold is HoldReason.FRONT_END_UNKNOWN:
        command = NAME_BACKEND
    elif not around.names("sys/class/net"):
        command = "mount -t sysfs sysfs /sys (--sysfs-root where it is mounted elsewhere)"
    elif not has_devices:
        command = "modprobe mlx5_ib"
    else:
        command = "bwagent probe --dry-run --no-wait (it lists each failed read)"
    return missing(Step.DRIVER, outcome.reason, command)
