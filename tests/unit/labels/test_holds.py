"""Holds and the link-down grace, over random histories and against a second model of the rules."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.labels.holds import NEIGHBOR_GRACE, Holds, LinkDownGrace, lent_interfaces
from agent.labels.render import Rendered
from agent.model import Absent, Failed, Link, Observation, Seen
from agent.reasons import HoldReason

HOLD = 600.0
K, L = "p/neighbors.current.ibp0.device", "p/speed.current"


def never(_key: str) -> bool:
    return False


def observe(
    holds: Holds, now: float, read: dict[str, str | None], lent: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Render as render() does: a text is read, None cannot be read, a missing key is absent."""
    previous = holds.previous(now, lent.__contains__)
    unread = [key for key, text in read.items() if text is None and key in previous]
    held = dict.fromkeys(unread, HoldReason.SOURCE_FAILED)
    labels = {key: text for key, text in read.items() if text is not None} | {
        key: previous[key] for key in held
    }
    holds.update(Rendered(labels, held), now, lent.__contains__)
    return labels


def test_what_the_node_carried_is_held_from_the_start() -> None:
    """It was never read since; when the hold ends it goes, and is returned as expired."""
    holds = Holds(HOLD, {K: "leaf"}, 0.0)
    assert observe(holds, 599.0, {K: None}) == {K: "leaf"}
    assert holds.next_end(599.0) == 600.0
    assert holds.previous(600.0, never) == {}
    assert holds.update(Rendered({}), 600.0, never) == {K: "leaf"}
    assert holds.next_end(600.0) == math.inf


def test_a_hold_starts_with_the_first_failed_observation() -> None:
    """The age of the last good one does not count: up to then the label was true."""
    holds = Holds(HOLD, {}, 0.0)
    observe(holds, 0.0, {K: "leaf"})
    assert observe(holds, 3600.0, {K: None}) == {K: "leaf"}
    assert observe(holds, 3600.0 + HOLD - 1, {K: None}) == {K: "leaf"}
    assert observe(holds, 3600.0 + HOLD, {K: None}) == {}


def test_a_hold_ends_exactly_at_next_end() -> None:
    """In spite of rounding: an observation at that time finds the hold ended."""
    for since in (number * 0.851 for number in range(2000)):
        holds = Holds(HOLD, {K: "leaf"}, since)
        assert holds.previous(holds.next_end(since), never) == {}


def test_an_absent_label_goes_at_once() -> None:
    """It is not returned as expired."""
    holds = Holds(HOLD, {K: "leaf"}, 0.0)
    assert holds.update(Rendered({}), 10.0, never) == {}
    assert observe(holds, 11.0, {K: None}) == {}


def test_a_lent_interface_is_held_without_limit() -> None:
    """The hold starts when the interface is back."""
    holds = Holds(HOLD, {K: "leaf"}, 0.0)
    away = frozenset({K})
    for now in (0.0, 5000.0, 10_000.0):
        assert observe(holds, now, {K: None}, away) == {K: "leaf"}
    assert observe(holds, 10_300.0, {K: None}) == {K: "leaf"}
    assert observe(holds, 10_300.0 + HOLD - 1, {K: None}) == {K: "leaf"}
    assert observe(holds, 10_300.0 + HOLD, {K: None}) == {}


def test_an_interface_that_is_lent_when_its_hold_ends_is_held() -> None:
    """Its own labels are, and no others; none of them is returned as expired."""
    away = frozenset({K})
    holds = Holds(HOLD, {K: "leaf", L: "3200G"}, 0.0)
    assert observe(holds, HOLD, {K: None, L: None}, away) == {K: "leaf"}
    holds = Holds(HOLD, {K: "leaf", L: "3200G"}, 0.0)
    assert holds.update(Rendered({}), HOLD, away.__contains__) == {L: "3200G"}


def test_after_its_hold_a_sum_follows_the_incomplete_values() -> None:
    """A device that fails for hours does not delay every change of the speed by a hold."""
    holds = Holds(HOLD, {L: "3200G"}, 0.0)
    assert holds.previous(HOLD, never) == {}
    assert holds.update(Rendered({L: "2800G"}, incomplete=(L,)), HOLD, never) == {}
    assert holds.previous(HOLD + 1, never) == {}
    holds.update(Rendered({L: "2400G"}, incomplete=(L,)), HOLD + 1, never)
    assert holds.previous(HOLD + 2, never) == {}
    holds.update(Rendered({L: "3200G"}), HOLD + 2, never)
    assert holds.previous(HOLD + 3, never) == {L: "3200G"}


def test_a_removed_sum_that_comes_back_incomplete_gets_no_second_hold() -> None:
    """The failure is still the same: two of four devices are back, then a third."""
    holds = Holds(HOLD, {L: "3200G"}, 0.0)
    holds.update(Rendered({}), HOLD, never)
    holds.update(Rendered({L: "800G"}, incomplete=(L,)), HOLD + 10, never)
    assert holds.previous(HOLD + 20, never) == {}
    holds.update(Rendered({L: "3200G"}), HOLD + 20, never)
    assert holds.previous(HOLD + 30, never) == {L: "3200G"}


@dataclass
class Model:
    """The value of one label, worked out from its whole history."""

    history: list[tuple[float, str | None]]  # a text, "" for absent, None for failed

    def value(self) -> str:
        """The last text that was read, unless it was absent or the failures since then last too
        long.
        """
        run: list[float] = []
        for at, text in reversed(self.history):
            if text is not None:
                return text if not run or run[0] < run[-1] + HOLD else ""
            run.append(at)
        return ""


WORDS = st.sampled_from(["", "a", "b", None, None, None])


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 500), WORDS), max_size=30))
def test_a_label_is_never_lost_early_and_never_kept_late(
    steps: list[tuple[float, str | None]],
) -> None:
    """Against the model, at every observation."""
    holds, now, history = Holds(HOLD, {}, 0.0), 0.0, list[tuple[float, str | None]]()
    dead = False
    for wait, text in steps:
        now += wait
        history.append((now, text))
        dead = text is None and (dead or Model(history).value() == "")
        labels = observe(holds, now, {} if text == "" else {K: text})
        assert labels.get(K, "") == ("" if dead else Model(history).value())


def observation(*links: Link) -> Observation:
    return Observation(0.0, "n1", "b", (), Seen(()), Absent(""), Seen(links), Failed(""))


def test_a_link_that_goes_down_keeps_its_neighbor_for_30_s() -> None:
    """The time is that of one interruption; a link that was up in between restarts it."""
    grace, down, up = (
        LinkDownGrace(),
        observation(Link("ibp0", None, missing="link-down")),
        observation(Link("ibp0", None)),
    )

    def holds(now: float, seen: Observation) -> bool:
        outcome = grace.apply(seen, now).ib
        return isinstance(outcome, Seen) and outcome.value[0].hold

    assert [holds(0.0, down), holds(29.0, down), holds(NEIGHBOR_GRACE, down)] == [
        True,
        True,
        False,
    ]
    assert holds(31.0, up) is False
    assert [holds(40.0, down), holds(69.0, down), holds(70.0, down)] == [True, True, False]
    assert grace.next_end(41.0) == 70.0
    assert grace.next_end(70.0) == math.inf


def test_without_infiniband_no_link_has_a_grace() -> None:
    """The source failed, or there is no InfiniBand port."""
    for outcome in (Failed("no answer"), Absent("no port")):
        seen = replace(observation(), ib=outcome)
        assert LinkDownGrace().apply(seen, 0.0) == seen


def test_a_netdev_in_a_pod_is_lent() -> None:
    """The reason of its missing neighbor is `no-netdev`."""
    seen = observation(
        Link("ibp0", None, missing="no-netdev", hold=True), Link("ibp1", None, missing="silent")
    )
    assert lent_interfaces(seen) == {"ibp0"}
