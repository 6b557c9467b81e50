"""The command `cleanup`: what it removes from Nodes, and what remains on them.

Invariants:
- Removing is applying less: the request carries none of the owned fields, and the API server
  removes what managedFields list for manager `bwagent`. A field that another manager has too stays,
  and so do fields outside the label table.
- What remains is read from the Nodes afterwards, so it is what is there, not what was planned.
- Keys of other managers (`--foreign`) are removed by their names, and only with the values and the
  managers that were shown: an agent, or another labeler, may have taken one over since.
- Several Nodes are cleaned at a time. A failure of one Node stops no other; MAX_FAILURES in a row
  that are the server's do.
- Whatever ends a cleanup, requests that were sent are waited for, and `Sweep.remaining` has the
  other Nodes. A second cleanup finds these again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

from agent.errors import Unavailable
from agent.kube.annotation import MAX_AGE
from agent.kube.answers import Failure, Kube, failure_of
from agent.kube.api import MAX_CONNECTIONS
from agent.kube.diff import done
from agent.kube.managed_fields import (
    IB,
    LABEL,
    Field,
    Keys,
    Node,
    P,
    State,
    prefix_of,
    state_of,
)
from agent.kube.negotiation import exchange, get_node, list_nodes, negotiate
from agent.kube.ownership import cleanup_command, kubectl_removal, managers_text, owned
from agent.kube.plan import Plan, forgetting, removal
from agent.limits import thread_fault
from agent.text import listed

MAX_KEYS = 5  # named in one line
MAX_PATCH = 4000  # labels; the API server takes 10,000 operations
MAX_READS = 4  # of a Node that others change all the time
MAX_FAILURES = 8  # in a row
# The kinds of failure that another Node need not have; see agent/kube/answers.py.
OF_ONE_NODE = frozenset({"conflict", "not-found", "recreated", "refused"})
CHANGED = "its labels or their managers have changed since they were shown; repeat the command"
CONTENDED = "others change it all the time; repeat the command"


class Removal(NamedTuple):
    """Labels of other managers on one Node."""

    node: str
    uid: str
    labels: Mapping[Field, str]
    managers: Mapping[Field, tuple[str, ...]]  # of each label


class Step(NamedTuple):
    """The result on one Node."""

    line: str
    fault: str | None = None  # a line that begins with the Node
    kind: str | None = None  # of a failed request; see agent/kube/answers.py


def nodes(kube: Kube, name: str | None) -> Iterator[Node]:
    """Yield one Node, or all Nodes (None); raises Unavailable if one cannot be read."""
    for node in list_nodes(kube) if name is None else [get_node(kube, name)]:
        if isinstance(node, Failure):
            raise Unavailable(node.text)
        yield node


def removals(found: Iterable[Node], keys: Keys) -> list[Plan]:
    """Return the plans for the Nodes that have anything to remove or to report."""
    plans = (removal(node, keys) for node in found)
    return [plan for plan in plans if plan.is_due or plan.left_alone or plan.outside]


def losses(found: Iterable[Node], keys: Keys) -> list[Plan]:
    """Return the plans that remove the lost interfaces from annotations, or that cannot."""
    plans = [forgetting(node, keys) for node in found]
    return [plan for plan in plans if plan.is_due or unforgotten(plan)]


def unforgotten(plan: Plan) -> list[str]:
    """Return the lines about an annotation whose lost interfaces cannot be removed."""
    own = plan.keys.annotation_field
    command = kubectl_removal(plan.node, own)
    return [
        *(f"Node {plan.node}: {one.subject}: {one.text}" for one in plan.problems),
        *(
            f"Node {plan.node}: lost interfaces not removed, {one.key} is held by "
            f"{managers_text(one.managers)}; {command} removes the annotation"
            for one in plan.left_alone
            if Field(one.kind, one.key) == own
        ),
    ]


def foreign_removals(found: Iterable[Node], keys: Keys, manager: str | None) -> list[Removal]:
    """Return the labels under P and IB that manager `bwagent` does not own.

    With a manager, those that it alone has.
    """
    removals = []
    for state in map(state_of, found):
        fields = sorted(owned(state, keys).foreign)
        if manager is not None:
            fields = [field for field in fields if state.others.get(field) == (manager,)]
        if fields:
            labels = {field: state.fields[field] for field in fields}
            managers = {field: state.others.get(field, ()) for field in fields}
            removals.append(Removal(state.name, state.uid, labels, managers))
    return removals


def of_removal(one: Removal) -> list[str]:
    """Return the lines that name each label with its value and managers."""
    return [
        f"Node {one.node}: {len(one.labels)} of other managers",
        *(
            f"- {field.key}={value}, held by {managers_text(one.managers[field])}"
            for field, value in one.labels.items()
        ),
    ]


def remove_owned(kube: Kube, plan: Plan) -> Step:
    """Carry out a plan of `removals`."""
    outcome = negotiate(plan, kube, is_current=False)
    node, fault = f"Node {plan.node}: ", outcome.fault
    kind = outcome.failure.kind if outcome.failure else None
    return Step(done(outcome)[0], fault and node + fault.removeprefix(node), kind)


def remove_foreign(kube: Kube, one: Removal) -> Step:
    """Remove the labels of other managers, by requests of up to MAX_PATCH labels.

    If one of a request's labels has changed, or has other managers, all of them stay.
    """
    fields = [*one.labels]
    count = f"{len(fields)} label{'s' * (len(fields) != 1)}"
    for start in range(0, len(fields), MAX_PATCH):
        if failure := _patch(kube, one, fields[start : start + MAX_PATCH]):
            unknown = ", and the outcome of a request is unknown" * failure.maybe_done
            removed = f"Node {one.node}: {start} of {count} removed{unknown}"
            return Step(removed, failure.text, failure.kind)
    return Step(f"Node {one.node}: {count} removed")


def _patch(kube: Kube, shown: Removal, fields: Sequence[Field]) -> Failure | None:
    """Remove these labels; a refused request is repeated if the Node has changed meanwhile."""
    fault, version = None, None
    for _ in range(MAX_READS):
        node = get_node(kube, shown.node)
        if isinstance(node, Failure):
            return node
        state = state_of(node)
        is_as_shown = state.uid == shown.uid and all(
            state.fields.get(field) == shown.labels[field]
            and state.others.get(field, ()) == shown.managers[field]
            and field not in state.managed
            for field in fields
        )
        if not is_as_shown:
            return Failure("conflict", f"Node {shown.node}: {CHANGED}")
        if state.version == version:
            return fault
        patch = removal_patch(state, [field.key for field in fields])
        answer = exchange(kube, {"operation": "patch", "node": state.name, "body": patch})
        if answer.accepted:
            return None
        fault, version = failure_of(answer, state.name), state.version
        if fault.kind != "refused":
            return fault
    return Failure("conflict", f"Node {shown.node}: {CONTENDED}")


def removal_patch(state: State, keys: Iterable[str]) -> list[dict[str, Any]]:
    """Return the JSON patch (RFC 6902) that removes labels from this very version of the Node."""
    # A key is escaped for a JSON pointer (RFC 6901).
    paths = [key.replace("~", "~0").replace("/", "~1") for key in sorted(keys)]
    return [
        {"op": "test", "path": "/metadata/uid", "value": state.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": state.version},
        *({"op": "remove", "path": f"/metadata/{LABEL}/{path}"} for path in paths),
    ]


Task = TypeVar("Task", bound=Plan | Removal)  # the work on one Node


class Sweep(Generic[Task]):
    """The tasks, their failures as lines, and the names of the Nodes that are not cleaned."""

    def __init__(self, tasks: Sequence[Task], act: Callable[[Kube, Task], Step]) -> None:
        self.faults: list[str] = []
        self._tasks, self._act = tasks, act
        self._clean: set[str] = set()
        self._failures = 0  # of the server, in a row

    @property
    def remaining(self) -> list[str]:
        return [task.node for task in self._tasks if task.node not in self._clean]

    def run(self, kube: Kube, echo: Callable[[str], None]) -> None:
        """Carry out the tasks; `echo` takes a line for each Node.

        Raises Unavailable if not all threads can be started.
        """
        pool = ThreadPoolExecutor(MAX_CONNECTIONS)
        futures: dict[Future[Step], Task] = {}
        try:
            for task in self._tasks:
                futures[pool.submit(self._act, kube, task)] = task
            while futures and self._failures < MAX_FAILURES:
                future = next(iter(futures))
                step = future.result()
                self._record(futures.pop(future), step, echo)
        except RuntimeError as error:
            raise Unavailable(thread_fault(error)) from error
        finally:
            pool.shutdown(cancel_futures=True)
            for future, task in futures.items():  # what had begun when the others were cancelled
                if not future.cancelled():
                    self._record(task, future.result(), echo)

    def _record(self, task: Task, step: Step, echo: Callable[[str], None]) -> None:
        if step.fault:
            self.faults.append(step.fault)
        else:
            self._clean.add(task.node)
        is_servers = step.kind is not None and step.kind not in OF_ONE_NODE
        self._failures = self._failures + 1 if is_servers else 0
        echo(step.line)


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


def elsewhere(plans: Iterable[Plan]) -> list[str]:
    """Return a line for each other prefix under which manager `bwagent` has labels on these Nodes.

    It has the command that cleans the prefix up.
    """
    found = defaultdict[str, list[str]](list)
    for plan in plans:
        for prefix in sorted({prefix_of(field) or "" for field in plan.outside} - {""}):
            found[prefix].append(plan.node)
    lines = []
    for prefix, names in found.items():
        where, flag = f"{len(names)} Nodes", "--all"
        if len(names) == 1:
            where, flag = f"Node {names[0]}", f"--node-name {names[0]}"
        command = f"{cleanup_command(prefix)} {flag}"
        lines.append(f"{prefix}: labels of manager bwagent on {where}; {command} removes them")
    return lines


def labeled_between(before: Iterable[Plan], after: Iterable[Plan]) -> list[str]:
    """Return the Nodes on which manager `bwagent` has set fields between two reads."""
    known = {plan.uid: plan.managed.items() for plan in before}
    return [plan.node for plan in after if plan.managed.items() - known.get(plan.uid, set())]


def remains(plans: Sequence[Plan], after: Iterable[Node]) -> tuple[list[str], list[str]]:
    """Compare the Nodes with the plans that were carried out for them.

    Returns a line for each Node with keys that could not be removed, and the Nodes that have owned
    fields again: an agent has labeled them since.
    """
    planned = {plan.uid: plan for plan in plans}
    states = [(planned[state.uid], state) for state in map(state_of, after) if state.uid in planned]
    lines = [line for plan, state in states if (line := _remaining(plan, state))]
    return lines, [state.name for plan, state in states if owned(state, plan.keys).mine]


def _remaining(plan: Plan, state: State) -> str:
    """Return the line about the fields that were to be removed and are another manager's."""
    left_alone = {Field(one.kind, one.key) for one in plan.left_alone}
    before = (plan.managed.keys() - plan.outside) | left_alone
    fields = sorted(before & state.fields.keys() - state.managed)
    if not fields:
        return ""
    held = defaultdict[str, list[str]](list)
    for field in fields:
        held[managers_text(state.others.get(field, ()))].append(field.key)
    owners = "; ".join(f"held by {owner}: {listed(keys, MAX_KEYS)}" for owner, keys in held.items())
    # What removes these fields, whoever owns them.
    removable = plan.keys.of_families(fields, (P, IB))
    commands = [f"this command with --foreign --node-name {plan.node}"] if removable else []
    commands += [kubectl_removal(plan.node, field) for field in fields if field not in removable]
    return f"Node {state.name}: not removed, {owners}; to remove: {'; '.join(commands)}"
