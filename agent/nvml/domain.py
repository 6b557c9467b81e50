"""Derive the NVLink domain of a node from its GPUs, and what an operator should look at.

Invariants:
- An identity is published only if every GPU that is attached to the fabric reports the same one.
- A cluster UUID of zeros is no identity: plain HGX boards complete their registration with it. Such
  a GPU has no place in the fabric and does not count, as for GPU Feature Discovery and NVIDIA's DRA
  driver (go-nvlib, IsFabricAttached). A clique ID alone is none either: unrelated racks share
  32766.
- Health decides nothing: a degraded GPU is still where it is.

Without an identity there is an AcceleratorReason, which either holds the last label or removes it.
Reasons that remove are checked first: one GPU in another domain outweighs one that could not be
queried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.model import Absent, Failed, Gpu, Observation, Problem, Seen, Verdict
from agent.reasons import AcceleratorReason

SOURCE = "nvml"
PEER = "nvidia.com/gpu.clique"  # GPU Feature Discovery's label with the same value
ZERO = "00000000-0000-0000-0000-000000000000"
# The values of a healthy GPU; for parts that are not listed, "false".
_HEALTHY = {
    "incorrect_configuration": "none",
    "partition_assigned": "true",
    "gfm_state": "connected",
    "summary": "healthy",
}

Gpus = tuple[Gpu, ...]


def verdict(outcome: Seen[Gpus] | Absent | Failed) -> Verdict:
    """Return the verdict over all GPUs of the node; Observation.accelerator has it."""
    match outcome:
        case Absent(reason):
            return Verdict(None, AcceleratorReason.NOT_FOUND, reason)
        case Failed(reason):
            return Verdict(None, AcceleratorReason.FAILED, reason)
        case Seen(gpus):
            return _removed(gpus) or _held(gpus) or _identified(gpus)


def identities(gpus: Gpus) -> tuple[str, ...]:
    """Return the distinct `<ClusterUUID>.<CliqueID>` of the registered GPUs but for zero UUIDs."""
    attached = (gpu for gpu in gpus if gpu.state == "completed" and gpu.cluster_uuid != ZERO)
    return tuple(dict.fromkeys(f"{gpu.cluster_uuid}.{gpu.clique_id}" for gpu in attached))


def _removed(gpus: Gpus) -> Verdict | None:
    """Return the verdict for which the label is removed: unhealthy or inconsistent GPUs."""
    failed = [gpu for gpu in gpus if gpu.state == "completed" and gpu.status != "success"]
    if failed:
        text = f"registered with status {failed[0].status}"
        return _counted(AcceleratorReason.UNHEALTHY, gpus, failed, text)
    found = identities(gpus)
    if len(found) > 1:
        text = f"the GPUs are in {len(found)} domains: {', '.join(found)}"
        return Verdict(None, AcceleratorReason.INCONSISTENT, text)
    return None


def _held(gpus: Gpus) -> Verdict | None:
    """Return the verdict for which the label is held: GPUs without an answer, or registering."""
    unknown = [gpu for gpu in gpus if gpu.state is None]
    if unknown:
        text = f"could not be queried: {unknown[0].text or unknown[0].error}"
        return _counted(AcceleratorReason.FAILED, gpus, unknown, text)
    for reason in (AcceleratorReason.IN_PROGRESS, AcceleratorReason.NOT_STARTED):
        if waiting := [gpu for gpu in gpus if gpu.state == reason]:
            text = f"{reason.text}: is the fabric manager running?"
            return _counted(reason, gpus, waiting, text)
    return None


def _identified(gpus: Gpus) -> Verdict:
    if found := identities(gpus):
        return Verdict(found[0])
    text = "the cluster UUID is zero: no fabric beyond this node"
    if all(gpu.cluster_uuid != ZERO for gpu in gpus):
        cause = next((gpu.text for gpu in gpus if gpu.text), "NVML reports not supported")
        text = f"no GPU is attached to a fabric: {cause}"
    return Verdict(None, AcceleratorReason.UNSUPPORTED, text)


def _counted(reason: AcceleratorReason, gpus: Gpus, affected: list[Gpu], text: str) -> Verdict:
    first = affected[0]
    name = first.pci or first.uuid or f"index {first.index}"
    return Verdict(None, reason, f"{len(affected)} of {len(gpus)} GPUs ({name} first): {text}")


# Problems that an operator should look at; none of them changes a label


def hints(observation: Observation) -> Iterable[Problem]:
    """Yield a missing NVLink domain, unless the GPUs support none, and the GPUs with faults.

    A registered GPU with a zero UUID, among others that have a place in the fabric, is one.
    """
    if not isinstance(observation.nvml, Seen):
        return
    gpus, found = observation.nvml.value, observation.accelerator
    if found.text and found.reason != AcceleratorReason.UNSUPPORTED:
        yield Problem(SOURCE, "accelerator", None, f"{found.reason}: {found.text}")
    for gpu in gpus if identities(gpus) else ():
        if gpu.cluster_uuid == ZERO and gpu.status == "success":
            text = "cluster UUID of zeros: not in the fabric of the other GPUs, and left out"
            yield Problem(SOURCE, gpu.pci or f"GPU {gpu.index}", None, text)
    for gpu in gpus:
        if faults := health_faults(gpu):
            yield Problem(SOURCE, gpu.pci or f"GPU {gpu.index}", None, ", ".join(faults))


def health_faults(gpu: Gpu) -> tuple[str, ...]:
    """Return the faults that health mask and summary report: `degraded_bandwidth: true`."""
    return tuple(
        f"{name}: {value}"
        for name, value in (*gpu.health, ("summary", gpu.health_summary or "not-supported"))
        if value not in ("not-supported", _HEALTHY.get(name, "false"))
    )


def conflicts(observation: Observation, labels: Mapping[str, str]) -> Iterable[Problem]:
    """Yield the disagreement of GPU Feature Discovery's label on the Node with the observation."""
    ours, peer = observation.accelerator.value, labels.get(PEER)
    if ours and peer is not None and peer != ours:
        yield Problem(SOURCE, PEER, None, f"{PEER} is {peer}, the GPUs report {ours}")
