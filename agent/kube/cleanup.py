"""The command `cleanup`: what it removes from Nodes, and what remains on them.

Invariants:
- Removing is applying less: the request carries none of the owned fields, and the API server
  removes what managedFields list for manager `bwagent`. A field that another manager has too stays,
  and so do fields outside the label table.
- What remains is read from the Nodes afterwards, so it is what is there, not what was planned.
- Keys of other managers (`--foreign`) are removed by their names, and only with the values and the
  managers that were shown: an agent, or another labeler, may have taken one over since.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Unavailable
from agent.kube.annotation import MAX_AGE
from agent.kube.commands import fault_of
from agent.kube.diff import done
from agent.kube.errors import Failure, failure_of
from agent.kube.foreign import kubectl_removal, managers_text, removal_patch, unpublished
from agent.kube.former import cleanup_command
from agent.kube.managed_fields import IB, LABEL, Field, P, prefix_of, state_of
from agent.kube.negotiation import apply, exchange, get_node, list_nodes
from agent.kube.plan import forgetting, removal
from agent.kube.sweep import Step
from agent.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.kube.managed_fields import Keys, Node, State
    from agent.kube.plan import Plan
    from agent.kube.transport import Kube

MAX_KEYS = 5  # named in one line
MAX_PATCH = 4000  # labels; the API server takes 10,000 operations
MAX_READS = 4  # of a Node that others change all the time
CHANGED = "its labels or their managers have changed since they were shown; repeat the command"
CONTENDED = "others change it all the time; repeat the command"


class Removal(NamedTuple):
    """Labels of other managers on one Node."""

    node: str
    uid: str
    labels: Mapping[str, str]
    managers: Mapping[str, tuple[str, ...]]  # of each label


def nodes(kube: Kube, name: str | None) -> Iterator[Node]:
    """Yield one Node, or all Nodes (None); raises Unavailable if one cannot be read."""
    for node in list_nodes(kube) if name is None else [get_node(kube, name)]:
        if isinstance(node, Failure):
            raise Unavailable(node.text)
        yield node


def removals(found: Iterable[Node], keys: Keys) -> list[Plan]:
    """Return the plans for the Nodes that have anything to remove or to report."""
    plans = (removal(node, keys) for node in found)
    return [plan for plan in plans if plan.due or plan.left_alone or plan.outside]


def losses(found: Iterable[Node], keys: Keys) -> list[Plan]:
    """Return the plans that remove the lost interfaces from annotations, or that cannot."""
    plans = [forgetting(node, keys) for node in found]
    return [plan for plan in plans if plan.due or unforgotten(plan)]


def unforgotten(plan: Plan) -> list[str]:
    """Return the lines about an annotation whose lost interfaces cannot be removed."""
    own = plan.keys.annotation_field
    held = [one for one in plan.left_alone if Field(one.kind, one.key) == own]
    command = kubectl_removal(plan.node, own)
    return [
        *(f"Node {plan.node}: {one.subject}: {one.text}" for one in plan.problems),
        *(
            f"Node {plan.node}: lost interfaces not removed, {one.key} is held by "
            f"{managers_text(one.managers)}; {command} removes the annotation"
            for one in held
        ),
    ]


def foreign_removals(found: Iterable[Node], keys: Keys, manager: str | None) -> list[Removal]:
    """Return the labels under P and IB that manager `bwagent` does not own.

    With a manager, those that it alone has.
    """
    states = map(state_of, found)
    each = [_foreign(state, keys, manager) for state in states]
    return [one for one in each if one.labels]


def _foreign(state: State, keys: Keys, manager: str | None) -> Removal:
    fields = [
        field
        for field in sorted(unpublished(state, frozenset(), keys))
        if manager is None or state.others.get(field) == (manager,)
    ]
    labels = {field.key: state.fields[field] for field in fields}
    managers = {field.key: state.others.get(field, ()) for field in fields}
    return Removal(state.name, state.uid, labels, managers)


def of_removal(one: Removal) -> list[str]:
    """Return the lines that name each label with its value and managers."""
    return [
        f"Node {one.node}: {len(one.labels)} of other managers",
        *(
            f"- {key}={value}, held by {managers_text(one.managers[key])}"
            for key, value in one.labels.items()
        ),
    ]


def remove_owned(kube: Kube, plan: Plan) -> Step:
    """Carry out a plan of `removals`."""
    outcome = apply(kube, plan, is_current=False)
    node, fault = f"Node {plan.node}: ", fault_of(outcome)
    kind = outcome.failure.kind if outcome.failure else None
    return Step(done(outcome)[0], fault and node + fault.removeprefix(node), kind)


def remove_foreign(kube: Kube, one: Removal) -> Step:
    """Remove the labels of other managers, by requests of up to MAX_PATCH labels.

    If one of a request's labels has changed, or has other managers, all of them stay.
    """
    keys = sorted(one.labels)
    for start in range(0, len(keys), MAX_PATCH):
        labels = {key: one.labels[key] for key in keys[start : start + MAX_PATCH]}
        if failure := _patch(kube, one, labels):
            removed = f"Node {one.node}: {start} of {_labels_text(keys)} removed"
            return Step(removed, failure.text, failure.kind)
    return Step(f"Node {one.node}: {_labels_text(keys)} removed")


def _labels_text(keys: Sequence[str]) -> str:
    return f"{len(keys)} label{'s' * (len(keys) != 1)}"


def _patch(kube: Kube, one: Removal, labels: Mapping[str, str]) -> Failure | None:
    """Remove these labels; a refused request is repeated if the Node has changed meanwhile."""
    fault, version = None, None
    for _ in range(MAX_READS):
        state = _as_shown(kube, one, labels)
        if isinstance(state, Failure):
            return state
        if state.version == version:
            return fault
        refusal, version = _try(kube, state, labels), state.version
        if refusal is None or refusal.kind != "refused":
            return refusal
        fault = refusal
    return Failure("conflict", f"Node {one.node}: {CONTENDED}")


def _as_shown(kube: Kube, one: Removal, labels: Mapping[str, str]) -> State | Failure:
    """Read the Node again; a Failure if these labels are not as they were shown."""
    node = get_node(kube, one.node)
    if isinstance(node, Failure):
        return node
    state = state_of(node)
    is_as_shown = _is_as_shown(one, labels, state)
    return state if is_as_shown else Failure("conflict", f"Node {one.node}: {CHANGED}")


def _is_as_shown(one: Removal, labels: Mapping[str, str], state: State) -> bool:
    """Return True if these labels have the same values and managers on the same Node."""
    fields = {Field(LABEL, key): value for key, value in labels.items()}
    return (
        state.uid == one.uid
        and fields.items() <= state.fields.items()
        and not fields.keys() & state.managed
        and all(state.others.get(field, ()) == one.managers[field.key] for field in fields)
    )


def _try(kube: Kube, state: State, labels: Iterable[str]) -> Failure | None:
    """Remove labels from this version of the Node."""
    patch = removal_patch(state, labels)
    answer = exchange(kube, {"operation": "patch", "node": state.name, "body": patch})
    return None if answer.accepted else failure_of(answer, state.name)


def recently_labeled(plans: Iterable[Plan], now: float) -> list[str]:
    """Return the Nodes that manager `bwagent` has changed within MAX_AGE; an agent may run there.

    It writes at least the time of its annotation anew, every hour. `now` is in seconds since the
    epoch, and may differ from the API server's clock by as much.
    """
    return [
        plan.node
        for plan in plans
        if plan.written is not None and abs(now - plan.written) < MAX_AGE
    ]


def elsewhere(plans: Iterable[Plan]) -> dict[str, list[str]]:
    """Return the Nodes with labels of manager `bwagent` under other prefixes, by prefix."""
    found = defaultdict[str, list[str]](list)
    for plan in plans:
        for prefix in sorted({prefix_of(field) or "" for field in plan.outside} - {""}):
            found[prefix].append(plan.node)
    return dict(found)


def of_elsewhere(found: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each other prefix, with the command that cleans it up."""
    return [
        f"{prefix}: labels of manager bwagent on {_nodes_text(names)}; "
        f"{cleanup_command(prefix)} {_selection(names)} removes them"
        for prefix, names in found.items()
    ]


def _nodes_text(names: Sequence[str]) -> str:
    return f"Node {names[0]}" if len(names) == 1 else f"{len(names)} Nodes"


def _selection(names: Sequence[str]) -> str:
    return f"--node-name {names[0]}" if len(names) == 1 else "--all"


class Remains(NamedTuple):
    """The state of the Nodes after a cleanup."""

    keys: tuple[str, ...] = ()  # a line for each Node with keys that could not be removed
    labeled_again: tuple[str, ...] = ()  # Nodes on which an agent still runs


def labeled_between(before: Iterable[Plan], after: Iterable[Plan]) -> list[str]:
    """Return the Nodes on which manager `bwagent` has set fields between two reads."""
    known = {plan.uid: plan.managed.items() for plan in before}
    return [plan.node for plan in after if plan.managed.items() - known.get(plan.uid, set())]


def remains(plans: Sequence[Plan], after: Iterable[Node]) -> Remains:
    """Compare the Nodes with the plans that were carried out for them.

    A Node that has owned fields again was labeled by an agent since.
    """
    planned = {plan.uid: plan for plan in plans}
    states = [(planned[state.uid], state) for state in map(state_of, after) if state.uid in planned]
    lines = (_remaining(plan, state) for plan, state in states)
    again = [state.name for plan, state in states if plan.keys.in_table(state.managed_values())]
    return Remains(tuple(filter(None, lines)), tuple(again))


def _remaining(plan: Plan, state: State) -> str:
    """Return the line about the fields that were to be removed and are another manager's."""
    left_alone = {Field(one.kind, one.key) for one in plan.left_alone}
    before = plan.keys.in_table(plan.managed) | left_alone
    fields = sorted(before & state.fields.keys() - state.managed)
    if not fields:
        return ""
    held = defaultdict[str, list[str]](list)
    for field in fields:
        held[managers_text(state.others.get(field, ()))].append(field.key)
    owners = "; ".join(f"held by {owner}: {listed(keys, MAX_KEYS)}" for owner, keys in held.items())
    commands = "; ".join(_commands(plan, fields))
    return f"Node {state.name}: not removed, {owners}; to remove: {commands}"


def _commands(plan: Plan, fields: Iterable[Field]) -> Iterator[str]:
    """Yield what removes these fields, whoever owns them."""
    removable = plan.keys.of_families(fields, (P, IB))
    if removable:
        yield f"this command with --foreign --node-name {plan.node}"
    for field in fields:
        if field not in removable:
            yield kubectl_removal(plan.node, field)
