"""The subnet administrator is asked seldom: with jitter, once a day, never again at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.errors import Unavailable
from agent.events.event import WOKE, Event
from agent.infiniband.devices import SubnetPort, is_unasked
from agent.infiniband.poller import (
    MAX_RETRY_INTERVAL,
    SA_JITTER,
    SA_NAME_INTERVAL,
    SA_QUIET,
    SA_REFRESH_INTERVAL,
    SA_RETRY_INTERVAL,
    SaPoller,
)
from agent.infiniband.switch_names import Answered, SwitchNames
from agent.lldp.packet_socket import run_at_once
from agent.model import Failed, IbNeighbor, Link, Neighbor, Observation, Seen
from tests.support.observations import PORT, observation, role

A, B = (SubnetPort(name, 1, lid, 9, 0, 0) for name, lid in (("a", 3), ("b", 4)))
NAMED = IbNeighbor("switch", "01", None, 1, "leaf1", "sa")


class Subnet:
    """An SA that answers, or does not; `observe` and `poll` are a turn of the daemon."""

    def __init__(self, random: float = 0.5) -> None:
        self.asked: list[tuple[SubnetPort, ...]] = []
        self.error: str | None = None
        self.names = SwitchNames()
        task: BackgroundTask[Any] = BackgroundTask(run_at_once)
        self.poller = SaPoller(self._answer, task, self.names, lambda: random)

    def _answer(self, places: Sequence[SubnetPort]) -> dict[str, Any]:
        self.asked.append(tuple(places))
        if self.error == "helper":
            raise Unavailable("helper sa: killed")
        rows = [{"device": one.device, "port": one.number, "error": self.error} for one in places]
        return {"ports": rows}

    def observe(
        self, *places: SubnetPort, observed: Observation | None = None
    ) -> list[tuple[str, str | None]]:
        self.poller.begin_cycle()
        rows = self.poller(places)["ports"] if places else []
        self.poller.observed(observed or observation())
        return [(row["device"], row["error"]) for row in rows if not is_unasked(row)]

    def poll(self, now: float) -> bool:
        self.poller.start_due(now)
        return self.poller.collect(now)

    def ask(self, *places: SubnetPort) -> None:
        """Ask about these within the first minute."""
        self.observe(*places)
        self.poll(0.0)
        assert self.poll(SA_JITTER)


def test_a_new_port_is_asked_about_within_a_minute() -> None:
    """Not at once: ten thousand nodes may start at the same time. Then not for a day."""
    subnet = Subnet()
    assert subnet.observe(A, B) == []
    assert not subnet.poll(0.0)
    assert subnet.poller.next_due() == SA_JITTER / 2
    assert subnet.poll(SA_JITTER / 2)
    assert subnet.observe(A, B) == [("a", None), ("b", None)]
    assert subnet.asked == [(A, B)]
    assert SA_REFRESH_INTERVAL * 0.9 <= subnet.poller.next_due() <= SA_REFRESH_INTERVAL + SA_JITTER


@pytest.mark.parametrize(
    ("lid", "longest"),
    [(3, 60.0), (5000, 60.0), (10_000, 200.0), (20_000, 800.0), (49_151, 3600.0)],
)
def test_a_large_subnet_has_more_time(lid: int, longest: float) -> None:
    """One answer costs opensm a look at each of its nodes; the highest LID tells how many."""
    subnet = Subnet(random=1.0)
    subnet.observe(A, B._replace(lid=lid))
    subnet.poll(0.0)
    assert subnet.poller.next_due() == longest


def test_another_lid_is_a_reason_to_ask() -> None:
    """Of the port or of the SM; the last answer holds until then. An event is none."""
    subnet = Subnet()
    subnet.ask(A)
    for event in (Event("link", "ib0"), Event("uevent", "a"), Event("signal", "SIGHUP")):
        subnet.poller.trigger(100.0, event)
    assert not subnet.poll(200.0)
    moved = A._replace(sm_lid=10)
    assert subnet.observe(moved) == [("a", None)]
    assert not subnet.poll(300.0)
    assert subnet.poll(300.0 + SA_JITTER)
    assert subnet.asked == [(A,), (moved,)]


def test_only_a_port_that_did_not_change_waits_for_its_first_question() -> None:
    """What is remembered of it holds until then; not after a link that was down, or another LID."""

    def waiting(*places: SubnetPort) -> list[str]:
        subnet.poller.begin_cycle()
        return [row["device"] for row in subnet.poller(places)["ports"] if is_unasked(row)]

    subnet = Subnet()
    assert waiting(A, B) == waiting(A, B) == ["a", "b"]
    assert waiting(A._replace(lid=7), B) == ["b"]
    assert waiting(A) == []
    assert waiting(A, B) == []
    assert not subnet.poll(0.0)
    assert subnet.poll(SA_JITTER)
    assert waiting(A, B) == []


@pytest.mark.slow
@pytest.mark.parametrize("error", [None, "no-answer"])
@pytest.mark.parametrize(
    ("period", "random"), [(4, 0.0), (30, 0.0), (30, 0.2), (300, 0.0), (300, 0.2)]
)
def test_a_link_that_flaps_costs_a_question_an_hour(
    error: str | None, period: int, random: float
) -> None:
    """After the first minutes, also with a dead SM; after a quiet time within a minute again."""
    subnet = Subnet(random)
    subnet.error = error
    times: list[int] = []
    for now in range(0, 24 * 3600, {4: 2, 30: 3, 300: 10}[period]):
        subnet.observe(*[A] * (now // (period // 2) % 2 == 0))
        if subnet.poll(float(now)) and now:
            times.append(now)
    assert times[0] <= 2 * SA_JITTER + period
    assert 24 <= len(times) <= 24 + 8
    later = times[-1] + SA_QUIET
    subnet.observe(A)
    assert subnet.poll(later) or subnet.poll(later + SA_JITTER)
    subnet.observe()
    subnet.observe(A)
    asked_now = subnet.poll(later + 2 * SA_JITTER)
    assert asked_now or subnet.poller.next_due() <= later + 4 * SA_JITTER


@pytest.mark.parametrize("error", [None, "no-answer"])
def test_a_link_that_is_up_for_shorter_than_the_jitter(error: str | None) -> None:
    """No question and no answer; each time it waits anew, or all nodes would ask at once."""
    subnet = Subnet(random=1.0)
    subnet.error = error
    subnet.ask(A)
    for now in range(100, 7300, 100):
        subnet.observe()
        assert subnet.poller.next_due() == float("inf")
        for second in range(0, 50, 10):
            assert subnet.observe(A) == []
            assert not subnet.poll(float(now + second))
    subnet.observe()
    subnet.observe(A)
    subnet.poll(7300.0)
    assert subnet.poll(7300.0 + SA_JITTER)
    assert subnet.observe(A) == [("a", error)]
    assert len(subnet.asked) == 2


def test_sighup_forgets_that_a_link_flapped() -> None:
    """The operator has changed the cable."""
    subnet = Subnet(0.0)
    subnet.error = "no-answer"
    for now in map(float, range(0, 3600, 10)):
        subnet.observe()
        subnet.observe(A)
        subnet.poll(now)
    before = len(subnet.asked)
    subnet.poller.trigger(3600.0, Event("signal", "SIGHUP"))
    subnet.observe(A)
    assert subnet.poll(3600.0)
    assert len(subnet.asked) == before + 1


def test_a_freeze_is_a_reason_to_ask_about_all() -> None:
    """Within a minute, since many machines may have been suspended; not at other events."""
    subnet = Subnet()
    subnet.ask(A, B)
    subnet.observe(A, B)
    subnet.poller.trigger(3600.0, Event("link", "ib0"))
    assert not subnet.poll(3600.0 + SA_JITTER)
    subnet.poller.trigger(3700.0, WOKE)
    assert not subnet.poll(3700.0)
    assert subnet.poll(3700.0 + SA_JITTER)
    assert subnet.asked == [(A, B)] * 2


@pytest.mark.parametrize("error", [None, "no-answer"])
def test_a_freeze_while_a_question_is_under_way(error: str | None) -> None:
    """The answer may be of before the freeze: it is asked again."""
    subnet = Subnet()
    subnet.error = error
    subnet.observe(A)
    subnet.poll(0.0)
    subnet.poller.start_due(SA_JITTER)
    subnet.poller.trigger(SA_JITTER + 1, WOKE)
    assert subnet.poller.collect(SA_JITTER + 1)
    subnet.poll(SA_JITTER + 1)
    assert subnet.poll(3 * SA_JITTER)


def test_a_subnet_manager_that_moves_once_is_no_flapping() -> None:
    """Two changes in a row, of the LID and of the SM's, are asked about within two minutes."""
    subnet = Subnet(1.0)
    subnet.ask(A)
    for now, place in ((70.0, A._replace(lid=7)), (80.0, A._replace(lid=7, sm_lid=8))):
        subnet.observe(place)
        subnet.poll(now)
    assert subnet.poll(140.0)


@pytest.mark.parametrize("error", ["no-answer", "sa-busy", "sa-refused", "helper"])
@pytest.mark.parametrize("random", [0.0, 1.0])
def test_a_refusal_is_followed_by_hours(error: str, random: float) -> None:
    """The interval doubles, half of it is random; SIGHUP begins again, within the jitter."""
    subnet, now, waits = Subnet(random), 0.0, []
    subnet.error = error
    subnet.observe(A)
    subnet.poll(now)
    now = SA_JITTER * random
    for _ in range(12):
        assert subnet.poll(now) or random == 0.0
        waits.append(subnet.poller.next_due() - now)
        now = subnet.poller.next_due()
    share = 0.5 + 0.5 * random
    assert waits[0] == SA_RETRY_INTERVAL * share
    assert waits[-1] == MAX_RETRY_INTERVAL * share
    assert len(subnet.asked) <= 13
    subnet.poller.trigger(now, Event("signal", "SIGHUP"))
    subnet.observe(A)
    subnet.poll(now)
    assert subnet.poller.next_due() <= now + SA_JITTER + SA_RETRY_INTERVAL


def without_smps(state: str | None = "ACTIVE", *links: Link) -> Observation:
    """An observation of port 1 of device a, whose links are not known, or these."""
    ports = (role("ib0", PORT._replace(state=state), device="a"),)
    return observation(ports=ports, ib=Seen(links) if links else Failed("helper smp: killed"))


@pytest.mark.parametrize("state", ["ACTIVE", None])
def test_an_answer_outlives_observations_without_smps(state: str | None) -> None:
    """A helper that fails, or a slow read of the LID, says nothing about the link."""
    subnet = Subnet()
    subnet.ask(A, B)
    for now in (70.0, 80.0):
        assert subnet.observe(observed=without_smps(state)) == []
        subnet.poll(now)
        assert subnet.poller.next_due() == float("inf")
    assert subnet.observe(A) == [("a", None)]
    assert not subnet.poll(1000.0)
    assert subnet.asked == [(A, B)]
    assert subnet.observe(A, B) == [("a", None)]  # that of the port that was not seen is gone


@pytest.mark.parametrize(
    "observed",
    [
        without_smps("DOWN"),
        without_smps("INIT"),
        observation(),
        without_smps("ACTIVE", Link("ib0", None, (Neighbor("leaf1", "1", None, NAMED),))),
    ],
)
def test_an_answer_ends_with_the_link(observed: Observation) -> None:
    """Or with the port, or when SMPs are answered: it is asked about again."""
    subnet = Subnet()
    subnet.ask(A)
    subnet.observe(observed=observed)
    assert subnet.observe(A) == []
    subnet.poll(100.0)
    assert subnet.poll(200.0)
    assert subnet.asked == [(A,), (A,)]


def test_an_answer_may_come_while_smps_fail() -> None:
    """The question was under way; another LID after it is asked about."""
    done: list[Callable[[], None]] = []
    subnet = Subnet()
    subnet.poller.task = BackgroundTask(done.append)
    subnet.observe(A)
    subnet.poll(0.0)
    subnet.poll(30.0)
    subnet.observe(observed=without_smps())
    done.pop()()
    assert subnet.poll(31.0)
    assert subnet.observe(A) == [("a", None)]
    subnet.observe(observed=without_smps())
    assert subnet.observe(A._replace(lid=7)) == [("a", None)]
    subnet.poll(100.0)
    assert subnet.poller.next_due() == 130.0


def test_a_name_that_was_lost_is_asked_for_within_minutes() -> None:
    """A day would be too long; a new name needs no second answer."""
    subnet = Subnet()
    subnet.ask(A)
    other = NAMED._replace(node_description="leaf2")
    for facts in (NAMED, other):
        subnet.names.name("a", facts, Answered(("a", 1), SA_JITTER))
    subnet.observe(A)
    assert subnet.poller.next_due() > SA_REFRESH_INTERVAL / 2
    lost = NAMED._replace(node_description=None)
    subnet.names.name("a", lost, Answered(("a", 1), SA_JITTER + 1))
    subnet.names.name("a", lost, Answered(("a", 1), SA_JITTER))
    subnet.observe(A)
    assert subnet.poller.next_due() == SA_JITTER + SA_NAME_INTERVAL


@pytest.mark.parametrize("description", ["Quantum Mellanox Technologies", None])
def test_a_switch_without_name_is_asked_about_seldom(description: str | None) -> None:
    """An unmanaged switch has none for ever; link messages and uevents do not begin again."""
    subnet, answers = Subnet(0.0), 0
    nameless = NAMED._replace(node_description=description)
    for now in map(float, range(0, 24 * 3600, 60)):
        if len(subnet.asked) > answers:
            answers = len(subnet.asked)
            subnet.names.name("a", nameless, Answered(("a", 1), now - 60))
        subnet.observe(A)
        subnet.names.trigger()  # as the poller of SMPs does with each event
        subnet.poll(now)
    assert len(subnet.asked) <= 9
