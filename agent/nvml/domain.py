"""Derive the NVLink domain of a node from its GPUs, and the time of the next query.

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

from typing import TYPE_CHECKING, NamedTuple

from agent.model import Absent, Failed, Gpu, Seen, Verdict
from agent.reasons import AcceleratorReason

if TYPE_CHECKING:
    Gpus = tuple[Gpu, ...]

PEER = "nvidia.com/gpu.clique"  # GPU Feature Discovery's label with the same value

POLL_INTERVAL = 60.0  # seconds between two queries
REGISTERING_INTERVAL = 10.0  # seconds, while a GPU registers
MAX_REGISTERING = 600.0  # seconds of registration after which POLL_INTERVAL applies again

ZERO = "00000000-0000-0000-0000-000000000000"
# The values of a healthy GPU; for parts that are not listed, "false".
_HEALTHY = {
    "incorrect_configuration": "none",
    "partition_assigned": "true",
    "gfm_state": "connected",
    "summary": "healthy",
}


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
    found = [f"{gpu.cluster_uuid}.{gpu.clique_id}" for gpu in gpus if _has_place(gpu)]
    return tuple(dict.fromkeys(found))


def _has_place(gpu: Gpu) -> bool:
    return gpu.state == "completed" and gpu.cluster_uuid != ZERO


def skipped(gpus: Gpus) -> Gpus:
    """Return the registered GPUs with a zero UUID among others that have a place in the fabric."""
    if not identities(gpus):
        return ()
    return tuple(gpu for gpu in gpus if gpu.cluster_uuid == ZERO and gpu.status == "success")


def health_faults(gpu: Gpu) -> tuple[str, ...]:
    """Return the faults that health mask and summary report: `degraded_bandwidth: true`."""
    parts = (*gpu.health, ("summary", gpu.health_summary or "not-supported"))
    return tuple(f"{name}: {value}" for name, value in parts if _is_fault(name, value))


def _is_fault(name: str, value: str) -> bool:
    return value not in ("not-supported", _HEALTHY.get(name, "false"))


def disagreement(found: Verdict, peer: str | None) -> str | None:
    """Describe a difference between the label PEER on the Node and our value; None without one."""
    if peer is None or found.value in (None, peer):
        return None
    return f"{PEER} is {peer}, the GPUs report {found.value}"


def _removed(gpus: Gpus) -> Verdict | None:
    return _unhealthy(gpus) or _inconsistent(gpus)


def _unhealthy(gpus: Gpus) -> Verdict | None:
    failed = [gpu for gpu in gpus if gpu.state == "completed" and gpu.status != "success"]
    if not failed:
        return None
    text = f"registered with status {failed[0].status}"
    return _counted(AcceleratorReason.UNHEALTHY, gpus, failed, text)


def _inconsistent(gpus: Gpus) -> Verdict | None:
    found = identities(gpus)
    if len(found) <= 1:
        return None
    text = f"the GPUs are in {len(found)} domains: {', '.join(found)}"
    return Verdict(None, AcceleratorReason.INCONSISTENT, text)


def _held(gpus: Gpus) -> Verdict | None:
    return (
        _unanswered(gpus)
        or _waiting(gpus, AcceleratorReason.IN_PROGRESS)
        or _waiting(gpus, AcceleratorReason.NOT_STARTED)
    )


def _unanswered(gpus: Gpus) -> Verdict | None:
    unknown = [gpu for gpu in gpus if gpu.state is None]
    if not unknown:
        return None
    text = f"could not be queried: {unknown[0].text or unknown[0].error}"
    return _counted(AcceleratorReason.FAILED, gpus, unknown, text)


def _waiting(gpus: Gpus, reason: AcceleratorReason) -> Verdict | None:
    waiting = [gpu for gpu in gpus if gpu.state == reason]
    text = f"{reason.text}: is the fabric manager running?"
    return _counted(reason, gpus, waiting, text) if waiting else None


def _identified(gpus: Gpus) -> Verdict:
    found = identities(gpus)
    return Verdict(found[0]) if found else _unattached(gpus)


def _unattached(gpus: Gpus) -> Verdict:
    if any(gpu.cluster_uuid == ZERO for gpu in gpus):
        return _unsupported("the cluster UUID is zero: no fabric beyond this node")
    cause = next((gpu.text for gpu in gpus if gpu.text), "NVML reports not supported")
    return _unsupported(f"no GPU is attached to a fabric: {cause}")


def _unsupported(text: str) -> Verdict:
    return Verdict(None, AcceleratorReason.UNSUPPORTED, text)


def _counted(reason: AcceleratorReason, gpus: Gpus, affected: list[Gpu], text: str) -> Verdict:
    first = affected[0]
    name = first.pci or first.uuid or f"index {first.index}"
    return Verdict(None, reason, f"{len(affected)} of {len(gpus)} GPUs ({name} first): {text}")


class Pace(NamedTuple):
    """The time of the next NVML query, in seconds of a monotonic clock; `Pace()` is due at once."""

    due: float = float("-inf")
    interval: float = POLL_INTERVAL
    registering_since: float | None = None

    def after(self, found: Verdict, now: float) -> Pace:
        """Return the pace after a query at `now`.

        REGISTERING_INTERVAL applies while a GPU registers, up to MAX_REGISTERING: registration may
        never end. A failed query leaves the start of the registration as it is.
        """
        since = self._since(found.reason, now)
        is_registering = found.reason is AcceleratorReason.IN_PROGRESS
        is_short = is_registering and since is not None and now - since < MAX_REGISTERING
        wait = min(REGISTERING_INTERVAL, self.interval) if is_short else self.interval
        return Pace(now + wait, self.interval, since)

    def _since(self, reason: AcceleratorReason | None, now: float) -> float | None:
        """Return the start of the registration after a query at `now`; None without one."""
        if reason is AcceleratorReason.FAILED:
            return self.registering_since
        if reason is not AcceleratorReason.IN_PROGRESS:
            return None
        return now if self.registering_since is None else self.registering_since
