"""`bwagent run` on a node whose NIC breaks and recovers: the steps of broken_nic.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyroute2.netlink.devlink import devlinkcmd  # type: ignore[import-untyped]

from agent.events.netlink import notified
from tests.support.qemu.broken_nic import NIC, SIMULATED
from tests.support.qemu.machine import lacks_netdevsim
from tests.support.qemu.shared import Shared
from tests.support.real_parts import require

STATE = "DEVLINK_ATTR_HEALTH_REPORTER_STATE"


@pytest.fixture(scope="module")
def told(shared: Shared) -> dict[str, Any]:
    """Return what was told in each step, and the notifications."""
    require(lacks_netdevsim())
    return dict(json.loads((shared.results("test_broken_nic") / "health.json").read_text()))


def test_a_nic_breaks_and_recovers(told: dict[str, Any]) -> None:
    """The kernel tells, the driver is asked, and the metric and an Event tell it."""
    event = f"NIC {NIC} (ibp0): its driver reports dummy in error (2 errors)"
    metric = f'bwagent_nic_unhealthy{{pci="{NIC}",reporter="dummy"}} 1.0'
    assert told["steps"] == {
        "whole": {"metrics": [], "events": []},
        "broken": {"metrics": [metric], "events": [event]},
        "recovered": {"metrics": [], "events": [event]},
    }
    assert told["questions"] >= 3


def test_both_readers_agree_on_each_notification(told: dict[str, Any]) -> None:
    """The kernel sends one for each error, and one for the recovery; pyroute2 reads the same."""
    states = []
    for data in map(bytes.fromhex, told["notifications"]):
        message = devlinkcmd(data)
        message.decode()
        assert message["cmd"] == 54
        names = [message.get_attr(f"DEVLINK_ATTR_{part}_NAME") for part in ("BUS", "DEV")]
        assert [*notified(data, message["header"]["type"])] == ["/".join(names)] == [SIMULATED]
        states.append(message.get_attr("DEVLINK_ATTR_HEALTH_REPORTER").get_attr(STATE))
    assert states == [1, 1, 0]
