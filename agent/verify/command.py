"""The command `bwagent verify`: read both halves, compare and print them, return the exit code.

A result is printed as table, JSON (schema 1, docs/verify.md), JUnit XML, CSV, or one line for NPD.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

import agent
from agent import inputs
from agent.cabling import baseline, cables
from agent.cabling.baseline import document as accepted_document
from agent.cabling.expected import from_labels, merged
from agent.cabling.finding import (
    ERROR,
    INFO,
    UNKNOWN,
    WARNING,
    end_document,
    finding_document,
)
from agent.cabling.judge import VerifyOptions, VerifyResult, verify
from agent.cabling.plan_index import from_plans
from agent.cabling.plans.own import rows_text
from agent.cabling.seen import seen_node
from agent.errors import Malformed, Unavailable
from agent.exits import print_line, print_text
from agent.exits import report as complain
from agent.options import OF_CLUSTER, Flags, idle_of_cluster, is_on_command_line, require_plan
from agent.output import junit, report
from agent.output.layout import WIDTH, columns, joined, opening, section
from agent.output.report import (
    COLUMNS,
    DIFFERENCES,
    EXIT,
    NOTHING_COMPARED,
    OK,
    UNVERIFIED,
    accepted,
    cells,
    counted,
    failed,
    unverified,
)
from agent.text import Json, many, visible

if TYPE_CHECKING:
    from agent.host import Host

NO_PLAN = "nothing to compare with: give --plan FILE or --from-node"
# The flags that --write-plan, which compares nothing, does not take.
OF_COMPARISON = (
    *("from_node", "hca_map", "ignore", "npd", "no_tolerance"),
    *("baseline", "write_baseline"),
)
# The flags that --split, which looks at no node, takes.
OF_SPLIT = frozenset({"plan", "plan_format", "columns", "write_plan", "split"})
SCHEMA = 1
NPD_WIDTH = 80  # characters that node-problem-detector keeps of a plugin's output by default
NPD_EXIT = {OK: 0, DIFFERENCES: 1, UNVERIFIED: 2}
TITLES = ["INTERFACE", "EXPECTED", "ACTUAL", "RESULT"]


def run(flags: Flags) -> int:
    """Run the command; return its exit code."""
    require_plan(flags)
    inputs.refuse_idle(flags)
    if flags["npd"] and is_on_command_line("output"):
        raise click.UsageError("--npd excludes --output")
    if flags["split"]:
        return _split(flags)
    if flags["write_plan"]:
        from agent.verify.write import written

        _refuse_comparison(flags, "plan", *OF_COMPARISON, *filter(is_on_command_line, OF_CLUSTER))
        host = inputs.host(flags, inputs.lldp_wait(flags), reads_counters=False)
        node = seen_node(inputs.node_document(host, flags, None, _names(flags, host)[0]))
        text, left_out = written(node, inputs.naming(flags), flags["write_plan"])
        if not text:
            raise Unavailable(f"nothing to write: no backend port of {node.name} has a neighbor")
        for note in left_out:
            print_line(note, err=True)
        print_text(text)
        return 0
    result, notes = _compared(flags)
    files = flags["baseline"], flags["write_baseline"]
    known = baseline.settled(result.findings, [result.node], *files)
    result = result._replace(findings=known.findings, accepted=known.accepted)
    if flags["npd"]:
        print_line(npd_text(verdict(result)))
        return NPD_EXIT[outcome(result)]
    print_text(FORMATS[flags["output"]](result, (*notes, *known.notes)))
    if outcome(result) == UNVERIFIED:
        gaps = [NOTHING_COMPARED] if is_blind(result) else []
        complain(f"bwagent: {unverified(result.node, result.findings, gaps)}", 1)
    return EXIT[outcome(result)]


def _refuse_comparison(flags: Flags, *names: str) -> None:
    """Raise click.UsageError for a flag of the comparison, which --write-plan would ignore."""
    given = [name for name in names if flags[name]]
    if given or is_on_command_line("output"):
        other = given[0].replace("_", "-") if given else "output"
        raise click.UsageError(f"--write-plan compares nothing: leave out --{other}")


def _split(flags: Flags) -> int:
    """Write the plan files as parts that a ConfigMap holds; this node is not looked at."""
    from agent.verify.write import split, write

    if flags["write_plan"] != "csv" or not flags["plan"]:
        raise click.UsageError("--split needs --plan FILE and --write-plan csv")
    _refuse_comparison(flags, *OF_COMPARISON)
    parameters = click.get_current_context().params
    if others := [name for name in parameters.keys() - OF_SPLIT if is_on_command_line(name)]:
        other = min(others).replace("_", "-")
        raise click.UsageError(f"--split reads plans only: leave out --{other}")
    plans = inputs.plans(flags)
    parts, notes = split(plans)
    write(parts, flags["split"])
    for note in (*notes, *(note for plan in plans for note in plan.placed_notes)):
        print_line(note, err=True)
    for part in parts:
        path = os.path.join(flags["split"], part.name)  # noqa: PTH118 - pathlib drops a ./
        print_line(f"{path}: {part.rows} rows of {part.nodes} nodes, {part.size} bytes")
    return 0


def _compared(flags: Flags) -> tuple[VerifyResult, tuple[str, ...]]:
    """Compare both halves; return also lines with the origin of the expected one.

    The plans and the Node are read first: their errors need no observation.
    """
    is_from_node = _is_from_node(flags)
    plans = inputs.plans(flags)
    host = inputs.host(flags, inputs.lldp_wait(flags))
    names = _names(flags, host)
    node = {**flags, "node_name": flags["node_name"] or names[0]}
    target = inputs.target(node, host) if is_from_node else None
    naming, off = inputs.naming(flags), frozenset(flags["no_tolerance"])
    parts, notes = [], []
    for plan in plans:
        if plan.labels:
            parts.append(from_labels(plan.labels, naming, plan.file))
        else:
            parts.append(from_plans([plan], names, off))
        rows = many(len(parts[-1].rows), "row")
        notes += [f"{plan.title}, {rows} for {names[0]}", *plan.placed_notes]
    if target:
        from agent.kube.managed_fields import labels_of, state_of

        source = f"Node {target.node['metadata']['name']}"
        parts.append(from_labels(labels_of(state_of(target.node).fields), naming, source))
        notes.append(f"{source}: labels, {many(len(parts[-1].rows), 'interface')}")
    expected = merged(parts)
    if expected.is_empty:
        raise Malformed(f"nothing is expected of {' or '.join(names)}: {'; '.join(notes)}")
    seen = seen_node(inputs.node_document(host, flags, target, names[0]))
    numbered = inputs.hca_map(flags)
    if target:
        seen = seen._replace(former={**target.interfaces, **seen.former})
    return verify(expected, seen, VerifyOptions(off, flags["ignore"], numbered)), (*notes,)


def _is_from_node(flags: Flags) -> bool:
    """Return True if the Node has the expected half; raises click.UsageError for none at all."""
    if flags["from_node"]:
        return True
    if flags["plan"]:
        if idle := idle_of_cluster():
            raise click.UsageError(f"{idle} needs --from-node, beside --plan")
        return False
    given = flags["kubeconfig"] or flags["context"] or os.environ.get("KUBERNETES_SERVICE_HOST")
    config = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")  # noqa: PTH111
    has_cluster = given or any(map(os.path.exists, config.split(os.pathsep)))
    if flags["replay"] or not has_cluster:
        raise click.UsageError(NO_PLAN)
    return True


def _names(flags: Flags, host: Host) -> tuple[str, ...]:
    """Return the Node name and the host name of the node."""
    names = (flags["node_name"], host.name and host.name.lower())
    return tuple(dict.fromkeys(filter(None, names))) or ("this-node",)


# in words


def is_blind(result: VerifyResult) -> bool:
    """Return True if no cable was compared, and that is accepted."""
    return report.is_nothing_compared(result.as_planned, result.accepted)


def outcome(result: VerifyResult) -> str:
    """Return OK, DIFFERENCES, or UNVERIFIED if something, or everything, could not be compared."""
    return report.outcome(result.findings, is_partial=is_blind(result))


def verdict(result: VerifyResult) -> str:
    """Return the first line: `gpu-017: 2 findings: 1 swapped, 1 slow; 6 of 8 cables as planned`."""
    planned = f"{result.as_planned} of {result.planned} cables as planned"
    unknown = sum(finding.severity == UNKNOWN for finding in result.findings)
    parts = [
        counted(result.findings),
        planned if result.planned or result.ignored else "no cables in the plan",
        f"{result.ignored} ignored" if result.ignored else "",
        f"{unknown} unverifiable" if unknown else "",
        report.accepted_count(result.accepted),
    ]
    return f"{result.node}: {'; '.join(filter(None, parts))}"


def document(result: VerifyResult, notes: Sequence[str] = ()) -> Json:
    """Return the JSON document; data is never in keys."""
    return {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "node": result.node,
        "verdict": verdict(result),
        "outcome": outcome(result),
        "planned": result.planned,
        "as_planned": result.as_planned,
        "notes": list(notes),
        "assumption": result.assumption,
        "cables": [
            {
                "interface": cable.ref.interface,
                "plan": cable.row.text,
                "place": str(cable.row.place),
                "status": cable.status,
                "reason": cable.reason,
                "expected": end_document(*cable.expected),
                "actual": end_document(*cable.actual),
                "matched_by": {"device": cable.device.by, "port": cable.far_port.by},
            }
            for cable in result.cables
        ],
        "findings": [finding_document(finding) for finding in result.findings],
        "accepted": [accepted_document(acceptance) for acceptance in result.accepted],
    }


def table(result: VerifyResult, notes: Sequence[str]) -> str:
    """Return the report for people."""
    every = (*result.findings, *(finding for finding, _ in result.accepted))
    in_ring = {port for finding in every if finding.code == "swapped" for port in finding.ports}
    rows = [
        [
            cable.ref.interface,
            " ".join(filter(None, cable.expected)) or "-",
            " ".join(filter(None, cable.actual)) or "-",
            "swapped" if cable.ref in in_ring else cable.status,
        ]
        for cable in result.cables
    ]
    shown = [[visible(cell, WIDTH) for cell in row] for row in rows]
    by_severity = {"Findings": (ERROR, WARNING), "Not verified": (UNKNOWN,), "Remarks": (INFO,)}
    return joined(
        [
            opening(verdict(result)),
            columns([TITLES, *shown]) if shown else [],
            *(
                section(
                    title,
                    [
                        f"{finding.code}: {finding.text}"
                        for finding in result.findings
                        if finding.severity in kept
                    ],
                )
                for title, kept in by_severity.items()
            ),
            section("Accepted", [acceptance.text for acceptance in result.accepted]),
            section("Plan", [*notes, *filter(None, [result.assumption])]),
        ]
    )


def csv_text(result: VerifyResult, _notes: Sequence[str]) -> str:
    """Return a row for each cable of a finding, or for the finding."""
    rows = [
        cells(finding, [move.port.interface if move else " ".join(finding.interfaces)], move)
        for finding in result.findings
        for move in finding.moves or (None,)
    ]
    return rows_text([COLUMNS, *rows])


def junit_text(result: VerifyResult, _notes: Sequence[str]) -> str:
    """Return a test suite: a case for each cable as planned, and for each finding."""
    right = [cable for cable in result.cables if cable.status == cables.AS_PLANNED]
    cases = [junit.Case(f"{cable.ref.interface} cable") for cable in right]
    cases += [failed(finding, finding.interfaces) for finding in result.findings]
    cases += [accepted(acceptance, acceptance.finding.interfaces) for acceptance in result.accepted]
    return junit.document(junit.suite("bwagent verify", result.node, cases))


def npd_text(text: str) -> str:
    """Return a text as the line for node-problem-detector."""
    return visible(" ".join(text.split()), NPD_WIDTH)


FORMATS: Mapping[str, Callable[[VerifyResult, Sequence[str]], str]] = {
    "table": table,
    "json": lambda result, notes: json.dumps(document(result, notes), indent=2) + "\n",
    "junit": junit_text,
    "csv": csv_text,
}
