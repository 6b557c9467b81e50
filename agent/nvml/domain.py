"""Which NVLink domain this node belongs to: the verdict over its GPUs, and when to ask them again.

The law of this module: an identity is published only when every GPU that has a place in the fabric names the same
one. A cluster UUID of zeros is nobody's identity (plain HGX boards complete their registration with it), a clique alone
means nothing (unrelated racks share 32766), and health decides nothing: a degraded GPU is still where it is.

Without an identity there is a reason, and reasons are of two kinds. Some say that it is not known now, and what was
published last stays for a while; the others say that there is none, and remove it. What removes is decided first: one
GPU that is truly elsewhere outweighs another that could not be asked.
"""

from __future__ import annotations

from typing import NamedTuple

from agent.model import Absent, Failed, Gpu, Seen

PEER = "nvidia.com/gpu.clique"  # the label of GPU Feature Discovery with the same value

REMOVING = ("not-found", "unsupported", "unhealthy", "inconsistent")
HOLDING = ("not-started", "in-progress", "failed")
REASONS = (*REMOVING, *HOLDING)

FAST, FAST_FOR = 10.0, 600.0  # seconds between two looks while a GPU registers, and for how long
SLOW = 60.0

_ZERO = "00000000-0000-0000-0000-000000000000"
# What the parts of a healthy GPU say, where they say anything; the others are faults, and "false".
_FINE = {
    "incorrect_configuration": "none",
    "partition_assigned": "true",
    "gfm_state": "connected",
    "summary": "healthy",
}


class Verdict(NamedTuple):
    """The value for the label, or the reason why there is none and a finer text."""

    value: str | None
    reason: str | None = None
    text: str | None = None

    @property
    def holds(self) -> bool:
        """What was published last stays: nothing is known now."""
        return self.reason in HOLDING


def verdict(outcome: Seen[tuple[Gpu, ...]] | Absent | Failed) -> Verdict:
    """What the node's GPUs say together."""
    match outcome:
        case Absent(reason):
            return Verdict(None, "not-found", reason)
        case Failed(reason):
            return Verdict(None, "failed", reason)
        case Seen(gpus):
            return _removed(gpus) or _held(gpus) or _identified(gpus)


def identities(gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """The different `<ClusterUUID>.<CliqueID>` of the GPUs that have registered, in order; zero UUIDs too."""
    found = [f"{gpu.cluster_uuid}.{gpu.clique_id}" for gpu in gpus if gpu.state == "completed"]
    return tuple(dict.fromkeys(found))


def health_faults(gpu: Gpu) -> tuple[str, ...]:
    """What the health mask and the summary complain of: `degraded_bandwidth: true`, `summary: unhealthy`."""
    parts = (*gpu.health, ("summary", gpu.health_summary or "not-supported"))
    return tuple(
        f"{name}: {value}"
        for name, value in parts
        if value not in ("not-supported", _FINE.get(name, "false"))
    )


def disagreement(found: Verdict, peer: str | None) -> str | None:
    """Where the Node carries the label PEER and it differs from our value, both in one line."""
    if peer is None or found.value in (None, peer):
        return None
    return f"{PEER} says {peer}, the GPUs say {found.value}"


def _removed(gpus: tuple[Gpu, ...]) -> Verdict | None:
    if sick := [gpu for gpu in gpus if gpu.state == "completed" and gpu.status != "success"]:
        return _because("unhealthy", gpus, sick, f"registered with status {sick[0].status}")
    if len(found := identities(gpus)) > 1:
        return Verdict(
            None, "inconsistent", f"the GPUs are in {len(found)} places: {', '.join(found)}"
        )
    return None


def _held(gpus: tuple[Gpu, ...]) -> Verdict | None:
    if lost := [gpu for gpu in gpus if gpu.state is None]:
        return _because(
            "failed", gpus, lost, f"could not be asked: {lost[0].text or lost[0].error}"
        )
    for state, words in (
        ("in-progress", "registering"),
        ("not-started", "waiting for their registration to start"),
    ):
        if waiting := [gpu for gpu in gpus if gpu.state == state]:
            return _because(state, gpus, waiting, f"{words}: is the fabric manager running?")
    return None


def _identified(gpus: tuple[Gpu, ...]) -> Verdict:
    found = identities(gpus)
    if not found:
        why = next((gpu.text for gpu in gpus if gpu.text), "NVML says not supported")
        return Verdict(None, "unsupported", f"no GPU is attached to a fabric: {why}")
    if found[0].startswith(_ZERO):
        return Verdict(None, "unsupported", "the cluster UUID is zero: no fabric beyond this node")
    return Verdict(found[0])


def _because(reason: str, gpus: tuple[Gpu, ...], these: list[Gpu], words: str) -> Verdict:
    first = these[0]
    name = first.pci or first.uuid or f"number {first.index}"
    return Verdict(None, reason, f"{len(these)} of {len(gpus)} GPUs, {name} first, {words}")


class Pace(NamedTuple):
    """When NVML is asked next; a `Pace()` is due at once. Times are seconds of a clock that never goes back."""

    due: float = float("-inf")
    interval: float = SLOW
    registering_since: float | None = None

    def after(self, found: Verdict, now: float) -> Pace:
        """The pace after a look at `now`: quick while a GPU registers, though not for ever (it may never end)."""
        since = self.registering_since
        if found.reason == "in-progress":
            since = now if since is None else since
        elif found.reason != "failed":  # a look that failed ends no registration
            since = None
        quick = found.reason == "in-progress" and since is not None and now - since < FAST_FOR
        return Pace(
            now + (min(FAST, self.interval) if quick else self.interval), self.interval, since
        )
