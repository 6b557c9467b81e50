"""Events from a real RDMA kernel without udevd: the steps of waking_node.py."""

from __future__ import annotations

import importlib.util
import json

import pytest

from agent.events.event import Event
from tests.support.qemu.shared import Shared
from tests.support.qemu.waking_node import STEPS
from tests.support.real_parts import require


@pytest.fixture(scope="module")
def events(shared: Shared) -> dict[str, list[list[str]]]:
    """Return the events of each step."""
    require(None if importlib.util.find_spec("pyudev") else "uevents need pyudev")
    return dict(json.loads((shared.results("test_wakeups") / "events.json").read_text()))


def test_every_monitor_opens_without_udevd(events: dict[str, list[list[str]]]) -> None:
    """The kernel's own multicast group needs no udevd."""
    assert events["unavailable"] == []


@pytest.mark.parametrize("step", STEPS, ids=[step[0] for step in STEPS])
def test_changes_of_a_device_are_events(
    events: dict[str, list[list[str]]], step: tuple[str, str, set[Event]]
) -> None:
    """Uevents, link messages and the sweep report it, and nothing else is reported."""
    name, _, awaited = step
    found = {tuple(event) for event in events[name]}
    assert awaited <= found
    assert found <= {("device", "rxe0"), ("device", "rxe9"), ("link", "eth0"), ("port", "rxe0/1")}
