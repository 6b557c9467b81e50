"""The schedule over days of simulated time."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.daemon.schedule import (
    DEGRADED_INTERVAL,
    LOOK_INTERVAL,
    MAX_REFUSAL_INTERVAL,
    MAX_RETRY_INTERVAL,
    MIN_OBSERVE_INTERVAL,
    MIN_REFUSAL_INTERVAL,
    MIN_RESULTS_INTERVAL,
    OBSERVE_INTERVAL,
    OVERDUE_RESYNC_INTERVAL,
    RECHECK_DELAY,
    Actions,
    Schedule,
    Settings,
)
from tests.support.documents import DOCS

DAY = 24 * 3600.0
SETTINGS = Settings()
LATENCY = 0.3  # seconds that a request takes


@dataclass
class World:
    """A node that a test changes, a Node with the labels applied last, and an agent."""

    seed: int = 0
    settings: Settings = SETTINGS
    now: float = 1000.0
    state: str = "a"
    node: str | None = None
    looks: list[float] = field(default_factory=list)
    requests: list[tuple[float, str]] = field(default_factory=list)
    rereads: list[float] = field(default_factory=list)  # those that read the Node again
    glances: list[float] = field(default_factory=list)  # looks at the Node
    outage: tuple[float, float] = (math.inf, math.inf)
    retry_after: float | None = None
    refuse: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        chance = random.Random(self.seed).random  # noqa: S311 - a simulation
        self.pacer = Schedule(self.settings, self.now, chance)
        self.pending: tuple[float, str, frozenset[str], bool] | None = None
        self.seen: str | None = None
        self.pacer.node_read(self.now, 0.0)

    def run(self, until: float, events: Iterable[tuple[float, str]] = ()) -> None:
        """Let time pass; each event is a time and the node's state from then on."""
        for at, state in sorted(events):
            self.run_until(at)
            self.state = state
            self.pacer.trigger(self.now)
        self.run_until(until)

    def run_until(self, until: float) -> None:
        while True:
            step = self.pacer.step(self.now)
            if step.observe:
                self.looks.append(self.now)
                self.seen = self.state
                self.pacer.observed(self.now)
                self.pacer.set_desired(self.seen)
            elif step.apply:
                assert self.seen is not None
                self.pacer.apply_started(self.now)
                if step.look:
                    self.glances.append(self.now)
                else:
                    self.requests.append((self.now, self.seen))
                self.rereads += [self.now] if step.reread else []
                # What is postponed is not asked for, and so not refused.
                postponed = self.pacer.postponed(self.now)
                self.pending = self.now + LATENCY, self.seen, postponed, step.look
            elif (
                wake := min(self.now + step.wait, self.pending[0] if self.pending else math.inf)
            ) <= until:
                self.now = wake
                self.answer()
            else:
                self.now = until
                return

    def answer(self) -> None:
        if self.pending and self.pending[0] <= self.now:
            at, said, postponed, is_look = self.pending
            self.pending = None
            if self.outage[0] <= self.now < self.outage[1]:
                self.pacer.apply_failed(self.now, self.retry_after)
                if is_look:
                    self.requests.append((at - LATENCY, said))
            else:
                self.node = said
                refused = self.refuse - postponed
                self.pacer.apply_succeeded(self.now, said, refused, requests=not is_look)


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def settled(age: float, chance: float) -> Schedule:
    """The schedule of an agent whose Node, read at 0 s, has what is desired."""
    pacer = Schedule(SETTINGS, 0.0, lambda: chance)
    pacer.node_read(0.0, age)
    pacer.observed(0.0)
    pacer.set_desired("a")
    pacer.apply_started(0.0)
    pacer.apply_succeeded(0.0, "a", requests=0)
    return pacer


def rechecked(**facts: Any) -> Schedule:
    """The schedule of an agent that has observed twice since its start."""
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    pacer.observed(0.0)
    pacer.observed(RECHECK_DELAY, **facts)
    return pacer


def test_a_quiet_day_is_an_observation_each_five_minutes_and_a_request_an_hour() -> None:
    world = World()
    world.run(world.now + DAY)
    assert len(world.looks) == pytest.approx(DAY / OBSERVE_INTERVAL, rel=0.1)
    assert 21 <= len(world.requests) <= 28
    hourly = gaps([at for at, _ in world.requests])[1:]
    assert all(0.9 * 3600 <= gap <= 1.1 * 3600 + 1 for gap in hourly)
    assert len({round(gap) for gap in hourly}) > 10


def test_agents_that_start_together_do_not_apply_together() -> None:
    worlds = [World(seed) for seed in range(200)]
    for world in worlds:
        world.run(world.now + 7200)
    second = [world.requests[1][0] for world in worlds]
    assert max(second) <= 1000 + 1.1 * 3600 + 1
    busiest = max(
        sum(1 for at in second if start <= at < start + 60) for start in range(1000, 8200, 60)
    )
    assert busiest <= 12


def test_a_trigger_before_the_recheck_has_an_observation_of_its_own() -> None:
    """One second later, with a recheck of its own."""
    world = World()
    world.run(1100.0, [(1060.0, "b"), (1060.05, "c")])
    looks = [at for at in world.looks if at >= 1060]
    assert looks == [
        pytest.approx(1060.0 + offset)
        for offset in (0, RECHECK_DELAY, MIN_OBSERVE_INTERVAL, MIN_OBSERVE_INTERVAL + RECHECK_DELAY)
    ]
    assert world.requests[-1] == (1060.0 + 10.0, "c")


def test_a_storm_of_triggers_is_bounded() -> None:
    """A thousand triggers a second cause two observations a second, and a request every ten."""
    world = World()
    world.run(1200.0, [(1100 + number / 1000, "xy"[number % 2]) for number in range(60_000)])
    assert len([at for at in world.looks if 1100 <= at < 1160]) <= 2 * 60 / MIN_OBSERVE_INTERVAL
    assert len([at for at, _ in world.requests if 1100 <= at < 1160]) <= 7
    assert world.node == "y"


def test_a_flap_within_min_interval_is_not_applied() -> None:
    world = World()
    world.run(1200.0, [(1100.0, "b"), (1103.0, "c"), (1106.0, "b")])
    assert [state for _, state in world.requests] == ["a", "b"]


def test_a_key_refused_again_is_retried_in_an_hour() -> None:
    """And for another each time it is refused; once accepted, a refusal is a first one again."""
    world = World()
    world.refuse = frozenset({"IB"})
    world.run(1000.0 + 2.5 * MAX_REFUSAL_INTERVAL)
    first = 1000.0 + LATENCY + MIN_REFUSAL_INTERVAL
    for due in (
        first,
        first + LATENCY + MAX_REFUSAL_INTERVAL,
        first + 2 * (LATENCY + MAX_REFUSAL_INTERVAL),
    ):
        assert any(at == pytest.approx(due, abs=0.01) for at, _ in world.requests)
    assert len(world.requests) <= 1 + 3 + 3  # the first one, those, and the hourly ones
    world.refuse = frozenset()
    world.run(first + 4 * MAX_REFUSAL_INTERVAL)
    world.refuse = frozenset({"IB"})
    world.run(world.now + 1, [(world.now, "b")])
    assert world.pacer.postponed(world.now) == {"IB"}
    assert world.pacer.postponed(world.now + MIN_REFUSAL_INTERVAL) == frozenset()


@pytest.mark.parametrize("node_read", [False, True])
def test_a_failed_request_is_retried_after_a_time_that_doubles(node_read: bool) -> None:
    """At least the half of 2, 4, 8 up to 300 s, for the first read of the Node as well; once it is
    read the series starts anew.
    """
    pacer, now = Schedule(Settings(min_interval=0.0), 0.0, lambda: 0.0), 0.0
    if node_read:
        pacer.apply_failed(now)
        pacer.node_read(now, 0.0)
        pacer.set_desired("a")
    for delay in (1, 2, 4, 8, 16, 32, 64, 128, 150, 150):
        assert pacer.step(now).apply
        pacer.apply_started(now)
        pacer.apply_failed(now)
        assert not pacer.step(now + delay - 0.1).apply
        now += delay


def test_one_failed_request_is_an_outage() -> None:
    """The next resync may then be at any time in the hour, and else about its end."""
    for failed, next_at in ((False, 1800.0 + 3600), (True, 1800.0 + 1800)):
        pacer = settled(0.0, 0.5)
        if failed:
            pacer.apply_failed(1700.0)
        pacer.apply_started(1800.0)
        pacer.apply_succeeded(1800.0, "a")
        assert not pacer.step(next_at - 1).resync
        assert pacer.step(next_at).resync


def test_a_key_that_is_accepted_is_not_tried_again() -> None:
    """Not even if the answer to the retry comes in the same moment."""
    pacer = settled(0.0, 0.5)
    pacer.apply_started(0.0)
    pacer.apply_succeeded(0.0, "a", ["IB"])
    assert not pacer.step(MIN_REFUSAL_INTERVAL - 1).apply
    assert pacer.step(MIN_REFUSAL_INTERVAL).apply
    pacer.apply_started(MIN_REFUSAL_INTERVAL)
    pacer.apply_succeeded(MIN_REFUSAL_INTERVAL, "a")
    step = pacer.step(1700.0)
    assert step.look or not step.apply


def test_observations_are_more_frequent_while_degraded() -> None:
    """Every half minute, and when something expires."""
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    pacer.apply_started(0.0)
    pacer.observed(0.0)
    pacer.observed(RECHECK_DELAY, degraded=True)
    assert pacer.step(1.0).wait == pytest.approx(DEGRADED_INTERVAL + RECHECK_DELAY - 1)
    pacer.observed(40.0, expires_at=45.0, degraded=True)
    assert pacer.step(40.0)[1] is False
    assert pacer.step(45.0).observe


def test_an_expiry_in_the_past_causes_no_loop() -> None:
    pacer = rechecked(expires_at=-5.0)
    assert not pacer.step(RECHECK_DELAY).observe
    assert pacer.step(RECHECK_DELAY + MIN_OBSERVE_INTERVAL).observe


def test_results_are_observed_without_a_refresh() -> None:
    """They are observed at once, at most ten times a second; triggers and the periodic observation
    are not delayed.
    """
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    pacer.apply_started(0.0)
    assert pacer.step(0.0)[1:3] == (True, True)
    pacer.observed(0.0)
    pacer.observed(RECHECK_DELAY)
    pacer.results(20.0)
    assert pacer.step(20.0)[1:3] == (True, False)
    pacer.observed(20.0, refreshed=False)
    pacer.results(20.0)
    assert pacer.step(20.0).wait == pytest.approx(MIN_RESULTS_INTERVAL)
    pacer.trigger(20.0)
    assert pacer.step(20.0)[1:3] == (True, True)
    pacer.observed(20.0)
    assert pacer.step(20.0).wait == pytest.approx(RECHECK_DELAY)
    pacer.observed(20.0 + RECHECK_DELAY)
    pacer.results(100.0)
    pacer.observed(100.0, refreshed=False)
    assert pacer.step(100.0).wait == pytest.approx(OBSERVE_INTERVAL - 80 + RECHECK_DELAY)
    pacer.observed(200.0, refreshed=False, degraded=True)
    assert pacer.step(200.0).wait == DEGRADED_INTERVAL


def test_an_extended_expiry_is_observed_later() -> None:
    """Unless it has expired already."""
    pacer = rechecked(expires_at=50.0)
    pacer.extend(20.0, 70.0)
    assert not pacer.step(60.0).observe
    pacer.extend(70.0, 90.0)
    assert pacer.step(70.0).observe


def test_an_extension_causes_no_loop() -> None:
    """An expiry within MIN_OBSERVE_INTERVAL of the last observation waits until its end."""
    pacer = rechecked(expires_at=50.0)
    pacer.extend(0.2, 0.3)
    assert not pacer.step(0.3).observe
    assert pacer.step(RECHECK_DELAY + MIN_OBSERVE_INTERVAL).observe


def test_a_trigger_postpones_no_observation_that_is_due() -> None:
    """The one that the first read of the Node causes, half a second after the last."""
    pacer = rechecked()
    pacer.node_read(0.5, 0.0)
    pacer.trigger(0.5)
    assert pacer.step(0.5).observe


def test_everything_is_due_at_the_start() -> None:
    """A first observation and the first read of the Node, and nothing else to wait for."""
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    assert pacer.step(0.0) == Actions(math.inf, observe=True, refresh=True, apply=True)


def test_events_before_the_first_observation() -> None:
    """They leave it due at once."""
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    pacer.trigger(0.0)
    pacer.results(0.0)
    pacer.extend(0.0, 5.0)
    assert pacer.step(0.0).observe


def test_the_first_observation_and_that_of_a_node_read_are_rechecked() -> None:
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    pacer.apply_started(0.0)
    pacer.observed(0.0)
    assert pacer.step(0.0).wait == RECHECK_DELAY
    pacer.observed(RECHECK_DELAY)
    pacer.node_read(20.0, 0.0)
    pacer.observed(20.0)
    assert pacer.step(20.0).wait == pytest.approx(RECHECK_DELAY)


def test_nothing_is_applied_before_the_first_observation() -> None:
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    assert pacer.step(0.0).apply
    pacer.apply_started(0.0)
    assert not pacer.step(0.1).apply
    pacer.node_read(0.3, math.inf)
    assert not pacer.step(0.3).apply
    assert pacer.step(0.3).observe


def test_an_attempt_without_a_request_causes_no_delay() -> None:
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    pacer.node_read(0.0, 0.0)
    pacer.observed(0.0)
    pacer.set_desired("a")
    pacer.apply_started(0.0)
    pacer.apply_succeeded(0.0, "a", requests=0)
    pacer.set_desired("b")
    assert pacer.step(0.1).apply


def test_a_repair_reads_the_node() -> None:
    """SIGHUP causes an observation and a request that reads the Node, though nothing changed; a
    storm of them one each `min_interval`.
    """
    world = World()
    world.run_until(1100.0)
    asked, rereads = len(world.requests), list(world.rereads)
    world.pacer.repair(world.now)
    world.run_until(1101.0)
    assert (len(world.requests), world.rereads) == (asked + 1, [*rereads, 1100.0])
    for now in range(1101, 1200):
        world.run_until(float(now))
        world.pacer.repair(world.now)
    world.run_until(1300.0)
    assert len(world.rereads) == 1 + 10


def test_a_repair_during_a_request() -> None:
    """The request that is under way may have read the Node before: another one follows."""
    world = World()
    world.run(1100.1, [(1100.0, "b")])
    assert world.pending is not None
    world.pacer.repair(world.now)
    world.run_until(1150.0)
    assert world.requests[-1] == (1110.0, "b")
    assert world.rereads == [1110.0]


def test_a_repair_ends_the_back_off() -> None:
    """After a failure, Retry-After included, the next request is due `min_interval` after the one
    that failed, and reads the Node.
    """
    pacer = settled(0.0, 0.5)
    pacer.observed(1.0)
    pacer.set_desired("b")
    pacer.apply_started(100.0)
    assert 600.0 <= pacer.apply_failed(101.0, 600.0) <= 750.0
    pacer.repair(102.0)
    assert pacer.step(110.0)[1:4] == (True, True, False)
    pacer.observed(102.0)
    assert not pacer.step(109.0).apply
    step = pacer.step(110.0)
    assert (step.apply, step.reread) == (True, True)
    pacer.apply_started(110.0)
    pacer.apply_failed(111.0, 600.0)
    pacer.observed(103.0)
    pacer.repair(300.0)
    pacer.observed(300.0)
    assert pacer.step(300.0).apply


def test_the_waits_in_the_documentation() -> None:
    """After each failure in a row, from the shortest to the longest that chance makes it."""
    pacers = [settled(0.0, chance) for chance in (0.0, 1.0)]
    rows: list[str] = []
    for now in range(1000, 12000, 1000):
        for pacer in pacers:
            pacer.apply_started(now)
        waits = [pacer.apply_failed(now) for pacer in pacers]
        rows.append(" to ".join(dict.fromkeys(f"{wait:.0f}" for wait in waits)))
    assert waits[1] == MAX_RETRY_INTERVAL
    while rows[-1] == rows[-2]:
        rows.pop()
    text = f"repeated after {', '.join(rows[:-1])}, then {rows[-1]} s:"
    assert text in " ".join((DOCS / "daemon.md").read_text().split())


def test_a_repair_during_a_request_that_fails() -> None:
    pacer = settled(0.0, 0.5)
    pacer.observed(1.0)
    pacer.set_desired("b")
    pacer.apply_started(100.0)
    pacer.repair(101.0)
    pacer.observed(101.0)
    assert pacer.apply_failed(102.0, 600.0) == 8.0
    step = pacer.step(110.0)
    assert (step.apply, step.reread) == (True, True)
    pacer.apply_started(110.0)
    assert pacer.apply_failed(111.0, 600.0) >= 600.0


def test_a_repair_tries_refused_keys_again() -> None:
    world = World()
    world.refuse = frozenset({"P"})
    world.run_until(1030.0)
    assert world.pacer.postponed(world.now) == {"P"}
    world.refuse = frozenset()
    world.pacer.repair(world.now)
    world.run_until(1040.0)
    assert world.pacer.postponed(world.now) == frozenset()
    assert world.rereads == [1030.0]


def test_the_node_is_looked_at_every_five_minutes() -> None:
    """About so: 20 % more or less, so that agents do not meet."""
    world = World()
    world.run_until(1000.0 + DAY)
    assert 250 <= len(world.glances) <= 330
    pauses = [after - before for before, after in itertools.pairwise(world.glances)]
    assert min(pauses) >= 0.8 * LOOK_INTERVAL
    assert max(pauses) <= 2 * 1.2 * LOOK_INTERVAL + 1.0  # a request is a look, too
    assert len(world.rereads) == 0


def test_a_state_that_needs_no_request_postpones_no_look() -> None:
    """A refused label that flaps each minute changes the state, and nothing on the Node."""
    pacer = settled(0.0, 0.5)
    for now in range(60, 300, 60):
        pacer.set_desired(now)
        assert pacer.step(float(now)).apply
        pacer.apply_started(float(now))
        pacer.apply_succeeded(float(now), now, requests=0, heard=False)
        assert not pacer.step(now + 1.0).apply
    assert pacer.step(LOOK_INTERVAL).look


def test_a_state_that_needs_no_request_ends_no_outage() -> None:
    """The wait after the next failure is the longer one."""
    pacer = settled(0.0, 0.5)
    first = pacer.apply_failed(60.0, looked=True)
    pacer.set_desired("other")
    pacer.apply_started(70.0)
    pacer.apply_succeeded(70.0, "other", requests=0, heard=False)
    pacer.apply_started(71.0)
    assert pacer.apply_failed(81.0, looked=True) > first


def test_agents_that_return_at_once_part() -> None:
    """3,000 agents whose API server comes back: no second has more than three times the mean, as
    those who wait for Retry-After and for their next look are spread.
    """
    chance = random.Random(1).random  # noqa: S311 - a simulation
    agents, starts, looks = 3_000, Counter[int](), Counter[int]()
    for _ in range(agents):
        pacer = Schedule(SETTINGS, 0.0, chance)
        pacer.node_read(0.0, 0.0)
        for now in range(9):  # failures in a row, up to the longest wait
            wait = pacer.apply_failed(float(now), 60.0)
        starts[int(wait)] += 1
        pacer.apply_succeeded(0.0, "a", requests=0)
        pacer.observed(0.0)
        pacer.set_desired("a")
        assert not pacer.step(0.8 * LOOK_INTERVAL - 1.0).look
        looks[next(at for at in range(240, 361, 5) if pacer.step(float(at)).apply)] += 1
    assert max(starts.values()) <= 3 * agents / 150
    assert max(looks.values()) <= 3 * agents / 24  # in five seconds of the two minutes


def test_lost_time_is_followed_by_an_observation_and_soon_a_request() -> None:
    """After a suspension the Node's state may have changed."""
    world = World()
    world.run(1100.0)
    asked = len(world.requests)
    world.pacer.resync(world.now)
    world.run(1100.0 + OVERDUE_RESYNC_INTERVAL)
    assert world.looks[-2:] == [1100.0, pytest.approx(1100.0 + RECHECK_DELAY)]
    assert len(world.requests) == asked + 1


@pytest.mark.parametrize(
    ("age", "left"),
    [(0.0, 3600), (2400.0, 1200), (3590.0, 60), (DAY, 60), (-7200.0, 3600)],
)
def test_the_first_refresh_depends_on_the_age_of_the_annotation(age: float, left: float) -> None:
    """It is due within `resync` of the annotation's time, at a random moment: an overdue one within
    a minute, one from the future, written by a clock that is fast, within `resync` of now.
    """
    pacer = settled(age, 0.5)
    assert not pacer.step(left / 2 - 0.1).resync
    assert pacer.step(left / 2).resync


def test_a_change_is_no_resync() -> None:
    """The apply is left out if the Node has the desired state already."""
    pacer = settled(0.0, 0.5)
    pacer.set_desired("b")
    assert pacer.step(1.0).apply
    assert not pacer.step(1.0).resync


def test_time_lost_again_and_again_postpones_no_request() -> None:
    """A machine that is suspended every second has its Node refreshed within a minute all the
    same.
    """
    pacer = settled(0.0, 0.9)
    for now in range(100, 154):
        pacer.resync(now)
        assert not pacer.step(now).apply
    pacer.resync(154)
    assert pacer.step(154).resync


EVENTS = st.lists(st.tuples(st.floats(0, 3000), st.sampled_from("abcd")), max_size=60)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    EVENTS,
    st.integers(0, 99),
    st.floats(0, 2500),
    st.floats(0, 600),
    st.sampled_from([0.0, 1.0, 10.0]),
    st.none() | st.floats(1, 600),
)
def test_whatever_happens(  # noqa: PLR0913, PLR0917 - a history has many parts
    events: list[tuple[float, str]],
    seed: int,
    away: float,
    long: float,
    interval: float,
    retry_after: float | None,
) -> None:
    """The latest state is applied; no request is without a reason, and none too early."""
    world = World(
        seed,
        Settings(min_interval=interval),
        now=0.0,
        outage=(away, away + long),
        retry_after=retry_after,
    )
    world.run(4500.0, events)
    assert world.node == world.state
    times = [at for at, _ in world.requests]
    assert all(gap >= max(interval, LATENCY) - 1e-6 for gap in gaps(times))
    said: str | None = None
    spare = 0
    for at, state in world.requests:
        answered = at + LATENCY
        if world.outage[0] <= answered < world.outage[1]:
            said = None
            continue
        spare += state == said
        said = state
    assert spare <= 2
    assert all(gap <= OBSERVE_INTERVAL + 1e-6 for gap in gaps(world.looks))


@pytest.mark.parametrize("each", [1, 2, 3, 9])
def test_attempts_of_several_requests_are_fewer(each: int) -> None:
    """At most ten requests a minute; one request each keeps `min_interval`."""
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    times: list[float] = []
    for second in range(600):
        if second:
            pacer.set_desired(second)
        if pacer.step(float(second)).apply:
            pacer.apply_started(second)
            pacer.requested(second, each)
            if times:
                pacer.apply_succeeded(second, "of before")
            else:
                pacer.node_read(second, 0.0)
            times.append(second)
    most = max(each * sum(at <= one < at + 60 for one in times) for at in times)
    assert most == {1: 7, 2: 10, 3: 9, 9: 9}[each]
    assert len(times) == {1: 61, 2: 50, 3: 30, 9: 10}[each]


def test_a_retry_waits_for_the_budget_of_requests() -> None:
    """The wait that is told is the one that is kept."""
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    pacer.node_read(0.0, 0.0)
    pacer.set_desired("a")
    pacer.apply_started(1.0)
    pacer.requested(1.0, 9)
    assert pacer.apply_failed(1.0) == 60
    assert not pacer.step(60.9).apply
    assert pacer.step(61.0).apply


def test_an_attempt_that_was_cut_goes_on_with_all_the_room() -> None:
    """What was refused by then is not tried again before a minute is over."""
    pacer = Schedule(SETTINGS, 0.0, lambda: 0.5)
    pacer.node_read(0.0, 0.0)
    pacer.set_desired("a")
    for at, requests, room in ((0.0, 3, 10), (10.0, 7, 7)):
        assert pacer.room(at) == room
        pacer.apply_started(at)
        pacer.requested(at, requests)
        pacer.apply_cut(at, ["k"])
    assert not pacer.step(69.9).apply
    assert pacer.step(70.0).apply
    assert pacer.room(70.0) == 10
    assert pacer.postponed(70.0) == {"k"}
