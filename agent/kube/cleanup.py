"""What `bwagent cleanup` takes from a Node: all that is owned, and nothing else.

The law of this module: removing is applying less. The request carries nothing of ours, so the API server removes what
managedFields say we put there, and what others put there too stays theirs. Labels of an earlier prefix are found by
that prefix: what is not in the table of the naming at hand is carried along.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.kube.managed_fields import state_of
from agent.kube.plan import towards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.kube.managed_fields import Keys
    from agent.kube.plan import Plan


def removal(node: Mapping[str, Any], keys: Keys) -> Plan:
    """The plan that takes all owned labels and the annotation from a Node; not due where there is none."""
    plan = towards(state_of(node), {}, frozenset(), keys)
    return replace(plan, due=plan.held != plan.wanted)


def removals(nodes: Iterable[Mapping[str, Any]], keys: Keys) -> Iterator[Plan]:
    """The plans for those of these Nodes that carry anything of ours."""
    return (plan for node in nodes if (plan := removal(node, keys)).due)
