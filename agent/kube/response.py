"""What comes back from the API server, or instead of it, and whose fault it is in one line.

The law of this module: whatever happened between here and the Node becomes an `Answer`, and every answer that is not
what was asked for becomes a `Failure` with a kind to act upon and a sentence for an operator. Nothing a server says is
trusted: its words are cut, and what does not print is replaced.

Statuses: RFC 9110; the Status object: meta/v1 (reason, message, details.causes, details.retryAfterSeconds).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_WAIT = 600.0  # seconds; no Retry-After beyond it is honoured
LONGEST_WORDS = 500  # characters of a server's message that an operator is shown
DENIALS = (400, 403, 422)
CONFLICT = "FieldManagerConflict"

# Kinds of `Failure` that pass by themselves; the others want a person.
TRANSIENT = {
    *(
        "busy",
        "conflict",
        "cut",
        "garbage",
        "not-found",
        "recreated",
        "server",
        "timeout",
        "unauthorized",
    ),
    *("helper", "unreachable"),
}


class Cause(NamedTuple):
    """A details.cause of a Status."""

    reason: str
    field: str  # `.metadata.labels.backend.coreweave.cloud/flavor`
    message: str

    @property
    def manager(self) -> str:
        """Who holds the field, in `conflict with "kubectl-edit" using v1`."""
        quoted = re.search(r'"([^"]*)"', self.message)
        return one_line(quoted[1] if quoted else self.message)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the API server, or why there is none."""

    status: int | None = None  # None: nothing that is HTTP came back
    reason: str = ""  # Status.reason: "Conflict", "Invalid", ...
    message: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after: float | None = None  # seconds
    node: Mapping[str, Any] | None = None
    error: str | None = None  # the kind of failure where the status does not tell
    server: str = ""  # its address

    @property
    def accepted(self) -> bool:
        """The Node is as asked for."""
        return self.status in (200, 201) and self.node is not None and not self.error

    @property
    def denied(self) -> bool:
        """What was asked for is not wanted there; that we may ask at all is another matter."""
        may = "cannot patch resource" not in self.message
        return self.status in DENIALS and may and not (self.error or self.recreated)

    def names(self, key: str) -> bool:
        """Its words name this very label or annotation, not one that it is a part of."""
        text = "\n".join(
            [self.message, *(f"{cause.field}\n{cause.message}" for cause in self.causes)]
        )
        text = text.replace("metadata.labels.", " ").replace("metadata.annotations.", " ")
        # A full stop behind it ends a sentence.
        return re.search(rf"(?<![\w./-]){re.escape(key)}(?![\w/-]|\.\w)", text) is not None

    @property
    def recreated(self) -> bool:
        """The uid is not the Node's any more: there is another of that name (422), or none (409)."""
        if self.status == 409:
            return "uid mismatch" in self.message
        return self.status == 422 and any(cause.field == "metadata.uid" for cause in self.causes)

    @property
    def conflicts(self) -> tuple[Cause, ...]:
        """The fields that other managers hold."""
        return (
            tuple(cause for cause in self.causes if cause.reason == CONFLICT)
            if self.status == 409
            else ()
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """Why nothing more could be done."""

    kind: str  # one of KINDS, "forbidden", "tls", ...
    text: str  # one line that names the Node
    retry_after: float | None = None  # seconds, at least; None: as the caller likes

    @property
    def transient(self) -> bool:
        """It passes by itself, so trying again with the usual back-off is right."""
        return self.kind in TRANSIENT


def answer_of(told: Mapping[str, Any]) -> Answer:
    """The answer out of what the helper's verb `kube` says."""
    causes = tuple(
        Cause(*(str(cause.get(name) or "") for name in Cause._fields))
        for cause in told.get("causes") or ()
    )
    return Answer(
        status=told.get("status"),
        reason=str(told.get("reason") or ""),
        message=str(told.get("message") or ""),
        causes=causes,
        retry_after=told.get("retry_after"),
        node=told.get("node"),
        error=told.get("error"),
        server=str(told.get("server") or ""),
    )


def failure_of(answer: Answer, node: str) -> Failure:
    """Whose fault an answer is that was not what was asked for, about Node `node`."""
    kind = answer.error or _kind(answer)
    said = one_line(answer.message) or f"status {answer.status}"
    sentence = _SENTENCES[kind].format(
        server=one_line(answer.server) or "the API server", said=said
    )
    return Failure(kind, f"Node {node}: {sentence}", _wait(answer.retry_after))


def one_line(text: str) -> str:
    """A text from outside for a line of ours."""
    words = " ".join(text.split())
    printable = "".join(character if character.isprintable() else "?" for character in words)
    return printable if len(printable) <= LONGEST_WORDS else printable[: LONGEST_WORDS - 3] + "..."


def _kind(answer: Answer) -> str:
    if answer.recreated:
        return "recreated"
    status = answer.status or 0
    return _NAMED.get(status, "server" if status >= 500 else "refused")


def _wait(seconds: float | None) -> float | None:
    return None if seconds is None else min(max(seconds, 1.0), LONGEST_WAIT)


_NAMED = {
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    407: "proxy",
    408: "timeout",
    409: "conflict",
    429: "busy",
}
_SENTENCES = {
    "busy": "{server} is overloaded and asks to wait: {said}",
    "configuration": "no way to the API server: {said}",
    "conflict": "it was changed by others at the same time: {said}",
    "cut": "the connection to {server} broke: {said}",
    "forbidden": "not permitted: {said}",
    "garbage": "what answers at {server} is no API server, or a proxy in front of it: {said}",
    "helper": "the request could not be made: {said}",
    "not-found": "it does not exist: {said}",
    "proxy": "the proxy to {server} refuses: {said}",
    "recreated": "it was deleted, and perhaps made anew; it has to be looked at again: {said}",
    "refused": "{server} refuses the request: {said}",
    "server": "{server} is in trouble: {said}",
    "timeout": "{server} does not answer in time: {said}",
    "tls": "no trust in {server}, its certificate does not fit the CA: {said}",
    "unauthorized": "{server} does not accept our token: {said}",
    "unreachable": "{server} is not reachable: {said}",
}
KINDS = tuple(_SENTENCES)
