"""How long labels outlive what they say, over random histories and against a clerk who knows the
rules by heart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.labels.holds import GRACE, Grace, Holds, lent
from agent.labels.table import Rendered
from agent.model import Absent, Failed, Link, Observation, Seen

HOLD = 600.0
K, L = "p/neighbors.current.ibp0.device", "p/speed.current"


def never(_key: str) -> bool:
    return False


def look(
    holds: Holds, now: float, sees: dict[str, str | None], lent: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Render as labels.py does, over keys alone: a text is seen, None cannot be seen, what is
    missing is absent.
    """
    previous = holds.previous(now, lent.__contains__)
    held = tuple(key for key, text in sees.items() if text is None and key in previous)
    labels = {key: text for key, text in sees.items() if text is not None} | {
        key: previous[key] for key in held
    }
    holds.rendered(Rendered(labels, held), now, lent.__contains__)
    return labels


def test_what_the_node_carried_is_held_from_the_start() -> None:
    """Nothing was seen of it since; at its end it goes, and is named."""
    holds = Holds(HOLD, {K: "leaf"}, 0.0)
    assert look(holds, 599.0, {K: None}) == {K: "leaf"}
    assert holds.next_end(599.0) == 600.0
    assert holds.previous(600.0, never) == {}
    assert holds.rendered(Rendered({}), 600.0, never) == {K: "leaf"}
    assert holds.next_end(600.0) == math.inf


def test_a_hold_begins_with_the_first_look_that_fails() -> None:
    """However long ago the last good one was: until then the label was true."""
    holds = Holds(HOLD, {}, 0.0)
    look(holds, 0.0, {K: "leaf"})
    assert look(holds, 3600.0, {K: None}) == {K: "leaf"}
    assert look(holds, 3600.0 + HOLD - 1, {K: None}) == {K: "leaf"}
    assert look(holds, 3600.0 + HOLD, {K: None}) == {}


def test_a_hold_ends_at_the_moment_that_was_told() -> None:
    """However the sums are rounded: who looks then must not find it running, and no next end."""
    for since in (number * 0.851 for number in range(2000)):
        holds = Holds(HOLD, {K: "leaf"}, since)
        assert holds.previous(holds.next_end(since), never) == {}


def test_what_is_absent_goes_at_once() -> None:
    """Nobody names it as expired."""
    holds = Holds(HOLD, {K: "leaf"}, 0.0)
    assert holds.rendered(Rendered({}), 10.0, never) == {}
    assert look(holds, 11.0, {K: None}) == {}


def test_what_is_lent_has_no_end() -> None:
    """And its time begins anew when it is given back."""
    holds = Holds(HOLD, {K: "leaf"}, 0.0)
    away = frozenset({K})
    for now in (0.0, 5000.0, 10_000.0):
        assert look(holds, now, {K: None}, away) == {K: "leaf"}
    assert look(holds, 10_300.0, {K: None}) == {K: "leaf"}
    assert look(holds, 10_300.0 + HOLD - 1, {K: None}) == {K: "leaf"}
    assert look(holds, 10_300.0 + HOLD, {K: None}) == {}


def test_after_its_hold_a_sum_follows_what_can_be_seen() -> None:
    """A device that is sick for ever does not freeze the speed for ten minutes at each change."""
    holds = Holds(HOLD, {L: "3200G"}, 0.0)
    assert holds.previous(HOLD, never) == {}
    assert holds.rendered(Rendered({L: "2800G"}, unsure=(L,)), HOLD, never) == {}
    assert holds.previous(HOLD + 1, never) == {}
    holds.rendered(Rendered({L: "2400G"}, unsure=(L,)), HOLD + 1, never)
    assert holds.previous(HOLD + 2, never) == {}
    holds.rendered(Rendered({L: "3200G"}), HOLD + 2, never)
    assert holds.previous(HOLD + 3, never) == {L: "3200G"}


def test_a_sum_that_has_gone_and_comes_back_by_halves_is_not_held_anew() -> None:
    """The sickness is the same one: two devices of four are back, then a third."""
    holds = Holds(HOLD, {L: "3200G"}, 0.0)
    holds.rendered(Rendered({}), HOLD, never)
    holds.rendered(Rendered({L: "800G"}, unsure=(L,)), HOLD + 10, never)
    assert holds.previous(HOLD + 20, never) == {}
    holds.rendered(Rendered({L: "3200G"}), HOLD + 20, never)
    assert holds.previous(HOLD + 30, never) == {L: "3200G"}


@dataclass
class Clerk:
    """What one label should be, worked out from its whole history at each step."""

    history: list[tuple[float, str | None]]  # a text, "" for absent, None for failed

    def value(self) -> str:
        """The last that was seen, unless it went, or the failures since go back too far."""
        run: list[float] = []
        for at, said in reversed(self.history):
            if said is not None:
                return said if not run or run[0] - run[-1] < HOLD else ""
            run.append(at)
        return ""


WORDS = st.sampled_from(["", "a", "b", None, None, None])


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 500), WORDS), max_size=30))
def test_a_label_is_never_lost_early_and_never_kept_late(
    steps: list[tuple[float, str | None]],
) -> None:
    """Against the clerk, at every look."""
    holds, now, history = Holds(HOLD, {}, 0.0), 0.0, list[tuple[float, str | None]]()
    dead = False
    for wait, said in steps:
        now += wait
        history.append((now, said))
        dead = said is None and (dead or Clerk(history).value() == "")
        labels = look(holds, now, {} if said == "" else {K: said})
        assert labels.get(K, "") == ("" if dead else Clerk(history).value())


def observation(*links: Link) -> Observation:
    return Observation(0.0, "n1", "b", (), Seen(()), Absent(""), Seen(links), Failed(""))


def test_a_link_that_goes_down_keeps_its_neighbour_for_a_while() -> None:
    """30 s without a break; one that comes up in between begins anew."""
    grace, down, up = (
        Grace(),
        observation(Link("ibp0", None, missing="link-down")),
        observation(Link("ibp0", None)),
    )

    def holds(now: float, seen: Observation) -> bool:
        outcome = grace.damp(seen, now).ib
        return isinstance(outcome, Seen) and outcome.value[0].hold

    assert [holds(0.0, down), holds(29.0, down), holds(GRACE, down)] == [True, True, False]
    assert holds(31.0, up) is False
    assert [holds(40.0, down), holds(69.0, down), holds(70.0, down)] == [True, True, False]
    assert grace.next_end(41.0) == 70.0
    assert grace.next_end(71.0) == math.inf


def test_a_netdev_in_a_pod_is_lent() -> None:
    """By the word why its port has no neighbour."""
    seen = observation(
        Link("ibp0", None, missing="no-netdev", hold=True), Link("ibp1", None, missing="silent")
    )
    assert lent(seen) == {"ibp0"}
