"""The command line: flags and environment in, an exit code and one line about what went wrong out.

Exit codes: 0 done, 1 could not do it, 2 wrong flags or environment. What a command needs it imports itself, so that
`--help` is as fast as click allows.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from agent import __version__
from agent.errors import BwagentError, Rejected, Unavailable
from agent.options import (
    AllAtOnce,
    cluster_options,
    device_options,
    naming_options,
    not_empty,
    run_options,
    source_options,
    wait_options,
)

if TYPE_CHECKING:
    from agent.host import Host
    from agent.kube.commands import Target
    from agent.labels.render import Rendered
    from agent.labels.table import Naming
    from agent.lldp.wait import LldpWait
    from agent.model import Observation

EXAMPLES = "\b\nExamples:\n  {}\n  {}"


@click.group(
    context_settings={"auto_envvar_prefix": "BWAGENT", "help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="bwagent", message="%(prog)s %(version)s")
def cli() -> None:
    """Observe a node's backend network and render the labels that topology-aware schedulers read.

    Every flag is also an environment variable, BWAGENT_<COMMAND>_<FLAG>.
    """


@cli.command(
    epilog=EXAMPLES.format(
        "bwagent probe --dry-run", "bwagent probe --replay sysfs_fixtures/dgx-h100 -o labels"
    )
)
@click.option("--dry-run", is_flag=True, help="Change nothing and contact no API server.")
@click.option(
    "--diff", is_flag=True, help="With --dry-run: read the Node and show what would change."
)
@click.option(
    "--replay",
    metavar="SNAPSHOT",
    callback=not_empty,
    help="Look at a capture (folder or tar) instead of this node.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "labels", "json", "yaml"]),
    default="table",
    show_default=True,
)
@cluster_options
@naming_options
@device_options
@wait_options
def probe(replay: str | None, output: str, dry_run: bool, diff: bool, **flags: Any) -> None:
    """Observe this node once, print its labels, and apply them to its Node unless --dry-run."""
    if diff and (replay or not dry_run):
        raise click.UsageError("--diff goes with --dry-run, and not with --replay")
    from agent.labels.render import render
    from agent.output.formats import Choices, report_on, show
    from agent.snapshot.replay import replay as replayed
    from agent.sources.observe import observe

    choices = Choices(
        flags["backend_device"], flags["exclude_device"], _naming(flags), flags["node_name"]
    )
    target = None if replay or (dry_run and not diff) else _target(flags)
    host, hearing = (
        (replayed(replay, choices.excluded_devices, choices.backend_devices), None)
        if replay
        else _live(flags)
    )
    observation = observe(host, flags["source"], target.interfaces() if target else None)
    rendered = render(observation, choices.naming, target.previous() if target else None)
    notes = [
        *(hearing.notes() if hearing else ()),
        *(target.problems(observation) if target else ()),
    ]
    show(report_on(observation, choices, notes, rendered), output)
    _fail_if_blind(observation)
    if target:
        _publish(target, observation, rendered, apply=not dry_run, aside=output != "table")


def _naming(flags: dict[str, Any]) -> Naming:
    from agent.labels.table import Naming

    return Naming(flags["label_prefix"], flags["ib_label_prefix"], flags["accelerator_label"])


def _node_name(flags: dict[str, Any]) -> str:
    from agent.labels.encode import prefix_fault

    name: str = flags["node_name"] or os.uname().nodename.lower()
    if prefix_fault(name):
        raise click.UsageError(
            f"the host name {name[:64]!r} is no Node name: give one with --node-name"
        )
    return name


def _target(flags: dict[str, Any]) -> Target:
    """The Node, looked at before anything else is done."""
    from agent.kube.commands import target
    from agent.kube.transport import connect

    return target(connect(flags["kubeconfig"], flags["context"]), _node_name(flags), _naming(flags))


def _publish(
    target: Target, observation: Observation, rendered: Rendered, *, apply: bool, aside: bool
) -> None:
    """Show what changes, below a table or beside what a program reads, and make it so."""
    from agent.kube.commands import planned, publish

    todo, lines = planned(target, observation, rendered)
    fault = None
    if apply:
        lines, fault = publish(target, todo)
    click.echo("\n".join(lines if aside else ["", *lines]), err=aside)
    if fault:
        raise Rejected(fault)


@cli.command(
    cls=AllAtOnce,
    epilog=EXAMPLES.format(
        "bwagent run --metrics-address :9477", "bwagent run --dry-run --context prod -v"
    ),
)
@click.option("--dry-run", is_flag=True, help="Read the Node, and log what would be applied.")
@run_options
@cluster_options
@naming_options
@device_options
@source_options
def run(
    hold: float, min_interval: float, resync: float, source: tuple[str, ...], **flags: Any
) -> None:
    """Watch this node and keep the labels of its Node true, until SIGTERM."""
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
            **{name: flags[name] for name in Configuration.__slots__ if name in flags},
        )
    )


@cli.command(
    epilog=EXAMPLES.format(
        "bwagent cleanup --context prod --node-name gpu-17", "bwagent cleanup --all --yes"
    )
)
@click.option(
    "--all", "everywhere", is_flag=True, help="On every Node; needs the right to list them."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
@naming_options
def cleanup(everywhere: bool, yes: bool, **flags: Any) -> None:
    """Remove every label and annotation that the agent owns on its Node."""
    from agent.kube.commands import clean_up, plan_cleanup
    from agent.kube.diff import planned
    from agent.kube.transport import connect

    if not yes and not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask: add --yes")
    kube = connect(flags["kubeconfig"], flags["context"])
    todo = plan_cleanup(kube, None if everywhere else _node_name(flags), _naming(flags))
    for plan in todo:
        click.echo("\n".join(planned(plan)))
    if not todo:
        click.echo("nothing to remove")
    elif yes or click.confirm(
        f"Remove this from {len(todo)} Node{'s' * (len(todo) != 1)}?", abort=True
    ):
        faults = [fault for plan in todo if (fault := clean_up(kube, plan, click.echo))]
        for fault in faults[:-1]:
            _complain(f"bwagent: {fault}", 1)
        if faults:
            raise Rejected(faults[-1])


@cli.command(
    epilog=EXAMPLES.format(
        "bwagent capture node-17", "bwagent capture --anonymize for-a-bug-report"
    )
)
@click.argument("folder", metavar="DIR")
@click.option(
    "--anonymize", is_flag=True, help="Replace GUIDs, MACs, serials and host names, consistently."
)
@device_options
@wait_options
def capture(folder: str, anonymize: bool, **flags: Any) -> None:
    """Write a snapshot of what bwagent reads on this node into DIR."""
    from agent.snapshot import anonymize as anonymizer
    from agent.snapshot.capture import record, refuse_existing, summary, write

    refuse_existing(folder)
    host, _ = _live(flags)
    journal, observation = record(host, flags["source"])
    if not any(path.startswith("sys/") for path in journal.files):
        _fail_if_blind(observation)
    journal = anonymizer.anonymize(journal) if anonymize else journal
    write(journal, folder)
    click.echo(f"{folder}: {summary(journal)}")


def _live(flags: dict[str, Any]) -> tuple[Host, LldpWait | None]:
    """The doors of this node, and the patience of the one that LLDP frames come in by."""
    from agent.live_host import live_host
    from agent.lldp.packet_socket import Listener
    from agent.lldp.wait import LldpWait, progress

    hearing = (
        None
        if flags["no_wait"]
        else LldpWait(flags["wait"], progress, Listener(openvswitch=flags["openvswitch"]))
    )
    devices = flags["exclude_device"], flags["backend_device"]
    return live_host(flags["sysfs_root"], *devices, hearing, flags["nvml_library"]), hearing


def _fail_if_blind(observation: Observation) -> None:
    from agent.model import Failed

    if isinstance(observation.rdma, Failed):
        raise Unavailable(f"nothing observed: {observation.rdma.reason}")


def main() -> None:
    """Run the command line; what goes wrong becomes one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name may have any letters
    sys.exit(_run())


def _run() -> int:
    try:
        if sys.stdout is None:
            raise Unavailable("standard output is closed")
        code: int | None = cli.main(prog_name="bwagent", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        return _complain(help_wanted.format_message(), 2)
    except click.ClickException as error:
        command = (
            error.ctx.command_path
            if isinstance(error, click.UsageError) and error.ctx
            else "bwagent"
        )
        return _complain(f"{command}: {' '.join(error.format_message().split())}", 2)
    except (click.Abort, KeyboardInterrupt):
        return _complain("bwagent: interrupted", 130)
    except BwagentError as error:
        return _complain(f"bwagent: {error}", 1)
    except OSError as error:
        # What is still in the buffer cannot be written either; Python's last flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _complain(f"bwagent: cannot write the output: {error.strerror or error}", 1)
    return code or 0


def _complain(line: str, code: int) -> int:
    click.echo(line, err=True)
    return code


if __name__ == "__main__":
    main()
