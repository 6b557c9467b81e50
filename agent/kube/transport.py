"""The door to the API server: one short-lived child for each request.

A request through it costs 0.07 CPU-seconds, nearly all of which is the official client being loaded; in the agent's
own process that client would cost more memory than all the rest for as long as the agent lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.helper.process import call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TIMEOUT = 10.0  # seconds to connect, and for each read
DEADLINE = 25.0  # seconds for a whole request, a credential plugin of a kubeconfig included


def door(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    service_account: str | None = None,
    timeout_s: float = TIMEOUT,
    deadline_s: float = DEADLINE,
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """The door: from a request of verb `kube` to its answer; Unavailable where the child dies or is late.

    By the Pod's service account where neither a kubeconfig nor a context is named.
    """
    common = {
        "kubeconfig": kubeconfig,
        "context": context,
        "service_account": service_account,
        "timeout_s": timeout_s,
    }
    return lambda request: call("kube", {**common, **request}, deadline_s)
