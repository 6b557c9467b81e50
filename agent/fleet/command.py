"""The commands `bwagent fleet verify` and `fleet export`: read the fleet, judge it, print it.

Each imports what it needs itself, since `bwagent --help` imports this module.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from agent.errors import Unavailable
from agent.exits import print_line, print_text
from agent.exits import report as complain
from agent.options import (
    EXAMPLES,
    CheckedCommand,
    Flags,
    comparison_options,
    flag,
    is_on_command_line,
    reading_options,
    require_plan,
    short_help,
)

if TYPE_CHECKING:
    from agent.fleet.model import Fleet

OF_WIRING, OF_TOPOLOGY = ("csv", "dot"), ("kueue", "slurm", "slurm-block", "slurm-yaml")
EXPORTS = (*OF_WIRING, *OF_TOPOLOGY)
# Formats that were removed, with what takes their place.
FORMER = {
    "graphml": "use dot, or csv, which has every fact of a cable",
    "kai": "a Topology that names the labels, as in docs/exports.md",
    "slinky": "Topograph reads the labels, as in docs/exports.md",
    "volcano": "its label discoverer makes HyperNodes, as in docs/exports.md",
}
WIDTH = 79  # columns of the line of progress
INTERVAL = 0.2  # seconds between two
OF_CLUSTER = ("selector", "kubeconfig", "context")
OF_SNAPSHOTS = ("exclude_device", "backend_device")
HTML = "html"


class ExportFormat(click.Choice[str]):
    """A format of `fleet export`; the error for a removed format says what to use."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in FORMER:
            self.fail(f"{value} was removed: {FORMER[value]}", param, ctx)
        return super().convert(value, param, ctx)


@click.group(help="Compare the cables of all Nodes, or export the topology.")
def fleet() -> None: ...


@short_help
@fleet.command(
    "verify",
    help="Compare the cables of all Nodes with a plan or their pattern.\n\n"
    "Exit code 3: differences.",
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent fleet verify --context prod",
        "bwagent fleet verify --nodes nodes.json -o html >cables.html",
    ),
)
@reading_options
@comparison_options
def verify(**flags: Any) -> None:
    from agent import inputs

    require_plan(flags)
    # first: their errors need no cluster
    plans, numbered = inputs.plans(flags), inputs.hca_map(flags)
    fleet = _read(flags)
    from agent.cabling import baseline
    from agent.cabling.interfaces import require_any
    from agent.cabling.judge import VerifyOptions
    from agent.fleet import report
    from agent.fleet.judge import judge
    from agent.limits import uncollected
    from agent.output.report import EXIT, UNVERIFIED

    is_selected = bool(flags["node"] or flags["selector"])
    if not is_selected:
        require_any(flags["hca_map"], numbered, [node.name for node in fleet.nodes])
    options = VerifyOptions(frozenset(flags["no_tolerance"]), flags["ignore"], numbered)
    with uncollected():
        judged = judge(
            fleet,
            plans,
            options,
            inputs.naming(flags),
            is_partial=flags["partial"],
            is_selected=is_selected,
        )
    nodes = [node.name for node in fleet.nodes]
    files = flags["baseline"], flags["write_baseline"]
    known = baseline.settled(judged.findings, nodes, *files)
    notes = (*judged.notes, *known.notes)
    judged = judged._replace(findings=known.findings, accepted=known.accepted, notes=notes)
    if flags["output"] == HTML:
        from agent.fleet.page.render import page

        print_text(page(judged))
    else:
        print_text(report.FORMATS[flags["output"]](judged))
    outcome = report.outcome(judged)
    if outcome == UNVERIFIED and not fleet.problems:
        complain(f"bwagent: {report.unverified(judged)}", 1)
    for problem in fleet.problems:
        complain(f"bwagent: {problem}", 1)
    click.get_current_context().exit(1 if fleet.problems else EXIT[outcome])


@short_help
@fleet.command(
    "export",
    help="Print the topology for a scheduler, or the wiring itself.\n\n"
    f"FORMAT: {', '.join(OF_WIRING)}; {', '.join(OF_TOPOLOGY)}",
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent fleet export kueue --selector pool=gpu",
        "bwagent fleet export slurm --nodes nodes.json >topology.conf",
    ),
)
@click.argument("form", metavar="FORMAT", type=ExportFormat(EXPORTS))
@reading_options
@flag("--level", "KEY", "Label of a level above, outermost first. Repeatable.", multiple=True)
@click.option(
    "--strict",
    is_flag=True,
    help="Keep Nodes with wrong cables in the leaf groups of their labels.",
)
def export(form: str, **flags: Any) -> None:
    is_wiring = form in OF_WIRING
    for name, why in (("strict", "wrong cables are in it"), ("level", "it has cables only")):
        if is_wiring and flags[name] and is_on_command_line(name):
            raise click.UsageError(f"--{name} has no effect on {form}: {why}")
    from agent import inputs
    from agent.fleet.exports import FORMATS
    from agent.fleet.exports.text import commented
    from agent.fleet.exports.topology import level_fault, placed

    naming, levels = inputs.naming(flags), flags["level"]
    if fault := level_fault(naming, levels):
        raise click.UsageError(f"--level: {fault}")
    fleet = _read(flags)
    moved = list[str]()  # Nodes with wrong cables; the wiring is printed as it is seen
    if not is_wiring and not flags["strict"]:
        fleet, moved = placed(fleet)
    exported = FORMATS[form](fleet, naming, levels)
    for note in (*moved, *exported.notes):
        print_line(note, err=True)
    print_text(commented(moved) * bool(exported.text) + exported.text)
    for problem in fleet.problems:
        complain(f"bwagent: {problem}", 1)
    if not exported.text:
        raise Unavailable(f"{fleet.source}: nothing to export as {form}")
    click.get_current_context().exit(int(bool(fleet.problems)))


for parameter in export.params:
    # The key of the NVLink domains is shown in --help: they are levels and blocks of an export.
    if isinstance(parameter, click.Option) and parameter.name == "accelerator_label":
        parameter.hidden = False


def _read(flags: Flags) -> Fleet:
    """Read the fleet from where the flags say: a file, a folder of snapshots, or the API server.

    Raises Malformed; Unavailable, also if no Node has anything of the agent; click.UsageError for
    flags that would have no effect.
    """
    from agent import inputs
    from agent.fleet.read import Selection, read_cluster, read_file

    source = next((name for name in ("nodes", "snapshots") if flags[name]), None)
    _refuse_idle(source, flags)
    verbs = {"nodes": "reading Nodes", "snapshots": "reading snapshots"}
    progress = Progress(verbs.get(source or "", "listing Nodes"))
    selection = Selection(inputs.naming(flags), flags["node"], progress)
    try:
        if source == "nodes":
            fleet = read_file(flags["nodes"], selection, time.time())
        elif source == "snapshots":
            from agent.fleet.snapshots import read_snapshots

            globs = flags["exclude_device"], flags["backend_device"]
            fleet = read_snapshots(flags["snapshots"], selection, globs)
        else:
            from agent.kube.api import connect

            api = connect(flags["kubeconfig"], flags["context"], waiting=progress.waiting)
            with closing(api) as kube:
                fleet = read_cluster(kube, flags["selector"] or "", selection, time.time())
    finally:
        progress.clear()
    if fleet.others and not fleet.nodes:
        prefix = flags["label_prefix"]
        text = f"none of {fleet.others} Nodes has labels of bwagent under {prefix}"
        raise Unavailable(f"{fleet.source}: {text} (--label-prefix names another)")
    return fleet


def _refuse_idle(source: str | None, flags: Flags) -> None:
    """Raise click.UsageError for a flag that has no effect beside the source of the fleet."""
    for name in ("snapshots", *OF_CLUSTER) if source == "nodes" else OF_CLUSTER:
        is_own = name in {"selector", "snapshots"}  # variables give the cluster for all calls
        if source and flags[name] and (is_own or is_on_command_line(name)):
            raise click.UsageError(f"--{source} excludes --{name}")
    for name in () if source == "snapshots" else OF_SNAPSHOTS:
        if flags[name] and is_on_command_line(name):
            raise click.UsageError(f"--{name.replace('_', '-')} needs --snapshots")


class Progress:
    """A line on stderr, if it is a terminal.

    `listing Nodes: 3,500 of about 10,000`, then `, 12 s for the next page` while it is awaited.
    """

    def __init__(self, verb: str, interval: float = INTERVAL) -> None:
        self._verb, self._interval = verb, interval
        self._is_shown = sys.stderr.isatty()
        self._due = time.monotonic() + interval
        self._count = "0"

    def __call__(self, read: int, total: int | None) -> None:
        """Show the number of Nodes read, and in all if that is known."""
        if self._is_shown:
            of = "" if total is None else f" of about {total:,}"
            self._count = f"{read:,}{of}"
            if time.monotonic() >= self._due:
                self._write("")

    def waiting(self, seconds: float) -> None:
        """Show for how long the next Nodes have been awaited."""
        if self._is_shown:
            self._write(f", {seconds:.0f} s for the next page")

    def _write(self, more: str) -> None:
        sys.stderr.write(f"\r{f'{self._verb}: {self._count}{more}':<{WIDTH}}")
        sys.stderr.flush()
        self._due = time.monotonic() + self._interval

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write(f"\r{'':<{WIDTH}}\r")
            sys.stderr.flush()
