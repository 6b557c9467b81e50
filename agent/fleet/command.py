"""The commands `bwagent fleet verify` and `fleet export`: read the fleet, judge it, print it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agent import inputs
from agent.errors import Unavailable
from agent.exits import print_line
from agent.exits import report as complain
from agent.fleet.read import read
from agent.garbage import uncollected
from agent.options import is_on_command_line, require_plan

if TYPE_CHECKING:
    from agent.fleet.judged import Judged
    from agent.fleet.model import Fleet
    from agent.plans.model import Plan

    Flags = dict[str, Any]

HTML = "html"
WIRING = frozenset({"csv", "dot", "graphml"})  # formats of the cables as they are seen


def verify(flags: Flags) -> int:
    """Print what the fleet is judged to be; return the exit code."""
    require_plan(flags)
    plans = _plans(flags)  # first: their errors need no cluster
    numbered = _hca_map(flags)
    fleet = _read(flags)
    from agent.fleet import report
    from agent.fleet.judge import judge
    from agent.verify.judge import Options

    options = Options(frozenset(flags["no_tolerance"]), flags["ignore"], numbered)
    with uncollected():
        judged = judge(fleet, plans, options, inputs.naming(flags))
    _print(_rendered(judged, flags["output"]))
    return _code(fleet, report.EXIT[report.outcome(judged)])


def export(form: str, flags: Flags) -> int:
    """Print the topology in the form of a scheduler; return the exit code.

    Nodes with wrong cables are in the group of their neighbors, unless the flag `strict` is given;
    the wiring is printed as it is seen.
    """
    if form in WIRING and flags["strict"] and is_on_command_line("strict"):
        raise click.UsageError(f"--strict has no effect on {form}: wrong cables are in it")
    fleet = _read(flags)
    from agent.fleet.exports.placement import placed
    from agent.fleet.exports.table import FORMATS
    from agent.fleet.exports.text import commented

    moved = list[str]()
    if form not in WIRING and not flags["strict"]:
        fleet, moved = placed(fleet)
    exported = FORMATS[form](fleet, inputs.naming(flags))
    for note in (*moved, *exported.notes):
        print_line(note, err=True)
    _print(commented(moved) * bool(exported.text) + exported.text)
    code = _code(fleet, 0)
    if not exported.text:
        raise Unavailable(f"{fleet.source}: nothing to export as {form}")
    return code


def _plans(flags: Flags) -> list[Plan]:
    from agent.plans.reader import read_plan

    return [plan for path in flags["plan"] for plan in read_plan(path, flags["plan_format"])]


def _hca_map(flags: Flags) -> dict[str, str]:
    from agent.verify.hca_map import read_map

    return read_map(flags["hca_map"]) if flags["hca_map"] else {}


def _read(flags: Flags) -> Fleet:
    """Read the fleet; raises Unavailable if no Node has anything of the agent."""
    fleet = read(flags)
    if fleet.others and not fleet.nodes:
        prefix = flags["label_prefix"]
        text = f"none of {fleet.others} Nodes has labels of bwagent under {prefix}"
        raise Unavailable(f"{fleet.source}: {text} (--label-prefix names another)")
    return fleet


def _rendered(judged: Judged, output: str) -> str:
    if output == HTML:
        from agent.fleet.page.render import page

        return page(judged)
    from agent.fleet.report import FORMATS

    return FORMATS[output](judged)


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _code(fleet: Fleet, code: int) -> int:
    """Report what could not be read of the fleet; return 1 for it, else the code."""
    for problem in fleet.problems:
        complain(f"bwagent: {problem}", 1)
    return 1 if fleet.problems else code
