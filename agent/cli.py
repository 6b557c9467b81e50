"""The commands of bwagent. agent/exits.py has their exit codes and the printing of errors.

Each command imports its modules itself, so that `--help` and short commands start fast.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agent import __version__, inputs
from agent.errors import Rejected, Unavailable
from agent.exits import is_plugin, print_line, print_lines, run_and_exit
from agent.fleet.group import fleet
from agent.options import (
    SWITCH,
    CheckedCommand,
    StrictCommand,
    anonymize_option,
    check_tls,
    cluster_options,
    device_options,
    former_options,
    is_on_command_line,
    naming_options,
    not_empty,
    output_option,
    replay_option,
    run_options,
    short_help,
    source_options,
    wait_options,
)
from agent.shell.commands import completion, doctor
from agent.shell.plugin import capture_of_node
from agent.verify.options import plan_options, verify_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.kube.commands import Target
    from agent.labels.render import Rendered
    from agent.model import Observation, Problem

    Flags = dict[str, Any]

STDOUT = "-"
EXAMPLES = "\b\nExamples:\n  {}\n  {}"


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version, and the revision and day of its commit where they are known."""
    if not wanted or context.resilient_parsing:
        return
    from agent.revision import revision

    known = revision()
    print_line(f"bwagent {__version__}{f' ({known})' if known else ''}")
    context.exit()


@click.group(
    context_settings={"auto_envvar_prefix": "BWAGENT", "help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Label a Node with the state of its backend network, for topology-aware schedulers.

    Every flag is also an environment variable, BWAGENT_<COMMAND>_<FLAG>. Those that
    decide labels have one for all commands, BWAGENT_<FLAG>.
    """


@cli.command(
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent probe --dry-run", "bwagent probe --replay sysfs_fixtures/dgx-h100 -o labels"
    ),
)
@click.option("--dry-run", **SWITCH, help="Change nothing; contact no API server.")
@click.option("--diff", **SWITCH, help="With --dry-run: read the Node and show the changes.")
@replay_option
@output_option("table", "labels", "json", "yaml")
@cluster_options
@naming_options
@former_options
@device_options
@wait_options
def probe(replay: str | None, output: str, dry_run: bool, diff: bool, **flags: Any) -> None:
    """Observe this node once; print its labels, and apply them."""
    if diff and (replay or not dry_run):
        raise click.UsageError("--diff needs --dry-run, and excludes --replay")
    from agent.labels.render import render

    target = None if replay or (dry_run and not diff) else _target(flags)
    lldp_wait = None if replay else inputs.lldp_wait(flags)
    host = inputs.replayed(replay, flags) if replay else inputs.live(flags, lldp_wait)
    observation = inputs.observed(host, flags, target)
    rendered = render(observation, inputs.naming(flags), target.previous() if target else None)
    notes = list(lldp_wait.notes()) if lldp_wait else []
    notes += target.problems(observation) if target else []
    _show(observation, rendered, notes, flags, output)
    _require_rdma(observation)
    if target:
        _publish(target, observation, rendered, apply=not dry_run, to_stderr=output != "table")


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
    choices = Choices(*globs, inputs.naming(flags), flags["node_name"])
    show(document(observation, choices, notes, rendered), output)


def _target(flags: Flags) -> Target:
    """Read the Node; raises Unavailable before anything else is done."""
    from agent.kube.commands import target
    from agent.kube.transport import connect

    kube = connect(flags["kubeconfig"], flags["context"])
    return target(
        kube, inputs.node_name(flags), inputs.naming(flags), flags["former_label_prefixes"]
    )


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
@click.option("--dry-run", **SWITCH, help="Change nothing; log what would be applied.")
@click.option("--events/--no-events", **SWITCH, help="Write Events about the Node.")
@click.option("--require-policy", **SWITCH, help="Not ready without the admission policy.")
@run_options
@plan_options
@cluster_options
@naming_options
@former_options
@device_options
@source_options
def run(
    hold: float, min_interval: float, resync: float, source: tuple[str, ...], **flags: Any
) -> None:
    """Watch this node; keep its Node's labels current until SIGTERM."""
    from agent.daemon.main import Configuration
    from agent.daemon.main import run as serve
    from agent.daemon.schedule import Settings

    check_tls(flags)
    if flags["dry_run"] and flags["require_policy"] and is_on_command_line("require_policy"):
        raise click.UsageError("--require-policy: a --dry-run does not check the policy")
    serve(
        Configuration(
            node=inputs.node_name(flags),
            naming=inputs.naming(flags),
            settings=Settings(hold, min_interval, resync),
            sources=source,
            backend_devices=flags["backend_device"],
            excluded_devices=flags["exclude_device"],
            source_options=flags,
            **{name: flags[name] for name in Configuration.__slots__ if name in flags},
        )
    )


@cli.command(
    epilog=EXAMPLES.format(
        "bwagent cleanup --context prod --node-name gpu-17", "bwagent cleanup --all --yes"
    )
)
@click.option(
    "--all", "everywhere", **SWITCH, help="Clean all Nodes; needs permission to list them."
)
@click.option(
    "--foreign",
    **SWITCH,
    help="Remove the keys that others set and bwagent does not publish, instead of its own; "
    "never the accelerator's.",
)
@click.option(
    "--manager",
    metavar="NAME",
    type=not_empty,
    help="With --foreign: only the keys of this field manager.",
)
@click.option("--lost", **SWITCH, help="Only forget interfaces that left the bus.")
@click.option("--yes", **SWITCH, help="Do not ask for confirmation.")
@cluster_options
@naming_options
def cleanup(
    everywhere: bool, foreign: bool, manager: str | None, lost: bool, yes: bool, **flags: Any
) -> None:
    """Remove every label and annotation of the agent from a Node.

    Delete the DaemonSet first: an agent that runs writes its labels again.
    """
    from agent.cleanup import clean_up, clean_up_foreign, forget_lost
    from agent.kube.connection import connected

    if foreign and lost:
        raise click.UsageError("--foreign excludes --lost")
    if manager and not foreign:
        raise click.UsageError("--manager needs --foreign")
    if everywhere and foreign and not manager:
        raise click.UsageError("--foreign with --all needs --manager")
    if everywhere and is_on_command_line("node_name"):
        raise click.UsageError("--all excludes --node-name")
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("standard input is not a terminal: add --yes")
    node, naming = None if everywhere else inputs.node_name(flags), inputs.naming(flags)
    with connected(flags["kubeconfig"], flags["context"]) as kube:
        if foreign:
            clean_up_foreign(kube, node, naming, manager, yes=yes)
        elif lost:
            forget_lost(kube, node, naming, yes=yes)
        else:
            clean_up(kube, node, naming, yes=yes)


@cli.command(
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent explain speed.current",
        "bwagent explain backend.coreweave.cloud/neighbors.current.ibp0.device",
    ),
)
@click.argument("key", metavar="KEY")
@replay_option
@output_option("table", "json")
@cluster_options
@naming_options
@device_options
@wait_options
def explain(key: str, replay: str | None, output: str, **flags: Any) -> None:
    """Print where a label comes from, and who holds it on the Node.

    KEY may lack its prefix.
    """
    from agent.output.formats import show_explained

    subject = inputs.subject_of(key, flags)
    target, fault = (None, None) if replay else inputs.readable(flags, _target)
    if replay:
        host = inputs.replayed(replay, flags)
    else:
        host = inputs.live(flags, inputs.wait_for(subject, flags))
    observation = inputs.observed(host, flags, target)
    show_explained(inputs.explained(subject, observation, flags, target, fault), output)


cli.add_command(fleet)
cli.add_command(completion)
cli.add_command(doctor)


@short_help
@cli.command(
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent verify --plan cabling.csv",
        "bwagent verify --replay node-17 --plan cabling.csv -o junit",
    ),
)
@replay_option
@verify_options
@cluster_options
@naming_options
@device_options
@wait_options
def verify(**flags: Any) -> None:
    """Compare the cables of this node with those of the site's plan.

    The plan is --plan, or the expected labels of the Node. Exit code 3: differences.
    """
    from agent.verify.command import run as compare

    click.get_current_context().exit(compare(flags, _target))


@cli.command(
    epilog=EXAMPLES.format(
        "bwagent capture --anonymize for-a-bug-report", "bwagent capture - >node-17.tar"
    )
)
@click.argument("folder", metavar="DIR")
@anonymize_option
@device_options
@wait_options
def capture(folder: str, anonymize: bool, **flags: Any) -> None:
    """Write everything that bwagent reads on this node into DIR.

    DIR - is a tar archive on standard output.
    """
    from agent.folder import refuse_existing
    from agent.snapshot import anonymize as anonymizer
    from agent.snapshot.capture import entries, record, summary
    from agent.snapshot.written import WRITER, write_folder, write_tar

    if folder != STDOUT:
        refuse_existing(folder, WRITER)
    elif sys.stdout.isatty():
        raise click.UsageError("standard output is a terminal: redirect it, or name a folder")
    journal, observation = record(inputs.live(flags, inputs.lldp_wait(flags)), flags["source"])
    if not any(path.startswith("sys/") for path in journal.files):
        _require_rdma(observation)
    journal = anonymizer.anonymize(journal) if anonymize else journal
    if folder == STDOUT:
        write_tar(entries(journal), sys.stdout.buffer, observation.time)
    else:
        write_folder(entries(journal), folder)
    name = "standard output" if folder == STDOUT else folder
    print_line(f"{name}: {summary(journal)}", err=folder == STDOUT)


def _require_rdma(observation: Observation) -> None:
    """Raise Unavailable if the RDMA class could not be read: without it nothing was observed."""
    from agent.model import Failed

    if isinstance(observation.rdma, Failed):
        raise Unavailable(f"nothing observed: {observation.rdma.reason}")


def main() -> None:
    """Run the command line and exit; an error is one line on stderr and an exit code."""
    if is_plugin():
        cli.add_command(capture_of_node)
    run_and_exit(cli)


if __name__ == "__main__":
    main()
