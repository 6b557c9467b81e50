"""Answers of the API server, and failures to get one, with one line for an operator.

Invariants:
- Every reply of the helper, and its absence, is an `Answer`; every answer other than the requested
  one is a `Failure` with a kind for the caller and a sentence for the operator.
- Text of the server is shortened and made printable before it is shown.

Statuses: RFC 9110; the Status object: meta/v1 (reason, message, details.causes,
details.retryAfterSeconds).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_RETRY_AFTER = 600.0  # seconds
MAX_MESSAGE = 500  # characters of a server's message that are shown
DENIALS = (400, 403, 422)
CONFLICT = "FieldManagerConflict"


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
    node: Mapping[str, Any] | None = None
    error: str | None = None  # the kind of failure if it does not follow from the status
    server: str = ""  # the API server's URL

    @property
    def accepted(self) -> bool:
        """True if the Node is as requested."""
        return self.status in (200, 201) and self.node is not None and not self.error

    @property
    def denied(self) -> bool:
        """True if the server refuses the contents; RBAC's "cannot patch" is another matter."""
        if self.error or self.recreated or "cannot patch resource" in self.message:
            return False
        return self.status in DENIALS

    @property
    def text(self) -> str:
        """The message as one line, or the status if there is none."""
        return one_line(self.message) or f"status {self.status}"

    def names(self, key: str) -> bool:
        """Return True if the message or a cause names this key, not a longer one around it."""
        # A period after the key may end a sentence; one with a letter after it continues the key.
        pattern = rf"(?<![\w./-]){re.escape(key)}(?![\w/-]|\.\w)"
        return re.search(pattern, self._words()) is not None

    def _words(self) -> str:
        """Return message and causes, with the paths of fields reduced to keys."""
        causes = (f"{cause.field}\n{cause.message}" for cause in self.causes)
        text = "\n".join([self.message, *causes])
        return re.sub(r"metadata\.(labels|annotations)\.", " ", text)

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


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason for which a request or a whole negotiation ended without success."""

    kind: str  # one of KINDS
    text: str  # one line that names the Node
    retry_after: float | None = None  # seconds to wait at least; None: no demand of the server
    status: int | None = None  # of HTTP; None: no response


def answer_of(reply: Mapping[str, Any]) -> Answer:
    """Read the reply of the helper's verb `kube`; see agent/kube/decode.py for its shapes."""
    return Answer(
        status=reply.get("status"),
        reason=_text(reply, "reason"),
        message=_text(reply, "message"),
        causes=tuple(_cause(row) for row in reply.get("causes") or ()),
        retry_after=reply.get("retry_after"),
        node=reply.get("node"),
        error=reply.get("error"),
        server=_text(reply, "server"),
    )


def _cause(row: Mapping[str, Any]) -> Cause:
    return Cause(*(_text(row, name) for name in Cause._fields))


def _text(document: Mapping[str, Any], name: str) -> str:
    return str(document.get(name) or "")


def failure_of(answer: Answer, node: str) -> Failure:
    """Return the failure that an unsuccessful answer about Node `node` means."""
    kind = answer.error or _kind(answer)
    text = f"Node {node}: {_sentence(kind, answer)}"
    return Failure(kind, text, _retry_after(answer.retry_after), answer.status)


def _sentence(kind: str, answer: Answer) -> str:
    server = one_line(answer.server) or "the API server"
    return _SENTENCES[kind].format(server=server, message=answer.text)


def one_line(text: str) -> str:
    """Return text of a server as one printable line of up to MAX_MESSAGE characters."""
    return visible(" ".join(text.split()), MAX_MESSAGE)


def _kind(answer: Answer) -> str:
    if answer.recreated:
        return "recreated"
    status = answer.status or 0
    return _KINDS_BY_STATUS.get(status, "server" if status >= 500 else "refused")


def _retry_after(seconds: float | None) -> float | None:
    """Limit a Retry-After to between a second and MAX_RETRY_AFTER."""
    return None if seconds is None else min(max(seconds, 1.0), MAX_RETRY_AFTER)


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
    "busy": "{server} is overloaded: {message}",
    "configuration": "no access to an API server configured: {message}",
    "conflict": "changed by others at the same time: {message}",
    "cut": "connection to {server} lost: {message}",
    "forbidden": "not permitted: {message}",
    "garbage": "{server} does not respond like an API server (is it a proxy?): {message}",
    "helper": "request not made: {message}",
    "not-found": "not found: {message}",
    "proxy": "the proxy to {server} refused the connection: {message}",
    "recreated": "deleted or recreated since it was read: {message}",
    "refused": "{server} refused the request: {message}",
    "server": "{server} failed: {message}",
    "timeout": "{server} did not respond in time: {message}",
    "tls": "TLS verification failed for {server}: {message}",
    "too-large": "too large: {message}",
    "unauthorized": "{server} rejected the token: {message}",
    "unreachable": "{server} is unreachable: {message}",
}
KINDS = tuple(_SENTENCES)
