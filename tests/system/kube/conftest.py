"""Agents, gates and machines on the API server of the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kernel_tree import NET, Entries, hca
from tests.support.kube.agents import Agent, an_agent, install
from tests.support.kube.cluster import Cluster
from tests.support.kube.controllers import eventually
from tests.support.kube.readiness import a_reporter, denied, install_gate
from tests.support.kube.worker import Worker
from tests.support.kube.worker import missing as no_worker
from tests.support.kube.worker import worker as a_worker
from tests.support.real_parts import require


@pytest.fixture(scope="session")
def gated(installed: Cluster) -> Cluster:
    """The API server with the agent's manifests and the gate of examples/cabling-readiness."""
    install_gate(installed)
    reporter, ready = a_reporter(installed), {"type": "Ready", "status": "True"}
    body = {"metadata": {"name": reporter.node}, "status": {"conditions": [ready]}}
    eventually(installed, "a policy", lambda: denied(reporter.put(body, "?dryRun=All")))
    return installed


@pytest.fixture
def two() -> Entries:
    """Two InfiniBand HCAs, and a /sys that is mounted."""
    return hca("ibp0", "0000:18:00.0") | hca("ibp1", "0000:19:00.0") | {f"{NET}/lo": None}


@pytest.fixture
def agent(installed: Cluster) -> Agent:
    return an_agent(installed, "bwagent")


@pytest.fixture
def mighty(installed: Cluster) -> Agent:
    """An agent with all permissions, restricted by the policy alone."""
    return an_agent(installed, "mighty")


@pytest.fixture
def tenant(fresh: Cluster) -> Cluster:
    """An API server with the overlay that names labels of a tenant's own."""
    install(fresh, "coreweave")
    return fresh


@pytest.fixture(scope="package")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A machine with a kubelet, for the agent's DaemonSet."""
    require(no_worker())
    with a_worker(tmp_path_factory.mktemp("worker")) as worker:
        yield worker
