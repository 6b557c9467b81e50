"""The checks of `bwagent doctor`: what each source needs, what is there and what is missing.

Those of neighbors are in the folders of their protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from agent.check import AS_ROOT, NOT_PERMITTED, Check, Step, Surroundings, absent, missing, there
from agent.infiniband import checks as ib
from agent.lldp import checks as lldp
from agent.model import Absent, Failed, Seen
from agent.nvml.domain import hints
from agent.reasons import HoldReason
from agent.sources.rdma import CLASS, OFTEN_WITHOUT, RDMA_MODULES, SOURCE, module_of
from agent.sysfs.bus import DEVICES

NAME_BACKEND = "export BWAGENT_BACKEND_DEVICE=GLOB (names the RDMA devices of the backend)"
MODULE = "sys/module/nvidia"
CONTROL = "/dev/nvidiactl"
NO_LIBRARY = "library-missing"  # the name of its nvmlReturn_t (agent/nvml/decode.py)


def of_rdma(around: Surroundings) -> Iterator[Check]:
    """Check the devices, their driver, and the files that only root can read."""
    outcome = around.observation.rdma
    if isinstance(outcome, Seen):
        backend = len(around.observation.backend)
        yield there(f"RDMA devices: {len(outcome.value)}, backend ports: {backend}")
    else:
        yield _without_rdma(around, outcome)
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


def _without_rdma(around: Surroundings, outcome: Absent | Failed) -> Check:
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


def of_gpus(around: Surroundings) -> Iterator[Check]:
    """Check the query of the GPUs; if it failed, the kernel module, device file and library."""
    outcome = around.observation.nvml
    if isinstance(outcome, Seen):
        yield there(f"GPUs that NVML reports: {len(outcome.value)}")
        yield from (absent(f"{hint.subject}: {hint.text}") for hint in hints(around.observation))
    elif isinstance(outcome, Absent):
        yield absent(outcome.reason)
    elif not around.names(DEVICES):
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


def of_nics(around: Surroundings) -> Iterator[Check]:
    """Check what the drivers of NICs tell; those that tell nothing have no line."""
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


CHECKS: Mapping[str, Callable[[Surroundings], Iterable[Check]]] = {  # by the data source
    "rdma": of_rdma,
    "lldp": lldp.checks,
    "ib": ib.checks,
    "nvml": of_gpus,
}
