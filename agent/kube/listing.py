"""List all Nodes by pages, their metadata only: the command `fleet`.

Invariants:
- The Nodes are complete or the listing fails: half a fleet is never returned as a whole one.
- A `continue` token expires after a few minutes, with the compaction of etcd. The answer, 410, has
  another one that continues behind the last Node, with the Nodes as they are then; where it has
  none, the listing begins again, once.

Sources: Kubernetes API concepts, "Retrieving large results sets in chunks"; meta/v1 ListMeta.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Unavailable
from agent.kube.decode import GONE
from agent.kube.errors import answer_of, failure_of, one_line
from agent.kube.negotiation import reply_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.kube.errors import Answer
    from agent.kube.managed_fields import Node
    from agent.kube.transport import Kube, Reply, Request

MAX_RESTARTS = 1
BUSY = 429
AGAIN = (401, BUSY)
MAX_ATTEMPTS = 3
MAX_WAIT = 30.0  # seconds
_USER = re.compile(r'User "([^"]*)"')


class Page(NamedTuple):
    """Some of the Nodes."""

    nodes: list[Node]
    left: int | None  # Nodes of the pages behind it; None: unknown
    is_first: bool  # the Nodes before it are to be forgotten
    server: str  # its URL


def pages(
    kube: Kube,
    selector: str = "",
    name: str | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Page]:
    """Yield the Nodes that a label selector and a name select; raises Unavailable.

    Needs the right to `list` nodes.
    """
    by_name = f"metadata.name={name}" if name else ""
    found = [("labelSelector", selector), ("fieldSelector", by_name)]
    selectors = [(key, value) for key, value in found if value]
    listing = _Listing(kube, {"operation": "survey", "selectors": selectors}, sleep)
    while not listing.is_complete:
        page = listing.next_page()
        if page:
            yield page


class _Listing:
    """A listing up to some page."""

    def __init__(self, kube: Kube, request: Request, sleep: Callable[[float], object]) -> None:
        self.is_complete = False
        self._kube, self._request, self._sleep = kube, request, sleep
        self._token = ""
        self._read = 0  # Nodes
        self._restarts = 0
        self._is_resumed = False  # with the token of a 410, and no page since

    def next_page(self) -> Page | None:
        """Return the next page; None if the listing continues elsewhere. Raises Unavailable."""
        reply = self._reply()
        answer = answer_of(reply)
        if answer.status == GONE and not answer.error:
            self._resume(reply, answer)
            return None
        if answer.status != 200 or answer.error:
            raise self._failure(answer)
        return self._page(reply)

    def _reply(self) -> Reply:
        """Send the request; again after a 401, with new credentials, and later after a 429."""
        request: Request = {**self._request, "continue": self._token}
        for _ in range(MAX_ATTEMPTS - 1):
            reply = reply_of(self._kube, request)
            if reply.get("status") not in AGAIN:
                return reply
            if reply["status"] == BUSY:
                self._sleep(min(reply.get("retry_after") or 1.0, MAX_WAIT))
        return reply_of(self._kube, request)

    def _page(self, reply: Reply) -> Page:
        page = Page(reply["nodes"], reply.get("remaining"), not self._read, reply["server"])
        self._token, self._is_resumed = reply.get("continue") or "", False
        self._read += len(page.nodes)
        self.is_complete = not self._token
        return page

    def _resume(self, reply: Reply, answer: Answer) -> None:
        """Continue with the token of the answer, else from the beginning."""
        token = reply.get("continue") or ""
        if token and not self._is_resumed:
            self._token, self._is_resumed = token, True
        elif self._token and self._restarts < MAX_RESTARTS:
            self._token, self._read, self._is_resumed = "", 0, False
            self._restarts += 1
        else:
            raise self._failure(answer)

    def _failure(self, answer: Answer) -> Unavailable:
        """Return the error, with the number of Nodes before it."""
        text = _denial(answer) or failure_of(answer, "").text.removeprefix("Node : ")
        before = f" after {self._read:,}" if self._read else ""
        return Unavailable(f"listing Nodes failed{before}: {text}")


def _denial(answer: Answer) -> str | None:
    """Return the line about a missing right; None if none is missing."""
    if answer.status != 403 or answer.error:
        return None
    user = _USER.search(answer.message)
    account = f"account {one_line(user[1])}" if user else "this account"
    return f"{account} lacks the right to list nodes (all of the cluster): {answer.text}"
