"""The commands of bwagent, their exit codes, and errors in one line on stderr.

Exit codes: 0 done, 1 failed, 2 wrong flags or environment, 130 interrupted. Each command imports
its modules itself, so that `--help` and short commands start fast.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from agent import __version__
from agent.errors import BwagentError, Rejected, Unavailable
from agent.options import (
    StrictCommand,
    cluster_options,
    device_options,
    naming_options,
    not_empty,
    run_options,
    source_options,
    wait_options,
)
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.host import Host
    from agent.kube.commands import Target
    from agent.labels.render import Rendered
    from agent.labels.table import Naming
    from agent.lldp.wait import LldpWait
    from agent.model import Observation

MAX_LINE = 2000  # characters of one line that names an error or a change
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
    callback=not_empty,
    help="Read a capture (folder or tar), not this node.",
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
@device_options
@wait_options
def probe(replay: str | None, output: str, dry_run: bool, diff: bool, **flags: Any) -> None:
    """Observe this node once, print its labels and apply them to its Node."""
    if diff and (replay or not dry_run):
        raise click.UsageError("--diff needs --dry-run, and excludes --replay")
    from agent.labels.render import render
    from agent.output.document import Choices, document
    from agent.output.formats import show
    from agent.snapshot.replay import replay as replayed
    from agent.sources.observe import observe

    excluded, backend = flags["exclude_device"], flags["backend_device"]
    choices = Choices(backend, excluded, _naming(flags), flags["node_name"])
    target = None if replay or (dry_run and not diff) else _target(flags)
    lldp_wait = None
    if replay:
        host = replayed(replay, excluded, backend)
    else:
        host, lldp_wait = _live(flags)
    observation = observe(host, flags["source"], target.interfaces() if target else None)
    rendered = render(observation, choices.naming, target.previous() if target else None)
    notes = [
        *(lldp_wait.notes() if lldp_wait else ()),
        *(target.problems(observation) if target else ()),
    ]
    show(document(observation, choices, notes, rendered), output)
    _require_rdma(observation)
    if target:
        _publish(target, observation, rendered, apply=not dry_run, to_stderr=output != "table")


def _naming(flags: dict[str, Any]) -> Naming:
    from agent.labels.table import Naming

    return Naming(flags["label_prefix"], flags["ib_label_prefix"], flags["accelerator_label"])


def _node_name(flags: dict[str, Any]) -> str:
    from agent.labels.encode import prefix_fault

    name: str = flags["node_name"] or os.uname().nodename.lower()
    if prefix_fault(name):
        raise click.UsageError(f"the host name {name[:64]!r} is not a Node name: set --node-name")
    return name


def _target(flags: dict[str, Any]) -> Target:
    """Read the Node; raises Unavailable before anything else is done."""
    from agent.kube.commands import target
    from agent.kube.transport import connect

    return target(connect(flags["kubeconfig"], flags["context"]), _node_name(flags), _naming(flags))


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
    _print_lines(lines if to_stderr else ["", *lines], err=to_stderr)
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
    from agent.kube.commands import clean_up, plan_cleanup
    from agent.kube.diff import planned
    from agent.kube.transport import connect

    if not yes and not sys.stdin.isatty():
        raise click.UsageError("standard input is not a terminal: add --yes")
    kube = connect(flags["kubeconfig"], flags["context"])
    todo = plan_cleanup(kube, None if everywhere else _node_name(flags), _naming(flags))
    for plan in todo:
        _print_lines(planned(plan))
    if not todo:
        click.echo("nothing to remove")
    elif yes or click.confirm(
        f"Remove this from {len(todo)} Node{'s' * (len(todo) != 1)}?", abort=True
    ):
        faults = [
            fault
            for plan in todo
            if (fault := clean_up(kube, plan, lambda line: _print_lines([line])))
        ]
        for fault in faults[:-1]:
            _error(f"bwagent: {fault}", 1)
        if faults:
            raise Rejected(faults[-1])


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
    host, _ = _live(flags)
    journal, observation = record(host, flags["source"])
    if not any(path.startswith("sys/") for path in journal.files):
        _require_rdma(observation)
    journal = anonymizer.anonymize(journal) if anonymize else journal
    write(journal, folder)
    _print_lines([f"{folder}: {summary(journal)}"])


def _live(flags: dict[str, Any]) -> tuple[Host, LldpWait | None]:
    """Return this node, and its source of LLDP frames; None with --no-wait."""
    from agent.live_host import live_host
    from agent.lldp.packet_socket import Listener
    from agent.lldp.reception import LldpNeighbors
    from agent.lldp.wait import LldpWait, progress

    lldp_wait = lldp_neighbors = None
    if not flags["no_wait"]:
        listener = Listener(openvswitch=flags["openvswitch"])
        lldp_wait = LldpWait(flags["wait"], progress, listener)
        lldp_neighbors = LldpNeighbors(lldp_wait)
    devices = flags["exclude_device"], flags["backend_device"]
    options = _source_options(flags)
    return live_host(flags["sysfs_root"], *devices, lldp_neighbors, options), lldp_wait


def _source_options(flags: dict[str, Any]) -> dict[str, Any]:
    from agent.sources.table import OPTIONS

    return {option.name: flags[option.name] for option in OPTIONS}


def _require_rdma(observation: Observation) -> None:
    """Raise Unavailable if the RDMA class could not be read: without it nothing was observed."""
    from agent.model import Failed

    if isinstance(observation.rdma, Failed):
        raise Unavailable(f"nothing observed: {observation.rdma.reason}")


def main() -> None:
    """Run the command line and exit; an error is one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            # A name may have letters that the encoding of a terminal lacks.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(_run())


def _run() -> int:
    try:
        if sys.stdout is None:
            raise Unavailable("standard output is closed")
        code: int | None = cli.main(prog_name="bwagent", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        click.echo(no_arguments.format_message(), err=True)
        return 2
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context else "bwagent"
        return _error(f"{command}: {' '.join(error.format_message().split())}", 2)
    except (click.Abort, KeyboardInterrupt):
        return _error("bwagent: interrupted", 130)
    except BwagentError as error:
        return _error(f"bwagent: {error}", 1)
    except OSError as error:
        # The rest of the buffer cannot be written either; Python's flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _error(f"bwagent: cannot write the output: {error.strerror or error}", 1)
    return code or 0


def _error(line: str, code: int) -> int:
    _print_lines([line], err=True)
    return code


def _print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines that may name a stranger's text, such as another field manager."""
    click.echo("\n".join(visible(line, MAX_LINE) for line in lines), err=err)


if __name__ == "__main__":
    main()
