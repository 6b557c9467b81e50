"""The flags of `bwagent verify`, and those of `bwagent run` for plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agent.options import GLOB, SWITCH, not_empty, options, output_option

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_PLAN = ("plan_format", "hca_map")  # without effect on anything else


def _tolerance(text: str) -> str:
    from agent.verify.names import TOLERANCES

    if text not in TOLERANCES:
        raise click.BadParameter(f"{text[:64]!r} is none of {', '.join(TOLERANCES)}")
    return text


def require_plan(flags: Mapping[str, Any]) -> None:
    """Raise click.UsageError for a flag that says how to read a plan, without one."""
    given = [name for name in OF_PLAN if flags[name]]
    if given and not flags["plan"]:
        raise click.UsageError(f"--{given[0].replace('_', '-')} needs --plan FILE")


# The expected half, besides that of the Node: run. A ConfigMap may come later than the agent.
plan_options = options(
    click.option(
        "--plan",
        multiple=True,
        metavar="FILE",
        type=not_empty,
        help="Cabling plan, own CSV or labels. Repeatable.",
    ),
)
# The plans of a comparison: verify, fleet verify.
plan_files_options = options(
    click.option(
        "--plan",
        type=click.Path(exists=True, dir_okay=False),
        multiple=True,
        metavar="FILE",
        help="Cabling plan. Repeatable.",
    ),
    click.option("--plan-format", metavar="KIND", help="Its kind.  [default: recognized]"),
)
no_tolerance_option = click.option(
    "--no-tolerance",
    multiple=True,
    metavar="NAME",
    type=_tolerance,
    help="Compare names without it. Repeatable.",
)
hca_map_option = click.option(
    "--hca-map",
    type=click.Path(exists=True, dir_okay=False),
    metavar="CSV",
    help="Columns port,hca-name: the plan's HCA numbers.",
)
verify_options = options(
    plan_files_options,
    click.option("--from-node", **SWITCH, help="The Node's labels, beside --plan."),
    hca_map_option,
    click.option("--ignore", **GLOB, help="Ignore these interfaces. Repeatable."),
    no_tolerance_option,
    output_option(
        *("table", "json", "junit", "csv"), metavar="FORMAT", help="table, json, junit or csv."
    ),
    click.option("--npd", **SWITCH, help="One line, for node-problem-detector."),
    click.option(
        "--write-plan", type=click.Choice(["csv", "labels"]), help="Print what is seen as a plan."
    ),
    click.option(
        "--split",
        metavar="DIR",
        type=not_empty,
        help="With --plan, --write-plan csv: write parts of it.",
    ),
)
