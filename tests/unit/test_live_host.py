"""The queries by helper processes."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import Unavailable
from agent.live_host import health_by_helper, nics_by_helper

ANSWER: dict[str, Any] = {"links": [], "devices": [], "errors": []}


def test_firmware_that_holds_up_requests() -> None:
    """The health reporters are asked for alone, and the failure is told."""
    asked = []

    def call(verb: str, payload: dict[str, Any], _seconds: float) -> dict[str, Any]:
        asked.append((verb, payload))
        if not payload.get("quick"):
            raise Unavailable("the nics helper took longer than 20 s")
        return ANSWER

    told = [["link states, firmware", "the nics helper took longer than 20 s"]]
    assert nics_by_helper(call)(["eth0"]) == ANSWER | {"errors": told}
    netdevs = {"netdevs": ["eth0"]}
    assert asked == [("nics", netdevs), ("nics", netdevs | {"quick": True})]


def test_the_daemon_asks_for_health_alone() -> None:
    """Whatever the netdevs are."""
    asked = []

    def call(*question: Any) -> dict[str, Any]:
        asked.append(question)
        return ANSWER

    assert health_by_helper(call)(["eth0"]) == ANSWER
    assert asked == [("nics", {"netdevs": [], "quick": True}, 20.0)]


def test_a_helper_that_cannot_start() -> None:
    """The second failure is that of the query."""

    def call(*_arguments: Any) -> dict[str, Any]:
        raise Unavailable("no process")

    with pytest.raises(Unavailable, match="no process"):
        nics_by_helper(call)([])
