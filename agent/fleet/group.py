"""The commands of `bwagent fleet`; each imports its modules itself."""

from __future__ import annotations

from typing import Any

import click

from agent.options import CheckedCommand, comparison_options, flag, reading_options, short_help

OF_WIRING, OF_TOPOLOGY = ("csv", "dot"), ("kueue", "slurm", "slurm-block", "slurm-yaml")
EXPORTS = (*OF_WIRING, *OF_TOPOLOGY)
# Formats that were removed, with what takes their place.
FORMER = {
    "graphml": "use dot, or csv, which has every fact of a cable",
    "kai": "a Topology that names the labels, as in docs/exports.md",
    "slinky": "Topograph reads the labels, as in docs/exports.md",
    "volcano": "its label discoverer makes HyperNodes, as in docs/exports.md",
}
EXAMPLES = "\b\nExamples:\n  {}\n  {}"


class ExportFormat(click.Choice[str]):
    """A format of `fleet export`; the error for a removed format says what to use."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in FORMER:
            self.fail(f"{value} was removed: {FORMER[value]}", param, ctx)
        return super().convert(value, param, ctx)


@click.group(help="Compare the cables of all Nodes, or export the topology.")
def fleet() -> None: ...


@short_help
@fleet.command(
    "verify",
    help="Compare the cables of all Nodes with a plan or their pattern.\n\n"
    "Exit code 3: differences.",
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent fleet verify --context prod",
        "bwagent fleet verify --nodes nodes.json -o html >cables.html",
    ),
)
@reading_options
@comparison_options
def verify(**flags: Any) -> None:
    from agent.fleet.command import verify as compare

    click.get_current_context().exit(compare(flags))


@short_help
@fleet.command(
    "export",
    help="Print the topology for a scheduler, or the wiring itself.\n\n"
    f"FORMAT: {', '.join(OF_WIRING)}; {', '.join(OF_TOPOLOGY)}",
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent fleet export kueue --selector pool=gpu",
        "bwagent fleet export slurm --nodes nodes.json >topology.conf",
    ),
)
@click.argument("form", metavar="FORMAT", type=ExportFormat(EXPORTS))
@reading_options
@flag("--level", "KEY", "Label of a level above, outermost first. Repeatable.", multiple=True)
@click.option(
    "--strict",
    is_flag=True,
    help="Keep Nodes with wrong cables in the leaf groups of their labels.",
)
def export(form: str, **flags: Any) -> None:
    from agent.fleet.command import export as print_export

    click.get_current_context().exit(print_export(form, flags, is_wiring=form in OF_WIRING))


for parameter in export.params:
    # The key of the NVLink domains is shown in --help: they are levels and blocks of an export.
    if isinstance(parameter, click.Option) and parameter.name == "accelerator_label":
        parameter.hidden = False
