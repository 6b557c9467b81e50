"""The verdict over a node's GPUs, and the times of its queries, in simulated time."""

from __future__ import annotations

import pytest

from agent.model import Absent, Failed, Gpu, NvlinkDomain, Observation, Seen
from agent.nvml import domain as accelerator
from agent.nvml.decode import health
from agent.nvml.domain import domain_of
from agent.nvml.poller import POLL_INTERVAL, REGISTERING_INTERVAL, Pace
from agent.reasons import AcceleratorReason

CLUSTER, OTHER = "9c6f5af3-53bf-49b5-a436-b66766c413c3", "dc6e40c4-d722-4357-9ba6-5291dd461278"
ZERO = "00000000-0000-0000-0000-000000000000"

GOOD = Gpu(
    0,
    uuid="GPU-24fb92fc-15ec-deff-a5c1-82b48e063f59",
    pci="0008:01:00.0",
    version=3,
    state="completed",
    status="success",
    cluster_uuid=CLUSTER,
    clique_id=32766,
)
BOARD = GOOD._replace(cluster_uuid=ZERO, clique_id=0)
SHORT = BOARD._replace(status="insufficient-resources")
NONE = Gpu(0, pci="0008:01:00.0", state="not-supported")
OLD = NONE._replace(
    error="symbol-missing",
    text="nvmlDeviceGetGpuFabricInfo: the library has no such function",
)
LOST = Gpu(0, pci="0008:01:00.0", error="gpu-lost", text="nvmlDeviceGetUUID: GPU is lost")
MALFORMED = Gpu(0, error="malformed", text="fabric state 77 is none of those")
WAITING = Gpu(0, pci="0008:01:00.0", state="not-started")
JOINING = Gpu(0, pci="0008:01:00.0", state="in-progress")

REGISTERING = NvlinkDomain(None, AcceleratorReason.IN_PROGRESS)
REGISTERED = NvlinkDomain(f"{CLUSTER}.32766")
FAILED = NvlinkDomain(None, AcceleratorReason.FAILED)
NOT_STARTED = "fabric registration has not started"
IN_PROGRESS = "fabric registration is in progress"


def judge(*gpus: Gpu) -> NvlinkDomain:
    return domain_of(Seen(gpus))


def seen(gpus: tuple[Gpu, ...], found: NvlinkDomain) -> Observation:
    none = Absent("")
    return Observation(0.0, None, None, (), none, none, none, Seen(gpus), found)


def left_out(*gpus: Gpu) -> int:
    hints = accelerator.hints(seen(gpus, judge(*gpus)))
    return sum("left out" in problem.text for problem in hints)


EARLY = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("gpus", "value"),
    [
        *(((GOOD,) * count, f"{CLUSTER}.32766") for count in (1, 16)),
        ((NONE, GOOD, GOOD), f"{CLUSTER}.32766"),  # one without a fabric has no say
        *(((GOOD._replace(clique_id=n),), f"{CLUSTER}.{n}") for n in (0, 0xFFFFFFFF)),
        ((GOOD._replace(cluster_uuid=EARLY),), f"{EARLY}.32766"),
    ],
)
def test_all_gpus_agree(gpus: tuple[Gpu, ...], value: str) -> None:
    """The value is UUID and clique, as GPU Feature Discovery writes it.

    Any clique is one, nvml.h reserves none; only sixteen zero bytes are no UUID.
    """
    assert judge(*gpus) == (value, None, None)


FIRST = "GPUs (0008:01:00.0 first)"


@pytest.mark.parametrize(
    ("gpus", "reason", "words"),
    [
        ((BOARD,) * 8, "unsupported", "the cluster UUID is zero: no fabric beyond this node"),
        ((NONE,) * 8, "unsupported", "no GPU is attached to a fabric: NVML reports not supported"),
        ((OLD,) * 8, "unsupported", f"no GPU is attached to a fabric: {OLD.text}"),
        ((NONE, BOARD), "unsupported", "the cluster UUID is zero: no fabric beyond this node"),
        (
            (GOOD, SHORT),
            "unhealthy",
            f"1 of 2 {FIRST}: registered with status insufficient-resources",
        ),
        (
            (SHORT,) * 4,
            "unhealthy",
            f"4 of 4 {FIRST}: registered with status insufficient-resources",
        ),
        (
            (GOOD, GOOD._replace(cluster_uuid=OTHER)),
            "inconsistent",
            f"the GPUs are in 2 domains: {CLUSTER}.32766, {OTHER}.32766",
        ),
        (
            (GOOD, BOARD, GOOD._replace(clique_id=1)),
            "inconsistent",
            f"the GPUs are in 2 domains: {CLUSTER}.32766, {CLUSTER}.1",
        ),
        (
            (GOOD, BOARD, WAITING),
            "not-started",
            f"1 of 3 {FIRST}: {NOT_STARTED}: is the fabric manager running?",
        ),
        (
            (GOOD, WAITING, JOINING),
            "in-progress",
            (
                f"1 of 3 {FIRST}: {IN_PROGRESS}: is the fabric manager running?"
                " With FABRIC_MODE=1 it is normal until a partition is activated"
            ),
        ),
        ((GOOD, LOST), "failed", f"1 of 2 {FIRST}: could not be queried: {LOST.text}"),
        (
            (GOOD, Gpu(1, uuid="GPU-1", error="gpu-lost")),
            "failed",
            "1 of 2 GPUs (GPU-1 first): could not be queried: gpu-lost",
        ),
        (
            (MALFORMED, JOINING),
            "failed",
            "1 of 2 GPUs (index 0 first): could not be queried: fabric state 77 is none of those",
        ),
    ],
)
def test_why_there_is_no_value(gpus: tuple[Gpu, ...], reason: str, words: str) -> None:
    """One GPU that is not like the others is enough, in any order; the text names it."""
    assert judge(*gpus) == (None, reason, words)
    assert judge(*gpus[::-1])[:2] == (None, reason)


@pytest.mark.parametrize("unknown", [LOST, MALFORMED, JOINING, WAITING])
def test_what_removes_outweighs_what_holds(unknown: Gpu) -> None:
    """A GPU in another domain, or one that was rejected, decides before one that is unknown."""
    assert judge(unknown, GOOD, GOOD._replace(clique_id=1)).reason == "inconsistent"
    assert judge(unknown, SHORT).reason == "unhealthy"


def test_a_gpu_with_a_zero_uuid_has_no_say() -> None:
    """Among others that agree it is left out and reported; alone it is the reason."""
    for gpus in ((GOOD, BOARD), (BOARD, GOOD, NONE, GOOD)):
        assert judge(*gpus) == (f"{CLUSTER}.32766", None, None)
        assert left_out(*gpus) == 1
    assert left_out(BOARD, BOARD, NONE) == 0
    assert left_out(GOOD, SHORT) == 0  # it has another reason


def test_an_unhealthy_gpu_keeps_its_identity() -> None:
    """Every health bit and the summary: reported, not removed."""
    sick = GOOD._replace(health=health(0x9255), health_summary="unhealthy")
    assert judge(sick, GOOD).value == f"{CLUSTER}.32766"
    assert accelerator.health_faults(sick) == (
        *("degraded_bandwidth: true", "route_recovery: true", "route_unhealthy: true"),
        *("access_timeout_recovery: true", "incorrect_configuration: incorrect-sysguid"),
        *("gfm_state: disconnected", "summary: unhealthy"),
    )


@pytest.mark.parametrize(
    ("gpu", "faults"),
    [
        (GOOD._replace(health=health(0x51AA), health_summary="healthy"), ()),
        (GOOD._replace(health=health(0), health_summary="not-supported"), ()),
        (GOOD, ()),
        (GOOD._replace(health=health(0x2000)), ("partition_assigned: false",)),
    ],
)
def test_a_healthy_or_silent_gpu_has_no_ailments(gpu: Gpu, faults: tuple[str, ...]) -> None:
    """Healthy and unsupported parts are no faults; no partition is one."""
    assert accelerator.health_faults(gpu) == faults


def test_no_gpus_and_no_answer() -> None:
    """The source's own text is kept."""
    assert domain_of(Absent("none on the bus")) == (None, "not-found", "none on the bus")
    assert domain_of(Failed("helper nvml: late")) == (None, "failed", "helper nvml: late")


@pytest.mark.parametrize(
    ("found", "peer", "words"),
    [
        (REGISTERED, None, None),
        (REGISTERED, f"{CLUSTER}.32766", None),
        (
            REGISTERED,
            f"{CLUSTER}.0",
            f"{accelerator.PEER} is {CLUSTER}.0, the GPUs report {CLUSTER}.32766",
        ),
        (FAILED, f"{CLUSTER}.0", None),
    ],
)
def test_another_writer_of_the_same_fact(
    found: NvlinkDomain, peer: str | None, words: str | None
) -> None:
    """A difference is reported if both have a value."""
    labels = {} if peer is None else {accelerator.PEER: peer}
    told = [problem.text for problem in accelerator.conflicts(seen((), found), labels)]
    assert told == ([words] if words else [])


def looks(
    found: NvlinkDomain, seconds: float, pace: Pace | None = None, start: float = 1000.0
) -> tuple[list[float], Pace]:
    """Return the times of queries in that period if each has this verdict, and the last pace."""
    now, pace, times = start, pace or Pace(), []
    while (now := max(now, pace.due)) < start + seconds:
        times.append(now - start)
        pace = pace.after(found, now)
    return times, pace


def test_the_first_look_is_at_once() -> None:
    assert Pace().due < 0.0


def test_registered_gpus_are_asked_every_minute() -> None:
    times, _ = looks(REGISTERED, 3600)
    assert times == [60.0 * number for number in range(60)]


def test_registering_gpus_are_asked_quickly_for_ten_minutes() -> None:
    """Every ten seconds, then every minute for as long as it takes."""
    times, _ = looks(REGISTERING, 3600)
    quick = [time for time in times if time <= 600]
    assert quick == [10.0 * number for number in range(61)]
    assert times[61:] == [660.0 + 60 * number for number in range(49)]


def test_a_registration_that_ends_and_begins_again_is_quick_again() -> None:
    """A new one has ten minutes of its own."""
    _, pace = looks(REGISTERING, 3600)
    _, pace = looks(REGISTERED, 60, pace, 5000.0)
    times, _ = looks(REGISTERING, 100, pace, 6000.0)
    assert len(times) == 10


def test_a_look_that_fails_ends_no_registration() -> None:
    """Else a registration that never completes would be queried fast after every failure."""
    _, pace = looks(REGISTERING, 900)
    _, pace = looks(FAILED, 60, pace, 2000.0)
    times, _ = looks(REGISTERING, 300, pace, 3000.0)
    assert len(times) == 5


@pytest.mark.parametrize(
    "reason", [reason for reason in AcceleratorReason if reason != "in-progress"]
)
def test_every_other_outcome_waits_a_minute(reason: AcceleratorReason) -> None:
    """Only a registration is queried fast."""
    assert Pace().after(NvlinkDomain(None, reason), 5.0).due == 5.0 + POLL_INTERVAL


def test_the_interval_is_the_operators() -> None:
    """`--gpu-interval`, and never slower while a GPU registers."""
    assert Pace(interval=300.0).after(REGISTERED, 0.0).due == 300.0
    assert Pace(interval=300.0).after(REGISTERING, 0.0).due == REGISTERING_INTERVAL
    assert Pace(interval=5.0).after(REGISTERING, 0.0).due == 5.0
