"""The loop and its clock, in simulated time: the labels of the Node, and the requests it took."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from agent.daemon.loop import MAX_LATENESS, MISSED, AwakeClock
from agent.daemon.schedule import LOOK_INTERVAL, OBSERVE_INTERVAL
from agent.errors import Unavailable
from agent.events.event import Event
from agent.kube.answers import Answer
from tests.support.gpus import ACCELERATOR, FABRIC, GPU, answer
from tests.support.kernel_tree import CLASS, HOME, bdf, gpu, hca, netdev, nic
from tests.support.lldp_frames import switch
from tests.support.nodes import PREFIX
from tests.support.running import BOOT_ID, HOUR, HUP, Api, World
from tests.support.server_side_apply import Key, Reply, status
from tests.support.smps import leaf

A, B = bdf(0), bdf(1)
IB = hca("ibp0", A) | hca("ibp1", B)
ROCE = nic(0)
STATE = f"{HOME}/{B}/infiniband/ibp1/ports/1/state"
DEVICE, PORT_ID = "neighbors.current.{}.device", "neighbors.current.{}.port-id"


def down(world: World) -> None:
    world.write(STATE, b"1: DOWN\n")


def test_the_first_apply_has_all_labels() -> None:
    """It waits for the results of the pollers, so that one apply is enough."""
    world = World(IB, smp=leaf).run(30)
    assert world.labels["speed.current"] == "800G"
    assert world.labels[DEVICE.format("ibp0")] == "L90.1.3"
    assert [operation for _, operation in world.api.requests] == ["get", "apply"]
    assert world.state.readiness() == (True, "ok\n")


def test_a_restart_writes_nothing() -> None:
    """The Node has the right labels; even the annotation is left until its hour."""
    world = World(IB, smp=leaf).run(30)
    writes = len(world.api.writes)
    world.start_again()
    world.run(30)
    assert (len(world.api.writes), world.api.requests[-1][1]) == (writes, "get")


def test_labels_are_held_after_a_restart_until_neighbors_are_known() -> None:
    """The old neighbors stay until the new ones are known, or their hold expires."""
    world = World(IB, smp=leaf).run(30)
    before = dict(world.api.labels)
    world.smp = World.no_smp
    world.start_again()
    world.run(500)
    assert world.api.labels == before
    world.run(200)
    assert DEVICE.format("ibp0") not in world.labels
    assert any(
        "label removed" in line and "not observed for 600s: " in line for line in world.lines
    )


def test_a_quiet_hour() -> None:
    """A dozen observations, one request, a GPU query each minute, a round of SMPs every 20."""
    world = World(IB, gpu(), smp=leaf)
    world.nvml = lambda: answer(GPU)
    world.run(60)
    looks, asked, smps = len(world.looks), len(world.asked_nvml), len(world.asked_smp)
    world.run(HOUR)
    assert len(world.looks) - looks <= 16
    assert len(world.api.applied()) <= 3
    assert 58 <= len(world.asked_nvml) - asked <= 62
    assert len(world.asked_smp) - smps <= 3
    assert world.api.labels[ACCELERATOR] == "9c6f5af3-53bf-49b5-a436-b66766c413c3.4026"


def test_a_link_down_changes_the_speed_at_once_and_the_neighbor_later() -> None:
    """The speed changes at once, the neighbor goes after 30 s; both come back."""
    world = World(IB, smp=leaf).run(60)
    began = world.time
    world.at(0.0, Event("port", "ibp1/1"), do=lambda: down(world))
    world.run(20)
    assert (world.labels["speed.current"], DEVICE.format("ibp1") in world.labels) == ("400G", True)
    assert world.api.applied()[-1] - began < 0.1
    world.run(20)
    assert DEVICE.format("ibp1") not in world.labels
    world.at(0.0, Event("port", "ibp1/1"), do=lambda: world.write(STATE, b"4: ACTIVE\n"))
    world.run(20)
    assert world.labels["speed.current"] == "800G"
    assert world.labels[DEVICE.format("ibp1")] == "L90.1.3"
    assert any('from=800G to=400G reason="ibp1 is DOWN"' in line for line in world.lines)


def test_the_reason_of_a_change_is_that_of_its_observation() -> None:
    """It is not that of an observation made while the request was under way."""
    world = World(IB, smp=leaf).run(60)
    world.slow = 3.0
    world.at(0.0, Event("port", "ibp1/1"), do=lambda: down(world))
    world.at(1.5, HUP, do=lambda: world.remove(f"{CLASS}/ibp0", f"{CLASS}/ibp1"))
    world.run(10)
    assert any('from=800G to=400G reason="ibp1 is DOWN"' in line for line in world.lines)


def test_repeated_lldp_frames_cause_no_observation() -> None:
    """A frame each 30 s for an hour causes no more observations than none."""
    world = World(ROCE)
    for second in range(0, 3600, 30):
        world.at(second, do=lambda: world.hear("eth0", switch()))
    world.run(120)
    looks = len(world.looks)
    world.run(3480)
    assert world.labels[DEVICE.format("mlx5_0")] == "leaf-1"
    assert len(world.looks) - looks <= 3480 / OBSERVE_INTERVAL + 2


def test_a_rename_changes_both_names_in_one_request() -> None:
    """The same PCI function under another name: old labels go as the new ones come."""
    world = World(IB, smp=leaf).run(60)

    def rename() -> None:
        world.remove(f"{CLASS}/ibp1", f"{HOME}/{B}/infiniband")
        world.entries.update(hca("mlx5_1", B))

    world.at(0.0, Event("device", "ibp1"), do=rename)
    world.run(60)
    old, new = DEVICE.format("ibp1"), DEVICE.format("mlx5_1")
    written = [
        {key.partition("/")[2] for key in labels} & {old, new} for labels in world.api.writes
    ]
    assert written[-1] == {new}
    assert world.labels["speed.current"] == "800G"


def test_a_netdev_in_a_pod_keeps_its_neighbor() -> None:
    """For hours; and it stays watched for its return."""
    world = World(ROCE)
    for second in (0, 30, 60):
        world.at(second, do=lambda: world.hear("eth0", switch()))
    lent = netdev("eth0", A)
    world.at(90, Event("link", "eth0"), do=lambda: world.remove(*lent, f"{HOME}/{A}/net"))
    world.run(5 * HOUR)
    assert world.labels[DEVICE.format("mlx5_0")] == "leaf-1"
    assert "eth0" in world.netdevs


def test_gpus_that_register_are_queried_often() -> None:
    """Every ten seconds, and the label follows the registration."""
    world = World(gpu())
    world.nvml = lambda: answer(GPU | {"fabric": FABRIC | {"state": 2}})
    world.run(100)
    assert 9 <= len(world.asked_nvml) <= 12
    assert ACCELERATOR not in world.api.labels
    world.nvml = lambda: answer(GPU)
    world.run(11)
    assert ACCELERATOR in world.api.labels


def test_gpus_that_were_not_queried_yet_are_no_problem() -> None:
    """At each start the first observation precedes the first answer; that is not logged."""
    world = World(gpu())
    world.nvml = lambda: answer(GPU)
    assert not [line for line in world.run(100).lines if "NVML" in line]


def test_a_node_without_gpus_queries_no_library() -> None:
    assert World(IB).run(HOUR).asked_nvml == []


def test_sighup_repairs_the_node() -> None:
    """The Node is read, and what others have changed is applied; a right Node costs one GET."""
    world = World(IB, smp=leaf).run(60)
    right, asked = dict(world.api.labels), len(world.api.requests)
    world.api.labels = {f"{PREFIX}/flavor": "roce"}
    world.run(60)
    assert len(world.api.requests) == asked
    world.at(0.1, HUP)
    world.run(5)
    assert world.api.labels == right
    world.run(30)
    world.at(0.1, HUP)
    world.run(30)
    assert [kind for _, kind in world.api.requests[asked:]] == ["get", "apply", "get"]
    assert "from=roce to=infiniband" in "".join(world.lines)


def test_a_node_that_was_created_again_gets_its_labels() -> None:
    """Within the interval of a look at the Node, and so does one whose labels were removed."""
    world = World(IB, smp=leaf).run(60)
    before = dict(world.api.labels)
    world.api.labels, world.api.annotation = {}, None
    world.run(1.2 * LOOK_INTERVAL + 1)
    assert world.api.labels == before
    assert [kind for _, kind in world.api.requests[-3:]] == ["look", "get", "apply"]


def test_a_key_that_is_accepted_and_dropped_is_tried_as_a_refused_one() -> None:
    """A webhook removes it from each request: it is asked for again after a minute and an hour, is
    in no log line as added, and the agent is not ready.
    """
    world = World(IB, resync=10 * HOUR)
    world.api.drops = frozenset({"backend.coreweave.cloud/flavor"})
    world.run(30)
    assert not [line for line in world.lines if "label added" in line and "/flavor" in line]
    assert [line for line in world.lines if "refused" in line and "/flavor" in line]
    ready, text = world.state.readiness()
    assert not ready
    assert "backend.coreweave.cloud/flavor" in text
    world.run(70)
    asked = len(world.api.requests)
    world.run(0.9 * HOUR)
    assert {kind for _, kind in world.api.requests[asked:]} == {"look"}
    world.api.drops = frozenset()
    world.run(0.2 * HOUR)
    assert world.labels["flavor"] == "infiniband"
    assert world.state.readiness()[0]


def test_keys_that_are_refused_one_by_one_take_ten_requests_a_minute() -> None:
    """The Node was created again, and a webhook names one key of `ib.` in each refusal."""

    def refuse(changed: Collection[Key]) -> Reply | None:
        keys = sorted(key for _, key in changed if key.startswith("ib."))
        return status(403, f"{keys[0]} is not allowed", "Forbidden") if keys else None

    api = Api(boot_id=BOOT_ID)
    world = World(IB, smp=leaf, api=api).run(60)
    before = {key: text for key, text in api.labels.items() if not key.startswith("ib.")}
    api.server.recreate()
    api.server.refuses.append(refuse)
    world.run(1.2 * LOOK_INTERVAL + 300)
    times = [at for at, _ in api.requests]
    assert max(sum(at <= one < at + 60 for one in times) for at in times) == 10
    assert api.labels == before
    assert "request failed" not in "".join(world.lines)


def test_an_outage_of_the_api_server_at_the_start() -> None:
    """Nothing is applied before the Node was read; what is not seen stays from the start on."""
    api = Api()
    api.labels = {f"{PREFIX}/{DEVICE.format('ibp0')}": "old", f"{PREFIX}/flavor": "infiniband"}
    api.trouble = lambda _request: Answer(error="timeout", message="timed out")
    world = World(IB, api=api)
    world.run(300)
    assert world.api.writes == []
    api.trouble = lambda _request: None
    world.run(290)
    assert world.labels[DEVICE.format("ibp0")] == "old"
    assert world.labels["speed.current"] == "800G"
    world.run(20)
    assert DEVICE.format("ibp0") not in world.labels


def test_a_wrong_configuration_ends_the_agent() -> None:
    api = Api(trouble=lambda _request: Answer(error="configuration", message="no kubeconfig"))
    with pytest.raises(Unavailable, match="no kubeconfig"):
        World(IB, api=api).run(10)


def test_the_wall_clock_may_jump() -> None:
    """A jump by hours or years, in either direction, expires nothing and writes nothing."""
    world = World(ROCE, resync=100 * HOUR)
    for second in range(0, 1200, 30):
        world.at(second, do=lambda: world.hear("eth0", switch()))
    world.run(100)
    before, writes = dict(world.api.labels), len(world.api.writes)
    for offset in (7200.0, -7200.0, 1e9, -1e9, 0.0):
        world.wall_offset = offset
        world.at(1, HUP)
        world.run(200)
    assert (world.api.labels, len(world.api.writes)) == (before, writes)


def test_a_suspension_expires_nothing() -> None:
    """After eight hours of suspension the labels are held, and the Node is refreshed soon."""
    world = World(ROCE)
    for second in range(0, 300, 30):
        world.at(second, do=lambda: world.hear("eth0", switch()))
    world.run(280)
    before = dict(world.api.labels)
    world.at(1, do=lambda: setattr(world, "time", world.time + 8 * HOUR))
    world.run(8 * HOUR + 100)
    assert world.api.labels == before
    assert world.time - world.api.applied()[-1] < 100


def test_signals() -> None:
    """SIGHUP causes an observation, SIGTERM ends the loop; the labels stay."""
    world = World(IB, smp=leaf).run(60)
    looks = len(world.looks)
    world.look(2)
    assert len(world.looks) >= looks + 2
    before = dict(world.api.labels)
    world.at(0.0, Event("signal", "SIGTERM"))
    world._end = math.inf  # noqa: SLF001 - the loop's own end is tested
    world.runtime.run()
    assert world.api.labels == before


def test_facts_of_a_late_device_are_observed_and_no_device_is_read_again() -> None:
    """Otherwise each late device would cause the next read, without end; an event reads all
    again.
    """
    world = World(IB, smp=leaf).run(60)
    looks, reads = len(world.looks), world.state_reads
    world.at(0.0, Event("results", "facts"))
    world.run(2)
    assert (len(world.looks), world.state_reads) == (looks + 1, reads)
    world.at(0.0, Event("port", "ibp0/1"))
    world.run(2)
    assert (len(world.looks), world.state_reads) == (looks + 3, reads + 4)


def test_an_orphan_is_reaped_and_causes_no_observation() -> None:
    world = World(IB, smp=leaf).run(60)
    looks = len(world.looks)
    world.at(0.0, Event("signal", "SIGCHLD"))
    world.run(2)
    assert (world.reaped, len(world.looks)) == (1, looks)


@pytest.mark.parametrize("kind", ["resync", "link", "device"])
def test_any_event_is_followed_by_an_observation(kind: str) -> None:
    """Also a resync, by which events may have been lost."""
    world = World(IB, smp=leaf).run(60)
    world.at(5.0, Event(kind, "links"), do=lambda: down(world))
    world.run(6)
    assert world.labels["speed.current"] == "400G"


def test_a_disabled_source_removes_its_labels() -> None:
    """`--source rdma` on a node that had neighbors, then `--source ib`."""
    world = World(IB, smp=leaf).run(60)
    assert DEVICE.format("ibp0") in world.labels
    world.start_again(sources=("rdma",))
    world.run(30)
    assert set(world.labels) == {"flavor", "speed.current", "ib.coreweave.cloud/speed.current"}
    world.start_again(sources=("ib",))
    world.run(30)
    assert (DEVICE.format("ibp0") in world.labels, "speed.current" in world.labels) == (True, False)


def test_disabled_nvml_removes_the_accelerator_label() -> None:
    world = World(gpu())
    world.nvml = lambda: answer(GPU)
    world.run(60)
    assert ACCELERATOR in world.api.labels
    world.start_again(sources=("rdma",))
    world.run(30)
    assert ACCELERATOR not in world.api.labels


def test_work_that_cannot_be_started_is_retried() -> None:
    """Out of threads, out of memory: the loop continues."""
    world = World(IB, smp=leaf)
    calls = iter([RuntimeError("can't start new thread"), MemoryError()])

    def fail(_request: Mapping[str, Any]) -> Answer | None:
        if error := next(calls, None):
            raise error
        return None

    world.api.trouble = fail
    world.run(60)
    assert world.labels["speed.current"] == "800G"


def test_metrics_and_health_are_published() -> None:
    world = World(IB, smp=leaf).run(60)
    assert world.metrics.snapshot.requests == {"200": 2}
    assert (world.ports, world.is_swept_slowly) == ({("ibp0", 1), ("ibp1", 1)}, False)


def test_the_netdevs_of_the_backend_are_watched() -> None:
    """And no others."""
    assert World(ROCE, netdev("eth7", "0000:77:00.0")).run(10).netdevs == {"eth0"}


@pytest.mark.parametrize(
    ("facts", "is_slow"),
    [
        ({"flags": "0x1003"}, True),
        ({"flags": "0x1002"}, False),  # administratively down
        ({"flags": "0x1003", "operstate": "down"}, False),  # it has not joined its broadcast group
        ({}, False),  # unknown
    ],
)
def test_the_sweep_is_slow_where_link_messages_tell(facts: dict[str, str], is_slow: bool) -> None:
    """An IPoIB netdev that is up, at each backend port."""
    ipoib = [netdev(f"ib{number}", bdf(number), **facts) for number in range(2)]
    world = World(IB, *ipoib, smp=leaf).run(60)
    assert (world.is_swept_slowly, world.netdevs) == (is_slow, {"ib0", "ib1"})
    world.entries |= netdev("ib1", bdf(1), flags="0x1002")
    assert not world.look(5).is_swept_slowly


def test_a_suspension_is_left_out() -> None:
    """A wait that is a little late is not."""
    raw = [100.0]
    clock = AwakeClock(lambda: raw[0])
    clock.waits(20.0)
    raw[0] += 20 + MAX_LATENESS
    assert (clock.missed(), clock()) == (MAX_LATENESS, raw[0])
    clock.waits(20.0)
    assert clock.missed() == 0
    since = clock()
    clock.waits(20.0)
    raw[0] += 20 + 28_800.0
    assert (clock.missed(), clock()) == (28_800.0, since + 20)
    assert (clock.woke_at, clock.left_out()) == (since + 20, 28_800.0)
    raw[0] += 5
    assert (clock.missed(), clock()) == (0, since + 25)
    assert AwakeClock()() > 0


def test_a_freeze_while_the_agent_works_is_left_out() -> None:
    """The call that follows it notices it, whether a wait was before; short pieces do not add up.

    A wait that another thread's calls divide is late by its end alone.
    """
    raw = [100.0]
    clock = AwakeClock(lambda: raw[0])
    raw[0] += 80
    assert (clock(), clock.woke_at, clock.missed(), clock.missed()) == (100, 100, 80, 0)
    for _ in range(5):
        raw[0] += MISSED
        clock()
    assert clock.missed() == 0
    raw[0] += MISSED + 1
    assert (clock(), clock.missed()) == (161, MISSED + 1)
    clock.waits(20.0)
    for _ in range(3):
        raw[0] += 10
        clock()
    assert clock.missed() == 0
