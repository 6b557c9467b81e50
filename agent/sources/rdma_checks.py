"""The prerequisites for RDMA devices: their driver, sysfs, the privilege to read files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.check import AS_ROOT, NOT_PERMITTED, Step, absent, missing, there
from agent.model import Failed, Seen
from agent.reasons import HoldReason
from agent.sources.rdma_device import CLASS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.check import Check, Surroundings

SOURCE = "rdma"
# Drivers of NICs, and the module that makes RDMA devices of them. Other NICs, such as those of
# ice, are often there without RDMA.
RDMA_MODULES = {"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib"}

NAME_BACKEND = "export BWAGENT_BACKEND_DEVICE=GLOB (names the RDMA devices of the backend)"


def checks(around: Surroundings) -> Iterator[Check]:
    """Check the devices, and the files that only root can read."""
    yield _devices(around)
    yield from _not_permitted(around)


def _devices(around: Surroundings) -> Check:
    outcome = around.observation.rdma
    if isinstance(outcome, Seen):
        backend = len(around.observation.backend)
        return there(f"RDMA devices: {len(outcome.value)}, backend ports: {backend}")
    if module := _unloaded(around):
        return missing(Step.DRIVER, outcome.reason, f"modprobe {module}")
    if isinstance(outcome, Failed):
        is_unknown = outcome.hold is HoldReason.FRONT_END_UNKNOWN
        command = NAME_BACKEND if is_unknown else _command(around)
        return missing(Step.DRIVER, outcome.reason, command)
    return absent(outcome.reason)


def _unloaded(around: Surroundings) -> str | None:
    """Return the module for a driver that has functions, if there is no RDMA device at all."""
    if around.names(CLASS):
        return None
    bound = (driver for driver in RDMA_MODULES if _has_function(around, driver))
    return next((RDMA_MODULES[driver] for driver in bound), None)


def _has_function(around: Surroundings, driver: str) -> bool:
    return any(":" in name for name in around.names(f"sys/bus/pci/drivers/{driver}"))


def _command(around: Surroundings) -> str:
    """Return the command for devices that cannot be read."""
    if not around.names("sys/class/net"):
        return "mount -t sysfs sysfs /sys (--sysfs-root where it is mounted elsewhere)"
    if not around.names(CLASS):
        return "modprobe mlx5_ib"
    return "bwagent probe --dry-run --no-wait (it lists each failed read)"


def _not_permitted(around: Surroundings) -> Iterator[Check]:
    found = [
        problem.subject
        for problem in around.observation.problems
        if problem.source == SOURCE and problem.error in NOT_PERMITTED
    ]
    if found:
        text = f"files that root may read: {len(found)}, first {found[0]}"
        yield missing(Step.PRIVILEGE, text, AS_ROOT)
