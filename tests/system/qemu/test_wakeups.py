"""Wake-ups from a real RDMA kernel without udevd: one boot, the steps of waking_node.py."""

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
    from agent.events.monitor import Event

REPO = Path(__file__).parents[3]
ENVIRONMENT = {"PYTHON": sys.executable, "PYTHONPATH": str(REPO)}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """Boot once; what was said at each step."""
    require(missing())
    require(None if importlib.util.find_spec("pyudev") else "uevents need pyudev")
    folder = tmp_path_factory.mktemp("waking")
    result = Machine(folder).run(
        'exec "$PYTHON" -m tests.support.qemu.waking_node', env=ENVIRONMENT, timeout=240
    )
    assert result.rc == 0, result.output
    return dict(json.loads((folder / "wakes.json").read_text()))


def test_every_ear_works_without_udevd(said: dict[str, list[list[str]]]) -> None:
    """The kernel's own multicast group needs no daemon."""
    assert said["deaf"] == []


@pytest.mark.parametrize("step", STEPS, ids=[step[0] for step in STEPS])
def test_what_happens_to_a_device_wakes(
    said: dict[str, list[list[str]]], step: tuple[str, str, set[Event]]
) -> None:
    """The ears and the sweep say that it may have changed, each by itself, and nothing of anybody
    else.
    """
    name, _, awaited = step
    told = {tuple(wake) for wake in said[name]}
    assert awaited <= told
    assert told <= {("device", "rxe0"), ("device", "rxe9"), ("link", "eth0"), ("port", "rxe0/1")}
