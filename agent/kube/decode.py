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
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    Json = dict[str, Any]
    Headers = Mapping[str, str]

MAX_BODY = 32 << 20  # bytes; a page of Nodes with all of their status
MAX_TEXT = 4096  # characters of a message
MAX_REPLY = 1 << 20  # bytes of JSON that the parent of a helper reads (agent/helper/streams.py)
GONE = 410  # a `continue` that is too old
_SUCCESS = (200, 201)
_CLEAR_STATUSES = (407, 429)  # clear without a Status in the body, like all from 500 on


class _Response(NamedTuple):
    status: int
    headers: Headers
    data: bytes


def read_node(status: int, headers: Headers, data: bytes) -> Json:
    """Read a response that should be a Node.

    Returns {"status", "node": {"metadata"}}, or a reply of `_refusal` or `_garbage`.
    """
    document, error = _document(_Response(status, headers, data))
    if error:
        return error
    node = _metadata_of(document)
    if not _has_identity(node):
        return _garbage(status, "the response is not a Node")
    return {"status": status, "node": node}


def read_list(status: int, headers: Headers, data: bytes) -> Json:
    """Read a response that should be a NodeList.

    Returns {"status", "nodes", "continue"} with the Nodes that have an identity, or a reply of
    `_refusal` or `_garbage`.
    """
    document, error = _list_document(_Response(status, headers, data))
    if error:
        return error
    nodes = [_metadata_of(item) for item in objects(document["items"])]
    following = part(document, "metadata").get("continue") or None
    return {"status": status, "nodes": list(filter(_has_identity, nodes)), "continue": following}


def read_event(status: int, headers: Headers, data: bytes) -> Json:
    """Read a response that should be an Event.

    Returns {"status"}, or a reply of `_refusal` or `_garbage`.
    """
    document, error = _document(_Response(status, headers, data))
    if error:
        return error
    if not _has_identity({"metadata": part(document, "metadata")}):
        return _garbage(status, "the response is not an Event")
    return {"status": status}


def read_survey(status: int, headers: Headers, data: bytes) -> Json:
    """Read a response that should be a NodeList, without the field managers.

    Returns {"status", "nodes", "continue", "remaining"}, of which the last is the number of Nodes
    behind these, or null; or a reply of `_refusal` or `_garbage`. That for an expired `continue`
    has another one.
    """
    document, error = _list_document(_Response(status, headers, data))
    if error:
        return {**error, "continue": _continue_of(data)} if status == GONE else error
    metadata = part(document, "metadata")
    token = metadata.get("continue") or None
    nodes = [{"metadata": _surveyed(item)} for item in objects(document["items"])]
    identified = list(filter(_has_identity, nodes))
    if len(identified) < len(document["items"]) or not isinstance(token, str | None):
        return _garbage(status, "not every item of the NodeList is a Node")
    return {
        "status": status,
        "nodes": identified,
        "continue": token,
        "remaining": _whole(metadata.get("remainingItemCount")),
    }


def _continue_of(data: bytes) -> str | None:
    """Return the token of a Status."""
    token = part(_json_object(data) or {}, "metadata").get("continue")
    return token if isinstance(token, str) else None


def _surveyed(node: Json) -> Json:
    return _only(part(node, "metadata"), "name", "uid", "labels", "annotations")


def _whole(value: object) -> int | None:
    """Return a number of Nodes; None for anything else."""
    return value if isinstance(value, int) and value >= 0 else None


def _list_document(response: _Response) -> tuple[Json, Json | None]:
    """Return (the list, None), or ({}, the reply for an error).

    The items of an empty PartialObjectMetadataList are null.
    """
    document, error = _document(response)
    items = document.get("items", {}) or []
    if not error and not ("items" in document and isinstance(items, list)):
        return {}, _garbage(response.status, "the response is not a NodeList")
    return document if error else {**document, "items": items}, error


def limited(reply: Json) -> Json:
    """Return a helper's reply, or the reply in its place if it is longer than MAX_REPLY."""
    size = len(json.dumps(reply))
    if size <= MAX_REPLY:
        return reply
    text = f"its metadata has {size:,} bytes, and {MAX_REPLY:,} are read at most"
    return {**_only(reply, "status", "server"), "error": "too-large", "message": text}


def _document(response: _Response) -> tuple[Json, Json | None]:
    """Return (the JSON object of a successful response, None), or ({}, the reply for an error)."""
    if len(response.data) > MAX_BODY:
        text = f"the response is longer than {MAX_BODY >> 20} MiB"
        return {}, _garbage(response.status, text)
    document = _json_object(response.data)
    if document is None or response.status not in _SUCCESS:
        return {}, _error(response, document)
    return document, None


def _json_object(data: bytes) -> Json | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _error(response: _Response, document: Json | None) -> Json:
    """Return the reply for a response that is no success or no JSON object."""
    status = response.status
    is_clear = document is not None or status >= 500 or status in _CLEAR_STATUSES
    if status >= 400 and is_clear:
        return _refusal(response, document or {})
    return _garbage(status, _describe(response))


def _garbage(status: int, text: str) -> Json:
    """Return the reply for a response that no API server gives: {"status", "error", "message"}."""
    return {"status": status, "error": "garbage", "message": text}


def _refusal(response: _Response, document: Json) -> Json:
    """Read a Status.

    Returns {"status", "reason", "message", "causes", "retry_after": seconds | null}.
    """
    details = part(document, "details")
    header = response.headers.get("Retry-After")
    return {
        "status": response.status,
        "reason": document.get("reason"),
        "message": str(document.get("message") or _describe(response))[:MAX_TEXT],
        "causes": objects(details.get("causes")),
        "retry_after": _seconds(header, details.get("retryAfterSeconds")),
    }


def _seconds(*values: object) -> float | None:
    """Return the first value that is a number of seconds.

    A date as Retry-After is ignored: it needs two clocks that agree.
    """
    for value in values:
        text = str(value)
        if text.isascii() and text.isdigit():
            return float(text[:9])
    return None


def _describe(response: _Response) -> str:
    """Describe a response whose body is not the expected JSON, with its first bytes."""
    content_type = str(response.headers.get("Content-Type") or "no Content-Type")
    start = " ".join(response.data[:200].decode(errors="replace").split())
    body = f": {start!r}" if start else " and an empty body"
    return f"HTTP {response.status} with {content_type.partition(';')[0][:80]}{body}"


def _metadata_of(node: Json) -> Json:
    """Return the parts of a Node's metadata that agent/kube/managed_fields.py reads."""
    metadata = part(node, "metadata")
    entries = [_entry(entry) for entry in objects(metadata.get("managedFields"))]
    kept = _only(metadata, "name", "uid", "resourceVersion", "labels", "annotations")
    return {"metadata": {**kept, "managedFields": entries}}


def _entry(entry: Json) -> Json:
    fields = {"f:metadata": part(part(entry, "fieldsV1"), "f:metadata")}
    return {**_only(entry, "manager", "operation", "subresource", "time"), "fieldsV1": fields}


def _only(value: Json, *names: str) -> Json:
    return {name: value[name] for name in names if name in value}


def _has_identity(node: Json) -> bool:
    return all(isinstance(node["metadata"].get(name), str) for name in ("name", "uid"))


def part(value: Mapping[str, Any], name: str) -> Json:
    """Return an object in another; empty if there is none."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def objects(value: object) -> list[Json]:
    """Return the JSON objects in a list; empty for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
