"""The commands of the shell; each imports its modules itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from agent.options import (
    SWITCH,
    CheckedCommand,
    cluster_options,
    device_options,
    node_name_option,
    source_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.check import Check

NOT_THE_AGENT = "admission policy not checked with this account; in the agent's Pod: bwagent doctor"
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
        found += [(CLUSTER, check) for check in _of_cluster(name, flags)]
    print_lines(lines(found))
    click.get_current_context().exit(exit_code(found))


def _of_cluster(name: str, flags: dict[str, Any]) -> Iterator[Check]:
    """Yield the checks of the API server; the policy restricts the agent's own account only."""
    from agent.check import absent
    from agent.kube.commands import check, check_admission
    from agent.kube.transport import connect

    kube = connect(flags["kubeconfig"], flags["context"])
    node = check(kube, name)
    yield node
    is_agent = os.environ.get("KUBERNETES_SERVICE_HOST") and not (
        flags["kubeconfig"] or flags["context"]
    )
    if node.is_there:
        yield check_admission(kube, name) if is_agent else absent(NOT_THE_AGENT)
