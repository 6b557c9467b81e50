"""Flapping ports by the clock, and an agent that has one."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.daemon.flapping import MAX_WAIT, MIN_WAIT, WINDOW, Facts, Flapping, PortFacts
from agent.events.event import Event
from tests.support.kernel_tree import HOME, card
from tests.support.running import HUP, World
from tests.support.smps import leaf

LINK = Event("device", "")
HERE, THERE = (PortFacts(400.0, (("device", leaf),)) for leaf in ("leaf-1", "leaf-2"))
DOWN = HERE._replace(gbps=0.0)


def state(rest: object = None, **ports: PortFacts) -> Facts:
    return Facts(ports, rest)


def names(flapping: Flapping) -> list[str]:
    return list(flapping.ports)


def flap(flapping: Flapping, times: int, every: float = 10.0) -> float:
    """Let port a have another neighbor this often; return the time of the last change."""
    flapping.observed(0.0, state(a=HERE, b=HERE))
    flapping.applied(0.0, state(a=HERE, b=HERE))
    for number in range(1, times + 1):
        flapping.observed(number * every, state(a=THERE if number % 2 else HERE, b=HERE))
    return times * every


def test_the_fifth_change_in_ten_minutes_waits() -> None:
    """And the port is flapping until it was quiet for as long."""
    flapping = Flapping()
    last = flap(flapping, 4)
    assert (flapping.resumes_at(), flapping.next_end()) == (-math.inf, math.inf)
    flapping.observed(last + 10, state(a=THERE, b=HERE))
    assert names(flapping) == ["a"]
    assert flapping.resumes_at() == last + 10 + MIN_WAIT
    assert flapping.next_end() == last + 10 + WINDOW
    flapping.observed(last + 10 + WINDOW, state(a=THERE, b=HERE))
    assert (names(flapping), flapping.resumes_at()) == ([], -math.inf)


def test_five_changes_in_more_than_ten_minutes_are_none() -> None:
    flapping = Flapping()
    flap(flapping, 50, every=WINDOW / 4)
    assert names(flapping) == []


def test_a_neighbor_that_is_gone_and_back_is_no_change_of_the_port() -> None:
    """Another neighbor is, and so is one after a gap."""
    bare, other = PortFacts(400.0), PortFacts(400.0, (("device", "leaf-2"),))
    flapping = Flapping()
    for now in range(0, 100, 10):
        flapping.observed(now, state(a=bare if now % 20 else HERE))
    assert names(flapping) == []
    for number, facts in enumerate([other, bare, HERE, other, bare, HERE, other]):
        flapping.observed(100.0 + number, state(a=facts))
    assert names(flapping) == ["a"]


def test_the_waits_double_up_to_two_minutes() -> None:
    """A wait begins with a change; when it has ended, the latest state is applied."""
    flapping = Flapping()
    now, waits = flap(flapping, 5), []
    for number in range(8):
        waits.append(flapping.resumes_at() - now)
        for part in (0.25, 0.5):  # it goes on in between
            between = now + part * waits[-1]
            flapping.observed(
                between, state(a=THERE if (part < 0.5) == number % 2 else HERE, b=HERE)
            )
        now += waits[-1]
        present = state(a=HERE if number % 2 else THERE, b=HERE)
        flapping.observed(now, present)
        flapping.applied(now, present)
        assert flapping.resumes_at() == -math.inf
        flapping.observed(now, state(a=THERE if number % 2 else HERE, b=HERE))
    assert waits == [20, 40, 80, *[MAX_WAIT] * 5]


def test_a_wait_that_ends_with_nothing_to_apply_is_one() -> None:
    """The Node had the right state by then; the next change waits for longer."""
    flapping = Flapping()
    last = flap(flapping, 5)
    flapping.observed(last + 15, state(a=HERE, b=HERE))
    assert flapping.resumes_at() == -math.inf
    flapping.observed(last + 19, state(a=THERE, b=HERE))
    assert flapping.resumes_at() == last + MIN_WAIT
    flapping.observed(last + 19.5, state(a=HERE, b=HERE))
    flapping.observed(last + 30, state(a=THERE, b=HERE))
    assert flapping.resumes_at() == last + 30 + 2 * MIN_WAIT


@pytest.mark.parametrize(
    "desired",
    [
        state(a=THERE, b=THERE),
        state("rest", a=THERE, b=HERE),
        state(a=THERE),
        state(b=HERE, c=HERE),
    ],
)
def test_any_other_change_waits_for_nothing(desired: Facts) -> None:
    """Of another port, of a label of no port, or a port that came or went."""
    flapping = Flapping()
    last = flap(flapping, 5)
    flapping.observed(last + 1, desired)
    assert flapping.resumes_at() == -math.inf


def test_a_loss_of_speed_waits_for_nothing() -> None:
    """The rate that comes back waits, each time for longer; less of it does not."""
    flapping = Flapping()
    flapping.observed(0.0, state(a=HERE))
    flapping.applied(0.0, state(a=HERE))
    now, waits = 0.0, []
    for number in range(12):
        now += 10.0
        ports = state(a=HERE if number % 2 else DOWN)
        flapping.observed(now, ports)
        waits.append(max(flapping.resumes_at() - now, 0.0))
        now += waits[-1]
        flapping.observed(now, ports)
        flapping.applied(now, ports)
    assert waits == [0, 0, 0, 0, 0, 40, 0, MAX_WAIT, 0, MAX_WAIT, 0, MAX_WAIT]
    flapping.observed(now + 1, state(a=HERE._replace(gbps=200.0)))
    assert flapping.resumes_at() == -math.inf


def test_two_flapping_ports_have_their_own_waits() -> None:
    """The one whose wait ends first takes the other along."""
    flapping = Flapping()
    last = flap(flapping, 5)
    flapping.applied(last, state(a=THERE, b=HERE))
    for number in range(1, 6):
        flapping.observed(last + number, state(a=THERE, b=THERE if number % 2 else HERE))
    flapping.observed(last + 6, state(a=HERE, b=THERE))
    assert names(flapping) == ["a", "b"]
    assert flapping.resumes_at() == last + 5 + MIN_WAIT
    flapping.applied(last + 25, state(a=HERE, b=THERE))
    flapping.observed(last + 26, state(a=THERE, b=THERE))
    assert flapping.resumes_at() == last + 26 + 4 * MIN_WAIT


@pytest.mark.slow
@given(
    steps=st.lists(
        st.tuples(st.sampled_from((1.0, 15.0, 100.0, 700.0)), st.sampled_from("ab")), max_size=60
    )
)
@settings(max_examples=100, deadline=None)
def test_no_change_waits_for_more_than_two_minutes(steps: list[tuple[float, str]]) -> None:
    """Whatever happens, an apply is due two minutes after the first change that it would carry."""
    flapping, now, ports, since = Flapping(), 0.0, {"a": HERE, "b": HERE}, math.inf
    flapping.observed(now, state(**ports))
    flapping.applied(now, state(**ports))
    applied = dict(ports)
    for step, name in steps:
        now += step
        ports[name] = THERE if ports[name] == HERE else HERE
        flapping.observed(now, state(**ports))
        since = min(since, now) if ports != applied else math.inf
        assert flapping.resumes_at() <= since + MAX_WAIT
        if ports != applied and flapping.resumes_at() <= now:
            flapping.applied(now, state(**ports))
            applied, since = dict(ports), math.inf


def agent(**changes: Any) -> World:
    cards = card("ibp0", "0000:18:00.0") | card("ibp1", "0000:19:00.0")
    return World(cards, smp=leaf, **changes).run(60)


def set_link(world: World, number: int, *, up: bool) -> None:
    path = f"{HOME}/0000:{0x18 + number:x}:00.0/infiniband/ibp{number}/ports/1/state"
    world.write(path, b"4: ACTIVE\n" if up else b"1: DOWN\n")
    world.at(0.0, LINK)


def flaps(world: World, seconds: float) -> World:
    """Let port ibp0 go down and come up by turns for a time; it is up in the end."""
    for number in range(int(seconds / 10)):
        set_link(world, 0, up=bool(number % 2))
        world.run(10)
    set_link(world, 0, up=True)
    return world


@pytest.mark.slow
def test_twenty_minutes_of_a_flapping_port_cost_a_few_requests() -> None:
    """120 without the waits; two lines say that it flaps, and that it is over."""
    world = agent()
    before = len(world.api.applied())
    flaps(world, 1200)
    assert len(world.api.applied()) - before <= 24
    assert list(world.metrics.snapshot.flapping) == ["ibp0"]
    world.run(MAX_WAIT + 1)
    assert world.labels["speed.current"] == "800G"
    world.run(WINDOW)
    assert world.labels["speed.current"] == "800G"
    assert not world.metrics.snapshot.flapping
    [begin] = [line for line in world.lines if "port flapping" in line]
    [_end] = [line for line in world.lines if "port steady" in line]
    assert "interface=ibp0" in begin


@pytest.mark.slow
def test_another_port_is_shown_at_once() -> None:
    """With the present state of the one that flaps."""
    world = agent()
    flaps(world, 600)
    set_link(world, 0, up=False)
    world.run(15)
    since = world.time
    set_link(world, 1, up=False)
    world.run(1)
    assert since in [round(at) for at in world.api.applied()]
    assert world.labels["speed.current"] == "0G"


@pytest.mark.slow
def test_the_event_is_written_once() -> None:
    """And again after the port was quiet."""
    world = agent(events=True)
    for _ in range(2):
        flaps(world, 600)
        world.run(WINDOW + 60)
    told = [event for event in world.api.events.values() if event["reason"] == "PortFlapping"]
    assert [event["count"] for event in told] == [2]
    assert told[0]["message"].startswith("ibp0 changed five times in ten minutes")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.5, 5.0])
@pytest.mark.parametrize("first", [HUP, LINK])
def test_sighup_waits_for_its_observation_alone(first: Event, seconds: float) -> None:
    """Whatever else is reported at the same moment, and however long ago the last observation was:
    the port that comes up while it flaps is on the Node with the request that follows.
    """
    world = agent()
    flaps(world, 600)
    set_link(world, 0, up=False)
    world.run(15)
    assert world.labels["speed.current"] == "400G"
    world.at(0.0, LINK)
    world.run(seconds)
    world.write(f"{HOME}/0000:18:00.0/infiniband/ibp0/ports/1/state", b"4: ACTIVE\n")
    for event in sorted((HUP, LINK), key=lambda event: event != first):
        world.at(0.0, event)
    world.run(11)
    assert world.labels["speed.current"] == "800G"
