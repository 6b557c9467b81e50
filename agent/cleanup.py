"""The command `cleanup`: print what is to be removed, ask, remove it, report what remains."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import click

from agent.errors import Rejected, Unavailable
from agent.exits import print_line, print_lines, report
from agent.kube import cleanup, diff
from agent.kube.answers import Kube
from agent.kube.cleanup import Removal, Step, Sweep, Task
from agent.kube.managed_fields import Keys
from agent.kube.plan import Plan
from agent.labels.table import Naming
from agent.text import listed

MAX_NODES = 20  # named in one line
NOTHING = "nothing to remove"
AGAIN = (
    "labeled again during this cleanup: {}; an agent still runs there: delete the DaemonSet, then "
    "repeat the command"
)


def clean_up(kube: Kube, node: str | None, naming: Naming, *, yes: bool) -> None:
    """Remove what the agent owns on a Node, or on all Nodes (None).

    Raises Rejected if anything remains.
    """
    plans = cleanup.removals(cleanup.nodes(kube, node), Keys(naming))
    shown = _print_plans(plans, naming)
    again = set[str]()
    if not yes and (due := [plan for plan in shown if plan.is_due]):
        _confirm("this", due)
        plans = cleanup.removals(cleanup.nodes(kube, node), Keys(naming))
        now = [plan for plan in plans if plan.is_due or plan.left_alone]
        again = {*cleanup.labeled_between(shown, now)}  # while the question waited
        shown = now
    faults, failed = _carry_out(kube, [plan for plan in shown if plan.is_due], cleanup.remove_owned)
    cleaned = [one for one in shown if one.node not in failed]
    try:
        left, labeled = cleanup.remains(cleaned, cleanup.nodes(kube, node) if cleaned else ())
    except Unavailable as error:
        left, labeled = [f"what remains could not be read: {error}"], []
    running = sorted({*again, *labeled})
    lines = [AGAIN.format(listed(running, MAX_NODES))] if running else []
    _fail([*faults, *left, *lines])


def _print_plans(plans: Sequence[Plan], naming: Naming) -> list[Plan]:
    """Print and return the plans that have something to remove, or that cannot remove something.

    Other prefixes under which the agent has labels are named, too.
    """
    shown = [plan for plan in plans if plan.is_due or plan.left_alone]
    for plan in shown:
        print_lines(diff.planned(plan))
    if recent := cleanup.recently_labeled(shown, time.time()):
        where = recent[0] if len(recent) == 1 else f"{len(recent)} of the Nodes"
        click.echo(
            f"An agent labeled {where} within the last two hours. If it still runs, it writes the "
            "labels again: delete the DaemonSet first."
        )
    elsewhere = cleanup.elsewhere(plans)
    if not shown:
        prefixes = " and ".join(filter(None, [naming.prefix, naming.ib_prefix]))
        click.echo(f"{NOTHING} under {prefixes}" if elsewhere else NOTHING)
    if elsewhere:
        print_lines(elsewhere)
    return shown


def clean_up_foreign(
    kube: Kube, node: str | None, naming: Naming, manager: str | None, *, yes: bool
) -> None:
    """Remove the labels of other managers that the agent does not publish.

    Raises Rejected if any of the named ones remains.
    """
    found = cleanup.foreign_removals(cleanup.nodes(kube, node), Keys(naming), manager)
    for one in found:
        print_lines(cleanup.of_removal(one))
    if not found:
        click.echo(NOTHING)
        return
    if not yes:
        _confirm("these labels of others", found)
    faults, _ = _carry_out(kube, found, cleanup.remove_foreign)
    _fail(faults)


def forget_lost(kube: Kube, node: str | None, naming: Naming, *, yes: bool) -> None:
    """Remove the interfaces that left the bus from the annotation of a Node, or of all (None).

    Raises Rejected if any remains.
    """
    plans = cleanup.losses(cleanup.nodes(kube, node), Keys(naming))
    due = [plan for plan in plans if plan.is_due]
    for plan in due:
        print_lines(diff.planned(plan))
    if not plans:
        click.echo(NOTHING)
    if due and not yes:
        _confirm("this", due)
    faults, _ = _carry_out(kube, due, cleanup.remove_owned)
    _fail([*faults, *(line for plan in plans for line in cleanup.unforgotten(plan))])


def _confirm(what: str, tasks: Sequence[Plan] | Sequence[Removal]) -> None:
    """Ask for confirmation; raises click.Abort unless it is given."""
    count = f"{len(tasks)} Node{'s' * (len(tasks) != 1)}"
    click.confirm(f"Remove {what} from {count}?", abort=True)


def _carry_out(
    kube: Kube, tasks: Sequence[Task], act: Callable[[Kube, Task], Step]
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
    """Print the faults, the last one by raising Rejected; do nothing without any."""
    for fault in faults[:-1]:
        report(f"bwagent: {fault}", 1)
    if faults:
        raise Rejected(faults[-1])
