"""Requests of the agent to the API server, without the child process for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.kube.client import handle
from agent.kube.transport import TIMEOUT

if TYPE_CHECKING:
    from pathlib import Path

    from agent.kube.transport import Kube


def connect(kubeconfig: Path) -> Kube:
    """Return a function that does what the child of agent/kube/transport.py does."""
    settings = {"kubeconfig": str(kubeconfig), "timeout_s": TIMEOUT}
    return lambda request: handle({**settings, **request})
