"""The command `bwagent verify`: read both halves, compare and print them, return the exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from agent import inputs
from agent.errors import BwagentError, Malformed, Unavailable
from agent.exits import print_line
from agent.options import is_on_command_line, require_plan
from agent.sources import rdma
from agent.sources.table import NEIGHBOR_SOURCES
from agent.verify import report
from agent.verify.expected import Expected, from_labels, merged
from agent.verify.judge import Options, verify
from agent.verify.plan_index import from_plans
from agent.verify.seen import seen_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.host import Host
    from agent.kube.commands import Target
    from agent.model import Observation
    from agent.plans.model import Plan
    from agent.verify.judge import Result

    Flags = dict[str, Any]

NO_PLAN = "nothing to compare with: give --plan FILE or --from-node"
# The flags that --write-plan, which compares nothing, does not take.
OF_COMPARISON = ("from_node", "hca_map", "ignore", "npd", "no_tolerance")


class Halves(NamedTuple):
    """The two halves, and lines with the origin of the expected one."""

    host: Host
    observation: Observation
    names: tuple[str, ...]  # of this node, the displayed one first
    target: Target | None
    expected: Expected
    notes: tuple[str, ...]


def run(flags: Flags) -> int:
    """Run the command; return its exit code. With --npd, every error is the code for unknown."""
    flags = {**flags, "source": flags["source"] or (rdma.SOURCE, *dict(NEIGHBOR_SOURCES))}
    if not flags["npd"]:
        return _run(flags)
    try:
        return _run(flags)
    except click.UsageError as error:
        print_line(" ".join(error.format_message().split())[: report.NPD_WIDTH])
    except BwagentError as error:
        print_line(str(error)[: report.NPD_WIDTH])
    return report.NPD_EXIT[report.UNVERIFIED]


def _run(flags: Flags) -> int:
    require_plan(flags)
    if flags["npd"] and is_on_command_line("output"):
        raise click.UsageError("--npd excludes --output")
    if flags["split"]:
        return _split(flags)
    if flags["write_plan"]:
        return _write_plan(flags)
    halves = _halves(flags)
    result = _compared(halves, flags)
    if flags["npd"]:
        print_line(report.npd_line(result))
        return report.NPD_EXIT[report.outcome(result.findings)]
    _printed(report.FORMATS[flags["output"]](result, halves.notes))
    return report.EXIT[report.outcome(result.findings)]


def _printed(text: str) -> int:
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _write_plan(flags: Flags) -> int:
    from agent.verify.write import written

    _refuse_comparison(flags, "plan", *OF_COMPARISON)
    host = inputs.host(flags, inputs.lldp_wait(flags))
    node = seen_node(_observed(host, flags, None), _names(flags, host)[0])
    text, notes = written(node, inputs.naming(flags), flags["write_plan"])
    if not text:
        raise Unavailable(f"nothing to write: no backend port of {node.name} has a neighbor")
    for note in notes:
        print_line(note, err=True)
    return _printed(text)


def _refuse_comparison(flags: Flags, *names: str) -> None:
    """Raise click.UsageError for a flag of the comparison, which --write-plan would ignore."""
    given = [name for name in names if flags[name]]
    if given or is_on_command_line("output"):
        other = given[0].replace("_", "-") if given else "output"
        raise click.UsageError(f"--write-plan compares nothing: leave out --{other}")


def _split(flags: Flags) -> int:
    """Write the plan files as parts that a ConfigMap holds; this node is not looked at."""
    from agent.verify.split import split, write

    if flags["write_plan"] != "csv" or not flags["plan"]:
        raise click.UsageError("--split needs --plan FILE and --write-plan csv")
    _refuse_comparison(flags, *OF_COMPARISON)
    plans = [plan for path in flags["plan"] for plan in _read_plan(path, flags)]
    parts, notes = split(plans)
    write(parts, flags["split"])
    for plan in plans:
        notes += _notes(plan)
    for note in notes:
        print_line(note, err=True)
    for part in parts:
        path = os.path.join(flags["split"], part.name)  # noqa: PTH118 - pathlib drops a ./
        print_line(f"{path}: {part.rows} rows of {part.nodes} nodes, {part.size} bytes")
    return 0


def _halves(flags: Flags) -> Halves:
    """Read the plans and the Node first: their errors need no observation."""
    is_from_node = _is_from_node(flags)
    plans = [plan for path in flags["plan"] for plan in _read_plan(path, flags)]
    host = inputs.host(flags, inputs.lldp_wait(flags))
    names = _names(flags, host)
    node = {**flags, "node_name": flags["node_name"] or names[0]}
    target = inputs.target(node) if is_from_node else None
    expected, notes = _expected(plans, target, names, flags)
    return Halves(host, _observed(host, flags, target), names, target, expected, notes)


def _is_from_node(flags: Flags) -> bool:
    """Return True if the Node has the expected half; raises click.UsageError for none at all."""
    if flags["from_node"] or flags["plan"]:
        return bool(flags["from_node"])
    given = flags["kubeconfig"] or flags["context"] or os.environ.get("KUBERNETES_SERVICE_HOST")
    config = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")  # noqa: PTH111
    has_cluster = given or any(map(os.path.exists, config.split(os.pathsep)))
    if flags["replay"] or not has_cluster:
        raise click.UsageError(NO_PLAN)
    return True


def _read_plan(path: str, flags: Flags) -> list[Plan]:
    from agent.plans.reader import read_plan

    return read_plan(path, flags["plan_format"])


def _names(flags: Flags, host: Host) -> tuple[str, ...]:
    """Return the Node name and the host name of the node."""
    names = (flags["node_name"], host.name and host.name.lower())
    return tuple(dict.fromkeys(filter(None, names))) or ("this-node",)


def _observed(host: Host, flags: Flags, target: Target | None) -> Observation:
    """Observe the node; raises Unavailable if the RDMA class could not be read."""
    observation = inputs.observed(host, flags, target)
    inputs.require_rdma(observation)
    return observation


def _expected(
    plans: Sequence[Plan], target: Target | None, names: Sequence[str], flags: Flags
) -> tuple[Expected, tuple[str, ...]]:
    """Combine the expected halves, each with its note; raises Malformed for an empty one."""
    naming, off = inputs.naming(flags), frozenset(flags["no_tolerance"])
    parts, notes = [], []
    for plan in plans:
        part = (
            from_labels(plan.labels, naming, plan.file)
            if plan.labels
            else from_plans([plan], names, off)
        )
        parts.append(part)
        notes += [_note(plan, part, names[0]), *_notes(plan)]
    if target:
        source = f"Node {target.node['metadata']['name']}"
        parts.append(from_labels(_labels(target), naming, source))
        notes.append(f"{source}: labels, {len(parts[-1].rows)} interfaces")
    expected = merged(parts)
    if expected.is_empty:
        raise Malformed(f"nothing is expected of {' or '.join(names)}: {'; '.join(notes)}")
    return expected, tuple(notes)


def _notes(plan: Plan) -> list[str]:
    """Return the notes of a plan, each with its file."""
    return [note if note.startswith(plan.file) else f"{plan.file}: {note}" for note in plan.notes]


def _note(plan: Plan, part: Expected, node: str) -> str:
    sheet = f", sheet {plan.sheet}" if plan.sheet else ""
    count = len(part.rows)
    return f"{plan.file}: {plan.kind}{sheet}, {count} row{'s' * (count != 1)} for {node}"


def _labels(target: Target) -> Mapping[str, str]:
    from agent.kube.managed_fields import labels_of, state_of

    return labels_of(state_of(target.node).fields)


def _compared(halves: Halves, flags: Flags) -> Result:
    from agent.sources.netdev import netdev_names
    from agent.sources.pci import functions_on_bus, read_paths
    from agent.verify.hca_map import read_map

    options = Options(
        frozenset(flags["no_tolerance"]),
        flags["ignore"],
        read_map(flags["hca_map"]) if flags["hca_map"] else {},
        halves.target.interfaces() if halves.target else {},
        functions_on_bus(halves.host),
        netdev_names(halves.host),
    )
    node = seen_node(halves.observation, halves.names[0])
    paths = read_paths(halves.host, halves.observation.ports)
    return verify(halves.expected, node, options, paths)
