"""`kubectl bwagent capture NODE`: the capture of a Node by the agent's Pod on it.

kubectl finds the Pod and runs `bwagent capture -` in it. As the program `bwagent`, `capture` is
about the host that it runs on (agent/cli.py).
"""

from __future__ import annotations

from typing import Any

import click

from agent.options import SWITCH, anonymize_option, not_empty


@click.command(
    "capture",
    epilog="\b\nExamples:\n"
    "  kubectl bwagent capture gpu-17\n"
    "  kubectl bwagent capture gpu-17 --anonymize for-a-bug-report",
)
@click.argument("node", metavar="NODE", type=not_empty)
@click.argument("target", metavar="[FILE|DIR]", required=False, type=not_empty)
@click.option(
    "-n", "--namespace", default="bwagent", show_default=True, help="Namespace of the agents."
)
@click.option("--kubeconfig", metavar="FILE", type=not_empty, help="As of kubectl.")
@click.option("--context", metavar="NAME", type=not_empty, help="As of kubectl.")
@anonymize_option
@click.option(
    "--wait", type=click.FloatRange(0, 3600), metavar="SECONDS", help="Wait for LLDP frames."
)
@click.option("--no-wait", **SWITCH, help="Do not receive LLDP frames.")
def capture_of_node(node: str, target: str | None, **flags: Any) -> None:
    """Write everything that the agent on NODE reads, by `kubectl exec` in its Pod.

    A name that ends in .tar is a file, any other a new folder.  [default: NODE.tar]
    """
    from agent.exits import print_line
    from agent.shell.pod import Pods, save

    if flags["wait"] is not None and flags["no_wait"]:
        raise click.UsageError("--wait excludes --no-wait")
    words = ["--anonymize"] if flags["anonymize"] else []
    words += ["--no-wait"] if flags["no_wait"] else []
    words += [] if flags["wait"] is None else ["--wait", f"{flags['wait']:g}"]
    pods = Pods(flags["namespace"], flags["kubeconfig"], flags["context"])
    target = target or f"{node}.tar"
    count = save(pods, node, target, words)
    print_line(f"{target}: {count} files and links")
