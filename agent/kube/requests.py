"""The requests to the Kubernetes API, as parameters of the client.

Invariant: a request asks for metadata only (`as=PartialObjectMetadata`, which the API server gives
for reads and writes alike), so a Node's images and conditions are not transferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.kube import MANAGER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Json = dict[str, Any]
    Payload = Mapping[str, Any]

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
EVENTS = "/api/v1/namespaces/default/events"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST = METADATA.replace("PartialObjectMetadata", "PartialObjectMetadataList")
PAGE_SIZE = 50  # Nodes


def parameters(request: Payload) -> Json:
    """Return a request (agent/kube/transport.py) for `ApiClient.param_serialize`."""
    return _PARAMETERS[request["operation"]](request)


def _get(request: Payload) -> Json:
    return {
        "method": "GET",
        "resource_path": "/api/v1/nodes/{name}",
        "path_params": {"name": request["node"]},
        "header_params": {"Accept": METADATA},
    }


def _patch(request: Payload) -> Json:
    return {
        **_get(request),
        "method": "PATCH",
        "query_params": [("fieldManager", MANAGER)],
        "header_params": {"Accept": METADATA, "Content-Type": JSON_PATCH},
        "body": request["body"],
    }


def _apply(request: Payload) -> Json:
    force = "true" if request.get("force") else "false"
    return {
        **_patch(request),
        "query_params": [("fieldManager", MANAGER), ("force", force)],
        "header_params": {"Accept": METADATA, "Content-Type": APPLY},
    }


def _check_policy(request: Payload) -> Json:
    """Return a merge patch that stores nothing (agent/kube/policy.py)."""
    return {
        **_patch(request),
        "query_params": [("fieldManager", f"{MANAGER}-policy-check"), ("dryRun", "All")],
        "header_params": {"Accept": METADATA, "Content-Type": MERGE_PATCH},
    }


def _list(request: Payload) -> Json:
    return {
        "method": "GET",
        "resource_path": "/api/v1/nodes",
        "query_params": [
            ("limit", str(request.get("limit") or PAGE_SIZE)),
            ("continue", request.get("continue") or ""),
            *request.get("selectors", ()),
        ],
        "header_params": {"Accept": METADATA_LIST},
    }


def _create_event(request: Payload) -> Json:
    return {
        "method": "POST",
        "resource_path": EVENTS,
        "query_params": [("fieldManager", MANAGER)],
        "header_params": {"Accept": METADATA, "Content-Type": "application/json"},
        "body": request["body"],
    }


def _patch_event(request: Payload) -> Json:
    return {
        **_create_event(request),
        "method": "PATCH",
        "resource_path": f"{EVENTS}/{{name}}",
        "path_params": {"name": request["event"]},
        "header_params": {"Accept": METADATA, "Content-Type": MERGE_PATCH},
    }


_PARAMETERS: dict[str, Callable[[Payload], Json]] = {
    "get": _get,
    "apply": _apply,
    **dict.fromkeys(("list", "survey"), _list),
    "create-event": _create_event,
    "patch-event": _patch_event,
    "patch": _patch,
    "check-policy": _check_policy,
}
