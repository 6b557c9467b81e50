"""One label as a Node has it: value, field managers, and the annotation's facts.

    {"value": "3200G", "managers": ["bwagent"], "agent": "0.1.0", "boot_id": "...",
     "observed": "2026-11-22T09:30:00Z", "interfaces": [{"interface": "ibp0", ...}]}

`observed` and `boot_id` are of the last full observation; what is unknown is null. `interfaces` has
the rows of the interface that the key names, or all rows where it names none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.kube import MANAGER
from agent.kube.interfaces import document
from agent.kube.managed_fields import LABEL, Field, state_of
from agent.text import utc

if TYPE_CHECKING:
    from agent.kube.annotation import Annotation
    from agent.kube.managed_fields import Keys, Node, State

    Json = dict[str, Any]


def facts_of(key: str, annotation: Annotation | None, node: Node, keys: Keys) -> Json:
    """Return the facts of a label on a Node, and of its annotation."""
    state = state_of(node)
    time = annotation.time if annotation else None
    return {
        "value": state.fields.get(Field(LABEL, key)),
        "managers": _managers(key, state),
        "agent": annotation.agent or None if annotation else None,
        "boot_id": annotation.boot_id if annotation else None,
        "observed": _time(time),
        "reported": _time(annotation.reported.time) if annotation else None,
        "interfaces": _rows(annotation, keys.interface(key)) if annotation else [],
    }


def _managers(key: str, state: State) -> list[str]:
    """Return the field managers of a label, the agent first."""
    field = Field(LABEL, key)
    own = [MANAGER] if field in state.managed else []
    return [*own, *state.others.get(field, ())]


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else utc(seconds)


def _rows(annotation: Annotation, interface: str | None) -> list[Json]:
    rows = [document(row) for row in annotation.interfaces]
    rows += [{**document(one.row), "lost_since": _time(one.since)} for one in annotation.lost]
    return [row for row in rows if interface in (None, row["interface"])]
