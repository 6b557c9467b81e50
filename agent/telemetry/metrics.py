"""Metrics state: an immutable snapshot that the loop replaces with each event.

Invariants:
- A Snapshot never changes. `Metrics.snapshot` is replaced by one assignment, so the server's
  threads read it without a lock and see no half of an event.
- The number of series does not depend on the fabric: all series are computed from the last
  observation, and a port has at most MAX_NEIGHBORS of them (agent/telemetry/samples.py). Every
  other label value names a part of this node or comes from a fixed list.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.output.absent import absent_ports
from agent.output.document import links_of
from agent.sources import NAMES
from agent.telemetry import samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sized

    from agent.model import Link, Observation

MAX_PORTS = 1024  # with a remembered state


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The values behind every metric; times are seconds since the epoch, durations seconds."""

    observation: Observation | None = None
    observations: int = 0
    durations: dict[str, float] = field(default_factory=dict)  # by source
    succeeded_at: dict[str, float] = field(default_factory=dict)  # by source
    flaps: Mapping[str, int] = field(default_factory=dict)  # by interface
    last_frame_at: Mapping[str, float] = field(default_factory=dict)  # by interface
    labels: int = 0
    labels_held: int = 0
    labels_expired: int = 0
    keys_too_long: int = 0
    keys_refused: int = 0
    keys_left_alone: int = 0
    keys_foreign: int | None = None  # None before the Node was read
    # By HTTP status. A counter that begins at 0 shows its first increase.
    requests: Mapping[str, int] = field(default_factory=lambda: {"200": 0})
    ready: bool = False
    policy_in_force: bool | None = None  # None: not known
    applied_at: float | None = None
    frames_dropped: Mapping[str, int] = field(default_factory=dict)  # by reason
    events: Mapping[str, int] = field(default_factory=dict)  # of --events, by result
    # Of an expected half.
    findings: tuple[tuple[str, str], ...] = ()  # reported: (code, first interface)
    plan_rows: int | None = None
    verified_at: float | None = None
    plan_problem: int | None = None  # 1: a file of --plan is not in use; None: without --plan

    def flaps_of_backend(self) -> Iterable[tuple[str, int]]:
        """Return the flaps of each backend port."""
        names = _active(self.observation) if self.observation else ()
        return [(name, self.flaps.get(name, 0)) for name in names]


class Metrics:
    """The loop's side of the metrics: counts events into `snapshot`."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._active: dict[str, bool] = {}  # by interface
        self._interfaces: dict[str, str] = {}  # by netdev

    def observed(self, observation: Observation, durations: Mapping[str, float]) -> None:
        """Take in an observation; `durations` has the seconds of each source that was read."""
        links = links_of(observation)
        self._interfaces = {link.netdev: link.interface for link in links if link.netdev}
        self.snapshot = replace(
            self.snapshot,
            observation=observation,
            observations=self.snapshot.observations + 1,
            flaps=self._count_flaps(observation),
            last_frame_at=_last_frames(observation, links),
            **self._reads(observation, durations),
        )

    def frame_repeated(self, netdev: str, at: float) -> None:
        """Record a frame from a known neighbor at `at`; such a frame causes no observation."""
        times = self.snapshot.last_frame_at
        interface = self._interfaces.get(netdev)
        if interface is not None and interface in times:
            self.snapshot = replace(self.snapshot, last_frame_at={**times, interface: at})

    def rendered(
        self, labels: Sized, held: Sized = (), expired: int = 0, keys_too_long: int = 0
    ) -> None:
        """Record the rendered labels, those held, and the number of holds expired since."""
        self.snapshot = replace(
            self.snapshot,
            labels=len(labels),
            labels_held=len(held),
            labels_expired=self.snapshot.labels_expired + expired,
            keys_too_long=keys_too_long,
        )

    def request(self, code: int | None) -> None:
        """Count a request to the API server by its HTTP status; None without an answer."""
        status = str(code) if code and 100 <= code <= 599 else "none"
        requests = self.snapshot.requests
        counted = {**requests, status: requests.get(status, 0) + 1}
        self.snapshot = replace(self.snapshot, requests=counted)

    def applied(self, at: float) -> None:
        """Record that the Node has every label at `at`."""
        self.snapshot = replace(self.snapshot, applied_at=at)

    def judged(self, *, ready: bool) -> None:
        """Record whether the Node says what was observed."""
        self.snapshot = replace(self.snapshot, ready=ready)

    def policy_checked(self, *, in_force: bool) -> None:
        """Record whether the admission policy is in force."""
        self.snapshot = replace(self.snapshot, policy_in_force=in_force)

    def reconciled(self, refused: Sized, left_alone: Sized) -> None:
        """Record the keys that are refused, and those that are left to other managers."""
        self.snapshot = replace(
            self.snapshot, keys_refused=len(refused), keys_left_alone=len(left_alone)
        )

    def planned(self, foreign: Sized) -> None:
        """Record the labels of other managers that the agent does not publish."""
        self.snapshot = replace(self.snapshot, keys_foreign=len(foreign))

    def frames_dropped(self, dropped: Mapping[str, int]) -> None:
        """Record the frames dropped since the start, by reason."""
        self.snapshot = replace(self.snapshot, frames_dropped=dict(dropped))

    def events(self, **results: int) -> None:
        """Count Events about the Node by result; a counter begins at 0."""
        before = self.snapshot.events
        counted = {name: before.get(name, 0) + count for name, count in results.items()}
        self.snapshot = replace(self.snapshot, events={**before, **counted})

    def verified(
        self, findings: tuple[tuple[str, str], ...], rows: int | None, at: float | None
    ) -> None:
        """Record the reported findings, the planned cables, and the time of the comparison."""
        self.snapshot = replace(self.snapshot, findings=findings, plan_rows=rows, verified_at=at)

    def plan_read(self, *, problem: bool) -> None:
        """Record whether the files of --plan, as they are now, are in use."""
        self.snapshot = replace(self.snapshot, plan_problem=int(problem))

    def _reads(self, observation: Observation, durations: Mapping[str, float]) -> dict[str, Any]:
        """Return `durations` and `succeeded_at` with the sources that were read now."""
        now = self.snapshot
        asked = filter(observation.is_asked, NAMES)
        known = {source: durations[source] for source in asked if source in durations}
        succeeded = [source for source in known if samples.success(observation, source)]
        succeeded_at = now.succeeded_at | dict.fromkeys(succeeded, observation.time)
        return {"durations": now.durations | known, "succeeded_at": succeeded_at}

    def _count_flaps(self, observation: Observation) -> dict[str, int]:
        """Count a change from ACTIVE to another known state as one flap of the port."""
        present = {name: is_up for name, is_up in _active(observation).items() if is_up is not None}
        flaps = dict(self.snapshot.flaps)
        for name in self._went_down(present):
            flaps[name] = flaps.get(name, 0) + 1
        self._active |= present
        if len(self._active) <= MAX_PORTS:
            return flaps
        self._active = present
        return {name: flaps[name] for name in present if name in flaps}

    def _went_down(self, present: Mapping[str, bool]) -> list[str]:
        return [name for name, active in present.items() if self._active.get(name) and not active]


def _active(observation: Observation) -> dict[str, bool | None]:
    """Return True or False for each backend port, by interface; None in an unknown state."""
    states = {role.interface: role.port.state for role in observation.backend}
    active = {name: state == "ACTIVE" if state else None for name, state in states.items()}
    return active | {one.interface: False for one in absent_ports(observation)}


def _last_frames(observation: Observation, links: Iterable[Link]) -> dict[str, float]:
    """Return the time of the last frame of each port that has a neighbor, by interface."""
    times = {link.interface: samples.last_frame_at(observation, link) for link in links}
    return {name: time for name, time in times.items() if time}
