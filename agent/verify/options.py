"""The flags of `bwagent verify`, and those of `bwagent run` for plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agent.environment import SWITCH
from agent.options import GLOB, check, not_empty, options

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_PLAN = ("plan_format", "hca_map")  # without effect on anything else


def _tolerances(values: tuple[str, ...]) -> tuple[str, ...]:
    from agent.verify.names import TOLERANCES

    for value in values:
        if value not in TOLERANCES:
            raise click.BadParameter(f"{value[:64]!r} is none of {', '.join(TOLERANCES)}")
    return values


def require_plan(flags: Mapping[str, Any]) -> None:
    """Raise click.UsageError for a flag that says how to read a plan, without one."""
    given = [name for name in OF_PLAN if flags[name]]
    if given and not flags["plan"]:
        raise click.UsageError(f"--{given[0].replace('_', '-')} needs --plan FILE")


def _files(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(not_empty(value) or "" for value in values)


# The expected half, besides that of the Node: run. A ConfigMap may come later than the agent.
plan_options = options(
    click.option(
        "--plan",
        multiple=True,
        metavar="FILE",
        callback=check(_files),
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
    callback=check(_tolerances),
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
    click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "junit", "csv"]),
        default="table",
        show_default=True,
        metavar="FORMAT",
        help="table, json, junit or csv.",
    ),
    click.option("--npd", **SWITCH, help="One line, for node-problem-detector."),
    click.option(
        "--write-plan", type=click.Choice(["csv", "labels"]), help="Print what is seen as a plan."
    ),
    click.option(
        "--split",
        metavar="DIR",
        callback=check(not_empty),
        help="With --plan, --write-plan csv: write parts of it.",
    ),
)
