"""A Node with labels of manager `bwagent` under other prefixes than the agent's: left by a former
configuration, or written by a second agent. With and without the admission policy.
"""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.labels.table import LABELS as TABLE
from tests.support.kernel_tree import Entries
from tests.support.kube import agents
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent
from tests.support.kube.controllers import eventually
from tests.support.kube.manifests import own_overlay
from tests.support.kube.programs import missing
from tests.support.kube.resident import Agent, P
from tests.support.kube.worker import in_force
from tests.support.real_parts import require

OLD = "old.example.com"
SPEED, RACK = f"{OLD}/speed.current", f"{OLD}/rack"
LABELS = {f"{OLD}/flavor": "infiniband", SPEED: "700G"}
HOUR = 3600.0


@pytest.fixture(scope="module")
def listed(fresh: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """An API server whose policy has the former prefix, as an overlay of one's own sets it."""
    overlay = own_overlay(
        tmp_path_factory.mktemp("overlay"), "sysfs", f"BWAGENT_FORMER_LABEL_PREFIXES=x.org {OLD}"
    )
    agents.install(fresh, str(overlay))
    return fresh


@pytest.fixture(params=[pytest.param("no policy", marks=pytest.mark.sweep), "policy"])
def token(request: pytest.FixtureRequest, installed: Cluster) -> str | None:
    """Return the agent's token, which the policy binds; None: the administrator's."""
    node = node_of(request)
    installed.node(node)
    if request.param == "no policy":
        return None
    return installed.token_for_pod_on(node, "bwagent", "bwagent")


def node_of(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")


def leave(cluster: Cluster, node: str, age: float, **labels: str) -> None:
    """Put labels and the annotation of a former agent on the Node; `age` in seconds."""
    observed = datetime.fromtimestamp(time.time() - age, UTC).isoformat(timespec="seconds")
    text = json.dumps({"schema": 1, "agent": "0.0.9", "boot_id": None, "time": observed})
    metadata = {"labels": LABELS | labels, "annotations": {f"{OLD}/observed": text}}
    assert cluster.apply(node, metadata).status == 200


def former(agent: Agent) -> dict[str, str]:
    """Return the labels and annotations under the former prefix."""
    metadata = agent.metadata()
    found = metadata.get("labels", {}) | metadata.get("annotations", {})
    return {key: value for key, value in found.items() if key.startswith(OLD)}


def clean_up(agent: Agent) -> None:
    """Run the cleanup that the log of the agent names."""
    found = {re.search(r"bwagent (cleanup.*) removes", line) for line in agent.lines(OLD)}
    (words,) = {match[1] for match in found if match}
    where = ("--yes", "--node-name", agent.node)
    done = bwagent(*words.split(), *where, kubeconfig=agent.cluster.kubeconfig())
    assert done.returncode == 0, done.stderr


def test_cleanup_of_a_former_prefix(
    request: pytest.FixtureRequest,
    installed: Cluster,
    tmp_path: Path,
    two: Entries,
    token: str | None,
) -> None:
    """Removed labels do not come back with the next change, which is applied at once."""
    node = node_of(request)
    leave(installed, node, 3 * HOUR)
    with Agent(installed, tmp_path, node, two, token=token) as agent:
        agent.speaks("800G")
        agent.says("bwagent cleanup --label-prefix old.example.com")
        assert former(agent).keys() == {*LABELS, f"{OLD}/observed"}
        clean_up(agent)
        assert former(agent) == {}
        assert agent.labels()["speed.current"] == "800G"
        agent.set("ibp1", "state", "1: DOWN")
        agent.speaks("400G")
        assert former(agent) == {}
        agent.says(f"node problem resolved subject={OLD}")
        assert not agent.lines("refused")


def test_a_former_prefix_is_removed(
    request: pytest.FixtureRequest, listed: Cluster, tmp_path: Path, two: Entries
) -> None:
    """Labels and annotation of a prefix on the list go; those of the site stay."""
    node = node_of(request)
    listed.node(node, labels={RACK: "1"})
    leave(listed, node, 3 * HOUR)
    token = listed.token_for_pod_on(node, "bwagent", "bwagent")
    variables = {"BWAGENT_FORMER_LABEL_PREFIXES": f"x.org {OLD}"}
    with Agent(listed, tmp_path, node, two, token=token, environment=variables) as agent:
        agent.speaks("800G")
        agent.says(f"label removed key={SPEED} from=700G reason=")
        assert former(agent) == {RACK: "1"}
        assert not agent.lines("refused")
        assert not agent.lines("node problem")


def test_two_agents(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path, two: Entries
) -> None:
    """Each carries the labels of the other as they are now, and one line of each names both."""
    node = node_of(request)
    cluster.node(node)
    other = ("--label-prefix", OLD, "--ib-label-prefix", "", "--accelerator-label", "")
    folders = [tmp_path / "a", tmp_path / "b"]
    with Agent(cluster, folders[0], node, two) as first:
        first.speaks("800G")
        first.says("label added")
        with Agent(cluster, folders[1], node, two, *other) as second:
            second.until(lambda: former(second).get(SPEED) == "800G")
            first.look()
            first.says(f"another bwagent labels this Node under {OLD}, this one under {P}")
            second.says(f"another bwagent labels this Node under {P}, this one under {OLD}")
            second.set("ibp1", "state", "1: DOWN")
            second.until(lambda: former(second).get(SPEED) == "400G")
            first.set("ibp0", "rate", "200 Gb/sec (4X HDR)")
            first.speaks("600G")
            assert former(first)[SPEED] == "400G"
            second.set("ibp1", "state", "4: ACTIVE")
            second.until(lambda: former(second).get(SPEED) == "800G")
            assert first.labels()["speed.current"] == "600G"


def test_two_prefixes_during_an_upgrade(tmp_path: Path, two: Entries) -> None:
    """The policy has the new prefix before the agents have. Those of before are refused and not
    ready, and leave labels as they were; each that follows has its own at once, beside those.
    """
    require(missing())
    (tmp_path / "overlay").mkdir()
    settings = (f"BWAGENT_LABEL_PREFIX={OLD}", f"BWAGENT_FORMER_LABEL_PREFIXES={P}")
    overlay = own_overlay(tmp_path / "overlay", "sysfs", *settings)
    follows = ("--label-prefix", OLD, "--former-label-prefix", P)
    with Cluster() as cluster:
        agents.install(cluster, "sysfs")
        tokens = {}
        for node in ("a", "b"):
            cluster.node(node)
            tokens[node] = cluster.token_for_pod_on(node, "bwagent", "bwagent")
        with Agent(cluster, tmp_path / "a", "a", two, token=tokens["a"]) as before:
            before.speaks("800G")
            with Agent(cluster, tmp_path / "b", "b", two, token=tokens["b"]) as agent:
                agent.speaks("800G")
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(overlay))
            mighty = agents.an_agent(cluster, "mighty")
            eventually(cluster, "the policy", lambda: in_force(mighty, f"{OLD}/"))
            before.set("ibp1", "state", "1: DOWN")
            before.says(f"label refused key={P}/speed.current status=422")
            assert before.labels()["speed.current"] == "800G"
            assert former(before) == {}
            with Agent(cluster, tmp_path / "b", "b", two, *follows, token=tokens["b"]) as agent:
                agent.until(lambda: former(agent).get(SPEED) == "800G")
                assert agent.labels()["speed.current"] == "800G"
                agent.set("ibp1", "state", "1: DOWN")
                agent.until(lambda: former(agent).get(SPEED) == "400G")
        with Agent(cluster, tmp_path / "a", "a", two, *follows, token=tokens["a"]) as agent:
            agent.set("ibp1", "state", "1: DOWN")
            agent.until(lambda: former(agent).get(SPEED) == "400G")
            assert agent.labels()["speed.current"] == "800G"


def refused(agent: agents.Agent, **metadata: Any) -> bool:
    return agents.denied(agent.merge({"metadata": metadata}))


def test_policy_of_former_prefixes(listed: Cluster) -> None:
    """Under a listed prefix nothing is set or changed, and keys of another shape stay."""
    agent = agents.an_agent(listed, "mighty")
    leave(listed, agent.node, HOUR)
    listed.kubectl("label", "node", agent.node, f"{OLD}/fabric=1", f"y.org/{OLD}=1")
    for key in (f"{OLD}/fabric", f"y.org/{OLD}", "site.example/rack"):
        assert refused(agent, labels={key: None}), key
    for key in (SPEED, f"{OLD}/leaves.current", "x.org/flavor", f"{P}-2/flavor"):
        assert refused(agent, labels={key: "1"}), key
    assert refused(agent, annotations={f"{OLD}/observed": "{}"})
    assert refused(agent, annotations={f"{OLD}/observed-2": "{}"})
    assert LABELS.items() <= agent.labels().items()


def test_policy_permits_the_removal(listed: Cluster) -> None:
    """Every row of the table can be removed under a listed prefix, and the annotation, with many
    labels on the Node.
    """
    agent = agents.an_agent(listed, "mighty")
    names = [row.key.partition("/")[2] for row in TABLE if "/" in row.key]
    ports = [f"mlx5_{number}-3" for number in range(64)]
    keys = {f"{OLD}/{name.replace('{if}', port)}" for name in names for port in ports}
    leave(listed, agent.node, HOUR, **dict.fromkeys(keys, "x" * 63))
    listed.kubectl("label", "node", agent.node, *(f"site.example/l{n}=x" for n in range(200)))
    answer = agent.apply({"labels": {f"{P}/flavor": "roce"}})
    assert answer.status == 200, answer.message
    assert not [key for key in agent.labels() if key.startswith(OLD)]


def test_policy_without_former_prefixes(mighty: agents.Agent) -> None:
    """Without the list nothing under another prefix may be removed."""
    leave(mighty.cluster, mighty.node, HOUR)
    assert refused(mighty, labels={SPEED: None})
    assert refused(mighty, annotations={f"{OLD}/observed": None})
