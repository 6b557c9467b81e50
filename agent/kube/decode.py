"""HTTP responses of a Kubernetes API server: status, headers and body in, a small JSON object out.

Invariants:
- The responder need not be an API server. A proxy's page, a truncated document or one of another
  kind becomes `garbage` with a description of it.
- Of a Node only the metadata that tells the field managers of its labels is kept; the whole
  document is many times as long.

Shapes: meta/v1 Status and ObjectMeta; Retry-After in seconds, RFC 9110, section 10.2.3.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent.kube import MANAGER

if TYPE_CHECKING:
    from collections.abc import Mapping

    Json = dict[str, Any]

MAX_BODY = 32 << 20  # bytes; a page of Nodes with all of their status
MAX_TEXT = 4096  # characters of a message
_CLEAR_STATUSES = (407, 429)  # clear without a Status in the body, like all from 500 on


def read_node(status: int, headers: Mapping[str, str], data: bytes) -> Json:
    """Read a response that should be a Node.

    Returns {"status", "node": {"metadata"}}, or the result of `refusal` or `garbage`.
    """
    document, error = _document(status, headers, data)
    if error:
        return error
    node = _metadata_of(document)
    if not all(isinstance(node["metadata"].get(name), str) for name in ("name", "uid")):
        return garbage(status, "the response is not a Node")
    return {"status": status, "node": node}


def read_list(status: int, headers: Mapping[str, str], data: bytes) -> Json:
    """Read a response that should be a NodeList.

    Returns {"status", "nodes", "continue"} with the Nodes that manager `bwagent` has fields on, or
    the result of `refusal` or `garbage`.
    """
    document, error = _document(status, headers, data)
    if error:
        return error
    if not isinstance(document.get("items"), list):
        return garbage(status, "the response is not a NodeList")
    nodes = [_metadata_of(item) for item in document["items"] if isinstance(item, dict)]
    return {
        "status": status,
        "nodes": [node for node in nodes if _has_manager(node)],
        "continue": _part(document, "metadata").get("continue") or None,
    }


def garbage(status: int, text: str) -> Json:
    """Return the reply for a response that no API server gives: {"status", "error", "message"}."""
    return {"status": status, "error": "garbage", "message": text}


def refusal(status: int, document: Json, headers: Mapping[str, str], data: bytes) -> Json:
    """Read a Status.

    Returns {"status", "reason", "message", "causes", "retry_after": seconds | null}.
    """
    details = _part(document, "details")
    causes = details.get("causes")
    message = str(document.get("message") or _describe(status, headers, data))
    return {
        "status": status,
        "reason": document.get("reason"),
        "message": message[:MAX_TEXT],
        "causes": _objects(causes),
        "retry_after": _seconds(headers.get("Retry-After"), details.get("retryAfterSeconds")),
    }


def _document(status: int, headers: Mapping[str, str], data: bytes) -> tuple[Json, Json | None]:
    """Return (the JSON object of a successful response, None), or ({}, the reply for an error)."""
    if len(data) > MAX_BODY:
        return {}, garbage(status, f"the response is longer than {MAX_BODY >> 20} MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    is_object = isinstance(document, dict)
    if status in (200, 201) and is_object:
        return document, None
    is_clear = is_object or status >= 500 or status in _CLEAR_STATUSES
    if status >= 400 and is_clear:
        return {}, refusal(status, document if is_object else {}, headers, data)
    return {}, garbage(status, _describe(status, headers, data))


def _seconds(*values: object) -> float | None:
    """Return the first value that is a number of seconds.

    A date as Retry-After is ignored: it needs two clocks that agree.
    """
    for value in values:
        text = str(value)
        if text.isascii() and text.isdigit():
            return float(text[:9])
    return None


def _describe(status: int, headers: Mapping[str, str], data: bytes) -> str:
    """Describe a response whose body is not the expected JSON, with its first bytes."""
    kind = str(headers.get("Content-Type") or "no Content-Type").partition(";")[0][:80]
    start = " ".join(data[:200].decode(errors="replace").split())
    return f"HTTP {status} with {kind}" + (f": {start!r}" if start else " and an empty body")


def _metadata_of(node: Json) -> Json:
    """Return the name, uid, labels, annotations and managedFields (of metadata) of a Node."""
    metadata = _part(node, "metadata")
    kept: Json = {
        name: metadata[name]
        for name in ("name", "uid", "labels", "annotations")
        if name in metadata
    }
    kept["managedFields"] = [_entry(entry) for entry in _objects(metadata.get("managedFields"))]
    return {"metadata": kept}


def _entry(entry: Json) -> Json:
    kept: Json = {
        name: entry[name] for name in ("manager", "operation", "subresource") if name in entry
    }
    kept["fieldsV1"] = {"f:metadata": _part(_part(entry, "fieldsV1"), "f:metadata")}
    return kept


def _has_manager(node: Json) -> bool:
    return any(entry.get("manager") == MANAGER for entry in node["metadata"]["managedFields"])


def _part(value: Json, name: str) -> Json:
    part = value.get(name)
    return part if isinstance(part, dict) else {}


def _objects(value: object) -> list[Json]:
    """Return the JSON objects in a list; empty for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
