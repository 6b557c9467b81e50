"""The log lines about labels: what changed and why, what is held, and a start that changes nothing.

A changed label shows its old and new value; its reason names the port state or the missing neighbor
behind it, compared with the observation that was applied before. agent/labels/table.py decides the
values themselves.

A hold that ends within LINE_DELAY has no line: after each start all neighbor labels are held until
the first frames arrive, and a link may go down for a moment.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agent.kube.managed_fields import FORMER, LABEL, Field, Keys, labels_of, state_of
from agent.kube.plan import Change, Plan
from agent.kube.reconcile import Result
from agent.labels.render import Rendered
from agent.memory import known_of
from agent.model import Failed, Observation, natural
from agent.output.document import absent_ports
from agent.reasons import SWITCHED_OFF, HoldReason
from agent.sources.roles import IN_USE
from agent.telemetry.log import Log
from agent.text import listed

if TYPE_CHECKING:  # agent.daemon.observer comes later in the flow of data
    from agent.daemon.observer import Cycle

MAX_NAMED = 3  # ports in a reason
LINE_DELAY = 60.0  # seconds that a label is held before the log has it
GONE = "gone from the bus"


class DryRun:
    """The changes that a dry run reports: each plan has all of them, since the Node stays as is."""

    def __init__(self) -> None:
        self._planned: dict[str, Change] = {}  # of the last plan, by key

    def changes(self, plan: Plan) -> list[Change]:
        """Return the change of each label from the last plan's value to this one's.

        A label that a plan does not change has the value that is on the Node.
        """
        last, now = self._planned, {change.key: change for change in plan.changes}
        self._planned, steps = now, []
        for key in sorted(last.keys() | now.keys()):
            on_node = (now.get(key) or last[key]).before
            unchanged = Change(key, on_node, on_node)
            before, after = last.get(key, unchanged).after, now.get(key, unchanged).after
            if before != after:
                steps.append(Change(key, before, after))
        return steps


class Unknown:
    """The changes of requests whose outcome is unknown, until the Node is read or written again.

    A request that fails tells nothing about those before, whatever the reason.
    """

    def __init__(self) -> None:
        self._sent: dict[str, tuple[Change, float]] = {}  # by key, with the time of the request

    def lost(self, result: Result, now: float) -> None:
        """Keep the changes that a request may have made; the value before is that of the first."""
        if result.plan is None or result.outcome is None:
            return
        known = {*result.outcome.removed, *result.outcome.applied}
        for change in result.plan.changes:
            if change.key not in known:
                first, _ = self._sent.get(change.key, (change, now))
                self._sent[change.key] = change._replace(before=first.before), now

    def found(self, result: Result) -> list[tuple[Change, float]]:
        """Return the changes that are on the Node, with the time of their request; forget all.

        The Node is as the plan has it. Where it was not read again, the request that repeated a
        change does not tell whether the first one had made it.
        """
        outcome = result.outcome
        is_accepted = outcome is not None and outcome.node is not None
        if not (result.is_read or is_accepted):
            return []
        now = labels_of(result.plan.on_node) if result.plan else {}
        if outcome and not result.is_read:
            now = {key: now[key] for key in now if key not in outcome.removed}
            now |= outcome.applied
        sent, self._sent = self._sent, {}
        return [one for one in sent.values() if now.get(one[0].key) == one[0].after]


class OtherWriters:
    """Tells changes that repair what another writer did to the Node since the last answer."""

    def __init__(self) -> None:
        self._uid: str | None = None  # of the Node as it was then; None: none was read
        self._labels: Mapping[str, str] = {}

    def read(self, result: Result) -> None:
        """Take over the Node as it is after a request that did not fail."""
        if result.node is not None and not result.failure:
            state = state_of(result.node)
            self._uid, self._labels = state.uid, labels_of(state.fields)

    def reason(self, change: Change, result: Result, own: Mapping[str, str | None]) -> str | None:
        """Return what another writer did to the label; None if none did.

        `own` has the values of requests of the agent's own whose answers were lost.
        """
        plan, was, now = result.plan, self._labels.get(change.key), change.before
        if plan is None or plan.uid != self._uid or now == was:
            return None
        if change.key in own and own[change.key] == now:
            return None
        taken = {one.key: one.manager for one in (result.outcome.taken if result.outcome else ())}
        writer = taken.get(change.key, "another writer")
        if was is None:
            return f"{writer} had added it"
        return f"{writer} had removed it" if now is None else f"{writer} had changed it from {was}"

    def is_repair(self, change: Change) -> bool:
        """Return True if a change only sets what the Node had before."""
        return change.after == self._labels.get(change.key)


def reason_of(
    key: str, seen: Observation, keys: Keys, before: Observation | None = None
) -> str | None:
    """Return the reason for a label's new value or removal; None if the value itself explains it.

    `before` is the observation applied before; None: none since the start. HeldLabels has the
    reason for the expiry of a hold.
    """
    if key == keys.accelerator:
        return seen.accelerator.text or seen.accelerator.reason
    if keys.family(Field(LABEL, key)) == FORMER:
        return "its prefix is a former one"
    if interface := keys.interface(key):
        return _of_link(interface, seen)
    name = key.rpartition("/")[2]
    if name in {"leaves.current", "ports.current", "leafgroup.current"}:
        return _of_neighbors(seen, before)
    return _of_speed(seen, before) if name == "speed.current" else _of_absence(seen)


def _of_link(interface: str, seen: Observation) -> str | None:
    """Return the reason for a neighbor label of one port."""
    for link in seen.links:
        if link.interface == interface:
            return link.missing
    for fact in known_of(seen).facts:
        if fact.interface == interface:
            return fact.far_why.text if fact.far_why else SWITCHED_OFF
    lost = [one for one in known_of(seen).lost if one.interface == interface]
    if lost:
        return f"{lost[0]} is {GONE}"
    roles = [f": {role.reason}" for role in seen.ports if role.interface == interface]
    return f"{interface} is no longer a backend port{''.join(roles)}"


def _of_absence(seen: Observation) -> str | None:
    """Return the reason why no node-wide label has a value."""
    if isinstance(seen.rdma, Failed):
        return seen.rdma.reason
    if not seen.is_asked("rdma"):
        return SWITCHED_OFF
    return None if _states(seen) else "no backend port"


def _of_speed(seen: Observation, before: Observation | None) -> str | None:
    """Return the ports that count otherwise than before; at the start, those that do not count."""
    if absent := _of_absence(seen):
        return absent
    reasons, states = [], _states(seen)
    if before:
        now, then, last = _counts(seen), _counts(before), _states(before)
        changed = {name for name in now.keys() | then.keys() if now.get(name) != then.get(name)}
        for name in sorted(changed, key=natural):
            state, counted = states.get(name), now.get(name)
            if state is None:
                reasons.append(f"{name} is no longer a backend port")
            elif state == last.get(name) and counted is not None:
                reasons.append(f"{name} has {counted:g} Gb/s")
            else:
                reasons.append(f"{name} is {state}")
    idle = [f"{name} is {state}" for name, state in states.items() if state != IN_USE]
    return listed(reasons or idle, MAX_NAMED) or None


def _states(seen: Observation) -> dict[str, str]:
    """Return the state of each interface that counts, or did, in words."""
    known = known_of(seen)
    states = {
        one.interface: "not read any more" if one.state_ended else f"not read ({one.state_why})"
        for one in known.facts
        if one.state_ended or one.state_why
    }
    states |= {one.interface: GONE for one in known.lost}
    return states | {role.interface: role.port.state or "unknown" for role in seen.backend}


def _counts(seen: Observation) -> dict[str, float | None]:
    """Return the part of the speed label of each interface."""
    return {fact.interface: fact.gbps for fact in known_of(seen).facts}


def _of_neighbors(seen: Observation, before: Observation | None) -> str | None:
    """Return the ports with another neighbor than before; at the start, those without one."""
    if not (seen.is_asked("lldp") or seen.is_asked("ib")):
        return SWITCHED_OFF
    if before is None:
        missing = [f"{link.interface}: {link.missing}" for link in seen.links if link.missing]
        return listed(missing, MAX_NAMED) or None
    now = _neighbors(seen)
    changed = {name for name, _ in now.items() ^ _neighbors(before).items()}
    ports = sorted(changed, key=natural)
    changes = [f"{name}: {now.get(name, 'no longer a backend port')}" for name in ports]
    return listed(changes, MAX_NAMED) or None


def _neighbors(seen: Observation) -> dict[str, str]:
    """Return device and port of each port's far end, or the reason why there is none."""
    missing = {link.interface: link.missing for link in seen.links}
    found = {}
    for fact in known_of(seen).facts:
        if fact.far:
            found[fact.interface] = f"{fact.far.device} {fact.far.port_id}"
        else:
            why = fact.far_why.text if fact.far_why else SWITCHED_OFF
            found[fact.interface] = missing.get(fact.interface) or why
    return found


class HeldLabels:
    """Logs the holds of one Node's labels."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since: dict[str, float] = {}  # of the labels held now
        self._reasons: dict[str, HoldReason] = {}  # of these, too
        self._expired: dict[str, str] = {}  # just now: for how long they were held, and why
        self._logged: dict[str, HoldReason] = {}

    def observed(self, rendered: Rendered, expired: Mapping[str, str], now: float) -> None:
        """Log the holds of an observation: their beginning, a changed reason, end and expiry.

        `expired` are the labels whose hold just expired, with their last values.
        """
        self._expired = {}
        for key, value in expired.items():
            held, reason = None, self._reasons.get(key)
            if reason:  # for --hold, or less, as for a link that is down
                held = f"{now - self._since[key]:.0f}s"
                self._expired[key] = f"{held}: {reason.text}"
            text = _text(reason)
            self._log.warning("label expired", key=key, value=value, held=held, reason=text)
        self._since = {key: self._since.get(key, now) for key in rendered.held}
        self._reasons = dict(rendered.held)
        for key in sorted(self._logged.keys() - rendered.held.keys()):
            del self._logged[key]
            if key in rendered.labels:  # one that is gone has a line of its own
                self._log.info("label no longer held", key=key)
        for key, held in rendered.held.items():
            since = self._since[key]
            if now >= since + LINE_DELAY and self._logged.get(key) != held:
                self._logged[key] = held
                value = rendered.labels[key]
                self._log.info("label held", key=key, value=value, reason=_text(held))

    def expiry(self, key: str) -> str:
        """Return the reason for the removal of a label whose hold just expired."""
        return f"not observed for {self._expired[key]}" if key in self._expired else "not observed"


def _text(reason: HoldReason | None) -> str | None:
    return f"{reason}: {reason.text}" if reason else None


class Start:
    """The line of a start that changes nothing: the Node already says what is observed.

        labels verified speed=3200G ports="8 of 8" neighbors=16

    It is written when the API server answers, about a minute after the start, so it is not about a
    Node that was deleted meanwhile; and once no label is held any more, so it is not about what
    nobody has seen yet; after LINE_DELAY with the number of those that still are. A start that
    changes labels, or whose keys are refused, has lines about these instead. `speed` is a label
    key.
    """

    def __init__(self, log: Log, speed: str) -> None:
        self._log, self._speed = log, speed
        self._is_over = False  # the line was written, or will never be
        self._since = math.inf  # the first observation

    def observed(self, now: float) -> None:
        """Record an observation."""
        self._since = min(self._since, now)

    def end(self) -> None:
        """Write no line: a label changed, or a key was refused."""
        self._is_over = True

    def verified(self, cycle: Cycle, now: float) -> None:
        """Write the line if it is due; the Node was just found with this observation's labels."""
        held, seen = len(cycle.rendered.held), cycle.observation
        if self._is_over or (held and now < self._since + LINE_DELAY):
            return
        self._is_over = True
        counting = sum(bool(role.counted_gbps) for role in seen.backend)
        self._log.info(
            "labels verified",
            speed=cycle.rendered.labels.get(self._speed),
            ports=f"{counting} of {len(seen.backend) + len(absent_ports(seen))}",
            neighbors=sum(len(link.neighbors) for link in seen.links),
            held=held or None,
        )
