"""The Node in the commands `probe`, `explain` and `doctor`: get it first, apply last.

Invariants:
- A Node that cannot be read ends a command before it changes anything.
- Changes, made or planned, are returned as lines for an operator, in the form of a diff:

    + key=value          the Node gets the label
    - key=value          the Node loses it; a changed value is a - and a + line
    = key=value          left alone, or not published, with the managers that own it
    ! key                refused, with the API server's message, or `the same` as the key before
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.check import Check, Step, absent, missing, there
from agent.encode import Naming
from agent.kube import MANAGER
from agent.kube.annotation import (
    Annotation,
    annotation_of,
    fabric_of,
    interface_document,
    is_stale,
    lost_in,
    without_future,
)
from agent.kube.answers import ANOTHER_HOST, Failure, Kube, one_line
from agent.kube.change import Change, Desired, ForeignField, LabelChange, change_to, managers_text
from agent.kube.managed_fields import (
    ANNOTATION,
    LABEL,
    Field,
    Keys,
    Node,
    State,
    labels_of,
    owned_labels,
    state_of,
)
from agent.kube.negotiation import Outcome, negotiate
from agent.kube.nodes import error_of, get_node, of_this_host
from agent.kube.policy import INSTALL, check_policy
from agent.kube.remembered import annotate, published, switches
from agent.labels.render import Rendered
from agent.memory import Known, Memory, remembered
from agent.model import Observation, Problem
from agent.nvml.domain import conflicts
from agent.sources.pci import place
from agent.text import many, missing_since, utc

if TYPE_CHECKING:
    from agent.host import Host

NODES = "kubectl get nodes (then --node-name NAME)"
COMMANDS = {  # by the kind of a failure
    ANOTHER_HOST: NODES,
    "configuration": "export KUBECONFIG=FILE (or --no-cluster, where there is none)",
    "forbidden": "kubectl auth can-i get node/{node}",
    "not-found": NODES,
    "unauthorized": "kubectl auth whoami",
}
OTHER = "kubectl get --raw /readyz"
VERBS = {"added": "add", "changed": "change", "removed": "remove"}
# Whoever looks into the rights of a Pod's account is another user.
_ACCOUNT = re.compile(r'User "(system:serviceaccount:[a-z0-9.:-]+)"')


@dataclass(frozen=True, slots=True)
class Target:
    """The Node to label, as it was before."""

    kube: Kube
    node: Node
    keys: Keys
    state: State  # of the Node
    annotation: Annotation | None  # None: missing or malformed
    previous: Mapping[str, str]  # the owned labels; they are held if their sources fail now

    @property
    def interfaces(self) -> dict[str, str]:
        """The PCI address of each interface in the annotation."""
        return self.annotation.addresses if self.annotation else {}

    def completed(self, host: Host, observation: Observation) -> tuple[Observation, Known]:
        """Return the observation, and what is known by it and the Node; no hold ends."""
        now, globs = time.clock_gettime(time.CLOCK_BOOTTIME), (host.excluded, host.backend)
        known = self.annotation, self.previous, self.keys
        memory = Memory(math.inf, settle=0.0, started=now)
        memory.seed(published(*known, observation.boot_id, globs), now)
        completed, known_now = memory.complete(observation, partial(place, host), now)
        fabric = remembered(fabric_of(self.state, self.keys)[0], completed, known_now)
        off = known_now.off if completed.tiers else known_now.off | {"tiers"}
        return completed, known_now._replace(fabric=fabric, off=off)

    def switches(self) -> dict[str, tuple[str, str | None]]:
        """Return node GUID and NodeDescription of each interface's last far end."""
        return switches(published(self.annotation, self.previous, self.keys, None).rows)

    def problems(self, observation: Observation) -> list[Problem]:
        """Return the disagreements of other agents' labels with the observation."""
        return list(conflicts(observation, labels_of(self.state.fields)))

    def facts(self, key: str) -> dict[str, Any]:
        """Return one label as the Node has it: value, field managers, and the annotation's facts.

            {"value": "3200G", "managers": ["bwagent"], "agent": "0.1.0", "boot_id": "...",
             "observed": "2026-11-22T09:30:00Z", "interfaces": [{"interface": "ibp0", ...}]}

        `observed` and `boot_id` are of the last full observation; what is unknown is null.
        `interfaces` has the rows of the interface that the key names, or all rows where it names
        none.
        """
        state, field = self.state, Field(LABEL, key)
        own = [MANAGER] if field in state.managed else []
        annotation = self.annotation or Annotation(None, None, agent="")
        interface = self.keys.interface(key)
        rows = [interface_document(row) for row in annotation.interfaces]
        rows += [
            {**interface_document(row), "lost_since": _time(row.lost_since or None)}
            for row in annotation.lost
        ]
        return {
            "value": state.fields.get(field),
            "managers": [*own, *state.others.get(field, ())],
            "agent": annotation.agent or None,
            "boot_id": annotation.boot_id,
            "observed": _time(annotation.time),
            "reported": _time(annotation.reported.time),
            "interfaces": [row for row in rows if interface in (None, row["interface"])],
        }


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else utc(seconds)


def target(kube: Kube, name: str, naming: Naming, former: Collection[str] = ()) -> Target:
    """Get the Node; raises Unavailable with the reason if that fails.

    Raises Misdirected for that of another host (agent/kube/nodes.py).
    """
    node = get_node(kube, name)
    if isinstance(node, Failure):
        raise error_of(node, name)
    keys, state = Keys(naming, former), state_of(node)
    annotation = without_future(annotation_of(state, keys)[0], time.time())
    return Target(kube, node, keys, state, annotation, owned_labels(state, keys))


def planned(
    on: Target, observation: Observation, known: Known, rendered: Rendered
) -> tuple[Change, list[str]]:
    """Return the change for an observation, and its lines; due if the annotation is stale, too."""
    before, now = on.annotation, time.time()
    annotation = replace(annotate(observation, known, before), prefixes=on.keys.written)
    frozen, fabric = frozenset(rendered.frozen), known.fabric
    if observation.tiers is None:  # not asked for: what the Node has of the tiers stays
        frozen, fabric = frozen | {on.keys.fabric_field.key}, None
    desired = Desired(
        rendered.labels,
        annotation,
        now=now,
        frozen=frozen,
        confirmed=lost_in(before),
        fabric=fabric,
    )
    todo = change_to(on.node, desired, on.keys)
    todo = replace(todo, has_news=todo.has_news or is_stale(before, now))
    problems = [f"{problem.subject}: {problem.text}" for problem in todo.problems]
    return todo, [*planned_lines(todo), *problems]


def publish(on: Target, todo: Change) -> tuple[list[str], str | None]:
    """Apply a change if it is due; return the lines of what was done, and of a failure."""
    if not todo.is_due:
        return planned_lines(todo), None
    outcome = negotiate(todo, on.kube, is_current=False)
    return done_lines(outcome), outcome.fault


def check(kube: Kube, name: str, boot_id: str | None) -> Check:
    """Get the Node, for `doctor` on the host with this boot ID."""
    response = get_node(of_this_host(kube, boot_id), name)
    if isinstance(response, Failure):
        command = COMMANDS.get(response.kind, OTHER).format(node=name)
        account = response.kind == "forbidden" and _ACCOUNT.search(response.text)
        more = f" --as={account[1]}" if account else ""
        return missing(Step.CLUSTER, response.text, command + more)
    return there(f"Node {name} can be read")


def check_admission(kube: Kube, name: str) -> Check:
    """Try a change of the Node that the admission policy has to refuse, as a dry run."""
    state = check_policy(kube, name)
    if state.in_force is None:
        return absent(f"admission policy not checked: {state.text}")
    if state.in_force:
        return there("admission policy in force")
    return missing(Step.CLUSTER, f"admission policy not in force: {state.text}", INSTALL)


def planned_lines(change: Change) -> list[str]:
    """Return what the change would do to the Node; the first line sums them up."""
    counts = Counter(change.verb for change in change.label_changes)
    todo = ", ".join(f"{VERBS[verb]} {counts[verb]}" for verb in sorted(counts))
    summary = todo and f"would {todo} label{'s' * (len(change.label_changes) != 1)}"
    if change.only_forgets and not todo:
        summary = f"would forget {many(len(change.forgotten), 'lost interface')}"
    return [
        f"Node {change.node}: {summary or 'no label changes'}",
        *_diff(change.label_changes),
        *_removed_annotations(change),
        *(f"- lost {row}, {missing_since(row.lost_since or None)}" for row in change.forgotten),
        *map(_left_alone, change.left_alone),
        *_foreign(change),
        *(f"  {key}: unchanged, recently refused" for key in change.postponed),
    ]


def done_lines(outcome: Outcome) -> list[str]:
    """Return the changes that were made, then the keys taken over, left alone and refused."""
    change, changes = outcome.change, outcome.changes
    if change.only_forgets and outcome.is_complete:
        summary = f"{many(len(change.forgotten), 'lost interface')} forgotten"
    elif changes:
        verbs = {change.verb for change in changes}
        verb = verbs.pop() if len(verbs) == 1 else "changed"
        summary = f"{many(len(changes), 'label')} {verb}"
    elif outcome.failure and outcome.failure.maybe_done:
        summary = "outcome unknown"
    else:
        summary = "up to date" if outcome.is_complete else "nothing applied"
    texts = [refusal.text for refusal in outcome.refused]
    return [
        f"Node {change.node}: {summary}",
        *_diff(changes),
        *(_removed_annotations(change) if outcome.is_complete else []),
        *map(_left_alone, outcome.left_alone),
        *_foreign(change),
        *(
            f"  {field.key}: taken over from {one_line(field.manager)}"
            + ("" if field.value is None else f" ({field.value})")
            for field in outcome.taken
        ),
        # A message that is about several keys is there once.
        *(
            f"! {refusal.key}: refused: {'the same' if refusal.text == before else refusal.text}"
            for before, refusal in zip([None, *texts], outcome.refused, strict=False)
        ),
    ]


def _diff(changes: Iterable[LabelChange]) -> Iterable[str]:
    for key, before, after in changes:
        if before is not None:
            yield f"- {key}={before}"
        if after is not None:
            yield f"+ {key}={after}"


def _removed_annotations(change: Change) -> list[str]:
    """Return a line for an annotation that goes; a changed annotation is not worth a line."""
    return [f"- annotation {key}" for kind, key in sorted(change.gone) if kind == ANNOTATION]


def _foreign(change: Change) -> Iterable[str]:
    for field in change.foreign:
        managers = one_line(managers_text(field.managers))
        yield f"= {field.key}={field.value}: not published, held by {managers}"
    if change.foreign:
        yield f"  bwagent cleanup --foreign --node-name {change.node} removes what is not published"


def _left_alone(field: ForeignField) -> str:
    managers = one_line(managers_text(field.managers))
    wanted = f"; bwagent wants {field.wanted}" if field.wanted is not None else ""
    return f"= {field.key}={field.value or '?'}: left alone, held by {managers}{wanted}"
