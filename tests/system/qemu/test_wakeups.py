"""Events from a real RDMA kernel without udevd: one boot, the steps of waking_node.py."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.qemu.machine import Machine, missing
from tests.support.qemu.waking_node import STEPS
from tests.support.real_parts import require

if TYPE_CHECKING:
    from agent.events.event import Event

REPO = Path(__file__).parents[3]
ENVIRONMENT = {"PYTHON": sys.executable, "PYTHONPATH": str(REPO)}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """Boot once; return the events of each step."""
    require(missing())
    require(None if importlib.util.find_spec("pyudev") else "uevents need pyudev")
    folder = tmp_path_factory.mktemp("waking")
    result = Machine(folder).run(
        'exec "$PYTHON" -m tests.support.qemu.waking_node', env=ENVIRONMENT, timeout=900
    )
    assert result.rc == 0, result.output
    return dict(json.loads((folder / "events.json").read_text()))


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
