"""The expected half of one node without the rest of the plan.

A plan of 1 MiB is tens of megabytes in memory. Of other nodes' rows a comparison reads the owner of
a port that this node sees or expects, the numbers that HCAs have, and whether the names of switches
have the form of those that are seen: all of it is bounded by the ports of this node.

Invariant: agent.verify.judge.verify returns the same for the whole and for the reduced half, if
`ends` has every far end that the node sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.verify.cables import any_like
from agent.verify.expected import end_key
from agent.verify.interfaces import numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from agent.verify.expected import Expected, FarPort


def reduced(expected: Expected, ends: Collection[FarPort]) -> Expected:
    """Return the part that a comparison reads of a node that sees these far ends."""
    kept = {end_key(*end) for end in (*ends, *expected.far_ports)}
    return expected._replace(
        taken={end: expected.taken[end] for end in kept if end in expected.taken},
        devices=frozenset(_like(sorted({device for device, _ in ends}), expected.devices)),
        interfaces=tuple(numbers(expected.interfaces).values()),
    )


def _like(seen: Collection[str], devices: Collection[str]) -> Iterator[str]:
    """Yield a device of the plan for each seen one whose form or name it has."""
    missing = set(seen)
    for device in sorted(devices):
        found = {one for one in missing if any_like([one], [device])}
        if found:
            yield device
        missing -= found
        if not missing:
            return
