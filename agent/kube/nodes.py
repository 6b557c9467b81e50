"""Reads of Nodes: one, which may have to be this host, or all of them by pages.

The kubelet writes the boot ID of its host to `status.nodeInfo.bootID`
(/proc/sys/kernel/random/boot_id, which the kernel makes at each boot). A command that observes this
host and writes, or explains, another host's Node would take the other host's labels away.

Invariants of a Node that has to be this host:
- One whole GET decides; later reads of the same Node, by its uid, are metadata only.
- A Node with another boot ID is in no answer, and nothing is sent to the API server but further
  whole GETs. After a boot the kubelet needs up to a minute to report the new one.
- A boot ID that is not known, of the Node or of this host, is not another boot ID.

Invariants of a listing (the commands `fleet` and `cleanup --all`):
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
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent.errors import BwagentError, Misdirected, Unavailable
from agent.facts import is_word
from agent.kube.answers import (
    ANOTHER_HOST,
    GONE,
    Answer,
    Failure,
    Kube,
    Request,
    failure_of,
    one_line,
)
from agent.kube.managed_fields import Node

HOW = (
    "{reason}; run this in the agent's Pod on that Node: kubectl exec -n bwagent "
    "$(kubectl get pod -n bwagent -o name --field-selector spec.nodeName={node}) -- bwagent ...; "
    "--force-node if it is this host all the same"
)
MAX_RESTARTS = 1
BUSY = 429
AGAIN = (401, BUSY)
MAX_ATTEMPTS = 3
MAX_WAIT = 30.0  # seconds
PAGE_DEADLINE = 60.0  # seconds, for about 4 MB
DEADLINE = 600.0  # seconds for all pages
_USER = re.compile(r'User "([^"]*)"')


def get_node(kube: Kube, name: str) -> Node | Failure:
    """Get the metadata of a Node."""
    answer = ask(kube, {"operation": "get", "node": name})
    return answer.node or failure_of(answer, name)


def ask(kube: Kube, request: Request) -> Answer:
    """Send a request that needs no negotiation, once more after a 401; return the answer."""
    answer = kube(request)
    return kube(request) if answer.status == 401 else answer


def of_this_host(kube: Kube, boot_id: str | None) -> Kube:
    """Return a Kube for one Node, which has to be this host; None: its boot ID is unknown."""
    return _OfThisHost(kube, boot_id) if boot_id and is_word(boot_id) else kube


@dataclass(slots=True)
class _OfThisHost:
    """Gives a Node if it is this host.

    One thread at a time gets Nodes, while others may send writes.
    """

    kube: Kube
    boot_id: str
    uid: str = ""  # of the Node that is this host
    instead: Answer | None = None  # in place of all answers but those to GETs

    def __call__(self, request: Request) -> Answer:
        if request["operation"] != "get":
            return self.instead or self.kube(request)
        requests = 0
        if self.uid:
            answer, requests = self.kube(request), 1
            if answer.node is None or answer.node["metadata"]["uid"] == self.uid:
                return answer
        answer = self.kube({"operation": "get", "node": request["node"], "whole": True})
        answer = replace(answer, requests=requests + 1)
        if answer.node is None:
            return answer
        if answer.boot_id in (None, self.boot_id):
            self.uid, self.instead = answer.node["metadata"]["uid"], None
            return answer
        text = f"its boot ID is {answer.boot_id}, that of this host {self.boot_id}"
        self.uid, self.instead = "", replace(answer, node=None, error=ANOTHER_HOST, message=text)
        return self.instead


def error_of(failure: Failure, node: str) -> BwagentError:
    """Return the error of a command that cannot get its Node."""
    if failure.kind == ANOTHER_HOST:
        return Misdirected(HOW.format(reason=failure.text, node=node))
    return Unavailable(failure.text)


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
    text = failure_of(answer, "").text.removeprefix("Node : ")
    if answer.status == 403 and not answer.error:
        user = _USER.search(answer.message)
        account = f"account {one_line(user[1])}" if user else "this account"
        text = f"{account} lacks the right to list nodes (all of the cluster): {answer.text}"
    before = f" after {read:,}" if read else ""
    return Unavailable(f"listing Nodes failed{before}: {text}")
