"""The log lines about labels: what changed and why, what is held, and a start that changes nothing.

A changed label shows its old and new value; its reason names the port state or the missing neighbor
behind it, compared with the observation that was applied before. agent/labels/table.py decides the
values themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from agent.kube.change import Change, LabelChange
from agent.kube.managed_fields import FORMER, LABEL, Field, Keys, labels_of, state_of
from agent.kube.reconcile import Result
from agent.labels.render import Rendered
from agent.memory import Fact, Known
from agent.model import Failed, Observation, Seen
from agent.output.backend import absent_ports
from agent.reasons import SWITCHED_OFF, HoldReason
from agent.sources.interfaces import IN_USE
from agent.telemetry.log import Condition, Log
from agent.text import listed, natural, utc

if TYPE_CHECKING:  # agent.daemon.observer comes later in the flow of data
    from agent.daemon.observer import Cycle

MAX_NAMED = 3  # ports in a reason
LINE_DELAY = 60.0  # seconds that a label is held before the log has it
GONE, EXCLUDED = "gone from the bus", "left out by --exclude-device"
OF_NEIGHBORS = frozenset({"leaves.current", "ports.current", "leafgroup.current"})


class LabelLog:
    """Logs each change of a label once, with its cause, and the start that changes none.

    A request whose answer was lost may have made its changes. They are logged when the Node is read
    or written again, with the times of that request and of now; a request that fails tells nothing
    about those before.
    """

    def __init__(
        self, log: Log, keys: Keys, wall: Callable[[], float], now: float, *, dry_run: bool
    ) -> None:
        self._log, self._keys, self._wall, self._dry_run = log, keys, wall, dry_run
        self.holds = Holds()
        self._started = now
        self._is_verified = False  # or has lines of changes in place of it
        self._uid: str | None = None  # of the Node after the last answer; None: none was read
        self._labels: dict[str, str | None] = {}  # of that Node
        self._sent: dict[str, tuple[LabelChange, float]] = {}  # perhaps made, and when it was sent
        self._wanted: dict[str, LabelChange] = {}  # by a dry run
        # The rows that were applied before, at the start those of the annotation; (): unknown
        self._rows: Sequence[Fact] = ()

    def seed(self, rows: Iterable[Fact]) -> None:
        """Take the rows that the Node tells."""
        self._rows = tuple(rows)

    def reconciled(self, result: Result, cycle: Cycle | None) -> None:
        """Log the changes of a request that carried this cycle."""
        if result.change and cycle:
            self._log_changes(result, result.change, cycle)
            if not result.failure:
                self._rows = cycle.known.facts
        if result.node is not None and not result.failure:
            state = state_of(result.node)
            self._uid, self._labels = state.uid, {**labels_of(state.fields)}

    def verified(self, cycle: Cycle, now: float) -> None:
        """Log that the Node has the labels of this cycle, if no change was logged since the start.

            labels verified speed=3200G ports="8 of 8" neighbors=16

        It is called when the API server has answered, so it is not about a Node that was deleted
        meanwhile. While labels are held it waits, for LINE_DELAY, and then counts them.
        """
        held, seen = len(cycle.rendered.kept), cycle.observation
        if self._is_verified or (held and now < self._started + LINE_DELAY):
            return
        self._is_verified = True
        counting = sum(bool(role.counted_gbps) for role in seen.backend)
        self._log.info(
            "labels verified",
            speed=cycle.rendered.labels.get(f"{self._keys.prefix}/speed.current"),
            ports=f"{counting} of {len(seen.backend) + len(absent_ports(seen, cycle.known))}",
            neighbors=sum(len(link.neighbors) for link in seen.links),
            held=held or None,
        )

    def _log_changes(self, result: Result, wanted: Change, cycle: Cycle) -> None:
        late = self._late(result, wanted)
        for change, sent in late:
            times = {"sent": utc(int(sent)), "found": utc(int(self._wall()))}
            self._log_change(change, self._cause(change, cycle), **times)
            self._labels[change.key] = change.after
        if result.failure and result.failure.maybe_done and result.outcome:
            done = {*result.outcome.removed, *result.outcome.applied}
            for change in wanted.label_changes:
                if change.key not in done:
                    first, _ = self._sent.get(change.key, (change, 0.0))
                    self._sent[change.key] = change._replace(before=first.before), self._wall()
        known = {(change.key, change.after) for change, _ in late}
        made = result.outcome.changes if result.outcome else ()
        for change in self._would_change(wanted) if self._dry_run else made:
            if (change.key, change.after) not in known:
                by_others = None if self._dry_run else self._by_others(change, result, wanted)
                cause = None
                if not by_others or change.after != self._labels.get(change.key):
                    cause = self._cause(change, cycle)
                self._log_change(change, "; ".join(filter(None, (by_others, cause))) or None)

    def _late(self, result: Result, wanted: Change) -> list[tuple[LabelChange, float]]:
        """Return the changes that were perhaps made, and are on the Node, with their times.

        Where the Node was not read again, the request that repeats a change does not tell whether
        the first one had made it.
        """
        if result.is_read:
            labels = labels_of(wanted.on_node)
        elif result.outcome and result.outcome.node is not None:
            labels = labels_of(state_of(result.outcome.node).fields)
        else:
            return []
        sent, self._sent = self._sent, {}
        return [
            (change, at) for change, at in sent.values() if labels.get(change.key) == change.after
        ]

    def _would_change(self, wanted: Change) -> list[LabelChange]:
        """Return the changes since a dry run wanted some before: the Node stays as it is."""
        before, self._wanted = self._wanted, {change.key: change for change in wanted.label_changes}
        steps = []
        for key in sorted(before.keys() | self._wanted.keys()):
            on_node = (self._wanted.get(key) or before[key]).before
            unchanged = LabelChange(key, on_node, on_node)
            was, now = (changes.get(key, unchanged).after for changes in (before, self._wanted))
            if was != now:
                steps.append(LabelChange(key, was, now))
        return steps

    def _by_others(self, change: LabelChange, result: Result, wanted: Change) -> str | None:
        """Return what another writer did to the label since the last answer; None if none did."""
        was, now = self._labels.get(change.key), change.before
        if wanted.uid != self._uid or now == was:
            return None
        taken = result.outcome.taken if result.outcome else ()
        writers = {field.key: field.manager for field in taken}
        writer = writers.get(change.key, "another writer")
        if was is None:
            return f"{writer} had added it"
        return f"{writer} had removed it" if now is None else f"{writer} had changed it from {was}"

    def _cause(self, change: LabelChange, cycle: Cycle) -> str | None:
        if change.after is None and change.key in self.holds.expired:
            return self.holds.expired[change.key]
        return reason_of(change, cycle.observation, cycle.known, self._keys, self._rows)

    def _log_change(self, change: LabelChange, reason: str | None, **times: str) -> None:
        self._is_verified = True
        message = f"label would be {change.verb}" if self._dry_run else f"label {change.verb}"
        fields = {"key": change.key, "from": change.before, "to": change.after}
        self._log.info(message, **fields, reason=reason, **times)


class Holds:
    """The holds of one Node's labels: since when each lasts, and why.

    A hold that ends within LINE_DELAY has no line: after each start all neighbor labels are held
    until the first frames arrive, and a link may go down for a moment.
    """

    def __init__(self) -> None:
        # Since when, and the value then; None: that of the Node, as of a frozen label
        self._began: dict[str, tuple[float, str | None]] = {}
        self._reasons: dict[str, HoldReason] = {}
        # Of labels that are gone: how long each was held, and why
        self.expired: dict[str, str] = {}
        self.count = 0  # of holds that have expired

    def observed(self, rendered: Rendered, now: float) -> list[Condition]:
        """Take the holds of an observation; return those of which the log has a line."""
        labels, began, reasons = rendered.labels, self._began, self._reasons
        self._reasons = kept = rendered.kept
        self._began = {key: began.get(key, (now, labels.get(key))) for key in kept}
        present = labels.keys() | kept
        self.expired = {key: text for key, text in self.expired.items() if key not in present}
        for key, (since, _) in began.items():
            if key in rendered.incomplete and key not in labels:
                self.expired[key] = f"not observed for {now - since:.0f}s: {reasons[key].text}"
                self.count += 1
        return [
            Condition(
                "label held",
                "label no longer held",
                {"key": key, "value": value, "reason": f"{kept[key]}: {kept[key].text}"},
                is_fault=False,
            )
            for key, (since, value) in self._began.items()
            if now >= since + LINE_DELAY
        ]


# Why a label has another value.


def reason_of(
    change: LabelChange, seen: Observation, known: Known, keys: Keys, before: Sequence[Fact] = ()
) -> str | None:
    """Return the cause of a label's new value or removal; None if the value itself explains it.

    `before` has the rows that were applied before; (): unknown.
    """
    name = change.key.rpartition("/")[2]
    if change.key == keys.accelerator:
        return seen.accelerator.text or seen.accelerator.reason
    if keys.family(Field(LABEL, change.key)) == FORMER:
        return "its prefix is a former one"
    if interface := keys.interface(change.key):
        return _of_link(interface, seen, known, before)
    if name in OF_NEIGHBORS:
        return _of_neighbors(seen, known, before, is_group=name == "leafgroup.current")
    if isinstance(seen.rdma, Failed) or not seen.is_asked("rdma"):
        return seen.rdma.reason if isinstance(seen.rdma, Failed) else SWITCHED_OFF
    states = _states(seen, known)
    if name == "speed.current":
        reasons = _of_counts(seen, known, states, () if change.before is None else before)
    else:
        names = {"", *(fact.interface for fact in known.facts)}
        gone = (fact for fact in before if fact.interface not in names)
        reasons = [f"{fact.interface} is {_absence(fact, seen, known)}" for fact in gone]
    return listed(reasons, MAX_NAMED) or (None if states else "no backend port")


def _of_link(interface: str, seen: Observation, known: Known, before: Iterable[Fact]) -> str | None:
    """Return the reason for a neighbor label of a port."""
    for link in seen.links:
        if link.interface == interface:
            return link.missing
    for fact in known.facts:
        if fact.interface == interface:
            return fact.far_why.text if fact.far_why else SWITCHED_OFF
    rows = [fact for fact in (*known.lost, *before) if fact.interface == interface]
    row = rows[0] if rows else Fact(interface, None)
    return f"{row if row in known.lost else interface} is {_absence(row, seen, known)}"


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


def _states(seen: Observation, known: Known) -> dict[str, str]:
    """Return the state of each interface that counts, or did, in words."""
    states = {
        fact.interface: "not read any more" if fact.state_ended else f"not read ({fact.state_why})"
        for fact in known.facts
        if fact.state_ended or fact.state_why
    }
    states |= {fact.interface: GONE for fact in known.lost}
    return states | {role.interface: role.port.state or "unknown" for role in seen.backend}


def _of_counts(
    seen: Observation, known: Known, states: Mapping[str, str], before: Iterable[Fact]
) -> list[str]:
    """Return the ports that count otherwise than before; where that is unknown, the idle ones."""
    rows = {fact.interface: fact for fact in before}
    now = {fact.interface: fact.gbps for fact in known.facts}
    then = {name: fact.gbps for name, fact in rows.items() if fact.gbps is not None}
    if not then:
        return [f"{name} is {state}" for name, state in states.items() if state != IN_USE]
    reasons = []
    for name in sorted(now.keys() | rows.keys(), key=natural):
        row = rows.get(name, Fact(name, None))
        gbps, state = now.get(name), states.get(name) or _absence(row, seen, known)
        if state == IN_USE and then.get(name) and gbps not in {None, then[name]}:
            reasons.append(f"{name} has {gbps:g} Gb/s")
        elif gbps != then.get(name):
            reasons.append(f"{name} is {state}")
    return reasons


def _of_neighbors(
    seen: Observation, known: Known, before: Sequence[Fact], *, is_group: bool
) -> str | None:
    """Return the ports with another neighbor than before; the leaf group has the last ones."""
    if not (seen.is_asked("lldp") or seen.is_asked("ib")):
        return SWITCHED_OFF
    now, then = (_far_ends(rows, is_group=is_group) for rows in (known.facts, before))
    words = {fact.interface: _absence(fact, seen, known) for fact in before}
    words |= {fact.interface: SWITCHED_OFF for fact in known.facts}
    words |= {fact.interface: fact.far_why.text for fact in known.facts if fact.far_why}
    words |= {link.interface: link.missing for link in seen.links if link.missing} | now
    names = sorted({name for name, _ in now.items() ^ then.items()}, key=natural)
    return listed([f"{name}: {words[name]}" for name in names if before], MAX_NAMED) or None


def _far_ends(rows: Iterable[Fact], *, is_group: bool) -> dict[str, str]:
    """Return device and port of each port's far end, by interface."""
    ends = {row.interface: (row.last_far if is_group else None) or row.far for row in rows}
    return {name: f"{far.device} {far.port_id}" for name, far in ends.items() if far and name}
