"""The commands of `bwagent fleet`; each imports its modules itself."""

from __future__ import annotations

from typing import Any

import click

from agent.options import CheckedCommand, comparison_options, reading_options, short_help

EXPORTS = (
    *("csv", "dot", "graphml", "kai", "kueue", "slinky", "slurm", "slurm-block", "slurm-yaml"),
    "volcano",
)
EXAMPLES = "\b\nExamples:\n  {}\n  {}"


@click.group()
def fleet() -> None:
    """Compare the cables of all Nodes, or export the topology."""


@short_help
@fleet.command(
    "verify",
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent fleet verify --context prod",
        "bwagent fleet verify --nodes nodes.json -o html >cables.html",
    ),
)
@reading_options
@comparison_options
def verify(**flags: Any) -> None:
    """Compare the cables of all Nodes with a plan or their pattern.

    Exit code 3: differences.
    """
    from agent.fleet.command import verify as compare

    click.get_current_context().exit(compare(flags))


@short_help
@fleet.command(
    "export",
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent fleet export kueue --selector pool=gpu",
        "bwagent fleet export slurm --nodes nodes.json >topology.conf",
    ),
)
@click.argument("form", metavar="FORMAT", type=click.Choice(EXPORTS))
@reading_options
@click.option(
    "--strict",
    is_flag=True,
    help="Keep Nodes with wrong cables in the leaf groups of their labels.",
)
def export(form: str, **flags: Any) -> None:
    """Print the topology for a scheduler, or the wiring itself.

    \b
    FORMAT: csv, dot, graphml; kai, kueue, slinky, slurm, slurm-block,
            slurm-yaml, volcano
    """  # noqa: D301 - click's mark for lines that are not wrapped
    from agent.fleet.command import export as print_export

    click.get_current_context().exit(print_export(form, flags))


for parameter in export.params:
    # The key of the NVLink domains is shown in --help: they are levels and blocks of an export.
    if isinstance(parameter, click.Option) and parameter.name == "accelerator_label":
        parameter.hidden = False
