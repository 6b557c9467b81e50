"""The helper that reads plan files for the daemon, as a process of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.daemon.plan_file import STALLED, TIMEOUT, PlanFile
from agent.encode import Naming
from agent.errors import Unavailable
from agent.helper.process import HelperProcesses
from tests.support import dead_filesystem
from tests.support.processes import Started
from tests.support.real_parts import require
from tests.support.switch import wait_for

P = Naming().prefix


def answer(
    path: Path, timeout_s: float = TIMEOUT, helpers: HelperProcesses | None = None
) -> dict[str, Any]:
    payload = {"files": [str(path)], "names": ["gpu-17"], "prefixes": [P, ""]}
    return (helpers or HelperProcesses()).call("plan", payload, timeout_s)


@pytest.mark.parametrize(
    "text",
    [
        "node,interface,device,port-id\ngpu-17,mlx5_0,leaf1,swp1\ngpu-18,mlx5_0,leaf1,swp2\n",
        f"{P}/neighbors.expected.mlx5_0.device: leaf1\n",
        f'{{"{P}/neighbors.expected.mlx5_0.device": "leaf1"}}',
    ],
)
def test_every_kind(text: str, tmp_path: Path) -> None:
    """With the packages that an isolated interpreter finds; in the parent by a thread."""
    path = tmp_path / "plan"
    path.write_text(text)
    plan = PlanFile((str(path),), ["gpu-17"], Naming(), BackgroundTask())
    plan.start_due(0.0)
    assert wait_for(lambda: plan.collect(0.0))
    expected = plan.expected
    assert expected
    assert [(row.text, row.device) for row in expected.rows] == [("mlx5_0", "leaf1")]
    assert plan.problem is None


@pytest.mark.parametrize(
    "item", ["[],", *(pytest.param(one, marks=pytest.mark.sweep) for one in ("{},", "x,"))]
)
def test_its_memory_is_limited(item: str, tmp_path: Path) -> None:
    """The container's limit is not reached, and the reason is said."""
    path = tmp_path / "plan"
    text = f"{P}/speed.expected: 1G\na: ["
    path.write_text(text + item * (((1 << 20) - len(text)) // len(item) - 1) + "]\n")
    assert answer(path) == {"error": f"{path}: more than 96 MiB of memory to read"}


def test_a_file_system_that_does_not_answer(tmp_path: Path, started: Started) -> None:
    """The helper is late; the agent's own look is in a thread, and is said to hang."""
    require(dead_filesystem.missing())
    with dead_filesystem.mounted(tmp_path / "dead") as folder:
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"helper plan: no answer within 0\.5 s"):
            answer(folder / "plan.csv", 0.5, HelperProcesses(popen=started))
        assert time.monotonic() - began < TIMEOUT / 2
        plan = PlanFile((str(folder / "plan.csv"),), ["gpu-17"], Naming(), BackgroundTask())
        plan.start_due(0.0)
        assert not plan.collect(1.0)
        assert plan.collect(STALLED)
        assert plan.problem == f"{folder}/plan.csv: the file system does not answer"
    assert wait_for(lambda: plan.collect(STALLED))
