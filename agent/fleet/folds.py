"""Findings of several nodes, or of several ports of a node, that have one cause.

A fold takes all findings of a code, each with its node, and returns those of the fleet, and the
ones that stay as they are. What one node says by itself keeps the ID that it has there.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from agent.findings.finding import NO_END, NOT_VERIFIED, PortRef, finding, grouped
from agent.fleet.cables import port_text
from agent.model import natural
from agent.reasons import NeighborReason
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
MAX_REASONS = 20  # more that are of one node each are one finding
OTHERS = "reasons of one node each"
MIN_INTERFACES = 2  # of a node, all missing


def _unverifiable(found: Sequence[Found]) -> Folded:
    """Return one finding for each reason and severity; if many are of one node, one of these."""
    by_reason = grouped(found, lambda one: (one[1].severity, _reason(one[1])))
    single = {key: same for key, same in by_reason.items() if len({node for node, _ in same}) == 1}
    if len(single) <= MAX_REASONS:
        single = {}
    folded = []
    for key, same in by_reason.items():
        if key not in single:
            word = NeighborReason.of(key[1])
            text = f"not verified: {word.text if word else key[1]}."
            folded.append(_not_verified(same, text, key, {"reason": key[1]}))
    rest = grouped(chain(*single.values()), lambda one: one[1].severity)
    for severity, same in rest.items():
        node, one = same[0]
        text = f"not verified, for {OTHERS}; for example {node}: {one.text}"
        folded.append(_not_verified(same, text, (severity, OTHERS), None))
    return folded, []


def _reason(one: Finding) -> str:
    facts = dict(one.facts)
    return facts.get("reason") or facts.get(NOT_VERIFIED) or one.text


def _not_verified(
    same: Sequence[Found], text: str, key: tuple[str, str], facts: Mapping[str, object] | None
) -> Finding:
    """Return the finding of ports, or of nodes as such; `key` has its severity first."""
    ports = [*dict.fromkeys(_ports(same))]
    nodes = sorted({node for node, _ in same}, key=natural)
    where = f"of {many(len(nodes), 'node')} ({listed(nodes)})"
    text = f"{many(len(ports), 'port') if ports else 'Something'} {where} {text}"
    is_of_node = len(nodes) == 1 and facts
    if is_of_node:
        text = f"{nodes[0]}: {same[0][1].text}"
    made = finding("unverifiable", ports, text, nodes=nodes, severity=key[0], key=key, facts=facts)
    return made._replace(id=same[0][1].id) if is_of_node else made


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
    made = finding("duplicate", ports, text, key=_end(same[0]), facts=facts, expected=end)
    return made._replace(id=same[0][1].id) if len(same) == 1 else made


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
