"""The log lines of held labels: their reasons, and what becomes of the holds."""

from __future__ import annotations

from agent.labels.render import Rendered
from agent.reasons import HoldReason
from agent.telemetry.changes import LINE_DELAY, Holds
from agent.telemetry.log import ConditionLog, Log

DEVICE = "p/neighbors.current.ibp0.device"
END = f"info label no longer held key={DEVICE}"
FAILED, GONE = HoldReason.SOURCE_FAILED, HoldReason.DEVICE_GONE


class Desk:
    """The held labels of a node with one label, in simulated time."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.holds = Holds()
        self.log = ConditionLog(Log(write=self._write, clock=lambda: 0.0))

    def _write(self, data: bytes) -> bool:
        self.lines.append(data.decode().rstrip("\n").partition(" ")[2])
        return True

    def observe(self, now: float, reason: HoldReason | None) -> list[str]:
        """Return the lines of an observation in which the label is held, or read (None)."""
        return self.take(Rendered({DEVICE: "leaf"}, {DEVICE: reason} if reason else {}), now)

    def expire(self, now: float) -> list[str]:
        """Return the lines of the observation in which the hold expires."""
        return self.take(Rendered({}, incomplete={DEVICE: FAILED}), now)

    def take(self, rendered: Rendered, now: float) -> list[str]:
        self.log.update("labels", self.holds.observed(rendered, now))
        lines, self.lines = self.lines, []
        return lines


def held(reason: HoldReason) -> str:
    return f'info label held key={DEVICE} value=leaf reason="{reason}: {reason.text}"'


def test_a_held_label_has_one_line_with_its_reason() -> None:
    """Once it has been held for a minute, and again when the reason changes."""
    desk = Desk()
    assert desk.observe(0.0, FAILED) == []
    assert desk.observe(LINE_DELAY - 1, FAILED) == []
    assert desk.observe(LINE_DELAY, FAILED) == [held(FAILED)]
    assert desk.observe(LINE_DELAY + 30, FAILED) == []
    assert desk.observe(LINE_DELAY + 60, GONE) == [held(GONE)]


def test_a_frozen_label_has_a_line_without_value() -> None:
    """Its value is on the Node; the end of its hold has none either."""
    desk = Desk()
    frozen = Rendered({}, frozen={DEVICE: FAILED})
    desk.take(frozen, 0.0)
    line = f'info label held key={DEVICE} reason="{FAILED}: {FAILED.text}"'
    assert desk.take(frozen, LINE_DELAY) == [line]
    assert desk.expire(600.0) == [END]
    assert desk.holds.expired[DEVICE].startswith("not observed for 600s: ")


def test_a_label_that_is_read_again_ends_its_line() -> None:
    """The next hold is a new one."""
    desk = Desk()
    desk.observe(0.0, FAILED)
    desk.observe(LINE_DELAY, FAILED)
    assert desk.observe(LINE_DELAY + 30, None) == [END]
    assert desk.observe(LINE_DELAY + 60, None) == []
    assert desk.observe(LINE_DELAY + 90, FAILED) == []
    assert desk.observe(2 * LINE_DELAY + 90, FAILED) == [held(FAILED)]


def test_a_short_hold_has_no_line() -> None:
    """All neighbor labels are held after a start until frames arrive."""
    desk = Desk()
    assert desk.observe(0.0, HoldReason.NO_NEIGHBOR) == []
    assert desk.observe(30.0, None) == []


def test_an_expired_label_has_the_reason_of_its_hold() -> None:
    """Until it has a value again."""
    desk = Desk()
    desk.observe(0.0, FAILED)
    desk.observe(590.0, FAILED)
    assert desk.expire(600.0) == [END]
    assert (desk.expire(601.0), desk.holds.count) == ([], 1)
    assert desk.holds.expired == {DEVICE: f"not observed for 600s: {FAILED.text}"}
    desk.observe(700.0, None)
    assert desk.holds.expired == {}


def test_a_grace_period_is_no_hold() -> None:
    """A link that is down keeps its neighbor for 30 s, whatever --hold is."""
    desk = Desk()
    desk.observe(0.0, HoldReason.NO_NEIGHBOR)
    assert desk.expire(30.0) == []
    assert desk.holds.expired[DEVICE].startswith("not observed for 30s: ")
