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
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from agent.kube.change import Change, LabelChange
from agent.kube.managed_fields import FORMER, LABEL, Field, Keys, labels_of, state_of
from agent.kube.reconcile import Result
from agent.labels.render import Rendered
from agent.memory import Fact, Known
from agent.model import Failed, Observation, Seen
from agent.output.document import absent_ports
from agent.reasons import SWITCHED_OFF, HoldReason
from agent.sources.interfaces import IN_USE
from agent.telemetry.log import Log
from agent.text import listed, natural

if TYPE_CHECKING:  # agent.daemon.observer comes later in the flow of data
    from agent.daemon.observer import Cycle

MAX_NAMED = 3  # ports in a reason
LINE_DELAY = 60.0  # seconds that a label is held before the log has it
GONE, EXCLUDED = "gone from the bus", "left out by --exclude-device"


class DryRun:
    """The changes that a dry run reports: all of them each time: the Node stays as is."""

    def __init__(self) -> None:
        self._planned: dict[str, LabelChange] = {}  # the last ones, by key

    def changes(self, of_node: Change) -> list[LabelChange]:
        """Return the change of each label from its last wanted value to that wanted now.

        A label that is not to change has the value that is on the Node.
        """
        last, now = self._planned, {change.key: change for change in of_node.label_changes}
        self._planned, steps = now, []
        for key in sorted(last.keys() | now.keys()):
            on_node = (now.get(key) or last[key]).before
            unchanged = LabelChange(key, on_node, on_node)
            before, after = last.get(key, unchanged).after, now.get(key, unchanged).after
            if before != after:
                steps.append(LabelChange(key, before, after))
        return steps


class Unknown:
    """The changes of requests whose outcome is unknown, until the Node is read or written again.

    A request that fails tells nothing about those before, whatever the reason.
    """

    def __init__(self) -> None:
        self._sent: dict[
            str, tuple[LabelChange, float]
        ] = {}  # by key, with the time of the request

    def lost(self, result: Result, now: float) -> None:
        """Keep the changes that a request may have made; the value before is that of the first."""
        if result.change is None or result.outcome is None:
            return
        known = {*result.outcome.removed, *result.outcome.applied}
        for change in result.change.label_changes:
            if change.key not in known:
                first, _ = self._sent.get(change.key, (change, now))
                self._sent[change.key] = change._replace(before=first.before), now

    def found(self, result: Result) -> list[tuple[LabelChange, float]]:
        """Return the changes that are on the Node, with the time of their request; forget all.

        The Node is as it was read. Where it was not read again, the request that repeated a
        change does not tell whether the first one had made it.
        """
        outcome = result.outcome
        is_accepted = outcome is not None and outcome.node is not None
        if not (result.is_read or is_accepted):
            return []
        now = labels_of(result.change.on_node) if result.change else {}
        if outcome and not result.is_read:
            now = {key: now[key] for key in now if key not in outcome.removed}
            now |= outcome.applied
        sent, self._sent = self._sent, {}
        return [(change, at) for change, at in sent.values() if now.get(change.key) == change.after]


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

    def reason(
        self, change: LabelChange, result: Result, own: Mapping[str, str | None]
    ) -> str | None:
        """Return what another writer did to the label; None if none did.

        `own` has the values of requests of the agent's own whose answers were lost.
        """
        of_node, was, now = result.change, self._labels.get(change.key), change.before
        if of_node is None or of_node.uid != self._uid or now == was:
            return None
        if change.key in own and own[change.key] == now:
            return None
        taken = {
            field.key: field.manager for field in (result.outcome.taken if result.outcome else ())
        }
        writer = taken.get(change.key, "another writer")
        if was is None:
            return f"{writer} had added it"
        return f"{writer} had removed it" if now is None else f"{writer} had changed it from {was}"

    def is_repair(self, change: LabelChange) -> bool:
        """Return True if a change only sets what the Node had before."""
        return change.after == self._labels.get(change.key)


def reason_of(
    change: LabelChange,
    seen: Observation,
    known: Known,
    keys: Keys,
    before: Sequence[Fact] | None = None,
) -> str | None:
    """Return the cause of a label's new value or removal; None if the value itself explains it.

    `before` has the rows that were applied before, at the start those of the annotation; None:
    unknown. HeldLabels has the reason for the expiry of a hold.
    """
    key, is_added = change.key, change.before is None
    if key == keys.accelerator:
        return seen.accelerator.text or seen.accelerator.reason
    if keys.family(Field(LABEL, key)) == FORMER:
        return "its prefix is a former one"
    if interface := keys.interface(key):
        return _of_link(interface, seen, known, before or ())
    name = key.rpartition("/")[2]
    if name in {"leaves.current", "ports.current", "leafgroup.current"}:
        return _of_neighbors(change, seen, known, before)
    if name == "speed.current":
        return _of_speed(seen, known, None if is_added else before)
    rows = _gone(known, before or ())
    gone = [f"{fact.interface} is {_absence(fact, seen, known)}" for fact in rows]
    return _of_source(seen) or listed(gone, MAX_NAMED) or _of_no_port(seen, known)


def _of_link(interface: str, seen: Observation, known: Known, before: Iterable[Fact]) -> str | None:
    """Return the reason for a neighbor label of a port."""
    for link in seen.links:
        if link.interface == interface:
            return link.missing
    for fact in known.facts:
        if fact.interface == interface:
            return fact.far_why.text if fact.far_why else SWITCHED_OFF
    lost = [fact for fact in known.lost if fact.interface == interface]
    if lost:
        return f"{lost[0]} is {GONE}"
    rows = [fact for fact in before if fact.interface == interface]
    return f"{interface} is {_absence(rows[0] if rows else Fact(interface, None), seen, known)}"


def _gone(known: Known, before: Iterable[Fact]) -> list[Fact]:
    """Return the rows before of ports that have none now."""
    now = {fact.interface for fact in known.facts}
    return [fact for fact in before if fact.interface and fact.interface not in now]


def _absence(fact: Fact, seen: Observation, known: Known) -> str:
    """Return why a port that had a row has none now."""
    if any(lost.interface == fact.interface for lost in known.lost):
        return GONE
    for device in seen.rdma.value if isinstance(seen.rdma, Seen) else ():
        is_named = fact.interface == device.name or fact.interface.startswith(f"{device.name}-")
        if device.excluded and (is_named or (device.pci and device.pci == fact.function)):
            return EXCLUDED
    roles = [f": {role.reason}" for role in seen.ports if role.interface == fact.interface]
    return f"no longer a backend port{''.join(roles)}"


def _of_source(seen: Observation) -> str | None:
    """Return the reason why no RDMA device can be known; None if they can."""
    if isinstance(seen.rdma, Failed):
        return seen.rdma.reason
    return None if seen.is_asked("rdma") else SWITCHED_OFF


def _of_no_port(seen: Observation, known: Known) -> str | None:
    """Return the reason why no node-wide label has a value; None if there are ports."""
    return None if _states(seen, known) else "no backend port"


def _of_speed(seen: Observation, known: Known, before: Sequence[Fact] | None) -> str | None:
    """Return the ports that count otherwise than before; for a first value, the idle ones."""
    if reason := _of_source(seen):
        return reason
    states = _states(seen, known)
    if before is None or all(fact.gbps is None for fact in before):
        idle = [f"{name} is {state}" for name, state in states.items() if state != IN_USE]
        return listed(idle, MAX_NAMED) or _of_no_port(seen, known)
    rows = {fact.interface: fact for fact in before}
    now = {fact.interface: fact.gbps for fact in known.facts}
    then = {name: fact.gbps for name, fact in rows.items()}
    changed = {name for name in now.keys() | then.keys() if now.get(name) != then.get(name)}
    reasons = []
    for name in sorted(changed, key=natural):
        state = states.get(name)
        if state is None:
            state = (
                _absence(rows[name], seen, known) if name in rows else "no longer a backend port"
            )
            reasons.append(f"{name} is {state}")
        elif state == IN_USE and then.get(name) and now.get(name) is not None:
            reasons.append(f"{name} has {now[name]:g} Gb/s")
        else:
            reasons.append(f"{name} is {state}")
    return listed(reasons, MAX_NAMED) or _of_no_port(seen, known)


def _states(seen: Observation, known: Known) -> dict[str, str]:
    """Return the state of each interface that counts, or did, in words."""
    states = {
        fact.interface: "not read any more" if fact.state_ended else f"not read ({fact.state_why})"
        for fact in known.facts
        if fact.state_ended or fact.state_why
    }
    states |= {fact.interface: GONE for fact in known.lost}
    return states | {role.interface: role.port.state or "unknown" for role in seen.backend}


def _of_neighbors(
    change: LabelChange, seen: Observation, known: Known, before: Sequence[Fact] | None
) -> str | None:
    """Return the ports with another neighbor than before; if unknown, those without neighbor.

    The leaf group has a port's last neighbor.
    """
    is_group = change.key.endswith("/leafgroup.current")
    if not (seen.is_asked("lldp") or seen.is_asked("ib")):
        return SWITCHED_OFF
    missing = {link.interface: link.missing for link in seen.links if link.missing}
    if before is None:
        idle = [f"{name}: {reason}" for name, reason in missing.items() if change.before]
        return listed(idle, MAX_NAMED) or None
    facts = known.facts
    now, then = _far_ends(facts, is_group=is_group), _far_ends(before, is_group=is_group)
    whys = {fact.interface: fact.far_why.text for fact in facts if fact.far_why}
    gone = {fact.interface: _absence(fact, seen, known) for fact in _gone(known, before)}
    reasons = []
    for name in sorted({name for name, _ in now.items() ^ then.items()}, key=natural):
        why = missing.get(name) or whys.get(name, SWITCHED_OFF)
        reasons.append(f"{name}: {gone.get(name) or now.get(name) or why}")
    return listed(reasons, MAX_NAMED) or None


def _far_ends(rows: Iterable[Fact], *, is_group: bool) -> dict[str, str]:
    """Return device and port of each port's far end, by interface."""
    ends = {row.interface: (row.last_far if is_group else None) or row.far for row in rows}
    return {name: f"{far.device} {far.port_id}" for name, far in ends.items() if far and name}


class HeldLabels:
    """Logs the holds of one Node's labels."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since: dict[str, float] = {}  # of the labels held now
        self._reasons: dict[str, HoldReason] = {}  # of these, too
        self._expired: dict[str, str] = {}  # just now: for how long they were held, and why
        self._logged: dict[str, HoldReason] = {}

    def observed(self, rendered: Rendered, expired: Mapping[str, str | None], now: float) -> None:
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
        self._reasons = rendered.kept
        self._since = {key: self._since.get(key, now) for key in self._reasons}
        for key in sorted(self._logged.keys() - self._reasons.keys()):
            del self._logged[key]
            if key in rendered.labels:  # a label that is gone has a line of its own
                self._log.info("label no longer held", key=key)
        for key, held in self._reasons.items():
            since = self._since[key]
            if now >= since + LINE_DELAY and self._logged.get(key) != held:
                self._logged[key] = held
                value = rendered.labels.get(key)  # a frozen label has that of the Node
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
        held, seen = len(cycle.rendered.kept), cycle.observation
        if self._is_over or (held and now < self._since + LINE_DELAY):
            return
        self._is_over = True
        counting = sum(bool(role.counted_gbps) for role in seen.backend)
        self._log.info(
            "labels verified",
            speed=cycle.rendered.labels.get(self._speed),
            ports=f"{counting} of {len(seen.backend) + len(absent_ports(seen, cycle.known))}",
            neighbors=sum(len(link.neighbors) for link in seen.links),
            held=held or None,
        )
