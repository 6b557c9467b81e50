"""The command `bwagent verify`: read both halves, compare and print them, return the exit code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from agent import inputs
from agent.cabling import baseline
from agent.cabling.expected import from_labels, merged
from agent.cabling.judge import VerifyOptions, VerifyResult, verify
from agent.cabling.plan_index import from_plans
from agent.cabling.seen import seen_node
from agent.errors import Malformed, Unavailable
from agent.exits import print_line, print_text
from agent.exits import report as complain
from agent.options import OF_CLUSTER, Flags, idle_of_cluster, is_on_command_line, require_plan
from agent.output.report import EXIT, NOTHING_COMPARED, UNVERIFIED, unverified
from agent.text import many
from agent.verify import report

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


def run(flags: Flags) -> int:
    """Run the command; return its exit code."""
    require_plan(flags)
    inputs.refuse_idle(flags)
    if flags["npd"] and is_on_command_line("output"):
        raise click.UsageError("--npd excludes --output")
    if flags["split"]:
        return _split(flags)
    if flags["write_plan"]:
        return _write_plan(flags)
    result, notes = _compared(flags)
    files = flags["baseline"], flags["write_baseline"]
    known = baseline.settled(result.findings, [result.node], *files)
    result = result._replace(findings=known.findings, accepted=known.accepted)
    if flags["npd"]:
        print_line(report.npd_text(report.verdict(result)))
        return report.NPD_EXIT[report.outcome(result)]
    print_text(report.FORMATS[flags["output"]](result, (*notes, *known.notes)))
    outcome = report.outcome(result)
    if outcome == UNVERIFIED:
        gaps = [NOTHING_COMPARED] if report.is_blind(result) else []
        complain(f"bwagent: {unverified(result.node, result.findings, gaps)}", 1)
    return EXIT[outcome]


def _write_plan(flags: Flags) -> int:
    from agent.verify.write import written

    _refuse_comparison(flags, "plan", *OF_COMPARISON, *filter(is_on_command_line, OF_CLUSTER))
    host = inputs.host(flags, inputs.lldp_wait(flags), reads_counters=False)
    node = seen_node(inputs.node_document(host, flags, None, _names(flags, host)[0]))
    text, notes = written(node, inputs.naming(flags), flags["write_plan"])
    if not text:
        raise Unavailable(f"nothing to write: no backend port of {node.name} has a neighbor")
    for note in notes:
        print_line(note, err=True)
    print_text(text)
    return 0


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
