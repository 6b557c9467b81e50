"""Findings of several nodes, or of several ports of a node, that have one cause.

A fold takes all findings of a code, each with its node, and returns those of the fleet, and the
ones that stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.findings.finding import NO_END, PortRef, finding, grouped
from agent.fleet.cables import port_text
from agent.fleet.unverified import folded
from agent.model import natural
from agent.text import listed, many
from agent.verify import words
from agent.verify.expected import end_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.findings.finding import Finding
    from agent.verify.expected import FarPort

    Found = tuple[str, Finding]  # node, its finding
    Folded = tuple[list[Finding], list[Found]]

MIN_NODES = 3  # whose plan lacks the same interface
MIN_INTERFACES = 2  # of a node, all missing


def _unverifiable(found: Sequence[Found]) -> Folded:
    return [*folded(found)], []


def _duplicate(found: Sequence[Found]) -> Folded:
    """Return one finding for each switch port that the plan gives twice."""
    of_plan = [one for one in found if one[1].actual == NO_END]
    of_nodes = [one for one in found if one[1].actual != NO_END]
    return [_of_plan(same) for same in grouped(of_plan, _end).values()], of_nodes


def _of_plan(same: Sequence[Found]) -> Finding:
    ports, end = _ports(same), same[0][1].expected
    facts = dict(same[0][1].facts)
    users = [port_text(one) for one in ports]
    if len(ports) < 2:  # the others are of nodes that are not compared
        users += [facts["users"].removeprefix(f"{ports[0].interface}, " if ports else "")]
    text = words.duplicate_in_plan(end[0] or "", end[1] or "", users)
    return finding("duplicate", ports, text, key=_end(same[0]), facts=facts, expected=end)


def _end(one: Found) -> FarPort:
    device, port = one[1].expected
    return end_key(device or "", port or "")


def _ports(same: Iterable[Found]) -> list[PortRef]:
    return [PortRef(node, name) for node, one in same for name in one.interfaces]


def _unexpected(found: Sequence[Found]) -> Folded:
    """Return one finding for each interface that the plan lacks on several nodes."""
    by_name = grouped(found, lambda one: one[1].interface)
    common = {name: same for name, same in by_name.items() if len(same) >= MIN_NODES}
    rest = [one for one in found if one[1].interface not in common]
    return [_of_interface(name or "", same) for name, same in common.items()], rest


def _of_interface(name: str, same: Sequence[Found]) -> Finding:
    nodes = sorted((node for node, _ in same), key=natural)
    text = (
        f"The plan has no cable for {name} of {many(len(nodes), 'node')} ({listed(nodes)}): add "
        "the cables to the plan, or leave them out with --ignore."
    )
    return finding("unexpected", _ports(same), text, nodes=nodes, key=["interface", name])


def _missing_interface(found: Sequence[Found]) -> Folded:
    """Return one finding for each node that has none of several interfaces."""
    by_node = grouped(found, lambda one: one[0])
    several = {node: same for node, same in by_node.items() if len(same) >= MIN_INTERFACES}
    rest = [one for one in found if one[0] not in several]
    return [_of_absent(node, same) for node, same in several.items()], rest


def _of_absent(node: str, same: Sequence[Found]) -> Finding:
    ports = _ports(same)
    names = listed([port.interface for port in ports])
    text = f"{node}: {names} of the plan are not on this node: look for their NICs on the PCI bus."
    return finding("missing-interface", ports, text, key=[node, "several"])


FOLDS: Mapping[str, Callable[[Sequence[Found]], Folded]] = {
    "unverifiable": _unverifiable,
    "duplicate": _duplicate,
    "unexpected": _unexpected,
    "missing-interface": _missing_interface,
}
