"""Commands of bwagent over a test's API server, each in a process that forked.py makes, and
sessions of the agent with it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from agent.kube.access import Access
from agent.kube.api import Api
from agent.kube.kubeconfig import resolve
from tests.support import snapshots

MEMORY = 4 << 30  # bytes of address space, helpers' arenas included


def bwagent(
    *words: str, kubeconfig: Path | str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command; return it with its output as text."""
    access = () if kubeconfig is None else ("--kubeconfig", str(kubeconfig))
    done = snapshots.bwagent(*words, *access, env=env, memory=MEMORY, timeout=120)
    out, err = (done.stdout or b"").decode(), done.stderr.decode()
    return subprocess.CompletedProcess(words, done.returncode, out, err)


def session(kubeconfig: Path) -> Api:
    """Open a session without the helper that resolves a kubeconfig."""
    access = Access(**resolve(str(kubeconfig), None))
    return Api(lambda again: access)  # noqa: ARG005
