"""A listing of Nodes ends, whatever the server does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from agent.errors import Unavailable
from agent.kube.connection import connected
from agent.kube.listing import pages
from agent.kube.patience import Patience
from tests.support.odd_server import reply, serving

if TYPE_CHECKING:
    import socket
    from pathlib import Path


def drip(connection: socket.socket) -> None:
    """Send 100 bytes a second, so that no single read is late."""
    connection.sendall(reply(200, b"", length=1 << 20))
    while True:
        connection.sendall(b" " * 5)
        time.sleep(0.05)


def kubeconfig(folder: Path, server: str) -> str:
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "c", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


def test_a_server_that_drips(tmp_path: Path) -> None:
    """A page that does not come is given up at its deadline, in one line that names the server;
    the seconds show while it is awaited.
    """
    waited = list[float]()
    with serving(drip) as server:
        url = f"http://127.0.0.1:{server.port}"
        with connected(kubeconfig(tmp_path, url), None) as kube:
            patient = Patience(kube, lambda: kube.server, waited.append, (3.0, 9.0))
            with pytest.raises(Unavailable) as caught:
                list(pages(patient))
    text = f"listing Nodes failed: {url} did not respond in time: no whole page within 3 s"
    assert str(caught.value) == text
    assert [round(seconds) for seconds in waited] == [1, 2]


def test_the_end_of_the_program(tmp_path: Path) -> None:
    """The request that was given up does not keep the program."""
    program = (
        "import sys\n"
        "from agent.kube.connection import connected\n"
        "from agent.kube.patience import Patience\n"
        "with connected(sys.argv[1], None) as kube:\n"
        "    patient = Patience(kube, lambda: kube.server, print, (1.0, 9.0))\n"
        "    print(patient({'operation': 'survey'})['error'])\n"
    )
    with serving(drip) as server:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}")
        command = [sys.executable, "-c", program, path]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "timeout", "")


def test_a_listing_without_end() -> None:
    """All pages together have a deadline, too: each comes within its own."""

    def kube(_request: object) -> dict[str, Any]:
        time.sleep(0.3)
        found = {"status": 200, "nodes": [], "continue": "x", "remaining": None}
        return {**found, "server": "https://k"}

    patient = Patience(kube, lambda: "https://k", lambda _: None, (5.0, 1.0))
    with pytest.raises(Unavailable, match="https://k did not respond in time: the listing took 1"):
        list(pages(patient))
