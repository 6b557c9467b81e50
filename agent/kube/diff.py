"""A plan and what came of it, as lines for people: a diff one can read aloud.

+ key=value            the Node gets it
- key=value            the Node loses it; a changed value is both, the old one first
= key=value            left alone, and by whom it is held
! key                  the API server refused it, in its words
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.kube.managed_fields import ANNOTATION
from agent.kube.response import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.kube.apply import Outcome
    from agent.kube.plan import ForeignField, Plan


def planned(plan: Plan) -> list[str]:
    """What applying the plan would do; the first line sums it up."""
    before = plan.removed | {key: was for key, (was, _) in plan.changed.items()}
    after = plan.added | {key: value for key, (_, value) in plan.changed.items()}
    counts = (
        (len(plan.added), "added"),
        (len(plan.changed), "changed"),
        (len(plan.removed), "removed"),
    )
    sums = ", ".join(f"{count} {word}" for count, word in counts if count) or "no label changes"
    kept = [f"  {key}: left as it is, it was refused lately" for key in plan.postponed]
    return [
        f"Node {plan.node}: {sums}",
        *_diff(before, after),
        *_annotations(plan),
        *_left_alone(plan.left_alone),
        *kept,
    ]


def done(plan: Plan, outcome: Outcome) -> list[str]:
    """What was done of it: the diff without what was refused, then what was taken, left alone and refused."""
    were = {key: was for key, (was, _) in plan.changed.items() if key in outcome.applied}
    before = were | {key: plan.removed.get(key, "") for key in outcome.removed}
    count = len(before.keys() | outcome.applied.keys())
    failed = outcome.failure or outcome.refused
    head = (
        f"{count} label{'' if count == 1 else 's'} changed"
        if count
        else "nothing applied"
        if failed
        else "up to date"
    )
    annotations = [] if failed else _annotations(plan)
    taken = [f"  {one.key}: taken over from {one_line(one.manager)}" for one in outcome.taken]
    refused = [f"! {one.key}: refused: {one.text}" for one in outcome.refused]
    diff = _diff(before, outcome.applied)
    return [
        f"Node {plan.node}: {head}",
        *diff,
        *annotations,
        *_left_alone(outcome.left_alone),
        *taken,
        *refused,
    ]


def _diff(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[str]:
    for key in sorted(before.keys() | after.keys()):
        if key in before:
            yield f"- {key}={before[key]}"
        if key in after:
            yield f"+ {key}={after[key]}"


def _annotations(plan: Plan) -> Iterable[str]:
    """The annotation is worth a word only when it goes."""
    gone = (
        one.key
        for one in plan.held.keys() - plan.wanted.keys() - plan.shared
        if one.kind == ANNOTATION
    )
    return [f"- annotation {key}" for key in sorted(gone)]


def _left_alone(held: Iterable[ForeignField]) -> Iterable[str]:
    for one in held:
        who = one_line(", ".join(one.managers))
        wish = f"; bwagent would say {one.wanted}" if one.wanted is not None else ""
        yield f"= {one.key}={one.value or '?'}: left alone, held by {who}{wish}"
