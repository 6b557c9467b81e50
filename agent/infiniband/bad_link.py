"""Decide which end of an InfiniBand link is bad, by two readings of the counters of both ends.

    counter at an end                         accuses
    errors that the receiver counts           the path into that end
    port_rcv_remote_physical_errors, near     a link beyond the far end: not this one
    the same, far                             the path into the far end: no switch is before it
    link_downed, link_error_recovery          no end: both ends of a link count them

Invariants:
- The rule compares what counters rose by between two readings, never totals.
- A counter that is smaller than before was reset, and the readings have no rates. One that stands
  at its maximum has no rate: it rose by what is seen, or more.
- An end is accused only if both ends could be compared: else it is CANNOT_TELL.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from agent.infiniband.perf import Counters, PortReading

# Errors between two readings that count: so many an hour, as the defaults of infiniband-diags have
# it (error_thresholds), and never fewer than MIN_EVENTS.
ERRORS_AN_HOUR, FLAPS_AN_HOUR, MIN_EVENTS = 10, 3, 3
LOPSIDED = 3  # times the errors of the other end; with fewer both directions are bad
FLAPS = ("link_error_recovery", "link_downed")
REMOTE = "port_rcv_remote_physical_errors"
RECEIVED = tuple(name for name in Counters._fields if name not in {*FLAPS, REMOTE})
HOUR = 3600.0


EndReading = PortReading | str  # or why it was not read, in words
EndReadings = tuple[EndReading, EndReading]  # one after the other


class BadEnd(StrEnum):
    """The part of a link that is bad; `near` is the end at this node."""

    NEAR = "near"
    FAR = "far"
    CABLE = "cable"
    CANNOT_TELL = "cannot-tell"
    QUIET = "quiet"


_ADVICE = {
    BadEnd.NEAR: "the path into this node is bad: first the plug at the node, then the cable",
    BadEnd.FAR: "the path into {far} is bad: first the plug there, then the cable",
    BadEnd.CABLE: "both directions are bad: the cable",
    BadEnd.CANNOT_TELL: "cannot tell which end",
    BadEnd.QUIET: "quiet",
}


class Rise(NamedTuple):
    """What the counters of one end rose by between two readings."""

    counts: dict[str, int]
    stopped: tuple[str, ...] = ()  # those that stand at their maximum: they rose by this or more

    def most(self, names: Collection[str]) -> int:
        """Return the greatest rise of these counters: one error counts in several."""
        return max(self.counts[name] for name in names)


class LinkVerdict(NamedTuple):
    """The verdict on one link."""

    end: BadEnd
    is_unstable: bool  # it has errors, whether or not an end can be told
    text: str  # a sentence for operators


class LinkErrors(NamedTuple):
    """The error counters of a link as they were read last, and the verdict on it."""

    interface: str
    far_name: str  # "leaf1 port 3"
    near: EndReading
    far_end: EndReading
    seconds: float | None = None  # between the last two readings; None: there is one
    verdict: LinkVerdict | None = None
    time: float | None = None  # of the last reading, seconds of CLOCK_BOOTTIME


def rise(end: EndReadings) -> Rise | str:
    """Return what the counters of an end rose by, or why they have no rate."""
    before, after = end
    if isinstance(after, str):
        return after
    if isinstance(before, str):
        return before
    if before.is_extended != after.is_extended:
        return "its counters were read by another attribute before"
    was, stopped = before.counters._asdict(), after.saturated
    rose = {name: now - was[name] for name, now in after.counters._asdict().items()}
    if min(rose.values()) < 0:
        return "its counters were reset"
    return Rise(rose, stopped)


def judge(near: EndReadings, far: EndReadings, seconds: float, far_name: str) -> LinkVerdict:
    """Return the verdict by the readings of both ends, `seconds` apart."""
    of_near, of_far = rise(near), rise(far)
    ends = (
        _of_end(of_near, RECEIVED, seconds, "this end"),
        _of_end(of_far, (*RECEIVED, REMOTE), seconds, far_name),
    )
    has_errors = [is_bad for is_bad, _ in ends]
    rises = [end for end in (of_near, of_far) if isinstance(end, Rise)]
    flaps = max((end.most(FLAPS) for end in rises), default=0)
    is_flapping = flaps >= max(MIN_EVENTS, FLAPS_AN_HOUR * seconds / HOUR)
    texts = [text for _, text in ends]
    if is_flapping:
        texts.append(f"{flaps} times down or in recovery")
    said = f"in {_duration(seconds)}: {'; '.join(texts)}"
    is_unstable = is_flapping or True in has_errors
    end = BadEnd.CANNOT_TELL if is_flapping or None in has_errors else BadEnd.QUIET
    if True in has_errors and isinstance(of_near, Rise) and isinstance(of_far, Rise):
        near_most, far_most = of_near.most(RECEIVED), of_far.most((*RECEIVED, REMOTE))
        if None in has_errors:
            end = BadEnd.CANNOT_TELL
        elif near_most >= LOPSIDED * far_most:
            end = BadEnd.NEAR
        else:
            end = BadEnd.FAR if far_most >= LOPSIDED * near_most else BadEnd.CABLE
    return LinkVerdict(end, is_unstable, f"{said}: {_ADVICE[end].format(far=far_name)}")


def is_worth_another(reading: PortReading) -> bool:
    """Return True if the totals of a port are worth a second reading."""
    return max(reading.counters) >= ERRORS_AN_HOUR


def _of_end(
    end: Rise | str, names: Collection[str], seconds: float, where: str
) -> tuple[bool | None, str]:
    """Return whether an end counts errors, None if that is not known; and what, in words."""
    if isinstance(end, str):
        return None, f"{where}: not known, {end}"
    stopped = [name for name in end.stopped if name in names]
    has_errors = end.most(names) >= max(MIN_EVENTS, ERRORS_AN_HOUR * seconds / HOUR)
    rates = [name for name in names if end.counts[name] and name not in stopped]
    parts = [f"{end.counts[name]:,} {name}" for name in rates]
    parts += [f"{name} at its maximum" for name in stopped]
    text = f"{where} counts {', '.join(parts) or 'no errors'}"
    return None if stopped and not has_errors else has_errors, text


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * 60 else f"{seconds / 60:.0f} min"
