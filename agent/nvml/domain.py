"""The NVLink domain of a node, derived from its GPUs, and its hints.

Invariants:
- An identity is published only if all GPUs that are attached to the fabric report the same.
- A cluster UUID of zeros is no identity: plain HGX boards complete their registration with it. Such
  a GPU has no place in the fabric and does not count, as for GPU Feature Discovery and NVIDIA's DRA
  driver (go-nvlib, IsFabricAttached). A clique ID alone is none either: unrelated racks share
  32766.
- Health decides nothing: a degraded GPU is still where it is.

Without an identity there is an AcceleratorReason, which either holds the last label or removes it.
Reasons that remove are checked first: a GPU in another domain outweighs a GPU that could not be
queried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.model import Absent, Failed, Gpu, NvlinkDomain, Observation, Problem, Seen
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


def domain_of(outcome: Seen[Gpus] | Absent | Failed) -> NvlinkDomain:
    """Return the domain of all GPUs of the node; Observation.accelerator has it."""
    if not isinstance(outcome, Seen):
        is_failed = isinstance(outcome, Failed)
        reason = AcceleratorReason.FAILED if is_failed else AcceleratorReason.NOT_FOUND
        return NvlinkDomain(None, reason, outcome.reason)
    gpus = outcome.value
    domains = identities(gpus)

    def counted(reason: AcceleratorReason, affected: list[Gpu], text: str) -> NvlinkDomain:
        first = affected[0]
        name = first.pci or first.uuid or f"index {first.number}"
        text = f"{len(affected)} of {len(gpus)} GPUs ({name} first): {text}"
        return NvlinkDomain(None, reason, text)

    # The label is removed: unhealthy or inconsistent GPUs.
    if failed := [gpu for gpu in gpus if gpu.state == "completed" and gpu.status != "success"]:
        text = f"registered with status {failed[0].status}"
        return counted(AcceleratorReason.UNHEALTHY, failed, text)
    if len(domains) > 1:
        text = f"the GPUs are in {len(domains)} domains: {', '.join(domains)}"
        return NvlinkDomain(None, AcceleratorReason.INCONSISTENT, text)
    # It is held: GPUs without an answer, or registering.
    if unknown := [gpu for gpu in gpus if gpu.state is None]:
        text = f"could not be queried: {unknown[0].text or unknown[0].error}"
        return counted(AcceleratorReason.FAILED, unknown, text)
    for reason in (AcceleratorReason.IN_PROGRESS, AcceleratorReason.NOT_STARTED):
        if waiting := [gpu for gpu in gpus if gpu.state == reason]:
            text = f"{reason.text}: is the fabric manager running?"
            if reason is AcceleratorReason.IN_PROGRESS:
                text += " With FABRIC_MODE=1 it is normal until a partition is activated"
            return counted(reason, waiting, text)
    return NvlinkDomain(domains[0]) if domains else _without_fabric(gpus)


def _without_fabric(gpus: Gpus) -> NvlinkDomain:
    """Return the verdict over healthy GPUs of which none is in a domain."""
    text = "the cluster UUID is zero: no fabric beyond this node"
    if all(gpu.cluster_uuid != ZERO for gpu in gpus):
        cause = next((gpu.text for gpu in gpus if gpu.text), "NVML reports not supported")
        text = f"no GPU is attached to a fabric: {cause}"
    return NvlinkDomain(None, AcceleratorReason.UNSUPPORTED, text)


def identities(gpus: Gpus) -> tuple[str, ...]:
    """Return the distinct `<ClusterUUID>.<CliqueID>` of the registered GPUs but for zero UUIDs."""
    attached = (gpu for gpu in gpus if gpu.state == "completed" and gpu.cluster_uuid != ZERO)
    return tuple(dict.fromkeys(f"{gpu.cluster_uuid}.{gpu.clique_id}" for gpu in attached))


# Problems that an operator should look at; none of them changes a label


def hints(observation: Observation) -> Iterable[Problem]:
    """Yield a missing NVLink domain, unless the GPUs support none, and the GPUs with faults.

    A registered GPU with a zero UUID has a fault if other GPUs have a place in the fabric.
    """
    if not isinstance(observation.nvml, Seen):
        return
    gpus, domain = observation.nvml.value, observation.accelerator
    if domain.text and domain.reason != AcceleratorReason.UNSUPPORTED:
        yield Problem(SOURCE, "accelerator", None, f"{domain.reason}: {domain.text}")
    if len(positions := observation.positions) > 1:
        text = f"the GPUs tell {len(positions)}, none is taken: {', '.join(map(str, positions))}"
        yield Problem(SOURCE, "platform position", None, text)
    for gpu in gpus if identities(gpus) else ():
        if gpu.cluster_uuid == ZERO and gpu.status == "success":
            text = "cluster UUID of zeros: not in the fabric of the other GPUs, and left out"
            yield Problem(SOURCE, gpu.pci or f"GPU {gpu.number}", None, text)
    for gpu in gpus:
        if faults := health_faults(gpu):
            yield Problem(SOURCE, gpu.pci or f"GPU {gpu.number}", None, ", ".join(faults))


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
