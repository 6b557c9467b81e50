"""Sessions of the agent with a test's API server, without the helper that resolves a kubeconfig."""

from __future__ import annotations

from pathlib import Path

from agent.kube.access import Access
from agent.kube.api import Api
from agent.kube.kubeconfig import resolve


def connect(kubeconfig: Path) -> Api:
    access = Access(**resolve(str(kubeconfig), None))
    return Api(lambda again: access)  # noqa: ARG005
