"""Nodes as an API server sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.encode import Naming
from agent.kube import MANAGER
from agent.kube.annotation import Annotation, Interfaces, render
from agent.kube.change import Change, Desired
from agent.kube.managed_fields import Keys
from agent.memory import Fact

NOW = 1_800_000_000
BOOT = "5f0492e8-40be-49e6-8717-defbd7b4b902"
KEYS = Keys(Naming())
PREFIX, IB_PREFIX, ACCELERATOR_KEY, _ = Naming()
LEAF_GROUP = f"{PREFIX}/leafgroup.current"
FLAVOR, SPEED = f"{PREFIX}/flavor", f"{PREFIX}/speed.current"
LEAF = f"{PREFIX}/neighbors.current.ibp0.device"
IB_SPEED = f"{IB_PREFIX}/speed.current"
ANNOTATED = Annotation(
    NOW,
    BOOT,
    (Fact("ibp0", "0000:18:00.0", gbps=400.0, port=1, layer="InfiniBand"),),
    prefixes=KEYS.written,
)


def removed(change: Change) -> dict[str, str | None]:
    """Return the labels that the Node loses by a change: key to value."""
    return {one.key: one.before for one in change.label_changes if one.after is None}


def rows(*interfaces: tuple[str, str]) -> Interfaces:
    """Return rows of these interfaces: (interface, PCI address)."""
    return tuple(Fact(name, pci) for name, pci in interfaces)


def desired(labels: Mapping[str, str], **changes: Any) -> Desired:
    """Return these labels with an annotation of NOW."""
    return Desired(labels, **{"annotation": ANNOTATED, **changes})


def node(
    ours: Mapping[str, str] | None = None,
    others: Mapping[str, Mapping[str, str]] | None = None,
    observed: Annotation | str | None = ANNOTATED,
    *,
    name: str = "n1",
    version: str = "",
) -> dict[str, Any]:
    """Return a Node with labels and the annotation of manager `bwagent`, and labels of others."""
    labels = {key: value for of in (others or {}).values() for key, value in of.items()} | dict(
        ours or {}
    )
    text = render(observed) if isinstance(observed, Annotation) else observed
    annotations = {} if text is None else {KEYS.annotation: text}
    managed = [entry(MANAGER, "Apply", ours or {}, annotations)]
    managed += [entry(manager, "Update", of) for manager, of in (others or {}).items()]
    metadata: dict[str, Any] = {
        "name": name,
        "uid": name.replace("n", "u-"),
        "labels": labels,
        "annotations": annotations,
        "managedFields": managed,
    }
    return {"metadata": metadata | ({"resourceVersion": version} if version else {})}


def entry(
    manager: str,
    operation: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return an entry of managedFields."""
    metadata: dict[str, Any] = {
        "f:labels": {".": {}} | {f"f:{key}": {} for key in labels},
        "f:annotations": {f"f:{key}": {} for key in annotations or {}},
    }
    fields = {"fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": metadata}}
    return {"manager": manager, "operation": operation, "apiVersion": "v1", **fields}
