"""The command line of bwagent, and `probe`. agent/exits.py has exit codes and prints errors.

Other commands are loaded where they are used or listed, and each imports its modules itself, so
that `--help` and short commands start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import click

from agent import __version__, inputs
from agent.errors import Rejected
from agent.exits import is_plugin, print_line, print_lines, run_and_exit
from agent.options import (
    EXAMPLES,
    CheckedCommand,
    choice,
    cluster_options,
    device_options,
    force_option,
    former_options,
    modules_option,
    naming_options,
    refuse_cluster,
    replay_option,
    switch,
    tiers_option,
    wait_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version, and the revision and day of its commit where they are known."""
    if not wanted or context.resilient_parsing:
        return
    from agent.revision import revision

    known = revision()
    print_line(f"bwagent {__version__}{f' ({known})' if known else ''}")
    context.exit()


class Commands(click.Group):
    """A group that loads these commands only where they are used or listed.

    An added command of the same name takes the place of one, as the plugin's `capture` does.
    """

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "capture": "agent.commands",
        "cleanup": "agent.commands",
        "completion": "agent.shell.commands",
        "doctor": "agent.shell.commands",
        "explain": "agent.commands",
        "fleet": "agent.fleet.command",
        "run": "agent.commands",
        "verify": "agent.commands",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is None and (module := self.ELSEWHERE.get(cmd_name)):
            command = getattr(import_module(module), cmd_name)
        return command


@click.group(
    cls=Commands,
    help="Label a Node with the state of its backend network, for topology-aware "
    "schedulers.\n\n"
    "Every flag is also an environment variable, BWAGENT_<COMMAND>_<FLAG>. "
    "Those that decide labels have one for all commands, BWAGENT_<FLAG>.",
    context_settings={"auto_envvar_prefix": "BWAGENT", "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None: ...


@cli.command(
    help="Observe this node once; print its labels, and apply them.",
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent probe --dry-run", "bwagent probe --replay sysfs_fixtures/dgx-h100 -o labels"
    ),
)
@switch("--dry-run", "Change nothing; contact no API server.")
@switch("--diff", "With --dry-run: read the Node and show the changes.")
@replay_option
@choice("-o --output", ["table", "labels", "json", "yaml"], "Print this format.")
@cluster_options
@force_option
@naming_options
@former_options
@device_options
@wait_options
@tiers_option
@modules_option
def probe(output: str, dry_run: bool, diff: bool, **flags: Any) -> None:
    if diff and (flags["replay"] or not dry_run):
        raise click.UsageError("--diff needs --dry-run, and excludes --replay")
    if flags["replay"] or (dry_run and not diff):
        refuse_cluster("--replay" if flags["replay"] else "--dry-run without --diff")
    inputs.refuse_idle(flags)
    from agent.labels.render import render
    from agent.output.document import NOT_READ, Choices, document
    from agent.output.formats import show

    naming, wait = inputs.naming(flags), inputs.lldp_wait(flags)
    host = inputs.host(flags, wait)
    target = None if flags["replay"] or (dry_run and not diff) else inputs.target(flags, host)
    observation, known = inputs.observed(host, flags, target)
    rendered = render(known, naming)
    shown = rendered.over(target.previous) if target else rendered
    notes = list(wait.notes()) if wait else []
    notes += target.problems(observation) if target else []
    globs = flags["backend_device"], flags["exclude_device"]
    stranger = None if target or flags["replay"] else inputs.stranger(flags, host)
    if stranger:
        print_line(stranger, err=True)
    # A table is of the host that it was read from, a manifest of the Node that was asked for.
    name = None if stranger and output == "table" else flags["node_name"]
    choices = Choices(*globs, naming, name)
    hardware = inputs.whole(host, observation) if output == "json" else NOT_READ
    modules, problems = inputs.modules(flags, host, observation)
    described = document(observation, known, choices, [*notes, *problems], shown, hardware)
    show(described | modules, output)
    inputs.require_rdma(observation)
    if target:
        from agent.kube.commands import planned, publish

        change, lines = planned(target, observation, known, rendered)
        lines, fault = (lines, None) if dry_run else publish(target, change)
        # Below a table, but on stderr where a program may read the document.
        print_lines(["", *lines] if output == "table" else lines, err=output != "table")
        if fault:
            raise Rejected(fault)


def main() -> None:
    """Run the command line and exit; an error is one line on stderr and an exit code."""
    if is_plugin():
        from agent.shell.commands import capture_of_node

        cli.add_command(capture_of_node)
    run_and_exit(cli)


if __name__ == "__main__":
    main()
