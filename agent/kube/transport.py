"""Requests to the API server, each in a short-lived child process (agent/kube/client.py).

Loading the official client is nearly all that a request costs. In the agent's own process it would
take more memory than everything else, for as long as the agent runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from agent.helper.process import call

Request = TypedDict(
    "Request",
    {
        "operation": Required[
            Literal[
                "get",
                "apply",
                "list",
                "survey",
                "patch",
                "check-policy",
                "create-event",
                "patch-event",
            ]
        ],
        "node": str,  # of get, apply, patch and check-policy
        "event": str,  # of patch-event: the name of an Event in namespace `default`
        # Of apply: the object for server-side apply; of patch: a JSON patch; of create-event: the
        # Event; of check-policy and patch-event: a merge patch.
        "body": Any,
        "force": bool,  # of apply: take fields over from other managers
        "continue": str,  # of list, survey: metadata.continue of the page before, or empty
        "selectors": Sequence[tuple[str, str]],  # of survey: query parameters
    },
    total=False,
)
Reply = Mapping[str, Any]  # see agent/kube/decode.py
Kube = Callable[[Request], Reply]  # sends a request; raises Unavailable if there is no reply

TIMEOUT = 10.0  # seconds to connect, and for each read
REQUEST_TIMEOUT = 25.0  # seconds for a whole request with a kubeconfig's credential plugin
_SUBJECTS = {"create-event": "events", "patch-event": "events", "check-policy": "policy"}


def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    service_account: str | None = None,
    timeout_s: float = TIMEOUT,
    deadline_s: float = REQUEST_TIMEOUT,
) -> Kube:
    """Return a function that sends a request to the API server and returns the reply.

    It raises Unavailable if the child dies or exceeds `deadline_s`. The Pod's service account
    authenticates if neither a kubeconfig nor a context is given.
    """
    settings = {
        "kubeconfig": kubeconfig,
        "context": context,
        "service_account": service_account,
        "timeout_s": timeout_s,
    }
    return lambda request: call("kube", {**settings, **request}, deadline_s, _subject(request))


def _subject(request: Request) -> str:
    """Return the subject of the child: one that is stuck over an Event holds up no label."""
    return _SUBJECTS.get(request["operation"], "")
