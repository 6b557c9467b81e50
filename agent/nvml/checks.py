"""The prerequisites of a query of the GPUs: the kernel module, its device file, the library."""

from __future__ import annotations

from collections.abc import Iterator

from agent.check import AS_ROOT, NOT_PERMITTED, Check, Step, Surroundings, absent, missing, there
from agent.model import Absent, Observation, Seen
from agent.nvml.domain import hints

BUS = "sys/bus/pci/devices"
MODULE = "sys/module/nvidia"
CONTROL = "/dev/nvidiactl"
NO_LIBRARY = "library-missing"  # the name of its nvmlReturn_t (agent/nvml/decode.py)


def checks(around: Surroundings) -> Iterator[Check]:
    """Check the query of the GPUs; if it failed, its prerequisites."""
    outcome = around.observation.nvml
    if isinstance(outcome, Seen):
        yield there(f"GPUs that NVML reports: {len(outcome.value)}")
        yield from _hinted(around.observation)
    elif isinstance(outcome, Absent):
        yield absent(outcome.reason)
    elif not around.names(BUS):
        yield missing(Step.DRIVER, outcome.reason, "mount -t sysfs sysfs /sys")
    elif not around.is_live:
        yield absent(f"not known: {outcome.reason}")
    elif not around.names(MODULE):
        yield missing(Step.DRIVER, "kernel module nvidia, for a GPU on the bus", "modprobe nvidia")
    else:
        fault = around.device_fault(CONTROL)
        if fault in NOT_PERMITTED:
            yield missing(Step.PRIVILEGE, f"{CONTROL}: {fault}", AS_ROOT)
        elif fault:
            yield missing(Step.DEVICE_FILE, f"{CONTROL}: {fault}", "nvidia-modprobe -c 0")
        if outcome.reason.startswith(NO_LIBRARY):
            # It is of the kernel module's version.
            branch = (around.text(f"{MODULE}/version") or "").partition(".")[0] or "BRANCH"
            package = f"apt-get install libnvidia-compute-{branch}"
            command = f"{package} (or name another one by --nvml-library)"
            yield missing(Step.LIBRARY, outcome.reason, command)
        elif not fault:
            yield missing(Step.DRIVER, outcome.reason, "nvidia-smi")


def _hinted(observation: Observation) -> Iterator[Check]:
    for hint in hints(observation):
        yield absent(f"{hint.subject}: {hint.text}")
