"""No series for what was not asked: a source that --source leaves out claims nothing."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent.sources import NAMES
from agent.telemetry.metrics import registry
from tests.support.kernel_tree import gpu, nic
from tests.support.running import World

NODE = nic(0) | gpu()
NVML = ("bwagent_accelerator", "bwagent_gpus")


def series(world: World) -> list[tuple[str, dict[str, str]]]:
    """Return name and labels of every series."""
    text = generate_latest(registry(world.metrics)).decode()
    families = text_string_to_metric_families(text)
    return [(sample.name, sample.labels) for family in families for sample in family.samples]


def about(world: World, *names: str) -> set[str]:
    return {name for name, _ in series(world) if name.startswith(names)}


def sources(world: World) -> set[str]:
    """Return the sources that series are labeled with."""
    return {labels["source"] for _, labels in series(world) if "source" in labels}


@pytest.mark.parametrize("asked", [("rdma",), ("rdma", "lldp"), ("rdma", "ib"), ("nvml",), NAMES])
def test_a_source_that_is_off_has_no_series(asked: tuple[str, ...]) -> None:
    """Neither success nor duration nor problems, nor a reason, a GPU or a frame."""
    world = World(NODE, sources=asked).run(90)
    assert sources(world) == {*asked, "host", "labels"}
    assert bool(about(world, *NVML)) == ("nvml" in asked)
    assert bool(about(world, "bwagent_neighbor")) == ("lldp" in asked)
    assert bool(about(world, "bwagent_speed")) == ("rdma" in asked)
    dropped = {name for name, _ in series(world) if "lldp_frames" in name}
    assert bool(dropped) == ("lldp" in asked)


def test_gpus_that_could_not_be_queried() -> None:
    """Their number is unknown, not 0; the reason is there."""
    world = World(NODE).run(90)
    assert about(world, *NVML) == {"bwagent_accelerator_missing"}
