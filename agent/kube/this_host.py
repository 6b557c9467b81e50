"""Whether a Node is this host, by its boot ID.

The kubelet writes the boot ID of its host to `status.nodeInfo.bootID`
(/proc/sys/kernel/random/boot_id, which the kernel makes at each boot). A command that observes this
host and writes, or explains, another host's Node would take the other host's labels away.

Invariants:
- One whole GET of a Node decides; later reads of the same Node, by its uid, are metadata only.
- A Node with another boot ID is in no answer, and nothing is sent to the API server but further
  whole GETs. After a boot the kubelet needs up to a minute to report the new one.
- A boot ID that is not known, of the Node or of this host, is not another boot ID.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.errors import BwagentError, Misdirected, Unavailable
from agent.facts import is_word
from agent.kube.answers import ANOTHER_HOST, Answer, Failure, Kube, Request

HOW = (
    "{reason}; run this in the agent's Pod on that Node: kubectl exec -n bwagent "
    "$(kubectl get pod -n bwagent -o name --field-selector spec.nodeName={node}) -- bwagent ...; "
    "--force-node if it is this host all the same"
)


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
    refusal: Answer | None = None  # in place of all answers but those to GETs

    def __call__(self, request: Request) -> Answer:
        if request["operation"] != "get":
            return self.refusal or self.kube(request)
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
            self.uid, self.refusal = answer.node["metadata"]["uid"], None
            return answer
        text = f"its boot ID is {answer.boot_id}, that of this host {self.boot_id}"
        self.uid, self.refusal = "", replace(answer, node=None, error=ANOTHER_HOST, message=text)
        return self.refusal


def error_of(failure: Failure, node: str) -> BwagentError:
    """Return the error of a command that cannot get its Node."""
    if failure.kind == ANOTHER_HOST:
        return Misdirected(HOW.format(reason=failure.text, node=node))
    return Unavailable(failure.text)
