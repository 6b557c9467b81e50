"""The NodeReadinessRule of node-readiness-controller: the constraints of its 0.4 CRD, restated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.kube.manifests import Object

RULES = "/apis/readiness.node.x-k8s.io/v1alpha1/nodereadinessrules"

_STATUS = {"type": "string", "enum": ["True", "False", "Unknown"]}
_CONDITION = {
    "type": "object",
    "required": ["type", "requiredStatus"],
    "properties": {
        "type": {"type": "string", "minLength": 1, "maxLength": 316},
        "requiredStatus": _STATUS,
        "defaultStatus": _STATUS,
    },
}
_EXPRESSION = {
    "type": "object",
    "required": ["key", "operator"],
    "properties": {
        "key": {"type": "string"},
        "operator": {"type": "string"},
        "values": {"type": "array", "items": {"type": "string"}},
    },
}
_SELECTOR = {
    "type": "object",
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {"type": "array", "items": _EXPRESSION},
    },
    "x-kubernetes-validations": [
        {
            "rule": "size(self.?matchLabels.orValue({})) > 0"
            " || size(self.?matchExpressions.orValue([])) > 0"
        }
    ],
}
_TAINT = {
    "type": "object",
    "required": ["key", "effect"],
    "properties": {
        "key": {
            "type": "string",
            "maxLength": 253,
            "pattern": r"^readiness\.k8s\.io/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        },
        "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
        "value": {"type": "string", "maxLength": 63},
    },
}
_SPEC = {
    "type": "object",
    "required": ["conditions", "enforcementMode", "nodeSelector", "taint"],
    "properties": {
        "conditions": {
            "type": "array",
            "minItems": 1,
            "maxItems": 32,
            "items": _CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "enforcementMode": {"type": "string", "enum": ["bootstrap-only", "continuous"]},
        "nodeSelector": _SELECTOR,
        "taint": _TAINT,
        "dryRun": {"type": "boolean"},
    },
}
_VERSION = {
    "name": "v1alpha1",
    "served": True,
    "storage": True,
    "schema": {
        "openAPIV3Schema": {
            "type": "object",
            "required": ["spec"],
            "properties": {"spec": _SPEC},
        }
    },
}
DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodereadinessrules.readiness.node.x-k8s.io"},
    "spec": {
        "group": "readiness.node.x-k8s.io",
        "scope": "Cluster",
        "names": {
            "kind": "NodeReadinessRule",
            "listKind": "NodeReadinessRuleList",
            "plural": "nodereadinessrules",
            "singular": "nodereadinessrule",
        },
        "versions": [_VERSION],
    },
}
