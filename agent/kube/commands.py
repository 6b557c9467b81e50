"""What the commands do with a Node: look at it before anything else, apply to it at the end, clean it up.

The law of this module: a Node that cannot be looked at stops a command before it has touched anything, and what was
done, or would be, is given back as lines that an operator can read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.kube import diff as difference
from agent.kube.annotation import observed, parse
from agent.kube.cleanup import removal, removals
from agent.kube.managed_fields import ANNOTATION, LABEL, Field, keys_of, owned, state_of
from agent.kube.plan import Desired, plan
from agent.kube.requests import apply, look, nodes
from agent.kube.response import Failure
from agent.model import Problem
from agent.nvml.domain import PEER, disagreement

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.kube.apply import Outcome
    from agent.kube.managed_fields import Keys
    from agent.kube.plan import Plan
    from agent.kube.requests import Kube, Told
    from agent.labels.render import Rendered
    from agent.labels.table import Naming
    from agent.model import Observation


@dataclass(frozen=True, slots=True)
class Target:
    """The Node that labels go to, as it was before."""

    kube: Kube
    node: Told
    keys: Keys

    def previous(self) -> dict[str, str]:
        """The labels that are ours already: what cannot be seen now stays as it is there."""
        return owned(self.node, self.keys)

    def interfaces(self) -> dict[str, str]:
        """The PCI address of each interface that had labels."""
        before, _ = parse(
            state_of(self.node).fields.get(Field(ANNOTATION, self.keys.annotation)),
            self.keys.annotation,
        )
        return dict(before.interfaces) if before else {}

    def problems(self, observation: Observation) -> list[Problem]:
        """What the Node says otherwise than we do."""
        peer = state_of(self.node).fields.get(Field(LABEL, PEER))
        text = disagreement(observation.accelerator, peer)
        return [Problem("nvml", PEER, None, text)] if text else []


def target(kube: Kube, name: str, naming: Naming) -> Target:
    """Look at the Node; Unavailable says why that cannot be done."""
    found = look(kube, name)
    if isinstance(found, Failure):
        raise Unavailable(found.text)
    return Target(kube, found, keys_of(naming))


def planned(on: Target, observation: Observation, rendered: Rendered) -> tuple[Plan, list[str]]:
    """What would change, as a plan and in lines."""
    text = state_of(on.node).fields.get(Field(ANNOTATION, on.keys.annotation))
    before, problem = parse(text, on.keys.annotation)
    desired = Desired(rendered.labels, observed(observation, rendered.labels, on.keys, before))
    todo = plan(on.node, desired, on.keys, time.time())
    notes = [
        f"{found.subject}: {found.text}"
        for found in (*todo.problems, *([problem] if problem else []))
    ]
    return todo, [*difference.planned(todo), *notes]


def publish(on: Target, todo: Plan) -> tuple[list[str], str | None]:
    """Apply the plan where it is due: what was done in lines, and what failed in one."""
    if not todo.due:
        return difference.planned(todo), None
    outcome = apply(on.kube, todo)
    return difference.done(todo, outcome), _fault(outcome)


def _fault(outcome: Outcome) -> str | None:
    if outcome.failure:
        return outcome.failure.text
    if outcome.refused:
        return f"{len(outcome.refused)} keys were refused, {outcome.refused[0].key} first"
    return None


def leftovers(kube: Kube, name: str | None, naming: Naming) -> list[Plan]:
    """What `cleanup` takes away: from one Node, or (None) from all; those that carry nothing of ours are left out."""
    keys = keys_of(naming)
    if name is not None:
        plans = [removal(target(kube, name, naming).node, keys)]
        return [one for one in plans if one.due]
    found = list(nodes(kube))
    for node in found:
        if isinstance(node, Failure):
            raise Unavailable(node.text)
    return list(removals([node for node in found if not isinstance(node, Failure)], keys))


def clean(kube: Kube, todo: Plan, say: Callable[[str], None]) -> str | None:
    """Take away what a plan of `leftovers` names; what failed, in one line, so that the other Nodes get their turn."""
    outcome = apply(kube, todo)
    say(difference.done(todo, outcome)[0])
    fault = _fault(outcome)
    return f"Node {todo.node}: {fault.removeprefix(f'Node {todo.node}: ')}" if fault else None
