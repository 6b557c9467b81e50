"""The command `cleanup`: print what is to be removed, ask, remove it, report what remains."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import click

from agent.errors import Rejected, Unavailable
from agent.exits import print_line, print_lines, report
from agent.kube import cleanup, diff
from agent.kube.managed_fields import keys_of
from agent.kube.sweep import OfNode, Step, Sweep
from agent.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from agent.kube.plan import Plan
    from agent.kube.transport import Kube
    from agent.labels.table import Naming

MAX_NODES = 20  # named in one line
NOTHING = "nothing to remove"
AGAIN = (
    "labeled again during this cleanup: {}; an agent still runs there: delete the DaemonSet, then "
    "repeat the command"
)

Task = TypeVar("Task", bound=OfNode)


def clean_up(kube: Kube, node: str | None, naming: Naming, *, yes: bool) -> None:
    """Remove what the agent owns on a Node, or on all Nodes (None).

    Raises Rejected if anything remains.
    """
    plans = _plans(kube, node, naming)
    shown = _relevant(plans)
    _print_plans(shown, time.time())
    _print_elsewhere(plans, naming, is_empty=not shown)
    again = list[str]()
    if not yes and (due := [plan for plan in shown if plan.due]):
        _confirm(f"Remove this from {_count(due)}?")
        before, shown = shown, _relevant(_plans(kube, node, naming))
        again = cleanup.labeled_between(before, shown)  # while the question waited
    faults, failed = _carry_out(kube, [plan for plan in shown if plan.due], cleanup.remove_owned)
    found = _remains(kube, node, [one for one in shown if one.node not in failed])
    _fail([*faults, *found.keys, *_running({*again, *found.labeled_again})])


def _plans(kube: Kube, node: str | None, naming: Naming) -> list[Plan]:
    return cleanup.removals(cleanup.nodes(kube, node), keys_of(naming))


def _relevant(plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans that have something to remove, or that cannot remove something."""
    return [plan for plan in plans if plan.due or plan.left_alone]


def _print_plans(plans: Sequence[Plan], now: float) -> None:
    for plan in plans:
        print_lines(diff.planned(plan))
    if recent := cleanup.recently_labeled(plans, now):
        where = recent[0] if len(recent) == 1 else f"{len(recent)} of the Nodes"
        click.echo(
            f"An agent labeled {where} within the last two hours. If it still runs, it writes the "
            "labels again: delete the DaemonSet first."
        )


def _print_elsewhere(plans: Sequence[Plan], naming: Naming, *, is_empty: bool) -> None:
    """Name the other prefixes under which the agent has labels."""
    elsewhere = cleanup.elsewhere(plans)
    if is_empty:
        prefixes = " and ".join(filter(None, [naming.prefix, naming.ib_prefix]))
        click.echo(f"{NOTHING} under {prefixes}" if elsewhere else NOTHING)
    if elsewhere:
        print_lines(cleanup.of_elsewhere(elsewhere))


def _remains(kube: Kube, node: str | None, plans: Sequence[Plan]) -> cleanup.Remains:
    """Read the Nodes again, and return what could not be removed."""
    if not plans:
        return cleanup.Remains()
    try:
        return cleanup.remains(plans, cleanup.nodes(kube, node))
    except Unavailable as error:
        return cleanup.Remains((f"what remains could not be read: {error}",))


def _running(names: AbstractSet[str]) -> list[str]:
    """Return a line about the Nodes on which an agent still runs, if there are any."""
    return [AGAIN.format(listed(sorted(names), MAX_NODES))] if names else []


def clean_up_foreign(
    kube: Kube, node: str | None, naming: Naming, manager: str | None, *, yes: bool
) -> None:
    """Remove the labels of other managers that the agent does not publish.

    Raises Rejected if any of the named ones remains.
    """
    found = cleanup.foreign_removals(cleanup.nodes(kube, node), keys_of(naming), manager)
    for one in found:
        print_lines(cleanup.of_removal(one))
    if not found:
        click.echo(NOTHING)
        return
    if not yes:
        _confirm(f"Remove these labels of others from {_count(found)}?")
    faults, _ = _carry_out(kube, found, cleanup.remove_foreign)
    _fail(faults)


def forget_lost(kube: Kube, node: str | None, naming: Naming, *, yes: bool) -> None:
    """Remove the interfaces that left the bus from the annotation of a Node, or of all (None).

    Raises Rejected if any remains.
    """
    plans = cleanup.losses(cleanup.nodes(kube, node), keys_of(naming))
    due = [plan for plan in plans if plan.due]
    for plan in due:
        print_lines(diff.planned(plan))
    if not plans:
        click.echo(NOTHING)
    if due and not yes:
        _confirm(f"Remove this from {_count(due)}?")
    faults, _ = _carry_out(kube, due, cleanup.remove_owned)
    _fail([*faults, *(line for plan in plans for line in cleanup.unforgotten(plan))])


def _count(tasks: Sequence[OfNode]) -> str:
    return f"{len(tasks)} Node{'s' * (len(tasks) != 1)}"


def _confirm(question: str) -> None:
    """Ask for confirmation; raises click.Abort unless it is given."""
    click.confirm(question, abort=True)


def _carry_out(
    kube: Kube, tasks: Sequence[Task], act: Callable[[Kube, Task], Step]
) -> tuple[list[str], set[str]]:
    """Carry out the tasks; return the faults as lines, and the Nodes that are not cleaned."""
    sweep = Sweep(tasks, act)
    try:
        sweep.run(kube, print_line)
    except (KeyboardInterrupt, SystemExit, Unavailable):
        report(f"bwagent: {_remaining(sweep, len(tasks))}", 1)
        raise
    faults = list(sweep.faults)
    if sweep.remaining and len(tasks) > 1:
        faults.append(_remaining(sweep, len(tasks)))
    return faults, {*sweep.remaining}


def _fail(faults: Sequence[str]) -> None:
    """Print the faults, the last one by raising Rejected; do nothing without any."""
    for fault in faults[:-1]:
        report(f"bwagent: {fault}", 1)
    if faults:
        raise Rejected(faults[-1])


def _remaining(sweep: Sweep[Task], count: int) -> str:
    """Return a sentence that names the first of the Nodes that are not cleaned."""
    names = sweep.remaining
    return f"{len(names)} of {count} Nodes remain: {listed(names, MAX_NODES)}; repeat the command"
