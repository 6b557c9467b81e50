"""The cables that could not be compared, one finding for each reason."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from agent.findings.finding import NOT_VERIFIED, PortRef, finding, grouped
from agent.model import natural
from agent.reasons import NeighborReason
from agent.text import listed, many

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.findings.finding import Finding

    Found = tuple[str, Finding]

MAX_REASONS = 20  # more that are of one node each are one finding
OTHERS = "reasons of one node each"


def folded(found: Iterable[Found]) -> Iterator[Finding]:
    """Yield a finding for each reason and severity."""
    by_reason = grouped(found, lambda one: (one[1].severity, _reason(one[1])))
    single = {key: same for key, same in by_reason.items() if len({node for node, _ in same}) == 1}
    if len(single) <= MAX_REASONS:
        single = {}
    for (severity, reason), same in by_reason.items():
        if (severity, reason) not in single:
            yield _folded(severity, reason, same)
    for severity, same in grouped(chain(*single.values()), lambda one: one[1].severity).items():
        yield _others(severity, same)


def _reason(one: Finding) -> str:
    facts = dict(one.facts)
    return facts.get("reason") or facts.get(NOT_VERIFIED) or one.text


def _folded(severity: str, reason: str, same: Sequence[Found]) -> Finding:
    ports, nodes = _subjects(same)
    word = NeighborReason.of(reason)
    text = f"{_what(ports, nodes)} not verified: {word.text if word else reason}."
    if len(nodes) == 1:
        text = f"{nodes[0]}: {same[0][1].text}"
    facts, key = {"reason": reason}, [severity, reason]
    return finding(
        "unverifiable", ports, text, nodes=nodes, severity=severity, key=key, facts=facts
    )


def _others(severity: str, same: Sequence[Found]) -> Finding:
    ports, nodes = _subjects(same)
    node, one = same[0]
    text = f"{_what(ports, nodes)} not verified, for {OTHERS}; for example {node}: {one.text}"
    key = [severity, OTHERS]
    return finding("unverifiable", ports, text, nodes=nodes, severity=severity, key=key)


def _subjects(same: Iterable[Found]) -> tuple[list[PortRef], list[str]]:
    """Return the ports and the nodes, each once."""
    same = list(same)
    ports = dict.fromkeys(PortRef(node, name) for node, one in same for name in one.interfaces)
    return [*ports], sorted({node for node, _ in same}, key=natural)


def _what(ports: Sequence[PortRef], nodes: Sequence[str]) -> str:
    where = f"of {many(len(nodes), 'node')} ({listed(nodes)})"
    return f"{many(len(ports), 'port')} {where}" if ports else f"Something {where}"
