"""Whose the fields of a Node are: the agent's, a former or a second agent's, or others'.

    backend.example.com/flavor      mine: of manager `bwagent`, and in the label table
    old.example.com/flavor          outside: of manager `bwagent`, left by an agent with another
                                    --label-prefix, which may still run
    backend.example.com/speed.current     foreign: set by kubectl-label before the agent

Rules:
- Fields outside the table are removed under the prefixes that the operator has named as former
  ones, unless an agent with another prefix labels the Node now: its annotation `*/observed` is
  younger than MAX_AGE. All others stay as they are, with a line for the operator.
- Foreign labels under P and IB that the agent does not publish either are reported.
  `cleanup --foreign` removes them; nothing else does, and nothing here touches the accelerator's
  key.
- A key without a manager has lost its owner: metadata.managedFields were reset. The API server
  gives it to BEFORE_FIRST_APPLY with the next server-side apply. The agent cannot remove it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import NamedTuple

from agent.kube.annotation import MAX_AGE, reported_time
from agent.kube.managed_fields import (
    ANNOTATION,
    IB,
    OBSERVED,
    TABLE,
    Field,
    FieldSet,
    Keys,
    P,
    State,
    prefix_of,
)
from agent.model import Problem

# k8s.io/apimachinery, util/managedfields/internal/skipnonapplied.go.
BEFORE_FIRST_APPLY = "before-first-apply"


class Owned(NamedTuple):
    """Fields of a Node by their owner."""

    mine: FieldSet
    outside: FieldSet
    former: FieldSet  # of `outside`: to be removed
    running: FieldSet  # annotations of agents with other prefixes that label the Node now
    foreign: FieldSet  # labels under P and IB that manager `bwagent` does not have
    ownerless: FieldSet  # of the table


def owned(state: State, keys: Keys, now: float | None = None) -> Owned:
    """Return the owners of a Node's fields.

    `now` is in seconds since the epoch; without it every agent is taken for running.
    """
    family = {field: keys.family(field) for field in state.fields}
    managed = state.managed & family.keys()
    mine = {field for field in managed if family[field] in TABLE}
    outside, others = managed - mine, family.keys() - managed
    running = {field for field in family if outside and _is_running(field, state, keys, now)}
    return Owned(
        mine,
        outside,
        former={field for field in outside if not running and keys.is_former(field)},
        running=running,
        foreign={field for field in others if family[field] in (P, IB)},
        ownerless={
            field
            for field in others
            if family[field] in TABLE and {*state.others.get(field, ())} <= {BEFORE_FIRST_APPLY}
        },
    )


def _is_running(field: Field, state: State, keys: Keys, now: float | None) -> bool:
    """Return True for the annotation of another agent if it is younger than MAX_AGE.

    Two clocks may differ by as much.
    """
    prefix = prefix_of(field)
    is_report = field.kind == ANNOTATION and field.key == f"{prefix}/{OBSERVED}"
    if not is_report or prefix == keys.prefix:
        return False
    time = reported_time(state.fields[field])
    return time is not None and (now is None or abs(now - time) < MAX_AGE)


def left_outside(node: str, owners: Owned, keys: Keys) -> list[Problem]:
    """Return a line for each prefix outside the table whose fields stay, and for each other key."""
    running = {prefix_of(field) or "" for field in owners.running}
    lines = {}
    for field in sorted(owners.outside - owners.former):
        prefix = prefix_of(field)
        if prefix is None:
            text = f"{kubectl_removal(node, field)} removes this key, which is in no label table"
        elif prefix in running:
            text = f"another bwagent labels this Node under {prefix}, this one under {keys.prefix}"
        elif prefix in keys.former:
            others = ", ".join(sorted(running))
            text = f"left as they are: another bwagent labels this Node under {others}"
        else:
            text = f"{cleanup_command(prefix)} removes these labels of a former prefix"
        lines[prefix or field.key] = text
    return [Problem("node", subject, None, text) for subject, text in lines.items()]


def cleanup_command(prefix: str) -> str:
    """Return the command that removes the fields of both families under a prefix, and no others."""
    flags = f"--label-prefix {prefix} --ib-label-prefix {prefix} --accelerator-label="
    return f"bwagent cleanup {flags}"


def kubectl_removal(node: str, field: Field) -> str:
    """Return the command of kubectl that removes a field, whoever owns it."""
    verb = "annotate" if field.kind == ANNOTATION else "label"
    return shlex.join(["kubectl", verb, "node", node, f"{field.key}-"])


def managers_text(managers: Iterable[str]) -> str:
    """Return the managers of a field as text."""
    return ", ".join(managers) or "no manager"
