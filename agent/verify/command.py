"""The command `bwagent verify`: read both halves, compare and print them, return the exit code."""

from __future__ import annotations

import csv
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from agent import inputs
from agent.errors import BwagentError, Malformed, Unavailable
from agent.exits import print_line
from agent.sources import rdma
from agent.sources.table import NEIGHBOR_SOURCES
from agent.verify import report
from agent.verify.expected import Expected, from_labels, from_plans, merged
from agent.verify.findings import Options, verify
from agent.verify.model import Place
from agent.verify.seen import seen_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.host import Host
    from agent.kube.commands import Target
    from agent.model import Observation
    from agent.verify.findings import Result
    from agent.verify.model import Plan

    Flags = dict[str, Any]
    ReadNode = Callable[[Flags], Target]

NO_PLAN = "nothing to compare with: give --plan FILE or --from-node"
HCA_MAP = ("port", "hca-name")  # columns


class Halves(NamedTuple):
    """What is compared, and the lines that say where the expected half is from."""

    host: Host
    observation: Observation
    names: tuple[str, ...]  # of this node, the displayed one first
    target: Target | None
    expected: Expected
    notes: tuple[str, ...]


def run(flags: Flags, read_node: ReadNode) -> int:
    """Run the command; return its exit code. With --npd, every error is the code for unknown."""
    flags = {**flags, "source": flags["source"] or (rdma.SOURCE, *dict(NEIGHBOR_SOURCES))}
    if not flags["npd"]:
        return _run(flags, read_node)
    try:
        return _run(flags, read_node)
    except click.UsageError as error:
        print_line(" ".join(error.format_message().split())[: report.NPD_WIDTH])
    except BwagentError as error:
        print_line(str(error)[: report.NPD_WIDTH])
    return report.NPD_EXIT[report.UNVERIFIED]


def _run(flags: Flags, read_node: ReadNode) -> int:
    if flags["write_plan"]:
        return _write_plan(flags)
    halves = _halves(flags, read_node)
    result = _compared(halves, flags)
    if flags["npd"]:
        print_line(report.npd_line(result))
        return report.NPD_EXIT[report.outcome(result)]
    sys.stdout.write(report.FORMATS[flags["output"]](result, halves.notes))
    sys.stdout.flush()
    return report.EXIT[report.outcome(result)]


def _write_plan(flags: Flags) -> int:
    from agent.verify.write import written

    host = _host(flags)
    observation = _observed(host, flags, None)
    node = seen_node(observation, _names(flags, host)[0])
    text, notes = written(node, inputs.naming(flags), flags["write_plan"])
    for note in notes:
        print_line(note, err=True)
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _halves(flags: Flags, read_node: ReadNode) -> Halves:
    """Read the plans and the Node first: their errors need no observation."""
    is_from_node = _is_from_node(flags)
    plans = [plan for path in flags["plan"] for plan in _read_plan(path, flags)]
    host = _host(flags)
    names = _names(flags, host)
    target = read_node(_for_node(flags, names[0])) if is_from_node else None
    expected, notes = _expected(plans, target, names, flags)
    return Halves(host, _observed(host, flags, target), names, target, expected, notes)


def _is_from_node(flags: Flags) -> bool:
    """Return True if the Node has the expected half; raises click.UsageError for none at all."""
    if flags["from_node"] or flags["plan"]:
        return bool(flags["from_node"])
    if flags["replay"] or not _has_cluster(flags):
        raise click.UsageError(NO_PLAN)
    return True


def _has_cluster(flags: Flags) -> bool:
    """Return True if a kubeconfig or a Pod's account is there."""
    given = flags["kubeconfig"] or flags["context"] or os.environ.get("KUBERNETES_SERVICE_HOST")
    config = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")  # noqa: PTH111
    return bool(given) or os.path.exists(config)


def _read_plan(path: str, flags: Flags) -> list[Plan]:
    from agent.verify.plans.reader import read_plan

    return read_plan(path, flags["plan_format"])


def _host(flags: Flags) -> Host:
    if flags["replay"]:
        return inputs.replayed(flags["replay"], flags)
    return inputs.live(flags, inputs.lldp_wait(flags))


def _names(flags: Flags, host: Host) -> tuple[str, ...]:
    """Return the Node name and the host name of the node."""
    names = (flags["node_name"], host.name and host.name.lower())
    return tuple(dict.fromkeys(filter(None, names))) or ("this-node",)


def _for_node(flags: Flags, name: str) -> Flags:
    return {**flags, "former_label_prefixes": (), "node_name": flags["node_name"] or name}


def _observed(host: Host, flags: Flags, target: Target | None) -> Observation:
    """Observe the node; raises Unavailable if the RDMA class could not be read."""
    from agent.model import Failed

    observation = inputs.observed(host, flags, target)
    if isinstance(observation.rdma, Failed):
        raise Unavailable(f"nothing observed: {observation.rdma.reason}")
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
        notes += [_note(plan, part, names[0]), *(f"{plan.file}: {note}" for note in plan.notes)]
    if target:
        source = f"Node {target.node['metadata']['name']}"
        parts.append(from_labels(_labels(target), naming, source))
        notes.append(f"{source}: labels, {len(parts[-1].rows)} interfaces")
    expected = merged(parts)
    if expected.is_empty:
        raise Malformed(f"nothing is expected of {' or '.join(names)}: {'; '.join(notes)}")
    return expected, tuple(notes)


def _note(plan: Plan, part: Expected, node: str) -> str:
    sheet = f", sheet {plan.sheet}" if plan.sheet else ""
    return f"{plan.file}: {plan.kind}{sheet}, {len(part.rows)} rows for {node}"


def _labels(target: Target) -> Mapping[str, str]:
    from agent.kube.managed_fields import labels_of, state_of

    return labels_of(state_of(target.node).fields)


def _compared(halves: Halves, flags: Flags) -> Result:
    from agent.sources.pcie import functions_on_bus, read_paths

    options = Options(
        frozenset(flags["no_tolerance"]),
        flags["ignore"],
        _hca_map(flags["hca_map"]),
        halves.target.interfaces() if halves.target else {},
        functions_on_bus(halves.host),
    )
    node = seen_node(halves.observation, halves.names[0])
    paths = read_paths(halves.host, halves.observation.ports)
    return verify(halves.expected, node, options, paths)


def _hca_map(path: str | None) -> dict[str, str]:
    """Read the file of --hca-map: interface of the plan to interface of this node."""
    if path is None:
        return {}
    from agent.verify.plans.source import load

    rows = list(csv.reader(load(path).text.splitlines()))
    header = [cell.strip().lower() for cell in rows[0]]
    if any(name not in header for name in HCA_MAP):
        raise Malformed(f"{Place(path, None, 1)}: the columns are not {','.join(HCA_MAP)}")
    port, name = (header.index(column) for column in HCA_MAP)
    found: dict[str, str] = {}
    for number, row in enumerate(rows[1:], 2):
        if any(cell.strip() for cell in row):
            _add(found, [cell.strip() for cell in row], (port, name), Place(path, None, number))
    return found


def _add(found: dict[str, str], row: Sequence[str], columns: tuple[int, int], place: Place) -> None:
    port, name = (row[column] if column < len(row) else "" for column in columns)
    if not port or not name:
        raise Malformed(f"{place}: an empty cell")
    if found.setdefault(port, name) != name:
        raise Malformed(f"{place}: {port} is {name}, but {found[port]} above")
