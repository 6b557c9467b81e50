"""Keys of the label table that the Node carries and manager `bwagent` does not own.

    backend.example.com/neighbors.current.x.device    set by kubectl-label before the agent

Rules:
- Those under P and IB that the agent does not publish either are reported. `cleanup --foreign`
  removes them; nothing else does, and nothing here touches the accelerator's key.
- A key without a manager has lost its owner: metadata.managedFields were reset. The API server
  gives it to BEFORE_FIRST_APPLY with the next server-side apply. The agent cannot remove it.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from agent.kube.managed_fields import ANNOTATION, IB, LABEL, P

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.kube.managed_fields import Field, FieldSet, Keys, State

# k8s.io/apimachinery, util/managedfields/internal/skipnonapplied.go.
BEFORE_FIRST_APPLY = "before-first-apply"


def unpublished(state: State, asked: FieldSet, keys: Keys) -> set[Field]:
    """Return the labels under P and IB that are neither owned nor asked for."""
    return keys.of_families(state.fields, (P, IB)) - state.managed - asked


def ownerless(state: State, keys: Keys) -> set[Field]:
    """Return the fields of the label table that have lost their owner."""
    fields = keys.in_table(state.fields) - state.managed
    return {field for field in fields if {*state.others.get(field, ())} <= {BEFORE_FIRST_APPLY}}


def removal_patch(state: State, keys: Iterable[str]) -> list[dict[str, Any]]:
    """Return the JSON patch (RFC 6902) that removes labels from this very version of the Node."""
    tests = [_operation("test", "uid", state.uid)]
    tests.append(_operation("test", "resourceVersion", state.version))
    return [*tests, *(_operation("remove", f"{LABEL}/{_escaped(key)}") for key in sorted(keys))]


def _operation(verb: str, path: str, value: str | None = None) -> dict[str, Any]:
    operation = {"op": verb, "path": f"/metadata/{path}"}
    return operation if value is None else {**operation, "value": value}


def _escaped(key: str) -> str:
    """Escape a key for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def kubectl_removal(node: str, field: Field) -> str:
    """Return the command of kubectl that removes a field, whoever owns it."""
    verb = "annotate" if field.kind == ANNOTATION else "label"
    return shlex.join(["kubectl", verb, "node", node, f"{field.key}-"])


def managers_text(managers: Iterable[str]) -> str:
    """Return the managers of a field as text."""
    return ", ".join(managers) or "no manager"
