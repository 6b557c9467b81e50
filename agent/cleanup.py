"""The command `cleanup`: print the labels to be removed, ask, remove them, report what remains.

Invariants:
- Removing is applying less: the request carries none of the owned fields, and the API server
  removes those that managedFields list for manager `bwagent`. A field that another manager has too
  stays, and so do fields outside the label table.
- The remaining labels are read from the Nodes afterwards, not derived from the changes.
- Keys of other managers (`--foreign`) are removed by their names, and only with the values and the
  managers that were shown: an agent, or another labeler, may have taken a key over since.
- Several Nodes are cleaned at a time. A failure of a Node does not stop the others; MAX_FAILURES
  of the server in a row do.
- However a cleanup ends, requests that were sent are waited for, and `Sweep.remaining` has the
  other Nodes. A second cleanup finds these again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

import click

from agent.encode import Naming
from agent.errors import Rejected, Unavailable
from agent.exits import print_line, print_lines, report
from agent.kube.annotation import MAX_AGE
from agent.kube.answers import UID_PATH, Failure, Kube, failure_of
from agent.kube.api import MAX_CONNECTIONS
from agent.kube.change import (
    Change,
    cleanup_command,
    forgetting,
    kubectl_removal,
    managers_text,
    owned,
    removal,
)
from agent.kube.commands import done_lines, planned_lines
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
from agent.kube.negotiation import negotiate
from agent.kube.nodes import ask, error_of, get_node, pages
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
MAX_NODES = 20  # named in one line
NOTHING = "nothing to remove"
AGAIN = (
    "labeled again during this cleanup: {}; an agent still runs there: delete the DaemonSet, then "
    "repeat the command"
)


class Removal(NamedTuple):
    """Labels of other managers on one Node."""

    node: str
    uid: str
    labels: Mapping[Field, str]
    managers: Mapping[Field, tuple[str, ...]]  # of each label


class NodeResult(NamedTuple):
    """The result on a Node."""

    line: str
    fault: str | None = None  # a line that begins with the Node
    kind: str | None = None  # of a failed request; see agent/kube/answers.py


Task = TypeVar("Task", bound=Change | Removal)  # the work on one Node


def clean_up(kube: Kube, node: str | None, naming: Naming, *, yes: bool) -> None:
    """Remove the fields that the agent owns on a Node, or on all Nodes (None).

    Raises Rejected if anything remains.
    """
    changes = removals(read_nodes(kube, node), Keys(naming))
    shown = _print_changes(changes, naming)
    again = set[str]()
    if not yes and (due := [change for change in shown if change.is_due]):
        _confirm("this", due)
        changes = removals(read_nodes(kube, node), Keys(naming))
        now = [change for change in changes if change.is_due or change.left_alone]
        before = {change.uid: change.managed.items() for change in shown}
        # labeled while the question waited
        again = {
            change.node for change in now if change.managed.items() - before.get(change.uid, set())
        }
        shown = now
    faults, failed = _carry_out(kube, [change for change in shown if change.is_due], remove_owned)
    cleaned = [change for change in shown if change.node not in failed]
    try:
        left, labeled = remains(cleaned, read_nodes(kube, node) if cleaned else ())
    except Unavailable as error:
        left, labeled = [f"what remains could not be read: {error}"], []
    running = sorted({*again, *labeled})
    lines = [AGAIN.format(listed(running, MAX_NODES))] if running else []
    _fail([*faults, *left, *lines])


def _print_changes(changes: Sequence[Change], naming: Naming) -> list[Change]:
    """Print and return the changes that have something to remove, or that cannot remove something.

    Other prefixes under which the agent has labels are named, too.
    """
    shown = [change for change in changes if change.is_due or change.left_alone]
    for change in shown:
        print_lines(planned_lines(change))
    # An agent writes at least the time of its annotation anew, every hour; two clocks may differ.
    recent = [
        change.node
        for change in shown
        if change.written is not None and abs(time.time() - change.written) < MAX_AGE
    ]
    if recent:
        where = recent[0] if len(recent) == 1 else f"{len(recent)} of the Nodes"
        click.echo(
            f"An agent labeled {where} within the last two hours. If it still runs, it writes the "
            "labels again: delete the DaemonSet first."
        )
    others = elsewhere(changes)
    if not shown:
        prefixes = " and ".join(filter(None, [naming.prefix, naming.ib_prefix]))
        click.echo(f"{NOTHING} under {prefixes}" if others else NOTHING)
    if others:
        print_lines(others)
    return shown


def removals(nodes: Iterable[Node], keys: Keys) -> list[Change]:
    """Return the changes of the Nodes that have anything to remove or to report."""
    changes = (removal(node, keys) for node in nodes)
    return [change for change in changes if change.is_due or change.left_alone or change.outside]


def elsewhere(changes: Iterable[Change]) -> list[str]:
    """Return a line for each other prefix under which manager `bwagent` has labels on these Nodes.

    It has the command that cleans the prefix up. So has that of a key in no label table.
    """
    nodes = defaultdict[str | Field, list[str]](list)
    for change in changes:
        prefixes = {prefix_of(field) or "" for field in change.outside} - {""}
        keys = (field for field in change.outside if prefix_of(field) is None)
        subjects: list[str | Field] = [*sorted(prefixes), *sorted(keys)]
        for subject in subjects:
            nodes[subject].append(change.node)
    lines = []
    for subject, names in sorted(nodes.items(), key=lambda item: isinstance(item[0], Field)):
        is_alone = len(names) == 1
        where = f"of manager bwagent on {f'Node {names[0]}' if is_alone else f'{len(names)} Nodes'}"
        if isinstance(subject, Field):
            command = kubectl_removal(names[0], subject)
            lines.append(
                f"{subject.key}: {where}, and in no label table; its former --tier-label or "
                f"--accelerator-label, or {command}, removes it"
            )
        else:
            flag = f"--node-name {names[0]}" if is_alone else "--all"
            command = f"{cleanup_command(subject)} {flag}"
            lines.append(f"{subject}: labels {where}; {command} removes them")
    return lines


def remains(changes: Sequence[Change], after: Iterable[Node]) -> tuple[list[str], list[str]]:
    """Compare the Nodes with the changes that were carried out.

    Returns a line for each Node with keys that could not be removed, and the Nodes that have owned
    fields again: an agent has labeled them since.
    """
    asked = {change.uid: change for change in changes}
    lines, labeled = [], []
    for state in map(state_of, after):
        change = asked.get(state.uid)
        if change is None:
            continue
        if owned(state, change.keys).mine:
            labeled.append(state.name)
        # The fields that were to be removed and are another manager's.
        left_alone = {Field(label.kind, label.key) for label in change.left_alone}
        before = (change.managed.keys() - change.outside) | left_alone
        fields = sorted(before & state.fields.keys() - state.managed)
        held = defaultdict[str, list[str]](list)
        for field in fields:
            held[managers_text(state.others.get(field, ()))].append(field.key)
        owners = [f"held by {owner}: {listed(keys, MAX_KEYS)}" for owner, keys in held.items()]
        # Commands that remove these fields, whoever owns them.
        removable = change.keys.of_families(fields, (P, IB))
        commands = [f"this command with --foreign --node-name {change.node}"] if removable else []
        commands += [
            kubectl_removal(change.node, field) for field in fields if field not in removable
        ]
        if fields:
            remove = f"; to remove: {'; '.join(commands)}"
            lines.append(f"Node {state.name}: not removed, {'; '.join(owners)}{remove}")
    return lines, labeled


def clean_up_foreign(
    kube: Kube, node: str | None, naming: Naming, manager: str | None, *, yes: bool
) -> None:
    """Remove the labels of other managers that the agent does not publish.

    Raises Rejected if any of the labels that were shown remains.
    """
    todo = foreign_removals(read_nodes(kube, node), Keys(naming), manager)
    for shown in todo:
        lines = [
            f"- {field.key}={value}, held by {managers_text(shown.managers[field])}"
            for field, value in shown.labels.items()
        ]
        print_lines([f"Node {shown.node}: {len(shown.labels)} of other managers", *lines])
    if not todo:
        click.echo(NOTHING)
        return
    if not yes:
        _confirm("these labels of others", todo)
    faults, _ = _carry_out(kube, todo, remove_foreign)
    _fail(faults)


def foreign_removals(nodes: Iterable[Node], keys: Keys, manager: str | None) -> list[Removal]:
    """Return the labels under P and IB that manager `bwagent` does not own.

    With a manager, those that it alone has.
    """
    removals = []
    for state in map(state_of, nodes):
        fields = sorted(owned(state, keys).foreign)
        if manager is not None:
            fields = [field for field in fields if state.others.get(field) == (manager,)]
        if fields:
            labels = {field: state.fields[field] for field in fields}
            managers = {field: state.others.get(field, ()) for field in fields}
            removals.append(Removal(state.name, state.uid, labels, managers))
    return removals


def forget_lost(kube: Kube, node: str | None, naming: Naming, *, yes: bool) -> None:
    """Remove the interfaces that left the bus from the annotation of a Node, or of all (None).

    Raises Rejected if any remains.
    """
    changes = losses(read_nodes(kube, node), Keys(naming))
    due = [change for change in changes if change.is_due]
    for change in due:
        print_lines(planned_lines(change))
    if not changes:
        click.echo(NOTHING)
    if due and not yes:
        _confirm("this", due)
    faults, _ = _carry_out(kube, due, remove_owned)
    _fail([*faults, *(line for change in changes for line in unforgotten(change))])


def losses(nodes: Iterable[Node], keys: Keys) -> list[Change]:
    """Return the changes that remove the lost interfaces from annotations, or that cannot."""
    changes = [forgetting(node, keys) for node in nodes]
    return [change for change in changes if change.is_due or unforgotten(change)]


def unforgotten(change: Change) -> list[str]:
    """Return the lines about an annotation whose lost interfaces cannot be removed."""
    own = change.keys.annotation_field
    command = kubectl_removal(change.node, own)
    return [
        *(f"Node {change.node}: {problem.subject}: {problem.text}" for problem in change.problems),
        *(
            f"Node {change.node}: lost interfaces not removed, {key.key} is held by "
            f"{managers_text(key.managers)}; {command} removes the annotation"
            for key in change.left_alone
            if Field(key.kind, key.key) == own
        ),
    ]


def read_nodes(kube: Kube, name: str | None) -> Iterator[Node]:
    """Yield one Node, or all Nodes (None).

    Raises Unavailable if a Node cannot be read, Misdirected if it has to be this host and is not.
    """
    if name is not None:
        node = get_node(kube, name)
        if isinstance(node, Failure):
            raise error_of(node, name)
        yield node
        return
    seen = set[str]()  # a listing that begins again has the first Nodes twice
    for page in pages(kube, with_managers=True):
        for node in page.nodes:
            if (uid := node["metadata"]["uid"]) not in seen:
                seen.add(uid)
                yield node


def _confirm(subject: str, tasks: Sequence[Change] | Sequence[Removal]) -> None:
    """Ask for confirmation; raises click.Abort unless it is given."""
    count = f"{len(tasks)} Node{'s' * (len(tasks) != 1)}"
    click.confirm(f"Remove {subject} from {count}?", abort=True)


def _carry_out(
    kube: Kube, tasks: Sequence[Task], act: Callable[[Kube, Task], NodeResult]
) -> tuple[list[str], set[str]]:
    """Carry out the tasks; return the faults as lines, and the Nodes that are not cleaned."""
    sweep = Sweep(tasks, act)

    def remaining() -> str:
        names = sweep.remaining
        first = listed(names, MAX_NODES)
        return f"{len(names)} of {len(tasks)} Nodes remain: {first}; repeat the command"

    try:
        sweep.run(kube, print_line)
    except (KeyboardInterrupt, SystemExit, Unavailable):
        report(f"bwagent: {remaining()}", 1)
        raise
    faults = list(sweep.faults)
    if sweep.remaining and len(tasks) > 1:
        faults.append(remaining())
    return faults, {*sweep.remaining}


def _fail(faults: Sequence[str]) -> None:
    """Print the faults, the last by raising Rejected; do nothing without any."""
    for fault in faults[:-1]:
        report(f"bwagent: {fault}", 1)
    if faults:
        raise Rejected(faults[-1])


class Sweep(Generic[Task]):
    """The tasks, their failures as lines, and the names of the Nodes that are not cleaned."""

    def __init__(self, tasks: Sequence[Task], act: Callable[[Kube, Task], NodeResult]) -> None:
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
        futures: dict[Future[NodeResult], Task] = {}
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
            for future, task in futures.items():
                if not future.cancelled():  # the task had begun
                    self._record(task, future.result(), echo)

    def _record(self, task: Task, step: NodeResult, echo: Callable[[str], None]) -> None:
        if step.fault:
            self.faults.append(step.fault)
        else:
            self._clean.add(task.node)
        is_servers = step.kind is not None and step.kind not in OF_ONE_NODE
        self._failures = self._failures + 1 if is_servers else 0
        echo(step.line)


def remove_owned(kube: Kube, change: Change) -> NodeResult:
    """Carry out a change of `removals`."""
    outcome = negotiate(change, kube, is_current=False)
    node, fault = f"Node {change.node}: ", outcome.fault
    kind = outcome.failure.kind if outcome.failure else None
    return NodeResult(done_lines(outcome)[0], fault and node + fault.removeprefix(node), kind)


def remove_foreign(kube: Kube, shown: Removal) -> NodeResult:
    """Remove the labels of other managers, by requests of up to MAX_PATCH labels.

    If one of a request's labels has changed, or has other managers, all of them stay.
    """
    fields = [*shown.labels]
    count = f"{len(fields)} label{'s' * (len(fields) != 1)}"
    for start in range(0, len(fields), MAX_PATCH):
        if failure := _patch(kube, shown, fields[start : start + MAX_PATCH]):
            unknown = ", and the outcome of a request is unknown" * failure.maybe_done
            removed = f"Node {shown.node}: {start} of {count} removed{unknown}"
            return NodeResult(removed, failure.text, failure.kind)
    return NodeResult(f"Node {shown.node}: {count} removed")


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
        answer = ask(kube, {"operation": "patch", "node": state.name, "body": patch})
        if answer.node is not None:
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
        {"op": "test", "path": UID_PATH, "value": state.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": state.version},
        *({"op": "remove", "path": f"/metadata/{LABEL}/{path}"} for path in paths),
    ]
