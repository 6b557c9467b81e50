"""Text lines for a plan and its outcome, in the form of a diff.

+ key=value            the Node gets the label
- key=value            the Node loses it; a changed value is a - and a + line
= key=value            left alone, or not published, with the managers that own it
! key                  refused, with the API server's message
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.kube.errors import one_line
from agent.kube.foreign import managers_text
from agent.kube.managed_fields import ANNOTATION
from agent.text import missing_since

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.kube.interfaces import LostInterface
    from agent.kube.negotiation import Outcome, Taken
    from agent.kube.plan import ForeignField, Plan


def planned(plan: Plan) -> list[str]:
    """Return the changes that applying the plan would make; the first line sums them up."""
    return [
        f"Node {plan.node}: {_counts(plan) or _without_labels(plan)}",
        *_planned_labels(plan),
        *_removed_annotations(plan),
        *map(_forgotten, plan.forgotten),
        *map(_left_alone, plan.left_alone),
        *_foreign(plan),
        *(f"  {key}: unchanged, recently refused" for key in plan.postponed),
    ]


def _without_labels(plan: Plan) -> str:
    forgotten = len(plan.forgotten)
    return f"{forgotten} lost interfaces to forget" if plan.only_forgets else "no label changes"


def _counts(plan: Plan) -> str:
    counts = (
        (len(plan.added), "added"),
        (len(plan.changed), "changed"),
        (len(plan.removed), "removed"),
    )
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def _planned_labels(plan: Plan) -> Iterable[str]:
    after = plan.added | {key: value for key, (_, value) in plan.changed.items()}
    return _diff(_values_before(plan), after)


def _values_before(plan: Plan) -> dict[str, str]:
    """Return the Node's values of the labels that the plan changes or removes, by key."""
    return plan.removed | {key: was for key, (was, _) in plan.changed.items()}


def done(outcome: Outcome) -> list[str]:
    """Return the changes that were made, then the keys taken over, left alone and refused."""
    return [
        f"Node {outcome.plan.node}: {_summary(outcome)}",
        *_changed_labels(outcome),
        *(_removed_annotations(outcome.plan) if outcome.is_complete else []),
        *map(_left_alone, outcome.left_alone),
        *_foreign(outcome.plan),
        *map(_taken, outcome.taken),
        *(f"! {one.key}: refused: {one.text}" for one in outcome.refused),
    ]


def _summary(outcome: Outcome) -> str:
    count = len(outcome.applied) + len(outcome.removed)
    if outcome.plan.only_forgets and outcome.is_complete:
        return f"{len(outcome.plan.forgotten)} lost interfaces forgotten"
    if count:
        return f"{count} label{'' if count == 1 else 's'} changed"
    return "up to date" if outcome.is_complete else "nothing applied"


def _changed_labels(outcome: Outcome) -> Iterable[str]:
    changed = {*outcome.applied, *outcome.removed}
    before = {key: was for key, was in _values_before(outcome.plan).items() if key in changed}
    return _diff(before, outcome.applied)


def _diff(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[str]:
    for key in sorted(before.keys() | after.keys()):
        if key in before:
            yield f"- {key}={before[key]}"
        if key in after:
            yield f"+ {key}={after[key]}"


def _forgotten(lost: LostInterface) -> str:
    return f"- lost {lost.interface} ({lost.pci}), {missing_since(lost.since)}"


def _removed_annotations(plan: Plan) -> list[str]:
    """Return a line for an annotation that goes; a changed one is not worth a line."""
    return [f"- annotation {key}" for kind, key in sorted(plan.gone) if kind == ANNOTATION]


def _taken(taken: Taken) -> str:
    value = "" if taken.value is None else f" ({taken.value})"
    return f"  {taken.key}: taken over from {one_line(taken.manager)}{value}"


def _foreign(plan: Plan) -> Iterable[str]:
    for field in plan.foreign:
        managers = one_line(managers_text(field.managers))
        yield f"= {field.key}={field.value}: not published, held by {managers}"
    if plan.foreign:
        yield f"  bwagent cleanup --foreign --node-name {plan.node} removes what is not published"


def _left_alone(field: ForeignField) -> str:
    managers = one_line(managers_text(field.managers))
    wanted = f"; bwagent wants {field.wanted}" if field.wanted is not None else ""
    return f"= {field.key}={field.value or '?'}: left alone, held by {managers}{wanted}"
