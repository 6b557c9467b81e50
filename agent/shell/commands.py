"""The commands of the shell; each imports its modules itself.

`capture_of_node` is `kubectl bwagent capture NODE`: kubectl finds the agent's Pod on the Node and
runs `bwagent capture -` in it. As the program `bwagent`, `capture` is about the host that it runs
on (agent/cli.py).
"""

from __future__ import annotations

from typing import Any

import click

from agent.exits import print_line, print_lines
from agent.options import (
    EXAMPLES,
    CheckedCommand,
    Seconds,
    anonymize_option,
    cluster_options,
    device_options,
    flag,
    is_on_command_line,
    modules_option,
    no_wait_option,
    node_name_option,
    not_empty,
    refuse_cluster,
    replay_option,
    source_options,
    switch,
    tiers_option,
)

VARIABLE = "_BWAGENT_COMPLETE"  # click's name for it, which the scripts set


@click.command(
    help="Print the script that completes commands and flags.\n\n"
    "SHELL is bash (4.4 or newer), zsh or fish. For one session: source "
    "<(bwagent completion bash)",
    epilog=EXAMPLES.format(
        "bwagent completion bash >/etc/bash_completion.d/bwagent",
        "bwagent completion fish >~/.config/fish/completions/bwagent.fish",
    ),
)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    if script := get_completion_class(shell):
        click.echo(script(root, {}, "bwagent", VARIABLE).source())


@click.command(
    help="List what this node lacks, with the command that brings it.\n\n"
    "Nothing is changed. Exit code 1: something is missing.",
    cls=CheckedCommand,
    epilog=EXAMPLES.format("bwagent doctor --no-cluster", "bwagent doctor --replay gpu-17.tar"),
)
@switch("--no-cluster", "Contact no API server.")
@replay_option
@cluster_options
@node_name_option
@device_options
@source_options
@tiers_option
@modules_option
def doctor(no_cluster: bool, **flags: Any) -> None:
    from agent import inputs
    from agent.shell.doctor import lines, of_cluster, of_sources, surroundings

    inputs.refuse_idle(flags)
    is_live = not flags["replay"]
    if no_cluster or not is_live:
        refuse_cluster("--no-cluster" if is_live else "--replay")
    if idle := next(
        filter(is_on_command_line, () if is_live else ("node_name", "no_cluster")), None
    ):
        raise click.UsageError(f"--replay excludes --{idle.replace('_', '-')}")
    name = None if no_cluster or not is_live else inputs.node_name(flags)
    host = inputs.host(flags, reads_counters=False)
    observation, _ = inputs.observed(host, flags, None)
    around = surroundings(host, observation, openvswitch=flags["openvswitch"], is_live=is_live)
    checks = list(of_sources(around))
    if flags["modules"]:
        from agent.transceiver.modules import checks as of_modules

        checks += [("modules", check) for check in of_modules(observation, host.modules)]
    if name:
        access = flags["kubeconfig"], flags["context"]
        checks += of_cluster(name, observation.boot_id, *access)
    print_lines(lines(checks))
    click.get_current_context().exit(int(any(check.missing for _, check in checks)))


@click.command(
    "capture",
    help="Write what the agent on NODE reads, by an exec into its Pod.\n\n"
    "A name that ends in .tar is a file, any other a new folder. [default: "
    "NODE.tar]",
    epilog=EXAMPLES.format(
        "kubectl bwagent capture gpu-17",
        "kubectl bwagent capture gpu-17 --anonymize for-a-bug-report",
    ),
)
@click.argument("node", metavar="NODE", type=not_empty)
@click.argument("target", metavar="[FILE|DIR]", required=False, type=not_empty)
@click.option(
    "-n", "--namespace", default="bwagent", show_default=True, help="Namespace of the agents."
)
@flag("--kubeconfig", "FILE", "As of kubectl.")
@flag("--context", "NAME", "As of kubectl.")
@anonymize_option
@click.option("--wait", type=Seconds(0, 3600), metavar="SECONDS", help="Wait for LLDP frames.")
@no_wait_option
@switch("--tiers", "Ask for the switches above the leaves.")
def capture_of_node(node: str, target: str | None, **flags: Any) -> None:
    from agent.folder import refuse_archive
    from agent.shell.pod import save

    if target and not target.endswith(".tar"):
        refuse_archive(target)
    if flags["wait"] is not None and flags["no_wait"]:
        raise click.UsageError("--wait excludes --no-wait")
    names = ("anonymize", "no_wait", "tiers")
    words = [f"--{name.replace('_', '-')}" for name in names if flags[name]]
    words += [] if flags["wait"] is None else ["--wait", f"{flags['wait']:g}"]
    of_kubectl = {name: flags[name] for name in ("kubeconfig", "context")}
    target = target or f"{node}.tar"
    summary = save(node, target, words, flags["namespace"], of_kubectl)
    print_line(f"{target}: {summary}")
