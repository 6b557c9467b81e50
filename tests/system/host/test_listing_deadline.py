"""A listing of Nodes ends, whatever the server does."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from agent.errors import Unavailable
from agent.kube.access import Access
from agent.kube.answers import Answer
from agent.kube.api import Api
from agent.kube.listing import pages
from tests.support.odd_server import reply, serving


def drip(connection: socket.socket) -> None:
    """Send 100 bytes a second, so that no single read is late."""
    connection.sendall(reply(200, b"", length=1 << 20))
    while True:
        connection.sendall(b" " * 5)
        time.sleep(0.05)


def session(server: str, waiting: Callable[[float], object]) -> Api:
    access = Access(server, "Bearer t")
    return Api(lambda again: access, waiting=waiting)  # noqa: ARG005


def test_a_server_that_drips() -> None:
    """A page that does not come is given up at its deadline, in one line that names the server;
    the seconds show while it is awaited.
    """
    waited = list[float]()
    with serving(drip) as server:
        url = f"http://127.0.0.1:{server.port}"
        with closing(session(url, waited.append)) as kube, pytest.raises(Unavailable) as caught:
            list(pages(kube, deadlines=(3.0, 9.0)))
    text = f"listing Nodes failed: {url} did not respond in time: no whole page within 3 s"
    assert str(caught.value) == text
    assert [round(seconds) for seconds in waited] == [1, 2]


def test_the_end_of_the_program() -> None:
    """The request that was given up does not keep the program."""
    program = (
        "import sys\n"
        "from agent.kube.access import Access\n"
        "from agent.kube.api import Api\n"
        "kube = Api(lambda again: Access(sys.argv[1]))\n"
        "print(kube({'operation': 'survey', 'deadline_s': 1.0}).error)\n"
    )
    with serving(drip) as server:
        command = [sys.executable, "-c", program, f"http://127.0.0.1:{server.port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "timeout", "")


def test_a_listing_without_end() -> None:
    """All pages together have a deadline, too: each comes within its own."""

    def kube(_request: object) -> Answer:
        time.sleep(0.3)
        return Answer(200, following="x", server="https://k")

    with pytest.raises(Unavailable, match="https://k did not respond in time: the listing took 1"):
        list(pages(kube, deadlines=(5.0, 1.0)))
