"""The last leaf of each port that the agent may remember; the oracle's `leafgroup.current`.

    a neighbor that must have been observed     it is the last one
    one that may have been observed             it, or one from before
    none                                        one from before
    the function is off the bus                 none; the one from before, or none, when it is back
    a port has another leaf, and none that      those of the other ports, or none: the node may have
    must have been observed has its last one    been moved

Shares no code with the agent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.outcome import NONE, Outcome, grouped

Leaves = frozenset[str | None]


NO_LEAF: Leaves = frozenset({None})


@dataclass(slots=True)
class _Port:
    """One port; `may_be` are its last leaves, None for none."""

    may_be: Leaves = NO_LEAF
    outcome: Outcome = field(default_factory=Outcome)
    observed_by: float = math.inf  # when the agent must have observed the outcome
    gone: bool = False
    up: bool = False

    @property
    def seen(self) -> Leaves:
        """The leaves that it may have now."""
        values = (value for value in self.outcome.now if isinstance(value, tuple))
        return frozenset(value[0] for value in values)

    @property
    def is_certain(self) -> bool:
        """True if it has one of these leaves for certain."""
        is_sure = None not in self.outcome.now and not self.outcome.held
        return bool(self.seen) and is_sure and self.up

    @property
    def may_have_another(self) -> bool:
        """True if the agent may take over another leaf than the last one now."""
        is_other = len((self.may_be | self.seen) - NO_LEAF) > 1
        return bool(self.seen) and (is_other or bool(self.seen - self.may_be))

    @property
    def part(self) -> Leaves:
        """What it may add to the group."""
        if self.gone:
            return self.may_be | NO_LEAF if self.outcome.held else NO_LEAF
        return self.seen if self.is_certain else self.may_be | self.seen


class LastLeaves:
    """The ports of a node, by PCI address."""

    def __init__(self) -> None:
        self._ports: dict[str, _Port] = {}

    def note(self, found: Mapping[str, tuple[Outcome, bool, bool]], now: float, by: float) -> None:
        """Take over of each port its neighbor, if its function is off the bus, if its link is up.

        The neighbor of a link that went down a moment ago is no evidence of where the node is.
        """
        for pci, (outcome, gone, is_up) in found.items():
            port = self._ports.setdefault(pci, _Port())
            port.up = is_up
            self._note(port, outcome, now, by)
            port.may_be |= NO_LEAF if gone else frozenset()
            port.gone = gone

    def _note(self, port: _Port, outcome: Outcome, now: float, by: float) -> None:
        if outcome != port.outcome:
            port.outcome, port.observed_by = outcome, by
        if port.may_have_another:
            self._may_have_moved(port, now)
        port.may_be |= port.seen
        if port.is_certain and now >= port.observed_by:
            port.may_be = port.seen

    def _may_have_moved(self, moved: _Port, now: float) -> None:
        """Handle another leaf of a port; unless another port has its last one, all may forget."""
        others = [port for port in self._ports.values() if port is not moved and not port.gone]
        certain = (port for port in others if port.is_certain and now >= port.observed_by)
        if not any(port.seen == port.may_be for port in certain):
            for port in others:
                port.may_be |= NO_LEAF

    def outcome(self, *, is_clouded: bool) -> Outcome:
        """Return the outcome of the label."""
        ports = self._ports.values()
        certain = all(port.is_certain or port.outcome.now == NONE for port in ports)
        certain &= not any(port.outcome.held for port in ports)
        return grouped([port.part for port in ports], certain=certain and not is_clouded)

    def next_changes(self) -> list[float]:
        """Return the times at which what is remembered becomes certain."""
        return [port.observed_by for port in self._ports.values() if port.may_be != port.seen]

    def begin(self, rows: Mapping[str, Any], groups: frozenset[Any]) -> None:
        """Start a new agent, which read these rows of the annotation, by PCI address.

        They count if they make up the group on the Node; else it may forget them.
        """
        ends = {pci: leaf(row.get("neighbor", {})) for pci, row in rows.items()}
        last = grouped([frozenset({end}) for end in ends.values()], certain=True).now
        for pci, port in self._ports.items():
            unsure = port.may_be if pci not in rows else frozenset()
            unsure |= frozenset() if last <= groups else NO_LEAF
            port.may_be = unsure | {ends.get(pci)} | port.seen


def leaf(neighbor: Mapping[str, str]) -> str | None:
    """Return the name of a switch in a row of the annotation."""
    raw = neighbor.get("name") or neighbor.get("id")
    return raw.removeprefix("MF0;").partition(":")[0] if raw else None
