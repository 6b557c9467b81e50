"""Counts of ports that cannot be read: over random histories, and against a model of the rules."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.labels.counts import LastCount, PortCounts, Published
from agent.labels.render import Rendered, render
from agent.labels.table import Naming
from agent.labels.values import counts
from agent.model import Absent, Failed, Observation, RdmaDevice, Seen
from agent.reasons import HoldReason
from agent.sources.roles import assign
from tests.support.devices import eth, ib, plain

HOLD = 600.0
SPEED = "backend.coreweave.cloud/speed.current"
NONE = Absent("no such port")
NAMES = [f"ibp{number}" for number in range(4)]


def failed(device: RdmaDevice) -> RdmaDevice:
    """The device as a read that failed leaves it."""
    return RdmaDevice(device.name, failure="blocks")


def observed(*devices: RdmaDevice, unbound: tuple[str, ...] = (), **changes: Any) -> Observation:
    """An observation of these devices."""
    observation = Observation(
        0.0, "n1", "b", assign(devices), Seen(devices), NONE, NONE, unbound=unbound
    )
    return replace(observation, **changes)


def speed(found: Observation, previous: str | None = None) -> str:
    return rendered(found, previous).labels[SPEED]


def rendered(found: Observation, previous: str | None = None) -> Rendered:
    return render(found, Naming(), {SPEED: previous} if previous else {})


def hcas(*gbps: float | None) -> list[RdmaDevice]:
    """An HCA for each rate; None: its state cannot be read."""
    return [
        plain(ib(name, bus), state=None) if rate is None else plain(ib(name, bus), rate_gbps=rate)
        for bus, (name, rate) in enumerate(zip(NAMES, gbps, strict=False), 0x18)
    ]


def published(gbps: dict[str, float], **changes: Any) -> Published:
    last = {name: LastCount(rate, None) for name, rate in gbps.items()}
    return Published(last, **{"boot_id": "b", "speed": "800G", "subject": "p/observed", **changes})


def test_a_port_counts_what_it_did_last() -> None:
    """For `hold` seconds from the first failed observation, and 0 after that."""
    last = PortCounts(HOLD)
    assert speed(last.apply(observed(*hcas(400, 200)), 0.0)) == "600G"
    for now, total in ((10.0, 600), (609.0, 600), (610.0, 200), (9e9, 200)):
        found = last.apply(observed(*hcas(None, 200)), now)
        assert (speed(found), sum(counts(found))) == (f"{total}G", total)
    assert last.next_end(9e9) == math.inf


def test_the_end_of_a_hold_is_announced() -> None:
    """So that an observation can be scheduled for it; it has no label to expire."""
    last = PortCounts(HOLD)
    last.apply(observed(*hcas(400, 400)), 0.0)
    found = last.apply(observed(*hcas(None, 400)), 5.0)
    assert last.next_end(5.0) == 605.0
    assert rendered(found).held == {
        SPEED: HoldReason.LAST_COUNT,
        SPEED.replace("backend", "ib"): HoldReason.LAST_COUNT,
    }
    assert not rendered(last.apply(observed(*hcas(None, 400)), 605.0)).held


@pytest.mark.parametrize("how", ["failed", "unbound"])
def test_a_device_without_facts(how: str) -> None:
    """Its ports count what they did; given up, it makes no other label incomplete."""
    last = PortCounts(HOLD)
    one, two = hcas(400, 400)
    last.apply(observed(one, two), 0.0)
    lost = observed(failed(one), two) if how == "failed" else observed(two, unbound=("ibp0",))
    assert speed(last.apply(lost, 1.0)) == "800G"
    assert last.apply(lost, 600.0).given_up == frozenset()
    found = last.apply(lost, 601.0)
    assert (speed(found), [*found.given_up]) == ("400G", ["ibp0"])
    assert not rendered(found, "800G").held


def test_an_unknown_count_holds_the_label() -> None:
    """A device that nobody ever read: the published sum stays, or the known part is new."""
    last = PortCounts(HOLD)
    one, two = hcas(400, 400)
    found = last.apply(observed(failed(one), two), 0.0)
    assert speed(found, "800G") == "800G"
    assert rendered(found, "800G").held[SPEED] is HoldReason.DEVICE_FAILED
    assert (speed(found), rendered(found).incomplete[-1]) == (
        "400G",
        SPEED.replace("backend", "ib"),
    )
    assert speed(last.apply(observed(failed(one), two), HOLD), "800G") == "400G"


def test_a_device_that_never_counted() -> None:
    """One that was ignored before, or has appeared since, holds nothing."""
    last = PortCounts(HOLD)
    one, two = hcas(400, 400)
    front = eth("mlx5_9", 0x99)
    last.apply(observed(one, two, front), 0.0)
    assert speed(last.apply(observed(one, plain(two, state="DOWN"), failed(front)), 1.0)) == "400G"
    found = last.apply(observed(one, two, RdmaDevice("new", failure="blocks")), 2.0)
    assert speed(found, "400G") == "800G"


def test_a_source_that_fails_as_a_whole() -> None:
    """The label is held, and the holds of the ports run on meanwhile."""
    last = PortCounts(HOLD)
    one, two = hcas(400, 400)
    last.apply(observed(one, two), 0.0)
    last.apply(observed(failed(one), two), 10.0)
    found = last.apply(observed(rdma=Failed("blocked")), 300.0)
    assert rendered(found, "800G").held == {SPEED: HoldReason.SOURCE_FAILED}
    assert speed(last.apply(observed(failed(one), two), 500.0)) == "800G"
    assert speed(last.apply(observed(failed(one), two), 610.0)) == "400G"


def test_ports_that_return_beside_a_failed_one() -> None:
    """A function that was pulled out, or returns under another name, counts at once."""
    last = PortCounts(HOLD)
    one, two = hcas(400, 400)
    last.apply(observed(one, two), 0.0)
    assert speed(last.apply(observed(failed(one)), 1.0)) == "400G"
    assert speed(last.apply(observed(failed(one), two), 2.0)) == "800G"
    assert speed(last.apply(observed(failed(one), replace(two, name="mlx5_1")), 3.0)) == "800G"


def test_roles_that_change_because_a_device_fails() -> None:
    """With one rail unread nobody knows which are more; the rails count as before."""
    rails = [eth("mlx5_0", 0x18), eth("mlx5_1", 0x19)]
    storage = [
        plain(eth(f"mlx5_{bus}", bus, pci_ids="15b3:101d"), netdev=None, rate_gbps=100.0)
        for bus in (0x20, 0x21)
    ]
    last = PortCounts(HOLD)
    assert speed(last.apply(observed(*rails, *storage), 0.0)) == "800G"
    fewer = observed(failed(rails[0]), rails[1], *storage)
    assert [role.interface for role in fewer.ports if role.backend] == []
    for now in (1.0, 2.0, 300.0):
        assert speed(last.apply(fewer, now)) == "800G"


def test_counts_of_the_annotation() -> None:
    """They are used for what fails now, from the start of the agent on."""
    last = PortCounts(HOLD)
    one, two = hcas(400, 400)
    last.apply(observed(two), -100.0)
    last.seed(published({"ibp0": 300.0, "ibp1": 500.0}), 0.0)
    found = last.apply(observed(failed(one), two), 5.0)
    assert (speed(found), found.problems) == ("700G", ())
    assert speed(last.apply(observed(failed(one), two), 600.0)) == "400G"


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (
            published({"ibp0": 400.0, "ibp1": 401.0}),
            "their sum is 801G, and the speed label is 800G",
        ),
        (published({"ibp0": 400.0}), "their sum is 400G, and the speed label is 800G"),
        (published({"ibp0": 800.0}, speed=None), "the speed label is not there"),
        (published({"ibp0": 800.0}, boot_id="another"), "they are of another boot"),
        (published({"ibp0": 800.0}, boot_id=None), "they are of another boot"),
    ],
)
def test_counts_that_are_rejected(odd: Published, text: str) -> None:
    """Only a count that is missed is a problem, once the boot ID is known; the label is held."""
    last = PortCounts(HOLD)
    one, two = hcas(400, 400)
    last.seed(odd, 0.0)
    assert last.apply(observed(failed(one), two, boot_id=None), 1.0).problems == ()
    found = last.apply(observed(failed(one), two), 2.0)
    assert speed(found, "800G") == "800G"
    assert [problem.subject for problem in found.problems] == ["p/observed"]
    assert "what ibp0 counted last is ignored" in found.problems[0].text
    assert text in found.problems[0].text
    assert last.apply(observed(one, two), 3.0).problems == ()
    assert last.apply(observed(failed(one), two), 4.0).problems == ()


RATES = st.sampled_from([0.0, 100.0, 400.0])
STEPS = st.lists(
    st.tuples(st.floats(0.1, 500), st.tuples(*[RATES | st.none()] * len(NAMES))), max_size=20
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.tuples(*[RATES] * len(NAMES)), STEPS)
def test_each_port_has_its_own_hold(
    first: tuple[float, ...], steps: list[tuple[float, tuple[float | None, ...]]]
) -> None:
    """Against a model that works out each port from its whole history."""
    last, now = PortCounts(HOLD), 0.0
    histories: list[list[tuple[float, float | None]]] = [[(0.0, rate)] for rate in first]
    last.apply(observed(*hcas(*first)), now)
    for wait, rates in steps:
        now += wait
        for history, rate in zip(histories, rates, strict=True):
            history.append((now, rate))
        assert sum(counts(last.apply(observed(*hcas(*rates)), now))) == sum(map(_model, histories))


def _model(history: list[tuple[float, float | None]]) -> float:
    """The last rate, unless the failures since it last too long."""
    fails: list[float] = []
    for at, rate in reversed(history):
        if rate is not None:
            return rate if not fails or fails[0] < fails[-1] + HOLD else 0.0
        fails.append(at)
    return 0.0
