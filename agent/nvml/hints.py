"""Problems of the NVLink domain that an operator should look at; none of them changes a label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.model import Problem, Seen
from agent.nvml.domain import PEER, disagreement, health_faults, skipped
from agent.reasons import AcceleratorReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.model import Gpu, Observation, Verdict

SOURCE = "nvml"


def hints(observation: Observation) -> Iterable[Problem]:
    """Yield a missing NVLink domain, unless the GPUs support none, and the GPUs with faults.

    A GPU without a place in the fabric among others that have one is such a GPU.
    """
    if isinstance(observation.nvml, Seen):
        yield from _missing(observation.accelerator)
        yield from _skipped(observation.nvml.value)
        yield from _unhealthy(observation.nvml.value)


def _missing(found: Verdict) -> Iterable[Problem]:
    if found.text and found.reason != AcceleratorReason.UNSUPPORTED:
        yield Problem(SOURCE, "accelerator", None, f"{found.reason}: {found.text}")


def _skipped(gpus: tuple[Gpu, ...]) -> Iterable[Problem]:
    text = "cluster UUID of zeros: not in the fabric of the other GPUs, and left out"
    return (Problem(SOURCE, _name(gpu), None, text) for gpu in skipped(gpus))


def _unhealthy(gpus: Iterable[Gpu]) -> Iterable[Problem]:
    for gpu in gpus:
        if faults := health_faults(gpu):
            yield Problem(SOURCE, _name(gpu), None, ", ".join(faults))


def conflicts(observation: Observation, labels: Mapping[str, str]) -> Iterable[Problem]:
    """Yield the disagreement of GPU Feature Discovery's label on the Node with the observation."""
    if text := disagreement(observation.accelerator, labels.get(PEER)):
        yield Problem(SOURCE, PEER, None, text)


def _name(gpu: Gpu) -> str:
    return gpu.pci or f"GPU {gpu.index}"
