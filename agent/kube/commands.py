"""The Node in the command `probe`: get it first, plan, apply last.

Invariants:
- A Node that cannot be read ends a command before it changes anything.
- Changes, made or planned, are returned as lines for an operator.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.kube import diff
from agent.kube.annotation import (
    annotate,
    annotation_of,
    is_stale,
    lost_in,
    published_counts,
    without_future,
)
from agent.kube.errors import Failure
from agent.kube.last_neighbors import NeighborMemory
from agent.kube.last_switches import last_switches
from agent.kube.lost import Losses
from agent.kube.managed_fields import keys_of, labels_of, owned_labels, state_of
from agent.kube.negotiation import apply, get_node
from agent.kube.plan import Desired, plan
from agent.labels.counts import PortCounts
from agent.sources.table import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.host import Host
    from agent.kube.annotation import Annotation
    from agent.kube.managed_fields import Keys, Node
    from agent.kube.negotiation import Outcome
    from agent.kube.plan import Plan
    from agent.kube.transport import Kube
    from agent.labels.render import Rendered
    from agent.labels.table import Naming
    from agent.model import Observation, Problem


@dataclass(frozen=True, slots=True)
class Target:
    """The Node to label, as it was before."""

    kube: Kube
    node: Node
    keys: Keys

    def previous(self) -> dict[str, str]:
        """Return the owned labels; they are held if their sources fail now."""
        return owned_labels(self.node, self.keys)

    def annotation(self) -> Annotation | None:
        """Return the annotation; None for none or a malformed one."""
        found, _ = annotation_of(state_of(self.node), self.keys)
        return without_future(found, time.time())

    def interfaces(self) -> dict[str, str]:
        """Return the PCI address of each interface in the annotation."""
        annotation = self.annotation()
        return annotation.addresses if annotation else {}

    def completed(self, host: Host, observation: Observation) -> Observation:
        """Return the observation with what the annotation knows of interfaces.

        That is what those counted last that cannot be read, those that left the bus, and the last
        neighbors.
        """
        last, memory, annotation = PortCounts(math.inf), NeighborMemory(), self.annotation()
        last.seed(published_counts(annotation, self.previous(), self.keys), 0.0)
        trusted = memory.seed(annotation, self.previous(), self.keys)
        found = Losses().apply(host, last.apply(observation, 0.0), annotation)
        return memory.apply(found, trusted)

    def switches(self) -> dict[str, tuple[str, str | None]]:
        """Return node GUID and NodeDescription of each interface's last far end."""
        return last_switches(self.annotation(), self.previous(), self.keys)

    def problems(self, observation: Observation) -> list[Problem]:
        """Return the disagreements of other agents' labels with the observation."""
        labels = labels_of(state_of(self.node).fields)
        return [problem for source in SOURCES for problem in source.conflicts(observation, labels)]


def target(kube: Kube, name: str, naming: Naming, former: Iterable[str] = ()) -> Target:
    """Get the Node; raises Unavailable with the reason if that fails."""
    return Target(kube, _required(get_node(kube, name)), keys_of(naming, former))


def _required(node: Node | Failure) -> Node:
    if isinstance(node, Failure):
        raise Unavailable(node.text)
    return node


def planned(on: Target, observation: Observation, rendered: Rendered) -> tuple[Plan, list[str]]:
    """Return the plan for an observation, and its lines; due if the annotation is stale, too."""
    todo = _plan(on, observation, rendered.labels)
    problems = [f"{problem.subject}: {problem.text}" for problem in todo.problems]
    return todo, [*diff.planned(todo), *problems]


def _plan(on: Target, observation: Observation, labels: Mapping[str, str]) -> Plan:
    before = on.annotation()
    annotation = annotate(observation, labels, on.keys, before)
    desired = Desired(labels, annotation, now=time.time(), confirmed=lost_in(before))
    todo = plan(on.node, desired, on.keys)
    is_refresh = todo.updates_annotation and is_stale(before, time.time())
    return replace(todo, due=todo.due or is_refresh)


def publish(on: Target, todo: Plan) -> tuple[list[str], str | None]:
    """Apply a plan if it is due; return the lines of what was done, and of a failure."""
    if not todo.due:
        return diff.planned(todo), None
    outcome = apply(on.kube, todo, is_current=False)
    return diff.done(outcome), fault_of(outcome)


def fault_of(outcome: Outcome) -> str | None:
    """Return the failure of an outcome, or its first refused key, as one line; None without one."""
    if outcome.failure:
        return outcome.failure.text
    if outcome.refused:
        return f"keys refused: {len(outcome.refused)}, the first is {outcome.refused[0].key}"
    return None
