"""`bwagent run` on a real API server while files of its devices cannot be read: the log, in which
each change of a label stands, has no value that is not of the node.

A directory in the place of a file is one that cannot be read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.support.kernel_tree import (
    BUS,
    CLASS,
    HOME,
    NET,
    Entries,
    base,
    bdf,
    card,
    hca,
    managing,
    netdev,
    union,
)
from tests.support.kube.resident import Agent
from tests.support.sysfs_on_disk import lay, remove

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.cluster import Cluster

HOLD = ("--hold", "2s")
STORAGE = "0000:40:00.0"
STORED: Entries = {
    f"{NET}/lo": None,
    **hca("mlx5_8", STORAGE, "Ethernet", {1: "store0"}),
    **netdev("store0", STORAGE, speed="100000"),
}


def rails(count: int) -> Entries:
    """InfiniBand HCAs beside an Ethernet port."""
    return STORED | union(card(f"ibp{number}", bdf(number)) for number in range(count))


def hide(folder: Path, *paths: str) -> None:
    """Have files fail to be read."""
    for path in paths:
        (folder / path).unlink()
        (folder / path).mkdir()


def show(folder: Path, entries: Entries) -> None:
    """Lay the files again that could not be read."""
    for path, entry in entries.items():
        if isinstance(entry, bytes) and (folder / path).is_dir():
            (folder / path).rmdir()
    lay(entries, folder)


def past_the_hold(agent: Agent) -> None:
    """Wait for the end of the hold: the speed of ports that are all unread goes."""
    agent.look()
    agent.until(lambda: "speed.current" not in agent.labels())


@pytest.mark.parametrize("count", [8, 1])
def test_no_hca_can_be_read(cluster: Cluster, tmp_path: Path, count: int) -> None:
    """The Ethernet port beside them does not become the backend, not after the hold either."""
    node, tree = f"unread-{count}", rails(count)
    cluster.node(node)
    with Agent(cluster, tmp_path, node, tree, *HOLD) as agent:
        agent.speaks(f"{400 * count}G")
        hide(tmp_path, *(f"{base(n)}/node_type" for n in range(count)))
        past_the_hold(agent)
        show(tmp_path, tree)
        agent.look()
        agent.speaks(f"{400 * count}G")
        assert "roce" not in agent.log.read_text()


def test_a_fresh_node_whose_hcas_cannot_be_read(cluster: Cluster, tmp_path: Path) -> None:
    """No flavor, over a restart and past the hold; the first read gives the true one."""
    node, tree = "unread-fresh", rails(4)
    cluster.node(node)
    lay(tree, tmp_path)
    hide(tmp_path, *(f"{base(n)}/ports/1/link_layer" for n in range(4)))
    for _ in range(2):
        with Agent(cluster, tmp_path, node, {}, *HOLD) as agent:
            agent.until(lambda: observed(agent))
            look(agent)
            assert "flavor" not in agent.labels()
    show(tmp_path, tree)
    with Agent(cluster, tmp_path, node, {}, *HOLD) as agent:
        agent.speaks("1600G")
        assert agent.labels()["flavor"] == "infiniband"
        assert "roce" not in agent.log.read_text()


def observed(agent: Agent) -> float:
    return agent.metrics().value("bwagent_observations_total") or 0.0


def look(agent: Agent) -> None:
    """Wait for an observation that begins now."""
    before = observed(agent)
    agent.look()
    agent.until(lambda: observed(agent) > before)


def test_a_virtual_function_that_is_removed(cluster: Cluster, tmp_path: Path) -> None:
    """The kernel removes `physfn` before it unbinds the driver: no port is counted, nor lost."""
    node, place = "unread-vf", f"{HOME}/{bdf(7)}"
    cluster.node(node)
    tree = rails(2) | card("ibp7", bdf(7)) | {f"{place}/physfn": f"../{bdf(0)}"}
    with Agent(cluster, tmp_path, node, tree) as agent:
        agent.speaks("800G")
        for gone in ([f"{place}/physfn"], [f"{CLASS}/ibp7", f"{place}/infiniband"],
                     [f"{BUS}/{bdf(7)}", place]):  # fmt: skip
            remove(tmp_path, *gone)
            look(agent)
        assert agent.metrics().value("bwagent_backend_ports_lost") == 0
        assert "1200G" not in agent.log.read_text()
        assert agent.labels()["speed.current"] == "800G"


def test_the_vpd_of_nvswitch_functions(cluster: Cluster, tmp_path: Path) -> None:
    """An agent that starts after their VPDs were read, and cannot read them, does not count them,
    not after the hold either.
    """
    node = "unread-vpd"
    cluster.node(node)
    with Agent(cluster, tmp_path, node, rails(8) | managing()) as agent:
        agent.speaks("3200G")
        agent.until(lambda: "observed" in str(agent.metadata().get("annotations")))
    hide(tmp_path, *(f"{HOME}/0000:d2:00.{number}/vpd" for number in range(4)))
    with Agent(cluster, tmp_path, node, {}, *HOLD) as agent:
        agent.until(lambda: observed(agent))
        ends = time.monotonic() + 3.0
        while time.monotonic() < ends:
            look(agent)
        assert agent.labels()["speed.current"] == "3200G"
        assert "4000G" not in agent.log.read_text()
