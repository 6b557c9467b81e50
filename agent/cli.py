"""The commands of bwagent. agent/exits.py has their exit codes and the printing of errors.

Each command imports its modules itself, so that `--help` and short commands start fast.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from agent import __version__
from agent.errors import Rejected, Unavailable
from agent.exits import print_line, print_lines, report, run_and_exit
from agent.options import (
    StrictCommand,
    check,
    cluster_options,
    device_options,
    former_options,
    naming_options,
    not_empty,
    run_options,
    source_options,
    wait_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.host import Host
    from agent.kube.commands import Target
    from agent.kube.plan import Plan
    from agent.kube.sweep import Sweep
    from agent.kube.transport import Kube
    from agent.labels.render import Rendered
    from agent.labels.table import Naming
    from agent.lldp.wait import LldpWait
    from agent.model import Observation, Problem

    Flags = dict[str, Any]

MAX_NODES = 20  # named in one line
EXAMPLES = "\b\nExamples:\n  {}\n  {}"


@click.group(
    context_settings={"auto_envvar_prefix": "BWAGENT", "help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="bwagent", message="%(prog)s %(version)s")
def cli() -> None:
    """Label a Node with the state of its backend network, for topology-aware schedulers.

    Every flag is also an environment variable, BWAGENT_<COMMAND>_<FLAG>.
    """


@cli.command(
    epilog=EXAMPLES.format(
        "bwagent probe --dry-run", "bwagent probe --replay sysfs_fixtures/dgx-h100 -o labels"
    )
)
@click.option("--dry-run", is_flag=True, help="Change nothing; contact no API server.")
@click.option("--diff", is_flag=True, help="With --dry-run: read the Node and show the changes.")
@click.option(
    "--replay",
    metavar="SNAPSHOT",
    callback=check(not_empty),
    help="Read this capture (folder or tar) instead.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "labels", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Print this format.",
)
@cluster_options
@naming_options
@former_options
@device_options
@wait_options
def probe(replay: str | None, output: str, dry_run: bool, diff: bool, **flags: Any) -> None:
    """Observe this node once, print its labels and apply them to its Node."""
    if diff and (replay or not dry_run):
        raise click.UsageError("--diff needs --dry-run, and excludes --replay")
    from agent.labels.render import render

    target = None if replay or (dry_run and not diff) else _target(flags)
    lldp_wait = None if replay else _lldp_wait(flags)
    host = _replayed(replay, flags) if replay else _live(flags, lldp_wait)
    observation = _observed(host, flags, target)
    rendered = render(observation, _naming(flags), target.previous() if target else None)
    notes = list(lldp_wait.notes()) if lldp_wait else []
    notes += target.problems(observation) if target else []
    _show(observation, rendered, notes, flags, output)
    _require_rdma(observation)
    if target:
        _publish(target, observation, rendered, apply=not dry_run, to_stderr=output != "table")


def _observed(host: Host, flags: Flags, target: Target | None) -> Observation:
    """Observe the node, a second time if a switch has another name than the Node's annotation."""
    from agent.infiniband.switch_names import SwitchNames
    from agent.sources.observe import observe

    if target is None:
        return observe(host, flags["source"])
    names, labeled = SwitchNames(), target.interfaces()
    names.seed(target.switches())
    host = replace(host, switch_names=names)
    observation = observe(host, flags["source"], labeled)
    if names.is_unconfirmed():
        observation = observe(host, flags["source"], labeled)
    return target.with_counts(observation)


def _show(
    observation: Observation,
    rendered: Rendered,
    notes: Sequence[Problem],
    flags: Flags,
    output: str,
) -> None:
    """Print the document of an observation in the format `output`."""
    from agent.output.document import Choices, document
    from agent.output.formats import show

    globs = flags["backend_device"], flags["exclude_device"]
    choices = Choices(*globs, _naming(flags), flags["node_name"])
    show(document(observation, choices, notes, rendered), output)


def _naming(flags: Flags) -> Naming:
    from agent.labels.table import Naming

    return Naming(flags["label_prefix"], flags["ib_label_prefix"], flags["accelerator_label"])


def _node_name(flags: Flags) -> str:
    from agent.labels.encode import prefix_fault

    name: str = flags["node_name"] or os.uname().nodename.lower()
    if prefix_fault(name):
        raise click.UsageError(f"the host name {name[:64]!r} is not a Node name: set --node-name")
    return name


def _target(flags: Flags) -> Target:
    """Read the Node; raises Unavailable before anything else is done."""
    from agent.kube.commands import target
    from agent.kube.transport import connect

    kube = connect(flags["kubeconfig"], flags["context"])
    return target(kube, _node_name(flags), _naming(flags), flags["former_label_prefixes"])


def _publish(
    target: Target, observation: Observation, rendered: Rendered, *, apply: bool, to_stderr: bool
) -> None:
    """Print the changes, and apply them if `apply`; raises Rejected if a key was refused.

    They are printed below a table, but on stderr if a program may read the document.
    """
    from agent.kube.commands import planned, publish

    todo, lines = planned(target, observation, rendered)
    fault = None
    if apply:
        lines, fault = publish(target, todo)
    print_lines(lines if to_stderr else ["", *lines], err=to_stderr)
    if fault:
        raise Rejected(fault)


@cli.command(
    cls=StrictCommand,
    epilog=EXAMPLES.format(
        "bwagent run --metrics-address :9477", "bwagent run --dry-run --context prod -v"
    ),
)
@click.option("--dry-run", is_flag=True, help="Change nothing; log what would be applied.")
@run_options
@cluster_options
@naming_options
@former_options
@device_options
@source_options
def run(
    hold: float, min_interval: float, resync: float, source: tuple[str, ...], **flags: Any
) -> None:
    """Watch this node and keep the labels of its Node current, until SIGTERM."""
    from agent.daemon.main import Configuration
    from agent.daemon.main import run as serve
    from agent.daemon.schedule import Settings

    serve(
        Configuration(
            node=_node_name(flags),
            naming=_naming(flags),
            settings=Settings(hold, min_interval, resync),
            sources=source,
            backend_devices=flags["backend_device"],
            excluded_devices=flags["exclude_device"],
            source_options=_source_options(flags),
            **{name: flags[name] for name in Configuration.__slots__ if name in flags},
        )
    )


@cli.command(
    epilog=EXAMPLES.format(
        "bwagent cleanup --context prod --node-name gpu-17", "bwagent cleanup --all --yes"
    )
)
@click.option(
    "--all", "everywhere", is_flag=True, help="Clean all Nodes; needs permission to list them."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@cluster_options
@naming_options
def cleanup(everywhere: bool, yes: bool, **flags: Any) -> None:
    """Remove every label and annotation that the agent owns on a Node."""
    from agent.kube.commands import plan_cleanup
    from agent.kube.connection import connected

    if not yes and not sys.stdin.isatty():
        raise click.UsageError("standard input is not a terminal: add --yes")
    with connected(flags["kubeconfig"], flags["context"]) as kube:
        todo = plan_cleanup(kube, None if everywhere else _node_name(flags), _naming(flags))
        _print_plans(todo)
        if todo and (yes or _confirm_removal(len(todo))):
            _clean_up(kube, todo)


def _print_plans(plans: Sequence[Plan]) -> None:
    from agent.kube.diff import planned

    for plan in plans:
        print_lines(planned(plan))
    if not plans:
        click.echo("nothing to remove")


def _confirm_removal(nodes: int) -> bool:
    """Ask for confirmation; raises click.Abort unless it is given."""
    return click.confirm(f"Remove this from {nodes} Node{'s' * (nodes != 1)}?", abort=True)


def _clean_up(kube: Kube, plans: Sequence[Plan]) -> None:
    """Carry out the plans; raises Rejected afterwards if Nodes remain."""
    from agent.kube.sweep import Sweep

    sweep = Sweep(plans)
    try:
        sweep.run(kube, print_line)
    except (KeyboardInterrupt, SystemExit, Unavailable):
        report(f"bwagent: {_remaining(sweep, len(plans))}", 1)
        raise
    faults = [*sweep.faults, *([_remaining(sweep, len(plans))] if len(plans) > 1 else [])]
    if sweep.remaining:
        for fault in faults[:-1]:
            report(f"bwagent: {fault}", 1)
        raise Rejected(faults[-1])


def _remaining(sweep: Sweep, count: int) -> str:
    """Return a sentence that names the first of the Nodes that are not cleaned."""
    names = sweep.remaining
    more = f" and {len(names) - MAX_NODES} more" if len(names) > MAX_NODES else ""
    first = ", ".join(names[:MAX_NODES])
    return f"{len(names)} of {count} Nodes remain: {first}{more}; repeat the command"


@cli.command(
    epilog=EXAMPLES.format(
        "bwagent capture node-17", "bwagent capture --anonymize for-a-bug-report"
    )
)
@click.argument("folder", metavar="DIR")
@click.option("--anonymize", is_flag=True, help="Replace GUIDs, MACs, serials and host names.")
@device_options
@wait_options
def capture(folder: str, anonymize: bool, **flags: Any) -> None:
    """Write everything that bwagent reads on this node into DIR."""
    from agent.snapshot import anonymize as anonymizer
    from agent.snapshot.capture import record, refuse_existing, summary, write

    refuse_existing(folder)
    journal, observation = record(_live(flags, _lldp_wait(flags)), flags["source"])
    if not any(path.startswith("sys/") for path in journal.files):
        _require_rdma(observation)
    journal = anonymizer.anonymize(journal) if anonymize else journal
    write(journal, folder)
    print_line(f"{folder}: {summary(journal)}")


def _replayed(snapshot: str, flags: Flags) -> Host:
    """Return the host of a snapshot."""
    from agent.snapshot.replay import replay

    return replay(snapshot, flags["exclude_device"], flags["backend_device"])


def _live(flags: Flags, lldp_wait: LldpWait | None) -> Host:
    """Return this node."""
    from agent.live_host import live_host
    from agent.lldp.reception import LldpNeighbors

    globs = flags["exclude_device"], flags["backend_device"]
    neighbors = LldpNeighbors(lldp_wait) if lldp_wait else None
    return live_host(flags["sysfs_root"], *globs, neighbors, _source_options(flags))


def _lldp_wait(flags: Flags) -> LldpWait | None:
    """Return the source of LLDP frames; None with --no-wait."""
    from agent.lldp.packet_socket import Listener
    from agent.lldp.wait import LldpWait, progress

    if flags["no_wait"]:
        return None
    return LldpWait(flags["wait"], progress, Listener(openvswitch=flags["openvswitch"]))


def _source_options(flags: Flags) -> dict[str, Any]:
    from agent.sources.table import OPTIONS

    return {option.name: flags[option.name] for option in OPTIONS}


def _require_rdma(observation: Observation) -> None:
    """Raise Unavailable if the RDMA class could not be read: without it nothing was observed."""
    from agent.model import Failed

    if isinstance(observation.rdma, Failed):
        raise Unavailable(f"nothing observed: {observation.rdma.reason}")


def main() -> None:
    """Run the command line and exit; an error is one line on stderr and an exit code."""
    run_and_exit(cli)


if __name__ == "__main__":
    main()
