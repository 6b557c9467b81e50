"""The prerequisites of a query of the GPUs: the kernel module, its device file, the library."""

from __future__ import annotations

from collections.abc import Iterator

from agent.check import AS_ROOT, NOT_PERMITTED, Check, Step, Surroundings, absent, missing, there
from agent.model import Absent, Seen

BUS = "sys/bus/pci/devices"
MODULE = "sys/module/nvidia"
CONTROL = "/dev/nvidiactl"
NO_LIBRARY = "library-missing"  # the name of its nvmlReturn_t (agent/nvml/decode.py)


def checks(around: Surroundings) -> Iterator[Check]:
    """Check the query of the GPUs; if it failed, what it needs."""
    outcome = around.observation.nvml
    if isinstance(outcome, Seen):
        yield there(f"GPUs that NVML reports: {len(outcome.value)}")
    elif isinstance(outcome, Absent):
        yield absent(outcome.reason)
    elif not around.names(BUS):
        yield missing(Step.DRIVER, outcome.reason, "mount -t sysfs sysfs /sys")
    elif not around.names(MODULE):
        yield missing(Step.DRIVER, "kernel module nvidia, for a GPU on the bus", "modprobe nvidia")
    else:
        yield from _device_or_library(around, outcome.reason)


def _device_or_library(around: Surroundings, reason: str) -> Iterator[Check]:
    fault = around.device_fault(CONTROL)
    if fault in NOT_PERMITTED:
        yield missing(Step.PRIVILEGE, f"{CONTROL}: {fault}", AS_ROOT)
    elif fault:
        yield missing(Step.DEVICE_FILE, f"{CONTROL}: {fault}", "nvidia-modprobe -c 0")
    if reason.startswith(NO_LIBRARY):
        yield missing(Step.LIBRARY, reason, _install(around.text(f"{MODULE}/version")))
    elif not fault:
        yield missing(Step.DRIVER, reason, "nvidia-smi")


def _install(version: str | None) -> str:
    """Return the command for the library, which is of the kernel module's version."""
    branch = (version or "").partition(".")[0] or "BRANCH"
    return f"apt-get install libnvidia-compute-{branch} (or name another one by --nvml-library)"
