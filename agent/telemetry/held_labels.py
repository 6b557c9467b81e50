"""Log lines of held labels: the reason for a hold, its end, and its expiry.

A hold that ends within LINE_DELAY has no line: after each start all neighbor labels are held until
the first frames arrive, and a link may go down for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.labels.render import Rendered
    from agent.reasons import HoldReason
    from agent.telemetry.log import Log

LINE_DELAY = 60.0  # seconds that a label is held before the log has it


class HeldLabels:
    """Logs the holds of one Node's labels. `hold` is the value of --hold in seconds."""

    def __init__(self, log: Log, hold: float) -> None:
        self._log, self._hold = log, hold
        self._since: dict[str, float] = {}
        self._reasons: dict[str, HoldReason] = {}  # of the labels held now or just expired
        self._logged: dict[str, HoldReason] = {}

    def observed(self, rendered: Rendered, expired: Mapping[str, str], now: float) -> None:
        """Log the holds of an observation at `now`, in seconds of a monotonic clock.

        `expired` are the labels whose hold just expired, with their last values.
        """
        self._take_over(rendered, expired, now)
        for key, value in expired.items():
            self._log_expired(key, value)
        for key in sorted(self._logged.keys() - rendered.held.keys()):
            self._log_ended(key, rendered)
        for key in self._lasting(now):
            self._log_held(key, rendered)

    def expiry(self, key: str) -> str:
        """Return the reason for the removal of a label whose hold just expired."""
        reason = self._reasons.get(key)
        unobserved = f"not observed for {self._hold:g} s"
        return f"{unobserved}: {reason.text}" if reason else unobserved

    def _take_over(self, rendered: Rendered, expired: Mapping[str, str], now: float) -> None:
        ended = {key: self._reasons[key] for key in expired if key in self._reasons}
        self._reasons = ended | dict(rendered.held)
        self._since = {key: self._since.get(key, now) for key in rendered.held}

    def _lasting(self, now: float) -> list[str]:
        return [key for key, since in self._since.items() if now >= since + LINE_DELAY]

    def _log_expired(self, key: str, value: str) -> None:
        reason = _text(self._reasons.get(key))
        self._log.warning(
            "label expired", key=key, value=value, hold=f"{self._hold:g}s", reason=reason
        )

    def _log_ended(self, key: str, rendered: Rendered) -> None:
        """Log the end of a hold; a label that has gone has a line of its own."""
        del self._logged[key]
        if key in rendered.labels:
            self._log.info("label no longer held", key=key)

    def _log_held(self, key: str, rendered: Rendered) -> None:
        """Log a hold, unless the last line has the same reason."""
        reason = rendered.held[key]
        if self._logged.get(key) != reason:
            self._logged[key] = reason
            self._log.info("label held", key=key, value=rendered.labels[key], reason=_text(reason))


def _text(reason: HoldReason | None) -> str | None:
    return f"{reason}: {reason.text}" if reason else None
