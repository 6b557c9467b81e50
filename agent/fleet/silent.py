"""The Nodes whose agent is silent: what their labels say may be of yesterday.

An agent refreshes its annotation once an hour. A Node is silent if that is two hours old, of
another boot than the Node's, of the future, or not there though labels are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from agent.cabling.finding import INFO, UNKNOWN, Finding, finding
from agent.facts import MAX_SKEW
from agent.fleet.model import Fleet, FleetNode
from agent.grouped import grouped
from agent.kube.annotation import MAX_AGE
from agent.text import listed, many, utc

OLD, OTHER_BOOT, FUTURE, NO_ANNOTATION = "old", "other-boot", "future", "no-annotation"
TEXTS = {
    OLD: "it has not reported for two hours; the oldest report is of {oldest}",
    OTHER_BOOT: "it has not reported since the last boot of the Node",
    FUTURE: "its last report is of a time that is yet to come, so set the clock of the node",
    NO_ANNOTATION: "it left labels, but no annotation that says how old they are",
}


def cause(node: FleetNode, now: int) -> str | None:
    """Return why a Node is silent; None if it is not."""
    if node.time is None:
        return NO_ANNOTATION
    if node.time > now + MAX_SKEW:
        return FUTURE
    if is_of_other_boot(node.boot_id, node.node_boot_id):
        return OTHER_BOOT
    return OLD if node.time < now - MAX_AGE else None


def is_of_other_boot(reported: str | None, present: str | None) -> bool:
    """Return True if a report is of another boot than the Node has now; both must be known."""
    return bool(reported and present) and reported != present


def causes(fleet: Fleet) -> dict[str, str]:
    """Return the silent Nodes, each with its cause."""
    pairs = ((node.name, cause(node, fleet.now)) for node in fleet.nodes)
    return {name: why for name, why in pairs if why}


def findings(
    fleet: Fleet, silent: dict[str, str], expected: Collection[str] | None
) -> Iterator[Finding]:
    """Yield one finding for each cause.

    It is a remark for the Nodes of which nothing is expected; None: all are compared.
    """
    for why, meaning in TEXTS.items():
        nodes = [node for node in fleet.nodes if silent.get(node.name) == why]
        of_severity = grouped(
            nodes,
            lambda node: UNKNOWN if expected is None or node.name in expected else INFO,
        )
        for severity, same in of_severity.items():
            names = [node.name for node in same]
            times = [node.time for node in same if node.time is not None]
            oldest = utc(min(times)) if times else None
            where = f"{many(len(names), 'node')} ({listed(names)})"
            text = f"Look at the agent of {where}: {meaning.format(oldest=oldest)}."
            facts, key = {"cause": why, "oldest": oldest}, [why, severity]
            yield finding("silent", [], text, nodes=names, severity=severity, key=key, facts=facts)


def unreadable(nodes: Iterable[FleetNode]) -> Iterator[Finding]:
    """Yield one finding for all Nodes of which something could not be read."""
    unread = [node for node in nodes if node.problems]
    if unread:
        names = [node.name for node in unread]
        pairs = [(problem, node.name) for node in unread for problem in node.problems]
        whose = [
            f"{problem} ({listed([name for _, name in same])})"
            for problem, same in grouped(pairs, lambda pair: pair[0]).items()
        ]
        why = listed(whose, separator="; ")
        text = f"{many(len(names), 'Node')} could not be read in full: {why}."
        yield finding("unreadable", [], text, nodes=names, key=["all"])
