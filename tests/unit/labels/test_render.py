"""Rendering flavor and speed: the published labels, the held ones, and other managers' labels."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.encode import Naming
from agent.kube.managed_fields import Keys
from agent.labels.render import Rendered, render
from agent.model import Absent, Failed, NvlinkDomain, Observation, RdmaDevice, Seen
from agent.reasons import AcceleratorReason, HoldReason
from agent.sources.roles import Decision
from agent.sysfs.bus import Bus, Function
from tests.support.devices import decide, eth, ib, netdev, plain, port
from tests.support.remembering import completed

P, IB = "backend.coreweave.cloud", "ib.coreweave.cloud"
FLAVOR, SPEED, IB_SPEED = f"{P}/flavor", f"{P}/speed.current", f"{IB}/speed.current"
ON_IB = {FLAVOR: "infiniband", SPEED: "3200G", IB_SPEED: "3200G"}
ON_ROCE = {FLAVOR: "roce", SPEED: "800G"}
FAILED = Failed("the driver reloads")
STUCK = RdmaDevice("ibp9", failure="blocks", pci="0000:f9:00.0")
BUS = Bus({"0000:f9:00.0": Function("0000:f9:00.0", 0x0207, "15b3:1021")})

# Keys of other managers, some of them almost equal to ours.
FOREIGN = {
    f"{P}/speed.expected": "3200G",
    f"{P}/neighbors.expected.ibp0.device": "L1",
    f"{P}/speed.current.old": "1G",
    f"{P}/speedXcurrent": "1G",
    f"{P}/fabric": "a",
    f"x{P}/speed.current": "1G",
    f"{P.replace('.', 'x', 1)}/speed.current": "1G",
    f"{IB}/speed.expected": "3200G",
    "speed.current": "1G",
    "kubernetes.io/hostname": "n1",
}


def rendered(
    rdma: Seen[tuple[RdmaDevice, ...]] | Absent | Failed,
    previous: Mapping[str, str] | None = None,
    naming: Naming | None = None,
) -> Rendered:
    """Render the first observation of these devices of a new agent; `previous` are its labels."""
    decision = decide(rdma.value, bus=BUS) if isinstance(rdma, Seen) else Decision(())
    absent = Absent("not asked")
    observation = Observation(
        *(0.0, "n1", None),
        ports=decision.roles,
        unread=decision.unread,
        rdma=rdma,
        lldp=absent,
        ib=absent,
        nvml=absent,
        accelerator=NvlinkDomain(None, AcceleratorReason.NOT_FOUND),
    )
    naming = naming or Naming()
    _, known = completed(observation, previous, keys=Keys(naming))
    return render(known, naming).over(previous or {})


def labels(*devices: RdmaDevice, previous: Mapping[str, str] | None = None) -> dict[str, str]:
    return rendered(Seen(devices), previous).labels


def hcas(count: int, **facts: object) -> list[RdmaDevice]:
    return [plain(ib(f"ibp{number}", number), **facts) for number in range(count)]


def nics_at(*mbps: int | None) -> list[RdmaDevice]:
    return [
        eth(
            f"mlx5_{number}",
            number,
            port(netdev=netdev(f"eth{number}", speed_mbps=speed), rate_gbps=speed),
        )
        for number, speed in enumerate(mbps)
    ]


@pytest.mark.parametrize(
    ("devices", "published"),
    [
        (hcas(8), ON_IB),
        (hcas(7) + hcas(8, state="DOWN")[7:], ON_IB | {SPEED: "2800G", IB_SPEED: "2800G"}),
        (hcas(8, state="INIT"), ON_IB | {SPEED: "0G", IB_SPEED: "0G"}),
        (hcas(1, rate_gbps=2.5), ON_IB | {SPEED: "2.5G", IB_SPEED: "2.5G"}),
        (nics_at(400_000, 400_000), ON_ROCE),
        (nics_at(100, 100, 100), ON_ROCE | {SPEED: "0.3G"}),
        (nics_at(1_000), ON_ROCE | {SPEED: "1G"}),
        (nics_at(10_000_000), ON_ROCE | {SPEED: "10000G"}),
        ([*nics_at(400_000), *hcas(1)], {FLAVOR: "infiniband", SPEED: "400G", IB_SPEED: "400G"}),
        ([plain(ib("efa0", 1), link_layer="Unknown")], {SPEED: "0G"}),
        ([RdmaDevice("ibp0", excluded=True)], {SPEED: "0G"}),
        ([], {SPEED: "0G"}),
    ],
)
def test_what_is_seen_is_published(devices: list[RdmaDevice], published: dict[str, str]) -> None:
    """Flavor, sum of the ACTIVE rates, and the InfiniBand family on InfiniBand Nodes only."""
    assert labels(*devices) == published
    assert labels(*devices, previous=ON_IB | FOREIGN) == published


def test_absence_removes() -> None:
    """A node without RDMA devices has `speed.current=0G` and no other label."""
    assert rendered(Absent("no RDMA device"), ON_IB | FOREIGN) == Rendered({SPEED: "0G"})


@pytest.mark.parametrize("previous", [ON_IB, ON_ROCE, {SPEED: "0G"}, {}])
def test_failure_holds(previous: dict[str, str]) -> None:
    """While the RDMA class cannot be read our labels stay, and no others are taken over."""
    held = rendered(FAILED, previous | FOREIGN)
    assert held.labels == previous
    assert held.held == dict.fromkeys(previous, HoldReason.SOURCE_FAILED)
    assert held.problems == ()


def test_a_stale_family_stays_while_nothing_can_be_read() -> None:
    """All that the Node has is frozen alike; it goes with the first facts."""
    stale = ON_ROCE | {IB_SPEED: "3200G"}
    assert rendered(FAILED, stale).labels == stale
    assert IB_SPEED not in labels(*nics_at(400_000, 400_000), previous=stale)


INCOMPLETE = {
    "a state that cannot be read": (plain(ib("ibp9", 9), state=None), HoldReason.INCOMPLETE),
    "a rate that cannot be read": (plain(ib("ibp9", 9), rate_gbps=None), HoldReason.INCOMPLETE),
    "a link layer that cannot be read": (
        plain(ib("ibp9", 9), link_layer=None),
        HoldReason.DEVICE_FAILED,
    ),
    "a device that blocks": (STUCK, HoldReason.DEVICE_FAILED),
}


@pytest.mark.parametrize(("device", "reason"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_an_incomplete_sum_keeps_the_published_one(device: RdmaDevice, reason: HoldReason) -> None:
    """A port that cannot be read may still be up, so the sum stays; the flavor is known.

    Each label is left as the Node has it.
    """
    held = rendered(
        Seen((*hcas(7), device)), {FLAVOR: "roce", SPEED: "3200G", IB_SPEED: "3100G"} | FOREIGN
    )
    assert held.labels == {FLAVOR: "infiniband", SPEED: "3200G", IB_SPEED: "3100G"}
    assert held.held == dict.fromkeys((SPEED, IB_SPEED), reason)


@pytest.mark.parametrize("device", [device for device, _ in INCOMPLETE.values()], ids=INCOMPLETE)
def test_an_incomplete_sum_is_published_where_there_was_none(device: RdmaDevice) -> None:
    """Without a published sum, the readable ports are counted."""
    first = rendered(Seen((*hcas(7), device)), FOREIGN)
    assert first.labels == ON_IB | {SPEED: "2800G", IB_SPEED: "2800G"}
    assert first.held == {}
    assert {SPEED, IB_SPEED} <= first.incomplete.keys()


def test_ignored_ports_leave_the_sum_complete() -> None:
    """Unread facts of ignored ports and excluded devices do not matter."""
    ignored = plain(eth("mlx5_9", 9), state=None)
    assert (
        labels(*hcas(8), ignored, RdmaDevice("mlx5_8", excluded=True), previous={SPEED: "1G"})
        == ON_IB
    )


def test_an_unread_device_may_be_infiniband() -> None:
    """An InfiniBand Node stays one while a device blocks, though only Ethernet was read."""
    assert labels(*nics_at(400_000, 400_000), STUCK, previous=ON_IB) == ON_IB
    assert labels(*nics_at(400_000, 400_000), STUCK) == {}
    assert labels(STUCK, previous=ON_IB) == ON_IB
    assert labels(STUCK) == {}


def test_a_change_of_flavor_removes_the_family() -> None:
    """HCAs that were switched to Ethernet leave no InfiniBand label behind."""
    changed = rendered(Seen(tuple(nics_at(400_000, 400_000))), ON_IB)
    assert (changed.labels, changed.held) == (ON_ROCE, {})


@pytest.mark.parametrize("rdma", [Seen(tuple(hcas(8))), FAILED])
def test_prefixes_are_the_operators(rdma: Seen[tuple[RdmaDevice, ...]] | Failed) -> None:
    """Other prefixes change the keys only; labels below the default prefixes are then not ours."""
    ours = {"net.example/flavor": "infiniband", "net.example/speed.current": "3200G"}
    family = {"ib.example/speed.current": "3200G"}
    previous = ours | family | ON_IB
    assert rendered(rdma, previous, Naming("net.example", "ib.example")).labels == ours | family
    without = rendered(rdma, previous, Naming("net.example", ""))
    assert (without.labels, without.problems) == (ours, ())


@pytest.mark.parametrize("prefix", ["Not_A_Domain", "p" * 254, "k8s.io", "a\nb"])
def test_a_key_that_kubernetes_would_refuse_is_reported(prefix: str) -> None:
    """Its label is left out, key and fault are a problem, and the other labels are rendered."""
    refused = rendered(Seen(tuple(hcas(8))), naming=Naming(ib_prefix=prefix))
    assert refused.labels == {FLAVOR: "infiniband", SPEED: "3200G"}
    (problem,) = refused.problems
    assert (problem.source, problem.subject) == ("labels", f"{prefix}/speed.current")
    assert problem.text.startswith("label not written: ")


def test_labels_are_sorted() -> None:
    """By key, so that two observations of one node print the same text."""
    found = rendered(Seen(tuple(hcas(2))), naming=Naming("z.example", "a.example"))
    assert list(found.labels) == [
        "a.example/speed.current",
        "z.example/flavor",
        "z.example/speed.current",
    ]


@given(
    previous=st.dictionaries(
        st.sampled_from([*ON_IB, *FOREIGN]), st.sampled_from(["roce", "infiniband", "3200G"])
    ),
    states=st.lists(st.sampled_from(["ACTIVE", "DOWN", None]), max_size=4),
    layer=st.sampled_from(["InfiniBand", "Ethernet", None]),
)
def test_hold_is_either_or(
    previous: dict[str, str], states: list[str | None], layer: str | None
) -> None:
    """A label has the published value or the one just read, and only our keys are written."""
    devices = tuple(plain(ib(f"x{n}", n), state=s, link_layer=layer) for n, s in enumerate(states))
    now, fresh = rendered(Seen(devices), previous), labels(*devices)
    assert set(now.labels) <= set(ON_IB)
    for key, text in now.labels.items():
        read = fresh.get(key, fresh.get(SPEED))  # the family of a held flavor has the same sum
        assert text == (previous.get(key) if key in now.held else read)


@pytest.mark.parametrize("taken", [SPEED, IB_SPEED])
def test_a_label_that_somebody_else_took_is_left_to_them(taken: str) -> None:
    """Nothing can be read: what is still the agent's stays, and nothing is taken back."""
    owned = {key: text for key, text in ON_IB.items() if key != taken}
    assert rendered(Seen((STUCK,)), owned).labels == owned
