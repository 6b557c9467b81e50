"""The log lines of held labels: their reasons, and what becomes of the holds."""

from __future__ import annotations

from agent.labels.render import Rendered
from agent.reasons import HoldReason
from agent.telemetry.changes import LINE_DELAY, HeldLabels
from agent.telemetry.log import Log

DEVICE = "p/neighbors.current.ibp0.device"
FAILED, GONE = HoldReason.SOURCE_FAILED, HoldReason.DEVICE_GONE


class Desk:
    """The held labels of a node with one label, in simulated time."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.held = HeldLabels(Log(write=self._write, clock=lambda: 0.0))

    def _write(self, data: bytes) -> bool:
        self.lines.append(data.decode().rstrip("\n").partition(" ")[2])
        return True

    def observe(self, now: float, reason: HoldReason | None) -> list[str]:
        """Return the lines of an observation in which the label is held, or read (None)."""
        return self.take(Rendered({DEVICE: "leaf"}, {DEVICE: reason} if reason else {}), now)

    def expire(self, now: float) -> list[str]:
        """Return the lines of the observation in which the hold expires."""
        return self.take(Rendered({}), now, {DEVICE: "leaf"})

    def take(
        self, rendered: Rendered, now: float, expired: dict[str, str | None] | None = None
    ) -> list[str]:
        self.held.observed(rendered, expired or {}, now)
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
    (end,) = desk.take(Rendered({}), 600.0, {DEVICE: None})
    assert end.startswith(f"warning label expired key={DEVICE} held=600s")


def test_a_label_that_is_read_again_ends_its_line() -> None:
    """The next hold is a new one."""
    desk = Desk()
    desk.observe(0.0, FAILED)
    desk.observe(LINE_DELAY, FAILED)
    assert desk.observe(LINE_DELAY + 30, None) == [f"info label no longer held key={DEVICE}"]
    assert desk.observe(LINE_DELAY + 60, None) == []
    assert desk.observe(LINE_DELAY + 90, FAILED) == []
    assert desk.observe(2 * LINE_DELAY + 90, FAILED) == [held(FAILED)]


def test_a_short_hold_has_no_line() -> None:
    """All neighbor labels are held after a start until frames arrive."""
    desk = Desk()
    assert desk.observe(0.0, HoldReason.NO_NEIGHBOR) == []
    assert desk.observe(30.0, None) == []


def test_an_expired_label_has_the_reason_of_its_hold() -> None:
    """The reason is in its own line and in that of the label's removal."""
    desk = Desk()
    desk.observe(0.0, FAILED)
    desk.observe(590.0, FAILED)
    expired = f'warning label expired key={DEVICE} value=leaf held=600s reason="{FAILED}: '
    assert desk.expire(600.0) == [f'{expired}{FAILED.text}"']
    assert desk.held.expiry(DEVICE) == f"not observed for 600s: {FAILED.text}"


def test_a_grace_period_is_no_hold() -> None:
    """A link that is down keeps its neighbor for 30 s, whatever --hold is."""
    desk = Desk()
    desk.observe(0.0, HoldReason.NO_NEIGHBOR)
    assert "held=30s" in desk.expire(30.0)[0]


def test_a_label_that_expires_at_once_has_no_reason() -> None:
    """With `--hold 0s` it was never held."""
    desk = Desk()
    assert desk.expire(0.0) == [f"warning label expired key={DEVICE} value=leaf"]
    assert desk.held.expiry(DEVICE) == "not observed"
