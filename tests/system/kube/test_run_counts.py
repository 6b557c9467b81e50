"""`bwagent run` on a real API server while a device blocks in the kernel."""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.support import dead_filesystem
from tests.support.kernel_tree import HOME, NET, Entries, bdf, hca
from tests.support.kube.resident import IB, Agent, P
from tests.support.real_parts import require

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.cluster import Cluster


def state(number: int, name: str) -> str:
    """The path of a port's state."""
    return f"{HOME}/{bdf(number)}/infiniband/{name}/ports/1/state"


def counted(agent: Agent) -> dict[str, float]:
    """What the interfaces count, by the annotation."""
    text = agent.metadata().get("annotations", {}).get(f"{P}/observed", "{}")
    return {row["interface"]: row["gbps"] for row in json.loads(text)["ports"]}


def block(folder: Path, dead: Path) -> None:
    """Have each read of the first HCA's state wait for ever."""
    place = folder / state(0, "ibp0")
    place.unlink()
    place.symlink_to(dead / "state")


def look(agent: Agent) -> None:
    agent.process.send_signal(signal.SIGHUP)


def test_one_hca_blocks_and_four_cables_are_pulled(cluster: Cluster, tmp_path: Path) -> None:
    """The Node has the truth of seven ports and the last count of the blocked one at once, after a
    restart of the agent, too; the blocked one counts 0 after its hold.
    """
    require(dead_filesystem.missing())
    cluster.node("counts-blocked")
    eight: Entries = {f"{NET}/lo": None}
    for number in range(8):
        eight |= hca(f"ibp{number}", bdf(number))
    with ExitStack() as stack:
        # A process with a read in there ends with the filesystem only.
        agent = stack.enter_context(Agent(cluster, tmp_path, "counts-blocked", eight))
        with dead_filesystem.mounted(tmp_path / "dead") as dead:
            agent.speaks("3200G")
            block(tmp_path, dead)
            look(agent)
            agent.until(lambda: "blocked in the kernel" in agent.log.read_text())
            for number in (1, 2, 3, 4):
                agent.set(f"ibp{number}", "state", "1: DOWN")
            began = time.monotonic()
            agent.speaks("1600G")
            assert time.monotonic() - began < 20
            assert agent.metadata()["labels"][f"{IB}/speed.current"] == "1600G"
            assert agent.metrics().value("bwagent_speed_bytes_per_second") == 200e9
            assert counted(agent) == {
                f"ibp{number}": 0.0 if 0 < number < 5 else 400.0 for number in range(8)
            }
            agent.process.kill()
        agent.process.wait()
        before = agent.version()
        with dead_filesystem.mounted(tmp_path / "dead again") as dead:
            block(tmp_path, dead)
            agent = stack.enter_context(
                Agent(cluster, tmp_path, "counts-blocked", {}, "--hold", "8")
            )
            agent.until(lambda: "blocked in the kernel" in agent.log.read_text())
            time.sleep(2)
            assert agent.version() == before
            agent.set("ibp5", "state", "1: DOWN")
            agent.speaks("1200G")
            assert counted(agent)["ibp0"] == 400.0
            agent.speaks("800G")
            assert counted(agent)["ibp0"] == 0.0
