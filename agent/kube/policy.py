"""The check that the admission policy is in force: a change that it has to refuse, as a dry run.

The agent sets a foreign label on its own Node by a merge patch with `dryRun=All`: the API server
decides as for any request and stores nothing.

    refused by a policy of bwagent's            in force
    accepted, and the answer has the label      not in force
    any other answer, or none                   not known

RBAC, a webhook or another policy may refuse the request first. A merge patch names one label, so
nothing would be removed even by a server that ignores `dryRun`. The value differs each time:
a label that is there already would be no change.

Source of the message: k8s.io/apiserver, pkg/admission/plugin/policy/validating/dispatcher.go.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from agent.kube import MANAGER
from agent.kube.answers import Kube, failure_of
from agent.kube.managed_fields import LABEL, Field, state_of
from agent.kube.nodes import ask

FOREIGN = "bwagent.invalid/policy-check"  # RFC 2606: no domain ends in .invalid
# A policy is the agent's by its name, or by its message where an overlay has renamed it.
_DENIAL = re.compile(
    r"nodes \S+ is forbidden: "
    r"ValidatingAdmissionPolicy '([^']*)' with binding '[^']*' denied request: (.*)",
    re.DOTALL,
)
INSTALL = (
    "kubectl apply --server-side -k manifests/overlays/site"
    " (by the chart: helm upgrade with policy.enabled=true)"
)
ACCEPTED = "the API server accepted a foreign label (dry run): no policy restricts this account"


@dataclass(frozen=True, slots=True)
class PolicyState:
    """The result of a check."""

    in_force: bool | None  # None: not known
    text: str  # one line
    status: int | None = None  # of HTTP
    retry_after: float | None = None  # seconds


def check_policy(kube: Kube, node: str) -> PolicyState:
    """Send the request, and judge the answer."""
    value = os.urandom(8).hex()
    body = {"metadata": {"labels": {FOREIGN: value}}}
    answer = ask(kube, {"operation": "check-policy", "node": node, "body": body})
    denial = _DENIAL.match(answer.message)
    if denial and not answer.error and 400 <= (answer.status or 0) < 500:
        policy, message = denial.groups()
        if MANAGER in policy or message.startswith(MANAGER):
            return PolicyState(in_force=True, text=answer.text, status=answer.status)
    if answer.node is None:
        failure = failure_of(answer, node)
        return PolicyState(None, failure.text, answer.status, failure.retry_after)
    if state_of(answer.node).fields.get(Field(LABEL, FOREIGN)) == value:
        return PolicyState(in_force=False, text=ACCEPTED, status=answer.status)
    text = f"Node {node}: the API server dropped a foreign label (dry run)"
    return PolicyState(None, text, answer.status)
