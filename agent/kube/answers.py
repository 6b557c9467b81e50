"""Requests to the API server, its answers, and the failures that they mean; no I/O.

    status, headers, body -> read() -> Answer -> failure_of() -> Failure, a line for an operator

Invariants:
- The responder need not be an API server. A proxy's page, a truncated document or another
  kind of object is an Answer with the error `garbage` and a description of it.
- A Node of another name than the requested one, or without name or uid, is `garbage`, too. A Node
  of another uid than the request was for is `recreated`.
- Every answer other than the requested one is a `Failure` with a kind for the caller and a sentence
  for the operator. After a write that may have been made, it says so.
- Of a Node only the metadata that tells the field managers of its labels is kept; the whole
  document is many times as long.
- Text of the server is shortened and made printable before it is shown.

Statuses: RFC 9110; Retry-After in seconds: section 10.2.3. The Status object: meta/v1 (reason,
message, details.causes, details.retryAfterSeconds).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Required, TypedDict

from agent.facts import is_word
from agent.text import Json, visible

Headers = Mapping[str, str]
Operation = Literal[
    "get",
    "apply",
    "list",  # a page of Nodes with their field managers
    "survey",  # a page of Nodes without them
    "patch",
    "check-policy",
    "create-event",
    "patch-event",
]
Request = TypedDict(
    "Request",
    {
        "operation": Required[Operation],
        "node": str,  # of get, apply, patch and check-policy
        "event": str,  # of patch-event: the name of an Event in namespace `default`
        # Of apply: the object for server-side apply; of patch: a JSON patch; of create-event: the
        # Event; of check-policy and patch-event: a merge patch.
        "body": Any,
        "cached": bool,  # of get: from the API server's cache, which may be behind
        "whole": bool,  # of get: with the status, for `Answer.boot_id`
        "force": bool,  # of apply: take fields over from other managers
        "continue": str,  # of list, survey: metadata.continue of the page before, or empty
        "selectors": Sequence[tuple[str, str]],  # of survey: query parameters
        "deadline_s": float,  # for the whole answer, in place of the session's
    },
    total=False,
)

MAX_PAGE_BODY = 32 << 20  # bytes; a page of Nodes with all of their status
MAX_BODY = 4 << 20  # bytes of one object; etcd stores 1.5 MiB at most
MAX_TEXT = 4096  # characters of a message
MAX_MESSAGE = 500  # characters of a server's message that are shown
MAX_RETRY_AFTER = 600.0  # seconds
GONE = 410  # a `continue` that is too old
SUCCESSES = (200, 201)
DENIALS = (400, 403, 422)
CONFLICT = "FieldManagerConflict"
# Kinds of failure
ANOTHER_HOST = "another-host"  # of agent/kube/nodes.py
NO_ROOM = "no-room"  # of agent/kube/reconcile.py
UID_PATH = "/metadata/uid"  # of a JSON patch
PAGES = frozenset({"list", "survey"})
WRITES = frozenset({"apply", "patch", "create-event", "patch-event"})
_CLEAR_STATUSES = (407, 429)  # clear without a Status in the body, like all from 500 on


class Cause(NamedTuple):
    """An entry of details.causes of a Status."""

    reason: str
    field: str  # `.metadata.labels.backend.coreweave.cloud/flavor`
    message: str

    @property
    def manager(self) -> str:
        """The manager of the field: kubectl-edit in `conflict with "kubectl-edit" using v1`."""
        quoted = re.search(r'"([^"]*)"', self.message)
        return one_line(quoted[1] if quoted else self.message)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the API server, or the reason for its absence."""

    status: int | None = None  # None: no HTTP response
    reason: str = ""  # Status.reason: "Conflict", "Invalid", ...
    message: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after: float | None = None  # seconds
    node: Mapping[str, Any] | None = None  # as it is after a request that succeeded
    boot_id: str | None = None  # of a whole Node's host, by its kubelet; None: unknown
    nodes: Sequence[Mapping[str, Any]] = ()  # of a page
    following: str = ""  # metadata.continue for the next page; empty: it is the last
    remaining: int | None = None  # Nodes behind this page; None: unknown
    error: str | None = None  # the kind of failure if it does not follow from the status
    maybe_done: bool = False  # a write was sent, and its outcome is unknown
    server: str = ""  # the API server's URL
    requests: int = 1  # that it took

    @property
    def succeeded(self) -> bool:
        """True if what was requested was done."""
        return self.status in SUCCESSES and not self.error

    @property
    def is_denial(self) -> bool:
        """True if the server refuses the contents; RBAC's "cannot patch" is another matter."""
        if self.error or self.recreated or "cannot patch resource" in self.message:
            return False
        return self.status in DENIALS

    @property
    def is_server_error(self) -> bool:
        """True if the server, or a proxy, gave up on a write that may be stored by then.

        Admission comes before etcd, so a webhook that fails (500, too) has let nothing through:
        k8s.io/apiserver, pkg/admission/plugin/webhook/mutating/dispatcher.go.
        """
        return (self.status or 0) >= 500 and "failed calling webhook" not in self.message

    @property
    def text(self) -> str:
        """The message as one line, or the status if there is none."""
        return one_line(self.message) or f"status {self.status}"

    def names(self, key: str) -> bool:
        """Return True if the message or a cause names this key, not a longer one around it."""
        causes = (f"{cause.field}\n{cause.message}" for cause in self.causes)
        text = "\n".join([self.message, *causes])
        text = re.sub(r"metadata\.(labels|annotations)\.", " ", text)  # paths reduced to keys
        # A period after the key may end a sentence; a period before a letter continues the key.
        return re.search(rf"(?<![\w./-]){re.escape(key)}(?![\w/-]|\.\w)", text) is not None

    @property
    def recreated(self) -> bool:
        """True if no Node has the uid any more: another has the name (422), or none has (409)."""
        if self.status == 409:
            return "uid mismatch" in self.message
        return self.status == 422 and any(cause.field == "metadata.uid" for cause in self.causes)

    @property
    def conflicts(self) -> tuple[Cause, ...]:
        """The fields that other managers own, if that is the reason for a 409."""
        if self.status != 409 or self.error:
            return ()
        return tuple(cause for cause in self.causes if cause.reason == CONFLICT)

    @property
    def outdated_version(self) -> bool:
        """True if the Node has changed since the version that the request is for."""
        if self.status != 409 or self.error:
            return False
        return "the object has been modified" in self.message


Kube = Callable[[Request], Answer]  # sends a request and returns the answer; never raises


def read(operation: str, status: int, headers: Headers, data: bytes) -> Answer:
    """Read a response to a request of this operation."""
    if len(data) > limit_of(operation):
        return _garbage(status, f"the response is longer than {limit_of(operation) >> 20} MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    document = document if isinstance(document, dict) else None
    is_clear = document is not None or status >= 500 or status in _CLEAR_STATUSES
    if status >= 400 and is_clear:
        return _read_status(status, headers, data, document or {})
    if document is None or status not in SUCCESSES:
        return _garbage(status, _describe(status, headers, data))
    if operation in PAGES:
        return _page(status, document, with_managers=operation == "list")
    node, is_event = _node(document), operation in ("create-event", "patch-event")
    if node is None:
        return _garbage(status, f"the response is not {'an Event' if is_event else 'a Node'}")
    return Answer(status) if is_event else Answer(status, node=node, boot_id=boot_id_of(document))


def boot_id_of(document: Mapping[str, Any]) -> str | None:
    """Return `status.nodeInfo.bootID` of a whole Node; None if it is absent or malformed."""
    boot_id = part(part(document, "status"), "nodeInfo").get("bootID")
    return boot_id if isinstance(boot_id, str) and is_word(boot_id) else None


def about(request: Request, answer: Answer) -> Answer:
    """Return the answer if it is about the Node that was requested, else the failure that it is.

    The body of `apply` and a test of `patch` name the uid; a `get` takes any.
    """
    if answer.node is None:
        return answer
    metadata, node = answer.node["metadata"], one_line(request.get("node", ""))
    if metadata["name"] != request.get("node"):
        name = one_line(metadata["name"])
        return _garbage(answer.status or 0, f"the response is Node {name} in place of {node}")
    body = request.get("body")
    uids = [part(body, "metadata").get("uid")] if isinstance(body, dict) else []
    uids += [test.get("value") for test in objects(body) if test.get("path") == UID_PATH]
    if any(uid not in (None, metadata["uid"]) for uid in uids):
        text = f"the response is of another uid than the request to Node {node}"
        return Answer(answer.status, error="recreated", message=text)
    return answer


def limit_of(operation: str) -> int:
    """Return the number of bytes that the body of a response has at most."""
    return MAX_PAGE_BODY if operation in PAGES else MAX_BODY


def _garbage(status: int, text: str) -> Answer:
    """Return the answer for a response that no API server gives."""
    return Answer(status, error="garbage", message=text)


def _read_status(status: int, headers: Headers, data: bytes, document: Json) -> Answer:
    """Read a Status; that about an expired `continue` has another token."""
    details, token = part(document, "details"), part(document, "metadata").get("continue")
    # A date as Retry-After is ignored: it needs two clocks that agree.
    waits = [str(headers.get("Retry-After")), str(details.get("retryAfterSeconds"))]
    seconds = [float(wait[:9]) for wait in waits if wait.isascii() and wait.isdigit()]
    causes = [
        Cause(*(str(row.get(name) or "") for name in Cause._fields))
        for row in objects(details.get("causes"))
    ]
    return Answer(
        status,
        reason=str(document.get("reason") or ""),
        message=str(document.get("message") or _describe(status, headers, data))[:MAX_TEXT],
        causes=tuple(causes),
        retry_after=next(iter(seconds), None),
        following=token if status == GONE and isinstance(token, str) else "",
    )


def _describe(status: int, headers: Headers, data: bytes) -> str:
    """Describe a response whose body is not the expected JSON, with its first bytes."""
    content_type = str(headers.get("Content-Type") or "no Content-Type")
    start = " ".join(data[:200].decode(errors="replace").split())
    body = f": {start!r}" if start else " and an empty body"
    return f"HTTP {status} with {content_type.partition(';')[0][:80]}{body}"


def _page(status: int, document: Json, *, with_managers: bool) -> Answer:
    """Read a NodeList; the items of an empty PartialObjectMetadataList are null."""
    items = document.get("items", {}) or []
    if "items" not in document or not isinstance(items, list):
        return _garbage(status, "the response is not a NodeList")
    metadata = part(document, "metadata")
    token, remaining = metadata.get("continue") or "", metadata.get("remainingItemCount")
    parsed = [_node(item, with_managers=with_managers) for item in objects(items)]
    nodes = [node for node in parsed if node]
    # A Node of a survey that cannot be read would be missing without a word.
    if not isinstance(token, str) or not (with_managers or len(nodes) == len(items)):
        return _garbage(status, "not every item of the NodeList is a Node")
    is_count = isinstance(remaining, int) and remaining >= 0
    return Answer(status, nodes=nodes, following=token, remaining=remaining if is_count else None)


def _node(document: Json, *, with_managers: bool = True) -> Json | None:
    """Return {"metadata"} of an object with name and uid; else None.

    Of managedFields it has what agent/kube/managed_fields.py reads.
    """
    metadata = part(document, "metadata")
    identity = [metadata.get(name) for name in ("name", "uid")]
    if not all(isinstance(text, str) and text for text in identity):
        return None
    if not with_managers:
        return {"metadata": _only(metadata, "name", "uid", "labels", "annotations")}
    kept = _only(metadata, "name", "uid", "resourceVersion", "labels", "annotations")
    kept["managedFields"] = [
        {
            **_only(entry, "manager", "operation", "subresource", "time"),
            "fieldsV1": {"f:metadata": part(part(entry, "fieldsV1"), "f:metadata")},
        }
        for entry in objects(metadata.get("managedFields"))
    ]
    return {"metadata": kept}


def _only(value: Json, *names: str) -> Json:
    return {name: value[name] for name in names if name in value}


def part(value: Mapping[str, Any], name: str) -> Json:
    """Return an object in another; empty if there is none."""
    member = value.get(name)
    return member if isinstance(member, dict) else {}


def objects(value: object) -> list[Json]:
    """Return the JSON objects in a list; empty for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason for which a request or a whole negotiation ended without success."""

    kind: str  # one of KINDS
    text: str  # one line that names the Node
    retry_after: float | None = None  # seconds to wait at least; None: no demand of the server
    status: int | None = None  # of HTTP; None: no response
    maybe_done: bool = False  # a write may have been made


def failure_of(answer: Answer, node: str) -> Failure:
    """Return the failure that an unsuccessful answer about Node `node` means.

    A Retry-After is limited to between a second and MAX_RETRY_AFTER.
    """
    status, wait = answer.status or 0, answer.retry_after
    kind = answer.error or _KINDS_BY_STATUS.get(status, "server" if status >= 500 else "refused")
    if answer.recreated and not answer.error:
        kind = "recreated"
    server = one_line(answer.server) or "the API server"
    sentence = _SENTENCES[kind].format(server=server, message=answer.text)
    unknown = "outcome unknown: " if answer.maybe_done else ""
    return Failure(
        kind,
        f"Node {node}: {unknown}{sentence}",
        None if wait is None else min(max(wait, 1.0), MAX_RETRY_AFTER),
        answer.status,
        answer.maybe_done,
    )


def one_line(text: str) -> str:
    """Return text of a server as one printable line of up to MAX_MESSAGE characters."""
    return visible(" ".join(text.split()), MAX_MESSAGE)


_KINDS_BY_STATUS = {
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    407: "proxy",
    408: "timeout",
    409: "conflict",
    429: "busy",
}
_SENTENCES = {
    ANOTHER_HOST: "another host than this one: {message}",
    "busy": "{server} is overloaded: {message}",
    "configuration": "no access to an API server configured: {message}",
    "conflict": "changed by others at the same time: {message}",
    "cut": "connection to {server} lost: {message}",
    "forbidden": "not permitted: {message}",
    "garbage": "{server} does not respond like an API server (is it a proxy?): {message}",
    "helper": "request not made: {message}",
    "not-found": "not found: {message}",
    NO_ROOM: "no room for more requests: {message}",
    "proxy": "the proxy to {server} refused the connection: {message}",
    "recreated": "deleted or recreated since it was read: {message}",
    "refused": "{server} refused the request: {message}",
    "server": "{server} failed: {message}",
    "timeout": "{server} did not respond in time: {message}",
    "tls": "TLS verification failed for {server}: {message}",
    "unauthorized": "{server} rejected the token: {message}",
    "unreachable": "{server} is unreachable: {message}",
}
KINDS = tuple(_SENTENCES)
