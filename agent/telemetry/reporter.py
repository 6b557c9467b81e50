"""What an agent that runs tells people: log lines, metrics and health, out of what the loop has seen.

The law of this module: it is told everything and decides nothing. The loop works the same without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from agent import __version__
from agent.daemon.pollers import NOT_YET
from agent.model import Problem
from agent.telemetry.reasons import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sized

    from agent.daemon.observer import Cycle
    from agent.kube.annotation import Annotation
    from agent.kube.managed_fields import Keys
    from agent.kube.plan import Plan
    from agent.kube.reconcile import Result
    from agent.telemetry.log import Log
    from agent.telemetry.metrics import Metrics

    Change = tuple[str, str | None, str | None]  # key, before, after


class Status(Protocol):
    """What is served to others (agent/telemetry/server.py)."""

    def heartbeat(self) -> None:
        """The loop has turned."""

    def mark_ready(self) -> None:
        """The first observation was applied."""


@dataclass(slots=True)
class Reporter:
    """The loop's voice. `wall` is in seconds since the epoch, `clock` never jumps."""

    log: Log
    metrics: Metrics
    state: Status
    keys: Keys
    node: str
    hold: float  # seconds
    wall: Callable[[], float]
    clock: Callable[[], float]
    dry_run: bool = False
    _lasting: list[Problem] = field(default_factory=list)  # what the API server would not have
    _seen: list[Problem] = field(default_factory=list)
    _pretended: dict[str, tuple[str | None, str | None]] = field(
        default_factory=dict
    )  # on the Node, and said, by key
    _failing: bool = False

    def started(self) -> None:
        """The loop begins."""
        self.log.note(
            "bwagent", f"{__version__} runs for Node {self.node}{', dry run' * self.dry_run}"
        )

    def server_started(self, fault: str) -> None:
        """Metrics are served, or will be as soon as this is over."""
        if fault:
            self.log.note("metrics", f"{fault}; tried again until it can be had", "warning")

    def heartbeat(self) -> None:
        """The loop has turned: say what is to be said now."""
        self.state.heartbeat()
        self.log.flush()

    def pause(self) -> float:
        """Seconds until there is something to say."""
        wait = self.log.flush()
        return math.inf if wait is None else wait

    def observed(
        self,
        look: Cycle,
        took: Mapping[str, float],
        deaf: Mapping[str, str],
        dropped: Mapping[str, int],
    ) -> None:
        """A look was made; `took` are the helpers' seconds, `deaf` the wake-ups that cannot come, with the reason."""
        durations = {
            source: max(seconds, took.get(source, 0.0)) for source, seconds in look.took.items()
        }
        rendered = look.rendered
        self.metrics.observed(look.observation, durations)
        self.metrics.rendered(
            rendered.labels, rendered.held, len(look.expired), len(rendered.problems)
        )
        self.metrics.frames_dropped(dropped)
        for key, value in look.expired.items():
            self.log.note(
                key, f"{value} was held for {self.hold:g} s and could not be seen", "warning"
            )
        deafness = [
            Problem("host", ear, None, f"no events, slower looks instead: {text}")
            for ear, text in deaf.items()
            if text
        ]
        found = (*look.observation.problems, *rendered.problems, *deafness)
        self._seen = [problem for problem in found if not problem.text.endswith(NOT_YET)]
        self.log.problems([*self._seen, *self._lasting])

    def frames_repeated(self, netdevs: Iterable[str]) -> None:
        """Neighbours that are known have spoken again."""
        now = self.wall()
        for netdev in netdevs:
            self.metrics.frame_repeated(netdev, now)

    def signal_received(self, name: str) -> None:
        """A signal has come."""
        self.log.note(
            "bwagent",
            "SIGHUP: looking again" if name == "SIGHUP" else f"{name}: stopping, the labels stay",
        )

    def reconciled(self, attempt: Result, look: Cycle | None) -> None:
        """The API server was asked: what has changed, and what it would not have."""
        for code in attempt.codes:
            self.metrics.request(code)
        if look and attempt.plan:
            for key, before, after in self._would(attempt) if self.dry_run else _changes(attempt):
                reason = reason_of(key, look, self.keys, self.hold)
                words = "; ".join(filter(None, (reason, "dry run, not applied" * self.dry_run)))
                self.log.change(key, before, after, words or None)
        self._lasting = [*_unwelcome(attempt)] if attempt.plan else self._lasting
        self.log.problems([*self._seen, *self._lasting])

    def node_read(self, told: Annotation | None, problem: Problem | None) -> None:
        """The Node was seen for the first time."""
        self._lasting = [problem] if problem else []
        self.log.detail("bwagent", f"the Node was last true at {told.time if told else None}")
        self._recovered()

    def applied(self, refused: Sized) -> None:
        """The Node says what it should, but for these."""
        self._recovered()
        self.metrics.applied(self.wall(), refused)
        self.state.mark_ready()

    def failed(self, text: str) -> None:
        """An attempt came to nothing."""
        self._failing = True
        self.log.note(f"Node {self.node}", text.removeprefix(f"Node {self.node}: "), "warning")

    def annotation_age(self, told: Annotation | None) -> float:
        """Seconds since the labels were last true, by the annotation; 0 where the first request brings it."""
        return 0.0 if told is None or told.time is None else self.wall() - told.time

    def _would(self, attempt: Result) -> list[Change]:
        """What a dry run would have changed since it last said so."""
        before, self._pretended = (
            self._pretended,
            {key: (was, to) for key, was, to in _differences(attempt.plan)},
        )
        keys = sorted(before.keys() | self._pretended.keys())
        there = {key: was for key, (was, _) in (before | self._pretended).items()}
        said = [
            (
                key,
                before.get(key, (there[key],) * 2)[1],
                self._pretended.get(key, (there[key],) * 2)[1],
            )
            for key in keys
        ]
        return [(key, was, to) for key, was, to in said if was != to]

    def _recovered(self) -> None:
        if self._failing:
            self.log.note(f"Node {self.node}", "reached again")
        self._failing = False


def _differences(plan: Plan | None) -> list[Change]:
    """The labels that a plan would change."""
    if plan is None:
        return []
    before = plan.removed | {key: was for key, (was, _) in plan.changed.items()}
    after = plan.added | {key: value for key, (_, value) in plan.changed.items()}
    return [(key, before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())]


def _changes(attempt: Result) -> list[Change]:
    """The labels that were changed."""
    outcome = attempt.outcome
    if outcome is None:
        return []
    before = {key: was for key, was, _ in _differences(attempt.plan)}
    changed = sorted({*outcome.applied, *outcome.removed})
    return [(key, before.get(key), outcome.applied.get(key)) for key in changed]


def _unwelcome(attempt: Result) -> Iterable[Problem]:
    """What is not as wished, for as long as it is not."""
    if attempt.plan:
        yield from attempt.plan.problems
    for refusal in attempt.outcome.refused if attempt.outcome else ():
        yield Problem("labels", refusal.key, None, f"refused: {refusal.text}")
    alone = (
        attempt.outcome.left_alone
        if attempt.outcome
        else attempt.plan.left_alone
        if attempt.plan
        else ()
    )
    for held in alone:
        yield Problem(
            "labels", held.key, None, f"left alone: {', '.join(held.managers)} says {held.value}"
        )
