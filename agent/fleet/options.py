"""The flags of `bwagent fleet`."""

from __future__ import annotations

import click

from agent.options import GLOB, cluster_options, label_options, not_empty, options, output_option
from agent.verify.options import hca_map_option, no_tolerance_option, plan_files_options

OUTPUTS = ("table", "json", "csv", "junit", "html")
EXPORTS = (
    *("csv", "dot", "graphml", "kai", "kueue", "slinky", "slurm", "slurm-block", "slurm-yaml"),
    "volcano",
)


# The Nodes to read: all commands of the group.
reading_options = options(
    click.option(
        "--nodes",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        metavar="FILE",
        help="Read what `kubectl get nodes -o json` printed; - is standard input.",
    ),
    click.option(
        "--snapshots",
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        help="Read the captures in this folder.",
    ),
    click.option(
        "--selector",
        metavar="LABELS",
        type=not_empty,
        help="Only Nodes with these labels, as for kubectl.",
    ),
    click.option(
        "--node",
        multiple=True,
        metavar="NAME",
        type=not_empty,
        help="Only this Node; a glob for several. Repeatable.",
    ),
    cluster_options,
    label_options,
    *(
        click.option(flag, **{**GLOB, "hidden": True})  # of --snapshots
        for flag in ("--exclude-device", "--backend-device")
    ),
)
# The comparison and its output: verify.
comparison_options = options(
    plan_files_options,
    hca_map_option,
    click.option("--ignore", **GLOB, help="Ignore these interfaces. Repeatable."),
    no_tolerance_option,
    output_option(*OUTPUTS, metavar="FORMAT", help="table, json, csv, junit or html."),
)
