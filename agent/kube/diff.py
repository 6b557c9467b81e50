"""Text lines for a change of the Node and its outcome, in the form of a diff.

+ key=value            the Node gets the label
- key=value            the Node loses it; a changed value is a - and a + line
= key=value            left alone, or not published, with the managers that own it
! key                  refused, with the API server's message, or `the same` as the key before
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agent.kube.answers import one_line
from agent.kube.change import Change, ForeignField, LabelChange
from agent.kube.managed_fields import ANNOTATION
from agent.kube.negotiation import Outcome, Refusal
from agent.kube.ownership import managers_text
from agent.text import many, missing_since

VERBS = {"added": "add", "changed": "change", "removed": "remove"}


def planned(change: Change) -> list[str]:
    """Return what the change would do to the Node; the first line sums them up."""
    counts = Counter(change.verb for change in change.label_changes)
    todo = ", ".join(f"{VERBS[verb]} {counts[verb]}" for verb in sorted(counts))
    summary = todo and f"would {todo} label{'s' * (len(change.label_changes) != 1)}"
    if change.only_forgets and not todo:
        summary = f"would forget {many(len(change.forgotten), 'lost interface')}"
    return [
        f"Node {change.node}: {summary or 'no label changes'}",
        *_diff(change.label_changes),
        *_removed_annotations(change),
        *(f"- lost {row}, {missing_since(row.lost_since or None)}" for row in change.forgotten),
        *map(_left_alone, change.left_alone),
        *_foreign(change),
        *(f"  {key}: unchanged, recently refused" for key in change.postponed),
    ]


def done(outcome: Outcome) -> list[str]:
    """Return the changes that were made, then the keys taken over, left alone and refused."""
    change, changes = outcome.change, outcome.changes
    if change.only_forgets and outcome.is_complete:
        summary = f"{many(len(change.forgotten), 'lost interface')} forgotten"
    elif changes:
        verbs = {change.verb for change in changes}
        verb = verbs.pop() if len(verbs) == 1 else "changed"
        summary = f"{many(len(changes), 'label')} {verb}"
    elif outcome.failure and outcome.failure.maybe_done:
        summary = "outcome unknown"
    else:
        summary = "up to date" if outcome.is_complete else "nothing applied"
    return [
        f"Node {change.node}: {summary}",
        *_diff(changes),
        *(_removed_annotations(change) if outcome.is_complete else []),
        *map(_left_alone, outcome.left_alone),
        *_foreign(change),
        *(
            f"  {field.key}: taken over from {one_line(field.manager)}"
            + ("" if field.value is None else f" ({field.value})")
            for field in outcome.taken
        ),
        *_refused(outcome.refused),
    ]


def _refused(refusals: Iterable[Refusal]) -> Iterable[str]:
    """Yield a line for each key; a message that is about several keys is there once."""
    before = None
    for key, _, text in refusals:
        yield f"! {key}: refused: {'the same' if text == before else text}"
        before = text


def _diff(changes: Iterable[LabelChange]) -> Iterable[str]:
    for key, before, after in changes:
        if before is not None:
            yield f"- {key}={before}"
        if after is not None:
            yield f"+ {key}={after}"


def _removed_annotations(change: Change) -> list[str]:
    """Return a line for an annotation that goes; a changed annotation is not worth a line."""
    return [f"- annotation {key}" for kind, key in sorted(change.gone) if kind == ANNOTATION]


def _foreign(change: Change) -> Iterable[str]:
    for field in change.foreign:
        managers = one_line(managers_text(field.managers))
        yield f"= {field.key}={field.value}: not published, held by {managers}"
    if change.foreign:
        yield f"  bwagent cleanup --foreign --node-name {change.node} removes what is not published"


def _left_alone(field: ForeignField) -> str:
    managers = one_line(managers_text(field.managers))
    wanted = f"; bwagent wants {field.wanted}" if field.wanted is not None else ""
    return f"= {field.key}={field.value or '?'}: left alone, held by {managers}{wanted}"
