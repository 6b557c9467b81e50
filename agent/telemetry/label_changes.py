"""The label changes of one reconciliation, for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.kube.negotiation import Outcome
    from agent.kube.plan import Plan
    from agent.kube.reconcile import Result

MAX_REMOVALS = 1024  # with a remembered reason


class Change(NamedTuple):
    """A label's value before and after; None: the Node has no such label."""

    key: str
    before: str | None
    after: str | None

    @property
    def verb(self) -> str:
        """`added`, `changed` or `removed`."""
        if self.after is None:
            return "removed"
        return "added" if self.before is None else "changed"


class DryRun:
    """The changes that a dry run reports: each plan has all of them, since the Node stays as is."""

    def __init__(self) -> None:
        self._planned: dict[str, Change] = {}  # of the last plan, by key

    def changes(self, plan: Plan) -> list[Change]:
        """Return the changes of a plan since the last one."""
        last = self._planned
        self._planned = {change.key: change for change in planned(plan)}
        return _effective(_steps(last, self._planned))


class Removals:
    """The reasons of removed labels: one that is added again has that of its removal."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}  # by key

    def explain(self, change: Change, reason: str | None) -> str | None:
        """Return the reason of a change; `reason` is the one by the present observation."""
        removed = self._reasons.pop(change.key, None)
        if change.after is None and reason and len(self._reasons) < MAX_REMOVALS:
            self._reasons[change.key] = reason
        if change.before is None and reason is None and removed:
            return f"removed before: {removed}"
        return reason


def planned(plan: Plan) -> list[Change]:
    """Return the changes of a plan."""
    changes = [Change(key, None, value) for key, value in plan.added.items()]
    changes += [Change(key, before, after) for key, (before, after) in plan.changed.items()]
    changes += [Change(key, value, None) for key, value in plan.removed.items()]
    return sorted(changes, key=lambda change: change.key)


def applied(result: Result) -> list[Change]:
    """Return the changes that the API server accepted."""
    if result.plan is None or result.outcome is None:
        return []
    before = {change.key: change.before for change in planned(result.plan)}
    accepted = _accepted(result.outcome)
    return _effective(Change(key, before.get(key), accepted[key]) for key in sorted(accepted))


def _accepted(outcome: Outcome) -> dict[str, str | None]:
    """Return the new value of each label that was written or removed, by key."""
    return {**dict.fromkeys(outcome.removed), **outcome.applied}


def _effective(changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if change.before != change.after]


def _steps(last: Mapping[str, Change], now: Mapping[str, Change]) -> Iterator[Change]:
    """Yield the change of each label from one plan's value to the next one's.

    A label that a plan does not change has the value that is on the Node.
    """
    for key in sorted(last.keys() | now.keys()):
        on_node = (now.get(key) or last[key]).before
        unchanged = Change(key, on_node, on_node)
        yield Change(key, last.get(key, unchanged).after, now.get(key, unchanged).after)
