"""List all Nodes by pages, their metadata only: the commands `fleet` and `cleanup --all`.

Invariants:
- The Nodes are complete or the listing fails: half a fleet is never returned as a whole one.
- A `continue` token expires after a few minutes, with the compaction of etcd. The answer, 410, has
  another token that continues behind the last Node, with the Nodes as they are then; where it has
  none, the listing begins again, once.
- A page that does not come within PAGE_DEADLINE ends the listing, and so do all of them together
  that take longer than DEADLINE.

Sources: Kubernetes API concepts, "Retrieving large results sets in chunks"; meta/v1 ListMeta.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agent.errors import Unavailable
from agent.kube.answers import GONE, Answer, Kube, Request, failure_of, one_line
from agent.kube.managed_fields import Node

MAX_RESTARTS = 1
BUSY = 429
AGAIN = (401, BUSY)
MAX_ATTEMPTS = 3
MAX_WAIT = 30.0  # seconds
PAGE_DEADLINE = 60.0  # seconds, for about 4 MB
DEADLINE = 600.0  # seconds for all pages
_USER = re.compile(r'User "([^"]*)"')


class Page(NamedTuple):
    """Some of the Nodes."""

    nodes: list[Node]
    left: int | None  # Nodes of the pages behind it; None: unknown
    is_first: bool  # the Nodes before it are to be forgotten
    server: str  # its URL


def pages(  # noqa: PLR0913 - most are keywords
    kube: Kube,
    selector: str = "",
    name: str | None = None,
    *,
    with_managers: bool = False,
    sleep: Callable[[float], object] = time.sleep,
    deadlines: tuple[float, float] = (PAGE_DEADLINE, DEADLINE),
) -> Iterator[Page]:
    """Yield the Nodes that a label selector and a name select; raises Unavailable.

    Needs the right to `list` nodes, which the agent's ClusterRole does not give.
    """
    by_name = f"metadata.name={name}" if name else ""
    selectors = {"labelSelector": selector, "fieldSelector": by_name}
    request: Request = {
        "operation": "list" if with_managers else "survey",
        "selectors": [pair for pair in selectors.items() if pair[1]],
    }
    page_s, all_s = deadlines
    end = time.monotonic() + all_s
    token, read, restarts, is_resumed = "", 0, 0, False
    while True:
        rest = max(end - time.monotonic(), 0.001)
        request = {**request, "continue": token, "deadline_s": min(page_s, rest)}
        answer = _page(kube, request, sleep)
        if time.monotonic() >= end and (answer.following or not answer.succeeded):
            text = f"the listing took {all_s:g} s"
            answer = Answer(error="timeout", message=text, server=answer.server)
        if answer.status == GONE and not answer.error:
            if answer.following and not is_resumed:
                token, is_resumed = answer.following, True
                continue
            if token and restarts < MAX_RESTARTS:
                token, read, is_resumed = "", 0, False
                restarts += 1
                continue
        if answer.status != 200 or answer.error:
            raise _failure(answer, read)
        yield Page([*answer.nodes], answer.remaining, not read, answer.server)
        token, is_resumed = answer.following, False
        read += len(answer.nodes)
        if not token:
            return


def _page(kube: Kube, request: Request, sleep: Callable[[float], object]) -> Answer:
    """Send a request; again after a 401, with new credentials, and later after a 429."""
    for _ in range(MAX_ATTEMPTS - 1):
        answer = kube(request)
        if answer.status not in AGAIN:
            return answer
        if answer.status == BUSY:
            sleep(min(answer.retry_after or 1.0, MAX_WAIT))
    return kube(request)


def _failure(answer: Answer, read: int) -> Unavailable:
    """Return the error of a listing that failed after so many Nodes."""
    text = _denial(answer) or failure_of(answer, "").text.removeprefix("Node : ")
    before = f" after {read:,}" if read else ""
    return Unavailable(f"listing Nodes failed{before}: {text}")


def _denial(answer: Answer) -> str | None:
    """Return the line about a missing right; None if none is missing."""
    if answer.status != 403 or answer.error:
        return None
    user = _USER.search(answer.message)
    account = f"account {one_line(user[1])}" if user else "this account"
    return f"{account} lacks the right to list nodes (all of the cluster): {answer.text}"
