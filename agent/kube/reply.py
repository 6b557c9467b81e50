"""Replies of a Kubernetes API server: status, headers and bytes in, a small plain object out.

The law of this module: what answers need not be an API server. A proxy's page, half a document, a document of another
kind: each becomes `garbage` with a description, and a refusal without a Status is told by what it is made of. Of a Node
only that goes on which says who wrote which label: a Node's list of images is longer than all of it.

Shapes: meta/v1 Status and ObjectMeta; Retry-After as RFC 9110, 10.2.3, in seconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    Told = dict[str, Any]

MANAGER = "bwagent"
LONGEST = 32 << 20  # bytes; a page of Nodes with all of their status
LONGEST_TEXT = 4096  # characters of a message that go on
_SPEAKS_FOR_ITSELF = (407, 429)  # no Status is needed to understand these, nor any from 500 on


def one(status: int, headers: Mapping[str, str], data: bytes) -> Told:
    """A reply that should be a Node: {"status", "node"}, or what `refusal` and `garbage` give."""
    document, told = _document(status, headers, data)
    if told:
        return told
    node = _metadata_of(document)
    if not all(isinstance(node["metadata"].get(name), str) for name in ("name", "uid")):
        return garbage(status, "it answers with something that is no Node")
    return {"status": status, "node": node}


def page(status: int, headers: Mapping[str, str], data: bytes) -> Told:
    """A reply that should be a list of Nodes: {"status", "nodes", "continue"}; only Nodes that `bwagent` wrote on."""
    document, told = _document(status, headers, data)
    if told:
        return told
    if not isinstance(document.get("items"), list):
        return garbage(status, "it answers with something that is no list of Nodes")
    nodes = (_metadata_of(item) for item in document["items"] if isinstance(item, dict))
    further = _part(document, "metadata").get("continue")
    return {
        "status": status,
        "nodes": [node for node in nodes if _is_written(node)],
        "continue": further or None,
    }


def garbage(status: int, text: str) -> Told:
    """An answer that no API server gives: {"status", "error": "garbage", "message"}."""
    return {"status": status, "error": "garbage", "message": text}


def refusal(status: int, document: Told, headers: Mapping[str, str], data: bytes) -> Told:
    """What a Status says: {"status", "reason", "message", "causes", "retry_after": seconds | null}."""
    details = _part(document, "details")
    causes = details.get("causes")
    return {
        "status": status,
        "reason": document.get("reason"),
        "message": str(document.get("message") or f"it answers with {_kind(headers, data)}")[
            :LONGEST_TEXT
        ],
        "causes": [cause for cause in causes if isinstance(cause, dict)]
        if isinstance(causes, list)
        else [],
        "retry_after": _seconds(headers.get("Retry-After"), details.get("retryAfterSeconds")),
    }


def _document(status: int, headers: Mapping[str, str], data: bytes) -> tuple[Told, Told | None]:
    """The object that a reply carries, or what is to be told instead."""
    if len(data) > LONGEST:
        return {}, garbage(status, f"its answer is longer than {LONGEST >> 20} MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    is_object, good = isinstance(document, dict), status in (200, 201)
    if good and is_object:
        return document, None
    if good or status < 400 or not (is_object or status >= 500 or status in _SPEAKS_FOR_ITSELF):
        return {}, garbage(status, f"it answers {status} with {_kind(headers, data)}")
    return {}, refusal(status, document if is_object else {}, headers, data)


def _seconds(*said: object) -> float | None:
    """The first that is a number of seconds; a date is not worth trusting two clocks."""
    digits = (str(each)[:9] for each in said if str(each).isascii() and str(each).isdigit())
    return next(map(float, digits), None)


def _kind(headers: Mapping[str, str], data: bytes) -> str:
    """What sort of thing a body is that should be JSON, with its beginning."""
    kind = str(headers.get("Content-Type") or "no Content-Type").partition(";")[0][:80]
    start = " ".join(data[:200].decode(errors="replace").split())
    return f"{kind}: {start!r}" if start else f"{kind} and an empty body"


def _metadata_of(node: Told) -> Told:
    """Of a Node what says who wrote which label; managedFields down to metadata."""
    metadata = _part(node, "metadata")
    kept: Told = {
        name: metadata[name]
        for name in ("name", "uid", "labels", "annotations")
        if name in metadata
    }
    entries = metadata.get("managedFields")
    kept["managedFields"] = (
        [_entry(one) for one in entries if isinstance(one, dict)]
        if isinstance(entries, list)
        else []
    )
    return {"metadata": kept}


def _entry(entry: Told) -> Told:
    who: Told = {
        name: entry[name] for name in ("manager", "operation", "subresource") if name in entry
    }
    return {**who, "fieldsV1": {"f:metadata": _part(_part(entry, "fieldsV1"), "f:metadata")}}


def _is_written(node: Told) -> bool:
    return any(entry.get("manager") == MANAGER for entry in node["metadata"]["managedFields"])


def _part(value: Told, name: str) -> Told:
    part = value.get(name)
    return part if isinstance(part, dict) else {}
