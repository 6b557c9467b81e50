"""Text lines for a plan and its outcome, in the form of a diff.

+ key=value            the Node gets the label
- key=value            the Node loses it; a changed value is a - and a + line
= key=value            left alone, with the managers that own it
! key                  refused, with the API server's message
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.kube.errors import one_line
from agent.kube.managed_fields import ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.kube.apply import Outcome
    from agent.kube.plan import ForeignField, Plan


def planned(plan: Plan) -> list[str]:
    """Return the changes that applying the plan would make; the first line sums them up."""
    before = plan.removed | {key: was for key, (was, _) in plan.changed.items()}
    after = plan.added | {key: value for key, (_, value) in plan.changed.items()}
    counts = {
        "added": len(plan.added),
        "changed": len(plan.changed),
        "removed": len(plan.removed),
    }
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return [
        f"Node {plan.node}: {summary or 'no label changes'}",
        *_diff(before, after),
        *_removed_annotations(plan),
        *_left_alone(plan.left_alone),
        *(f"  {key}: unchanged, recently refused" for key in plan.postponed),
    ]


def done(plan: Plan, outcome: Outcome) -> list[str]:
    """Return the changes that were made, then the keys taken over, left alone and refused."""
    before = {key: was for key, (was, _) in plan.changed.items() if key in outcome.applied}
    before |= {key: plan.removed.get(key, "") for key in outcome.removed}
    failed = outcome.failure or outcome.refused
    return [
        f"Node {plan.node}: {_summary(before, outcome)}",
        *_diff(before, outcome.applied),
        *([] if failed else _removed_annotations(plan)),
        *_left_alone(outcome.left_alone),
        *(f"  {one.key}: taken over from {one_line(one.manager)}" for one in outcome.taken),
        *(f"! {one.key}: refused: {one.text}" for one in outcome.refused),
    ]


def _summary(before: Mapping[str, str], outcome: Outcome) -> str:
    count = len(before.keys() | outcome.applied.keys())
    if count:
        return f"{count} label{'' if count == 1 else 's'} changed"
    return "nothing applied" if outcome.failure or outcome.refused else "up to date"


def _diff(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[str]:
    for key in sorted(before.keys() | after.keys()):
        if key in before:
            yield f"- {key}={before[key]}"
        if key in after:
            yield f"+ {key}={after[key]}"


def _removed_annotations(plan: Plan) -> list[str]:
    """Return a line for an annotation that goes; a changed one is not worth a line."""
    gone = plan.managed.keys() - plan.wanted.keys() - plan.shared
    return [f"- annotation {field.key}" for field in sorted(gone) if field.kind == ANNOTATION]


def _left_alone(fields: Iterable[ForeignField]) -> Iterable[str]:
    for field in fields:
        managers = one_line(", ".join(field.managers))
        wanted = f"; bwagent wants {field.wanted}" if field.wanted is not None else ""
        yield f"= {field.key}={field.value or '?'}: left alone, held by {managers}{wanted}"
