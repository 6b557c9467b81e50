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
UP, DOWN = PortFacts(400.0, (("device", "leaf-1"),)), PortFacts(0.0, (("device", "leaf-1"),))


def state(rest: object = None, **ports: PortFacts) -> Facts:
    return Facts(ports, rest)


def names(flapping: Flapping) -> list[str]:
    return list(flapping.ports)


def flap(flapping: Flapping, times: int, since: float = 0.0, every: float = 10.0) -> float:
    """Let port a change this often, from UP; return the time of the last change."""
    flapping.observed(since, state(a=UP, b=UP))
    flapping.applied(since, state(a=UP, b=UP))
    for number in range(1, times + 1):
        flapping.observed(since + number * every, state(a=DOWN if number % 2 else UP, b=UP))
    return since + times * every


def test_the_fifth_change_in_ten_minutes_waits() -> None:
    """And the port is flapping until it was quiet for as long."""
    flapping = Flapping()
    last = flap(flapping, 4)
    assert (flapping.resumes_at(), flapping.next_end()) == (-math.inf, math.inf)
    flapping.observed(last + 10, state(a=DOWN, b=UP))
    assert names(flapping) == ["a"]
    assert flapping.resumes_at() == last + 10 + MIN_WAIT
    assert flapping.next_end() == last + 10 + WINDOW
    flapping.observed(last + 10 + WINDOW, state(a=DOWN, b=UP))
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
        flapping.observed(now, state(a=bare if now % 20 else UP))
    assert names(flapping) == []
    for number, facts in enumerate([other, bare, UP, other, bare, UP, other]):
        flapping.observed(100.0 + number, state(a=facts))
    assert names(flapping) == ["a"]


def test_the_waits_double_up_to_ten_minutes() -> None:
    """A wait begins with a change; when it has ended, the latest state is applied."""
    flapping = Flapping()
    now, waits = flap(flapping, 5), []
    for number in range(8):
        waits.append(flapping.resumes_at() - now)
        for part in (0.25, 0.5):  # it goes on in between
            between = now + part * waits[-1]
            flapping.observed(between, state(a=DOWN if (part < 0.5) == number % 2 else UP, b=UP))
        now += waits[-1]
        present = state(a=UP if number % 2 else DOWN, b=UP)
        flapping.observed(now, present)
        flapping.applied(now, present)
        assert flapping.resumes_at() == -math.inf
        flapping.observed(now, state(a=DOWN if number % 2 else UP, b=UP))
    assert waits == [20, 40, 80, 160, 320, MAX_WAIT, MAX_WAIT, MAX_WAIT]


def test_a_wait_that_ends_with_nothing_to_apply_is_one() -> None:
    """The Node had the right state by then; the next change waits for longer."""
    flapping = Flapping()
    last = flap(flapping, 5)
    flapping.observed(last + 15, state(a=UP, b=UP))
    assert flapping.resumes_at() == -math.inf
    flapping.observed(last + 19, state(a=DOWN, b=UP))
    assert flapping.resumes_at() == last + MIN_WAIT
    flapping.observed(last + 19.5, state(a=UP, b=UP))
    flapping.observed(last + 30, state(a=DOWN, b=UP))
    assert flapping.resumes_at() == last + 30 + 2 * MIN_WAIT


@pytest.mark.parametrize(
    "desired",
    [state(a=DOWN, b=DOWN), state("rest", a=DOWN, b=UP), state(a=DOWN), state(b=UP, c=UP)],
)
def test_any_other_change_waits_for_nothing(desired: Facts) -> None:
    """Of another port, of a label of no port, or a port that came or went."""
    flapping = Flapping()
    last = flap(flapping, 5)
    flapping.observed(last + 1, desired)
    assert flapping.resumes_at() == -math.inf


def test_two_flapping_ports_have_their_own_waits() -> None:
    """The one whose wait ends first takes the other along."""
    flapping = Flapping()
    last = flap(flapping, 5)
    flapping.applied(last, state(a=DOWN, b=UP))
    for number in range(1, 6):
        flapping.observed(last + number, state(a=DOWN, b=DOWN if number % 2 else UP))
    flapping.observed(last + 6, state(a=UP, b=DOWN))
    assert names(flapping) == ["a", "b"]
    assert flapping.resumes_at() == last + 5 + MIN_WAIT
    flapping.applied(last + 25, state(a=UP, b=DOWN))
    flapping.observed(last + 26, state(a=DOWN, b=DOWN))
    assert flapping.resumes_at() == last + 26 + 4 * MIN_WAIT


@pytest.mark.slow
@given(
    steps=st.lists(
        st.tuples(st.sampled_from((1.0, 15.0, 100.0, 700.0)), st.sampled_from("ab")), max_size=60
    )
)
@settings(max_examples=100, deadline=None)
def test_no_change_waits_for_more_than_ten_minutes(steps: list[tuple[float, str]]) -> None:
    """Whatever happens, an apply is due ten minutes after the first change that it would carry."""
    flapping, now, ports, since = Flapping(), 0.0, {"a": UP, "b": UP}, math.inf
    flapping.observed(now, state(**ports))
    flapping.applied(now, state(**ports))
    applied = dict(ports)
    for step, name in steps:
        now += step
        ports[name] = DOWN if ports[name] == UP else UP
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


def flaps(world: World, seconds: float, every: float = 10.0) -> World:
    """Let port ibp0 go down and come up by turns for a time; it is up in the end."""
    for number in range(int(seconds / every)):
        set_link(world, 0, up=bool(number % 2))
        world.run(every)
    set_link(world, 0, up=True)
    return world


@pytest.mark.slow
def test_twenty_minutes_of_a_flapping_port_cost_a_few_requests() -> None:
    """120 without the waits; two lines say that it flaps, and that it is over."""
    world = agent()
    before = len(world.api.applied())
    flaps(world, 1200)
    assert len(world.api.applied()) - before <= 9
    assert list(world.metrics.snapshot.flapping) == ["ibp0"]
    world.run(MAX_WAIT + 1)
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
def test_sighup_waits_for_nothing() -> None:
    world = agent()
    flaps(world, 600)
    set_link(world, 0, up=False)
    world.at(5.0, HUP)
    world.run(20)
    assert world.labels["speed.current"] == "400G"
