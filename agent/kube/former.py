"""Fields of manager `bwagent` outside the label table: of a former prefix, or of a second agent.

    old.example.com/flavor, old.example.com/observed     left by an agent with --label-prefix
                                                         old.example.com, which may still run

Rules:
- They are removed under the prefixes that the operator has named as former ones, unless an agent
  with another prefix labels the Node now: its annotation `*/observed` is younger than MAX_AGE.
- All others stay as they are, with a line for the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.kube.annotation import MAX_AGE, parse
from agent.kube.foreign import kubectl_removal
from agent.kube.managed_fields import ANNOTATION, OBSERVED, prefix_of
from agent.model import Problem

if TYPE_CHECKING:
    from agent.kube.managed_fields import Field, Fields, FieldSet, Keys, State


class Former(NamedTuple):
    """The fields outside the table that stay, and the reasons."""

    kept: FieldSet
    problems: tuple[Problem, ...] = ()


def review(state: State, keys: Keys, now: float | None) -> Former:
    """Return what stays of the managed fields outside the table.

    `now` is in seconds since the epoch; without it every agent is taken for a running one.
    """
    managed = state.managed_values()
    outside = managed.keys() - keys.in_table(managed)
    if not outside:
        return Former(outside)
    running = _running(state.fields, keys, now)
    removed = set() if running else {one for one in outside if prefix_of(one) in keys.former}
    return Former(outside - removed, tuple(_problems(state, outside - removed, running, keys)))


def _running(fields: Fields, keys: Keys, now: float | None) -> set[str]:
    """Return the other prefixes under which an agent labels the Node now."""
    found = {
        prefix_of(field) or ""
        for field, text in fields.items()
        if field.kind == ANNOTATION and prefix_of(field) and _is_young(text, now)
    }
    return found - {keys.annotation.partition("/")[0]}


def _is_young(text: str, now: float | None) -> bool:
    """Return True for an annotation of the last MAX_AGE; two clocks may differ by as much."""
    annotation, _ = parse(text, OBSERVED)
    time = annotation.reported.time if annotation else None
    return time is not None and (now is None or abs(now - time) < MAX_AGE)


def _problems(state: State, kept: FieldSet, running: set[str], keys: Keys) -> list[Problem]:
    """Return a line for each prefix, and for each key that has not the table's shape."""
    subjects = {prefix_of(field) or field.key: field for field in sorted(kept)}
    return [
        Problem("node", subject, None, _reason(state, field, running, keys))
        for subject, field in subjects.items()
    ]


def _reason(state: State, field: Field, running: set[str], keys: Keys) -> str:
    prefix, own = prefix_of(field), keys.annotation.partition("/")[0]
    if prefix is None:
        command = kubectl_removal(state.name, field)
        return f"{command} removes this key, which is in no label table"
    if prefix in running:
        return f"another bwagent labels this Node under {prefix}, this one under {own}"
    if prefix in keys.former:
        others = ", ".join(sorted(running))
        return f"left as they are: another bwagent labels this Node under {others}"
    return f"{cleanup_command(prefix)} removes these labels of a former prefix"


def cleanup_command(prefix: str) -> str:
    """Return the command that removes the fields of both families under a prefix, and no others."""
    flags = f"--label-prefix {prefix} --ib-label-prefix {prefix} --accelerator-label="
    return f"bwagent cleanup {flags}"
