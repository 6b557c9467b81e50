"""The commands of the shell; each imports its modules itself."""

from __future__ import annotations

from typing import Any

import click

from agent.environment import SWITCH, CheckedCommand
from agent.options import cluster_options, device_options, node_name_option, source_options

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_BWAGENT_COMPLETE"  # click's name for it, which the scripts set


@click.command(
    epilog="\b\nExamples:\n"
    "  bwagent completion bash >/etc/bash_completion.d/bwagent\n"
    "  bwagent completion fish >~/.config/fish/completions/bwagent.fish"
)
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands and flags.

    SHELL is bash (4.4 or newer), zsh or fish. For one session:
    source <(bwagent completion bash)
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    if script := get_completion_class(shell):
        click.echo(script(root, {}, "bwagent", VARIABLE).source())


@click.command(
    cls=CheckedCommand,
    epilog="\b\nExamples:\n"
    "  bwagent doctor --no-cluster\n"
    "  bwagent doctor --context prod --source ib",
)
@click.option("--no-cluster", **SWITCH, help="Contact no API server.")
@cluster_options
@node_name_option
@device_options
@source_options
def doctor(no_cluster: bool, **flags: Any) -> None:
    """List what this node lacks, with the command that brings it.

    Nothing is changed. Exit code 1: something is missing.
    """
    from agent import inputs
    from agent.exits import print_lines
    from agent.shell.doctor import CLUSTER, exit_code, lines, of_sources
    from agent.shell.surroundings import surroundings

    name = None if no_cluster else inputs.node_name(flags)
    host = inputs.live(flags, None)
    observation = inputs.observed(host, flags, None)
    around = surroundings(host, observation, openvswitch=flags["openvswitch"])
    found = list(of_sources(around))
    if name:
        from agent.kube.checks import check
        from agent.kube.transport import connect

        found.append((CLUSTER, check(connect(flags["kubeconfig"], flags["context"]), name)))
    print_lines(lines(found))
    click.get_current_context().exit(exit_code(found))
