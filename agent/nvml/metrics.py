"""Metrics of the NVLink domain and of the GPUs' fabric registration (nvmlGpuFabricInfo, nvml.h)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agent.metric import GAUGE, OTHER, Metric, Sample, single
from agent.model import Failed, Observation
from agent.nvml import domain
from agent.nvml.decode import STATES
from agent.reasons import AcceleratorReason


def accelerator_info(seen: Observation) -> Iterable[Sample]:
    """Return the accelerator label's value; no sample without one."""
    value = seen.accelerator.value
    return [((value,), 1)] if value else []


def accelerator_missing(seen: Observation) -> Iterable[Sample]:
    """Return one sample per AcceleratorReason."""
    if not seen.is_asked("nvml"):
        return []
    reason = seen.accelerator.reason
    return [((word,), word == reason) for word in AcceleratorReason]


def gpus(seen: Observation) -> Iterable[Sample]:
    """Count the GPUs in each fabric state (NVML_GPU_FABRIC_STATE_*), unless they are unknown."""
    if not _is_known(seen):
        return []
    states = Counter(gpu.state if gpu.state in STATES else OTHER for gpu in seen.gpus)
    return [((state,), states[state]) for state in (*STATES, OTHER)]


def gpus_unhealthy(seen: Observation) -> Iterable[Sample]:
    """Count the GPUs with a fault in their fabric health; health changes no label."""
    faulty = sum(bool(domain.health_faults(gpu)) for gpu in seen.gpus)
    return single(faulty if _is_known(seen) else None)


def _is_known(seen: Observation) -> bool:
    """Return True if the GPUs were asked and have answered."""
    return seen.is_asked("nvml") and not isinstance(seen.nvml, Failed)


METRICS: tuple[Metric[Observation], ...] = (
    Metric(
        "bwagent_accelerator_info",
        GAUGE,
        "The NVLink domain, always 1.",
        ("domain",),
        accelerator_info,
    ),
    Metric(
        "bwagent_accelerator_missing",
        GAUGE,
        "Reason for a missing NVLink domain: 1 for the reason that applies.",
        ("reason",),
        accelerator_missing,
    ),
    Metric(
        "bwagent_gpus",
        GAUGE,
        "GPUs by the state of their fabric registration.",
        ("fabric_state",),
        gpus,
    ),
    Metric(
        "bwagent_gpus_unhealthy",
        GAUGE,
        "GPUs with a fault in their fabric health.",
        (),
        gpus_unhealthy,
    ),
)
