"""The link states of real netdevs, by the helper and pyroute2, without privileges."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from agent.helper.process import call
from agent.nic.health import decode
from agent.nic.link_state import LinkState

AS_NOBODY = """\
import json, os
from agent.nic.query import answer
os.setgid(65534)
os.setuid(65534)
print(json.dumps(answer({"netdevs": ["lo"]})))
"""


@pytest.fixture
def veth() -> Any:
    """Yield the names of a pair of netdevs that are down."""
    names = ("bwnic0", "bwnic1")
    ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
    yield names
    ip("link", "del", names[0])


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def states(*netdevs: str) -> dict[str, LinkState]:
    nics, problems = decode(call("nics", {"netdevs": [*netdevs]}, 30.0))
    assert problems == []
    return nics.links


def test_a_link_goes_up(veth: tuple[str, str]) -> None:
    """A veth has no extended state; a netdev that is gone is left out."""
    ip("link", "set", veth[0], "up")
    assert states(veth[0], "bwnic9") == {veth[0]: LinkState(veth[0], is_up=False)}
    ip("link", "set", veth[1], "up")
    assert states(veth[0])[veth[0]].is_up is True


def test_a_quick_question_leaves_out_the_links() -> None:
    """For firmware that holds up the other requests."""
    answer = call("nics", {"netdevs": ["lo"], "quick": True}, 30.0)
    assert (answer["links"], answer["errors"]) == ([], [])


def test_it_needs_no_privilege() -> None:
    """A user without capabilities reads the same."""
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], check=True, capture_output=True)
    assert json.loads(done.stdout)["links"][0]["link"] == 1
