"""Which end of a link is bad: by rule, and over modeled fleets."""

from __future__ import annotations

from random import Random

import pytest

from agent.infiniband.bad_link import BadEnd, EndReadings, LinkVerdict, is_worth_another, judge
from agent.infiniband.perf import MAXIMA, Counters, PortReading
from tests.support.perf import NONE, end, modeled

HOUR = 3600.0
LEAF = "leaf1 port 3"


QUIET = end()
BAD = end(symbol_error=100, port_rcv_errors=20)
UNREAD = ("no answer", "no answer")
WORN = Counters(60_000, 200, 200, 60_000, 60_000, 10, 10)  # totals of years
FULL = (PortReading(MAXIMA), PortReading(MAXIMA))
FILLED = (PortReading(NONE), PortReading(NONE._replace(symbol_error=65535)))
RESET = (PortReading(WORN), PortReading(NONE._replace(symbol_error=300)))
TOLD = {
    "quiet": (QUIET, QUIET, BadEnd.QUIET, False),
    "totals of years": (end(WORN), end(WORN), BadEnd.QUIET, False),
    "near": (BAD, QUIET, BadEnd.NEAR, True),
    "far": (QUIET, BAD, BadEnd.FAR, True),
    "both": (BAD, BAD, BadEnd.CABLE, True),
    "near, some far": (end(symbol_error=5000), end(symbol_error=12), BadEnd.NEAR, True),
    "far, some near": (end(symbol_error=12), end(symbol_error=5000), BadEnd.FAR, True),
    "both, by half": (end(symbol_error=24), end(symbol_error=9), BadEnd.CABLE, True),
    "few": (end(symbol_error=9), end(symbol_error=9), BadEnd.QUIET, False),
    "damaged before the far end": (
        end(port_rcv_remote_physical_errors=500),
        QUIET,
        BadEnd.QUIET,
        False,
    ),
    "damaged by this node": (
        QUIET,
        end(port_rcv_remote_physical_errors=500),
        BadEnd.FAR,
        True,
    ),
    "flaps": (end(link_downed=4), end(link_downed=4), BadEnd.CANNOT_TELL, True),
    "one reseated plug": (end(link_downed=2), end(link_downed=2), BadEnd.QUIET, False),
    "flaps, with errors near": (
        end(link_error_recovery=9, symbol_error=99),
        end(link_error_recovery=9),
        BadEnd.NEAR,
        True,
    ),
    "far end unread": (BAD, UNREAD, BadEnd.CANNOT_TELL, True),
    "far end unread, near quiet": (QUIET, UNREAD, BadEnd.CANNOT_TELL, False),
    "near end unread": (UNREAD, BAD, BadEnd.CANNOT_TELL, True),
    "none read": (UNREAD, UNREAD, BadEnd.CANNOT_TELL, False),
    "near reset": (RESET, BAD, BadEnd.CANNOT_TELL, True),
    "far full": (BAD, FULL, BadEnd.CANNOT_TELL, True),
    "near full": (FULL, QUIET, BadEnd.CANNOT_TELL, False),
    "near filled": (FILLED, QUIET, BadEnd.NEAR, True),
    "both, one filled": (FILLED, BAD, BadEnd.NEAR, True),
}


def told(near: EndReadings, far: EndReadings, seconds: float = HOUR) -> LinkVerdict:
    return judge(near, far, seconds, LEAF)


@pytest.mark.parametrize("case", TOLD)
def test_the_end_of(case: str) -> None:
    near, far, bad_end, is_unstable = TOLD[case]
    verdict = told(near, far)
    assert (verdict.end, verdict.is_unstable) == (bad_end, is_unstable)


def test_the_sentences() -> None:
    """One line for an operator: what was counted where, and what to touch."""
    assert told(BAD, QUIET).text == (
        "in 60 min: this end counts 100 symbol_error, 20 port_rcv_errors; leaf1 port 3 counts no"
        " errors: the path into this node is bad: first the plug at the node, then the cable"
    )
    assert told(QUIET, FILLED, 5).text == (
        "in 5 s: this end counts no errors; leaf1 port 3 counts symbol_error at its maximum: the"
        " path into leaf1 port 3 is bad: first the plug there, then the cable"
    )
    assert told(RESET, BAD).text.startswith(
        "in 60 min: this end: not known, its counters were reset;"
    )
    assert told(end(link_downed=4), UNREAD).text == (
        "in 60 min: this end counts no errors; leaf1 port 3: not known, no answer; 4 times down or"
        " in recovery: cannot tell which end"
    )


def test_readings_of_another_width_are_not_compared() -> None:
    wide = (PortReading(NONE), PortReading(WORN, is_extended=True))
    assert told(wide, QUIET).end is BadEnd.CANNOT_TELL
    wide = (
        PortReading(Counters(*[2**40] * 7), is_extended=True),
        PortReading(Counters(*[2**40 + 50] * 7), is_extended=True),
    )
    assert told(wide, QUIET).end is BadEnd.NEAR


@pytest.mark.parametrize(("seconds", "errors"), [(5, 3), (60, 3), (3600, 10), (4 * 3600, 40)])
def test_errors_count_by_the_hour_and_are_several(seconds: float, errors: int) -> None:
    assert told(end(symbol_error=errors), QUIET, seconds).end is BadEnd.NEAR
    assert told(end(symbol_error=errors - 1), QUIET, seconds).end is BadEnd.QUIET


def test_totals_are_worth_a_second_reading_from_ten_on() -> None:
    assert not is_worth_another(PortReading(NONE._replace(symbol_error=9, link_downed=9)))
    assert is_worth_another(PortReading(NONE._replace(symbol_error=10)))
    assert is_worth_another(PortReading(NONE._replace(link_downed=10)))


PLANTED = {"near": BadEnd.NEAR, "far": BadEnd.FAR, "both": BadEnd.CABLE, "nowhere": BadEnd.QUIET}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("planted", PLANTED)
def test_a_fleet_of_200_nodes(planted: str, seed: int) -> None:
    """Eight ports each, with up to one error an hour on every end; one link a node is bad by 25 to
    250 an hour. 99 of 100 have the right end, and no other port is accused.
    """
    random, right = Random(f"{planted} {seed}"), 0  # noqa: S311 - a model
    for _ in range(200):
        bad_port = random.randrange(8)
        for port in range(8):
            background, mean = random.random(), random.uniform(25, 250)
            planted_at = planted if port == bad_port else "nowhere"
            near = mean if planted_at in {"near", "both"} else background
            far = mean if planted_at in {"far", "both"} else background
            verdict = told(modeled(random, near), modeled(random, far))
            if port == bad_port:
                right += verdict.end is PLANTED[planted]
            else:
                assert verdict.end is BadEnd.QUIET
    assert right >= 198
