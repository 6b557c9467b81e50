"""`bwagent run --tiers` over ibsim and opensm, up to the labels and the annotation of a real Node.

Its first question is at a random time within a day, and the annotation says when the next one is
due: each agent here starts with one that says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.fabric import MANAGERS, Fabric, missing
from tests.support.fabrics import pods
from tests.support.kernel_tree import HOME, NET, Entries, hca
from tests.support.kube.cluster import Cluster
from tests.support.kube.resident import Agent, P
from tests.support.real_parts import require

NODE, FUNCTION = "fabric-tiers", "0000:18:00.0"
FABRIC = f"{P}/fabric"
SOON, HOUR, DAY = 6, 3600, 86_400  # seconds
TIERS = {"tier-1.current": "spine1", "tier-2.current": "core1"}


def after(seconds: float) -> str:
    """Return a time of an annotation."""
    return datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Site:
    """A Node, and the host behind it in a fabric of two pods."""

    def __init__(self, fabric: Fabric, cluster: Cluster, folder: Path) -> None:
        self.fabric, self.cluster, self.folder = fabric, cluster, folder
        fabric.boot("host1", folder / "hca")
        port = f"{HOME}/{FUNCTION}/infiniband/ibsim0/ports/1"
        booted = folder / "hca/class/infiniband/ibsim0/ports/1"
        self.place = {name: (booted / name).read_bytes() for name in ("lid", "sm_lid", "pkeys/0")}
        place: Entries = {f"{port}/{name}": data for name, data in self.place.items()}
        self.entries = hca("ibsim0", FUNCTION) | {f"{NET}/lo": None} | place

    @property
    def remembered(self) -> dict[str, Any]:
        """The annotation of the Node."""
        return dict(json.loads(self.cluster.metadata(NODE)["annotations"][FABRIC]))

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Write the annotation, as of an agent before."""
        annotations = {FABRIC: json.dumps(memory)}
        assert self.cluster.merge(NODE, {"annotations": annotations}).status == 200

    @contextmanager
    def agent(self) -> Iterator[Agent]:
        """Run an agent, and end it."""
        under = self.fabric.under("host1", tables=True)
        with Agent(
            *(self.cluster, self.folder, NODE, self.entries, "--tiers"), under=under
        ) as agent:
            yield agent
            assert agent.labels().items() >= TIERS.items()
            agent.stop()
        self.fabric.release()


def questions(agent: Agent) -> dict[str, float]:
    """Return the number of questions by outcome."""
    series = agent.metrics().series("bwagent_tier_questions_total")
    return {labels["outcome"]: count for labels, count in series}


def test_the_tiers_of_a_node(cluster: Cluster, tmp_path: Path) -> None:
    """A restart asks for nothing, a link that is down changes nothing, and the look a day after
    the last answer is two questions: the LIDs are not remembered.
    """
    require(missing(*MANAGERS))
    cluster.node(NODE)
    with Fabric(pods(), tmp_path) as fabric, fabric.manager("host2", "-r", "-s", "1"):
        site = Site(fabric, cluster, tmp_path)
        nothing = {"schema": 1, "switches": [], "leaves": []}
        site.remember(nothing | {"time": after(-HOUR), "due": after(SOON)})
        with site.agent() as agent:
            agent.until(lambda: agent.labels().items() >= TIERS.items())
            asked = questions(agent)
            assert asked.keys() == {"answered"}
            assert 5 < asked["answered"] < 20
        first = site.remembered
        names = {row["name"] for row in first["switches"] if row.get("tier") == 1}
        assert names == {"spine1", "spine2"}

        with site.agent() as agent:
            agent.until(lambda: agent.neighbors("ibsim0"))
            agent.until(lambda: agent.metrics().value("bwagent_ready") == 1)
            time.sleep(SOON)
            assert questions(agent) == {"answered": 0}
        assert site.remembered == first

        [link] = fabric.saquery("host2", "LR", str(int(site.place["lid"], 0)))
        lid = link["ToLID"]
        before = len(fabric.saquery("host2", "LR", lid))
        fabric.console('Unlink "leaf1"[4]')  # to spine1, whose name the label has
        deadline = time.monotonic() + 60
        while len(fabric.saquery("host2", "LR", lid)) == before:
            assert time.monotonic() < deadline
            fabric.release()
        site.remember(first | {"due": after(SOON)})
        with site.agent() as agent:
            agent.until(lambda: questions(agent).get("answered"))
            agent.until(lambda: site.remembered["time"] > first["time"])

        second = site.remembered
        site.remember(second | {"time": after(SOON - DAY), "due": after(6 * DAY)})
        with site.agent() as agent:
            agent.until(lambda: "looked" in site.remembered)
            assert questions(agent) == {"answered": 2}
