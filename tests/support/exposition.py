"""Metrics of observations made by hand, and their exposition."""

from __future__ import annotations

from agent.daemon.observer import Cycle
from agent.infiniband.bad_link import BadEnd, LinkErrors, LinkVerdict
from agent.infiniband.fabric_memory import FabricMemory
from agent.infiniband.perf import Counters, PortReading
from agent.kube.annotation import Annotation
from agent.labels.render import Rendered
from agent.memory import Known, known_of
from agent.model import Absent, Gpu, Link, LldpNeighbor, Neighbor, Observation, RdmaDevice, Seen
from agent.nic.driver import HealthReporter, NicHealth, Nics
from agent.nvml.domain import domain_of
from agent.telemetry.metrics import Exposition, Metrics
from tests.support.devices import assign, eth, netdev, port
from tests.support.remembering import knowing

NOBODY = Absent("no such port")
TOLD = LldpNeighbor(
    "00:1c:73:00:00:01", "01:80:c2:00:00:0e", "00:1c:73:00:00:01", 4, "swp1", 5, 120
)


def neighbor(
    device: str = "leaf-1", port_id: str = "swp1", name: str | None = None, age: float | None = 2.0
) -> Neighbor:
    return Neighbor(device, port_id, name, TOLD, age)


def observation(devices: list[RdmaDevice], **facts: object) -> Observation:
    """An observation at second 1000 of these devices."""
    seen = Observation(
        1000.0, "n1", None, assign(devices), Seen(tuple(devices)), NOBODY, NOBODY, NOBODY
    )
    seen = seen._replace(**facts)  # type: ignore[arg-type]  # whatever field a test is about
    return seen._replace(accelerator=domain_of(seen.nvml))


NO_LABELS = Rendered({})


def cycle(seen: Observation, known: Known | None = None, rendered: Rendered = NO_LABELS) -> Cycle:
    """Return the cycle of an observation, after which this is known."""
    known = known_of(seen) if known is None else known
    return Cycle(seen, known, rendered, Annotation(None, None), {}, degraded=False)


def fed(seen: Observation, known: Known | None = None, **durations: float) -> Metrics:
    metrics = Metrics()
    metrics.observed(cycle(seen, known), durations)
    return metrics


def text(metrics: Metrics) -> str:
    """Return the exposition in the text format 0.0.4."""
    return Exposition(metrics)()[1].decode()


LINK_ERRORS = (
    LinkErrors("ibp0", "leaf1 port 3", PortReading(Counters(7, 0, 0, 0, 0, 0, 0)), "no answer"),
    LinkErrors("ibp1", "leaf2", "?", "?", 60.0, LinkVerdict(BadEnd.NEAR, True, "bad")),  # noqa: FBT003 - a row
    LinkErrors("ibp2", "leaf3", "?", "?", 60.0, LinkVerdict(BadEnd.QUIET, False, "quiet")),  # noqa: FBT003 - a row
)


REPORTERS = HealthReporter("fw", "healthy"), HealthReporter("fw_fatal", "error")
SICK = Seen(Nics({}, {"0000:18:00.0": NicHealth("0000:18:00.0", None, REPORTERS)}))


def complete() -> Metrics:
    """Return metrics of which each has a sample."""
    devices = [eth("mlx5_0", 1), eth("mlx5_1", 2, port(netdev=netdev("eth2")))]
    links = (
        Link("mlx5_0", "eth1", (neighbor('evil"\n\\'),)),
        Link("mlx5_1", "eth2", missing="silent"),
    )
    gpu = Gpu(0, state="completed", status="success", cluster_uuid="1" * 36, clique_id=7)
    seen = observation(devices, lldp=Seen(links), nvml=Seen((gpu,)))
    seen, known = knowing(seen)
    seen = seen._replace(link_errors=Seen(LINK_ERRORS), nics=SICK)
    asked = cycle(seen, known._replace(fabric=FabricMemory(time=1, due=2)))
    metrics = Metrics()
    metrics.observed(asked._replace(sa_questions={"no-answer": 1, "smps": 40}), {"rdma": 0.1})
    metrics.update(applied_at=1.0, keys_foreign=0, frames_dropped={"own": 1}, plan_unread=True)
    findings = (("swapped", "ibp0"), ("duplicate", "ibp0"), ("duplicate", "ibp0"))
    metrics.update(findings=findings, plan_rows=8, verified_at=1.0, policy_in_force=True)
    metrics.events(written=1)
    return metrics
