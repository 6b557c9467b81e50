"""manifests/examples/cabling-readiness without a cluster: its plan, and its monitor as
node-problem-detector reads and runs it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.lldp.neighbors import AWAITED
from agent.verify.command import NPD_WIDTH
from tests.support.snapshots import FIXTURES, bwagent

MACHINE = FIXTURES / "cw-h100-ibp"
NODE = "gpu-017"
SECONDS = {"s": 1, "m": 60}


@pytest.fixture
def recipe(repository: Path) -> Path:
    return repository / "manifests" / "examples" / "cabling-readiness"


@pytest.fixture
def monitor(recipe: Path) -> dict[str, Any]:
    """The configuration of the custom plugin monitor."""
    found: dict[str, Any] = json.loads((recipe / "npd" / "cabling-monitor.json").read_text())
    return found


def seconds(duration: str) -> int:
    """Return a Go duration of one unit in seconds."""
    count, unit = re.fullmatch(r"(\d+)([sm])", duration).groups()  # type: ignore[union-attr]
    return int(count) * SECONDS[unit]


def run(monitor: dict[str, Any], plan: Path) -> tuple[str, str]:
    """Run the rule over a captured node; return the condition's status and the message, as
    node-problem-detector takes them from exit code and output.
    """
    (rule,) = monitor["rules"]
    words = [str(plan) if word.endswith(".csv") else word for word in rule["args"]]
    done = bwagent(*words, "--replay", str(MACHINE), "--node-name", NODE)
    status = {0: "False", 1: "True"}.get(done.returncode, "Unknown")
    return status, done.stdout.decode().strip()[: monitor["pluginConfig"]["max_output_length"]]


def test_the_monitor_is_taken(monitor: dict[str, Any]) -> None:
    """What node-problem-detector checks at its start, but for the file at `path`."""
    (rule,), (condition,) = monitor["rules"], monitor["conditions"]
    assert (monitor["plugin"], rule["type"]) == ("custom", "permanent")
    assert rule["condition"] == condition["type"]
    assert seconds(rule["timeout"]) <= seconds(monitor["pluginConfig"]["timeout"])


def test_the_monitor_waits_for_lldp(monitor: dict[str, Any]) -> None:
    """A switch speaks every 30 s, so a run may take a minute: it is neither killed before its time
    nor started again meanwhile, and until the first one ends there is no condition.
    """
    config = monitor["pluginConfig"]
    assert AWAITED < seconds(config["timeout"]) < seconds(config["invoke_interval"])
    assert config["max_output_length"] == NPD_WIDTH
    assert config["skip_initial_status"]


def test_the_plan_is_one(recipe: Path, monitor: dict[str, Any]) -> None:
    status, message = run(monitor, recipe / "agent" / "plan.csv")
    assert (status, "8 of 8 cables as planned" in message) == ("False", True)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ((f"{NODE},ibp0,", f"{NODE},ibp99,"), "True"),
        ((NODE, "gpu-117"), "Unknown"),
        (("device", "color"), "Unknown"),
    ],
)
def test_other_plans(
    recipe: Path, tmp_path: Path, monitor: dict[str, Any], change: tuple[str, str], status: str
) -> None:
    """A missing interface is a problem; a plan without rows of the node, or that cannot be read,
    is unknown.
    """
    plan = tmp_path / "plan.csv"
    plan.write_text((recipe / "agent" / "plan.csv").read_text().replace(*change))
    found, message = run(monitor, plan)
    assert (found, bool(message)) == (status, True)
